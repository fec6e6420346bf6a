"""Manager: event → decide → save → apply → verify. No thread, no clock, no loop.

A change is saved before it is applied, so that a crash at any instant leaves a State from which the next start finishes
or undoes it. What cannot be applied is undone, and the caller is told; the next reconcile repairs what drifts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, cast

from pinfold.core.admission import WHOLE
from pinfold.core.advice import advise
from pinfold.core.alignment import Ruler
from pinfold.core.explanation import decision_fields
from pinfold.core.planner import Outcome
from pinfold.core.reconcile import drift, wanted
from pinfold.core.recover import Recovered, recover
from pinfold.core.trace import Trace
from pinfold.errors import PinfoldError, StateError
from pinfold.formats.poddoc import pod_document
from pinfold.runtimes.base import ApplyError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from pinfold.core.admission import Admission, Admitter
    from pinfold.core.pods import Container, ContainerRef, Pod, PodUID
    from pinfold.core.policies.base import Policy
    from pinfold.core.reconcile import Drift, Wanted
    from pinfold.core.state import State
    from pinfold.core.topology import Topology
    from pinfold.runtimes.base import Runtime


class Note(NamedTuple):
    """Something that happened, for the log and for whoever watches; *detail* is for the journal alone."""

    what: str
    fields: Mapping[str, object]
    detail: Mapping[str, object] = {}


def _without_command(container: Container) -> Container:
    return replace(container, command=(), args=(), env=(), working_dir="")


class Store(Protocol):
    """Where the State is kept."""

    def save(self, state: State) -> None:
        """Make the State durable, or raise; the last one stays if this one cannot be saved."""
        ...


class Observer(Protocol):
    """Counts what a Manager does; it is told afterwards, with how long it took in seconds."""

    def reconfigured(self, admitter: Admitter) -> None:
        """Take note of another configuration."""

    def decided(self, seconds: float) -> None:
        """Take note of a decision."""

    def admitted(self, pod: Pod, before: State, admission: Admission, seconds: float, *, ok: bool = True) -> None:
        """Take note of what became of a pod; not *ok*: it was decided, but not applied."""

    def released(self, containers: Collection[ContainerRef]) -> None:
        """Take note of containers that are gone."""

    def saved(self, seconds: float, *, ok: bool = True) -> None:
        """Take note of a State that was saved, or could not be."""

    def applied(self, seconds: float, *, ok: bool = True) -> None:
        """Take note of a State that was applied and verified, or could not be."""

    def looked(self, want: Wanted, found: Sequence[Drift], left: Sequence[Drift], now: float) -> None:
        """Take note of what a close look has found, and what of it could not be put right."""


class Watch(NamedTuple):
    """Who counts, and by which clock."""

    observer: Observer
    clock: Callable[[], float]


class _Nobody:
    """Counts nothing."""

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_arguments, **_named: None


_UNWATCHED: Final = Watch(cast("Observer", _Nobody()), lambda: 0.0)  # it has every method there is


class Manager:
    """Holds the State of one node, and changes it in one way only."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of a node, put together once
        self,
        admitter: Admitter,
        runtime: Runtime,
        store: Store,
        state: State,
        tell: Callable[[Note], None],
        topology: Topology,
        watch: Watch = _UNWATCHED,
    ) -> None:
        self.admitter = admitter
        self.runtime = runtime
        self.state = state
        self.topology = topology
        self.drifts_repaired = 0
        self._store = store
        self._tell = tell
        self._observer, self._clock = watch
        self._advice: tuple[Admission | None, str] = (None, "")
        self._ruled: tuple[Policy, Ruler] | None = None
        self._names: dict[PodUID, str] = {}

    @property
    def wanted(self) -> Wanted:
        """The CPUs that everything is meant to run on."""
        return wanted(self.state, self.topology.online)

    def start(self) -> None:
        """Make what runs agree with the State, whatever happened while nobody looked."""
        self._save(self.state)
        self.runtime.apply(self.wanted)

    def admit(self, pod: Pod, due: Collection[str] | None = None) -> Admission:
        """Let a pod in, or those of its containers that are due.

        When this returns without a refusal, everyone else has left its CPUs, and that was verified.
        """
        start, before = self._clock(), self.state
        admission = self.admitter.admit(before, pod, due=due)
        self._observer.decided(self._clock() - start)
        if admission.refusal is not None:
            self._observer.admitted(pod, before, admission, self._clock() - start)
            return self._refused(Outcome(pod, before, admission, self.admitter, due))
        self.know(pod)
        try:
            self._change(admission.state)
        except PinfoldError:
            self._observer.admitted(pod, before, admission, self._clock() - start, ok=False)
            raise
        self._observer.admitted(pod, before, admission, self._clock() - start)
        self._tell(Note("admitted", {"pod": pod.name}, self._whole(pod)))
        self._tell_of_cpus(pod, before, self.admitter.explain(before, pod, due=due))
        return admission

    def would_fit(self, pod: Pod, due: Collection[str] | None = None) -> bool:
        """Return whether a pod, or those of its containers that are due, would be let in now."""
        return self.admitter.admit(self.state, pod, due=due).refusal is None

    def _tell_of_cpus(self, pod: Pod, before: State, traces: Mapping[str, Trace]) -> None:
        """Tell of each container of a pod that has other CPUs of its own than before."""
        for ref, cpus in self.state.of_pod(pod.uid):
            if before.cpus(*ref) != cpus:
                trace = traces.get(ref.name) or traces.get(WHOLE) or Trace()
                found = decision_fields(trace, self._ruler.measure(cpus))
                fields = {"pod": pod.name, "container": ref.name, "cpus": str(cpus)}
                self._tell(Note("assigned", fields, {"namespace": pod.namespace, "uid": pod.uid, **found}))

    def _refused(self, outcome: Outcome) -> Admission:
        pod, admission, refusal = outcome.pod, outcome.admission, outcome.refusal
        assert refusal is not None  # noqa: S101 - for mypy; the only caller has looked
        advice = advise(self._ruler, outcome, self._names)
        trace = outcome.traces()[admission.container or WHOLE]
        fields = {"pod": pod.name, "reason": refusal.reason, "message": refusal.message}
        helps = {"need": advice.need, "room": advice.room, "fixes": list(advice.fixes)}
        detail = {**self._whole(pod), **decision_fields(trace, None), **helps}
        if admission.container is not None:
            detail["container"] = admission.container
        self._tell(Note("refused", fields, detail))
        answer = admission._replace(state=self.state)
        self._advice = (answer, str(advice))
        return answer

    @staticmethod
    def _whole(pod: Pod) -> dict[str, object]:
        """Return all that the journal needs to let the pod in once more, elsewhere; what it runs may hold secrets."""
        parts = (tuple(map(_without_command, some)) for some in (pod.init, pod.containers))
        init, containers = parts
        bare = replace(pod, init=init, containers=containers, annotations={}, labels={})
        return {"namespace": pod.namespace, "uid": pod.uid, "document": pod_document(bare)}

    @property
    def _ruler(self) -> Ruler:
        policy = self.admitter.policy
        if self._ruled is None or self._ruled[0] is not policy:
            self._ruled = policy, Ruler(self.topology, policy.allocatable or None)
        return self._ruled[1]

    def advice(self, admission: Admission) -> str:
        """Return what would have made the last refused pod fit; empty if nobody knows."""
        last, text = self._advice
        return text if last is admission else ""

    def know(self, *pods: Pod) -> None:
        """Take note of what pods are called: a State has only UIDs. If somebody has CPUs, tell whose they are."""
        new = [pod for pod in pods if self._names.get(pod.uid) != f"{pod.namespace}/{pod.name}"]
        self._names.update((pod.uid, f"{pod.namespace}/{pod.name}") for pod in new)
        if any(pod.uid in self.state.assignments for pod in new):
            self.tell_state()

    def note(self, what: str, about: ContainerRef, **fields: object) -> Note:
        """Return a note about a container, by the name of its pod as far as it is known."""
        namespace, _, name = self._names.get(about.pod, f"/{about.pod}").partition("/")
        return Note(
            what,
            {"pod": name, "container": about.name, **fields},
            {**({"namespace": namespace} if namespace else {}), "uid": about.pod},
        )

    def release(self, containers: Collection[ContainerRef]) -> None:
        """Take back the CPUs of containers that are gone."""
        state, before = self.state, self.state
        for container in containers:
            state = self.admitter.policy.release(state, container).state
        if state != before:
            self._change(state)
            for container in (ref for ref in containers if before.cpus(ref.pod, ref.name) is not None):
                self._tell(self.note("released", container))
        if containers:
            self._observer.released(containers)
        for pod in {container.pod for container in containers}:
            if pod in self._names and pod not in self.state.assignments:
                namespace, _, short = self._names.pop(pod).partition("/")
                self._tell(Note("gone", {"pod": short}, {"namespace": namespace, "uid": pod}))

    def keep_only(self, active: Collection[PodUID]) -> None:
        """Take back the CPUs of all pods but these."""
        self.release([ref for ref in self.wanted.exclusive if ref.pod not in active])

    def reconfigure(
        self, admitter: Admitter, store: Store, pods: Mapping[PodUID, Pod], topology: Topology | None = None
    ) -> None:
        """Go on under another configuration, or with other CPUs online, without anyone being drained.

        Whoever has CPUs keeps them wherever the new rules allow; the others get new ones, or share. Or raise, and leave
        all as it was.
        """
        state, lost, refusals = self._carried_over(admitter, pods)
        for ref, cpus in lost.items():
            why = {"why": str(refusals[ref.pod])} if ref.pod in refusals else {}
            self._tell(self.note("not-kept", ref, cpus=str(cpus), **why))
        before = self.admitter, self._store, self.topology
        last = self.state
        self.admitter, self._store, self.topology = admitter, store, topology or self.topology
        try:
            self._change(state, anew=True)
        except PinfoldError:
            self.admitter, self._store, self.topology = before
            self._save(self.state)
            raise
        for uid in dict.fromkeys(ref.pod for ref in lost if ref.pod in pods):
            self._tell_of_cpus(pods[uid], last, {})
        self._observer.reconfigured(admitter)
        self._tell(Note("reconfigured", {"policy": admitter.policy.name, "shared": str(state.shared)}))

    def _carried_over(self, admitter: Admitter, pods: Mapping[PodUID, Pod]) -> Recovered:
        try:
            return Recovered(admitter.policy.start(self.state), {}, {})
        except StateError:
            return recover(admitter, self.state, pods)

    def reconcile(self) -> list[Drift]:
        """Look closely, repair what has drifted, and return it."""
        want = self.wanted
        found = list(drift(want, self.runtime.observe(closely=True)))
        left: list[Drift] = []
        if found:
            for difference in found:
                self._tell(self._note_of("drift", difference))
            self.runtime.apply(want)
            left = list(drift(want, self.runtime.observe(closely=True)))
            self.drifts_repaired += max(len(found) - len(left), 0)
            for difference in left:
                self._tell(self._note_of("not-repaired", difference))
        self._observer.looked(want, found, left, self._clock())
        return found

    def _note_of(self, what: str, difference: Drift) -> Note:
        found, cpus = str(difference.found) or "none", str(difference.wanted)
        if difference.container is None:
            return Note(what, {"pool": "shared", "found": found, "wanted": cpus})
        return self.note(what, difference.container, found=found, wanted=cpus)

    def _change(self, state: State, *, anew: bool = False) -> None:
        """Save, apply and verify the next State; go back to the last one if it cannot be. The same one only *anew*."""
        if state == self.state and not anew:
            return
        self._save(state)
        try:
            applied = self._apply(state)
        except PinfoldError as error:
            self._tell(Note("undone", {"why": str(error)}))
            self._go_back()
            raise
        changed, self.state = state != self.state, state
        if changed:
            self.tell_state(applied)

    def _go_back(self) -> None:
        """Have the last State again, on disk and in the kernel, as far as it can be: the next change tries anew."""
        try:
            self._save(self.state)
        except PinfoldError as error:
            self._tell(Note("not-saved", {"why": str(error)}))
        try:
            self.runtime.apply(self.wanted)
        except PinfoldError as error:
            self._tell(Note("not-repaired", {"found": str(error)}))

    def tell_state(self, applied: Mapping[str, object] | None = None) -> None:
        """Tell the whole State, and how it was *applied*, for whoever wants to know later how it was."""
        exclusive = {
            f"{self._names.get(pod, pod)}/{name}": str(cpus)
            for pod, containers in self.state.assignments.items()
            for name, cpus in containers.items()
        }
        policy, offline = self.admitter.policy, str(self.topology.offline)
        pools = {
            "shared": str(self.wanted.shared),
            "reserved": str(policy.reserved),
            "offline": offline,
        }
        self._tell(Note("state", {}, {**pools, "exclusive": exclusive, **(applied or {})}))

    def _save(self, state: State) -> None:
        start = self._clock()
        try:
            self._store.save(state)
        except PinfoldError:
            self._observer.saved(self._clock() - start, ok=False)
            raise
        self._observer.saved(self._clock() - start)

    def _apply(self, state: State) -> dict[str, object]:
        """Apply and read back, or raise; return what was found to be so, and how many milliseconds it took."""
        start, want = self._clock(), wanted(state, self.topology.online)
        try:
            self.runtime.apply(want)
            found = self.runtime.observe()
            wrong = list(drift(want, found))
            if wrong:
                raise ApplyError("; ".join(map(str, wrong)))
        except PinfoldError:
            self._observer.applied(self._clock() - start, ok=False)
            raise
        seconds = self._clock() - start
        self._observer.applied(seconds)
        verified = len(found.containers) + (found.shared is not None)
        return {"verified": verified, "milliseconds": round(seconds * 1e3, 3)}
