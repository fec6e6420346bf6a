"""The daemon's log: a line for each entry, as key=value pairs or as JSON. It never waits for its reader.

A pipe or terminal that is not read fills up. Lines that it does not take are dropped and counted; `log-dropped` reports
them as soon as it takes lines again. The journal has all entries.
"""

from __future__ import annotations

import json
import os
import select
import stat
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from pinfold.core.events.daemon import LogDropped

if TYPE_CHECKING:
    from collections.abc import Callable

    from pinfold.core.events.entries import Entry

_ROOM: Final = select.PIPE_BUF
"""Bytes that a pipe takes at once if it can take any."""


class Out(Protocol):
    """Where the log goes."""

    def write(self, data: bytes) -> int:
        """Write as much of *data* as can be written without waiting, and return how many bytes that is."""
        ...


class Descriptor:
    """Writes to a file descriptor, and never waits until it can."""

    def __init__(self, fd: int) -> None:
        self._fd = _own(fd)
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLOUT)

    def write(self, data: bytes) -> int:
        """Write as much as possible now; nothing if the reader is gone."""
        written = 0
        with suppress(OSError):
            while written < len(data) and self._poll.poll(0):
                written += os.write(self._fd, data[written : written + _ROOM])
        return written


def _own(fd: int) -> int:
    """Return a non-blocking descriptor for the same pipe or terminal; *fd* itself if that is not possible.

    O_NONBLOCK on *fd* itself would hold for every process that has it, such as the shell that started the daemon.
    Polling it is not enough: a terminal with room for a few bytes makes a longer write wait.
    """
    mode = os.fstat(fd).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        with suppress(OSError):
            return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    return fd


class Log:
    """Writes a line for each entry."""

    def __init__(self, out: Out, tell: Callable[[LogDropped], None], *, as_json: bool = False) -> None:
        self._out = out
        self._tell = tell
        self._as_json = as_json
        self._rest = b""
        """The rest of a line that is partly written."""
        self._dropped = 0

    def take(self, entry: Entry) -> None:
        """Write a line, or count it as dropped."""
        if not self._finish():
            self._dropped += 1
            return
        line = format_line(entry, as_json=self._as_json).encode()
        written = self._out.write(line)
        if not written:
            self._dropped += 1
            return
        self._rest = line[written:]
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            self._tell(LogDropped(dropped))

    def _finish(self) -> bool:
        """Write the rest of the last line; return whether all of it is written."""
        if self._rest:
            self._rest = self._rest[self._out.write(self._rest) :]
        return not self._rest


def format_line(entry: Entry, *, as_json: bool) -> str:
    r"""Return the line of an entry.

    >>> from pinfold.core.events.entries import Entry
    >>> format_line(Entry(1, 0.0, "undone", {"why": "no room"}), as_json=False)[24:]
    ' event=undone why="no room"\n'
    >>> format_line(Entry(1, 0.0, "undone", {"why": "0 → EPERM"}), as_json=False)[24:]
    ' event=undone why="0 → EPERM"\n'
    """
    if as_json:
        return json.dumps(entry.data()) + "\n"
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(entry.time))
    fields = "".join(f" {name}={_value(value)}" for name, value in entry.fields.items())
    return f"time={stamp} event={entry.what}{fields}\n"


def _value(value: object) -> str:
    text = str(value)
    plain = text and text.isprintable() and not set(text) & set(' "=')
    return text if plain else json.dumps(text, ensure_ascii=not text.isprintable())
