"""Shield: which CPUs the rest of the host may use while some CPUs are kept for containers.

The rest of the host is a list of Places: control groups, processes outside of them, kernel threads, IRQs, workqueues.
This module decides where each should run, and what has to be known to undo it. It reads and changes nothing.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.machine.cpuset import EMPTY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.policies.base import Policy
    from pinfold.core.state import State


class PlaceKind(StrEnum):
    """What a HostPlace is."""

    GROUP = "group"
    PROCESS = "process"
    KERNEL_THREAD = "kernel thread"
    IRQ = "IRQ"
    NEW_IRQS = "new IRQs"
    WORKQUEUES = "workqueues"


_THREADS: Final = (PlaceKind.PROCESS, PlaceKind.KERNEL_THREAD)


class HostPlace(NamedTuple):
    """Something of the host that runs on CPUs and belongs to no container."""

    kind: PlaceKind
    id: str
    """A group's path, a thread's number and start, an IRQ's number; empty where there is only one of the kind."""
    name: str = ""
    """What people call it, if that is not its id."""

    @property
    def key(self) -> str:
        """The same for the same HostPlace, also after it was renamed."""
        return f"{self.kind}/{self.id}"

    def __str__(self) -> str:
        shown = self.id.partition(":")[0]
        return " ".join(filter(None, (self.kind, shown, f"({self.name})" if self.name else "")))


class ChangedPlace(NamedTuple):
    """A HostPlace that was changed, or is about to be: the CPUs that it had before, and those that it was given."""

    before: CPUSet
    """Empty: a group that has the CPUs of the group above."""
    given: CPUSet
    last: CPUSet
    """Those that it had until it was given others: after a crash it has either."""


class Shift(NamedTuple):
    """A change of the CPUs of one HostPlace."""

    place: HostPlace
    now: CPUSet
    then: CPUSet
    again: bool = False
    """Whether another program has undone an earlier change."""


class ShieldPlan(NamedTuple):
    """The changes, and the Origins that must be on the disk before the first of them is made."""

    shifts: tuple[Shift, ...]
    origins: Mapping[str, ChangedPlace]


class KeptCPUs(NamedTuple):
    """The CPUs that are kept for containers, of those that are online."""

    kept: CPUSet
    online: CPUSet

    @property
    def rest(self) -> CPUSet:
        """The CPUs for the rest of the host."""
        return self.online - self.kept


def kept_cpus(policy: Policy, state: State) -> CPUSet:
    """Return the CPUs that only their owners may use, and those that must stay idle; never a reserved CPU."""
    return (state.exclusive | policy.pools.idle(state)) - policy.reserved


def target(before: CPUSet, room: KeptCPUs) -> CPUSet:
    """Return the CPUs of a HostPlace that had *before*; a HostPlace that had only kept CPUs gets all that are not kept.

    >>> from pinfold.core.machine.cpuset import CPUSet
    >>> room = KeptCPUs(kept=CPUSet.of(2, 3), online=CPUSet.parse("0-3"))
    >>> [str(target(CPUSet.parse(cpus), room)) for cpus in ("0-3", "1", "3", "")]
    ['0-1', '1', '0-1', '0-1']
    """
    had = before & room.online or room.online
    if not had & room.kept:
        return before
    return had - room.kept or room.rest


def plan_shield(found: Mapping[HostPlace, CPUSet], origins: Mapping[str, ChangedPlace], room: KeptCPUs) -> ShieldPlan:
    """Return the changes after which no HostPlace uses a kept CPU, and each has as much of what it had as that allows.

    A HostPlace that now has other CPUs than it was given, none of them kept, has chosen them: it is left alone.
    If no CPU would remain for the rest of the host, nothing is changed.
    """
    if not room.rest:
        room = room._replace(kept=EMPTY)
    shifts, kept = [], {}
    for place, now in found.items():
        origin = origins.get(place.key)
        shift = _shift(place, now, origin, room)
        if shift is not None:
            shifts.append(shift)
            kept[place.key] = ChangedPlace(now if origin is None else origin.before, shift.then, now)
        elif origin is not None and now == target(origin.before, room) != origin.before:
            kept[place.key] = ChangedPlace(origin.before, now, now)
    return ShieldPlan(tuple(shifts), kept)


def _shift(place: HostPlace, now: CPUSet, origin: ChangedPlace | None, room: KeptCPUs) -> Shift | None:
    then = target(now if origin is None else origin.before, room)
    if now == then:
        return None
    clashes = bool(room.kept & (now or room.online))
    ours = () if origin is None else (origin.given, origin.given & room.online, origin.last)
    is_ours = now in ours
    if not clashes and not is_ours:
        return None
    return Shift(place, now, then, again=clashes and origin is not None and not is_ours)


def plan_return(
    joined: Mapping[HostPlace, CPUSet], origins: Mapping[str, ChangedPlace], since: int | None
) -> ShieldPlan:
    """Return the changes that give threads back what they had before they joined a container: its group rules them.

    Threads that were moved, or were started by such and inherit that, come back; others have chosen their CPUs.
    """
    known = {**origins, **heirs(joined, origins, since)}
    back = {place: known[place.key].before for place in joined if place.key in known}
    shifts = tuple(Shift(place, joined[place], before) for place, before in back.items())
    return ShieldPlan(shifts, {shift.place.key: ChangedPlace(shift.then, shift.then, shift.now) for shift in shifts})


def heirs(
    found: Mapping[HostPlace, CPUSet], origins: Mapping[str, ChangedPlace], since: int | None
) -> dict[str, ChangedPlace]:
    """Return the Origins of threads that were started after *since* by others that had been moved, and inherit that.

    *since* is in clock ticks since boot, as is the start of a thread; None if it is not known.
    """
    given = {origin.given: origin.before for key, origin in origins.items() if key.startswith(_THREADS)}
    if since is None or not given:
        return {}
    return {
        place.key: ChangedPlace(given[cpus], cpus, cpus)
        for place, cpus in found.items()
        if cpus in given and place.key not in origins and _start(place) >= since
    }


def _start(place: HostPlace) -> int:
    """Return when a thread was started; -1 for other Places."""
    start = place.id.partition(":")[2]
    return int(start) if place.kind in _THREADS and start.isdecimal() else -1


def counted(places: Iterable[HostPlace]) -> str:
    """Return how many there are of each kind; the names of groups.

    >>> interrupts = [HostPlace(PlaceKind.IRQ, number) for number in ("24", "25")]
    >>> counted([*interrupts, HostPlace(PlaceKind.GROUP, "system.slice")])
    'system.slice, 2 IRQs'
    """
    listed = list(places)
    groups = [place.id for place in listed if place.kind is PlaceKind.GROUP]
    kinds = Counter(place.kind for place in listed if place.kind is not PlaceKind.GROUP)
    return ", ".join([*groups, *(_count(kind, number) for kind, number in sorted(kinds.items()))])


def _count(kind: PlaceKind, number: int) -> str:
    if kind in {PlaceKind.NEW_IRQS, PlaceKind.WORKQUEUES}:
        return str(kind)
    word = kind if number == 1 else "processes" if kind is PlaceKind.PROCESS else f"{kind}s"
    return f"{number} {word}"
