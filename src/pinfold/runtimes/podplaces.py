"""PodPlaces: where the cgroups of the pods on a Roster are, which share, and which are gone; changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.machine.cpuset import EMPTY
from pinfold.formats.pods.runtime import Phase, parse_parent, ref_of, told_uid
from pinfold.node.cgroupfiles import CgroupError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import ContainerRef, PodUID
    from pinfold.core.reconcile import Wanted
    from pinfold.formats.pods.runtime import RuntimeContainer
    from pinfold.node.podgroups.groups import PodGroups
    from pinfold.runtimes.roster import Roster


class PodPlaces:
    """Where the groups of the pods on a Roster are, and which of them belong to the shared pool; changes nothing."""

    def __init__(self, groups: PodGroups, roster: Roster, *, asked_first: bool) -> None:
        """Use these groups; *asked_first*: the runtime asks again before a container runs (NRI), unlike CRI."""
        self.groups = groups
        self.roster = roster
        self._asked_first = asked_first
        self._alive: set[str] = set()
        """The pods that were seen with groups."""

    def group(self, container: RuntimeContainer) -> Path | None:
        """Return the container's group, if there is one yet."""
        tree, group = self.groups.tree, self._told(container)
        if group is not None and tree.exists(group):
            return group
        group = tree.of_process(container.pid) if container.pid else None
        # The PID is the host's: in a PID namespace of pinfold's own, another process can have the same number.
        if group is not None and container.id not in group.name:
            return None
        return group if group is not None and tree.exists(group) else None

    def _told(self, container: RuntimeContainer) -> Path | None:
        """Return the group that the runtime has named; it need not exist."""
        return self.groups.tree.paths.container(container.cgroups_path) if container.cgroups_path else None

    def cpus(self, container: RuntimeContainer) -> CPUSet:
        """Return the CPUs that the kernel lets the container use; none if it has no group."""
        told = self._told(container)
        try:
            # One that is about to be made mostly has no group: to look for it is quicker than an error.
            if told is not None and (container.phase is not Phase.CREATED or self.groups.tree.exists(told)):
                return self.groups.cpus(told)
        except CgroupError:  # there is no such group
            pass
        group = self.group(container)
        try:
            return self.groups.cpus(group) if group is not None else EMPTY
        except CgroupError:
            return EMPTY

    def processes(self, container: RuntimeContainer) -> list[int]:
        """Return the processes of a container as this PID namespace numbers them; those of others are left out."""
        group = self.group(container)
        try:
            return [pid for pid in self.groups.tree.members(group) if pid] if group is not None else []
        except CgroupError:
            return []

    def is_throttled(self, container: RuntimeContainer) -> bool:
        """Return whether a quota limits the container, its own or its pod's."""
        group = self.group(container)
        if group is None:
            return False
        try:
            return any(self.groups.quota(path).quota is not None for path in (group, group.parent))
        except CgroupError:
            return False

    def pod_group(self, pod_id: str) -> Path | None:
        """Return the group of a pod, if there is one."""
        group = self._pod_place(pod_id)
        return group if group is not None and self.groups.tree.exists(group) else None

    def _pod_place(self, pod_id: str) -> Path | None:
        """Return the group that a pod has or will have; None if that is not known."""
        parent = self.roster.pods[pod_id].cgroup_parent
        if parent:
            return self.groups.tree.paths.pod(parent)
        groups = (self.group(container) for container in self.roster.containers_of(pod_id))
        return next((group.parent for group in groups if group is not None), None)

    def is_gone(self, pod_id: str, *, listed: bool = False) -> bool:
        """Return whether a pod has no groups, not even its sandbox's, but had some, or must have some if *listed*."""
        group = self._pod_place(pod_id)
        alive = group is not None and self.groups.tree.has_below(group)
        if alive:
            self._alive.add(pod_id)
        if len(self._alive) > len(self.roster.pods):  # not each time: all pods are asked for, one after the other
            self._alive &= self.roster.pods.keys()
        had_some = pod_id in self._alive or (listed and bool(self.roster.pods[pod_id].cgroup_parent))
        return not alive and had_some

    def has_left(self, pod: PodUID) -> bool:
        """Return whether there are Guaranteed pods' groups on this node, or could be, and none is this pod's."""
        return self.groups.tree.kubepods() is not None and pod not in self.guaranteed().values()

    def live(self, refs: Iterable[ContainerRef]) -> Iterator[tuple[ContainerRef, RuntimeContainer]]:
        """Yield those of the containers that run or are about to."""
        return ((ref, container) for ref in refs if (container := self.roster.find(ref)) is not None)

    def awaits_its_start(self, container: RuntimeContainer) -> bool:
        """Return whether the runtime asks again before the container runs: until then it may have any CPUs."""
        return self._asked_first and container.phase is Phase.CREATED

    def settled(self) -> set[Path] | None:
        """Return the groups, present or not, of pods in which no container is about to be created; None means all."""
        if not (self.groups.nested and self._asked_first):
            return None
        containers_of = self.roster.containers_of
        settled = (pod for pod in self.roster.pods if not any(map(self.awaits_its_start, containers_of(pod))))
        return {group for group in map(self._pod_place, settled) if group is not None}

    def pooled(self, want: Wanted) -> tuple[list[Path], list[Path]]:
        """Return the Guaranteed pods that only share, and the sharing containers of the other Guaranteed pods."""
        guaranteed: list[Path] = []
        singles: list[Path] = []
        for pod_id in self.roster.pods:
            group = self.pod_group(pod_id) if self.roster.of(pod_id).guaranteed else None
            if group is None:
                continue
            if not any(ref in want.exclusive for ref in self.roster.refs(pod_id)):
                guaranteed.append(group)
                continue
            found = self.roster.containers_of(pod_id)
            owners = {self.group(one) for one in found if ref_of(self.roster.pods[pod_id], one) in want.exclusive}
            singles += [path for path in self.groups.tree.containers(group) if path not in owners]
        return guaranteed + self._strangers(want), singles

    def _strangers(self, want: Wanted) -> list[Path]:
        """Return the sharing Guaranteed pods that the runtime has not reported: some report only new pods."""
        if self.roster.is_complete or not self.roster.pods:
            return []
        known = {*map(told_uid, self.roster.pods.values()), *(ref.pod for ref in want.exclusive)}
        return [group for group, uid in self.guaranteed().items() if uid not in known]

    def guaranteed(self) -> dict[Path, str]:
        """Return the groups of all Guaranteed pods, on the Roster or not, and the pods' UIDs."""
        tree = self.groups.tree
        places = {group: parse_parent(f"/{group.relative_to(tree.root)}") for group in tree.guaranteed()}
        return {group: place.uid for group, place in places.items() if place is not None}
