"""Admissions: counts the admissions and refusals of pods, as the kubelet counts them.

It decides nothing, and keeps only the UIDs of the pods on the node, so that each pod is counted once, even if its
containers come one by one, or again after a refusal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.pods.pod import exclusive_cpus, exclusive_pod_cpus
from pinfold.core.topologymanager.manager import TopologyAffinityError
from pinfold.core.topologymanager.options import TopologyPolicy
from pinfold.serve.metrics import table as rows

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pinfold.core.admission import Admission, Admitter
    from pinfold.core.events.measures import Judged
    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import Container, ContainerRef, Pod, PodUID
    from pinfold.core.policies.options import Options
    from pinfold.serve.metrics.tally import Tally

_MOST_PODS: Final = 4096
_MILLI: Final = 1000
_CPU: Final = "cpu"
_OTHER: Final = "other"


class _Rules(NamedTuple):
    """The properties of an Admitter that decide how its admissions are counted."""

    options: Options
    pod_level: bool
    guaranteed: bool
    """Whether every admitted pod is on one NUMA node."""
    scope: str
    topology_manager: bool
    caches: Sequence[int]
    """The masks of the uncore caches."""


class Admissions:
    """Counts pods on their way in, and out again."""

    def __init__(self, tally: Tally, admitter: Admitter) -> None:
        self._tally = tally
        self._rules = _rules(admitter)
        self._here: dict[PodUID, set[str]] = {}
        """The admitted pods, oldest first, and the containers of each that have come."""

    def configured(self, admitter: Admitter) -> None:
        """Go on counting under another configuration."""
        self._rules = _rules(admitter)

    def judged(self, event: Judged) -> None:
        """Count the outcome for a pod; a kubelet asks again and again for one that was refused, and counts once."""
        pod = event.pod
        if event.admission.refusal is not None and event.again:
            return
        come = self._count_pod(event)
        self._tally.observe(rows.ADMISSION_MS, event.seconds * _MILLI)
        if self._is_whole(pod):
            self._count_whole(event)
        else:
            self._count_containers(event)
        if self._rules.guaranteed:
            self._count_numa(come, event.admission, ok=event.ok)
        self._here[pod.uid] |= event.admission.decisions.keys() | {""}
        if event.admission.refusal is not None or not event.ok:
            self._count_error(event)

    def left(self, containers: Collection[ContainerRef]) -> None:
        """Count containers that are gone."""
        self._tally.add(rows.RELEASES, by=len(containers))
        for container in containers:
            self.gone(container.pod)

    def gone(self, pod: PodUID) -> None:
        """Forget a pod that has left; its containers may have been removed before it."""
        self._here.pop(pod, None)

    def _count_pod(self, event: Judged) -> Collection[str]:
        """Count a pod that is new here, and return which of its containers have come before."""
        uid = event.pod.uid
        if uid not in self._here:
            self._tally.add(rows.ADMISSIONS, by=int(not event.again))
            self._here[uid] = set()
            if len(self._here) > _MOST_PODS:
                del self._here[next(iter(self._here))]
        return self._here[uid]

    def _count_error(self, event: Judged) -> None:
        if event.admission.refusal is not None:
            reason = event.admission.refusal.reason
            self._tally.add(rows.REFUSALS, reason if reason in rows.REASONS else _OTHER)
        # The reference goes past its Topology Manager under policy none, and counts no errors then.
        self._tally.add(rows.ADMISSION_ERRORS, by=int(self._rules.topology_manager and not event.again))
        del self._here[event.pod.uid]  # if it comes again, that is another request

    # -- container by container

    def _count_containers(self, event: Judged) -> None:
        pod, admission = event.pod, event.admission
        held = event.before.assignments.get(pod.uid, {})
        for container in pod.all_containers:
            if container.name in held or not exclusive_cpus(pod, container, pod_level=self._rules.pod_level):
                continue
            decision = admission.decisions.get(container.name)
            if decision is not None and decision.cpus is not None:
                self._count_container(decision.cpus if event.ok else None)
            elif _was_asked(container, admission):
                self._count_container(None)

    def _count_container(self, cpus: CPUSet | None) -> None:
        """Count a container that got CPUs of the node, or None."""
        self._tally.add(rows.PINNING_REQUESTS)
        if self._rules.options.full_pcpus_only:
            self._tally.add(rows.NOT_ALIGNED if cpus is None else rows.ALIGNED, "container", "physical_cpu")
        if cpus is None:
            self._tally.add(rows.PINNING_ERRORS)
            self._tally.add(rows.ALLOCATION_ERRORS, _CPU, "node")
            return
        self._count_cache(cpus)
        self._tally.add(rows.ALLOCATIONS, _CPU, "node")
        self._tally.add(rows.CONTAINER_ASSIGNMENTS, _CPU, "node_exclusive")

    def _count_cache(self, cpus: CPUSet) -> None:
        if any(not cpus.mask & ~cache for cache in self._rules.caches):
            self._tally.add(rows.ALIGNED, "container", "uncore_cache")

    # -- as a whole

    def _is_whole(self, pod: Pod) -> bool:
        """Whether the pod asks for CPUs as a whole."""
        whole = pod.resources is not None and self._rules.scope == "pod" and self._rules.topology_manager
        return whole and exclusive_pod_cpus(pod, pod_level=self._rules.pod_level) > 0

    def _count_whole(self, event: Judged) -> None:
        pod, admission = event.pod, event.admission
        if pod.uid in event.before.pods or isinstance(admission.refusal, TopologyAffinityError):
            return
        if admission.refusal is not None or not event.ok:
            self._tally.add(rows.PINNING_ERRORS)
            self._tally.add(rows.ALLOCATION_ERRORS, _CPU, "pod")
            return
        self._count_cache(admission.state.pods[pod.uid])
        for container in pod.all_containers:
            alone = exclusive_cpus(pod, container, pod_level=True) > 0
            self._tally.add(rows.PINNING_REQUESTS, by=int(alone))
            self._tally.add(rows.CONTAINER_ASSIGNMENTS, _CPU, "pod_exclusive" if alone else "pod_shared")
            self._tally.add(rows.ALLOCATIONS, _CPU, "pod")

    def _count_numa(self, come: Collection[str], admission: Admission, *, ok: bool) -> None:
        """Count by scope; only where the Topology Manager keeps every admitted pod on one NUMA node."""
        scope = self._rules.scope
        if isinstance(admission.refusal, TopologyAffinityError):
            self._tally.add(rows.NOT_ALIGNED, scope, "numa_node")
        if ok and scope == "container":
            self._tally.add(rows.ALIGNED, scope, "numa_node", by=len(admission.decisions.keys() - come))
        elif ok and admission.refusal is None:
            self._tally.add(rows.ALIGNED, scope, "numa_node", by=int(not come))


def _was_asked(container: Container, admission: Admission) -> bool:
    """Whether the policy has refused this container; the Topology Manager refuses before it is asked."""
    refused_before = isinstance(admission.refusal, TopologyAffinityError)
    return admission.container == container.name and not refused_before


def _rules(admitter: Admitter) -> _Rules:
    policy, manager = admitter.policy, admitter.manager
    return _Rules(
        options=policy.pools.options,
        pod_level=policy.pod_level,
        guaranteed=manager.policy is TopologyPolicy.SINGLE_NUMA_NODE,
        scope=str(admitter.scope),
        topology_manager=manager.policy is not TopologyPolicy.NONE,
        caches=[cache.mask for cache in policy.pools.topology.uncore_caches],
    )
