"""Noticing: looks at the groups as soon as another program may have changed them, instead of at the next check."""

from __future__ import annotations

import asyncio
from time import monotonic, thread_time
from typing import TYPE_CHECKING, Final

from pinfold.core.reconcile import drift
from pinfold.errors import PinfoldError
from pinfold.node.groupwatch import Heard

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pinfold.manager.manager import Manager
    from pinfold.node.groupwatch import GroupWatch

_SOON: Final = 0.02
"""Seconds from an event to the look: changes mostly come together, and our own are finished by then."""
_LATER: Final = 0.5
"""The same for processes, quotas and weights: each start of ours is an event, and a look at all processes is slow."""
_SHARE: Final = 20
"""Looks may take this part of the CPU time at most …"""
_COSTLY: Final = 0.1
"""… unless one takes longer than this: the next is not put off for more than some seconds."""
_LONGEST: Final = 10.0


class Noticing:
    """Follows the events of a watch. Our own changes are events too; a look at them finds and changes nothing."""

    def __init__(self, manager: Manager, watch: GroupWatch, first: Callable[[], Awaitable[None]] | None = None) -> None:
        """Look at all groups after each event; *first* is called before, and then CPUs are looked at closely too."""
        self._manager = manager
        self._watch = watch
        self._first = first
        self._due = Heard.NOTHING
        self._pause = _SOON
        self._repaired = float("-inf")

    async def follow(self) -> None:
        """Look after each event, for ever; less and less often while another program goes on."""
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._watch.fileno(), self._hear, event)
        self._watch.wake = event.set
        try:
            while True:
                await self._wait(event)
                if self._first is not None:
                    await self._first()
                start = thread_time()
                found = self._look()
                cost = min(thread_time() - start, _COSTLY)
                await asyncio.sleep(max(self._next_pause() if found else 0, cost * _SHARE))
        finally:
            loop.remove_reader(self._watch.fileno())

    def _next_pause(self) -> float:
        """Return how long to wait after a repair: twice as long as after the last one, if that was not long ago."""
        before, self._repaired = self._repaired, monotonic()
        self._pause = min(self._pause * 2, _LONGEST) if self._repaired - before < 2 * _LONGEST else _SOON
        return self._pause

    async def _wait(self, event: asyncio.Event) -> None:
        """Return when there is something to look at."""
        while not self._due:
            await event.wait()
            await asyncio.sleep(_SOON)
            self._take_in(event)
        if self._due == Heard.OTHERS:
            await asyncio.sleep(_LATER)
            self._take_in(event)

    def _hear(self, event: asyncio.Event) -> None:
        """Wake up, and hear no more until the events are taken in: the loop would turn without a pause."""
        asyncio.get_running_loop().remove_reader(self._watch.fileno())
        event.set()

    def _take_in(self, event: asyncio.Event) -> None:
        event.clear()
        self._due |= self._watch.heard()
        asyncio.get_running_loop().add_reader(self._watch.fileno(), self._hear, event)

    def _look(self) -> bool:
        """Return whether something was different; it has been repaired then, unless it is a fight."""
        due, self._due = self._due, Heard.NOTHING
        try:
            manager = self._manager
            if self._first is not None or Heard.OTHERS in due or any(drift(manager.wanted, manager.applier.observe())):
                return bool(manager.reconcile(spaced=True, quick=True))
        except PinfoldError:  # the next check tries again, and reports it
            return True
        return False
