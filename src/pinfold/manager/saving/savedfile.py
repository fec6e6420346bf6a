"""SavedFile: one file, replaced durably by a thread of its own, so that the event loop never waits for the disk.

It knows what the disk has for certain: content that is there already is not written again.
"""

from __future__ import annotations

import asyncio
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
        self._next: asyncio.Task[None] | None = None
        """The write that has not begun yet."""
        self._one = asyncio.Lock()

    def has(self, text: str) -> None:
        """Record that the disk has this content."""
        self._on_disk = self._last = text

    async def save(self, text: Text) -> None:
        """Make *text* the content, durably, or raise: then the content saved last stays, or is written again.

        A function is called when its text is written; not at all if a later save shares the write.
        """
        if self._disk is None:
            if (made := _made(text)) != self._on_disk:
                self._on_disk = None
                self._write(made.encode())
                self.has(made)
            return
        self._newest = text
        if self._next is None:
            self._next = asyncio.create_task(self._save_newest(self._disk))
            self._next.add_done_callback(_heed)
        await asyncio.shield(self._next)

    async def _save_newest(self, disk: Executor) -> None:
        async with self._one:
            self._next, text = None, _made(self._newest)
            if text != self._on_disk:
                self._on_disk = None
                await self._write_by(disk, text)
                self.has(text)

    async def _write_by(self, disk: Executor, text: str) -> None:
        try:
            writing = disk.submit(self._write, text.encode())
        except RuntimeError as error:  # no thread can be started now
            raise StateError(f"{self.path}: not written: {error}") from error
        try:
            async with asyncio.timeout(self._patience):
                await asyncio.shield(asyncio.wrap_future(writing))
        except TimeoutError:
            self._restore_after(writing, disk)
            raise StateError(f"{self.path}: the disk has not taken it within {self._patience:g} s") from None

    def _restore_after(self, writing: Future[None], disk: Executor) -> None:
        """Write the last saved content again, after a write that may still complete."""
        if not writing.cancel() and self._last is not None:
            disk.submit(self._write, self._last.encode())


def _made(text: Text) -> str:
    return text if isinstance(text, str) else text()


def _heed(task: asyncio.Task[None]) -> None:
    """Look at the error of a write for which no one waits any more, so that asyncio does not report it."""
    if not task.cancelled():
        task.exception()
