"""The threads of the daemon for what would keep its event loop waiting: reading the history, parsing large files."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pinfold.node.waiting import DaemonThreads

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_ARENA_MAX: Final = -8
"""The C library's number for the most heaps that its threads have."""


def prepare_threads(loop: AbstractEventLoop) -> None:
    """Have an event loop use threads that can do with fewer, and one heap."""
    share_one_heap()
    loop.set_default_executor(DaemonThreads(thread_name_prefix="asyncio"))


def share_one_heap() -> None:
    """Let all threads use one heap, where the C library is glibc: each further one keeps what was freed in it."""
    with suppress(ImportError, AttributeError):  # some builds of Python have no ctypes, and other libraries one heap
        import ctypes  # noqa: PLC0415 - as above

        ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)
