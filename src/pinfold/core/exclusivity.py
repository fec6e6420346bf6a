"""Exclusivity: how much of an owner's CPUs others have used since they were assigned, from two readings of counters.

Reads nothing: `node.exclusivity` takes the readings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import ContainerRef

_NANO: Final = 1e9


class Reading(NamedTuple):
    """The counters of the CPUs of an owner, and of its processes, at one moment."""

    time: float
    """In seconds, of a clock that only goes forward."""
    busy: int
    """Nanoseconds for which its CPUs have run any thread, since boot."""
    interrupts: int
    """Interrupts that its CPUs have served, since boot."""
    run: int
    """Nanoseconds for which its processes have run."""
    preempted: int = 0
    """How often its threads had to leave their CPU for another thread."""
    throttled: int = 0
    """Nanoseconds for which a quota has stopped them."""


class Score(NamedTuple):
    """How exclusive the CPUs of one container really were since they were assigned, or since the daemon started."""

    container: ContainerRef
    cpus: CPUSet
    seconds: float
    """Since then."""
    foreign: float
    """Seconds for which threads of others, or the kernel, have run on them."""
    interrupts: int
    preempted: int
    throttled: float

    def data(self) -> dict[str, object]:
        """Return the figures, JSON-ready."""
        shown = self._asdict()
        return {name: round(shown[name], 3) for name in ("seconds", "foreign", "interrupts", "preempted", "throttled")}


def score(container: ContainerRef, cpus: CPUSet, first: Reading, now: Reading) -> Score:
    """Return how much others used the CPUs of a container between two readings; no figure is below zero.

    >>> from pinfold.core.machine.cpuset import CPUSet
    >>> from pinfold.core.pods.pod import ContainerRef
    >>> first, now = Reading(5.0, 10**9, 100, 0), Reading(9.0, 5 * 10**9, 140, 3 * 10**9)
    >>> score(ContainerRef("u1", "app"), CPUSet.of(3), first, now).data()
    {'seconds': 4.0, 'foreign': 1.0, 'interrupts': 40, 'preempted': 0, 'throttled': 0.0}
    """
    # Processes that have ended take their counters with them.
    run = max(now.run - first.run, 0)
    return Score(
        container=container,
        cpus=cpus,
        seconds=max(now.time - first.time, 0.0),
        foreign=max(now.busy - first.busy - run, 0) / _NANO,
        interrupts=max(now.interrupts - first.interrupts, 0),
        preempted=max(now.preempted - first.preempted, 0),
        throttled=max(now.throttled - first.throttled, 0) / _NANO,
    )
