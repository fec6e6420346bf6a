"""Exclusive CPUs for containers and processes: the public names of pinfold.

The names for planning are imported on first use, so that other commands start faster.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from pinfold.core.admission import Admission, Admitter, Scope
from pinfold.core.allocators.order import Fidelity
from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import preset
from pinfold.core.machine.topology import CPUInfo, Group, Topology
from pinfold.core.pods.pod import Amounts, Container, ContainerRef, Pod, PodUID, QoS, Resources
from pinfold.core.state import State
from pinfold.core.topologymanager.hint import Hint, HintList
from pinfold.core.trace import Defect, Trace
from pinfold.errors import AdmissionError, ConfigError, ParseError, PinfoldError, StateError

if TYPE_CHECKING:
    from pinfold.core.advice import Advice, advise
    from pinfold.formats.pods.manifest import parse_pods
    from pinfold.planning.plan import Plan, Running
    from pinfold.render.plan.view import PlanView, plan

__all__ = [
    "Admission",
    "AdmissionError",
    "Admitter",
    "Advice",
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
    "Plan",
    "PlanView",
    "Pod",
    "PodUID",
    "QoS",
    "Reservation",
    "Resources",
    "Running",
    "Scope",
    "State",
    "StateError",
    "Topology",
    "Trace",
    "advise",
    "parse_pods",
    "plan",
    "preset",
]
__version__ = "0.1.0"
KUBERNETES = "Kubernetes 1.37-rc (HEAD of 2026-08-20)"
"""The kubelet whose decisions were recorded, and are equalled."""

_LATE = {
    "Advice": "pinfold.core.advice",
    "advise": "pinfold.core.advice",
    "Plan": "pinfold.planning.plan",
    "Running": "pinfold.planning.plan",
    "PlanView": "pinfold.render.plan.view",
    "plan": "pinfold.render.plan.view",
    "parse_pods": "pinfold.formats.pods.manifest",
}


def __getattr__(name: str) -> object:
    """Import a public name on first use."""
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATE[name]), name)
