"""PodTree: the groups of Kubernetes pods in one cgroup hierarchy: where they are, which there are, who is in them.

Asks the kernel and changes nothing. A group is named by its directory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.node import cgroupfiles as files
from pinfold.node.cgroupfiles import CgroupError
from pinfold.node.grouperrors import GroupError, NoCPUsError
from pinfold.node.podgroups import paths
from pinfold.node.podgroups.paths import NotInAPodError
from pinfold.node.procfs import Procfs

if TYPE_CHECKING:
    from pathlib import Path

    from pinfold.core.cpuset import CPUSet

# A kubelet's cgroup root is rarely more than two levels down; containers of others, which could hold anything, are.
_SEARCHED_LEVELS: Final = 4
_NOT_SEARCHED: Final = (".scope", ".service")


class AmbiguousKubepodsError(GroupError):
    """More than one group that could be the kubelet's."""

    def __init__(self, found: list[Path]) -> None:
        super().__init__(f"more than one kubelet: {', '.join(map(str, found))}; say which")
        self.found = tuple(found)


class PooledError(GroupError):
    """An exclusive container in a group that can only have CPUs of the shared pool."""

    def __init__(self, group: Path) -> None:
        super().__init__(f"{group}: is Burstable or BestEffort, whose CPUs are the shared pool's; Guaranteed is needed")
        self.group = group


