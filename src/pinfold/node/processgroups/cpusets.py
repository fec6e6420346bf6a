"""Cpusets: the cpuset hierarchy of cgroup v1, whose groups say on which CPUs their processes run.

    NAME/shared                     all shared processes, directly: the pool is one write
    NAME/exclusive/POD/CONTAINER    one exclusive container

A group needs CPUs and NUMA nodes before it takes a process, and only those that the group above has. So NAME, exclusive
and its pods have all of them and are only widened, from the top down. When the last CPU of a group goes offline, the
kernel moves its processes to the group above. We put none there, so processes found there are lost ones to bring back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.node import cgroupfiles as files
from pinfold.node.grouperrors import NoCPUsError
from pinfold.node.processgroups.names import read_marks
from pinfold.node.procfs import PROC

if TYPE_CHECKING:
    from pathlib import Path

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import ContainerRef
    from pinfold.node.processgroups.subtree import Subtree

CPUS: Final = "cpuset.cpus"
"""The file that every group of the hierarchy has."""
_MEMS: Final = "cpuset.mems"
_EFFECTIVE: Final = "cpuset.effective_cpus"


class Cpusets:
    """The CPUs of the shared pool and of exclusive containers."""

    def __init__(self, tree: Subtree) -> None:
        self.tree = tree

    def prepare(self) -> None:
        """Make both pools; the shared one has no CPUs yet."""
        self.tree.make_pools()
        for group in (self.tree.top, self.tree.exclusive):
            self._widen(group)
        _copy_mems(self.tree.shared)

    def cpus(self, group: Path) -> CPUSet:
        """Return the CPUs that the kernel lets a group use."""
        return files.read_cpus(group / _EFFECTIVE)

    def set_shared(self, cpus: CPUSet) -> None:
        """Make *cpus* the shared pool by one write, and bring back its lost processes."""
        self._set(self.tree.shared, cpus)
        for pid in files.read_pids(self.tree.top):
            files.add_unless_gone(self.tree.shared, pid)

    def set_exclusive(self, ref: ContainerRef, cpus: CPUSet) -> None:
        """Give an exclusive container its CPUs, in a new group or in the one that it has."""
        group = self.tree.group(ref, exclusive=True)
        if not (self.tree.has(ref, exclusive=True) and files.read(group / _MEMS)):
            self._make(group)
        self._set(group, cpus)
        for pid in self.lost(ref):
            files.add_unless_gone(group, pid)

    def lost(self, ref: ContainerRef) -> list[int]:
        """Return the processes of an exclusive container that the kernel has moved to its pod's group.

        Where the pod has more containers, the marks in the environment of the processes tell whose they are.
        """
        group = self.tree.group(ref, exclusive=True)
        pids = files.read_pids(group.parent) if self.tree.has(ref, exclusive=True) else []
        if not pids or files.groups_below(group.parent) == [group]:
            return pids
        marked = ((pid, read_marks(self.tree.name, PROC.environment(pid))) for pid in pids)
        return [pid for pid, mark in marked if mark is not None and mark[0] == ref]

    def _make(self, group: Path) -> None:
        files.make_group(group.parent)
        self._widen(group.parent)
        files.make_group(group)
        _copy_mems(group)

    def _set(self, group: Path, cpus: CPUSet) -> None:
        if not cpus:
            raise NoCPUsError(str(group))
        if not cpus <= files.read_cpus(group.parent / CPUS):
            self._widen(group.parent)
        files.write_cpus(group / CPUS, cpus)

    def _widen(self, group: Path) -> None:
        """Give a group, and those above it up to NAME, all CPUs and NUMA nodes there are, from the top down.

        The kernel takes a CPU that goes offline out of every group of v1, and does not put it back later.
        """
        below = group.relative_to(self.tree.root).parts
        for depth in range(1, len(below) + 1):
            path = self.tree.root.joinpath(*below[:depth])
            for file in (_MEMS, CPUS):
                everything = files.read_cpus(path.parent / file)
                if files.read_cpus(path / file) != everything:
                    files.write_cpus(path / file, everything)


def _copy_mems(group: Path) -> None:
    """Give a group the NUMA nodes of the group above."""
    files.write_cpus(group / _MEMS, files.read_cpus(group.parent / _MEMS))
