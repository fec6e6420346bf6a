"""Manager: event → decide → save → apply → verify. No thread, no clock, no loop; it alone changes the kernel.

A change is saved before it is applied, so that a crash at any instant leaves a State from which the next start finishes
or undoes it. If a change cannot be applied, it is undone and the caller gets the error; reconcile repairs drift.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from pinfold.core.advice import NO_ADVICE
from pinfold.core.events.daemon import NotSaved, Reconfigured
from pinfold.core.events.decisions import Undone
from pinfold.core.events.measures import Applied, Configured, Decided, Left, Looked, Saved
from pinfold.core.events.repairs import LostUpdate, NotRepaired
from pinfold.core.events.running import GivenBack
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.outcome import Outcome
from pinfold.core.reconcile import drift, wanted
from pinfold.core.recover import carry_over
from pinfold.errors import PinfoldError
from pinfold.runtimes.base import ApplyError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pinfold.core.admission import Admission, Admitter
    from pinfold.core.advice import Advice
    from pinfold.core.events.about import PodName
    from pinfold.core.machine.topology import Topology
    from pinfold.core.pods.pod import ContainerRef, Pod, PodUID
    from pinfold.core.reconcile import Drift, Wanted
    from pinfold.core.state import State
    from pinfold.manager.telling.telling import Telling
    from pinfold.runtimes.base import Applier
    from pinfold.runtimes.roster import Roster


class Store(Protocol):
    """Where the State is kept."""

    def save(self, state: State) -> None:
        """Make the State durable, or raise; the last one stays if this one cannot be saved."""
        ...


class Rules(NamedTuple):
    """The policy, the machine and the store of the State: all that a reload can change."""

    admitter: Admitter
    topology: Topology
    store: Store


class Refusal(PinfoldError):  # noqa: N818 - the fact
    """A pod is refused; the message begins with the kubelet's reason word and ends with advice."""

    def __init__(self, admission: Admission, advice: Advice = NO_ADVICE) -> None:
        refusal = admission.refusal
        said = "" if refusal is None else f"{refusal.reason}: {refusal.message}"
        super().__init__(f"{said} ({advice})" if str(advice) else said)
        self.admission = admission
        self.advice = advice


