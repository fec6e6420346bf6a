"""Repacker: moves containers together when CPUs have become free, at a bounded pace and with notice.

A container learns where it will be, and moves when it says that it is ready, or after a grace period. Moves are planned
anew whenever the State has changed in between.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pinfold.core.events.daemon import NoticeFailed
from pinfold.core.events.decisions import Announced
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.moving.repacking import pinned_by
from pinfold.errors import PinfoldError
from pinfold.node.notices import ACK, ContainerPlace

if TYPE_CHECKING:
    from collections.abc import Callable

    from pinfold.core.moving.repack import Move, RepackPlan
    from pinfold.core.moving.repacking import Pace
    from pinfold.core.pods.pod import ContainerRef
    from pinfold.core.reconcile import Wanted
    from pinfold.manager.manager import Manager
    from pinfold.manager.node import Node
    from pinfold.manager.telling.bus import Bus
    from pinfold.node.notices import Notices

_MINUTE: Final = 60.0
_LOOK_EVERY: Final = 0.05


class Notifier:
    """Tells containers where they are and will be; under the policy `dynamic` only."""

    def __init__(self, manager: Manager, notices: Notices, bus: Bus) -> None:
        self._manager = manager
        self._notices = notices
        self._bus = bus
        self._trouble = ""
        """What could not be written the last time."""
        self._large: set[ContainerRef] = set()
        """The containers whose `ack` took room on the disk, which was told."""

    def show(self, want: Wanted) -> None:
        """Tell every container with exclusive CPUs where it is; a file that cannot be written stops nothing.

        Called after each change and at each reconcile, so that what could not be written is written later.
        """
        owners = want.exclusive if self._manager.rules.admitter.policy.repacking is not None else {}
        failed = [why for ref, cpus in owners.items() if (why := self._show(ref, self._place(ref, cpus, want)))]
        with suppress(OSError):  # the directory of a container that is gone does no harm
            self._notices.retain(owners)
        self._large &= owners.keys()
        trouble = "; ".join(failed[:1]) + f"; and {len(failed) - 1} more" * (len(failed) > 1)
        if trouble not in {"", self._trouble}:
            self._bus.tell(NoticeFailed(trouble))
        self._trouble = trouble

    def _show(self, ref: ContainerRef, place: ContainerPlace) -> str:
        """Tell a container where it is, and return what went wrong."""
        try:
            self._notices.show(ref, place)
        except OSError as error:
            return str(error)
        if (took := self._notices.empty_if_large(ref)) and ref not in self._large:
            self._large.add(ref)
            path = self._notices.path(ref) / ACK
            self._bus.tell(NoticeFailed(f"{path}: it took {took:,} bytes of the disk; it is emptied at each check"))
        return ""

    async def announce(self, ref: ContainerRef, cpus: CPUSet, grace: float) -> None:
        """Tell a container where it will be; return when it is ready, or after *grace* seconds."""
        if not self._notices.has(ref):
            return
        self._bus.tell(Announced(self._manager.name(ref.pod), ref.name, cpus, grace))
        try:
            self._notices.announce(ref, self._place(ref, cpus, self._manager.wanted))
        except OSError as error:
            self._bus.tell(NoticeFailed(str(error)))
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                while not self._notices.is_acknowledged(ref):  # noqa: ASYNC110 - a file, which the workload writes
                    await asyncio.sleep(_LOOK_EVERY)

    def path_of(self, ref: ContainerRef) -> str:
        """Return the directory of a container; empty if it has none."""
        return str(self._notices.path(ref)) if self._notices.has(ref) else ""

    def withdraw(self, ref: ContainerRef) -> None:
        """Tell a container that it stays where it is."""
        with suppress(OSError):
            self._notices.withdraw(ref)

    def _place(self, ref: ContainerRef, cpus: CPUSet, want: Wanted) -> ContainerPlace:
        """Return a container's CPUs, and the NUMA nodes of its memory: any, unless it asks for local memory."""
        if ref in want.mems and want.exclusive.get(ref) == cpus:
            return ContainerPlace(cpus, want.mems[ref])
        nodes = self._manager.rules.topology.numa_nodes
        near = [node.id for node in nodes if ref not in want.mems or node.cpus & cpus]
        return ContainerPlace(cpus, CPUSet.of(*near))


class Repacker:
    """Plans and makes the moves of one node."""

    def __init__(self, node: Node, notifier: Notifier, pace: Pace, clock: Callable[[], float] = time.monotonic) -> None:
        """Move at most at this *pace*; *clock* counts seconds."""
        self.pace = pace
        self._node = node
        self._notifier = notifier
        self._clock = clock
        self._turn = asyncio.Lock()
        self._woken = asyncio.Event()
        self._last: deque[float] = deque()
        """The times of the moves of the last minute."""
        self._moved: dict[ContainerRef, float] = {}
        """When each container was last moved."""

    def wake(self) -> None:
        """Look soon for moves: CPUs have become free."""
        self._woken.set()

    async def follow(self) -> None:
        """Repack whenever CPUs have become free, and as the pace allows, for ever."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause()):
                    await self._woken.wait()
            self._woken.clear()
            policy = self._node.manager.rules.admitter.policy
            moves = policy.repacking is not None and not pinned_by(policy.pools.options)
            if moves and not self._node.read_only:
                await self.repack()

    def plan(self) -> RepackPlan:
        """Return the moves that the pace allows now; raise if the policy moves no containers."""
        now = self._clock()
        held = {ref for ref, _ in self._node.manager.state.flat()}
        self._moved = {ref: at for ref, at in self._moved.items() if ref in held}
        mover = self._node.mover
        rested = {ref: consent for ref, consent in mover.may_move().items() if self._has_rested(ref, now)}
        return mover.plan(rested, self._left(now))

    async def repack(self) -> list[Move]:
        """Make the moves that the pace allows now, each with notice, and return them."""
        made: list[Move] = []
        async with self._turn:
            for move in self.plan().moves:
                if not await self._make(move):
                    break
                made.append(move)
        return made

    async def resize(self, ref: ContainerRef, count: int) -> CPUSet:
        """Resize a container; one that loses CPUs gets notice first."""
        async with self._turn:
            manager, mover = self._node.manager, self._node.mover
            held, cpus = manager.state.cpus(*ref), mover.would_have(ref, count)
            if held is not None and held - cpus:
                await self._notifier.announce(ref, cpus, self.pace.grace)
            try:
                return await mover.resize(ref, count)
            except PinfoldError:
                self._notifier.withdraw(ref)
                raise

    async def _make(self, move: Move) -> bool:
        """Announce and make a move; return False if it could not be made, or is no longer possible."""
        await self._notifier.announce(move.container, move.after, self.pace.grace)
        try:
            done = await self._node.mover.move(move)
        except PinfoldError:  # undone, which is reported
            done = False
        if not done:
            self._notifier.withdraw(move.container)
            return False
        now = self._clock()
        self._last.append(now)
        self._moved[move.container] = now
        return True

    def _left(self, now: float) -> int:
        while self._last and now - self._last[0] >= _MINUTE:
            self._last.popleft()
        return max(self.pace.moves - len(self._last), 0)

    def _has_rested(self, ref: ContainerRef, now: float) -> bool:
        return ref not in self._moved or now - self._moved[ref] >= self.pace.dwell

    def _pause(self) -> float | None:
        """Return the seconds until another move may be made; None if no move was made for so long."""
        now = self._clock()
        waits = [at + _MINUTE - now for at in self._last]
        waits += [at + self.pace.dwell - now for at in self._moved.values()]
        return min((wait for wait in waits if wait > 0), default=None)
