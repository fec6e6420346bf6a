"""PodTree: the groups of Kubernetes pods in one cgroup hierarchy: their paths, which exist, and their processes.

Asks the hierarchy and changes nothing. A group is named by its path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.node.cgroupfiles import CgroupError
from pinfold.node.grouperrors import GroupError, NoCPUsError
from pinfold.node.podgroups import paths
from pinfold.node.podgroups.paths import NotInAPodError

if TYPE_CHECKING:
    from pathlib import Path

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.node.podgroups.driver import Hierarchy

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
    """The groups of pods in a *hierarchy*; *kubepods* is the group of all pods, as a path or a slice, if known."""

    def __init__(self, hierarchy: Hierarchy, kubepods: str | None = None) -> None:
        self.root = hierarchy.root
        self._hierarchy = hierarchy
        self._given = None if kubepods is None else self._path(paths.parse_cgroup_parent(kubepods))
        self._found: Path | None = None

    def container(self, cgroups_path: str) -> Path:
        """Return the group of a container, by the cgroupsPath that its runtime has for it; it need not exist."""
        return self._container(paths.parse_cgroups_path(cgroups_path))

    def pod(self, cgroup_parent: str) -> Path:
        """Return the group of a pod, by the cgroup parent that its sandbox was made with; it need not exist."""
        return self.checked_pod(self._path(paths.parse_cgroup_parent(cgroup_parent)))

    def of_process(self, pid: int) -> Path | None:
        """Return the group of the container that a process is in; None if it has ended, or is in no container.

        A group that the container or its runtime made inside the container's group counts as the container's.
        """
        group = self._hierarchy.group_of(pid)
        parts = () if group is None else self.parts(group)
        depth = paths.pod_depth(parts)
        return None if depth is None or len(parts) == depth else self._container(parts)

    def exists(self, group: Path) -> bool:
        """Whether there is such a group now."""
        return self._hierarchy.exists(group)

    def kubepods(self) -> Path | None:
        """Return the group of all pods: the given one, else the nearest to the top; None while there is none."""
        if self._given is not None:
            return self._given if self.exists(self._given) else None
        if self._found is None or not self.exists(self._found):
            self._found = self._search()
        return self._found

    def pooled(self) -> list[Path]:
        """Return the groups of all Burstable and of all BestEffort pods, those that exist."""
        top = self.kubepods()
        groups = [] if top is None else [top / paths.qos_name(top.name, qos) for qos in paths.POOLED]
        return [group for group in groups if self.exists(group)]

    def guaranteed(self) -> list[Path]:
        """Return the groups of all Guaranteed pods."""
        top = self.kubepods()
        return [] if top is None else self._pods(top)

    def down_to_pods(self) -> list[Path]:
        """Return kubepods, the groups of the classes and those of all pods, each before the groups below it."""
        top = self.kubepods()
        above = [] if top is None else [top, *self.pooled()]
        return [*above, *(pod for group in above for pod in self._pods(group))]

    def pods_and_containers(self, above: Path) -> list[Path]:
        """Return the pods below the group of their class, each before its containers; of a pod, its containers."""
        if self._depth(above) is not None:
            return self._hierarchy.below(above)
        return [group for pod in self._pods(above) for group in (pod, *self._hierarchy.below(pod))]

    def containers(self, pod: Path) -> list[Path]:
        """Return the groups of a pod's containers, that of its sandbox included."""
        return self._hierarchy.below(self.checked_pod(pod))

    def above(self, group: Path) -> list[Path]:
        """Return the groups above, from kubepods down to the one that *group* is in; none outside of kubepods."""
        inside = [path for path in reversed(group.parents) if path.is_relative_to(self.root)]
        depth = next((depth for depth, path in enumerate(inside) if paths.is_kubepods(path.name)), len(inside))
        return inside[depth:]

    def below(self, group: Path) -> list[Path]:
        """Return the group and all groups below it, those above before those below; none if it does not exist."""
        groups = [group] if self.exists(group) else []
        for path in groups:  # grows while it is walked
            groups.extend(self._hierarchy.below(path))
        return groups

    def members(self, group: Path) -> list[int]:
        """Return the processes in the group and in all groups below it, ascending; none if it does not exist."""
        pids: set[int] = set()
        for path in self.below(group):
            try:
                pids |= set(self._hierarchy.members(path))
            except CgroupError as error:
                # A threaded group of v2 lists no processes; the group above it that is not threaded has them.
                if error.name not in {"ENOENT", "ENODEV", "EOPNOTSUPP"}:
                    raise
        return sorted(pids)

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
        if not self.exists(group):
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

    def _path(self, parts: paths.Parts) -> Path:
        return self.root.joinpath(*parts)

    def _container(self, parts: paths.Parts) -> Path:
        depth = paths.pod_depth(parts)
        if depth is None or depth == len(parts):
            raise NotInAPodError(str(self._path(parts)), "pod's container")
        return self._path(parts[: depth + 1])

    def _depth(self, group: Path) -> int | None:
        return paths.pod_depth(self.parts(group))

    def _pods(self, above: Path) -> list[Path]:
        return [group for group in self._hierarchy.below(above) if paths.is_pod(above.name, group.name)]

    def _search(self) -> Path | None:
        """Look level by level, so that what a container has made inside its own group is never found first."""
        level = [self.root]
        for _ in range(_SEARCHED_LEVELS):
            below = [path for group in level for path in self._hierarchy.below(group)]
            found = [path for path in below if paths.is_kubepods(path.name)]
            if len(found) > 1:
                raise AmbiguousKubepodsError(found)
            if found:
                return found[0]
            level = [path for path in below if not path.name.endswith(_NOT_SEARCHED)]
        return None
