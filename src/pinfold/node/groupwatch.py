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
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.node.cgroupfiles import names_below
from pinfold.node.grouperrors import GroupError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

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
        self._inotify, self._file = _started()
        self._deep = tuple(map(str, places.deep))
        self._groups: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        """Those of the groups that are watched."""
        self._written: set[str] = set()
        """The groups in which something was written since a caller asked."""
        self._heard = Heard.NOTHING
        self._events = 0
        self.is_partial = False
        """Whether there is a group that is not watched, as there are too many."""
        self.wake: Callable[[], None] = lambda: None
        """Called when `listen` has taken in events, which then make the file readable no more."""
        for group in (*map(str, places.flat), *self._deep):
            self._watch(group)

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
                    if about := self._about(number, mask, name):
                        self._events += 1
                        if about is not self._heard:  # on cgroup v1 there are hundreds alike: all that we moved
                            self._heard |= about

    def is_quiet(self, group: str) -> bool:
        """Return whether no processes, quota or weight were written to a group since the last call for it.

        False if it is not watched. Read its files after this call, not before: what comes in between is heard then.
        """
        was = group in self._numbers and group not in self._written
        self._written.discard(group)
        return was

    def has(self, group: Path) -> bool:
        """Return whether a group is watched; one that was removed is not, even if there is another of its name."""
        return str(group) in self._numbers

    def close(self) -> None:
        """Stop watching."""
        os.close(self._file)

    def _about(self, number: int, mask: int, name: str) -> Heard:
        if mask & _OVERFLOW:
            self._watch_anew()
            return Heard.CPUS | Heard.OTHERS
        group = self._groups.get(number)
        if group is None:
            return Heard.NOTHING
        if mask & _IS_DIRECTORY:
            return self._about_group(f"{group}/{name}", made=bool(mask & _CREATE))
        if mask & _IGNORED:  # the kernel has removed the watch, with the group
            self._forget(group)
        return self._about_file(group, name) if mask & _MODIFY else Heard.NOTHING

    def _about_group(self, group: str, *, made: bool) -> Heard:
        deep = self._is_deep(group)
        if not made:
            self._forget(group)
        elif deep:
            self._watch(group)
        return Heard.CPUS if not self._only or (deep and not made) else Heard.NOTHING

    def _about_file(self, group: str, name: str) -> Heard:
        if name.endswith(".events"):  # by the kernel itself, when the last process has ended
            return Heard.NOTHING
        if self._only and name not in self._only:
            return Heard.NOTHING
        if name.startswith("cpuset."):
            return Heard.CPUS
        self._written.add(group)
        return Heard.OTHERS

    def _is_deep(self, group: str) -> bool:
        return any(group == deep or group.startswith(f"{deep}/") for deep in self._deep)

    def _watch(self, group: str) -> None:
        """Watch a group, and then those below a deep one: what is made in between is found by one of the two."""
        if len(self._numbers) >= MOST and group not in self._numbers:
            self.is_partial = True
            return
        deep = self._is_deep(group)
        what = _WHAT if not self._only or deep else _WRITES | _DELETE
        number = self._inotify.inotify_add_watch(self._file, os.fsencode(group), what)
        if self._numbers.get(group) != number:
            self._forget(group)
        if number < 0:  # it is gone, or this user may have no more watches
            self.is_partial |= Path(group).exists()
            return
        self._groups[number], self._numbers[group] = group, number
        self._written.add(group)
        if deep:
            with suppress(GroupError):
                for name in names_below(group):
                    self._watch(f"{group}/{name}")

    def _watch_anew(self) -> None:
        """Watch what there is now, after the kernel had more events than it keeps."""
        for group in [group for group in self._numbers if not Path(group).exists()]:
            self._forget(group)
        self._written.update(self._numbers)
        for group in self._deep:
            self._watch(group)

    def _forget(self, group: str) -> None:
        """Watch a group no more: of a cgroup that was removed the kernel would keep the watch for ever."""
        number = self._numbers.pop(group, None)
        if number is not None:
            del self._groups[number]
            self._written.discard(group)
            self._inotify.inotify_rm_watch(self._file, number)


def _started() -> tuple[_Inotify, int]:
    """Return the functions of the C library, and the file with the events."""
    try:
        import ctypes  # noqa: PLC0415 - only a daemon with cgroups needs it, and some builds of Python have none

        libc = ctypes.CDLL(None, use_errno=True)
        file = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if file < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    except (ImportError, AttributeError) as error:
        raise OSError(f"there is no inotify: {error}") from error
    return libc, int(file)


if TYPE_CHECKING:
    from typing import Protocol

    class _Inotify(Protocol):
        def inotify_add_watch(self, file: int, path: bytes, mask: int, /) -> int: ...

        def inotify_rm_watch(self, file: int, number: int, /) -> int: ...
