"""The containers of a Kubernetes node: what its container runtime has told of them, and their CPUs through cgroups.

NRI and CRI fill it; it decides nothing. The shared pool is set on the groups above the containers wherever the kernel
lets us, so that moving everybody off some CPUs takes the same time for ten containers as for a thousand.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pinfold.core.cpuset import EMPTY
from pinfold.core.pods import QoS
from pinfold.core.reconcile import Observed, Wanted, steps
from pinfold.errors import PinfoldError
from pinfold.formats.kubepods import Phase, build_pod, is_workload, latest, ref_of
from pinfold.formats.podannotations import NO_OVERRIDES, parse_annotations
from pinfold.node.cgroupfiles import CgroupError
from pinfold.node.grouperrors import GroupError
from pinfold.node.kubesettings import Quota
from pinfold.node.procfs import Procfs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pinfold.core.cpuset import CPUSet
    from pinfold.core.pods import ContainerRef, Pod
    from pinfold.formats.kubepods import RuntimeContainer, RuntimePod
    from pinfold.node.kubegroups import KubeGroups
    from pinfold.node.kubesettings import Setting
    from pinfold.node.systemdslices import Systemd

    Lookup = Callable[[RuntimePod], Pod | None]

PROC: Final = Procfs(Path("/proc"))
LIVE: Final = (Phase.CREATED, Phase.RUNNING)
_OUTSIDERS: Final = "processes outside of Kubernetes pods may run on exclusive CPUs"


class KubeRuntime:
    """Pods and containers by the runtime's own ids, and their groups."""

    def __init__(
        self,
        name: str,
        groups: KubeGroups,
        lookup: Lookup = lambda _pod: None,
        systemd: Systemd | None = None,
        *,
        read_only: bool = False,
    ) -> None:
        self.name = name
        self.read_only = read_only
        """Whether somebody else manages CPUs here, so that nothing may be changed."""
        self.pods: dict[str, RuntimePod] = {}
        self.containers: dict[str, RuntimeContainer] = {}
        self._groups = groups
        self._lookup = lookup
        self._systemd = systemd
        self._built: dict[str, Pod | None] = {}
        self._by_pod: dict[str, list[RuntimeContainer]] | None = None
        """None: to be sorted anew."""
        self._alive: set[str] = set()
        """The pods that were seen with groups."""
        self._wrong: dict[str, PinfoldError] = {}
        self._pool: CPUSet | None = None
        self._astray = False
        """Whether the last close look has found somebody elsewhere."""
        self._owners: dict[ContainerRef, CPUSet] = {}
        self._telling: set[asyncio.Task[None]] = set()

    @property
    def kind(self) -> str:
        """How containers are kept on their CPUs."""
        return self._groups.kind + (" and systemd" if self._systemd is not None else "")

    @property
    def weaker(self) -> tuple[str, ...]:
        """What cannot be promised here, in words."""
        return (_OUTSIDERS, *(("nothing is pinned: a kubelet manages CPUs here itself",) if self.read_only else ()))

    # -- what is known

    def know_pod(self, pod: RuntimePod) -> None:
        """Take note of a pod, or of what is new about it."""
        self.pods[pod.id] = pod
        self._built.pop(pod.id, None)

    def know(self, container: RuntimeContainer) -> None:
        """Take note of a container, or of what is new about it."""
        self.containers[container.id] = container
        self._by_pod = None
        self._built.pop(container.pod, None)

    def forget(self, container_id: str) -> None:
        """Forget a container that is gone."""
        container = self.containers.pop(container_id, None)
        self._by_pod = None
        if container is not None:
            self._built.pop(container.pod, None)

    def forget_pod(self, pod_id: str) -> None:
        """Forget a pod that is gone, and its containers."""
        self.pods.pop(pod_id, None)
        self._alive.discard(pod_id)
        self._built.pop(pod_id, None)
        self.containers = {id_: found for id_, found in self.containers.items() if found.pod != pod_id}
        self._by_pod = None

    def replace_all(self, pods: Iterable[RuntimePod], containers: Iterable[RuntimeContainer]) -> None:
        """Forget everything but these."""
        self.pods = {pod.id: pod for pod in pods}
        self.containers = {container.id: container for container in containers if is_workload(container)}
        self._by_pod = None
        self._built.clear()
        self._alive &= self.pods.keys()
        for pod_id in self.pods:
            self.is_gone(pod_id)

    def pod(self, pod_id: str) -> Pod | None:
        """Return the pod with all that is known of it; None if it is none of ours: not of Kubernetes, or excluded."""
        if pod_id not in self._built:
            self._built[pod_id] = self._build(pod_id)
        return self._built[pod_id]

    def refs(self, pod_id: str) -> list[ContainerRef]:
        """Return the identities of a pod's containers."""
        pod = self.pod(pod_id)
        return [] if pod is None else [pod.ref(container) for container in pod.all_containers]

    def ref(self, container_id: str) -> ContainerRef | None:
        """Return a container's identity; None if it is none of ours."""
        container = self.containers.get(container_id)
        if container is None or self.pod(container.pod) is None:
            return None
        return ref_of(self.pods[container.pod], container)

    def check(self, pod_id: str) -> None:
        """Raise what is wrong with a pod: it does not keep others from running, but nothing of it may start."""
        self.pod(pod_id)
        if pod_id in self._wrong:
            raise self._wrong[pod_id]

    def _build(self, pod_id: str) -> Pod | None:
        """Return the pod; one whose annotations are wrong as if it had none, so that it shares like everyone else."""
        self._wrong.pop(pod_id, None)
        found = self.pods.get(pod_id)
        if found is None:
            return None
        overrides = NO_OVERRIDES
        containers, known = self._containers_of(pod_id), self._lookup(found)
        try:
            overrides = parse_annotations(found.annotations, source=f"pod {found.namespace}/{found.name}")
            return None if overrides.exclude else build_pod(found, containers, known=known, overrides=overrides)
        except PinfoldError as error:
            self._wrong[pod_id] = error
        try:
            return build_pod(found, containers, known=known)
        except PinfoldError:
            return None

    def _containers_of(self, pod_id: str) -> list[RuntimeContainer]:
        if self._by_pod is None:
            self._by_pod = {}
            for container in self.containers.values():
                self._by_pod.setdefault(container.pod, []).append(container)
        return self._by_pod.get(pod_id, [])

    def live(self) -> Iterator[tuple[ContainerRef, RuntimeContainer]]:
        """Yield the containers of ours that run or are about to, each once: the last start of each."""
        for pod_id, pod in self.pods.items():
            if self.pod(pod_id) is not None:
                for container in latest(self._containers_of(pod_id)).values():
                    if container.phase in LIVE:
                        yield ref_of(pod, container), container

    # -- their groups

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

    def observe(self, *, closely: bool = False) -> Observed:
        """Return the CPUs of exclusive containers and of the pool; *closely* those of every container."""
        found: dict[ContainerRef, CPUSet] = {}
        if self.read_only:
            return Observed(None, found)
        for ref, container in self.live():
            if (closely or ref in self._owners) and (cpus := self.cpus(container)):
                found[ref] = cpus
        if closely:
            pool = self._pool or EMPTY
            self._astray = any(cpus != self._owners.get(ref, pool) for ref, cpus in found.items())
        return Observed(None, found)

    def apply(self, want: Wanted) -> None:
        """Take CPUs away first, then give, one step after the other."""
        if self.read_only:
            return
        live = dict(self.live())
        now = {ref: cpus for ref in want.exclusive if ref in live and (cpus := self.cpus(live[ref]))}
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
                settings += self._set_owner(step.container, step.cpus, live.get(step.container))
        gone = self._owners.keys() - want.exclusive.keys()
        for ref in gone:
            settings += self._give_quota_back(live.get(ref))
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
            self._tell_systemd(self._groups.set_container(group, cpus))
            return
        pod = self.pod(container.pod)
        if pod is None or pod.qos is not QoS.GUARANTEED:
            self._tell_systemd(self._groups.set_pool(cpus))
        else:
            self._tell_systemd(self._groups.set_pool(cpus, singles=[group]))

    def _set_pool(self, cpus: CPUSet, want: Wanted) -> tuple[Setting, ...]:
        guaranteed, singles = self._pooled(want)
        return self._groups.set_pool(cpus, guaranteed, singles, closely=self._pool is None or self._astray)

    def _pooled(self, want: Wanted) -> tuple[list[Path], list[Path]]:
        """Return the Guaranteed pods that share, and the containers that share in those that do not."""
        guaranteed: list[Path] = []
        singles: list[Path] = []
        tree = self._groups.tree
        for pod_id in self.pods:
            pod = self.pod(pod_id)
            group = self._pod_group(pod_id) if pod is not None and pod.qos is QoS.GUARANTEED else None
            if pod is None or group is None:
                continue
            if not any(pod.ref(container) in want.exclusive for container in pod.all_containers):
                guaranteed.append(group)
                continue
            owners = {self.group(found) for found in self._containers_of(pod_id) if self._is_owner(found, want)}
            singles += [path for path in tree.containers(group) if path not in owners]
        return guaranteed, singles

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
        groups = (self.group(container) for container in self._containers_of(pod_id))
        return next((group.parent for group in groups if group is not None), None)

    def _set_owner(self, ref: ContainerRef, cpus: CPUSet, container: RuntimeContainer | None) -> tuple[Setting, ...]:
        group = self.group(container) if container is not None else None
        if group is not None:
            return self._groups.set_container(group, cpus)
        for pod_id in self.pods:
            if ref in self.refs(pod_id):
                pod_group = self._pod_group(pod_id)
                return self._groups.open_pod(pod_group, cpus) if pod_group is not None else ()
        return ()

    def _give_quota_back(self, container: RuntimeContainer | None) -> tuple[Setting, ...]:
        """Limit a container again that has lost its CPUs, and its pod."""
        group = self.group(container) if container is not None else None
        pod = self.pod(container.pod) if container is not None else None
        if container is None or group is None or pod is None:
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
        task = asyncio.get_running_loop().create_task(self._keep(wanted))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _keep(self, settings: list[Setting]) -> None:
        assert self._systemd is not None  # noqa: S101 - for mypy; the only caller has looked
        try:
            await self._systemd.keep(settings)
        except GroupError:
            return  # the next reconcile finds what came of it
