"""Groups on cgroup v2: one hierarchy, whose children are cut by their parents.

    NAME                          cpuset, cpu
    NAME/shared                   cpuset.cpus is the pool: one write, whatever is below
    NAME/shared/POD/CONTAINER     cpu only: quota and weight. Without a cpuset of their own they cannot leave the pool
    NAME/exclusive                unrestricted: a child disjoint from its parent would run on all of the parent's CPUs
    NAME/exclusive/POD/CONTAINER  cpuset only: its CPUs. Without a cpu group of their own they cannot be throttled

Processes are in the leaves alone: a group that hands controllers down takes none (the no-internal-processes rule).
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pinfold.node import cgroupfiles as files
from pinfold.node.cgroupfiles import CgroupError
from pinfold.node.grouperrors import KindUnavailableError, NoCPUsError
from pinfold.node.processgroups.cputime import CPUTimeV2
from pinfold.node.processgroups.errors import NOT_PROMISED, NoGroupError, NoProcessError
from pinfold.node.processgroups.joiner import Joiner
from pinfold.node.processgroups.names import marks
from pinfold.node.processgroups.origin import give_back_all, move_back, origin_of, restore_affinity
from pinfold.node.processgroups.subtree import Subtree
from pinfold.node.procfs import Procfs

if TYPE_CHECKING:
    from pinfold.core.cpuset import CPUSet
    from pinfold.core.pods import ContainerRef
    from pinfold.core.reconcile import Limit
    from pinfold.node.processgroups.origin import Origin

KIND: Final = "cgroup v2"
_CPUS: Final = "cpuset.cpus"
_EFFECTIVE: Final = "cpuset.cpus.effective"
_HANDED_DOWN: Final = "cgroup.subtree_control"
_AVAILABLE: Final = "cgroup.controllers"


def discover(cgroup_root: Path, name: str) -> CgroupV2:
    """Return the groups below *cgroup_root* (or its directory "unified"); they can be made there."""
    root = next((path for path in (cgroup_root, cgroup_root / "unified") if (path / _AVAILABLE).is_file()), None)
    if root is None:
        raise KindUnavailableError(KIND, f"it is not mounted at {cgroup_root}")
    tree = Subtree(root, name)
    try:
        _open(root)
        if "cpuset" not in _words(root / _HANDED_DOWN):
            raise KindUnavailableError(KIND, f"{root} has no cpuset controller; is it in use by cgroup v1?")
        tree.try_out()
    except CgroupError as error:
        raise KindUnavailableError(KIND, str(error)) from error
    return CgroupV2(tree)


class CgroupV2:
    """Containers as groups of cgroup v2. Remembers nothing: the kernel's files are the only state."""

    kind = KIND

    def __init__(self, tree: Subtree) -> None:
        self._tree = tree
        self._procfs = Procfs(Path("/proc"))
        self._time = CPUTimeV2(tree, is_there="cpu" in _words(tree.root / _HANDED_DOWN))

    @property
    def weaker(self) -> tuple[str, ...]:
        """What cannot be promised, in words."""
        return (*NOT_PROMISED, *self._time.weaker)

    def hold(self) -> None:
        """Keep other daemons from using these groups; raise if one does."""
        self._tree.hold()

    def prepare(self, shared: CPUSet) -> None:
        """Make the own subtree and set the shared pool."""
        tree = self._tree
        _open(tree.root)
        files.make_group(tree.top)
        _hand_down(tree.top, "cpuset", "cpu")
        tree.make_pools()
        _hand_down(tree.shared, "cpu")
        _hand_down(tree.exclusive, "cpuset")
        self.set_shared(shared)

    def set_shared(self, cpus: CPUSet) -> None:
        """Make *cpus* the shared pool, by one write."""
        _set_cpus(self._tree.shared, cpus)

    def make(self, ref: ContainerRef, cpus: CPUSet | None, limit: Limit) -> None:
        """Make the container's group, or make the one that is there as it should be, also if it changes its pool."""
        exclusive = cpus is not None
        group = self._tree.group(ref, exclusive=exclusive)
        files.make_group(group.parent)
        _hand_down(group.parent, "cpuset" if exclusive else "cpu")
        files.make_group(group)
        if cpus is not None:
            _set_cpus(group, cpus)
        else:
            self._time.set_limit(group, limit)
        self._leave(ref, group, exclusive=not exclusive)

    def set_cpus(self, ref: ContainerRef, cpus: CPUSet) -> None:
        """Change the CPUs of an exclusive container."""
        group = self._tree.group(ref, exclusive=True)
        if not group.is_dir():
            raise NoGroupError(ref)
        _set_cpus(group, cpus)

    def attach(self, ref: ContainerRef, pid: int) -> None:
        """Move a running process with all its threads into the container's group."""
        if pid < 1:
            raise NoProcessError(pid)
        files.add_process(self._group(ref), pid)

    def origin(self, pid: int) -> Origin:
        """Return where a process is."""
        return origin_of(self._procfs, pid, "")

    def give_back(self, ref: ContainerRef, origin: Origin) -> list[int]:
        """Move all processes of the container to where its own came from."""
        group = self._group(ref)

        def give_back(pid: int) -> None:
            move_back(self._tree.root, origin.group(0), pid)
            restore_affinity(self._procfs, pid, origin)

        return give_back_all(lambda: files.read_pids(group), give_back, str(group))

    def joiner(self, ref: ContainerRef) -> Joiner:
        """Return what a forked child calls before exec."""
        return Joiner.into([self._group(ref)])

    def environment(self, ref: ContainerRef) -> dict[str, str]:
        """Return the variables that a process of the container should have in its environment."""
        return marks(self._tree.name, ref, exclusive=self._is_exclusive(self._group(ref)))

    def members(self, ref: ContainerRef) -> list[int]:
        """Return the processes of the container now."""
        return files.read_pids(self._group(ref))

    def cpus(self, ref: ContainerRef) -> CPUSet:
        """Return the CPUs that the kernel lets the container use."""
        group = self._group(ref)
        return files.read_cpus((group if self._is_exclusive(group) else self._tree.shared) / _EFFECTIVE)

    def shared_cpus(self) -> CPUSet:
        """Return the CPUs that the kernel lets the shared pool use."""
        return files.read_cpus(self._tree.shared / _EFFECTIVE)

    def found(self) -> dict[ContainerRef, bool]:
        """Return the containers that have a group now; True: exclusive."""
        tree = self._tree
        return dict.fromkeys(tree.refs(exclusive=False), False) | dict.fromkeys(tree.refs(exclusive=True), True)

    def remove(self, ref: ContainerRef) -> None:
        """Remove the container's group, which must have no processes."""
        for exclusive in (True, False):
            self._tree.remove(ref, exclusive=exclusive)
        self._time.weigh(self._tree.group(ref, exclusive=False).parent)

    def remove_all(self) -> None:
        """Remove the own subtree, which must have no processes."""
        self._tree.check_empty()
        self._tree.remove_all()

    def _group(self, ref: ContainerRef) -> Path:
        for exclusive in (True, False):
            group = self._tree.group(ref, exclusive=exclusive)
            if group.is_dir():
                return group
        raise NoGroupError(ref)

    def _is_exclusive(self, group: Path) -> bool:
        return group.is_relative_to(self._tree.exclusive)

    def _leave(self, ref: ContainerRef, group: Path, *, exclusive: bool) -> None:
        """Move the container out of the group it had in the other pool, if it had one."""
        old = self._tree.group(ref, exclusive=exclusive)
        if not old.is_dir():
            return
        while pids := files.read_pids(old):
            for pid in pids:
                files.add_unless_gone(group, pid)
        self._tree.remove(ref, exclusive=exclusive)


