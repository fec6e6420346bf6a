"""A pod's way in: hints, merge, admit, container by container or for the pod as a whole."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from pinfold.core.allocators.order import Fidelity
from pinfold.core.hints import Hint
from pinfold.core.pods import ContainerRef
from pinfold.core.topologymanager import TopologyAffinityError
from pinfold.core.topologyoptions import TopologyPolicy
from pinfold.errors import AdmissionError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from pinfold.core.hints import Hints
    from pinfold.core.pods import Container, Pod, PodUID
    from pinfold.core.policies.base import Decision, Policy
    from pinfold.core.state import State
    from pinfold.core.topologymanager import TopologyManager
    from pinfold.core.trace import Recorder

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
    fidelity: Fidelity = Fidelity.PINFOLD

    def admit(self, state: State, pod: Pod, others: Sequence[Resource] = ()) -> Admission:
        """Return what becomes of *pod*; *others* are the hints of other resources (devices, memory)."""
        if self.manager.policy is TopologyPolicy.NONE:
            return self._each(state, pod, lambda _state, _container: _Question((), NO_HINT))
        if self.scope is Scope.POD:
            return self._as_a_whole(state, pod, others)
        return self._each(
            state, pod, lambda state, container: self._ask(self.policy.hints(state, pod, container), others)
        )

    def explain(self, providers: Sequence[Resource], recorder: Recorder) -> None:
        """Tell the recorder how the hints of these resources were merged, and what was passed over."""
        report = self.manager.explain(providers)
        recorder.step(f"hint: {report.hint}", 0, report.reason)
        for resource, hint, preferred in report.contributions:
            recorder.step(
                f"{resource} gave {hint or 'no hint'}", 0, f"prefers {', '.join(map(str, preferred)) or 'none'}"
            )
        for hint in report.passed_over:
            recorder.step(f"passed over hint: {hint}")
        if self.fidelity is Fidelity.KUBELET:
            for defect, what in (*self.manager.defects, *getattr(self.policy, "defects", ())):
                recorder.defect(defect, what)

    def _ask(self, cpus: Hints | None, others: Sequence[Resource]) -> _Question:
        providers = [{"cpu": cpus} if cpus is not None else {}, *others]
        admit, hint = self.manager.merge(providers)
        if not admit:
            refusal = TopologyAffinityError(hint)
            refusal.before = (self.explain, providers)
            raise refusal
        return _Question(providers, hint)

    def _as_a_whole(self, state: State, pod: Pod, others: Sequence[Resource]) -> Admission:
        try:
            question = self._ask(self.policy.pod_hints(state, pod), others)
        except TopologyAffinityError as refusal:
            return Admission(state, {}, {}, refusal)
        if pod.resources is None:
            return self._each(state, pod, lambda _state, _container: question)
        affinity = {container.name: question.hint for container in pod.all_containers}
        try:
            decision = self.policy.admit_pod(state, pod, question.hint.affinity)
        except AdmissionError as refusal:
            refusal.before = (self.explain, question.providers)
            return Admission(state, {}, affinity, refusal)
        return Admission(decision.state, {}, affinity)

    def _each(self, state: State, pod: Pod, ask: Callable[[State, Container], _Question]) -> Admission:
        decisions: dict[str, Decision] = {}
        affinity: dict[str, Hint] = {}
        for container in pod.all_containers:
            asked = None
            try:
                asked = ask(state, container)
                affinity[container.name] = asked.hint
                decision = self.policy.admit(state, pod, container, asked.hint.affinity)
            except AdmissionError as refusal:
                if asked is not None and asked.providers:
                    refusal.before = (self.explain, asked.providers)
                return Admission(state, decisions, affinity, refusal, container.name)
            if asked.providers:
                decision.before = (self.explain, asked.providers)
            decisions[container.name] = decision
            state = decision.state
        return Admission(state, decisions, affinity)


class _Question(NamedTuple):
    """Hints that were merged, and what came of it."""

    providers: Sequence[Resource]
    hint: Hint


NO_HINT = Hint(None, preferred=False)


def collect(policy: Policy, state: State, active: Collection[PodUID]) -> State:
    """Return the State without the Assignments of pods that are no longer active."""
    for pod, containers in state.assignments.items():
        if pod not in active:
            for name in containers:
                state = policy.release(state, ContainerRef(pod, name)).state
    return state
