"""Trace: the steps of a decision, as data and as text; and the known defects of the kubelet, as names.

A decision is pure, so its Trace is made by repeating it with a recorder: it costs nothing until it is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pinfold.core.machine.cpuset import EMPTY, CPUSet, format_list


class Defect(StrEnum):
    """What the kubelet gets wrong; only fidelity `kubelet` has any. See docs/reference/parity.md."""

    AVERAGE_SIZE = "average-size"
    """A core or socket counted as whole by the average size of all, not by its own."""
    UNAVAILABLE_CPUS = "unavailable-cpus"
    """CPUs were taken that were not free."""
    COUNTED_TWICE = "counted-twice"
    """A socket, NUMA node or cache that crosses others was in a sorted list twice."""
    REUSED_WHILE_HELD = "reused-while-held"
    """CPUs of a finished init container were reused although another container of the pod had them."""
    ALIASED_COMBINATION = "aliased-combination"
    """The best-scored NUMA nodes were replaced by later ones that share their first nodes."""
    ENDLESS_DISTRIBUTION = "endless-distribution"
    """The kubelet never returns."""
    EMPTY_SHARED_POOL = "empty-shared-pool"
    """The last shared CPU was given away."""
    POD_NOT_RESTARTABLE = "pod-not-restartable"
    """A pod with pod-level resources is not recognised after a restart."""
    REFUSED_POD_KEEPS_CPUS = "refused-pod-keeps-cpus"
    """A pod with pod-level resources was refused, but its CPUs are not given back."""
    SPARSE_NODE_IDS = "sparse-node-ids"
    """Distances are looked up by position, which crashes where NUMA node ids have gaps."""


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One step: CPUs taken, or a group passed over (then it took nothing)."""

    what: str
    took: CPUSet = EMPTY
    why: str = ""

    def __str__(self) -> str:
        took = f": {'CPU' if len(self.took) == 1 else 'CPUs'} {self.took}" if self.took else ""
        why = f" ({self.why})" if self.why else ""
        return f"{self.what}{took}{why}"


@dataclass(frozen=True, slots=True)
class Trace:
    """The steps of a decision, in order."""

    steps: tuple[TraceStep, ...] = ()
    defects: tuple[tuple[Defect, str], ...] = ()

    def text(self) -> str:
        """Return the steps, one line each."""
        lines = [str(step) for step in self.steps]
        return "\n".join([*lines, *(f"defect {name}: {what}" for name, what in self.defects)])

    def data(self) -> dict[str, list[dict[str, str]]]:
        """Return the steps as plain data, ready for JSON."""
        return {
            "steps": [{"what": step.what, "took": str(step.took), "why": step.why} for step in self.steps],
            "defects": [{"defect": str(name), "what": what} for name, what in self.defects],
        }


class Recorder:
    """Collects the steps of a decision that is repeated for its Trace."""

    __slots__ = ("_defects", "_steps")

    def __init__(self) -> None:
        self._steps: list[TraceStep] = []
        self._defects: dict[tuple[Defect, str], None] = {}

    def step(self, what: str, took: int = 0, why: str = "") -> None:
        """Record a step that took the CPUs of the mask *took*."""
        self._steps.append(TraceStep(what, CPUSet(took), why))

    def defect(self, defect: Defect, what: str) -> None:
        """Record a defect of the kubelet."""
        self._defects[defect, what] = None

    def unavailable(self, mask: int) -> None:
        """Record that CPUs were taken that were not free."""
        if mask:
            self.defect(Defect.UNAVAILABLE_CPUS, f"CPUs {format_list(mask)} were taken though they were not free")

    def trace(self) -> Trace:
        """Return the Trace."""
        return Trace(tuple(self._steps), tuple(self._defects))
