"""A pod's way in: hints, merge, admit, container by container or for the pod as a whole."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from pinfold.core.hints import Hint
from pinfold.core.pods import ContainerRef
from pinfold.core.topologymanager import TopologyAffinityError
from pinfold.core.topologyoptions import TopologyPolicy
from pinfold.errors import AdmissionError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from pinfold.core.hints import Hints
    from pinfold.core.pods import Pod, PodUID
    from pinfold.core.policies.base import Decision, Policy
    from pinfold.core.state import State
    from pinfold.core.topologymanager import TopologyManager

    Resource = Mapping[str, Hints | None]


class Scope(StrEnum):
    """What is aligned: each container by itself, or the pod as a whole."""

    CONTAINER = "container"
    POD = "pod"


class Admission(NamedTuple):
    """What came of a pod that asked to be let in."""

    state: State
    """After a refusal too: what earlier containers of the pod got stays until stale state is collected."""
    decisions: Mapping[str, Decision]
    """By container, in the order of admission."""
    affinity: Mapping[str, Hint]
    """The hints by which CPUs were given, by container; those not asked about are left out."""
    refusal: AdmissionError | None = None
    container: str | None = None
    """The container that was refused; None if it was the pod as a whole."""


class Admitter(NamedTuple):
    """Lets pods in, with one policy and one Topology Manager."""

    policy: Policy
    manager: TopologyManager
    scope: Scope = Scope.CONTAINER

    def admit(self, state: State, pod: Pod, others: Sequence[Resource] = ()) -> Admission:
        """Return what becomes of *pod*; *others* are the hints of other resources (devices, memory)."""
        if self.manager.policy is TopologyPolicy.NONE:
            return self._each(state, pod, lambda _state, _container: NO_HINT)
        if self.scope is Scope.POD:
            return self._as_a_whole(state, pod, others)

        def merged(state: State, index: int) -> Hint:
            container = pod.all_containers[index]
            return self._merge(self.policy.hints(state, pod, container), others)

        return self._each(state, pod, merged)

    def _merge(self, cpus: Hints | None, others: Sequence[Resource]) -> Hint:
        admit, hint = self.manager.merge([{"cpu": cpus} if cpus is not None else {}, *others])
        if not admit:
            raise TopologyAffinityError(hint)
        return hint

    def _as_a_whole(self, state: State, pod: Pod, others: Sequence[Resource]) -> Admission:
        try:
            hint = self._merge(self.policy.pod_hints(state, pod), others)
        except TopologyAffinityError as refusal:
            return Admission(state, {}, {}, refusal)
        if pod.resources is None:
            return self._each(state, pod, lambda _state, _index: hint)
        try:
            decision = self.policy.admit_pod(state, pod, hint.affinity)
        except AdmissionError as refusal:
            return Admission(state, {}, dict.fromkeys(_names(pod), hint), refusal)
        return Admission(decision.state, {}, dict.fromkeys(_names(pod), hint))

    def _each(self, state: State, pod: Pod, hint_for: Callable[[State, int], Hint]) -> Admission:
        decisions: dict[str, Decision] = {}
        affinity: dict[str, Hint] = {}
        for index, container in enumerate(pod.all_containers):
            try:
                hint = affinity[container.name] = hint_for(state, index)
                decision = self.policy.admit(state, pod, container, hint.affinity)
            except AdmissionError as refusal:
                return Admission(state, decisions, affinity, refusal, container.name)
            decisions[container.name] = decision
            state = decision.state
        return Admission(state, decisions, affinity)


NO_HINT = Hint(None, preferred=False)


def collect(policy: Policy, state: State, active: Collection[PodUID]) -> State:
    """Return the State without the Assignments of pods that are no longer active."""
    for pod, containers in state.assignments.items():
        if pod not in active:
            for name in containers:
                state = policy.release(state, ContainerRef(pod, name)).state
    return state


def _names(pod: Pod) -> list[str]:
    return [container.name for container in pod.all_containers]
