"""PodTree: the groups of Kubernetes pods in one cgroup hierarchy: which exist, and who is in them.

Asks the hierarchy and changes nothing. A group is named by its path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.node.cgroupfiles import CgroupError
from pinfold.node.grouperrors import GroupError, NoCPUsError
from pinfold.node.podgroups import paths
from pinfold.node.podgroups.podpaths import PodPaths

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
        super().__init__(f"more than one kubelet: {', '.join(map(str, found))}; choose one with --cgroup-root")
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
        self.paths = PodPaths(hierarchy.root)
        """What the path of a group says."""
        self._hierarchy = hierarchy
        self._given = None if kubepods is None else self.paths.parent(kubepods)
        self._found: Path | None = None

    def of_process(self, pid: int) -> Path | None:
        """Return the group of the container that a process is in; None if it has ended, or is in no container.

        A group that the container or its runtime made inside the container's group counts as the container's.
        """
        group = self._hierarchy.group_of(pid)
        return None if group is None else self.paths.container_around(group)

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

    def has_parent(self) -> bool:
        """Return whether the group exists in which kubepods is, or will be; yes if it is searched for."""
        return self._given is None or self.exists(self._given.parent)

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
        above = self._above_pods()
        return [*above, *(pod for group in above for pod in self._pods(group))]

    def all_containers(self) -> list[Path]:
        """Return the groups of the containers of all pods, those of their sandboxes included."""
        pods = (pod for group in self._above_pods() for pod in self._pods(group))
        return [container for pod in pods for container in self._hierarchy.below(pod)]

    def pods_and_containers(self, above: Path) -> list[Path]:
        """Return the pods below the group of their class, each before its containers; of a pod, its containers."""
        if self.paths.levels(above) <= 1:
            return self._hierarchy.below(above)
        return [group for pod in self._pods(above) for group in (pod, *self._hierarchy.below(pod))]

    def containers(self, pod: Path) -> list[Path]:
        """Return the groups of a pod's containers, that of its sandbox included."""
        return self._hierarchy.below(self.paths.checked_pod(pod))

    def has_below(self, group: Path) -> bool:
        """Return whether there are groups directly below; quicker than to list them."""
        return self._hierarchy.has_below(group)

    def groups_below(self, group: Path) -> list[Path]:
        """Return the groups directly below."""
        return self._hierarchy.below(group)

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

    def check_exclusive(self, group: Path, cpus: CPUSet) -> None:
        """Raise if the pod or container cannot have these CPUs for itself."""
        if not cpus:
            raise NoCPUsError(str(group))
        if self.paths.is_pooled(self.paths.checked(group)):
            raise PooledError(group)
        if not self.exists(group):
            raise CgroupError(group, f"CPUs {cpus}", "ENOENT", "there is no such group; has it ended?")

    def _above_pods(self) -> list[Path]:
        top = self.kubepods()
        return [] if top is None else [top, *self.pooled()]

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
