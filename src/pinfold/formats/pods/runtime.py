"""Pods with exact amounts of CPU, rebuilt from the data of a container runtime.

The kubelet writes requests as shares, limits as quotas and the QoS class into the cgroup path; all three can be read
back. The rest (which containers are init containers, pod-level resources) comes from a Pod of another source, or from
the pod's annotations. Knows neither CRI nor NRI: both fill RuntimePod and RuntimeContainer.
"""

from __future__ import annotations

import re
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.events.about import PodName
from pinfold.core.pods.pod import Amounts, Container, ContainerRef, Pod, PodUID, QoS, Resources
from pinfold.errors import ParseError, excerpt
from pinfold.formats.pods.annotations import NO_OVERRIDES, PREFIX, SHARED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pinfold.formats.pods.annotations import Overrides

POD_NAME: Final = "io.kubernetes.pod.name"
POD_NAMESPACE: Final = "io.kubernetes.pod.namespace"
POD_UID: Final = "io.kubernetes.pod.uid"
CONTAINER_NAME: Final = "io.kubernetes.container.name"
RESTART_COUNT: Final = "io.kubernetes.container.restartCount"
CONFIG_SOURCE: Final = "kubernetes.io/config.source"
FROM_API: Final = "api"

MIN_SHARES: Final = 2
MAX_SHARES: Final = 262_144
"""The kubelet writes this value for every request of 256 CPUs or more."""
DEFAULT_PERIOD: Final = 100_000

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_SANDBOX: Final = {
    ("io.kubernetes.cri.container-type", "sandbox"),
    ("io.kubernetes.cri-o.ContainerType", "sandbox"),
    ("io.kubernetes.docker.type", "podsandbox"),
}
_FILE_FORM: Final = re.compile(r"(?:.*/)?kubepods/(?:(burstable|besteffort)/)?pod([^/]+)", re.DOTALL)
_SLICE_FORM: Final = re.compile(r"(?:.*[-/])?kubepods(?:-(burstable|besteffort))?-pod([^/-]+)\.slice", re.DOTALL)
_CLASSES: Final = {None: QoS.GUARANTEED, "burstable": QoS.BURSTABLE, "besteffort": QoS.BEST_EFFORT}
_UID_FORM: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")
_NAME_FORM: Final = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
_LABEL_FORM: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_COUNT_FORM: Final = re.compile(r"[0-9]{1,9}")
_MILLI: Final = 1000
_SOME_MEMORY: Final = 1


class Phase(StrEnum):
    """The phase of a container; plain processes also wait, back off and fail to start."""

    WAITING = "waiting"
    CREATED = "created"
    RUNNING = "running"
    STOPPED = "stopped"
    ENDED = "ended"
    BACKING_OFF = "backing off"
    CANNOT_START = "cannot start"
    UNKNOWN = "unknown"


class RuntimePod(NamedTuple):
    """A pod as a runtime reports it; *id* is the runtime's own name for it."""

    id: str
    uid: str = ""
    name: str = ""
    namespace: str = ""
    cgroup_parent: str = ""
    """Empty if the runtime does not report it: then the containers' cgroups have it."""
    labels: Mapping[str, str] = _NOTHING
    annotations: Mapping[str, str] = _NOTHING
    ready: bool = True
    spec: Pod | None = None
    """The whole pod, from a source that is not a container runtime."""
    kind: str = ""
    """The user who started a pod of plain processes; empty for a pod of a container runtime."""


class RuntimeContainer(NamedTuple):
    """A container as a runtime reports it; amounts are None if it does not report them."""

    id: str
    pod: str
    """The runtime's own name for its pod."""
    name: str = ""
    phase: Phase = Phase.UNKNOWN
    labels: Mapping[str, str] = _NOTHING
    annotations: Mapping[str, str] = _NOTHING
    attempt: int = 0
    created: int = 0
    pid: int = 0
    cgroups_path: str = ""
    shares: int | None = None
    quota: int | None = None
    period: int | None = None
    memory: int | None = None
    """The limit, in bytes."""
    cpus: str = ""
    mems: str = ""
    code: int | None = None
    """The exit code, if known."""
    windows: bool = False
    """Whether it is a Windows container, whose CPUs only its runtime can set."""
    since: float = 0.0
    """When its phase began, in seconds since the epoch; 0 if unknown."""


