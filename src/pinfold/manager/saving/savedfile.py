"""SavedFile: one file, replaced durably by a thread of its own, so that the event loop never waits for the disk.

It knows what the disk has for certain: content that is there already is not written again.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from pinfold.errors import StateError
from pinfold.node.statefile import write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor, Future
    from pathlib import Path

    Text = str | Callable[[], str]


class SavedFile:
    """The file at *path*; saves that come while one is being written share the next write."""

    def __init__(
        self, path: Path, disk: Executor | None = None, *, at_once: bool = True, patience: float | None = None
    ) -> None:
        """Write by *disk*, which does one thing after the other; None: right here, where waiting does no harm.

        *at_once*: a power failure cannot undo a save. *patience* is how many seconds one may take; None: no limit.
        """
        self.path = path
        self._disk = disk
        self._write = partial(write_atomically, path, at_once=at_once)
        self._patience = patience
        self._on_disk: str | None = None
        """What the disk has for certain."""
        self._last: str | None = None
        """The content of the last save; it counts if a later save fails."""
        self._newest: Text = ""
        self._now: asyncio.Future[None] | None = None
        """Done when the write that has begun has ended."""
        self._next: asyncio.Future[None] | None = None
        """Done when the write after it has ended."""

    def has(self, text: str) -> None:
        """Record that the disk has this content."""
        self._on_disk = self._last = text

    async def save(self, text: Text) -> None:
        """Make *text* the content, durably, or raise: then the content saved last stays, or is written again.

        A function is called when its text is written; not at all if a later save shares the write.
        """
        if self._disk is None:
            self._write_here(_made(text))
        else:
            await asyncio.shield(self.begin(text))

    def begin(self, text: Text) -> asyncio.Future[None]:
        """Begin to save, right now if nothing is being written; others may wait for the same Future."""
        self._newest = text
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
            self._next.add_done_callback(_heed)
        saving = self._next
        if self._now is None:
            self._go_on()
        return saving

    def _go_on(self) -> None:
        """Begin the next write, if one is wanted and needed."""
        self._now, self._next = self._next, None
        if self._now is None:
            return
        text = _made(self._newest)
        try:
            if self._disk is None:
                self._write_here(text)
            elif text != self._on_disk:
                self._on_disk = None
                self._write_by(self._disk, text, self._now)
                return
        except StateError as error:
            self._end(self._now, error)
        else:
            self._end(self._now)

    def _write_here(self, text: str) -> None:
        if text != self._on_disk:
            self._on_disk = None
            self._write(text.encode())
            self.has(text)

    def _write_by(self, disk: Executor, text: str, saving: asyncio.Future[None]) -> None:
        try:
            writing = disk.submit(self._write, text.encode())
        except RuntimeError as error:  # no thread can be started now
            raise StateError(f"{self.path}: not written: {error}") from error
        loop = asyncio.get_running_loop()
        limit = None if self._patience is None else loop.call_later(self._patience, self._give_up, writing, saving)
        ended = partial(self._has_ended, text, saving, limit)
        writing.add_done_callback(partial(_in_loop, loop, ended))

    def _has_ended(
        self, text: str, saving: asyncio.Future[None], limit: asyncio.TimerHandle | None, writing: Future[None]
    ) -> None:
        """Record that a write has ended, unless it took too long and nothing waits for it any more."""
        if limit is not None:
            limit.cancel()
        if saving.done():
            return
        error = writing.exception()
        if error is None:
            self.has(text)
        self._end(saving, error)

    def _give_up(self, writing: Future[None], saving: asyncio.Future[None]) -> None:
        """Write the last saved content again, after a write that may still complete."""
        if not writing.cancel() and self._last is not None and self._disk is not None:
            self._disk.submit(self._write, self._last.encode())
        self._end(saving, StateError(f"{self.path}: the disk has not taken it within {self._patience:g} s"))

    def _end(self, saving: asyncio.Future[None], error: BaseException | None = None) -> None:
        """End a save, well or with an error, and begin the next one."""
        if error is None:
            saving.set_result(None)
        else:
            saving.set_exception(error)
        self._go_on()


def _made(text: Text) -> str:
    return text if isinstance(text, str) else text()


def _heed(saving: asyncio.Future[None]) -> None:
    """Look at the error of a save for which no one waits any more, so that asyncio does not report it."""
    if not saving.cancelled():
        saving.exception()


def _in_loop(loop: asyncio.AbstractEventLoop, ended: Callable[[Future[None]], None], writing: Future[None]) -> None:
    """Report the end of a write to its event loop, unless that has ended too."""
    if not writing.cancelled():
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(ended, writing)
