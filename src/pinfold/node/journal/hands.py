"""The owners of a CPU over time, from as few files of a journal as possible.

Starts with the files of the requested time, reads back to the start of the first owner and on to the end of the last.
A file in which an owner's CPUs do not change is recognised by its bytes: owners may stay for weeks while others come
and go.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final

from pinfold.core.events.timeline import owners_of
from pinfold.core.machine.cpuset import CPUSet
from pinfold.node.journal.files import SLACK, find_segments, read_bytes, walk

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pinfold.core.events.timeline import Tenure
    from pinfold.node.journal.files import Segment

_BASE: Final = b'{"base":'
_WHOLE_STATE: Final = b'"exclusive":{'


def hands(directory: Path, cpu: int, since: float | None = None, until: float | None = None) -> list[Tenure]:
    """Return the owners of a CPU within these times; the same as from all entries."""
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
        """Read earlier files until they contain the first owner's start and its reason."""
        step, skipped = 1, []
        while self._low and self._began_before(self._found[self._low]):
            if (
                self.tenures
                and self.tenures[0].since is None
                and self._keeps(self._found[self._low - 1], self.tenures[0])
            ):
                self._low -= 1
                skipped.append(self._found[self._low])
                continue
            low = max(self._low - step, 0)
            self._chosen[:0] = self._found[low : self._low]
            self._low, step = low, step * 2
            self.tenures = self._look()
        self._reread(skipped)
        if self._low and not self.tenures[0].why:  # it may be the last entry of the file before
            self._chosen[:0] = self._found[self._low - 1 : self._low]
            self.tenures = self._look()

    def _reread(self, skipped: Sequence[Segment]) -> None:
        """Read those skipped files too that begin before the first owner does: the clock went back a little there."""
        began = self.tenures[0].since if self.tenures else None
        near = [segment for segment in skipped if began is not None and segment.second - SLACK <= began]
        if near:
            self._chosen = sorted([*self._chosen, *near])
            self.tenures = self._look()

    def _began_before(self, segment: Segment) -> bool:
        """Whether the first owner may have started before a file; one that starts with it may be undone at once."""
        since = self.tenures[0].since if self.tenures else None
        return since is None or since <= segment.second + 1 + SLACK

    def _ends_after(self, segment: Segment) -> bool:
        """Whether the last owner may have ended in a file, or later."""
        until = self.tenures[-1].until if self.tenures else None
        return until is None or until >= segment.second - SLACK

    def go_on(self) -> None:
        """Read later files until they contain the last owner's end."""
        step = 1
        while self._high < len(self._found) and self._ends_after(self._found[self._high]):
            if (
                self.tenures
                and self.tenures[-1].until is None
                and (self.tenures[-1].since or 0) < self._found[self._high].second - SLACK
                and self._keeps(self._found[self._high], self.tenures[-1])
            ):
                self._high += 1
                continue
            self._chosen += self._found[self._high : self._high + step]
            self._high, step = self._high + step, step * 2
            self.tenures = self._look()

    def _keeps(self, segment: Segment, tenure: Tenure) -> bool:
        """Whether an owner has the CPU all through a file, from the State on that it begins with."""
        lists = set() if tenure.owner is None else _lists_of(tenure.owner, read_bytes(segment.path))
        try:
            return len(lists) == 1 and self._asked[0] in CPUSet.parse(lists.pop().decode().strip('"'))
        except ValueError:
            return False


def _lists_of(owner: str, content: bytes) -> set[bytes]:
    """Return an owner's CPUs in the States of a file; none if they change, or if the file does not begin with a State.

    An owner whose CPUs do not change is named only in whole States.
    """
    name = json.dumps(owner).encode() + b":"
    lines = content.split(b"\n")
    lists: set[bytes] = set()
    for line in lines if _BASE in lines[0] else ():
        is_named = name in line
        if is_named != (_WHOLE_STATE in line):
            return set()
        if is_named:
            lists.update(re.findall(re.escape(name) + rb'("[^"]*"|.)', line))
    return lists


def _span(found: Sequence[Segment], since: float | None, until: float | None) -> tuple[int, int]:
    """Return the range of files that may have entries of these times; all if the clock was ever set back."""
    if any(segment.back for segment in found[1:]):
        return 0, len(found)
    began = [segment.second for segment in found]
    low = 0 if since is None else max(bisect_left(began, since - SLACK - 1) - 1, 0)
    high = len(found) if until is None else bisect_right(began, until + SLACK)
    return low, max(high, min(low + 1, len(found)))
