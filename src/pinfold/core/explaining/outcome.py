"""Outcome: a question to the Admitter and its answer, kept together for a later explanation."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pinfold.core.state import State
from pinfold.core.topologymanager.others import NO_OTHERS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pinfold.core.admission import Admission, Admitter
    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import Container, Pod
    from pinfold.core.topologymanager.others import OtherHints
    from pinfold.core.trace import Defect, Trace
    from pinfold.errors import AdmissionError


class Outcome(NamedTuple):
    """A pod, the State before its admission, and the answer."""

    pod: Pod
    before: State
    admission: Admission
    admitter: Admitter
    due: Collection[str] | None = None
    """The due containers; None: all of the pod."""
    others: OtherHints = NO_OTHERS
    """The hints of other resources."""
    was_running: bool = False
    """Whether the pod was running from the start, without a decision."""
    noted: tuple[tuple[str, Defect, str], ...] | None = None
    """The kubelet's defects, if they were recorded before the State was dropped."""

    @property
    def refusal(self) -> AdmissionError | None:
        """Why the pod was refused; None if it was not."""
        return self.admission.refusal

    def cpus(self, container: Container) -> CPUSet | None:
        """Return the exclusive CPUs of a container; a refused pod has none."""
        return None if self.refusal is not None else self.admission.state.cpus(self.pod.uid, container.name)

    def traces(self) -> Mapping[str, Trace]:
        """Return the steps to each container's CPUs, or to the refusal; a pod from the start has none."""
        if self.was_running or self.is_brief:
            return {}
        return self.admitter.explain(self.before, self.pod, due=self.due, others=self.others)

    @property
    def defects(self) -> tuple[tuple[str, Defect, str], ...]:
        """The kubelet's defects here: the container, the defect, and how. Repeats every decision to find them."""
        if self.noted is not None:
            return self.noted
        return tuple(
            (f"{self.pod.name}/{name}".rstrip("/"), defect, what)
            for name, trace in self.traces().items()
            for defect, what in trace.defects
        )

    @property
    def is_brief(self) -> bool:
        """Whether the State and the steps were dropped."""
        return self.noted is not None

    def brief(self, *, note: bool) -> Outcome:
        """Return the outcome without its steps and without other pods' CPUs, to keep very many of them."""
        mine = self.admission.state.assignments.get(self.pod.uid)
        state = State(self.admission.state.shared, {} if mine is None else {self.pod.uid: mine})
        noted = self.defects if note else ()
        if self.refusal is not None:
            self.refusal.__traceback__ = None  # its frames hold States too
        admission = self.admission._replace(state=state, decisions={}, others=NO_OTHERS)
        return self._replace(before=state, admission=admission, others=NO_OTHERS, noted=noted)
