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


OUTPUTS: Final = DaemonThreads(1, "outputs")
"""For what containers print. If its disk takes nothing, one thread waits for it, and none that answers questions."""
NOTICES: Final = DaemonThreads(1, "notices")
"""For what containers are told, which may be on another disk."""


async def in_thread(work: Callable[[], _T], threads: DaemonThreads) -> _T:
    """Return what *work* returns, which may wait for a disk; if no thread can be started, it is done right here."""
    loop = asyncio.get_running_loop()
    try:
        working = loop.run_in_executor(threads, work)
    except RuntimeError:
        return work()
    return await working
