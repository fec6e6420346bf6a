"""Watchers: wakes the clients that watch the event stream, together and a little later than each event."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_GATHER: Final = 0.1
"""For how many seconds events are gathered before clients are woken."""
_AT_ONCE: Final = 4
"""How many clients are woken in one turn of the event loop."""


class Watchers:
    """The clients that wait for the next events."""

    def __init__(self, last: Callable[[], int]) -> None:
        """*last* returns the number of the last entry."""
        self._last = last
        self._waiting: dict[asyncio.Future[int], None] = {}
        self._gathering = False

    async def wait(self, *, is_due: bool) -> int:
        """Wait for the next events, and return the number of the last one; *is_due*: there are some already.

        All waiting clients get the same number, so that the events up to it are formatted only once.
        """
        woken: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting[woken] = None
        if is_due:
            self.gather()
        try:
            return await woken
        finally:
            self._waiting.pop(woken, None)

    def gather(self) -> None:
        """Wake all waiting clients, in a moment."""
        if self._waiting and not self._gathering:
            self._gathering = True
            asyncio.get_running_loop().call_later(_GATHER, self._wake_all)

    def _wake_all(self) -> None:
        self._gathering = False
        self._wake(list(self._waiting), self._last())

    def _wake(self, waiting: Sequence[asyncio.Future[int]], last: int) -> None:
        """Wake a few now and the others in later turns of the loop: a pod that asks for CPUs has its turn between."""
        for woken in waiting[:_AT_ONCE]:
            if not woken.done():
                woken.set_result(last)
        if waiting[_AT_ONCE:]:
            asyncio.get_running_loop().call_soon(self._wake, waiting[_AT_ONCE:], last)
