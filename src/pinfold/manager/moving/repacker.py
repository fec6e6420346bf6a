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

from pinfold.core.moving.repacking import pinned_by
from pinfold.errors import PinfoldError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.moving.repack import Move, RepackPlan
    from pinfold.core.moving.repacking import Pace
    from pinfold.core.pods.pod import ContainerRef
    from pinfold.manager.moving.notifier import Notifier
    from pinfold.manager.node import Node

_MINUTE: Final = 60.0


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
                await self._notifier.withdraw(ref)
                raise

    async def _make(self, move: Move) -> bool:
        """Announce and make a move; return False if it could not be made, or is no longer possible."""
        await self._notifier.announce(move.container, move.after, self.pace.grace)
        try:
            done = await self._node.mover.move(move)
        except PinfoldError:  # undone, which is reported
            done = False
        if not done:
            await self._notifier.withdraw(move.container)
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
