"""Waiting for a disk in a thread, so that the event loop does not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")


async def in_thread(work: Callable[[], _T]) -> _T:
    """Return what *work* returns, which may wait for a disk; if no thread can be started, it is done right here."""
    loop = asyncio.get_running_loop()
    try:
        working = loop.run_in_executor(None, work)
    except RuntimeError:
        return work()
    return await working
