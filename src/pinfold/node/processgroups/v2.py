"""Groups on cgroup v2: one hierarchy, in which a group has no more CPUs than those above it.

    NAME                          has the controllers cpuset and cpu
    NAME/shared                   cpuset.cpus is the pool: one write moves everything below
    NAME/shared/POD/CONTAINER     cpu only: quota and weight. Without a cpuset of their own they cannot leave the pool
    NAME/exclusive                all CPUs: a group that has none in common with the one above would run on all of its
    NAME/exclusive/POD/CONTAINER  cpuset only: its CPUs. Without a cpu group of their own they cannot be throttled

Processes are only in the groups of containers: a group that hands controllers down takes none.
"""

from __future__ import annotations

from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Final

from pinfold.node import cgroupfiles as files
from pinfold.node.cgroupfiles import CgroupError
from pinfold.node.grouperrors import KindUnavailableError, NoCPUsError
from pinfold.node.groupwatch import Places
from pinfold.node.processgroups.cputime import CPUTimeV2
from pinfold.node.processgroups.errors import NOT_PROMISED, NoGroupError, NoProcessError
from pinfold.node.processgroups.joiner import Joiner
from pinfold.node.processgroups.names import marks
from pinfold.node.processgroups.origin import give_back_all, move_back, origin_of, restore_affinity
from pinfold.node.processgroups.partitions import Partitions
from pinfold.node.processgroups.subtree import Subtree
from pinfold.node.procfs import PROC
from pinfold.node.unified import AVAILABLE, KIND, no_cpuset

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import ContainerRef
    from pinfold.core.reconcile import Limit
    from pinfold.node.processgroups.origin import Origin

_CPUSET: Final = "cpuset"
_CPU: Final = "cpu"
_CPUS: Final = "cpuset.cpus"
_EFFECTIVE: Final = "cpuset.cpus.effective"
_HANDED_DOWN: Final = "cgroup.subtree_control"


def discover(root: Path, name: str) -> ProcessGroupsV2:
    """Return the groups below *root*, a group of cgroup v2; raise if they cannot be made there."""
    tree = Subtree(root, name)
    try:
        _open(root)
        if _CPUSET not in _words(root / _HANDED_DOWN):
            raise no_cpuset(root)
        tree.try_out()
    except CgroupError as error:
        raise KindUnavailableError(KIND, str(error)) from error
    return ProcessGroupsV2(tree)


class ProcessGroupsV2:
    """Containers as groups of cgroup v2. Remembers nothing: the kernel's files are the only state."""

    kind = KIND
    has_limits = True
    glance = None

    def __init__(self, tree: Subtree) -> None:
        self._tree = tree
        self.partitions = Partitions(tree)
        self.limits = _Limits(tree, self.partitions, is_there=_CPU in _words(tree.root / _HANDED_DOWN))

    @property
    def name(self) -> str:
        """The name of the subtree."""
        return self._tree.name

    @property
    def weaker(self) -> tuple[str, ...]:
        """What cannot be promised, in words."""
        return (*self.partitions.weaker, *self.limits.weaker, *NOT_PROMISED)

    def places(self) -> Places:
        """Return both pools, with all groups in them."""
        return Places([self._tree.top], [self._tree.exclusive, self._tree.shared])

    def hold(self) -> None:
        """Keep other daemons from using these groups; raise if one does."""
        self._tree.hold()

    def prepare(self, shared: CPUSet) -> None:
        """Make the subtree, and set the shared pool."""
        tree = self._tree
        _open(tree.root)
        files.make_group(tree.top)
        _hand_down(tree.top, _CPUSET, _CPU)
        tree.make_pools()
        _hand_down(tree.shared, _CPU)
        _hand_down(tree.exclusive, _CPUSET)
        self.set_shared(shared)
        self.partitions.settle()

    def set_shared(self, cpus: CPUSet) -> None:
        """Make *cpus* the shared pool, by one write."""
        _set_cpus(self._tree.shared, cpus)

    def shared_cpus(self) -> CPUSet:
        """Return the CPUs that the kernel lets the shared pool use."""
        return files.read_cpus(self._tree.shared / _EFFECTIVE)

    def one_look(self) -> AbstractContextManager[None]:
        """Return a block that does nothing: the kernel lists the processes of each group."""
        return nullcontext()

    def make_exclusive(self, ref: ContainerRef, cpus: CPUSet) -> None:
        """Give a container CPUs of its own, in a new group or in the one that it has."""
        group = self._tree.group(ref, exclusive=True)
        if not self._tree.has(ref, exclusive=True):
            _make(group, _CPUSET)
        self.partitions.loosen(group, cpus)
        _set_cpus(group, cpus)
        self.partitions.tighten(group, cpus)
        if self._tree.has(ref, exclusive=False):
            _move_all(self._tree.group(ref, exclusive=False), group)
            self._remove_shared(ref)

    def make_shared(self, ref: ContainerRef, limit: Limit) -> None:
        """Put a container into the shared pool, in a new group or in the one that it has."""
        group = self._tree.group(ref, exclusive=False)
        is_first, is_new = _make(group, _CPU)
        if is_new:
            self.limits.begin(ref, limit, is_first=is_first)
        else:
            self.limits.keep_limit(ref, limit)
        if self._tree.has(ref, exclusive=True):
            _move_all(self._tree.group(ref, exclusive=True), group)
            self._tree.remove(ref, exclusive=True)
            self.partitions.trim()

    def expel(self, pid: int) -> None:
        """Move a process to the top of the hierarchy, if it is in our subtree."""
        self._tree.expel(pid)

    def group(self, ref: ContainerRef) -> ProcessGroupV2:
        """Return the container's group, or raise if it has none."""
        for exclusive in (True, False):
            if self._tree.has(ref, exclusive=exclusive):
                return ProcessGroupV2(self._tree, ref, exclusive=exclusive)
        raise NoGroupError(ref)

    def found(self) -> dict[ContainerRef, bool]:
        """Return the containers that have a group; True if it is exclusive."""
        tree = self._tree
        return dict.fromkeys(tree.refs(exclusive=False), False) | dict.fromkeys(tree.refs(exclusive=True), True)

    def origin(self, pid: int) -> Origin:
        """Return the group of a process, and the CPUs of its threads."""
        return origin_of(PROC, pid, "")

    def remove(self, ref: ContainerRef) -> None:
        """Remove the container's group, which must have no processes."""
        self._tree.remove(ref, exclusive=True)
        self.partitions.trim()
        self._remove_shared(ref)

    def remove_empty(self) -> list[int]:
        """Remove every group without processes; return the processes that are left."""
        return self._tree.remove_empty()

    def _remove_shared(self, ref: ContainerRef) -> None:
        self._tree.remove(ref, exclusive=False)
        self.limits.weigh(self._tree.group(ref, exclusive=False).parent)


