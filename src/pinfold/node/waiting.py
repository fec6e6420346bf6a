"""Waiting for a disk in a thread, so that the event loop does not."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")


class DaemonThreads(ThreadPoolExecutor):
    """Threads that are started when all are busy; if no further one can be started, work waits for those there are."""

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError:  # the work is in the queue already, and would be done without an answer
            if not self._threads:
                self._work_queue.get_nowait()
                raise


_DISK: Final = DaemonThreads(1, "disk")
"""If the disk takes nothing for a while, one thread waits for it, and those that answer questions do not."""


async def in_thread(work: Callable[[], _T]) -> _T:
    """Return what *work* returns, which may wait for a disk; one thing is done after the other.

    If no thread can be started, it is done right here.
    """
    loop = asyncio.get_running_loop()
    try:
        working = loop.run_in_executor(_DISK, work)
    except RuntimeError:
        return work()
    return await working
