"""Groups on cgroup v1: cpuset and cpu are hierarchies of their own, and a process is in one group of each.

    cpuset:/NAME/shared                    all shared processes, directly: the pool is one write
    cpu:/NAME/shared/POD/CONTAINER         one shared container: quota and weight
    cpuset:/NAME/exclusive/POD/CONTAINER   one exclusive container: its CPUs
    cpu:/NAME/exclusive                    all exclusive processes, directly: no quota

So each container has one group of its own, which says who belongs to it, and one it has in common with its kind.
NAME, exclusive and its pods have all CPUs and are only ever widened, from the top down; only groups without groups
below are shrunk. A group needs CPUs and NUMA nodes before it takes a process. When its last CPU goes offline, the
kernel moves its processes to the group above; as we put none there, they are known for lost ones and brought back.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.node import cgroupfiles as files
from pinfold.node.cgroupfiles import CgroupError
from pinfold.node.grouperrors import GroupError, KindUnavailableError, NoCPUsError
from pinfold.node.processgroups.cputime import SHARES, CPUTimeV1
from pinfold.node.processgroups.errors import NOT_PROMISED, GroupInUseError, NoGroupError, NoProcessError
from pinfold.node.processgroups.joiner import Joiner
from pinfold.node.processgroups.names import marks, read_marks, show
from pinfold.node.processgroups.origin import give_back_all, move_back, origin_of, restore_affinity
from pinfold.node.processgroups.subtree import Subtree
from pinfold.node.procfs import Procfs

if TYPE_CHECKING:
    from pinfold.core.cpuset import CPUSet
    from pinfold.core.pods import ContainerRef
    from pinfold.core.reconcile import Limit
    from pinfold.node.processgroups.origin import Origin

KIND: Final = "cgroup v1"
_CPUS: Final = "cpuset.cpus"
_MEMS: Final = "cpuset.mems"
_EFFECTIVE: Final = "cpuset.effective_cpus"
# Where there is no cpu controller, one that does nothing by itself tells whose processes are whose.
_BYSTANDERS: Final = ("cpuacct", "freezer", "perf_event")
_ROUNDS: Final = 1000


def discover(cgroup_root: Path, name: str) -> CgroupV1:
    """Return the groups in the hierarchies below *cgroup_root*; they can be made there."""
    mounted = [path for path in files.groups_below(cgroup_root) if (path / "tasks").is_file()]
    cpuset = next((path for path in mounted if (path / _CPUS).is_file()), None)
    if cpuset is None:
        raise KindUnavailableError(KIND, f"no cpuset controller is mounted below {cgroup_root}")
    others = [path for path in mounted if path != cpuset]
    cpu = [path for path in others if (path / SHARES).is_file()]
    owners = [*cpu, *(path for path in others if path.name in _BYSTANDERS)]
    if not owners:
        why = f"below {cgroup_root} there is no controller beside cpuset to keep containers apart by (cpu, freezer, …)"
        raise KindUnavailableError(KIND, why)
    cpusets, owned = Subtree(cpuset, name), Subtree(owners[0], name)
    try:
        cpusets.try_out()
        owned.try_out()
    except CgroupError as error:
        raise KindUnavailableError(KIND, str(error)) from error
    return CgroupV1(cpusets, owned)


class _Place(NamedTuple):
    """Where a container's processes are: a group of their own and, in the other hierarchy, that of their kind."""

    own: Path
    common: Path
    exclusive: bool


