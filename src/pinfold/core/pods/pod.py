"""Pods and containers as the CPU Manager sees them: QoS class, whole CPUs asked for exclusively, effective requests.

Amounts are ints (milli CPUs, bytes), because they are read thousands of times a second. Nothing is defaulted here:
a limit without a request stays without a request, as in the kubelet; the parsers in `formats` apply the API's defaults.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from posixpath import join
from typing import TYPE_CHECKING, Final, NamedTuple, NewType

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

PodUID = NewType("PodUID", str)

ANNOTATION_PREFIX: Final = "pinfold.dev/"
"""The annotations of a pod that pinfold reads begin with it."""

_MILLI: Final = 1000


class ContainerRef(NamedTuple):
    """A container's identity: the pod's UID and the container's name in it."""

    pod: PodUID
    name: str


class QoS(StrEnum):
    """The quality of service class of a pod."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


class Amounts(NamedTuple):
    """An amount of CPU in milli CPUs and of memory in bytes; None is "not set"."""

    cpu: int | None = None
    memory: int | None = None


_UNSET: Final = Amounts()


@dataclass(frozen=True, slots=True)
class Resources:
    """What a container, or a pod as a whole, requests and is limited to."""

    requests: Amounts = _UNSET
    limits: Amounts = _UNSET

    @property
    def is_set(self) -> bool:
        """Whether any amount is set, even to 0."""
        return self.requests != _UNSET or self.limits != _UNSET

    @property
    def qos(self) -> QoS:
        """The class these resources have by themselves; 0 counts as not set.

        >>> two = Amounts(cpu=2000, memory=1 << 30)
        >>> print(Resources(two, two).qos, Resources(limits=two).qos, Resources().qos)
        Guaranteed Burstable BestEffort
        """
        cpu, memory = self.requests.cpu or 0, self.requests.memory or 0
        if cpu != (self.limits.cpu or 0) or memory != (self.limits.memory or 0):
            return QoS.BURSTABLE
        if cpu and memory:
            return QoS.GUARANTEED
        return QoS.BURSTABLE if cpu or memory else QoS.BEST_EFFORT


class Identity(NamedTuple):
    """Whom a container runs as; None is "as the daemon"."""

    user: int | None = None
    group: int | None = None
    groups: tuple[int, ...] = ()
    """Further groups."""


AS_THE_DAEMON: Final = Identity()


@dataclass(frozen=True, slots=True)
class Container:
    """A container of a pod; *sidecar* marks an init container that keeps running (`restartPolicy: Always`).

    The fields from *command* on say how to run it as a plain process; the CPU Manager does not look at them.
    """

    name: str
    resources: Resources = Resources()
    sidecar: bool = False
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    working_dir: str = ""
    identity: Identity = AS_THE_DAEMON
    extras: tuple[tuple[str, int], ...] = ()
    """How much it requests of other resources: devices, and hugepages in bytes. Only a plan looks at them."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod; *resources* are its pod-level ones. Its QoS class is computed once, when it is made.

    >>> two = Amounts(cpu=2000, memory=1 << 30)
    >>> pod = Pod(PodUID("u1"), "web", containers=(Container("app", Resources(two, two)),))
    >>> print(pod.qos, exclusive_cpus(pod, pod.containers[0]))
    Guaranteed 2
    """

    uid: PodUID
    name: str
    namespace: str = "default"
    init: tuple[Container, ...] = ()
    containers: tuple[Container, ...] = ()
    resources: Resources | None = None
    overhead: Amounts = _UNSET
    restart_policy: str = "Always"
    annotations: Mapping[str, str] = field(default_factory=dict, hash=False)
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    owner: str = field(default="", compare=False)
    """The controller that made it, as KIND/NAME; empty if there is none or it is not known."""
    qos: QoS = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Compute the QoS class; pod-level resources without any amount count as none."""
        if self.resources is not None and not self.resources.is_set:
            object.__setattr__(self, "resources", None)
        object.__setattr__(self, "qos", _qos(self))

    @property
    def all_containers(self) -> tuple[Container, ...]:
        """Every container in the order of starting: init containers, then app containers."""
        return self.init + self.containers

    def ref(self, container: Container) -> ContainerRef:
        """Return the identity of *container* in this pod."""
        return ContainerRef(self.uid, container.name)

    def only(self, names: Collection[str]) -> Pod:
        """Return the pod with only the containers of these names; itself if it has no other."""
        if all(container.name in names for container in self.all_containers):
            return self
        init = tuple(container for container in self.init if container.name in names)
        return replace(self, init=init, containers=tuple(c for c in self.containers if c.name in names))

    def within(self, directory: str) -> Pod:
        """Return the pod with working directories that are relative, or not given, in *directory*."""

        def moved(container: Container) -> Container:
            return replace(container, working_dir=join(directory, container.working_dir).rstrip("/") or "/")

        return replace(self, init=tuple(map(moved, self.init)), containers=tuple(map(moved, self.containers)))


