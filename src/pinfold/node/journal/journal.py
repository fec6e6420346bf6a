"""The journal on disk: every entry appended with one write, in files of bounded size, number and age.

Entries are written after the answer that they tell of, and not synced one by one: a killed daemon can lose those of the
last milliseconds, a power failure those of the last seconds. A restart relies on the State's own file. No error here
stops the daemon: errors are counted, and reported now and then.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from contextlib import suppress
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Final

from pinfold.core.events.entries import STATE
from pinfold.errors import PinfoldError
from pinfold.formats.journal.record import EntryPacker, UnusableEntry, format_base
from pinfold.node.journal.files import (
    MAX_SEGMENT,
    SLACK,
    Archive,
    Segment,
    find_segments,
    read_bytes,
    read_segment,
    segment_of,
)
from pinfold.node.statefile import keep_aside

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pinfold.core.events.entries import Entry

MAX_BYTES: Final = 64 << 20
MAX_AGE: Final = 30 * 86400.0
_PARTS: Final = 64
_MOST_SEGMENTS: Final = 1024
_LEAP: Final = 8
"""How far the clock may leap ahead, and how long it must then run on to be believed, as a part of the maximum age."""
_MOST_LEFT: Final = 8
"""How many complete files may wait for their sync."""
_TOLD_EVERY: Final = 3600.0
_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class _Open:
    """The file that is being written."""

    __slots__ = ("began", "fd", "head", "latest", "packer", "segment", "size")

    def __init__(self, segment: Segment, fd: int, packer: EntryPacker, head: bytes = b"") -> None:
        self.segment = segment
        self.fd = fd
        self.packer = packer
        self.head = head
        """The lines that must come before the first entry."""
        self.size = 0
        self.began = float(segment.second)
        self.latest = self.began


class Journal(Archive):
    """Keeps entries, and returns them. One thread writes, and may wait for the disk; any process reads."""

    def __init__(
        self,
        directory: Path,
        *,
        clock: Callable[[], float],
        tell: Callable[[str], None],
        max_bytes: int = MAX_BYTES,
        max_age: float = MAX_AGE,
    ) -> None:
        """Continue the journal in the directory; *tell* is called, rarely, with the reason why entries are lost."""
        super().__init__(directory)
        self.last = 0
        """The number of the last entry; the next one needs a higher one."""
        self.lost = 0
        """How many entries could not be kept since this was opened."""
        self.damaged = 0
        """How many lines of the newest file could not be read when this was opened."""
        self._clock = clock
        self._tell = tell
        self._max_bytes = max_bytes
        self._max_age = max_age
        self._sizes: dict[Segment, int] = {}
        self.bytes = 0
        """The size of all files, in bytes."""
        self._state: Entry | None = None
        self._open: _Open | None = None
        self._told: float | None = None
        self._unsynced = False
        self._left: deque[int] = deque()
        """Files that are complete, open until they are synced."""
        self._unnamed = False
        """Whether the directory has names that are not synced."""
        try:
            self._go_on()
        except (OSError, PinfoldError) as error:
            self._say(f"{directory}: the journal cannot be opened: {_cause(error)}")

    def append(self, entry: Entry) -> None:
        """Append an entry; if that fails, count it as lost."""
        try:
            self._append(entry)
        except (OSError, PinfoldError) as error:
            self.lost += 1
            self._forget_states()
            self._say(f"{self.directory}: entry {entry.number} is not kept: {_cause(error)}")
        self.last = max(self.last, entry.number)
        if entry.what == STATE:  # also if it is lost: the next file begins with it
            self._state = entry

    def sync(self) -> None:
        """Sync what was written so far; takes as long as the disk does."""
        while self._left:
            fd = self._left.popleft()
            with suppress(OSError):
                os.fdatasync(fd)
            os.close(fd)
        current = self._open
        if current is not None and self._unsynced:
            self._unsynced = False
            with suppress(OSError):
                os.fdatasync(current.fd)
        if self._unnamed:
            self._unnamed = False
            with suppress(OSError):
                _sync_directory(self.directory)

    def close(self) -> None:
        """Close the journal."""
        self.sync()
        self._leave()

    # -- opening

    def _go_on(self) -> None:
        self.directory.mkdir(mode=0o700, exist_ok=True)
        found = find_segments(self.directory)
        for segment in found:
            with suppress(FileNotFoundError):
                self._sizes[segment] = segment.path.lstat().st_size
        for segment in reversed(found):
            if self._take_up(segment):
                break
        self._count()
        self._drop_old()

    def _take_up(self, segment: Segment) -> bool:
        """Continue after a file's last entry; return whether it holds the last State, so no earlier file is needed."""
        parsed = read_segment(segment.path)
        entries = parsed.entries
        self.last = max(self.last, segment.number - 1 + parsed.damaged, entries[-1].number if entries else 0)
        self._state = parsed.last_state
        # Without entries it has the number of the next file, and the State it begins with begins that too.
        if not parsed.whole and b"\0" in read_bytes(segment.path):
            self._keep_aside(segment)
        elif not parsed.whole or not (entries or parsed.damaged):
            self._drop(segment)
        elif self._open is None and self._sizes[segment] <= MAX_SEGMENT:
            self.damaged = parsed.damaged
            self._open = _Open(segment, os.open(segment.path, _FLAGS), EntryPacker())
            # An incomplete last line is cut off.
            os.ftruncate(self._open.fd, parsed.whole)
            self._open.size = self._sizes[segment] = parsed.whole
            self._open.latest = max((entry.time for entry in entries), default=self._open.began)
        return self._state is not None

    # -- writing

    def _append(self, entry: Entry) -> None:
        if entry.number <= self.last:
            raise UnusableEntry(f"its number is not above {self.last}")
        current = self._place_for(entry)
        data = current.head + current.packer.pack(entry)
        if current.size and current.size + len(data) > min(self._max_bytes // _PARTS, MAX_SEGMENT):
            current = self._begin(entry, back=False)
            data = current.head + current.packer.pack(entry)
        self._make_room(len(data), current.segment)
        self._write(current, data)
        current.head = b""
        current.latest = max(current.latest, entry.time)
        self._unsynced = True

    def _place_for(self, entry: Entry) -> _Open:
        """Return the file for an entry: another one if the clock was set back, after some time, or if it is gone."""
        current = self._open
        if current is None:
            return self._begin(entry, back=True)  # as far as we know
        back = entry.time < current.latest - SLACK
        is_old = current.size and entry.time - current.began > self._max_age / _PARTS
        if back or is_old or not os.fstat(current.fd).st_nlink:
            return self._begin(entry, back=back)
        return current

    def _begin(self, entry: Entry, *, back: bool) -> _Open:
        self._leave()
        self.directory.mkdir(mode=0o700, exist_ok=True)
        segment = segment_of(self.directory, entry, back=back)
        fd = os.open(segment.path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
        self._unnamed = True
        self._sizes = {known: size for known, size in self._sizes.items() if known.path.exists()} | {segment: 0}
        self._count()
        self._open = _Open(segment, fd, EntryPacker(self._state), _head(self._state))
        self._drop_old()
        return self._open

    def _write(self, current: _Open, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(current.fd, rest) :]
        except OSError:
            self._cut(current)
            raise
        current.size += len(data)
        self._sizes[current.segment] = current.size
        self.bytes += len(data)

    def _cut(self, current: _Open) -> None:
        """Cut off an incomplete last line; if that fails too, the next entry starts another file."""
        try:
            os.ftruncate(current.fd, current.size)
        except OSError:
            self._leave()

    def _leave(self) -> None:
        current, self._open = self._open, None
        if current is None:
            return
        if self._unsynced and current.size and len(self._left) < _MOST_LEFT:
            self._left.append(current.fd)
            return
        with suppress(OSError):
            os.close(current.fd)
        if not current.size:
            self._drop(current.segment)

    # -- bounds

    def _make_room(self, size: int, current: Segment) -> None:
        """Drop whole files, the oldest first, until there is room for so many bytes."""
        while self.bytes + size > self._max_bytes or len(self._sizes) > _MOST_SEGMENTS:
            oldest = min(self._sizes)
            if oldest == current:
                raise OSError(errno.EFBIG, f"it has {size:,} bytes, and all entries may have {self._max_bytes:,}")
            self._drop(oldest)

    def _drop_old(self) -> None:
        """Drop the files in which every entry is too old: those whose next file begins too early already.

        Entries with wrong times do not count: those in the future, and those older than the entries before them.
        """
        kept = sorted(self._sizes)
        now = self._believed([float(segment.second) for segment in kept])
        right = [(index, segment.second) for index, segment in enumerate(kept) if segment.second <= now]
        late = list(takewhile(lambda found: found[1] + 1 < now - self._max_age, right))
        for segment in kept[: late[-1][0] if late else 0]:
            self._drop(segment)

    def _believed(self, begun: list[float]) -> float:
        """Return the time; after the clock has leapt, the time before the leap, until the clock has run on long enough.

        A machine that boots with a wrong clock corrects it soon. After a month of power off the leap is real, and old
        entries are dropped a little later.
        """
        now, leap = self._clock(), self._max_age / _LEAP
        times = [time for time in begun if time <= now] + [now]
        for earlier, later in reversed(list(pairwise(times))):
            if now - later >= leap:
                break
            if later - earlier > leap:
                return earlier
        return now

    def _drop(self, segment: Segment) -> None:
        with suppress(FileNotFoundError):
            segment.path.unlink()
        self.bytes -= self._sizes.pop(segment, 0)

    def _keep_aside(self, segment: Segment) -> None:
        """Keep a file that a power failure has left unreadable: an expert may find something in it."""
        aside = keep_aside(segment.path)
        self._sizes.pop(segment, None)
        self._say(f"{segment.path}: unreadable, as after a power failure; kept as {aside.name if aside else 'it is'}")

    def _count(self) -> None:
        self.bytes = sum(self._sizes.values())

    # -- what goes wrong

    def _forget_states(self) -> None:
        """Write the next State whole: a reader may not have the one before."""
        if self._open is not None:
            self._open.packer = EntryPacker()

    def _say(self, problem: str) -> None:
        now = self._clock()
        if self._told is None or not 0 <= now - self._told < _TOLD_EVERY:
            self._told = now  # first: telling may append
            self._tell(problem)


def _head(state: Entry | None) -> bytes:
    with suppress(UnusableEntry):  # a State that is too long for a line
        return b"" if state is None else format_base(state)
    return b""


def _cause(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
