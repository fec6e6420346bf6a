"""Releases: the CPUs of containers that are gone; what cannot be released now is tried again, and reported once."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.events.running import NotEnded, NotReleased
from pinfold.errors import PinfoldError
from pinfold.runtimes.base import StillRunning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pinfold.core.pods.pod import ContainerRef, PodUID
    from pinfold.manager.manager import Manager
    from pinfold.manager.telling.bus import Bus
    from pinfold.runtimes.roster import Roster

_MOMENT: Final = 1.0


class _Leaving(NamedTuple):
    """A container that is gone and still has CPUs."""

    since: float
    told: str = ""
    """The last reported reason why these could not be released."""


class Releases:
    """The containers that are gone and still have CPUs."""

    def __init__(self, manager: Manager, roster: Roster, bus: Bus) -> None:
        self.clock: Callable[[], float] = time.monotonic
        """Tells for how many seconds killed processes have been ending."""
        self.freed: Callable[[], None] = lambda: None
        """Called when CPUs have become free."""
        self._manager = manager
        self._roster = roster
        self._bus = bus
        self._leaving: dict[ContainerRef, _Leaving] = {}
        self._trying = asyncio.Lock()
        """Held from the question which containers are gone until their CPUs are released."""
        self._trouble = ""
        """Why the last release failed."""

    async def release(self, refs: Iterable[ContainerRef]) -> None:
        """Release CPUs; what fails now is tried again later."""
        now = self.clock()
        for ref in refs:
            self._leaving.setdefault(ref, _Leaving(now))
        await self._try()

    async def retry(self) -> None:
        """Try again what could not be released before."""
        if self._leaving:
            await self._try()

    def is_leaving(self, pod: PodUID) -> bool:
        """Return whether a pod that is gone still has CPUs."""
        return any(ref.pod == pod for ref in self._leaving)

    async def _try(self) -> None:
        async with self._trying:
            await self._release_gone()

    async def _release_gone(self) -> None:
        gone = [ref for ref in self._leaving if not self._roster.find_pods(ref.pod)]
        try:
            stuck = await self._manager.release(gone)
        except PinfoldError as error:
            if str(error) != self._trouble:  # the same problem is reported once
                self._trouble = str(error)
                self._bus.tell(NotReleased(self._trouble))
            return
        self._trouble = ""
        if gone:
            self.freed()
        for ref in gone:
            if ref in stuck:
                self._tell_stuck(ref, stuck[ref])
            else:
                del self._leaving[ref]

    def _tell_stuck(self, ref: ContainerRef, error: PinfoldError) -> None:
        """Report once why a container keeps its CPUs; processes that were killed get a moment to end."""
        leaving, is_ending = self._leaving[ref], isinstance(error, StillRunning)
        reason = type(error).__name__ if is_ending else str(error)
        if reason == leaving.told or (is_ending and self.clock() - leaving.since < _MOMENT):
            return
        self._leaving[ref] = leaving._replace(told=reason)
        self._bus.tell(NotEnded(pod=self._manager.name(ref.pod), container=ref.name, why=str(error)))