class PodTree:
    """The groups below *root*, the hierarchy of the cpuset controller; *kubepods* is that of all pods, if known."""

    def __init__(self, root: Path, *, unified: bool, proc: Path, kubepods: str | None = None) -> None:
        self.root = root
        self._unified = unified
        self._proc = proc
        self._procfs = Procfs(proc)
        self._given = None if kubepods is None else self._path(paths.parse_cgroup_parent(kubepods))
        self._found: Path | None = None

    def container(self, cgroups_path: str) -> Path:
        """Return the group of a container, by the cgroupsPath that its runtime has for it; it need not exist."""
        return self._container(paths.parse_cgroups_path(cgroups_path))

    def pod(self, cgroup_parent: str) -> Path:
        """Return the group of a pod, by the cgroup parent that its sandbox was made with; it need not exist."""
        parts = paths.parse_cgroup_parent(cgroup_parent)
        if paths.pod_depth(parts) != len(parts):
            raise NotInAPodError(str(self._path(parts)), "pod")
        return self._path(parts)

    def of_process(self, pid: int) -> Path | None:
        """Return the group of the container that the process is in; None if it has ended, or is in no container.

        A group that the container has made for itself, or its runtime in it, counts as the container's.
        """
        try:
            text = files.read(self._proc / str(pid) / "cgroup")
        except CgroupError as error:
            if error.name in {"ENOENT", "ESRCH"}:
                return None
            raise
        parts = paths.parse_membership(text, unified=self._unified)
        depth = None if parts is None else paths.pod_depth(parts)
        return None if parts is None or depth is None or len(parts) == depth else self._container(parts)

    def kubepods(self) -> Path | None:
        """Return the group of all pods: the given one, else the nearest to the top; None while there is none."""
        if self._given is not None:
            return self._given if self._given.is_dir() else None
        if self._found is None or not self._found.is_dir():
            self._found = self._search()
        return self._found

    def pooled(self) -> list[Path]:
        """Return the groups of all Burstable and of all BestEffort pods, those that exist."""
        top = self.kubepods()
        groups = [] if top is None else [top / paths.qos_name(top.name, qos) for qos in paths.POOLED]
        return [group for group in groups if group.is_dir()]

    def guaranteed(self) -> list[Path]:
        """Return the groups of all Guaranteed pods."""
        top = self.kubepods()
        return [] if top is None else [group for group in files.groups_below(top) if paths.is_pod(top.name, group.name)]

    def pods_and_containers(self, above: Path) -> list[Path]:
        """Return the pods below the group of their class, each before its containers; of a pod, its containers."""
        groups = files.groups_below(above)
        if self._depth(above) is not None:
            return groups
        pods = [group for group in groups if paths.is_pod(above.name, group.name)]
        return [group for pod in pods for group in (pod, *files.groups_below(pod))]

    def containers(self, pod: Path) -> list[Path]:
        """Return the groups of a pod's containers, that of its sandbox included."""
        return files.groups_below(self.checked_pod(pod))

    def pod_of(self, container: Path) -> Path:
        """Return the pod that a container's group is in."""
        return self.checked_container(container).parent

    def checked_pod(self, group: Path) -> Path:
        """Return the group, if it is a pod's."""
        if self._depth(group) != len(self.parts(group)):
            raise NotInAPodError(str(group), "pod")
        return group

    def checked_container(self, group: Path) -> Path:
        """Return the group, if it is a container's."""
        if self._depth(group) != len(self.parts(group)) - 1:
            raise NotInAPodError(str(group), "pod's container")
        return group

    def checked(self, group: Path) -> Path:
        """Return the group, if it is a pod's or a container's."""
        depth, own = self._depth(group), len(self.parts(group))
        return self.checked_pod(group) if depth == own else self.checked_container(group)

    def check_exclusive(self, group: Path, cpus: CPUSet) -> None:
        """Raise if the pod or container cannot have these CPUs for itself."""
        if not cpus:
            raise NoCPUsError(str(group))
        if paths.is_pooled(self.parts(self.checked(group))):
            raise PooledError(group)
        if not group.is_dir():
            raise CgroupError(group, f"CPUs {cpus}", "ENOENT", "there is no such group; has it ended?")

    def levels(self, group: Path) -> int:
        """Return how many levels below the group the containers are: 0 if it is one, 2 if it is that of a class."""
        depth = self._depth(group)
        return 2 if depth is None else 1 + depth - len(self.parts(group))

    def parts(self, group: Path) -> paths.Parts:
        """Return the components of a group's path below the hierarchy; one that is not below it is an error."""
        if not group.is_relative_to(self.root):
            raise paths.GroupPathError(str(group), f"is not below {self.root}")
        return paths.parse_absolute(f"/{group.relative_to(self.root)}")

    def members(self, group: Path) -> list[int]:
        """Return the processes in the group and in all groups below it, ascending; none if it is gone."""
        pids: set[int] = set()
        for path in self.below(group):
            try:
                pids |= set(files.read_pids(path))
            except CgroupError as error:
                # A threaded group of v2 lists no processes; the group above it that is not threaded has them.
                if error.name not in {"ENOENT", "ENODEV", "EOPNOTSUPP"}:
                    raise
        return sorted(pids)

    def allowed(self, group: Path) -> dict[int, CPUSet]:
        """Return the CPUs that each thread in the group, and below it, may use now."""
        threads = [thread for pid in self.members(group) for thread in self._procfs.threads(pid)]
        found = ((thread, self._procfs.allowed(thread)) for thread in threads)
        return {thread: cpus for thread, cpus in found if cpus}

    def below(self, group: Path) -> list[Path]:
        """Return the group and all groups below it, those above before those below; none if it is gone."""
        groups = [group] if group.is_dir() else []
        for path in groups:  # grows while it is walked
            groups.extend(files.groups_below(path))
        return groups

    def _path(self, parts: paths.Parts) -> Path:
        return self.root.joinpath(*parts)

    def _container(self, parts: paths.Parts) -> Path:
        depth = paths.pod_depth(parts)
        if depth is None or depth == len(parts):
            raise NotInAPodError(str(self._path(parts)), "pod's container")
        return self._path(parts[: depth + 1])

    def _depth(self, group: Path) -> int | None:
        return paths.pod_depth(self.parts(group))

    def _search(self) -> Path | None:
        """Look level by level, so that what a container has made inside its own group is never found first."""
        level = [self.root]
        for _ in range(_SEARCHED_LEVELS):
            below = [path for group in level for path in files.groups_below(group)]
            found = [path for path in below if paths.is_kubepods(path.name)]
            if len(found) > 1:
                raise AmbiguousKubepodsError(found)
            if found:
                return found[0]
            level = [path for path in below if not path.name.endswith(_NOT_SEARCHED)]
        return None
