"""The journal's files in a directory. Any process can read them at any time, also while a daemon writes.

A file is named by the number and second of its first entry, so that most questions need only some of the files:
NUMBER-SECONDS.jsonl, or NUMBER-SECONDS-back.jsonl if the clock was set back when it was begun. Knows nothing of
writing.
"""

from __future__ import annotations

import os
import re
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.events.entries import STATE
from pinfold.core.events.timeline import Moment, moment_of
from pinfold.errors import StateError
from pinfold.formats.journal.record import Parsed, parse_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from pinfold.core.events.entries import Entry

MAX_SEGMENT: Final = 64 << 20
DIRECTORY: Final = "journal"
"""The journal's place in a state directory."""
SLACK: Final = 1.0
"""Seconds by which times in one file may go back."""
_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{1,12})(-back)?\.jsonl")


class JournalError(StateError):
    """A journal that cannot be read."""


class Segment(NamedTuple):
    """One file: the number and second of its first entry, and whether the clock was set back before that."""

    number: int
    second: int
    back: bool
    path: Path


def segment_of(directory: Path, entry: Entry, *, back: bool) -> Segment:
    """Return the file that begins with an entry."""
    second = min(max(int(entry.time), 0), 10**12 - 1)
    name = f"{entry.number:020}-{second}{'-back' if back else ''}.jsonl"
    return Segment(entry.number, second, back, directory / name)


def find_segments(directory: Path) -> list[Segment]:
    """Return the files of a journal, in order; a directory that is not there has none."""
    try:
        with os.scandir(directory) as listed:
            names = [entry.name for entry in listed if entry.is_file(follow_symlinks=False)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise JournalError(f"{directory}: not read: {error.strerror or error}") from error
    found = (_NAME.fullmatch(name) for name in names)
    return sorted(Segment(int(m[1]), int(m[2]), m[3] is not None, directory / m[0]) for m in found if m is not None)


def read_segment(path: Path) -> Parsed:
    """Return the entries of a file; none if it has just been dropped."""
    return parse_records(read_bytes(path))


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file; none if it has just been dropped."""
    try:
        # O_NONBLOCK and O_NOFOLLOW: a pipe or a link in this place must not block us.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise JournalError(f"{path}: not read: {error.strerror or error}") from error
    with os.fdopen(file, "rb") as stream:
        return stream.read(MAX_SEGMENT)


class Archive:
    """The journal in a directory, for reading. May be asked from any thread."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._first: tuple[Path, float] | None = None
        self._kept: tuple[Path, Parsed] | None = None

    def entries(
        self,
        *,
        since: float | None = None,
        until: float | None = None,
        number_after: int = 0,
        limit: int | None = None,
    ) -> Iterator[Entry]:
        """Yield the entries within these times, in the order of their numbers; at most *limit*, the earliest.

        The last State before the first entry comes too, with its own number and time, if it is kept.
        """
        left = inf if limit is None else limit
        for entry in self._all_after(number_after, -inf if since is None else since, inf if until is None else until):
            if left <= 0:
                return
            left -= 1
            yield entry

    def _all_after(self, number: int, since: float, until: float) -> Iterator[Entry]:
        found = find_segments(self.directory)
        for index, segment in enumerate(found):
            if _may_have(found, index, number, since, until):
                for entry in _with_base(read_segment(segment.path)):
                    if entry.number > number:
                        number = entry.number
                        if since <= entry.time <= until:
                            yield entry

    def newest(
        self, *, since: float | None = None, until: float | None = None, number_after: int = 0
    ) -> Iterator[Entry]:
        """Yield the same entries, the last one first; earlier files are read only when the caller goes on."""
        start, end = -inf if since is None else since, inf if until is None else until
        found = find_segments(self.directory)
        wanted = (index for index in reversed(range(len(found))) if _may_have(found, index, number_after, start, end))
        for entry in _backwards(read_segment(found[index].path) for index in wanted):
            if entry.number > number_after and start <= entry.time <= end:
                yield entry

    def first(self) -> float | None:
        """Return the time of the first entry, None if there is none."""
        for segment in find_segments(self.directory):
            if self._first is not None and self._first[0] == segment.path:
                return self._first[1]
            if entries := read_segment(segment.path).entries:
                self._first = (segment.path, entries[0].time)
                return entries[0].time
        return None

    def latest(self, wanted: Callable[[Entry], bool]) -> Entry | None:
        """Return the last matching entry, None if there is none."""
        for segment in reversed(find_segments(self.directory)):
            for entry in reversed(read_segment(segment.path).entries):
                if wanted(entry):
                    return entry
        return None

    def state_at(self, time: float) -> Moment:
        """Return the State at a time; the same as that from all entries, but from few files."""
        entry = self.entry_of_state(time)
        return Moment(time) if entry is None else moment_of(entry, time)

    def entry_of_state(self, time: float) -> Entry | None:
        """Return the entry that holds the State at a time, None if there is none."""
        found = find_segments(self.directory)
        earliest = inf  # of the later entries: if the clock was set back, an entry counts as no later than they
        for index in range(len(found) - 1, -1, -1):
            if index and min(earliest, found[index].second - SLACK) > time:
                continue
            for entry in reversed(list(_with_base(self._read(found, index)))):
                earliest = min(earliest, entry.time)
                if entry.what == STATE and earliest <= time:
                    return entry
        return None

    def _read(self, found: Sequence[Segment], index: int) -> Parsed:
        """Return the entries of a file; a complete file is cached, as callers ask for it again."""
        path, kept = found[index].path, self._kept
        if kept is not None and kept[0] == path:
            return kept[1]
        parsed = read_segment(path)
        if index + 1 < len(found):
            self._kept = (path, parsed)
        return parsed


def walk(segments: Iterable[Segment]) -> Iterator[Entry]:
    """Yield all entries of some files, in order, and the State before them if it is known."""
    number = 0
    for segment in segments:
        for entry in _with_base(read_segment(segment.path)):
            if entry.number > number:
                number = entry.number
                yield entry


def _with_base(parsed: Parsed) -> Iterator[Entry]:
    if parsed.base is not None:
        yield parsed.base
    yield from parsed.entries


def _backwards(parts: Iterable[Parsed]) -> Iterator[Entry]:
    """Yield all entries of some files, the last file first; the State before a file unless an earlier one has it."""
    base: Entry | None = None
    for parsed in parts:
        last = parsed.entries[-1] if parsed.entries else parsed.base
        if last is None:
            continue
        if base is not None and base.number > last.number:
            yield base
        yield from reversed(parsed.entries)
        base = parsed.base
    if base is not None:
        yield base


def _may_have(found: Sequence[Segment], index: int, number: int, since: float, until: float) -> bool:
    """Whether a file can have entries after a number and within these times, by its name and the next one's."""
    following = found[index + 1] if index + 1 < len(found) else None
    if following is not None and following.number <= number + 1:
        return False
    if following is not None and not following.back and following.second + 1 + SLACK < since:
        return False
    # The first file may begin with an older State.
    return index == 0 or found[index].second - SLACK <= until