class CgroupPlace(NamedTuple):
    """What a pod's cgroup path says: its QoS class, and its UID if the path has it."""

    qos: QoS
    uid: str


class OverrideError(ParseError):
    """An annotation asks for something that the pod cannot have."""


def parse_parent(cgroup_parent: str) -> CgroupPlace | None:
    """Return what the parent cgroup of a pod's containers says, for both cgroup drivers; None: not of Kubernetes.

    >>> parse_parent("/kubepods/burstable/pod1a2b-3c")
    CgroupPlace(qos=<QoS.BURSTABLE: 'Burstable'>, uid='1a2b-3c')
    >>> parse_parent("/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod1a2b_3c.slice")
    CgroupPlace(qos=<QoS.GUARANTEED: 'Guaranteed'>, uid='1a2b-3c')
    >>> parse_parent("/system.slice")
    """
    path = cgroup_parent.rstrip("/")
    if found := _SLICE_FORM.fullmatch(path):
        # systemd nests at "-", so the kubelet writes "_" for those of a UID.
        return CgroupPlace(_CLASSES[found[1]], found[2].replace("_", "-"))
    found = _FILE_FORM.fullmatch(path)
    return CgroupPlace(_CLASSES[found[1]], found[2]) if found else None


def parent_of(cgroups_path: str) -> str:
    """Return the parent cgroup of a container from the path in its OCI spec.

    >>> parent_of("/kubepods/burstable/pod1/abc"), parent_of("kubepods-pod1.slice:cri-containerd:abc")
    ('/kubepods/burstable/pod1', 'kubepods-pod1.slice')
    """
    parent, colon, _ = cgroups_path.partition(":")
    return parent if colon else cgroups_path.rstrip("/").rpartition("/")[0]


def milli_of_shares(shares: int) -> int:
    """Return the request for which the kubelet writes these shares (a CPU is 1024, rounded down); exact from 3m on.

    >>> milli_of_shares(1024), milli_of_shares(512), milli_of_shares(3)
    (1000, 500, 3)
    """
    return ((max(shares, 0) + 1) * _MILLI - 1) // 1024


def milli_of_quota(quota: int, period: int) -> int:
    """Return the limit for which the kubelet writes this quota (rounded down, 1000 at least); exact above that.

    >>> milli_of_quota(200_000, 100_000), milli_of_quota(1501, 1001)
    (2000, 1500)
    """
    return ((max(quota, 0) + 1) * _MILLI - 1) // period


def is_workload(container: RuntimeContainer) -> bool:
    """Return whether it is a real container, and not the sandbox that keeps a pod's namespaces."""
    if not container.annotations and not container.labels:
        return bool(container.name)
    notes = (container.annotations.items(), container.labels.items())
    return bool(_container_name(container)) and not any(mark in items for items in notes for mark in _SANDBOX)


def place_of(pod: RuntimePod, containers: Iterable[RuntimeContainer] = ()) -> CgroupPlace | None:
    """Return the place of a pod, from its own cgroup or those of its containers; None: not a pod of Kubernetes."""
    parents = (pod.cgroup_parent, *(parent_of(container.cgroups_path) for container in containers))
    return next((place for parent in parents if parent and (place := parse_parent(parent))), None)


def ref_of(pod: RuntimePod, container: RuntimeContainer) -> ContainerRef:
    """Return a container's identity, which stays the same after a restart, unlike the runtime's id."""
    return ContainerRef(_uid(pod), _checked("container name", _container_name(container), _LABEL_FORM))


def told_uid(pod: RuntimePod) -> str:
    """Return the UID of a pod as the runtime reports it, unchecked."""
    return pod.uid or pod.labels.get(POD_UID, "")


def is_static(pod: RuntimePod) -> bool:
    """Return whether the kubelet has the pod from a file or a URL: the API server has it under another UID."""
    return pod.annotations.get(CONFIG_SOURCE, FROM_API) != FROM_API


