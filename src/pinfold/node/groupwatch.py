"""GroupWatch: hears by inotify that a file of our groups was written, a group was made or one was removed.

The kernel reports a write to a cgroup file as it does for any file and any writer; our own writes are reported too. It
does not say who wrote, and not what: look, and compare. What the kernel itself changes (CPUs that go offline, the
processes of a group) is not reported.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from enum import IntFlag
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.node.cgroupfiles import groups_below
from pinfold.node.grouperrors import GroupError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

_MODIFY: Final = 0x2
_CREATE: Final = 0x100
_DELETE: Final = 0x200
_IS_DIRECTORY: Final = 0x40000000
_ONLY_DIRECTORIES: Final = 0x01000000
_OVERFLOW: Final = 0x4000
_IGNORED: Final = 0x8000
_WRITES: Final = _MODIFY | _ONLY_DIRECTORIES
_WHAT: Final = _WRITES | _CREATE | _DELETE
_EVENT: Final = struct.Struct("iIII")
_CHUNK: Final = 1 << 16
MOST: Final = 4096
"""So many groups are watched; differences in others are found by the periodic check."""


class Heard(IntFlag):
    """What events were about."""

    NOTHING = 0
    CPUS = 1
    """The CPUs of a group, or the group as a whole."""
    OTHERS = 2
    """Its processes, quota or weight."""


class Places(NamedTuple):
    """The groups to watch."""

    flat: Sequence[Path] = ()
    """Without those below."""
    deep: Sequence[Path] = ()
    """With all below."""


class GroupWatch:
    """Watches groups; those that are made later below a deep one are watched too."""

    def __init__(self, places: Places, only: Collection[str] = ()) -> None:
        """Raise an OSError where there is no inotify.

        *only*: the files of which to hear, and of groups that were removed below deep ones; none: of all, and of all
        groups that were made or removed.
        """
        self._only = only
        self._add, self._file = _started()
        self._deep = set(places.deep)
        self._paths: dict[int, Path] = {}
        self._quiet: dict[str, bool] = {}
        """The groups that are watched, and whether nothing was written there since a caller asked."""
        self._heard = Heard.NOTHING
        self._events = 0
        self.is_partial = False
        """Whether there is a group that is not watched, as there are too many."""
        self.wake: Callable[[], None] = lambda: None
        """Called when `listen` has taken in events, which then make the file readable no more."""
        for path in (*places.flat, *places.deep):
            self._watch(path, deep=self._is_deep(path))

    def fileno(self) -> int:
        """Return the file that can be read when there are events."""
        return self._file

    def heard(self) -> Heard:
        """Return what the events since the last call were about."""
        self._take_in()
        heard, self._heard = self._heard, Heard.NOTHING
        return heard

    def listen(self) -> int:
        """Take in the events that have come, for `is_quiet` and `heard`; return how many came so far."""
        self._take_in()
        if self._heard:
            self.wake()
        return self._events

    def _take_in(self) -> None:
        with suppress(BlockingIOError):
            while data := os.read(self._file, _CHUNK):
                at = 0
                while at < len(data):
                    number, mask, _, length = _EVENT.unpack_from(data, at)
                    at += _EVENT.size + length
                    name = data[at - length : at].rstrip(b"\0").decode("ascii", "replace")
                    about = self._about(number, mask, name)
                    self._heard |= about
                    self._events += bool(about)

    def is_quiet(self, group: str) -> bool:
        """Return whether no processes, quota or weight were written to a group since the last call for it.

        False if it is not watched. Read its files after this call, not before: what comes in between is heard then.
        """
        was = self._quiet.get(group)
        if was is not None:
            self._quiet[group] = True
        return bool(was)

    def has(self, group: Path) -> bool:
        """Return whether a group is watched; one that was removed is not, even if there is another of its name."""
        return str(group) in self._quiet

    def close(self) -> None:
        """Stop watching."""
        os.close(self._file)

    def _about(self, number: int, mask: int, name: str) -> Heard:
        if mask & _OVERFLOW:
            self._quiet = dict.fromkeys(self._quiet, False)
            return Heard.CPUS | Heard.OTHERS
        path = self._paths.get(number)
        if path is None:
            return Heard.NOTHING
        if mask & _IS_DIRECTORY:
            if mask & _CREATE and self._is_deep(path):
                self._watch(path / name, deep=True)
            return Heard.NOTHING if mask & _CREATE and self._only else Heard.CPUS
        if mask & _IGNORED:  # the kernel has removed the watch, with the group
            del self._paths[number]
            self._quiet.pop(str(path), None)
        return self._about_file(path, name) if mask & _MODIFY else Heard.NOTHING

    def _about_file(self, path: Path, name: str) -> Heard:
        if name.endswith(".events"):  # by the kernel itself, when the last process has ended
            return Heard.NOTHING
        if self._only and name not in self._only:
            return Heard.NOTHING
        if name.startswith("cpuset."):
            return Heard.CPUS
        self._quiet[str(path)] = False
        return Heard.OTHERS

    def _is_deep(self, path: Path) -> bool:
        return path in self._deep or any(above in self._deep for above in path.parents)

    def _watch(self, path: Path, *, deep: bool) -> None:
        """Watch a group, and then those below a *deep* one: what is made in between is found by one of the two."""
        if len(self._paths) >= MOST:
            self.is_partial = True
            return
        what = _WHAT if not self._only or deep else _WRITES
        number = self._add(self._file, os.fsencode(path), what)
        if number < 0:  # it is gone, or this user may have no more watches
            self.is_partial |= path.exists()
            return
        self._paths[number] = path
        self._quiet[str(path)] = False
        if deep:
            with suppress(GroupError):
                for below in groups_below(path):
                    self._watch(below, deep=True)


def _started() -> tuple[_Add, int]:
    """Return how a directory is watched, and the file with the events."""
    try:
        import ctypes  # noqa: PLC0415 - only a daemon with cgroups needs it, and some builds of Python have none

        libc = ctypes.CDLL(None, use_errno=True)
        file = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if file < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    except (ImportError, AttributeError) as error:
        raise OSError(f"there is no inotify: {error}") from error
    return libc.inotify_add_watch, int(file)


if TYPE_CHECKING:
    from typing import Protocol

    class _Add(Protocol):
        def __call__(self, file: int, path: bytes, mask: int, /) -> int: ...
