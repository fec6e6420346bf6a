"""Admitting: one pod from its decision to its events, which are told when it is certain what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.events.about import PodName
from pinfold.core.events.decisions import MemoryNotLocal
from pinfold.core.explaining.outcome import Outcome
from pinfold.errors import PinfoldError
from pinfold.manager.telling.telling import Took
from pinfold.manager.wanting import far_from_memory, wants_local_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pinfold.core.admission import Admission
    from pinfold.core.pods.pod import Pod
    from pinfold.core.state import State
    from pinfold.manager.manager import Manager
    from pinfold.runtimes.roster import Roster


class Refusal(PinfoldError):  # noqa: N818 - the fact
    """A pod is refused; the message begins with plain words and ends with the kubelet's, in brackets."""

    def __init__(self, admission: Admission, advice: str = "") -> None:
        refusal = admission.refusal
        said = "" if refusal is None else f"{refusal.reason}: {refusal.message}"
        super().__init__(f"{advice} [{said}]" if advice else said)
        self.reason = "" if refusal is None else refusal.reason
        self.admission = admission
        self.advice = advice


class Admitting:
    """A pod, or those of its containers that are due, on its way through a Manager."""

    def __init__(
        self,
        manager: Manager,
        roster: Roster,
        pod: Pod,
        due: Collection[str] | None,
        accepted: Callable[[], None],
    ) -> None:
        self._manager = manager
        self._roster = roster
        self._pod = pod
        self._due = due
        self._accepted = accepted
        self._start = self._seconds = 0.0
        self._outcome: Outcome | None = None

    def decide(self, state: State) -> State:
        """Return the State with the pod, or raise a Refusal; the last decision counts."""
        clock, rules = self._manager.telling.clock, self._manager.rules
        self._start = clock()
        admission, others = self._manager.memory.decide(self._pod, self._due, state, rules)
        self._seconds = clock() - self._start
        self._outcome = Outcome(self._pod, state, admission, rules.admitter, self._due, others)
        if admission.refusal is not None:
            raise Refusal(admission)
        self._manager.know([self._pod])
        self._accepted()
        return admission.state

    def refused(self) -> Refusal:
        """Report the refusal, and return it with advice."""
        telling, outcome = self._manager.telling, self._decided()
        telling.judged(outcome, self._took())
        advice = telling.advise(outcome, self._manager.rules.topology)
        telling.refused(outcome, advice)
        return Refusal(outcome.admission, str(advice))

    def failed(self) -> None:
        """Report that the pod was admitted, but could not be saved or applied."""
        self._manager.telling.judged(self._decided(), self._took(), ok=False)

    def admitted(self) -> Admission:
        """Report the admission, and return it."""
        telling, rules, outcome = self._manager.telling, self._manager.rules, self._decided()
        telling.admitted(outcome, self._took(), rules.topology)
        if wants_local_memory(self._roster, self._pod.uid):
            mine = outcome.admission.state.of_pod(self._pod.uid)
            for ref, cpus in far_from_memory(outcome.before, mine, rules, self._roster):
                telling.tell(MemoryNotLocal(PodName.of(self._pod), ref.name, cpus))
        return outcome.admission

    def _decided(self) -> Outcome:
        assert self._outcome is not None  # noqa: S101 - for mypy: it was decided
        return self._outcome

    def _took(self) -> Took:
        return Took(self._seconds, self._manager.telling.clock() - self._start)