def name_of(pod: RuntimePod | None) -> PodName | None:
    """Return a pod's name as the runtime reports it; None if there is no such pod."""
    return None if pod is None else PodName(pod.namespace, pod.name, told_uid(pod))


def latest(containers: Iterable[RuntimeContainer]) -> dict[str, RuntimeContainer]:
    """Return the last start of each container by name, in the order of first appearance."""
    found: dict[str, RuntimeContainer] = {}
    for container in filter(is_workload, containers):
        before = found.get(name := _container_name(container))
        if before is None or _age(before) <= _age(container):
            found[name] = container
    return found


def is_current(pod: Pod, known: Pod | None) -> bool:
    """Return whether the pod *known* from another source has all its current containers."""
    if known is pod:
        return True
    if known is None or known.qos is not pod.qos:
        return False
    names = {container.name for container in known.all_containers}
    return all(container.name in names for container in pod.all_containers)


def build_pod(
    pod: RuntimePod,
    containers: Collection[RuntimeContainer],
    *,
    known: Pod | None = None,
    overrides: Overrides = NO_OVERRIDES,
) -> Pod | None:
    """Return the pod with the containers seen so far, and the QoS class of its cgroup.

    Call it again for each new container. *known* is the same pod from another source: it adds containers not seen yet,
    and knows init containers, sidecars and pod-level resources. Returns None if it is not a pod of Kubernetes.

    >>> web = RuntimePod("s1", "u1", "web", "default", "/kubepods/podu1")
    >>> pod = build_pod(web, [RuntimeContainer("c1", "s1", "app", shares=2048, quota=200_000, period=100_000)])
    >>> print(pod.qos, pod.containers[0].resources.requests.cpu)
    Guaranteed 2000
    """
    place = place_of(pod, containers)
    if place is None:
        return None
    seen = latest(containers)
    for container in seen.values():
        ref_of(pod, container)
    return _Builder(pod, place.qos, seen, known, overrides).build()


class _Builder:
    """Builds one pod from all sources."""

    def __init__(
        self,
        pod: RuntimePod,
        qos: QoS,
        seen: Mapping[str, RuntimeContainer],
        known: Pod | None,
        overrides: Overrides,
    ) -> None:
        self.pod = pod
        self.qos = qos
        self.seen = seen
        self.owner = known.owner if known else ""
        self.known = {container.name: container for container in known.all_containers} if known else {}
        self.init = {container.name: container.sidecar for container in known.init} if known else {}
        self.init |= dict.fromkeys(overrides.init, False) | dict.fromkeys(overrides.sidecars, True)
        self.overrides = overrides
        # A known pod of another QoS class is outdated: its order still counts, its amounts do not.
        self.current = known if known is not None and known.qos is qos else None
        self.level = self.current.resources if self.current is not None else None

    def build(self) -> Pod:
        containers = [self.container(name) for name in dict.fromkeys((*self.known, *self.seen))]
        return Pod(
            uid=_uid(self.pod),
            name=_checked("name", self.pod.name or self.pod.labels.get(POD_NAME, ""), _NAME_FORM),
            namespace=_checked("namespace", self.pod.namespace or self.pod.labels.get(POD_NAMESPACE, ""), _LABEL_FORM),
            init=tuple(container for container in containers if container.name in self.init),
            containers=tuple(container for container in containers if container.name not in self.init),
            resources=self.level,
            annotations=self.pod.annotations,
            labels=self.pod.labels,
            owner=self.owner,
        )

    def container(self, name: str) -> Container:
        return Container(name, self.resources(name), sidecar=self.init.get(name, False))

    def resources(self, name: str) -> Resources:
        if self.level is not None:
            # The kubelet writes the pod's limit for containers without one: only the pod's spec shows the difference.
            if self.overrides.cpus.get(name):
                raise self.error(name, "exclusive CPUs for a container of a pod with pod-level resources")
            return self.known[name].resources if name in self.known else Resources()
        amounts = self.told(name)
        if name in self.overrides.cpus:
            amounts = amounts._replace(cpu=self.overridden(name, amounts.cpu))
        return _of_class(self.qos, amounts)

    def told(self, name: str) -> _Told:
        """Return the amounts of a container: from the runtime, else from the known pod."""
        container = self.seen.get(name)
        known = self.known[name].resources if self.current is not None and name in self.known else Resources()
        memory = known.limits.memory
        if container is None:
            return _Told(known.requests.cpu, known.limits.cpu, memory)
        limit = _limit(container)
        request = None if not container.shares else milli_of_shares(container.shares)
        if self.qos is QoS.GUARANTEED:
            request = _guaranteed(container.shares, request, limit, known.requests.cpu)
        elif container.shares is not None and container.shares <= MIN_SHARES:
            request = None
        return _Told(request, limit, container.memory or memory)

    def overridden(self, name: str, request: int | None) -> int | None:
        """Return the request that gives a container the exclusive CPUs that an annotation asks for."""
        cpus = self.overrides.cpus[name]
        if cpus == SHARED:
            # One milli less is not a whole number of CPUs, and not more than the scheduler has counted.
            return request - 1 if request and not request % _MILLI else request
        if self.qos is not QoS.GUARANTEED:
            raise self.error(name, f"{cpus} exclusive CPUs for a {self.qos} pod; only Guaranteed pods can have them")
        if request is not None and cpus * _MILLI > request and not self.saturated(name):
            raise self.error(name, f"{cpus} exclusive CPUs, but the container requests {request}m; at most that")
        return cpus * _MILLI

    def saturated(self, name: str) -> bool:
        """Return whether the request may be larger than the runtime can report."""
        container = self.seen.get(name)
        return container is not None and (container.shares or 0) >= MAX_SHARES and _limit(container) is None

    def error(self, name: str, problem: str) -> OverrideError:
        where = f"pod {self.pod.namespace}/{self.pod.name}: annotation {excerpt(f'{PREFIX}cpus.{name}')}"
        return OverrideError(problem, where=where)