class CgroupV1:
    """Containers as groups of cgroup v1. Remembers nothing: the kernel's files are the only state."""

    kind = KIND

    def __init__(self, cpusets: Subtree, cpu: Subtree) -> None:
        self._cpusets = cpusets
        self._cpu = cpu
        self._procfs = Procfs(Path("/proc"))
        self._time = CPUTimeV1(cpu)

    @property
    def weaker(self) -> tuple[str, ...]:
        """What cannot be promised, in words."""
        return (*NOT_PROMISED, *self._time.weaker)

    def hold(self) -> None:
        """Keep other daemons from using these groups; raise if one does."""
        self._cpusets.hold()

    def prepare(self, shared: CPUSet) -> None:
        """Make the own subtree and set the shared pool."""
        self._cpusets.make_pools()
        self._cpu.make_pools()
        self._time.allow_realtime()
        for group in (self._cpusets.top, self._cpusets.exclusive):
            self._widen(group)
        files.write_cpus(self._cpusets.shared / _MEMS, files.read_cpus(self._cpusets.top / _MEMS))
        self.set_shared(shared)

    def set_shared(self, cpus: CPUSet) -> None:
        """Make *cpus* the shared pool, by one write."""
        self._set_cpus(self._cpusets.shared, cpus)
        for pid in files.read_pids(self._cpusets.top):
            files.add_unless_gone(self._cpusets.shared, pid)

    def make(self, ref: ContainerRef, cpus: CPUSet | None, limit: Limit) -> None:
        """Make the container's group, or make the one that is there as it should be, also if it changes its pool."""
        place = self._place(ref, exclusive=cpus is not None)
        files.make_group(place.own.parent)
        if cpus is not None:
            self._widen(place.own.parent)
            files.make_group(place.own)
            files.write_cpus(place.own / _MEMS, files.read_cpus(place.own.parent / _MEMS))
            self._set_exclusive(ref, place.own, cpus)
        else:
            files.make_group(place.own)
            self._time.set_limit(place.own, limit)
        self._leave(ref, place)

    def set_cpus(self, ref: ContainerRef, cpus: CPUSet) -> None:
        """Change the CPUs of an exclusive container."""
        group = self._cpusets.group(ref, exclusive=True)
        if not group.is_dir():
            raise NoGroupError(ref)
        self._set_exclusive(ref, group, cpus)

    def attach(self, ref: ContainerRef, pid: int) -> None:
        """Move a running process with all its threads into the container's group."""
        if pid < 1:
            raise NoProcessError(pid)
        place, before = self._find(ref), self.origin(pid)
        try:
            _attach(place, pid)
        except GroupError:
            with suppress(CgroupError):  # not in one hierarchy and out of the other
                self._move_back(pid, before)
            raise

    def origin(self, pid: int) -> Origin:
        """Return where a process is."""
        return origin_of(self._procfs, pid, self._cpusets.root.name, self._cpu.root.name)

    def give_back(self, ref: ContainerRef, origin: Origin) -> list[int]:
        """Move all processes of the container to where its own came from."""

        def give_back(pid: int) -> None:
            self._move_back(pid, origin, own_last=self._find(ref).exclusive)

        return give_back_all(lambda: self.members(ref), give_back, f"container {show(ref)}")

    def _move_back(self, pid: int, origin: Origin, *, own_last: bool = True) -> None:
        """Move a process out of both hierarchies; last out of the one that tells whose it is, and its children's."""
        ways = ((self._cpu.root, origin.group(1)), (self._cpusets.root, origin.group(0)))
        for root, group in ways if own_last else ways[::-1]:
            move_back(root, group, pid)
        restore_affinity(self._procfs, pid, origin)

    def joiner(self, ref: ContainerRef) -> Joiner:
        """Return what a forked child calls before exec."""
        return Joiner.into(self._find(ref)[:2])

    def environment(self, ref: ContainerRef) -> dict[str, str]:
        """Return the variables that a process of the container should have in its environment."""
        return marks(self._cpusets.name, ref, exclusive=self._find(ref).exclusive)

    def members(self, ref: ContainerRef) -> list[int]:
        """Return the processes of the container now."""
        place = self._find(ref)
        return sorted({*files.read_pids(place.own), *(self._lost(ref, place.own) if place.exclusive else ())})

    def cpus(self, ref: ContainerRef) -> CPUSet:
        """Return the CPUs that the kernel lets the container use."""
        place = self._find(ref)
        return files.read_cpus((place.own if place.exclusive else place.common) / _EFFECTIVE)

    def shared_cpus(self) -> CPUSet:
        """Return the CPUs that the kernel lets the shared pool use."""
        return files.read_cpus(self._cpusets.shared / _EFFECTIVE)

    def found(self) -> dict[ContainerRef, bool]:
        """Return the containers that have a group now; True: exclusive."""
        shared, exclusive = self._cpu.refs(exclusive=False), self._cpusets.refs(exclusive=True)
        return dict.fromkeys(shared, False) | dict.fromkeys(exclusive, True)

    def remove(self, ref: ContainerRef) -> None:
        """Remove the container's group, which must have no processes."""
        lost = self._lost(ref, self._cpusets.group(ref, exclusive=True))
        if lost:
            raise GroupInUseError(f"container {show(ref)}", lost)
        self._cpusets.remove(ref, exclusive=True)
        self._cpu.remove(ref, exclusive=False)
        self._time.weigh(self._cpu.group(ref, exclusive=False).parent)

    def remove_all(self) -> None:
        """Remove the own subtree, which must have no processes."""
        for tree in (self._cpusets, self._cpu):
            tree.check_empty()
        for tree in (self._cpusets, self._cpu):
            tree.remove_all()

    def _place(self, ref: ContainerRef, *, exclusive: bool) -> _Place:
        own, common = (self._cpusets, self._cpu.exclusive) if exclusive else (self._cpu, self._cpusets.shared)
        return _Place(own.group(ref, exclusive=exclusive), common, exclusive)

    def _find(self, ref: ContainerRef) -> _Place:
        for exclusive in (True, False):
            place = self._place(ref, exclusive=exclusive)
            if place.own.is_dir():
                return place
        raise NoGroupError(ref)

    def _leave(self, ref: ContainerRef, place: _Place) -> None:
        """Move the container out of the group it had in the other pool, if it had one."""
        old = self._place(ref, exclusive=not place.exclusive)
        if not old.own.is_dir():
            return
        while pids := files.read_pids(old.own):
            for pid in pids:
                files.add_unless_gone(place.own, pid)
                files.add_unless_gone(place.common, pid)
        _gather(place, set())
        (self._cpu if place.exclusive else self._cpusets).remove(ref, exclusive=not place.exclusive)

    def _set_cpus(self, group: Path, cpus: CPUSet) -> None:
        if not cpus:
            raise NoCPUsError(str(group))
        if not cpus <= files.read_cpus(group.parent / _CPUS):
            self._widen(group.parent)
        files.write_cpus(group / _CPUS, cpus)

    def _set_exclusive(self, ref: ContainerRef, group: Path, cpus: CPUSet) -> None:
        self._set_cpus(group, cpus)
        for pid in self._lost(ref, group):
            files.add_unless_gone(group, pid)

    def _lost(self, ref: ContainerRef, group: Path) -> list[int]:
        """Return the container's processes that the kernel has moved to its pod's group.

        Where the pod has more containers, the marks in their environment tell them apart.
        """
        pod = group.parent
        lost = files.read_pids(pod) if group.is_dir() else []
        if not lost or files.groups_below(pod) == [group]:
            return lost
        marked = ((pid, read_marks(self._cpusets.name, self._procfs.environment(pid))) for pid in lost)
        return [pid for pid, mark in marked if mark is not None and mark[0] == ref]

    def _widen(self, group: Path) -> None:
        """Give the group, and those above it up to our top, all CPUs and NUMA nodes there are, from the top down.

        A CPU that was offline for a while is missing in every group of v1 until somebody puts it back.
        """
        below = group.relative_to(self._cpusets.root).parts
        for depth in range(1, len(below) + 1):
            path = self._cpusets.root.joinpath(*below[:depth])
            for file in (_MEMS, _CPUS):
                everything = files.read_cpus(path.parent / file)
                if files.read_cpus(path / file) != everything:
                    files.write_cpus(path / file, everything)


def _attach(place: _Place, pid: int) -> None:
    before = set(files.read_pids(place.own))
    files.add_process(place.own, pid)
    files.add_process(place.common, pid)
    _gather(place, before)


def _gather(place: _Place, before: set[int]) -> None:
    """Bring into the common group what is in the own one: a child forked between the two moves is in only one."""
    for _ in range(_ROUNDS):
        strays = set(files.read_pids(place.own)) - before - set(files.read_pids(place.common))
        if not strays:
            return
        for pid in strays:
            files.add_unless_gone(place.common, pid)
    raise GroupError(f"{place.own}: forks faster than its processes can be moved into {place.common}")
