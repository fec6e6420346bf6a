"""A progress bar on stderr while something takes long, with rate and time left; nothing if stderr is not a terminal."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import TextIO

_Item = TypeVar("_Item")
_WIDTH: Final = 24
_LEAST: Final = 5
_QUIET: Final = 0.5
_EVERY: Final = 0.1
_MINUTE, _HOUR = 60, 3600


class Bar:
    """A bar that is drawn if the work takes longer than half a second, at most ten times a second."""

    def __init__(
        self,
        what: str,
        total: int | None,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Without a *total*, only how many are done, and how fast."""
        self._what = what
        self._total = total
        self._stream = stream or sys.stderr
        self._clock = clock
        self._began = self._last = clock()
        self._drawn = False
        self._works = self._stream is not None and self._stream.isatty()

    def show(self, done: int) -> None:
        """Draw how many are done."""
        now = self._clock() if self._works else 0.0
        if self._works and now - self._began > _QUIET and now - self._last > _EVERY:
            # A line as wide as the terminal would continue in the next one, and could not be removed.
            room = shutil.get_terminal_size().columns - 1
            far = _far(done, self._total, now - self._began, room - len(self._what) - 1)
            print(f"\r{f'{self._what} {far}'[:room]}\x1b[K", end="", file=self._stream, flush=True)
            self._last, self._drawn = now, True

    def clear(self) -> None:
        """Remove the bar."""
        if self._drawn:
            print("\r\x1b[K", end="", file=self._stream, flush=True)
            self._drawn = False


def shown(
    items: Iterable[_Item],
    total: int | None,
    what: str,
    stream: TextIO | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[_Item]:
    """Yield *items*, and show how many of *total* are done if it takes longer than half a second."""
    bar = Bar(what, total, stream, clock)
    try:
        for done, item in enumerate(items, start=1):
            yield item
            bar.show(done)
    finally:
        bar.clear()


def _far(done: int, total: int | None, seconds: float, room: int) -> str:
    """Return how far the work is; the bar is shorter, or left out, where there is little *room*.

    >>> _far(250, 1000, 10.0, 80)
    '[######..................] 250/1,000 25% · 25/s · 30 s left'
    >>> _far(250, 1000, 10.0, 44), _far(250, 1000, 10.0, 36)
    ('[##.......] 250/1,000 25% · 25/s · 30 s left', '250/1,000 25% · 25/s · 30 s left')
    >>> _far(250, None, 10.0, 80), _far(0, 9, 10.0, 80)
    ('250 · 25/s', '[........................] 0/9 0%')
    """
    rate = done / seconds
    pace = f" · {rate:,.0f}/s" if rate >= 10 else f" · {rate:.1f}/s" if done else ""  # noqa: PLR2004 - two digits
    if total is None:
        return f"{done:,}{pace}"
    part = min(done / max(total, 1), 1.0)
    left = f" · {_span((total - done) / rate)} left" if done else ""
    said = f"{done:,}/{total:,} {part:.0%}{pace}{left}"
    width = min(room - len(said) - len("[] "), _WIDTH)
    return said if width < _LEAST else f"[{('#' * int(width * part)).ljust(width, '.')}] {said}"


def _span(seconds: float) -> str:
    """Return a time in words.

    >>> _span(4.2), _span(150), _span(7300)
    ('4 s', '2 min 30 s', '2 h 1 min')
    """
    whole = max(round(seconds), 0)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
