"""The driver that simulates cgroups in memory: for nodes that do not exist, without root and without a kernel's files.

It refuses what the kernel refuses, with the same errors. By default it has the rules of cgroup v2: the CPUs of a group
are cut to those of the groups above, a group that has none in common with them runs on all of theirs, and a group
without CPUs of its own follows the one above. With *nested* it has the rule of cgroup v1: a group must be within the
one above it. It does not simulate handing controllers down, CPUs that go offline, or what a quota does.

A simulated container runtime makes its groups here, with `make`, `put`, `set_own`, `set_quota`, `end` and `remove`:

>>> driver = Simulated(CPUSet.parse("0-7"))
>>> container = driver.make(driver.root / "kubepods/burstable/pod1/app")
>>> driver.put(1234, container)
>>> setting = driver.set_own(container.parent.parent, CPUS, CPUSet.parse("4-7"))
>>> str(driver.effective(container, CPUS)), driver.members(container)
('4-7', [1234])
"""

from __future__ import annotations

import errno
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.node.cgroupfiles import PROCS, CgroupError, explained
from pinfold.node.podgroups.paths import GroupPathError
from pinfold.node.podgroups.settings import CPUS, MEMS, GroupSetting, Quota, cpuset_property

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

_MAX: Final = "cpu.max"
_UNLIMITED: Final = Quota(None)
_ONE_NODE: Final = CPUSet.of(0)


@dataclass(slots=True)
class _Group:
    """What the kernel keeps for a group."""

    own: dict[str, CPUSet]
    quota: Quota = _UNLIMITED
    pids: set[int] = field(default_factory=set)
    below: set[Path] = field(default_factory=set)


class Simulated:
    """Groups below *root*, on a machine with these CPUs and NUMA nodes. Several threads can use it."""

    kind = "simulated"
    balance_flags = None

    def __init__(
        self, cpus: CPUSet, mems: CPUSet = _ONE_NODE, *, nested: bool = False, root: Path = Path("/simulated")
    ) -> None:
        self.nested = nested
        self.pooling = _Pool(self) if nested else None
        self.root = root
        self._groups = {root: _Group({CPUS: cpus, MEMS: mems})}
        self._lock = threading.RLock()

    @property
    def hierarchy(self) -> Self:
        """The groups."""
        return self

    def exists(self, group: Path) -> bool:
        """Whether there is such a group now."""
        return group in self._groups

    def below(self, group: Path) -> list[Path]:
        """Return the groups directly below, in order of their names; none if there is no such group."""
        with self._lock:
            return sorted(self._groups[group].below) if group in self._groups else []

    def has_below(self, group: Path) -> bool:
        """Return whether there are groups directly below."""
        return bool(self.below(group))

    def members(self, group: Path) -> list[int]:
        """Return the processes in the group itself, ascending."""
        with self._lock, explained(group / PROCS, "read"):
            return sorted(self._find(group).pids)

    def group_of(self, pid: int) -> Path | None:
        """Return the group that a process is in; None if the process has ended, or is in the top group."""
        with self._lock:
            return next((path for path, group in self._groups.items() if pid in group.pids and path != self.root), None)

    def own(self, group: Path, file: str) -> CPUSet:
        """Return the CPUs (or NUMA nodes) that were set for the group."""
        with explained(group / file, "read"):
            return self._find(group).own[file]

    def effective(self, group: Path, file: str) -> CPUSet:
        """Return the CPUs (or NUMA nodes) that processes in the group can use."""
        own = self.own(group, file)
        if self.nested or group == self.root:
            return own
        above = self.effective(group.parent, file)
        return own & above or above

    def set_own(
        self,
        group: Path,
        file: str,
        cpus: CPUSet,
        known: CPUSet | None = None,
    ) -> GroupSetting:
        """Set the group's own CPUs (or NUMA nodes), as pinfold, a kubelet or a runtime does."""
        with self._lock, explained(group / file, str(cpus), writing=True):
            own = self._find(group).own
            before = own[file] if known is None else known
            if before != cpus:
                self._check(group, file, cpus)
                own[file] = cpus
        return GroupSetting(group, file, str(before), str(cpus), () if self.nested else (cpuset_property(file, cpus),))

    def quota(self, group: Path) -> Quota:
        """Return the group's own limit of CPU time."""
        with explained(group / _MAX, "read"):
            return self._find(group).quota

    def set_quota(self, group: Path, quota: Quota) -> tuple[GroupSetting, ...]:
        """Set the group's own limit of CPU time, as pinfold, a kubelet or a runtime does."""
        with self._lock:
            if group not in self._groups:
                return ()
            found = self._groups[group]
            before, found.quota = found.quota, quota.after(found.quota)
        return (GroupSetting(group, _MAX, str(before), str(found.quota), quota.properties()),)

    def hand_down_to(self, group: Path) -> None:
        """Do nothing: every group here can have CPUs of its own."""

    def make(self, group: Path) -> Path:
        """Make the group, and those above it that are missing; return it.

        Under the rule of v1 a new group has the CPUs and NUMA nodes of the one above, as a kubelet and runc arrange it.
        """
        if not group.is_relative_to(self.root):
            raise GroupPathError(str(group), f"is not below {self.root}")
        with self._lock:
            if group not in self._groups:
                above = self._groups[self.make(group.parent)]
                above.below.add(group)
                self._groups[group] = _Group(dict(above.own) if self.nested else {CPUS: EMPTY, MEMS: EMPTY})
        return group

    def remove(self, group: Path) -> None:
        """Remove the group, which must have no processes and no groups below; one that is missing is fine."""
        with self._lock:
            if group not in self._groups:
                return
            if self._groups[group].pids or self._groups[group].below:
                raise CgroupError(group, "remove the group", "EBUSY", "it has processes or groups below it")
            del self._groups[group]
            self._groups[group.parent].below.discard(group)

    def put(self, pid: int, group: Path) -> None:
        """Put a process into the group, a new one or one from another group."""
        with self._lock, explained(group / PROCS, str(pid), writing=True):
            found = self._find(group)
            if not all(self.effective(group, file) for file in (CPUS, MEMS)):
                raise _refusal(errno.ENOSPC)
            self.end(pid)
            found.pids.add(pid)

    def end(self, pid: int) -> None:
        """End a process: it is in no group any more."""
        with self._lock:
            for group in self._groups.values():
                group.pids.discard(pid)

    def _find(self, group: Path) -> _Group:
        found = self._groups.get(group)
        if found is None:
            raise _refusal(errno.ENOENT)
        return found

    def _check(self, group: Path, file: str, cpus: CPUSet) -> None:
        """Raise what the kernel raises if it does not allow these CPUs, in the kernel's order."""
        if group == self.root:
            raise _refusal(errno.EACCES)
        every = self._groups[self.root].own[file]
        if max(cpus, default=0) > max(every):
            raise _refusal(errno.ERANGE)
        if self.nested:
            _check_nested(self._groups, every, group, file, cpus)
        if not cpus and _is_populated(self._groups, group):
            raise _refusal(errno.ENOSPC)


