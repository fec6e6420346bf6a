"""In whose hands a CPU was, from as few files of a journal as can be.

Beginning with the files of the time that was asked for, it goes back until the first owner has come, and on until the
last one has gone. A file in which an owner's CPUs do not change is known by a look at its bytes: owners may stay for
weeks while others come and go.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final

from pinfold.core.timeline import owners_of
from pinfold.node.journalfiles import SLACK, find_segments, read_bytes, walk

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pinfold.core.timeline import Tenure
    from pinfold.node.journalfiles import Segment

_WHOLE_STATE: Final = b'"exclusive":{'


def hands(directory: Path, cpu: int, since: float | None = None, until: float | None = None) -> list[Tenure]:
    """Return in whose hands a CPU was within these times; the same as from all entries."""
    search = _Search(find_segments(directory), cpu, since, until)
    search.go_back()
    search.go_on()
    return search.tenures


class _Search:
    def __init__(self, found: Sequence[Segment], cpu: int, since: float | None, until: float | None) -> None:
        self._found = found
        self._asked = (cpu, since, until)
        self._low, self._high = _span(found, since, until)
        self._chosen = list(found[self._low : self._high])
        self.tenures = self._look()

    def _look(self) -> list[Tenure]:
        return owners_of(walk(self._chosen), *self._asked)

    def go_back(self) -> None:
        """Read earlier files until the first owner's beginning is among them, and its reason."""
        step = 1
        while self._low and (not self.tenures or self.tenures[0].since is None):
            if self._is_kept(self.tenures[:1], self._found[self._low - 1]):
                self._low -= 1
                continue
            low = max(self._low - step, 0)
            self._chosen[:0] = self._found[low : self._low]
            self._low, step = low, step * 2
            self.tenures = self._look()
        if self._low and not self.tenures[0].why:  # it may be the last entry of the file before
            self._chosen[:0] = self._found[self._low - 1 : self._low]
            self.tenures = self._look()

    def go_on(self) -> None:
        """Read later files until the last owner's end is among them."""
        step = 1
        while self._high < len(self._found) and (not self.tenures or self.tenures[-1].until is None):
            if self._is_kept(self.tenures[-1:], self._found[self._high]):
                self._high += 1
                continue
            self._chosen += self._found[self._high : self._high + step]
            self._high, step = self._high + step, step * 2
            self.tenures = self._look()

    @staticmethod
    def _is_kept(tenures: Sequence[Tenure], segment: Segment) -> bool:
        """Whether an owner has the same CPUs all through a file: each whole State names them, and nothing else does."""
        owner = tenures[0].owner if tenures else None
        if owner is None:
            return False
        name = json.dumps(owner).encode() + b":"
        lists = set()
        for line in read_bytes(segment.path).split(b"\n"):
            is_named, is_whole = name in line, _WHOLE_STATE in line
            if is_named != is_whole:
                return False
            if is_named:
                lists.update(re.findall(re.escape(name) + rb'("[^"]*"|.)', line))
        return len(lists) == 1


def _span(found: Sequence[Segment], since: float | None, until: float | None) -> tuple[int, int]:
    """Return from which file to which there may be entries of these times; all if the clock was ever set back."""
    if any(segment.back for segment in found[1:]):
        return 0, len(found)
    began = [segment.second for segment in found]
    low = 0 if since is None else max(bisect_left(began, since - SLACK - 1) - 1, 0)
    high = len(found) if until is None else bisect_right(began, until + SLACK)
    return low, max(high, min(low + 1, len(found)))
