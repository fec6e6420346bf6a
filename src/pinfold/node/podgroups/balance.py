"""BalanceFlags: spares the kernel needless work when many groups move on cgroup v1, by a flag that means nothing there.

`cpuset.sched_load_balance` says whether the scheduler balances load over the CPUs of a group. While a group balances,
the flags of all groups below it mean nothing. Yet each write to the CPUs of a group that has the flag makes the kernel
work out the scheduler's domains of the whole machine, with the same result: 30 µs beside 300 groups, where the rest of
the write takes 5. So pods and containers that share lose the flag before their CPUs change for the first time, as long
as a group above them balances. Where none does any more, they get it back. The groups above the pods keep theirs, and
so do owners.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pinfold.node import cgroupfiles
from pinfold.node.cgroupfiles import CgroupError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

FLAG: Final = "cpuset.sched_load_balance"
_ON: Final = "1"
_OFF: Final = "0"
_SPARE: Final = 256


class BalanceFlags:
    """The flags of pods and containers that share, below the *root* of the hierarchy with the cpuset controller."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._cleared: set[str] = set()
        """The groups without their flag, and some that are gone."""
        self._is_bare = False
        """Whether the top group did not balance when that was last looked at."""
        self._most = _SPARE
        """With more groups than this, those that are gone are forgotten."""

    def spare(self, above: Path | str, names: Iterable[str]) -> None:
        """Clear the flags of the groups with these *names* below *above* if they mean nothing; if they do, set them.

        Those that were cleared before are left to `heed`.
        """
        groups = {f"{above}/{name}" for name in names} - self._cleared
        if not groups:
            return
        if not self._balances(str(above)):
            _write_all(groups, _ON)
            return
        _write_all(groups, _OFF)
        self._cleared |= groups
        self._forget_gone()

    def heed(self, others: Callable[[], Iterable[Path]]) -> None:
        """Give groups their flags back where they mean something now: nothing tells of such a change.

        *others* returns groups whose flags an earlier daemon may have cleared.
        """
        if _is_on(self._root):
            self._is_bare = False
            return
        groups = set(self._cleared) if self._is_bare else self._cleared.union(map(str, others()))
        self._is_bare = True
        above = {os.path.dirname(group) for group in groups}  # noqa: PTH120 - strings, as everywhere here
        bare = {group for group in above if not self._balances(group)}
        theirs = {group for group in groups if os.path.dirname(group) in bare}  # noqa: PTH120
        _write_all(theirs, _ON)
        self._cleared -= theirs

    def give_back(self, group: Path, *, is_owner: bool = False) -> None:
        """Set the flag of a group, whichever daemon has cleared it; an owner's only where it means nothing."""
        if not _is_on(str(group)) and not (is_owner and not self._balances(str(group.parent))):
            _write_all([str(group)], _ON)

    def _balances(self, group: str) -> bool:
        """Return whether a group or one above it balances, the top one first: it mostly does."""
        if _is_on(self._root):
            return True
        while len(group) > len(self._root) and not _is_on(group):
            group = os.path.dirname(group)  # noqa: PTH120
        return len(group) > len(self._root)

    def _forget_gone(self) -> None:
        if len(self._cleared) > self._most:
            self._cleared = {group for group in self._cleared if os.path.isdir(group)}  # noqa: PTH112
            self._most = 2 * len(self._cleared) + _SPARE


def _is_on(group: str) -> bool:
    """Return whether a group has the flag; no, if it is gone or this kernel has no such file."""
    with suppress(CgroupError):
        return cgroupfiles.read(f"{group}/{FLAG}") == _ON
    return False


def _write_all(groups: Iterable[str], value: str) -> None:
    """Write the flags of groups. One that is gone, or that the kernel leaves as it is, works as before."""
    for group in groups:
        with suppress(OSError):
            file = os.open(f"{group}/{FLAG}", os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                os.write(file, value.encode())
            finally:
                os.close(file)