class _Pool:
    """Sets the pods of the shared pool under the rule of v1; see `driver.Pooling`."""

    def __init__(self, groups: Simulated) -> None:
        self._groups = groups

    def share(
        self,
        above: Path,
        cpus: CPUSet,
        move: Callable[[Path], None],
        *,
        pods: Collection[str] | None = None,
        settled: Collection[Path] | None = None,
    ) -> bool:
        """Set pods and their containers."""
        below = self._groups.below(above)
        chosen = below if pods is None else [pod for pod in below if pod.name in pods]
        for pod in chosen:
            wide = self._groups.own(pod, CPUS) | cpus
            self._groups.set_own(pod, CPUS, wide)
            for container in self._groups.below(pod):
                if self._groups.below(container):
                    move(container)
                else:
                    self._groups.set_own(container, CPUS, cpus)
            self._groups.set_own(pod, CPUS, cpus if settled is None or pod in settled else wide)
        return settled is None or set(chosen) <= set(settled)


def _check_nested(groups: Mapping[Path, _Group], every: CPUSet, group: Path, file: str, cpus: CPUSet) -> None:
    if not cpus <= every:
        raise _refusal(errno.EINVAL)
    if not all(groups[path].own[file] <= cpus for path in groups[group].below):
        raise _refusal(errno.EBUSY)
    if not cpus <= groups[group.parent].own[file]:
        raise _refusal(errno.EACCES)


def _is_populated(groups: Mapping[Path, _Group], group: Path) -> bool:
    found = groups[group]
    return bool(found.pids) or any(_is_populated(groups, path) for path in found.below)


def _refusal(number: int) -> OSError:
    return OSError(number, os.strerror(number))
