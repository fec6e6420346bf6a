"""Exclusive CPUs for containers and processes: the public names of pinfold.

Every name is imported on first use, so that commands start fast: `import pinfold` alone loads nothing else.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pinfold.core.admission import Admission, Admitter, Scope
    from pinfold.core.allocators.order import Fidelity
    from pinfold.core.config import Config, Reservation
    from pinfold.core.explaining.advice import Advice, advise
    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.machine.presets import preset
    from pinfold.core.machine.topology import CPUInfo, Group, Topology
    from pinfold.core.pods.pod import Amounts, Container, ContainerRef, Pod, PodUID, QoS, Resources
    from pinfold.core.state import State
    from pinfold.core.topologymanager.hint import Hint, HintList
    from pinfold.core.trace import Defect, Trace
    from pinfold.errors import AdmissionError, ConfigError, ParseError, PinfoldError, StateError
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

_HOMES = {
    "pinfold.core.admission": "Admission Admitter Scope",
    "pinfold.core.explaining.advice": "Advice advise",
    "pinfold.core.allocators.order": "Fidelity",
    "pinfold.core.config": "Config Reservation",
    "pinfold.core.machine.cpuset": "CPUSet",
    "pinfold.core.machine.presets": "preset",
    "pinfold.core.machine.topology": "CPUInfo Group Topology",
    "pinfold.core.pods.pod": "Amounts Container ContainerRef Pod PodUID QoS Resources",
    "pinfold.core.state": "State",
    "pinfold.core.topologymanager.hint": "Hint HintList",
    "pinfold.core.trace": "Defect Trace",
    "pinfold.errors": "AdmissionError ConfigError ParseError PinfoldError StateError",
    "pinfold.formats.pods.manifest": "parse_pods",
    "pinfold.planning.plan": "Plan Running",
    "pinfold.render.plan.view": "PlanView plan",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Import a public name on first use, and keep it."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
    return found
