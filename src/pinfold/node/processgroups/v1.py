"""Groups on cgroup v1: cpuset and cpu are hierarchies of their own, and a process is in one group of each.

    cpuset:/NAME/exclusive/POD/CONTAINER   one exclusive container: its CPUs
    cpu:/NAME/exclusive                    all exclusive processes, directly: no quota
    cpuset:/NAME/shared                    all shared processes, directly: the pool is one write
    cpu:/NAME/shared/POD/CONTAINER         one shared container: quota and weight

So a container has its own group in one hierarchy, which says who belongs to it, and in the other hierarchy a common
group with all containers of its pool.
"""

from __future__ import annotations

from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Final

from pinfold.node import cgroupfiles as files
from pinfold.node.cgroupfiles import CgroupError
from pinfold.node.grouperrors import GroupError, KindUnavailableError
from pinfold.node.groupwatch import Places
from pinfold.node.processgroups.cpusets import CPUS, Cpusets
from pinfold.node.processgroups.cputime import SHARES, CPUTimeV1
from pinfold.node.processgroups.errors import NOT_PROMISED, GroupInUseError, NoGroupError, NoProcessError
from pinfold.node.processgroups.joiner import Joiner
from pinfold.node.processgroups.names import marks, show
from pinfold.node.processgroups.origin import give_back_all, move_back, origin_of, restore_affinity
from pinfold.node.processgroups.subtree import Subtree
from pinfold.node.procfs import PROC

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import ContainerRef
    from pinfold.core.reconcile import Limit
    from pinfold.node.processgroups.origin import Origin

KIND: Final = "cgroup v1"
# Where there is no cpu controller, one of these keeps the containers apart; it does nothing else by itself.
_STAND_INS: Final = ("cpuacct", "freezer", "perf_event")
_ROUNDS: Final = 1000


def discover(cgroup_root: Path, name: str) -> ProcessGroupsV1:
    """Return the groups in the hierarchies below *cgroup_root*, or raise if they cannot be made there."""
    mounted = [path for path in files.groups_below(cgroup_root) if (path / "tasks").is_file()]
    cpuset = next((path for path in mounted if (path / CPUS).is_file()), None)
    if cpuset is None:
        raise KindUnavailableError(KIND, f"no cpuset controller is mounted below {cgroup_root}")
    others = [path for path in mounted if path != cpuset]
    cpu = [path for path in others if (path / SHARES).is_file()]
    second = [*cpu, *(path for path in others if path.name in _STAND_INS)]
    if not second:
        needed = ", ".join(("cpu", *_STAND_INS))
        raise KindUnavailableError(KIND, f"below {cgroup_root} one of these must be mounted beside cpuset: {needed}")
    trees = Subtree(cpuset, name), Subtree(second[0], name)
    try:
        for tree in trees:
            tree.try_out()
    except CgroupError as error:
        raise KindUnavailableError(KIND, str(error)) from error
    return ProcessGroupsV1(*trees)


class ProcessGroupsV1:
    """Containers as groups of cgroup v1. Remembers nothing: the kernel's files are the only state."""

    kind = KIND
    has_limits = True
    glance = None

    def __init__(self, cpuset: Subtree, cpu: Subtree) -> None:
        self._cpusets = Cpusets(cpuset)
        self._cpu = cpu
        self.limits = CPUTimeV1(cpu)

    @property
    def name(self) -> str:
        """The name of the subtree."""
        return self._cpu.name

    @property
    def weaker(self) -> tuple[str, ...]:
        """What cannot be promised, in words."""
        return (*self.limits.weaker, *NOT_PROMISED)

    def places(self) -> Places:
        """Return both pools in both hierarchies, with the cpusets of owners and the quotas of all others."""
        tree, cpu = self._cpusets.tree, self._cpu
        return Places([tree.top, tree.shared, cpu.top, cpu.exclusive], [tree.exclusive, cpu.shared])

    def hold(self) -> None:
        """Keep other daemons from using these groups; raise if one does."""
        self._cpusets.tree.hold()

    def prepare(self, shared: CPUSet) -> None:
        """Make the subtree in both hierarchies, and set the shared pool."""
        self._cpusets.prepare()
        self._cpu.make_pools()
        self.limits.allow_realtime()
        self.set_shared(shared)

    def set_shared(self, cpus: CPUSet) -> None:
        """Make *cpus* the shared pool, by one write."""
        self._cpusets.set_shared(cpus)

    def shared_cpus(self) -> CPUSet:
        """Return the CPUs that the kernel lets the shared pool use."""
        return self._cpusets.cpus(self._cpusets.tree.shared)

    def one_look(self) -> AbstractContextManager[None]:
        """Return a block that does nothing: the kernel lists the processes of each group."""
        return nullcontext()

    def make_exclusive(self, ref: ContainerRef, cpus: CPUSet) -> None:
        """Give a container CPUs of its own, in a new group or in the one that it has."""
        self._cpusets.set_exclusive(ref, cpus)
        if self._cpu.has(ref, exclusive=False):
            self._group(ref, exclusive=True).take_from(self._group(ref, exclusive=False))
            self._remove_shared(ref)

    def make_shared(self, ref: ContainerRef, limit: Limit) -> None:
        """Put a container into the shared pool, in a new group or in the one that it has."""
        is_first, is_new = self._cpu.make_shared(ref)
        if is_new:
            self.limits.begin(ref, limit, is_first=is_first)
        else:
            self.limits.keep_limit(ref, limit)
        if self._cpusets.tree.has(ref, exclusive=True):
            self._group(ref, exclusive=False).take_from(self._group(ref, exclusive=True))
            self._cpusets.tree.remove(ref, exclusive=True)

    def expel(self, pid: int) -> None:
        """Move a process to the top of those hierarchies in which it is in our subtree."""
        for tree in (self._cpusets.tree, self._cpu):
            tree.expel(pid)

    def group(self, ref: ContainerRef) -> ProcessGroupV1:
        """Return the container's group, or raise if it has none."""
        for tree, exclusive in ((self._cpusets.tree, True), (self._cpu, False)):
            if tree.has(ref, exclusive=exclusive):
                return self._group(ref, exclusive=exclusive)
        raise NoGroupError(ref)

    def found(self) -> dict[ContainerRef, bool]:
        """Return the containers that have a group; True if it is exclusive."""
        shared, exclusive = self._cpu.refs(exclusive=False), self._cpusets.tree.refs(exclusive=True)
        return dict.fromkeys(shared, False) | dict.fromkeys(exclusive, True)

    def origin(self, pid: int) -> Origin:
        """Return the groups of a process in both hierarchies, and the CPUs of its threads."""
        return _origin(self._cpusets.tree, self._cpu, pid)

    def remove(self, ref: ContainerRef) -> None:
        """Remove the container's group, which must have no processes."""
        lost = self._cpusets.lost(ref)
        if lost:
            raise GroupInUseError(f"container {show(ref)}", lost)
        self._cpusets.tree.remove(ref, exclusive=True)
        self._remove_shared(ref)

    def remove_empty(self) -> list[int]:
        """Remove every group without processes, in both hierarchies; return the processes that are left."""
        return sorted({pid for tree in (self._cpusets.tree, self._cpu) for pid in tree.remove_empty()})

    def _group(self, ref: ContainerRef, *, exclusive: bool) -> ProcessGroupV1:
        return ProcessGroupV1(self._cpusets, self._cpu, ref, exclusive=exclusive)

    def _remove_shared(self, ref: ContainerRef) -> None:
        self._cpu.remove(ref, exclusive=False)
        self.limits.weigh(self._cpu.group(ref, exclusive=False).parent)


