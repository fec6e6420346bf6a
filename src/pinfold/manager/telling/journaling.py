"""Journaling: appends entries to the journal by a thread of its own, so that the event loop never waits for its disk.

A disk can take no write for a while: a snapshot freezes its file system, or the kernel has too much to write already.
Entries wait meanwhile, as many as are allowed; further ones are lost, and counted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor, Future

    from pinfold.core.events.entries import Entry
    from pinfold.node.journal.journal import Journal

MOST_WAITING: Final = 10_000
_ANSWERS_FIRST: Final = 0.01
"""Seconds that entries wait, together with those that come meanwhile."""
_PATIENCE: Final = 1.0
"""Seconds that a reader waits for the last entries, and the end of the daemon for the disk."""


class Journaling:
    """The writes of one journal."""

    def __init__(self, journal: Journal, disk: Executor, tell: Callable[[str], None], most: int = MOST_WAITING) -> None:
        """Let only *disk*, which does one thing after the other, call *journal*; *tell* why entries are lost."""
        self._journal = journal
        self._disk = disk
        self._tell = tell
        self._most = most
        self._waiting: deque[Entry] = deque()
        self._is_due = False
        """Whether the disk has been told of the entries that wait, or will be."""
        self._missed = 0
        """How many entries have not come to the journal."""
        self._is_full = False
        """Whether it was told that no more entries can wait."""
        self._has_failed = False

    @property
    def lost(self) -> int:
        """How many entries were not kept."""
        return self._journal.lost + self._missed

    def keep(self, entry: Entry) -> None:
        """Have an entry appended."""
        if len(self._waiting) >= self._most:
            self._missed += 1
            if not self._is_full:
                self._is_full = True
                self._tell(f"the disk has not taken the last {self._most:,} entries yet")
            return
        self._waiting.append(entry)
        if not self._is_due:
            self._is_due = True
            self._append_soon()

    async def written(self) -> None:
        """Return when the disk has all entries so far; or after a second, if it does not take them."""
        await self._done(self._append_all)

    async def sync(self) -> None:
        """Make all entries so far durable; raise RuntimeError if no thread can do that."""
        if await self._done(self._journal.sync, patience=None) is None:
            raise RuntimeError("no thread can be started now")

    def close(self) -> None:
        """Append what waits, and close the journal; give up after a second."""
        self._begin(self._append_all)
        closing = self._begin(self._journal.close)
        if closing is not None:
            with suppress(TimeoutError):
                closing.result(_PATIENCE)

    async def _done(self, work: Callable[[], None], patience: float | None = _PATIENCE) -> Future[None] | None:
        working = self._begin(work)
        if working is not None:
            await asyncio.wait([asyncio.wrap_future(working)], timeout=patience)
        return working

    def _append_soon(self) -> None:
        """Have the disk append what waits when answers are given: its thread takes turns with the event loop."""
        try:
            asyncio.get_running_loop().call_later(_ANSWERS_FIRST, self._append_now)
        except RuntimeError:  # no loop runs
            self._append_now()

    def _append_now(self) -> None:
        if self._begin(self._append_all) is None:
            self._is_due = False

    def _begin(self, work: Callable[[], None]) -> Future[None] | None:
        """Have the disk work; None if no thread can be started now: the next call tries again."""
        try:
            return self._disk.submit(work)
        except RuntimeError:
            return None

    def _append_all(self) -> None:
        """Append what waits, and what comes meanwhile."""
        self._is_due = False  # first: the next entry is to have us called again
        while self._waiting:
            try:
                self._journal.append(self._waiting.popleft())
            except Exception as error:  # noqa: BLE001 - a defect of the journal must not end the history
                self._missed += 1
                if not self._has_failed:
                    self._has_failed = True
                    self._tell(f"{type(error).__name__}: {error}")
        self._is_full = False
