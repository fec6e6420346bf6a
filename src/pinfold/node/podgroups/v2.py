"""The driver for cgroup v2: one hierarchy for everything, in which each group hands controllers down to those below.

A group to which the cpuset controller is not handed down has no CPUs of its own, and its processes use those of the
nearest group above that has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.node import cgroupfiles
from pinfold.node.cgroupfiles import CgroupError
from pinfold.node.podgroups import files
from pinfold.node.podgroups.settings import CPUS, GroupSetting, Quota, cpuset_property
from pinfold.node.unified import AVAILABLE, KIND, find_unified, no_cpuset

if TYPE_CHECKING:
    from pathlib import Path

_HANDED_DOWN: Final = "cgroup.subtree_control"
_CPUSET: Final = "cpuset"
_MAX: Final = "cpu.max"


def discover(cgroup_root: Path, proc: Path) -> V2:
    """Return the driver for *cgroup_root* (or its directory "unified"), where that has the cpuset controller."""
    root = find_unified(cgroup_root)
    if _CPUSET not in _words(root / AVAILABLE):
        raise no_cpuset(root)
    return V2(files.Directories(root, unified=True, proc=proc))


class V2:
    """Groups on cgroup v2. Remembers nothing: the kernel's files are the only state."""

    kind = KIND
    nested = False
    balance_flags = None
    pooling = None

    def __init__(self, hierarchy: files.Directories) -> None:
        self.hierarchy = hierarchy

    def own(self, group: Path, file: str) -> CPUSet:
        """Return the CPUs (or NUMA nodes) that were set for the group; none if it follows the one above."""
        text = _read_if_there(group, file)
        return EMPTY if text is None else CPUSet.parse(text)

    def effective(self, group: Path, file: str) -> CPUSet:
        """Return the CPUs (or NUMA nodes) that processes in the group can use."""
        shown = f"{file}.effective"
        if group == self.hierarchy.root:
            return cgroupfiles.read_cpus(group / shown)
        text = _read_if_there(group, shown)
        return self.effective(group.parent, file) if text is None else CPUSet.parse(text)

    def set_own(self, group: Path, file: str, cpus: CPUSet, known: CPUSet | None = None) -> GroupSetting:
        """Set the group's own CPUs (or NUMA nodes)."""
        return files.set_cpus(group, file, cpus, known, cpuset_property(file, cpus))

    def quota(self, group: Path) -> Quota:
        """Return the group's own limit of CPU time."""
        text = _read_if_there(group, _MAX)
        return Quota(None) if text is None else Quota.parse(text)

    def set_quota(self, group: Path, quota: Quota) -> tuple[GroupSetting, ...]:
        """Set the group's own limit of CPU time."""
        if not (group / _MAX).exists():
            return ()
        return (files.set_text(group, _MAX, str(quota.after(self.quota(group))), *quota.properties()),)

    def hand_down_to(self, group: Path) -> None:
        """Have every group above hand the cpuset controller down, from the top on."""
        if (group / CPUS).exists():
            return
        for path in reversed(group.parents):
            if not path.is_relative_to(self.hierarchy.root) or _CPUSET in _words(path / _HANDED_DOWN):
                continue
            if _CPUSET not in _words(path / AVAILABLE):
                raise CgroupError(
                    path / AVAILABLE, _CPUSET, "", "a group above does not have it in its cgroup.subtree_control"
                )
            cgroupfiles.write_once(path / _HANDED_DOWN, f"+{_CPUSET}")


def _read_if_there(group: Path, file: str) -> str | None:
    """Return what the file holds; None if the group exists without it, as its controller is not handed down."""
    try:
        return cgroupfiles.read(group / file)
    except CgroupError as error:
        if error.name != "ENOENT" or not group.is_dir():
            raise
        return None


def _words(path: Path) -> set[str]:
    return set(cgroupfiles.read(path).split())
