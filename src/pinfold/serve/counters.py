"""Counters: what a node has done since it started, counted from its Decisions and refusals.

It is told afterwards, decides nothing, and keeps no names of pods: only of those that are here, to count each once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.cpuset import EMPTY
from pinfold.core.pods import exclusive_cpus, exclusive_pod_cpus
from pinfold.core.policies.options import DEFAULT
from pinfold.core.topologymanager import TopologyAffinityError
from pinfold.core.topologyoptions import TopologyPolicy
from pinfold.serve import metricstable as rows
from pinfold.serve.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pinfold.core.admission import Admission, Admitter
    from pinfold.core.cpuset import CPUSet
    from pinfold.core.pods import Container, ContainerRef, Pod, PodUID
    from pinfold.core.policies.options import Options
    from pinfold.core.reconcile import Drift, Wanted
    from pinfold.core.state import State

_MOST_PODS: Final = 4096
_MILLI: Final = 1000
_CPU: Final = "cpu"
_OTHER: Final = "other"


class _Rules(NamedTuple):
    """What of an Admitter decides how its admissions are counted."""

    options: Options
    pod_level: bool
    guaranteed: bool
    """Whether whoever is let in is on one NUMA node."""
    scope: str
    topology_manager: bool
    caches: Sequence[int]
    """The masks of the uncore caches."""


class Counters:
    """Everything that is counted; made once for each daemon, and told by the Manager."""

    def __init__(self, admitter: Admitter, now: float, links: Collection[str] = ("connected",)) -> None:
        """*links* are the states of the connection to the runtime in which it can be reached."""
        self.tally = Tally()
        self.drift_left = 0
        self._links = links
        self._rules = _rules(admitter)
        self._here: dict[PodUID, set[str]] = {}
        """Pods that were let in, oldest first, and the containers of each that have come."""
        self._connected = False
        self._looked = now
        """When somebody last looked, and all was well from then on."""

    # -- what the Manager tells

    def reconfigured(self, admitter: Admitter) -> None:
        """Go on counting under another configuration."""
        self._rules = _rules(admitter)

    def decided(self, seconds: float) -> None:
        """Count how long a decision took."""
        self.tally.observe(rows.DECISION_SECONDS, seconds)

    def admitted(self, pod: Pod, before: State, admission: Admission, seconds: float, *, ok: bool = True) -> None:
        """Count what became of a pod, on top of the State *before*; not *ok*: it was decided, but not applied."""
        come = self._count_pod(pod)
        self.tally.observe(rows.ADMISSION_MS, seconds * _MILLI)
        if self._is_whole(pod):
            self._count_whole(pod, before, admission, ok=ok)
        else:
            self._count_containers(pod, before, admission, ok=ok)
        if self._rules.guaranteed:
            self._count_numa(come, admission, ok=ok)
        self._here[pod.uid] |= admission.decisions.keys() | {""}
        if admission.refusal is not None or not ok:
            self._count_error(pod, admission)

    def released(self, containers: Collection[ContainerRef]) -> None:
        """Count containers that are gone."""
        self.tally.add(rows.RELEASES, by=len(containers))
        for container in containers:
            self._here.pop(container.pod, None)

    def saved(self, seconds: float, *, ok: bool = True) -> None:
        """Count a State that was saved, or could not be."""
        self.tally.add(rows.SAVES if ok else rows.SAVE_FAILURES)
        self.tally.observe(rows.SAVE_SECONDS, seconds)

    def applied(self, seconds: float, *, ok: bool = True) -> None:
        """Count a State that was applied and verified, or could not be."""
        self.tally.observe(rows.APPLY_SECONDS, seconds, "ok" if ok else "failed")

    def looked(self, want: Wanted, found: Sequence[Drift], left: Sequence[Drift], now: float) -> None:
        """Count what a close look at the node has found, and what of it could not be put right."""
        still = {difference.container for difference in left}
        for difference in found:
            if difference.container not in still:
                self.drift(_cause(want, difference))
        self.drift_left = len(left)
        if any(_overlaps(want, difference) for difference in found):
            self.tally.add(rows.OVERLAP, by=max(now - self._looked, 0.0))
        self._looked = now

    # -- what others tell

    def drift(self, cause: str) -> None:
        """Count something that had drifted, and was put right."""
        self.tally.add(rows.DRIFT_REPAIRS, cause if cause in rows.CAUSES else _OTHER)

    def unpinned(self, seconds: float) -> None:
        """Count for how long a container ran before it had its CPUs."""
        self.tally.add(rows.UNPINNED_CONTAINERS)
        self.tally.add(rows.UNPINNED, by=max(seconds, 0.0))

    def disconnected(self) -> None:
        """Count a lost connection to the runtime."""
        self.tally.add(rows.DISCONNECTS)

    def linked(self, *, connected: bool) -> None:
        """Count the connection to the runtime when it is lost; attempts to get it back are not counted."""
        if self._connected and not connected:
            self.disconnected()
        self._connected = connected

    def heard(self, what: str, fields: Mapping[str, object]) -> None:
        """Count what is told in notes, and by no Manager."""
        match what:
            case "ran-unpinned":
                seconds = fields.get("seconds")
                self.unpinned(seconds if isinstance(seconds, int | float) else 0.0)
            case "lost-update":
                self.drift("lost_update")
            case "runtime":
                self.linked(connected=fields.get("link") in self._links)

    # -- a pod's way in

    def _count_pod(self, pod: Pod) -> Collection[str]:
        """Count a pod that is new here, and return which of its containers have come before."""
        if pod.uid not in self._here:
            self.tally.add(rows.ADMISSIONS)
            self._here[pod.uid] = set()
            if len(self._here) > _MOST_PODS:
                del self._here[next(iter(self._here))]
        return self._here[pod.uid]

    def _count_error(self, pod: Pod, admission: Admission) -> None:
        if admission.refusal is not None:
            reason = admission.refusal.reason
            self.tally.add(rows.REFUSALS, reason if reason in rows.REASONS else _OTHER)
        # The reference goes past its Topology Manager under policy none, and counts no errors then.
        self.tally.add(rows.ADMISSION_ERRORS, by=int(self._rules.topology_manager))
        del self._here[pod.uid]  # if it comes again, that is another request

    def _count_containers(self, pod: Pod, before: State, admission: Admission, *, ok: bool) -> None:
        held = before.assignments.get(pod.uid, {})
        for container in pod.all_containers:
            if container.name in held or not exclusive_cpus(pod, container, pod_level=self._rules.pod_level):
                continue
            decision = admission.decisions.get(container.name)
            if decision is not None and decision.cpus is not None:
                self._count_container(decision.cpus if ok else None)
            elif self._was_asked(container, admission):
                self._count_container(None)

    def _was_asked(self, container: Container, admission: Admission) -> bool:
        """Whether the policy has refused this container; the Topology Manager refuses before it is asked."""
        refused_before = isinstance(admission.refusal, TopologyAffinityError)
        return admission.container == container.name and not refused_before

    def _count_container(self, cpus: CPUSet | None) -> None:
        """Count a container that got CPUs of the node, or None."""
        self.tally.add(rows.PINNING_REQUESTS)
        if self._rules.options.full_pcpus_only:
            self.tally.add(rows.NOT_ALIGNED if cpus is None else rows.ALIGNED, "container", "physical_cpu")
        if cpus is None:
            self.tally.add(rows.PINNING_ERRORS)
            self.tally.add(rows.ALLOCATION_ERRORS, _CPU, "node")
            return
        self._count_cache(cpus)
        self.tally.add(rows.ALLOCATIONS, _CPU, "node")
        self.tally.add(rows.CONTAINER_ASSIGNMENTS, _CPU, "node_exclusive")

    def _is_whole(self, pod: Pod) -> bool:
        """Whether the pod asks for CPUs as a whole."""
        whole = pod.resources is not None and self._rules.scope == "pod" and self._rules.topology_manager
        return whole and exclusive_pod_cpus(pod, pod_level=self._rules.pod_level) > 0

    def _count_whole(self, pod: Pod, before: State, admission: Admission, *, ok: bool) -> None:
        if pod.uid in before.pods or isinstance(admission.refusal, TopologyAffinityError):
            return
        if admission.refusal is not None or not ok:
            self.tally.add(rows.PINNING_ERRORS)
            self.tally.add(rows.ALLOCATION_ERRORS, _CPU, "pod")
            return
        self._count_cache(admission.state.pods[pod.uid])
        for container in pod.all_containers:
            alone = exclusive_cpus(pod, container, pod_level=True) > 0
            self.tally.add(rows.PINNING_REQUESTS, by=int(alone))
            self.tally.add(rows.CONTAINER_ASSIGNMENTS, _CPU, "pod_exclusive" if alone else "pod_shared")
            self.tally.add(rows.ALLOCATIONS, _CPU, "pod")

    def _count_cache(self, cpus: CPUSet) -> None:
        if any(not cpus.mask & ~cache for cache in self._rules.caches):
            self.tally.add(rows.ALIGNED, "container", "uncore_cache")

    def _count_numa(self, come: Collection[str], admission: Admission, *, ok: bool) -> None:
        """Count by scope; only where the Topology Manager sees to it that whoever comes in is on one node."""
        scope = self._rules.scope
        if isinstance(admission.refusal, TopologyAffinityError):
            self.tally.add(rows.NOT_ALIGNED, scope, "numa_node")
        if ok and scope == "container":
            self.tally.add(rows.ALIGNED, scope, "numa_node", by=len(admission.decisions.keys() - come))
        elif ok and admission.refusal is None:
            self.tally.add(rows.ALIGNED, scope, "numa_node", by=int(not come))


def _rules(admitter: Admitter) -> _Rules:
    policy, manager = admitter.policy, admitter.manager
    machine = getattr(policy, "machine", None)  # policy none has none, and gives no CPUs
    return _Rules(
        options=getattr(policy, "options", DEFAULT),
        pod_level=getattr(policy, "pod_level", False),
        guaranteed=manager.policy is TopologyPolicy.SINGLE_NUMA_NODE,
        scope=str(admitter.scope),
        topology_manager=manager.policy is not TopologyPolicy.NONE,
        caches=() if machine is None else [cache.mask for cache in machine.topology.uncore_caches],
    )


def _cause(want: Wanted, difference: Drift) -> str:
    if difference.container is None:
        return "pool"
    return "exclusive" if difference.container in want.exclusive else "shared"


def _overlaps(want: Wanted, difference: Drift) -> bool:
    """Whether somebody was on CPUs that belong to a container of another pod."""
    who = difference.container
    taken = EMPTY
    for owner, cpus in want.exclusive.items():
        if who is None or owner.pod != who.pod:
            taken |= cpus
    return bool(difference.found & taken)
