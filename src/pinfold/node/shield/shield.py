"""Shield: keeps the rest of the host off CPUs, and undoes that; what was there is written down first.

Blocking: it reads /proc, waits for the disk and for systemd. A daemon calls it in a thread.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.machine.cpuset import EMPTY
from pinfold.core.shield import KeptCPUs, ShieldPlan, heirs, plan_return, plan_shield
from pinfold.errors import PinfoldError
from pinfold.node.shield.record import ShieldRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.shield import ChangedPlace, HostPlace, Shift
    from pinfold.node.shield.host import Host


_ROUNDS: Final = 4
"""How often processes that have just been started are given back too."""


class RefusedPlace(NamedTuple):
    """A HostPlace that the kernel would not move."""

    place: HostPlace
    why: str


class ShieldReport(NamedTuple):
    """The places that were changed, and those that could not be."""

    moved: tuple[Shift, ...] = ()
    refused: tuple[RefusedPlace, ...] = ()


class Shield:
    """Keeps the Places of a host off CPUs, and remembers in a directory what they had."""

    def __init__(self, find_host: Callable[[], Host], directory: Path, *, boot: str | None = None) -> None:
        """*find_host* is called when something is to be moved: most daemons never do that."""
        self._find_host = find_host
        self._record = ShieldRecord(directory, boot)
        self._origins: dict[str, ChangedPlace] | None = None
        self._refused: dict[str, RefusedPlace] = {}
        """The Places that refused to move, by key: they are not asked again."""

    @cached_property
    def host(self) -> Host:
        """The host whose Places are moved."""
        return self._find_host()

    @property
    def has_changes(self) -> bool:
        """Whether a HostPlace has other CPUs than before; or raise that this cannot be known."""
        return bool(self._load())

    def plan(self, room: KeptCPUs) -> ShieldPlan:
        """Return what would be changed."""
        found, known, since = self.host.read(), self._load(), self._record.since
        # At the end also those that have no fewer CPUs than their group now: it may get more later.
        joined = self.host.joined(known, all_of_them=not room.kept) if known else {}
        back = plan_return(joined, known, since)
        known = {**known, **heirs(found, known, since)}
        plan = plan_shield(found, known, room)
        shifts = tuple(shift for shift in (*back.shifts, *plan.shifts) if shift.place.key not in self._refused)
        stuck = {key: known[key] for key in known.keys() & self._refused.keys()}
        moved = {key: origin for key, origin in {**plan.origins, **back.origins}.items() if key not in self._refused}
        return ShieldPlan(shifts, {**stuck, **moved})

    def apply(self, room: KeptCPUs) -> ShieldReport:
        """Keep the host off the kept CPUs, and give back those that are kept no more; return what was done.

        Raise, with nothing changed, if the present CPUs cannot be written to the disk.
        """
        plan, known = self.plan(room), self._load()
        if not known:
            self._record.since = self.host.ticks()
        # Until the last change is made both are needed: those that are about to change, and those to be restored.
        self._save({**known, **plan.origins})
        refused = self._move(_ordered(plan.shifts), room) if plan.shifts else []
        self._refused.update({one.place.key: one for one in refused} if room.kept else {})
        bad = {one.place.key for one in refused}
        done = ((key, origin._replace(last=origin.given)) for key, origin in plan.origins.items() if key not in bad)
        left = {key: origin for key, origin in done if origin.before != origin.given}
        self._save({**left, **{key: known[key] for key in bad & known.keys()}})
        told = tuple(one for one in refused if not room.kept or self.host.matters(one.place, room.kept))
        return ShieldReport(tuple(shift for shift in plan.shifts if shift.place.key not in bad), told)

    def undo(self, online: CPUSet) -> ShieldReport:
        """Give every HostPlace back what it had; it is asked again if it refused before."""
        self._refused.clear()
        report = ShieldReport()
        for _ in range(_ROUNDS):
            known, since = dict(self._load()), self._record.since
            if not known:
                break
            report = _both(report, self.apply(KeptCPUs(EMPTY, online)))
            late = heirs(self.host.read(), known, since)  # started meanwhile, by threads that were still to move
            if late:
                self._record.since = since
                self._save({**self._load(), **late})
        return report

    @property
    def refused(self) -> tuple[RefusedPlace, ...]:
        """The Places that refused to move."""
        return tuple(self._refused.values())

    def _move(self, shifts: Sequence[Shift], room: KeptCPUs) -> list[RefusedPlace]:
        found = []
        for shift in shifts:
            try:
                self.host.write(shift.place, shift.then)
            except PinfoldError as error:
                refused = RefusedPlace(shift.place, str(error))
                found.append(refused)
        return [*found, *self._not_kept(shifts, room, {one.place for one in found})]

    def _not_kept(self, shifts: Sequence[Shift], room: KeptCPUs, refused: Collection[HostPlace]) -> list[RefusedPlace]:
        """Return the Places that took the change without an error, and still use kept CPUs."""
        now = self.host.read() if room.kept else {}
        moved = (shift.place for shift in shifts if shift.place in now and shift.place not in refused)
        left = ((place, now[place] or room.online) for place in moved)
        return [RefusedPlace(place, f"{place}: it still has CPUs {cpus}") for place, cpus in left if cpus & room.kept]

    def _load(self) -> dict[str, ChangedPlace]:
        if self._origins is None:
            self._origins = {}  # a damaged file is told once, and kept aside
            self._origins = self._record.load()
        return self._origins

    def _save(self, origins: Mapping[str, ChangedPlace]) -> None:
        if origins != self._origins:
            self._record.save(origins)
        self._origins = dict(origins)


def _both(one: ShieldReport, other: ShieldReport) -> ShieldReport:
    return ShieldReport((*one.moved, *other.moved), other.refused)


def _ordered(shifts: Iterable[Shift]) -> list[Shift]:
    """Return those that lose CPUs first, groups below before those above; those that gain the other way round."""
    listed = list(shifts)
    losing = [shift for shift in listed if not shift.now or (shift.then and shift.then < shift.now)]
    return [*losing, *reversed([shift for shift in listed if shift not in losing])]