class ProcessGroupV1:
    """The group of one container in one hierarchy, and the common group of its pool in the other."""

    def __init__(self, cpusets: Cpusets, cpu: Subtree, ref: ContainerRef, *, exclusive: bool) -> None:
        self._cpusets = cpusets
        self._cpu = cpu
        self._ref = ref
        self._exclusive = exclusive
        self._own = (cpusets.tree if exclusive else cpu).group(ref, exclusive=exclusive)
        """Where only this container's processes are."""
        self._common = cpu.exclusive if exclusive else cpusets.tree.shared

    def members(self) -> list[int]:
        """Return the processes of the container now, also those that the kernel has moved to its pod's group."""
        lost = self._cpusets.lost(self._ref) if self._exclusive else []
        return sorted({*files.read_pids(self._own), *lost})

    def has(self, pid: int) -> bool:
        """Return whether a process is in the container."""
        return pid in self.members()

    def cpus(self) -> CPUSet:
        """Return the CPUs that the kernel lets the container use."""
        return self._cpusets.cpus(self._own if self._exclusive else self._common)

    def places(self) -> list[Path]:
        """Return the groups in both hierarchies."""
        return [self._own, self._common]

    def environment(self) -> dict[str, str]:
        """Return the variables that mark a process of the container."""
        return marks(self._cpusets.tree.name, self._ref, exclusive=self._exclusive)

    def joiner(self) -> Joiner:
        """Return the Joiner of both groups; the one with CPU time comes last: there a process may wait for it."""
        return Joiner.into([self._own, self._common] if self._exclusive else [self._common, self._own])

    def attach(self, pid: int) -> None:
        """Move a running process with all its threads into both groups, or into none."""
        if pid < 1:
            raise NoProcessError(pid)
        origin, before = _origin(self._cpusets.tree, self._cpu, pid), set(files.read_pids(self._own))
        try:
            files.add_process(self._own, pid)
            files.add_process(self._common, pid)
            self._gather(before)
        except GroupError:
            with suppress(CgroupError):
                self._move_back(pid, origin)
            raise

    def give_back(self, origin: Origin) -> list[int]:
        """Move all processes of the container to the groups that the attached one came from, and return them."""
        whose = f"container {show(self._ref)}"
        return give_back_all(self.members, lambda pid: self._move_back(pid, origin), whose)

    def take_from(self, old: ProcessGroupV1) -> None:
        """Move the container's processes here, out of the group that it had in the other pool."""
        while pids := old.members():
            for pid in pids:
                files.add_unless_gone(self._own, pid)
                files.add_unless_gone(self._common, pid)
        self._gather(set())

    def _gather(self, before: set[int]) -> None:
        """Move into the common group what is only in the own one: children that were forked between the two moves."""
        for _ in range(_ROUNDS):
            strays = set(files.read_pids(self._own)) - before - set(files.read_pids(self._common))
            if not strays:
                return
            for pid in strays:
                files.add_unless_gone(self._common, pid)
        raise GroupError(f"{self._own}: its processes fork faster than they can be moved into {self._common}")

    def _move_back(self, pid: int, origin: Origin) -> None:
        """Move a process out of both groups; out of the own one last, as that tells whose its new children are."""
        ways = [(self._cpu.root, origin.group(1)), (self._cpusets.tree.root, origin.group(0))]
        for root, group in ways if self._exclusive else reversed(ways):
            move_back(root, group, pid)
        restore_affinity(PROC, pid, origin)


def _origin(cpuset: Subtree, cpu: Subtree, pid: int) -> Origin:
    return origin_of(PROC, pid, cpuset.root.name, cpu.root.name)