class Manager:
    """Holds the State of one node, and changes it in one way only."""

    def __init__(self, rules: Rules, state: State, applier: Applier, roster: Roster, telling: Telling) -> None:
        self.rules = rules
        self.state = state
        self.applier = applier
        self._roster = roster
        self.telling = telling
        self.show: Callable[[Wanted], None] = lambda _want: None
        """Called with what is wanted when it was applied."""
        self._applied: Wanted | None = None

    @property
    def wanted(self) -> Wanted:
        """The CPUs that everything should run on."""
        return _wanted(self.state, self.rules.topology, self._roster)

    def start(self) -> None:
        """Make the running containers agree with the State, however the earlier daemon ended."""
        self._save(self.state)
        self.enforce()

    # -- pods come and go

    def admit(self, pod: Pod, due: Collection[str] | None = None) -> Admission:
        """Admit a pod, or those of its containers that are due; or raise a Refusal.

        When this returns, all others have left the pod's CPUs, and that was read back.
        """
        clock, before, rules = self.telling.clock, self.state, self.rules
        start, others = clock(), self._roster.others(pod)
        admission = rules.admitter.admit(before, pod, due=due, others=others)
        self.telling.tell(Decided(clock() - start))
        outcome = Outcome(pod, before, admission, rules.admitter, due, others)
        if admission.refusal is not None:
            self.telling.judged(outcome, start)
            advice = self.telling.advise(outcome, rules.topology)
            self.telling.refused(outcome, advice)
            raise Refusal(admission, advice)
        self.know([pod])
        try:
            self.change(admission.state)
        except PinfoldError:
            self.telling.judged(outcome, start, ok=False)
            raise
        self.telling.judged(outcome, start)
        self.telling.admitted(outcome, self.state, rules.topology)
        return admission

    def would_fit(self, pod: Pod, due: Collection[str] | None = None) -> bool:
        """Return whether a pod, or those of its containers that are due, would be admitted now."""
        others = self._roster.others(pod)
        return self.rules.admitter.admit(self.state, pod, due=due, others=others).refusal is None

    def name(self, pod: PodUID) -> PodName:
        """Return a pod's name."""
        return self.telling.name(pod)

    def know(self, pods: Collection[Pod]) -> None:
        """Remember the names of pods; if one of them has CPUs, report the State with its name."""
        if any(uid in self.state.assignments for uid in self.telling.know(pods)):
            self.tell_state()

    def release(self, containers: Collection[ContainerRef]) -> dict[ContainerRef, PinfoldError]:
        """Release the CPUs of containers that are gone: their processes end first, then the shared pool grows.

        Return the containers whose processes could not be ended, and why: they keep their CPUs.
        """
        stuck = self._vacate(containers)
        gone = [ref for ref in containers if ref not in stuck]
        state, before = self.state, self.state
        for ref in gone:
            state = self.rules.admitter.policy.release(state, ref).state
        self.change(state)
        if gone:
            self.telling.tell(Left(tuple(gone)))
        self.telling.released(gone, before, self.state)
        return stuck

    def _vacate(self, containers: Collection[ContainerRef]) -> dict[ContainerRef, PinfoldError]:
        stuck: dict[ContainerRef, PinfoldError] = {}
        for ref in containers:
            try:
                given = self.applier.vacate(ref)
            except PinfoldError as error:
                stuck[ref] = error
                continue
            if given:
                self.telling.tell(GivenBack(self.telling.name(ref.pod), ref.name, tuple(given)))
        return stuck

    # -- the rules change

    def reconfigure(self, rules: Rules, pods: Mapping[PodUID, Pod]) -> None:
        """Go on under other rules without draining the node; or raise, and leave all as it was.

        Containers keep their CPUs wherever the new rules allow it. The others are admitted again, like any pod; those
        that are refused share.
        """
        recovered = carry_over(rules.admitter, self.state, pods, self._roster.others)
        self.telling.not_kept(recovered)
        before, self.rules = self.rules, rules
        self._applied = None
        try:
            self.change(recovered.state)
        except PinfoldError:
            self.rules = before
            self._save(self.state)
            raise
        self.telling.reassigned(recovered)
        self.telling.tell(Configured(rules.admitter))
        self.telling.tell(Reconfigured(rules.admitter.policy.name, self.wanted.shared))

    # -- what is, against what should be

    def reconcile(self) -> list[Drift]:
        """Check every container, repair what has drifted, and return it."""
        want = self.wanted
        found = list(drift(want, self.applier.observe(closely=True)))
        left: list[Drift] = []
        if found:
            for difference in found:
                self.telling.drifted(difference)
            self.applier.apply(want)
            left = list(drift(want, self.applier.observe(closely=True)))
            for difference in left:
                self.telling.not_repaired(difference)
        self.telling.tell(Looked(want, found, left, self.telling.clock()))
        return found

    def verify(self, ref: ContainerRef) -> None:
        """Check that a container about to run has its CPUs, and no other container has; repair it, or raise."""
        want = self.wanted
        wrong = self.applier.mend(ref, want)
        if ref not in want.exclusive:
            return
        if wrong is not None:
            name = self.telling.name(ref.pod)
            self.telling.tell(LostUpdate(name, ref.name, wrong.found, wrong.wanted))
        if not self.applier.is_clear(want) and self.reconcile():
            left = [found for found in self.reconcile() if found.container is not None]
            if left:
                raise ApplyError("; ".join(map(str, left)))

    def adjust(self) -> None:
        """Apply what follows from the Roster, which has changed; or raise."""
        self.change(self.state)

    def enforce(self) -> None:
        """Apply what is wanted, regardless of what was applied before; or raise."""
        want = self.wanted
        self._applied = None
        self.applier.apply(want)
        self._applied = want
        self.show(want)

    def change(self, state: State) -> None:
        """Save, apply and read back the next State; go back to the last one on failure."""
        want = _wanted(state, self.rules.topology, self._roster)
        if state == self.state and want == self._applied:
            return
        if state != self.state or self._applied is None:
            self._save(state)
        try:
            applied = self._apply(want)
        except PinfoldError as error:
            self.telling.tell(Undone(str(error)))
            self._go_back()
            raise
        changed, self.state = state != self.state, state
        self.show(want)
        if changed:
            self.tell_state(applied)

    def _go_back(self) -> None:
        """Restore the last State on disk and in the kernel as far as possible; the next change tries again."""
        try:
            self._save(self.state)
        except PinfoldError as error:
            self.telling.tell(NotSaved(str(error)))
        try:
            self.enforce()
        except PinfoldError as error:
            self.telling.tell(NotRepaired(why=str(error)))

    def tell_state(self, applied: tuple[int, float] | None = None) -> None:
        """Report the whole State, and how it was *applied*, for the journal."""
        self.telling.state(self.state, self.rules.admitter.policy, self.rules.topology, applied)

    def _save(self, state: State) -> None:
        start, clock = self.telling.clock(), self.telling.clock
        try:
            self.rules.store.save(state)
        except PinfoldError:
            self.telling.tell(Saved(clock() - start, ok=False))
            raise
        self.telling.tell(Saved(clock() - start))

    def _apply(self, want: Wanted) -> tuple[int, float]:
        """Apply and read back, or raise; return how many groups were read back, and how many milliseconds it took."""
        start, clock = self.telling.clock(), self.telling.clock
        self._applied = None
        try:
            self.applier.apply(want)
            found = self.applier.observe()
            wrong = list(drift(want, found))
            if wrong:
                raise ApplyError("; ".join(map(str, wrong)))
        except PinfoldError:
            self.telling.tell(Applied(clock() - start, ok=False))
            raise
        self._applied = want
        seconds = clock() - start
        self.telling.tell(Applied(seconds))
        return len(found.containers) + (found.shared is not None), round(seconds * 1e3, 3)


def _wanted(state: State, topology: Topology, roster: Roster) -> Wanted:
    """Return what should be, with the limits and the local memory of the containers on the Roster."""
    want = wanted(state, topology.online)
    near = [(ref, cpus) for ref, cpus in want.exclusive.items() if _wants_local_memory(roster, ref)]
    mems = {ref: CPUSet.of(*(node.id for node in topology.numa_nodes if node.cpus & cpus)) for ref, cpus in near}
    sharing = {ref: limit for ref, limit in roster.sharing().items() if ref not in want.exclusive}
    return want._replace(sharing=sharing, mems=mems)


def _wants_local_memory(roster: Roster, ref: ContainerRef) -> bool:
    """Return whether a container asks for memory of the NUMA nodes of its CPUs alone."""
    return any(roster.of(pod_id).local_memory for pod_id in roster.find_pods(ref.pod))
