"""Outputs: the files that containers write their output to, bounded in size and number.

A container writes straight into its file, so that the daemon copies nothing and may be away. A file that is too large
is cut: its end moves to NAME.1, and the file starts again empty. So the daemon has to look often enough.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

_LAST: Final = ".1"
PART: Final = 64 << 10
"""Bytes of a file that are read at once."""
_LEAST: Final = 64 << 10
"""Bytes of output that every container keeps."""
_RESERVE: Final = 64 << 20
_SHARE: Final = 8
"""Bytes of the file system that output leaves free, or this part of a small one: State and journal need them."""
_ENDED: Final = 100
"""How many containers that have ended keep their output."""
_FAST: Final = 1 << 20
_PAUSES: Final = (0.02, 0.2)
_FASTEST: Final = 1e9
"""Bytes per second that containers can write, on any disk."""
_WORTH: Final = 50
"""A pause is at least so many times as long as listing the files."""


class OutputLimits(NamedTuple):
    """How many bytes of output are kept."""

    each: int
    total: int


def earlier_half(name: str) -> str:
    """Return the name of the file with what was printed before."""
    return f"{name}{_LAST}"


DEFAULT_LIMITS: Final = OutputLimits(20 << 20, 1 << 30)


class Look(NamedTuple):
    """What a look at the files has found."""

    pause: float
    """Seconds until the next look: fewer if a container writes fast, or if the disk is nearly full."""
    ended: tuple[str, ...]
    """The outputs to remove: of containers that have ended, and that are the oldest."""


class Outputs:
    """The files in one directory."""

    def __init__(self, directory: Path, limits: OutputLimits = DEFAULT_LIMITS) -> None:
        self._directory = directory
        self._limits = limits
        self._sizes: dict[str, int] = {}

    def open(self, name: str) -> IO[bytes]:
        """Return the file called *name*, open to append to; only our user can read it."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        file = os.open(self._directory / name, flags, 0o600)
        os.set_blocking(file, True)
        return os.fdopen(file, "ab", buffering=0)

    def names(self) -> list[str]:
        """Return the names of all files."""
        return [name for name, _ in self._files() if not name.endswith(_LAST)]

    def read(self, name: str, at: int = 0) -> bytes:
        """Return the bytes of a file from *at* on, 64 KiB at most; a negative *at* counts from the end."""
        with suppress(OSError):
            file = os.open(self._directory / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                start = at if at >= 0 else max(os.fstat(file).st_size + at, 0)
                return os.pread(file, PART, start)
            finally:
                os.close(file)
        return b""

    def size(self, name: str) -> int:
        """Return how many bytes a file has now: fewer than before if its start was cut off."""
        with suppress(OSError):
            return (self._directory / name).stat().st_size
        return 0

    def remove(self, name: str) -> None:
        """Remove a file and its earlier half."""
        for path in (self._directory / name, self._directory / earlier_half(name)):
            with suppress(OSError):
                path.unlink()

    def look(self, current: Collection[str]) -> Look:
        """Cut the files that are too large; *current* are those of containers that run. It may wait for a disk."""
        start = time.monotonic()
        files = dict(self._files())
        found = {name: status for name, status in files.items() if not name.endswith(_LAST)}
        free, reserve = self._free()
        worth = (time.monotonic() - start) * _WORTH
        for name in files.keys() - found.keys():
            if name.removesuffix(_LAST) not in found:  # removed while it was cut
                self.remove(name)
        each = min(self._limits.each, self._limits.total // max(1, len(found))) if free > reserve else _LEAST
        for name, status in found.items():
            if status.st_size > max(each, _LEAST) // 2:
                self._cut(name, max(each, _LEAST) // 2)
        ended = sorted(found.keys() - set(current), key=lambda name: found[name].st_mtime_ns, reverse=True)
        return Look(max(self._pause(found, free - reserve), worth), tuple(ended[_ENDED:]))

    def _pause(self, found: Mapping[str, os.stat_result], room: int) -> float:
        """Return for how long not to look: until containers can have filled the *room*; less if one writes fast."""
        grown = any(abs(status.st_size - self._sizes.get(name, 0)) > _FAST for name, status in found.items())
        self._sizes = {name: status.st_size for name, status in found.items()}
        least, most = _PAUSES
        return least if grown else min(max(room / _FASTEST, least), most)

    def _files(self) -> Iterator[tuple[str, os.stat_result]]:
        with suppress(OSError), os.scandir(self._directory) as entries:
            for entry in entries:
                with suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode):
                        yield entry.name, status

    def _free(self) -> tuple[int, int]:
        """Return how many bytes the file system has left, and how many of them are not for output."""
        try:
            found = os.statvfs(self._directory)
        except OSError:  # there is no directory yet
            return _RESERVE, 0
        return found.f_bavail * found.f_frsize, min(_RESERVE, found.f_blocks * found.f_frsize // _SHARE)

    def _cut(self, name: str, keep: int) -> None:
        """Move the last *keep* bytes of a file to its earlier half, and empty the file."""
        path = self._directory / name
        last = path.with_name(earlier_half(name))
        with suppress(OSError):
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                with suppress(OSError):
                    last.unlink(missing_ok=True)
                    _copy_end(file, last, keep)
                os.ftruncate(file, 0)  # also if nothing could be copied: a full disk is worse
            finally:
                os.close(file)


def _copy_end(file: int, last: Path, keep: int) -> None:
    at = max(os.fstat(file).st_size - keep, 0)
    end = at + keep
    out = os.open(last, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        while at < end and (copied := os.sendfile(out, file, at, end - at)):
            at += copied
    finally:
        os.close(out)
