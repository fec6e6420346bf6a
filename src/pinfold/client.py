"""For programs under pinfold: where they run, where they will run, and how to say that they are ready.

The daemon writes the files (see docs/how-to/dynamic.md). This module needs nothing but the standard library, and can be
copied.
"""

from __future__ import annotations

import ctypes
import os
import select
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Notice", "Place", "acknowledge", "read", "watch"]

_VARIABLE: Final = "PINFOLD_STATE_DIR"
_MOVED_TO: Final = 0x80
_SELF_GONE: Final = 0xC00
_BUFFER: Final = 1 << 16
_POLL: Final = 0.2


class Place(NamedTuple):
    """Some CPUs, the NUMA nodes of the memory, and the number of this place."""

    generation: int
    cpus: frozenset[int]
    mems: frozenset[int]


class Notice(NamedTuple):
    """Where this program runs now, and where it will run, if that is announced."""

    now: Place
    next: Place | None = None


def read(directory: str | None = None) -> Notice:
    """Return where this program runs; *directory* is $PINFOLD_STATE_DIR. Raise OSError if there is no notice."""
    path = _directory(directory)
    cpus, mems, generation = ((path / name).read_text() for name in ("cpus", "mems", "generation"))
    now = Place(int(generation), _parse(cpus), _parse(mems))
    number, *lists = (path / "next").read_text().split() or [""]
    return Notice(now, Place(int(number), _parse(lists[0]), _parse(lists[1])) if number else None)


def acknowledge(notice: Notice, directory: str | None = None) -> None:
    """Say that this program is ready for the announced change; it then happens at once."""
    if notice.next is not None:
        # The file is mounted by itself in a container, so that it can be written, but not replaced.
        (_directory(directory) / "ack").write_text(f"{notice.next.generation}\n")


def watch(directory: str | None = None) -> Iterator[Notice]:
    """Yield where this program runs, and again after each change and announcement; end when the container is gone."""
    path = _directory(directory)
    last = None
    with _Waiting(path) as waiting:
        while path.is_dir():
            with suppress(OSError, ValueError):  # between two files; the next event comes soon
                notice = read(str(path))
                if notice != last:
                    last = notice
                    yield notice
            waiting.wait()


class _Waiting:
    """Waits for a change in a directory: by inotify, or by polling where there is none."""

    def __init__(self, path: Path) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self._descriptor >= 0:
            self._libc.inotify_add_watch(self._descriptor, os.fsencode(path), _MOVED_TO | _SELF_GONE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def wait(self) -> None:
        if self._descriptor < 0:
            select.select([], [], [], _POLL)
            return
        select.select([self._descriptor], [], [])
        with suppress(BlockingIOError):
            os.read(self._descriptor, _BUFFER)


def _directory(given: str | None) -> Path:
    if given is None and _VARIABLE not in os.environ:
        raise FileNotFoundError(f"${_VARIABLE} is not set: this program does not run under pinfold's policy dynamic")
    return Path(os.environ[_VARIABLE] if given is None else given)


def _parse(text: str) -> frozenset[int]:
    """Return the numbers of a list.

    >>> sorted(_parse("0-2,8"))
    [0, 1, 2, 8]
    """
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)
