"""Roster: the pods and containers of a Kubernetes node, as its container runtime has told of them.

Filled over NRI or CRI; decides nothing and asks nobody. What follows from what was told is worked out once for each
pod, and again only when something new is told of that pod.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.pods import QoS
from pinfold.errors import PinfoldError
from pinfold.formats.kubepods import Phase, build_pod, is_workload, latest, ref_of, told_uid
from pinfold.formats.podannotations import NO_OVERRIDES, parse_annotations

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from pinfold.core.pods import ContainerRef, Pod
    from pinfold.formats.kubepods import RuntimeContainer, RuntimePod
    from pinfold.formats.podannotations import Overrides

    Lookup = Callable[[RuntimePod], Pod | None]

LIVE: Final = (Phase.CREATED, Phase.RUNNING)


class _Known(NamedTuple):
    """What follows from all that was told of a pod."""

    pod: Pod | None
    guaranteed: bool
    live: tuple[tuple[ContainerRef, RuntimeContainer], ...]
    local_memory: bool = False
    wrong: PinfoldError | None = None


class Roster:
    """Pods and containers by the runtime's own ids; *lookup* is what else is known of a pod."""

    def __init__(self, lookup: Lookup = lambda _pod: None) -> None:
        self.pods: dict[str, RuntimePod] = {}
        self.containers: dict[str, RuntimeContainer] = {}
        self._lookup = lookup
        self._ids: dict[str, set[str]] = {}
        """The runtime's own names for the pod with a UID: more than one while its sandbox is replaced."""
        self._of_pod: dict[str, dict[str, RuntimeContainer]] = {}
        self._known: dict[str, _Known] = {}

    def know_pod(self, pod: RuntimePod) -> None:
        """Take note of a pod, or of what is new about it."""
        before = self.pods.get(pod.id)
        if before is not None and told_uid(before) != told_uid(pod):
            self._drop(pod.id)
        self.pods[pod.id] = pod
        self._ids.setdefault(told_uid(pod), set()).add(pod.id)
        self._known.pop(pod.id, None)

    def know(self, container: RuntimeContainer) -> None:
        """Take note of a container, or of what is new about it."""
        before = self.containers.get(container.id)
        if before is not None and before.pod != container.pod:
            self.forget(container.id)
        self.containers[container.id] = container
        self._of_pod.setdefault(container.pod, {})[container.id] = container
        self._known.pop(container.pod, None)

    def forget(self, container_id: str) -> None:
        """Forget a container that is gone."""
        container = self.containers.pop(container_id, None)
        if container is not None:
            self._of_pod.get(container.pod, {}).pop(container_id, None)
            self._known.pop(container.pod, None)

    def forget_pod(self, pod_id: str) -> None:
        """Forget a pod that is gone, and its containers."""
        self._drop(pod_id)
        self._known.pop(pod_id, None)
        for container_id in self._of_pod.pop(pod_id, ()):
            self.containers.pop(container_id, None)

    def _drop(self, pod_id: str) -> None:
        pod = self.pods.pop(pod_id, None)
        if pod is not None:
            ids = self._ids[told_uid(pod)]
            ids.discard(pod_id)
            if not ids:
                del self._ids[told_uid(pod)]

    def replace_all(self, pods: Iterable[RuntimePod], containers: Iterable[RuntimeContainer]) -> None:
        """Forget everything but these."""
        self.pods, self._ids, self.containers, self._of_pod, self._known = {}, {}, {}, {}, {}
        for pod in pods:
            self.know_pod(pod)
        for container in filter(is_workload, containers):
            self.know(container)

    def pod(self, pod_id: str) -> Pod | None:
        """Return the pod with all that is known of it; None if it is none of ours: not of Kubernetes, or excluded."""
        return self._of(pod_id).pod

    def is_guaranteed(self, pod_id: str) -> bool:
        """Whether it is a pod of ours in the class of those that can have exclusive containers."""
        return self._of(pod_id).guaranteed

    def wants_local_memory(self, pod_id: str) -> bool:
        """Whether its exclusive containers are to have memory of the NUMA nodes of their CPUs alone."""
        return self._of(pod_id).local_memory

    def containers_of(self, pod_id: str) -> Collection[RuntimeContainer]:
        """Return what was told of a pod's containers, each start of each."""
        return self._of_pod.get(pod_id, {}).values()

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
        wrong = self._of(pod_id).wrong
        if wrong is not None:
            raise wrong

    def find_pods(self, uid: str) -> list[str]:
        """Return the runtime's own names for a pod, none if there is no such pod here."""
        return sorted(self._ids.get(uid, ()))

    def find(self, ref: ContainerRef) -> RuntimeContainer | None:
        """Return the last start of a container of ours, if it runs or is about to."""
        live = (found for pod_id in self.find_pods(ref.pod) for found in self._of(pod_id).live)
        return next((container for identity, container in live if identity == ref), None)

    def live(self) -> Iterator[tuple[ContainerRef, RuntimeContainer]]:
        """Yield the containers of ours that run or are about to, each once: the last start of each."""
        for pod_id in self.pods:
            yield from self._of(pod_id).live

    def _of(self, pod_id: str) -> _Known:
        known = self._known.get(pod_id)
        if known is None:
            known = self._known[pod_id] = self._work_out(pod_id)
        return known

    def _work_out(self, pod_id: str) -> _Known:
        """Return what follows; of a pod whose annotations are wrong as if it had none: it shares like everyone else."""
        found = self.pods.get(pod_id)
        if found is None:
            return _Known(None, guaranteed=False, live=())
        pod, overrides, wrong = self._build(found)
        if pod is None:
            return _Known(None, guaranteed=False, live=(), wrong=wrong)
        last = latest(self.containers_of(pod_id)).values()
        live = tuple((ref_of(found, container), container) for container in last if container.phase in LIVE)
        return _Known(pod, pod.qos is QoS.GUARANTEED, live, overrides.local_memory, wrong)

    def _build(self, found: RuntimePod) -> tuple[Pod | None, Overrides, PinfoldError | None]:
        containers, known = self.containers_of(found.id), self._lookup(found)
        try:
            asked = parse_annotations(found.annotations, source=f"pod {found.namespace}/{found.name}")
            pod = None if asked.exclude else build_pod(found, containers, known=known, overrides=asked)
        except PinfoldError as error:
            wrong = error
        else:
            return pod, asked, None
        try:
            return build_pod(found, containers, known=known), NO_OVERRIDES, wrong
        except PinfoldError:
            return None, NO_OVERRIDES, wrong
