"""CPUs of their own for containers and processes; these are the public names."""

from pinfold.core.admission import Admission, Admitter, Scope
from pinfold.core.allocators.order import Fidelity
from pinfold.core.config import Config, Reservation
from pinfold.core.cpuset import CPUSet
from pinfold.core.hints import Hint, HintList
from pinfold.core.pods import Amounts, Container, ContainerRef, Pod, PodUID, QoS, Resources
from pinfold.core.presets import preset
from pinfold.core.state import State
from pinfold.core.topology import CPUInfo, Group, Topology
from pinfold.core.trace import Defect, Trace
from pinfold.errors import AdmissionError, ConfigError, ParseError, PinfoldError, StateError

__all__ = [
    "Admission",
    "AdmissionError",
    "Admitter",
    "Amounts",
    "CPUInfo",
    "CPUSet",
    "Config",
    "ConfigError",
    "Container",
    "ContainerRef",
    "Defect",
    "Fidelity",
    "Group",
    "Hint",
    "HintList",
    "ParseError",
    "PinfoldError",
    "Pod",
    "PodUID",
    "QoS",
    "Reservation",
    "Resources",
    "Scope",
    "State",
    "StateError",
    "Topology",
    "Trace",
    "preset",
]
__version__ = "0.1.0"