class _Told(NamedTuple):
    """The known amounts of a container: CPU request, CPU limit, memory limit."""

    cpu: int | None
    limit: int | None
    memory: int | None


def _limit(container: RuntimeContainer) -> int | None:
    quota, period = container.quota or 0, container.period or DEFAULT_PERIOD
    return milli_of_quota(quota, period) if quota > 0 and period > 0 else None


def _guaranteed(shares: int | None, request: int | None, limit: int | None, known: int | None) -> int | None:
    """Return the request, which is also the limit: shares show it even without quotas, up to 256 CPUs."""
    if request is not None and shares is not None and shares < MAX_SHARES:
        return request
    if limit is not None:
        return limit
    # Shares mean "256 CPUs or more" and the quota is off.
    return known if known is not None and known > (request or 0) else request


def _of_class(qos: QoS, told: _Told) -> Resources:
    """Return resources with these amounts and this QoS class, so that a pod of such containers has the same class.

    The runtime does not report memory requests: one byte stands for them where the class needs one.
    """
    match qos:
        case QoS.GUARANTEED:
            both = Amounts(max(told.cpu or 1, 1), max(told.memory or 0, _SOME_MEMORY))
            return Resources(both, both)
        case QoS.BURSTABLE:
            memory = told.memory if told.memory and told.memory > _SOME_MEMORY else None
            return Resources(Amounts(told.cpu, _SOME_MEMORY), Amounts(told.limit, memory))
        case QoS.BEST_EFFORT:
            return Resources()


def _container_name(container: RuntimeContainer) -> str:
    return container.labels.get(CONTAINER_NAME, "") or container.name


def _age(container: RuntimeContainer) -> tuple[int, int]:
    count = container.annotations.get(RESTART_COUNT, "")
    attempt = int(count) if _COUNT_FORM.fullmatch(count) else container.attempt
    return attempt, container.created


def _uid(pod: RuntimePod) -> PodUID:
    return PodUID(_checked("UID", told_uid(pod), _UID_FORM))


def _checked(what: str, text: str, form: re.Pattern[str]) -> str:
    """Return *text* if it is a valid name of Kubernetes: it is used in files and paths."""
    if not form.fullmatch(text):
        raise ParseError(f"{excerpt(text)} is not a valid {what} of Kubernetes", where="runtime: pod")
    return text