def _open(root: Path) -> None:
    """Hand cpuset, and cpu if that can be had, down to the groups below *root*, from the top of the hierarchy."""
    for group in (*reversed(root.parents), root):
        if (group / _AVAILABLE).is_file():
            _hand_down(group, "cpuset")
            # A real-time process outside the top group forbids it, on kernels that group those too.
            with suppress(CgroupError):
                _hand_down(group, "cpu")


def _hand_down(group: Path, *controllers: str) -> None:
    """Give the groups below those of the *controllers* that this group has."""
    missing = set(controllers) & _words(group / _AVAILABLE) - _words(group / _HANDED_DOWN)
    if missing:
        files.write_once(group / _HANDED_DOWN, " ".join(f"+{controller}" for controller in sorted(missing)))


def _words(path: Path) -> set[str]:
    return set(files.read(path).split())


def _set_cpus(group: Path, cpus: CPUSet) -> None:
    if not cpus:
        raise NoCPUsError(str(group))
    files.write_cpus(group / _CPUS, cpus)
    given = files.read_cpus(group / _EFFECTIVE)
    if not given <= cpus:
        meaning = f"none of these is online and allowed by the groups above; the kernel lets it run on {given}"
        raise CgroupError(group / _CPUS, str(cpus), "", meaning)
