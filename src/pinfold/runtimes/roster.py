"""Roster: the pods and containers of a node, as their sources report them; values, derived once for each pod.

It decides nothing, asks nothing and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.localmemory import asks_for_local_memory
from pinfold.core.pods.pod import ContainerRef, QoS
from pinfold.core.reconcile import NONE
from pinfold.core.topologymanager.others import NO_OTHERS
from pinfold.errors import PinfoldError
from pinfold.formats.pods.annotations import NO_OVERRIDES, PREFIX, Overrides, parse_annotations
from pinfold.formats.pods.runtime import Phase, build_pod, is_current, is_workload, latest, ref_of, told_uid

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from pinfold.core.pods.pod import Container, Pod, PodUID
    from pinfold.core.reconcile import Limit
    from pinfold.core.topologymanager.others import OtherHints
    from pinfold.formats.pods.runtime import RuntimeContainer, RuntimePod

    Lookup = Callable[[RuntimePod], Pod | None]

LIVE: Final = frozenset({Phase.CREATED, Phase.RUNNING})
_DONE: Final = frozenset({Phase.STOPPED, Phase.ENDED})


class Known(NamedTuple):
    """What follows from all reports about a pod."""

    pod: Pod | None
    """None for a pod that pinfold does not manage."""
    whole: bool = False
    """Whether all its containers are known, not only those that have come."""
    live: tuple[tuple[ContainerRef, RuntimeContainer], ...] = ()
    """Its containers that run or are about to: the last start of each."""
    local_memory: bool = False
    """Whether its exclusive containers get memory only from the NUMA nodes of their CPUs."""
    movable: bool = True
    """Whether its exclusive CPUs may change while it runs."""
    wrong: PinfoldError | None = None
    """Why none of its containers may start."""
    cache_class: str = ""
    """The cache class that its exclusive containers ask for; empty if none."""
    limits: Mapping[ContainerRef, Limit] = NONE
    """The weights and quotas of its containers in the shared pool, where pinfold makes their groups."""

    @property
    def guaranteed(self) -> bool:
        """Whether it is in the class whose containers can have exclusive CPUs."""
        return self.pod is not None and self.pod.qos is QoS.GUARANTEED


UNKNOWN: Final = Known(None)


class Roster:
    """Pods and containers by their runtime's own ids; *lookup* is what else is known of a pod."""

    def __init__(self, lookup: Lookup = lambda _pod: None, *, local_memory: bool = False) -> None:
        """*local_memory*: pods whose annotations say nothing about it get local memory."""
        self.pods: dict[str, RuntimePod] = {}
        self.containers: dict[str, RuntimeContainer] = {}
        self.version = 0
        """Another one after each report."""
        self.held: dict[str, OtherHints] = {}
        """The other resources (devices, memory) of the pods that are here, by UID, where a source reports them."""
        self.is_complete = False
        """Whether a source has ever reported everything that runs."""
        self._lookup = lookup
        self.limits: Callable[[Container], Limit] | None = None
        """Returns the weight and quota of a container that shares; None where pinfold does not make its group."""
        self._local_memory = local_memory
        self._ids: dict[str, set[str]] = {}
        """The runtime's own names for the pod with a UID: more than one while its sandbox is replaced."""
        self._of_pod: dict[str, dict[str, RuntimeContainer]] = {}
        self._known: dict[str, Known] = {}

    def limit_by(self, limits: Callable[[Container], Limit] | None) -> None:
        """Use other limits from now on."""
        self.limits = limits
        self._known.clear()

    # -- reports from sources

    def know_pod(self, pod: RuntimePod) -> None:
        """Record a pod, or what is new about it."""
        before = self.pods.get(pod.id)
        if before is not None and told_uid(before) != told_uid(pod):
            self._drop(pod.id)
        self.pods[pod.id] = pod
        self._ids.setdefault(told_uid(pod), set()).add(pod.id)
        self._known.pop(pod.id, None)
        self.version += 1

    def know(self, container: RuntimeContainer) -> None:
        """Record a container, or what is new about it."""
        before = self.containers.get(container.id)
        if before is not None and before.pod != container.pod:
            self.forget(container.id)
        self.containers[container.id] = container
        self._of_pod.setdefault(container.pod, {})[container.id] = container
        self._known.pop(container.pod, None)
        self.version += 1

    def forget(self, container_id: str) -> None:
        """Forget a container that is gone."""
        container = self.containers.pop(container_id, None)
        if container is not None:
            self._of_pod.get(container.pod, {}).pop(container_id, None)
            self._known.pop(container.pod, None)
            self.version += 1

    def forget_pod(self, pod_id: str) -> None:
        """Forget a pod that is gone, and its containers."""
        self._drop(pod_id)
        self._known.pop(pod_id, None)
        self.version += 1
        for container_id in self._of_pod.pop(pod_id, ()):
            self.containers.pop(container_id, None)

    def _drop(self, pod_id: str) -> None:
        pod = self.pods.pop(pod_id, None)
        if pod is not None:
            ids = self._ids[told_uid(pod)]
            ids.discard(pod_id)
            if not ids:
                del self._ids[told_uid(pod)]
                self.held.pop(told_uid(pod), None)

    def replace_all(self, pods: Iterable[RuntimePod], containers: Iterable[RuntimeContainer]) -> None:
        """Forget everything but these: they are all that runs."""
        self.pods, self._ids, self.containers, self._of_pod, self._known = {}, {}, {}, {}, {}
        self.version += 1
        for pod in pods:
            self.know_pod(pod)
        for container in filter(is_workload, containers):
            self.know(container)
        self.held = {uid: held for uid, held in self.held.items() if uid in self._ids}
        self.is_complete = True

    # -- what follows from them

    def of(self, pod_id: str) -> Known:
        """Return what is known of a pod, by its runtime's own name for it."""
        known = self._known.get(pod_id)
        if known is None:
            known = self._known[pod_id] = self._work_out(pod_id)
        return known

    def containers_of(self, pod_id: str) -> Collection[RuntimeContainer]:
        """Return a pod's containers as reported, each start of each."""
        return self._of_pod.get(pod_id, {}).values()

    def refs(self, pod_id: str) -> list[ContainerRef]:
        """Return the identities of a pod's containers."""
        pod = self.of(pod_id).pod
        return [] if pod is None else [pod.ref(container) for container in pod.all_containers]

    def ref(self, container_id: str) -> ContainerRef | None:
        """Return a container's identity; None if pinfold does not manage it."""
        container = self.containers.get(container_id)
        if container is None or self.of(container.pod).pod is None:
            return None
        return _ref(self.pods[container.pod], container)

    def due(self, pod_id: str, name: str) -> list[str] | None:
        """Return the containers to decide on when *name* arrives; None means all, if the whole pod is known."""
        if not self.of(pod_id).whole:
            return [name]
        going_on = self.going_on(pod_id)
        if going_on is self.of(pod_id).pod:
            return None
        return list(dict.fromkeys([*(container.name for container in going_on.all_containers), name]))

    def going_on(self, pod_id: str) -> Pod:
        """Return a pod with the containers that run or will run: finished init containers are left out."""
        pod = self.of(pod_id).pod
        assert pod is not None  # noqa: S101 - for mypy: callers have looked
        last = latest(self.containers_of(pod_id))
        done = {one.name for one in pod.init if not one.sidecar and one.name in last and last[one.name].phase in _DONE}
        return pod.only({container.name for container in pod.all_containers} - done)

    def find_pods(self, uid: str) -> list[str]:
        """Return the runtime's own names for a pod, none if there is no such pod here."""
        found = self._ids.get(uid, ())
        return sorted(found) if len(found) > 1 else [*found]

    def find(self, ref: ContainerRef) -> RuntimeContainer | None:
        """Return the last start of a container, if it runs or is about to."""
        live = (found for pod_id in self.find_pods(ref.pod) for found in self.of(pod_id).live)
        return next((container for identity, container in live if identity == ref), None)

    def live(self) -> Iterator[tuple[ContainerRef, RuntimeContainer]]:
        """Yield the containers that run or are about to, each once: the last start of each."""
        for pod_id in self.pods:
            yield from self.of(pod_id).live

    def known_pods(self) -> dict[PodUID, Pod]:
        """Return the pods that pinfold manages."""
        found = (self.of(pod_id).pod for pod_id in self.pods)
        return {pod.uid: pod for pod in found if pod is not None}

    def others(self, pod: Pod) -> OtherHints:
        """Return the hints of a pod's other resources."""
        return self.held.get(pod.uid, NO_OTHERS)

    def _work_out(self, pod_id: str) -> Known:
        """Return what follows; a pod whose annotations are wrong counts as one without: its containers share."""
        found = self.pods.get(pod_id)
        if found is None:
            return UNKNOWN
        lookup = found.spec or self._lookup(found)
        pod, overrides, wrong = (
            _of_spec(found.spec) if found.spec else _build(found, self.containers_of(pod_id), lookup)
        )
        if pod is None:
            return Known(None, wrong=wrong)
        last = latest(self.containers_of(pod_id)).values()
        live = tuple((_ref(found, container), container) for container in last if container.phase in LIVE)
        return Known(
            pod,
            whole=is_current(pod, lookup),
            live=live,
            local_memory=self._local_memory if overrides.local_memory is None else overrides.local_memory,
            movable=overrides.movable,
            wrong=wrong,
            cache_class=overrides.cache_class,
            limits={} if self.limits is None else {pod.ref(one): self.limits(one) for one in pod.all_containers},
        )


