"""Shielding: the rest of the host leaves CPUs before a container gets them, and comes back after it has gone.

A Manager calls it in the order of its changes. What cannot be moved is reported and left where it is: a container
does not wait for a driver that keeps its IRQ. All of it happens in a thread.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from pinfold.core.events.repairs import NotShielded, Shielded
from pinfold.core.machine.cpuset import EMPTY
from pinfold.core.reconcile import Cause, Drift
from pinfold.core.shield import KeptCPUs, counted, kept_cpus
from pinfold.errors import PinfoldError
from pinfold.manager.repairing.fights import FIGHT, Fights

if TYPE_CHECKING:
    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.shield import ShieldPlan, Shift
    from pinfold.core.state import State
    from pinfold.manager.manager import Manager, Rules
    from pinfold.manager.telling.telling import Telling
    from pinfold.node.shield.shield import Shield, ShieldReport


_TROUBLE: Final = (PinfoldError, RuntimeError, OSError)
"""A damaged file, a full disk, no thread that can be started."""


def room_of(state: State, rules: Rules) -> KeptCPUs:
    """Return the CPUs that a State keeps for its containers."""
    return KeptCPUs(kept_cpus(rules.admitter.policy, state), rules.topology.online)


class Shielding:
    """Keeps the rest of the host off the CPUs of containers while it is *on*; without a Shield it does nothing."""

    def __init__(self, telling: Telling, shield: Shield | None = None, *, on: bool = False) -> None:
        self.on = on
        self._telling = telling
        self._shield = shield
        self._kept: CPUSet | None = None
        """The CPUs that the host was kept off last; None: not known yet."""
        self._told = set[str]()
        """The refusals that were reported."""
        self._fights = Fights()

    @property
    def is_possible(self) -> bool:
        """Whether there is a host to move."""
        return self._shield is not None

    @property
    def kept(self) -> CPUSet:
        """The CPUs that the host is kept off now."""
        return self._kept or EMPTY

    async def clear(self, room: KeptCPUs) -> None:
        """Move the host off CPUs that are about to be given to a container; those of others stay kept."""
        if self.on and room.kept - self.kept:
            await self._apply(room._replace(kept=room.kept | self.kept))

    async def settle(self, room: KeptCPUs) -> None:
        """Keep the host off exactly these CPUs, and give the others back."""
        want = room.kept if self.on else EMPTY
        if want != self._kept:
            await self._apply(room._replace(kept=want))

    async def look(self, room: KeptCPUs) -> None:
        """Move what has come back to kept CPUs; less often if another program moves it there again and again."""
        await self.settle(room)
        if not self.kept or self._shield is None:
            return
        try:
            plan = await self.plan(room)
        except _TROUBLE as error:  # the check of containers goes on
            self._tell_refused(str(error))
            return
        undone = [shift for shift in plan.shifts if shift.again]
        found = [_drift(undone, room)] if undone else []
        repair, begun = self._fights.judge(found)
        self._telling.fought(begun, FIGHT)
        if repair or (plan.shifts and not undone):
            self._telling.drifted(found)
            await self._apply(room)

    async def end(self, online: CPUSet) -> None:
        """Give the host all CPUs back, and keep it off none from now on."""
        self.on = False
        await self.settle(KeptCPUs(EMPTY, online))

    async def plan(self, room: KeptCPUs) -> ShieldPlan:
        """Return what would be moved if these CPUs were kept."""
        assert self._shield is not None  # noqa: S101 - for mypy: callers ask `is_possible` first
        return await asyncio.to_thread(self._shield.plan, room)

    def refused(self) -> list[str]:
        """Return what could not be moved, and why."""
        return [] if self._shield is None else [one.why for one in self._shield.refused]

    async def _apply(self, room: KeptCPUs) -> None:
        if self._shield is None:
            return
        try:
            if room.kept:
                report = await asyncio.to_thread(self._shield.apply, room)
            else:
                report = await asyncio.to_thread(self._shield.undo, room.online)
        except _TROUBLE as error:
            self._tell_refused(str(error))
            return
        self._kept = room.kept
        self._tell(report, room)

    def _tell(self, report: ShieldReport, room: KeptCPUs) -> None:
        if report.moved:
            self._telling.tell(Shielded(room.kept, counted(shift.place for shift in report.moved)))
        if fresh := [one for one in report.refused if one.why not in self._told]:
            self._told.update(one.why for one in fresh)
            self._telling.tell(NotShielded(counted(one.place for one in fresh), fresh[0].why))

    def _tell_refused(self, why: str) -> None:
        if why not in self._told:
            self._told.add(why)
            self._telling.tell(NotShielded("", why))


def _drift(undone: list[Shift], room: KeptCPUs) -> Drift:
    why = f"{counted(shift.place for shift in undone)} may use CPUs {room.kept} again: another program has changed that"
    return Drift(None, room.rest, undone[0].now, Cause.SHIELD, why)


class ShieldSwitch:
    """The shield of a Manager, for users: its state, what would move, on and off."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    @property
    def on(self) -> bool:
        """Whether the host is kept off the CPUs of containers."""
        return self._manager.shielding.on

    @property
    def room(self) -> KeptCPUs:
        """The CPUs that containers have now."""
        return room_of(self._manager.state, self._manager.rules)

    @property
    def kept(self) -> CPUSet:
        """The CPUs that the host is kept off now."""
        return self._manager.shielding.kept

    def refused(self) -> list[str]:
        """Return what could not be moved, and why."""
        return self._manager.shielding.refused()

    async def plan(self, kept: CPUSet) -> ShieldPlan:
        """Return what would be moved if these CPUs were kept, reserved ones excepted."""
        room = self.room._replace(kept=kept - self._manager.rules.admitter.policy.reserved)
        async with self._manager.turn:
            return await self._manager.shielding.plan(room)

    async def turn(self, *, on: bool) -> None:
        """Keep the host off the CPUs of containers from now on, or give it all CPUs back."""
        self._manager.shielding.on = on
        await self._manager.reshield()
