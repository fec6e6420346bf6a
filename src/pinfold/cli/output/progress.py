"""A progress bar on stderr while something takes long; nothing if stderr is not a terminal."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import TextIO

_Item = TypeVar("_Item")
_WIDTH: Final = 30
_QUIET: Final = 0.5
_EVERY: Final = 0.1


def shown(
    items: Iterable[_Item],
    total: int | None,
    what: str,
    stream: TextIO | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[_Item]:
    """Yield *items*, and show how many of *total* are done if it takes longer than half a second.

    Without a total, only how many are done.
    """
    stream = stream or sys.stderr
    if not stream.isatty():
        yield from items
        return
    began = last = clock()
    drawn = False
    try:
        for done, item in enumerate(items, start=1):
            yield item
            now = clock()
            if now - began > _QUIET and now - last > _EVERY:
                print(f"\r{what} {_far(done, total)}", end="", file=stream, flush=True)
                last, drawn = now, True
    finally:
        if drawn:
            print("\r\x1b[K", end="", file=stream, flush=True)


def _far(done: int, total: int | None) -> str:
    if total is None:
        return f"{done:,}"
    return f"[{('#' * (_WIDTH * done // max(total, 1))).ljust(_WIDTH, '.')}] {done:,}/{total:,}"
