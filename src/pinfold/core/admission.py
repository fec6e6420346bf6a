"""The one way to a decision: a pod and which of its containers are due go through the Topology Manager to the policy.

The planner, a first admission, a trial, and a new admission after a reload, a hotplug or a crash all call `admit`.
A container that runs gets another number of CPUs by `resize`, through the same Topology Manager.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.allocators.order import Fidelity
from pinfold.core.moving.resizing import NotResized
from pinfold.core.moving.running import NotResizable
from pinfold.core.policies.base import Decision
from pinfold.core.topologymanager.hint import Hint
from pinfold.core.topologymanager.manager import TopologyAffinityError
from pinfold.core.topologymanager.options import TopologyPolicy
from pinfold.core.topologymanager.others import NO_OTHERS, WHOLE
from pinfold.core.trace import Recorder
from pinfold.errors import AdmissionError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from pinfold.core.pods.pod import Container, ContainerRef, Pod
    from pinfold.core.policies.base import Policy
    from pinfold.core.state import State
    from pinfold.core.topologymanager.hint import Hints
    from pinfold.core.topologymanager.manager import TopologyManager
    from pinfold.core.topologymanager.others import OtherHints, Resource
    from pinfold.core.trace import Trace

    Recorders = dict[str, Recorder]


class Scope(StrEnum):
    """What the Topology Manager aligns: each container by itself, or the pod as a whole."""

    CONTAINER = "container"
    POD = "pod"


class Admission(NamedTuple):
    """The answer for one pod: admitted or refused, and the State afterwards."""

    state: State
    """After a refusal, earlier containers of the pod keep their CPUs here until stale state is collected."""
    decisions: Mapping[str, Decision]
    """By container, in the order of admission."""
    affinity: Mapping[str, Hint]
    """The merged hint of each container that was decided."""
    refusal: AdmissionError | None = None
    container: str | None = None
    """The refused container; None if the pod was refused as a whole."""
    others: OtherHints = NO_OTHERS
    """The hints of the pod's other resources afterwards."""


class Asked(NamedTuple):
    """What else the pod of a container asks for when the container is resized."""

    others: OtherHints = NO_OTHERS
    """The hints of other resources (devices, memory)."""
    annotations: Mapping[str, str] = MappingProxyType({})
    """They ask for options."""


NOTHING_ASKED: Final = Asked()