def _build(
    found: RuntimePod, containers: Collection[RuntimeContainer], lookup: Pod | None
) -> tuple[Pod | None, Overrides, PinfoldError | None]:
    """Return a pod from all that is known of it, what its annotations change, and what is wrong with them."""
    try:
        asked = parse_annotations(found.annotations, source=f"pod {found.namespace}/{found.name}")
        pod = None if asked.exclude else build_pod(found, containers, known=lookup, overrides=asked)
    except PinfoldError as error:
        wrong = error
    else:
        return pod, asked, None
    try:
        return build_pod(found, containers, known=lookup), NO_OVERRIDES, wrong
    except PinfoldError:
        return None, NO_OVERRIDES, wrong


def _of_spec(pod: Pod) -> tuple[Pod, Overrides, None]:
    """Return a whole pod with those of its annotations that do not concern a container runtime."""
    if not pod.annotations:
        return pod, NO_OVERRIDES, None
    movable = pod.annotations.get(f"{PREFIX}movable") != "false"
    cache_class = pod.annotations.get(f"{PREFIX}cache-class", "")
    overrides = Overrides(movable=movable, local_memory=asks_for_local_memory(pod), cache_class=cache_class)
    return pod, overrides, None


def _ref(pod: RuntimePod, container: RuntimeContainer) -> ContainerRef:
    """Return a container's identity; names from a container runtime are checked, a whole pod was checked before."""
    return ref_of(pod, container) if pod.spec is None else ContainerRef(pod.spec.uid, container.name)