def exclusive_cpus(pod: Pod, container: Container, *, pod_level: bool = False) -> int:
    """Return how many whole CPUs *container* must have for itself; 0 puts it into the shared pool.

    *pod_level* is the gate `PodLevelResourceManagers`: without it a pod with pod-level resources gets none.
    """
    if pod.qos is not QoS.GUARANTEED:
        return 0
    if pod.resources is not None and not (pod_level and container.resources.qos is QoS.GUARANTEED):
        return 0
    return _whole_cpus(container.resources.requests.cpu)


def exclusive_pod_cpus(pod: Pod, *, pod_level: bool = False) -> int:
    """Return how many whole CPUs *pod* needs at its peak, for the Topology Manager's pod scope.

    >>> def pinned(name, cpus, sidecar=False):
    ...     amounts = Amounts(cpus * 1000, 1 << 30)
    ...     return Container(name, Resources(amounts, amounts), sidecar)
    >>> init = (pinned("proxy", 1, sidecar=True), pinned("setup", 4))
    >>> exclusive_pod_cpus(Pod(PodUID("u1"), "web", init=init, containers=(pinned("app", 3),)))
    5
    """
    if pod.resources is not None:
        return _whole_cpus(pod.resources.requests.cpu) if pod_level and pod.qos is QoS.GUARANTEED else 0
    return peak_amount(pod, lambda container: exclusive_cpus(pod, container, pod_level=pod_level))


def effective_requests(pod: Pod) -> Amounts:
    """Return what the scheduler counts for *pod*: its pod-level requests, else its containers' peak; plus overhead."""
    level = _UNSET if pod.resources is None else pod.resources.requests
    peak = peak_requests(pod)
    cpu = peak.cpu if level.cpu is None else level.cpu
    memory = peak.memory if level.memory is None else level.memory
    return Amounts((cpu or 0) + (pod.overhead.cpu or 0), (memory or 0) + (pod.overhead.memory or 0))


def peak_requests(pod: Pod) -> Amounts:
    """Return the most that the containers of *pod* request at once, without pod-level requests."""
    cpu = peak_amount(pod, lambda container: container.resources.requests.cpu or 0)
    memory = peak_amount(pod, lambda container: container.resources.requests.memory or 0)
    return Amounts(cpu, memory)


def peak_cpu_limit(pod: Pod) -> int | None:
    """Return the most milli CPUs that *pod* can use at once; None if a container has no limit.

    >>> half = Container("app", Resources(limits=Amounts(cpu=500)))
    >>> peak_cpu_limit(Pod(PodUID("u1"), "web", containers=(half,)))
    500
    """
    level = None if pod.resources is None else pod.resources.limits.cpu
    limits = [container.resources.limits.cpu for container in pod.all_containers]
    if not level and not all(limits):
        return None
    return (level or peak_amount(pod, lambda container: container.resources.limits.cpu or 0)) + (pod.overhead.cpu or 0)


def peak_amount(pod: Pod, amount: Callable[[Container], int]) -> int:
    """Return the most that runs at once: an init container beside the sidecars before it, or all sidecars and apps."""
    sidecars = most = 0
    for container in pod.init:
        if container.sidecar:
            sidecars += amount(container)
        else:
            most = max(most, sidecars + amount(container))
    return max(most, sidecars + sum(map(amount, pod.containers)))


def _whole_cpus(milli: int | None) -> int:
    return 0 if milli is None or milli % _MILLI else milli // _MILLI


def _qos(pod: Pod) -> QoS:
    if pod.resources is not None:
        return pod.resources.qos
    classes = {container.resources.qos for container in pod.all_containers} or {QoS.BEST_EFFORT}
    return classes.pop() if len(classes) == 1 else QoS.BURSTABLE