class Admitter(NamedTuple):
    """Admits pods, with one policy and one Topology Manager."""

    policy: Policy
    manager: TopologyManager
    scope: Scope = Scope.CONTAINER
    fidelity: Fidelity = Fidelity.PINFOLD

    def admit(
        self,
        state: State,
        pod: Pod,
        *,
        due: Collection[str] | None = None,
        others: OtherHints = NO_OTHERS,
        recorders: Recorders | None = None,
    ) -> Admission:
        """Admit or refuse the *due* containers of *pod* together; all containers are due by default.

        Containers that are not due are ignored. If one of them has CPUs already, it keeps them, and the due ones are
        aligned with it. *others* are the hints of other resources (devices, memory). *recorders*, one for each
        container, collect the steps.
        """
        if due is not None:
            pod = pod.only({*due, *state.assignments.get(pod.uid, ())})
        if self.manager.policy is TopologyPolicy.NONE:
            if others and others.is_asked:
                return self._aligning().admit(state, pod, others=others, recorders=recorders)
            return self._each(state, pod, lambda *_: _Question((), NO_HINT), others, recorders)
        if self.scope is Scope.POD:
            return self._as_a_whole(state, pod, others, recorders)

        def ask(state: State, container: Container, others: OtherHints) -> _Question:
            return self._ask(self.policy.hints(state, pod, container), others, container.name)

        return self._each(state, pod, ask, others, recorders)

    def resize(
        self,
        state: State,
        container: ContainerRef,
        count: int,
        *,
        asked: Asked = NOTHING_ASKED,
        recorder: Recorder | None = None,
    ) -> Decision:
        """Give a container that has exclusive CPUs *count* of them, or raise NotResized with the nearest size."""
        if self.manager.policy is TopologyPolicy.NONE and asked.others and asked.others.is_asked:
            return self._aligning().resize(state, container, count, asked=asked, recorder=recorder)
        try:
            return self._resize(state, container, count, asked, recorder)
        except AdmissionError as refusal:
            nearest = self._nearest_size(state, container, count, asked)
            raise NotResized(count, refusal, nearest) from refusal

    def _resize(
        self,
        state: State,
        container: ContainerRef,
        count: int,
        asked: Asked,
        recorder: Recorder | None = None,
    ) -> Decision:
        if self.policy.resizing is None:
            raise NotResizable(f"policy {self.policy.name} gives no container exclusive CPUs")
        resizing = self.policy.resizing.for_pod(asked.annotations)
        if self.manager.policy is TopologyPolicy.NONE:
            return resizing.resize(state, container, count, None, recorder)
        whole = self.scope is Scope.POD
        cpus = resizing.hints(state, container, count, whole_pod=whole)
        question = self._ask(cpus, asked.others, WHOLE if whole else container.name)
        if recorder is not None:
            self._record_merge(question.providers, recorder)
        if not question.admit:
            raise TopologyAffinityError(question.hint)
        return resizing.resize(state, container, count, question.hint.affinity, recorder)

    def _nearest_size(self, state: State, container: ContainerRef, count: int, asked: Asked) -> int | None:
        """Return the size next to *count* that the container can have; None if it can have none."""
        held = state.cpus(*container)
        if held is None:
            return None
        for size in _sizes(min(max(count, 0), len(self.policy.allocatable) + 1), len(held)):
            try:
                self._resize(state, container, size, asked)
            except AdmissionError:
                continue
            return size
        return len(held)

    def has_decided(self, state: State, pod: Pod, due: Collection[str] | None = None) -> bool:
        """Return whether the pod was admitted before and every due container has the CPUs it asks for.

        Then there is nothing to decide. A pod without an Assignment is decided each time: it gets no CPUs.
        """
        containers = state.assignments.get(pod.uid)
        return containers is not None and all(
            container.name in containers or not self.policy.request(pod, container)
            for container in pod.all_containers
            if due is None or container.name in due
        )

    def explain(
        self, state: State, pod: Pod, *, due: Collection[str] | None = None, others: OtherHints = NO_OTHERS
    ) -> dict[str, Trace]:
        """Return the steps of `admit` by container; under WHOLE if the pod is decided as a whole."""
        recorders: Recorders = {}
        admission = self.admit(state, pod, due=due, others=others, recorders=recorders)
        if admission.refusal is not None:
            last = recorders.setdefault(admission.container or WHOLE, Recorder())
            last.step(f"refused with {admission.refusal.reason}", 0, str(admission.refusal))
        return {name: recorder.trace() for name, recorder in recorders.items()}

    def _aligning(self) -> Admitter:
        """Return the Admitter that aligns where it can, for a pod whose user asks for it."""
        return self._replace(manager=replace(self.manager, policy=TopologyPolicy.BEST_EFFORT))

    def _ask(self, cpus: Hints | None, others: OtherHints, container: str) -> _Question:
        providers: list[Resource] = [{"cpu": cpus} if cpus is not None else {}]
        if others:
            providers.append(others.of(container, self.manager.everything))
        admit, hint = self.manager.merge(providers)
        return _Question(providers, hint, admit=admit)

    def _record(self, recorders: Recorders | None, name: str, question: _Question) -> Recorder | None:
        """Return the recorder for a container, with the merging of hints recorded; None if nothing is recorded."""
        if recorders is None:
            return None
        recorder = recorders[name] = Recorder()
        if question.providers:
            self._record_merge(question.providers, recorder)
        return recorder

    def _record_merge(self, providers: Sequence[Resource], recorder: Recorder) -> None:
        report = self.manager.explain(providers)
        recorder.step(f"hint: {report.hint}", 0, report.reason)
        for resource, hint, preferred in report.contributions:
            recorder.step(
                f"{resource} gave {hint or 'no hint'}", 0, f"prefers {', '.join(map(str, preferred)) or 'none'}"
            )
        for hint in report.passed_over:
            recorder.step(f"passed over hint: {hint}")
        if self.fidelity is Fidelity.KUBELET:
            for defect, what in (*self.manager.defects, *self.policy.defects):
                recorder.defect(defect, what)

    def _as_a_whole(self, state: State, pod: Pod, others: OtherHints, recorders: Recorders | None) -> Admission:
        question = self._ask(self.policy.pod_hints(state, pod), others, WHOLE)
        if not question.admit:
            self._record(recorders, WHOLE, question)
            return Admission(state, {}, {}, TopologyAffinityError(question.hint))
        if pod.resources is None:
            return self._each(state, pod, lambda *_: question, others, recorders)
        recorder = self._record(recorders, WHOLE, question)
        affinity = {container.name: question.hint for container in pod.all_containers}
        try:
            decision = self.policy.admit_pod(state, pod, question.hint.affinity, recorder)
        except AdmissionError as refusal:
            return Admission(state, {}, affinity, refusal)
        if decision.refusal is not None:
            return Admission(decision.state, {}, affinity, decision.refusal)
        after = decision.state
        parts = {container.name: after.cpus(pod.uid, container.name) for container in pod.all_containers}
        for container in pod.all_containers if others else ():
            others = others.taken(container.name, question.hint.affinity)
        return Admission(after, {name: Decision(after, cpus) for name, cpus in parts.items()}, affinity, others=others)

    def _each(
        self,
        state: State,
        pod: Pod,
        ask: Callable[[State, Container, OtherHints], _Question],
        others: OtherHints,
        recorders: Recorders | None,
    ) -> Admission:
        decisions: dict[str, Decision] = {}
        affinity: dict[str, Hint] = {}
        for container in pod.all_containers:
            asked = ask(state, container, others)
            recorder = self._record(recorders, container.name, asked)
            if not asked.admit:
                return Admission(state, decisions, affinity, TopologyAffinityError(asked.hint), container.name)
            affinity[container.name] = asked.hint
            try:
                decision = self.policy.admit(state, pod, container, asked.hint.affinity, recorder)
            except AdmissionError as refusal:
                return Admission(state, decisions, affinity, refusal, container.name)
            decisions[container.name] = decision
            state = decision.state
            if others:
                others = others.taken(container.name, asked.hint.affinity)
        return Admission(state, decisions, affinity, others=others)


def _sizes(wanted: int, held: int) -> Iterator[int]:
    """Yield the sizes around *wanted*, the nearest first, up to those that are as far away as *held*."""
    towards = 1 if held > wanted else -1
    for distance in range(1, abs(wanted - held)):
        yield wanted + towards * distance
        if wanted - towards * distance > 0:
            yield wanted - towards * distance


class _Question(NamedTuple):
    """The hints that were merged, and the result."""

    providers: Sequence[Resource]
    hint: Hint
    admit: bool = True


NO_HINT = Hint(None, preferred=False)
