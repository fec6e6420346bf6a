"""Groups as the kernel's directories, and their files, for the drivers of cgroup v1 and v2."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pinfold.node import cgroupfiles
from pinfold.node.cgroupfiles import CgroupError
from pinfold.node.podgroups import paths
from pinfold.node.podgroups.settings import CPUS, GONE, GroupSetting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pinfold.core.machine.cpuset import CPUSet


_MOST: Final = 4096
"""The groups of so many pods are remembered."""


class Directories:
    """The hierarchy mounted at *root*: the *unified* one of cgroup v2, or that of v1's cpuset controller."""

    def __init__(self, root: Path, *, unified: bool, proc: Path = Path("/proc")) -> None:
        self.root = root
        self._unified = unified
        self._proc = proc

    def exists(self, group: Path) -> bool:
        """Whether there is such a group now."""
        return os.path.isdir(group)  # noqa: PTH112 - of hundreds of groups, whenever the pool changes

    def below(self, group: Path) -> list[Path]:
        """Return the groups directly below, in order of their names; none if there is no such group."""
        return cgroupfiles.groups_below(group)

    def has_below(self, group: Path) -> bool:
        """Return whether there are groups directly below; quicker than to list them."""
        return cgroupfiles.has_below(group)

    def members(self, group: Path) -> list[int]:
        """Return the processes in the group itself, ascending."""
        return cgroupfiles.read_pids(group)

    def group_of(self, pid: int) -> Path | None:
        """Return the group that a process is in; None if the process has ended, or is in the top group."""
        try:
            text = cgroupfiles.read(self._proc / str(pid) / "cgroup")
        except CgroupError as error:
            if error.name in {"ENOENT", "ESRCH"}:
                return None
            raise
        parts = paths.parse_membership(text, unified=self._unified)
        return None if parts is None else self.root.joinpath(*parts)


def set_cpus(group: Path, file: str, cpus: CPUSet, known: CPUSet | None, *properties: str) -> GroupSetting:
    """Make the file list these CPUs (or NUMA nodes), unless it does; *known* is what was just read from it."""
    path = f"{group}/{file}"
    before = cgroupfiles.read_cpus(path) if known is None else known
    if before != cpus:
        cgroupfiles.write_cpus(path, cpus)
    return GroupSetting(group, file, str(before), str(cpus), properties)


class Below:
    """The names of the groups below others. Those of a pod seldom change, and to list them takes half of a move."""

    def __init__(self) -> None:
        self._names: dict[str, Sequence[str]] = {}

    def names(self, group: str) -> Sequence[str]:
        """Return the names of the groups directly below; as many as there are, but they may have been others before."""
        known = self._names.get(group)
        if known is None or cgroupfiles.count_below(group) != len(known):
            if len(self._names) >= _MOST:
                self._names.clear()
            known = self._names[group] = cgroupfiles.names_below(group)
        return known

    def forget(self, group: str) -> None:
        """Have the groups below this one listed at the next call."""
        self._names.pop(group, None)


def set_below(group: Path, names: Sequence[str], cpus: CPUSet, before: CPUSet) -> tuple[list[Path], bool]:
    """Make groups directly below, by their names, have these CPUs of their own; see `Driver.set_below`.

    Return also whether all of them were there.
    """
    # On strings: a pool of hundreds of containers is set while the start of a container waits.
    with cgroupfiles.directory_of(str(group)) as directory:
        if directory is None:
            return [], False
        found = [_set_one(directory, name, cpus, before) for name in names]
    left = [group / name for name, is_set in zip(names, found, strict=True) if is_set is False]
    return left, None not in found


def _set_one(above: cgroupfiles.Directory, name: str, cpus: CPUSet, before: CPUSet) -> bool | None:
    """Return whether the group has these CPUs now: no, if groups below it must move too; None, if it is gone."""
    group = f"{above.path}/{name}"
    try:
        if before == cpus and cgroupfiles.read_cpus(f"{group}/{CPUS}") == cpus:
            return True
        return cgroupfiles.change_cpus(f"{name}/{CPUS}", cpus, lambda: not cgroupfiles.has_below(name, above), above)
    except CgroupError as error:
        if error.name == "EBUSY":
            return False
        if error.name not in GONE or os.path.isdir(group):  # noqa: PTH112 - of hundreds of groups
            raise
    return None


def set_text(group: Path, file: str, value: str, *properties: str) -> GroupSetting:
    """Make the file hold this text, unless it does."""
    before = cgroupfiles.read(group / file)
    if before != value:
        cgroupfiles.write(group / file, value)
    return GroupSetting(group, file, before, value, properties)
