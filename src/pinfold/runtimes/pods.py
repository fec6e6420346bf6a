"""The containers of a Kubernetes node: what its container runtime has told of them, and their CPUs through cgroups.

It decides nothing. The shared pool is set on the groups above the containers wherever the kernel
lets us, so that moving everybody off some CPUs takes the same time for ten containers as for a thousand.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pinfold.core.cpuset import EMPTY
from pinfold.core.reconcile import Observed, Wanted, steps
from pinfold.formats.kubepods import Phase, parse_parent, ref_of, told_uid
from pinfold.node.cgroupfiles import CgroupError
from pinfold.node.grouperrors import GroupError
from pinfold.node.kubesettings import Quota
from pinfold.node.procfs import Procfs
from pinfold.runtimes.roster import Roster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pinfold.core.cpuset import CPUSet
    from pinfold.core.pods import ContainerRef
    from pinfold.formats.kubepods import RuntimeContainer, RuntimePod
    from pinfold.node.kubegroups import KubeGroups
    from pinfold.node.kubesettings import Setting
    from pinfold.node.systemdslices import Systemd
    from pinfold.runtimes.roster import Lookup

PROC: Final = Procfs(Path("/proc"))
_OUTSIDERS: Final = "processes outside of Kubernetes pods may run on exclusive CPUs"


class KubeRuntime(Roster):
    """A Roster, and the groups of those on it."""

    def __init__(
        self,
        name: str,
        groups: KubeGroups,
        lookup: Lookup = lambda _pod: None,
        systemd: Systemd | None = None,
        *,
        read_only: bool = False,
    ) -> None:
        super().__init__(lookup)
        self.name = name
        self.read_only = read_only
        """Whether somebody else manages CPUs here, so that nothing may be changed."""
        self.nodes_of: Callable[[CPUSet], CPUSet] = lambda _cpus: EMPTY
        """The NUMA nodes that CPUs are on."""
        self._groups = groups
        self._asked_first = name == "nri"
        self._systemd = systemd
        self._alive: set[str] = set()
        """The pods that were seen with groups."""
        self._pool: CPUSet | None = None
        self._astray = False
        """Whether the last close look has found somebody elsewhere."""
        self._owners: dict[ContainerRef, CPUSet] = {}
        self.gives_quotas = True
        """Whether containers without CPUs of their own are limited: a kubelet can do without."""
        self.is_synchronized = False
        """Whether the runtime has ever told of everything that runs."""
        self._untold: dict[tuple[Path, str], Setting] = {}
        self._telling: asyncio.Task[None] | None = None

    @property
    def kind(self) -> str:
        """How containers are kept on their CPUs."""
        return self._groups.kind + (" and systemd" if self._systemd is not None else "")

    @property
    def weaker(self) -> tuple[str, ...]:
        """What cannot be promised here, in words."""
        return (_OUTSIDERS, *(("nothing is pinned: a kubelet manages CPUs here itself",) if self.read_only else ()))

    def forget_pod(self, pod_id: str) -> None:
        """Forget a pod that is gone, and its containers."""
        super().forget_pod(pod_id)
        self._alive.discard(pod_id)

    def replace_all(self, pods: Iterable[RuntimePod], containers: Iterable[RuntimeContainer]) -> None:
        """Forget everything but these."""
        super().replace_all(pods, containers)
        self.is_synchronized = True
        self._alive &= self.pods.keys()
        for pod_id in self.pods:
            self.is_gone(pod_id)

    def group(self, container: RuntimeContainer) -> Path | None:
        """Return the container's group, if there is one yet."""
        tree = self._groups.tree
        group = tree.container(container.cgroups_path) if container.cgroups_path else None
        if (group is None or not group.is_dir()) and container.pid:
            group = tree.of_process(container.pid)
        return group if group is not None and group.is_dir() else None

    def cpus(self, container: RuntimeContainer) -> CPUSet:
        """Return the CPUs that the kernel lets the container use; none if it has no group."""
        group = self.group(container)
        try:
            return self._groups.cpus(group) if group is not None else EMPTY
        except CgroupError:
            return EMPTY

    def mems(self, container: RuntimeContainer, cpus: CPUSet) -> CPUSet | None:
        """Return the NUMA nodes that an owner of these CPUs has its memory from; None: all, as it was made."""
        return self.nodes_of(cpus) or None if self.wants_local_memory(container.pod) else None

    def observe(self, *, closely: bool = False) -> Observed:
        """Return the CPUs of exclusive containers and of the pool; *closely* those of every container."""
        found: dict[ContainerRef, CPUSet] = {}
        if self.read_only:
            return Observed(None, found)
        for ref, container in self.live() if closely else self._live_of(self._owners):
            looked_at = ref in self._owners or not self._awaits_its_start(container)
            if looked_at and (cpus := self.cpus(container)):
                found[ref] = cpus
        if closely:
            pool = self._pool or EMPTY
            self._astray = any(cpus != self._owners.get(ref, pool) for ref, cpus in found.items())
        return Observed(None, found)

    def apply(self, want: Wanted) -> None:
        """Take CPUs away first, then give, one step after the other."""
        if self.read_only:
            return
        now = {ref: cpus for ref, container in self._live_of(want.exclusive) if (cpus := self.cpus(container))}
        settings: list[Setting] = []
        pool = self._pool
        # New owners, or somebody elsewhere, or nobody knows: those that share leave first.
        if pool is None or self._astray or want.exclusive.keys() - self._owners.keys():
            pool = want.shared if pool is None else pool & want.shared or pool
            settings += self._set_pool(pool, want)
        way = steps(Wanted(pool, now), want)
        for step in way:
            if step.container is None:
                settings += self._set_pool(step.cpus, want)
            else:
                settings += self._set_owner(step.container, step.cpus)
        gone = self._owners.keys() - want.exclusive.keys()
        for ref in gone:
            settings += self._give_quota_back(self.find(ref))
        if gone and not any(step.container is None for step in way):
            settings += self._set_pool(want.shared, want)
        self._pool, self._owners, self._astray = want.shared, dict(want.exclusive), False
        self._tell_systemd(settings)

    def is_throttled(self, container: RuntimeContainer) -> bool:
        """Whether a quota limits the container, its own or its pod's."""
        group = self.group(container)
        if group is None:
            return False
        try:
            return any(self._groups.quota(path).quota is not None for path in (group, group.parent))
        except CgroupError:
            return False

    def put_right(self, container: RuntimeContainer, cpus: CPUSet, *, exclusive: bool) -> None:
        """Give one container its CPUs, whatever it has."""
        group = self.group(container)
        if group is None:
            return
        if exclusive:
            self._tell_systemd(self._groups.set_container(group, cpus, self.mems(container, cpus)))
            return
        singles = [group] if self.is_guaranteed(container.pod) else []
        self._tell_systemd(self._groups.set_pool(cpus, singles=singles, settled=self._settled()))

    def is_clear(self, want: Wanted) -> bool:
        """Whether nobody can be on exclusive CPUs but their owners, going by the groups above the others alone."""
        guaranteed, singles = self._pooled(want)
        above = (*self._groups.tree.pooled(), *guaranteed, *singles)
        owners = ((container, want.exclusive[ref]) for ref, container in self._live_of(want.exclusive))
        try:
            if any(not self._groups.cpus(group) <= want.shared for group in above):
                return False
            return all(self.cpus(container) <= cpus for container, cpus in owners)
        except CgroupError:
            return False  # one has just gone: whoever looks closely finds out

    def _set_pool(self, cpus: CPUSet, want: Wanted) -> tuple[Setting, ...]:
        guaranteed, singles = self._pooled(want)
        closely = self._pool is None or self._astray
        return self._groups.set_pool(cpus, guaranteed, singles, closely=closely, settled=self._settled())

    def _settled(self) -> set[Path] | None:
        """Return the groups of pods in which no container is about to be made; None: all, as far as anyone knows."""
        if not (self._groups.nested and self._asked_first):
            return None
        settled = (pod for pod in self.pods if not any(map(self._awaits_its_start, self.containers_of(pod))))
        return {group for group in map(self._pod_group, settled) if group is not None}

    def _awaits_its_start(self, container: RuntimeContainer) -> bool:
        """Whether we are asked once more before it runs: until then it may have any CPUs, as its runtime pleases."""
        return self._asked_first and container.phase is Phase.CREATED

    def _pooled(self, want: Wanted) -> tuple[list[Path], list[Path]]:
        """Return the Guaranteed pods that share, and the containers that share in those that do not."""
        guaranteed: list[Path] = []
        singles: list[Path] = []
        tree = self._groups.tree
        for pod_id in self.pods:
            group = self._pod_group(pod_id) if self.is_guaranteed(pod_id) else None
            if group is None:
                continue
            if not any(ref in want.exclusive for ref in self.refs(pod_id)):
                guaranteed.append(group)
                continue
            owners = {self.group(found) for found in self.containers_of(pod_id) if self._is_owner(found, want)}
            singles += [path for path in tree.containers(group) if path not in owners]
        return guaranteed + self._strangers(want), singles

    def _strangers(self, want: Wanted) -> list[Path]:
        """Return the Guaranteed pods that share and the runtime has not told of: some tell only of what comes."""
        if self.is_synchronized or not self.pods:
            return []
        known = {*map(told_uid, self.pods.values()), *(ref.pod for ref in want.exclusive)}
        places = {
            group: parse_parent(f"/{group.relative_to(self._groups.tree.root)}")
            for group in self._groups.tree.guaranteed()
        }
        return [group for group, place in places.items() if place is not None and place.uid not in known]

    def _is_owner(self, container: RuntimeContainer, want: Wanted) -> bool:
        return ref_of(self.pods[container.pod], container) in want.exclusive

    def is_gone(self, pod_id: str) -> bool:
        """Whether a pod had groups, of its sandbox at least, and has none any more."""
        group = self._pod_group(pod_id)
        alive = group is not None and bool(self._groups.tree.containers(group))
        if alive:
            self._alive.add(pod_id)
        return not alive and pod_id in self._alive

    def _pod_group(self, pod_id: str) -> Path | None:
        tree = self._groups.tree
        parent = self.pods[pod_id].cgroup_parent
        if parent:
            group = tree.pod(parent)
            return group if group.is_dir() else None
        groups = (self.group(container) for container in self.containers_of(pod_id))
        return next((group.parent for group in groups if group is not None), None)

    def _live_of(self, refs: Iterable[ContainerRef]) -> Iterator[tuple[ContainerRef, RuntimeContainer]]:
        return ((ref, container) for ref in refs if (container := self.find(ref)) is not None)

    def _set_owner(self, ref: ContainerRef, cpus: CPUSet) -> tuple[Setting, ...]:
        container = self.find(ref)
        group = self.group(container) if container is not None else None
        if container is not None and group is not None:
            return self._groups.set_container(group, cpus, self.mems(container, cpus))
        above = (self._pod_group(pod_id) for pod_id in self.find_pods(ref.pod) if ref in self.refs(pod_id))
        pod = next((found for found in above if found is not None), None)
        return () if pod is None else self._groups.open_pod(pod, cpus)

    def _give_quota_back(self, container: RuntimeContainer | None) -> tuple[Setting, ...]:
        """Limit a container again that has lost its CPUs, and its pod."""
        group = self.group(container) if container is not None else None
        pod = self.pod(container.pod) if container is not None else None
        if container is None or group is None or pod is None:
            return ()
        if not self.gives_quotas:
            return ()
        period = container.period or Quota(None).period
        limits = {found.name: found.resources.limits.cpu or 0 for found in pod.all_containers}
        whole = Quota.of_millicpu(sum(limits.values()), period) if all(limits.values()) else Quota(None)
        own = limits[ref_of(self.pods[container.pod], container).name]
        settings = self._groups.set_quota(group.parent, whole)
        return settings + self._groups.set_quota(group, Quota.of_millicpu(own, period)) if own else settings

    def age(self, container: RuntimeContainer) -> float:
        """Return for how many seconds a container's process has been running."""
        return PROC.age(container.pid) if container.pid else 0.0

    def _tell_systemd(self, settings: Iterable[Setting]) -> None:
        """Have systemd know what was set: it would take it back one day. The kernel has it already."""
        wanted = [setting for setting in settings if setting.properties]
        if self._systemd is None or not wanted:
            return
        self._untold.update(((setting.group, setting.file), setting) for setting in wanted)
        if self._telling is None or self._telling.done():
            self._telling = asyncio.get_running_loop().create_task(self._keep(self._systemd))

    async def _keep(self, systemd: Systemd) -> None:
        """Tell one after the other, and of each only the last: what is old must not come after what is new."""
        while self._untold:
            settings, self._untold = list(self._untold.values()), {}
            with suppress(GroupError):  # the next reconcile finds what came of it
                await systemd.keep(settings)
