"""Groups as the kernel's directories, and their files, for the drivers of cgroup v1 and v2."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pinfold.node import cgroupfiles
from pinfold.node.cgroupfiles import CgroupError
from pinfold.node.podgroups import paths
from pinfold.node.podgroups.settings import GroupSetting

if TYPE_CHECKING:
    from pinfold.core.machine.cpuset import CPUSet


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


def set_text(group: Path, file: str, value: str, *properties: str) -> GroupSetting:
    """Make the file hold this text, unless it does."""
    before = cgroupfiles.read(group / file)
    if before != value:
        cgroupfiles.write(group / file, value)
    return GroupSetting(group, file, before, value, properties)