class _Limits(CPUTimeV2):
    """Quotas and weights, and the partitions of owners: another program can undo both."""

    def __init__(self, tree: Subtree, partitions: Partitions, *, is_there: bool) -> None:
        super().__init__(tree, is_there=is_there)
        self._partitions = partitions

    def wrong_pools(self) -> str:
        """Return which quota limits a pool, or which partition is lost; "" if none."""
        return super().wrong_pools() or self._partitions.lost()

    def free_pools(self) -> None:
        """Lift the quotas, and make partitions again."""
        super().free_pools()
        self._partitions.restore()


class ProcessGroupV2:
    """The group of one container."""

    def __init__(self, tree: Subtree, ref: ContainerRef, *, exclusive: bool) -> None:
        self._tree = tree
        self._ref = ref
        self._exclusive = exclusive
        self._group = tree.group(ref, exclusive=exclusive)

    def members(self) -> list[int]:
        """Return the processes of the container now."""
        return files.read_pids(self._group)

    def has(self, pid: int) -> bool:
        """Return whether a process is in the container."""
        return pid in self.members()

    def cpus(self) -> CPUSet:
        """Return the CPUs that the kernel lets the container use."""
        return files.read_cpus((self._group if self._exclusive else self._tree.shared) / _EFFECTIVE)

    def places(self) -> list[Path]:
        """Return the group."""
        return [self._group]

    def environment(self) -> dict[str, str]:
        """Return the variables that mark a process of the container."""
        return marks(self._tree.name, self._ref, exclusive=self._exclusive)

    def joiner(self) -> Joiner:
        """Return the Joiner of the group."""
        return Joiner.into([self._group])

    def attach(self, pid: int) -> None:
        """Move a running process with all its threads into the group."""
        if pid < 1:
            raise NoProcessError(pid)
        files.add_process(self._group, pid)

    def give_back(self, origin: Origin) -> list[int]:
        """Move all processes of the container to the group that the attached one came from, and return them."""

        def give_back(pid: int) -> None:
            move_back(self._tree.root, origin.group(0), pid)
            restore_affinity(PROC, pid, origin)

        return give_back_all(self.members, give_back, str(self._group))


def _open(root: Path) -> None:
    """Hand cpuset, and where possible cpu, down to the groups below *root*, from the top of the hierarchy."""
    for group in (*reversed(root.parents), root):
        if (group / AVAILABLE).is_file():
            _hand_down(group, _CPUSET)
            # Some kernels refuse it while a real-time process is outside the top group.
            with suppress(CgroupError):
                _hand_down(group, _CPU)


def _hand_down(group: Path, *controllers: str) -> None:
    """Let the groups below have those of the *controllers* that this group has."""
    missing = set(controllers) & _words(group / AVAILABLE) - _words(group / _HANDED_DOWN)
    if missing:
        files.write_once(group / _HANDED_DOWN, " ".join(f"+{controller}" for controller in sorted(missing)))


def _words(path: Path) -> set[str]:
    return set(files.read(path).split())


def _make(group: Path, controller: str) -> tuple[bool, bool]:
    """Make a container's group with this controller, and its pod's; return whether the pod's, and its own, are new."""
    pod = group.parent
    is_first = files.make_group(pod)
    _hand_down(pod, controller)
    return is_first, files.make_group(group)


def _move_all(old: Path, new: Path) -> None:
    """Move the processes of a container out of the group that it had in the other pool."""
    while pids := files.read_pids(old):
        for pid in pids:
            files.add_unless_gone(new, pid)


def _set_cpus(group: Path, cpus: CPUSet) -> None:
    if not cpus:
        raise NoCPUsError(str(group))
    files.write_cpus(group / _CPUS, cpus)
    given = files.read_cpus(group / _EFFECTIVE)
    if not given <= cpus:
        meaning = f"none of these is online and allowed by the groups above; the kernel lets it run on {given}"
        raise CgroupError(group / _CPUS, str(cpus), "", meaning)
