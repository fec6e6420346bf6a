"""Telling: the events about decisions, with the names of pods and the reasons; made after the answer has gone out.

A State has only UIDs, so this also remembers the names of pods while they are on the node.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypedDict

from pinfold.core.events.about import PodName
from pinfold.core.events.daemon import NotKept
from pinfold.core.events.decisions import (
    Admitted,
    Assigned,
    Gone,
    NotPinned,
    Refused,
    Released,
    StateChanged,
)
from pinfold.core.events.measures import Decided, Judged
from pinfold.core.events.repairs import Degraded, Drifted, Fought, NotRepaired
from pinfold.core.explaining.advice import advise
from pinfold.core.explaining.alignment import Ruler
from pinfold.core.explaining.explanation import alignment_counts
from pinfold.core.explaining.sharing import missed_pinning
from pinfold.core.reconcile import Cause, describe
from pinfold.core.topologymanager.others import WHOLE
from pinfold.core.trace import Trace
from pinfold.formats.pods.document import pod_document
from pinfold.manager.telling.names import PodNames, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from pinfold.core.events import Event
    from pinfold.core.explaining.advice import Advice
    from pinfold.core.explaining.outcome import Outcome
    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.machine.topology import Topology
    from pinfold.core.pods.pod import Container, ContainerRef, Pod, PodUID
    from pinfold.core.policies.base import Policy
    from pinfold.core.reconcile import Drift
    from pinfold.core.recover import Recovered
    from pinfold.core.state import State
    from pinfold.manager.telling.bus import Bus, Make

_MOST_REFUSALS: Final = 1024
_ADVICE_SECONDS: Final = 0.002
"""The advice is part of a refusal's message, so the container runtime waits for it."""


class Took(NamedTuple):
    """How many seconds an admission took."""

    decision: float
    """The decision alone."""
    answer: float
    """From the request to the answer."""


class _About(TypedDict):
    """What the events about a difference have in common."""

    pod: PodName | None
    container: str
    pool: str
    found: CPUSet
    wanted: CPUSet
    why: str


class Telling:
    """Sends the events about a Manager's decisions and findings to a bus."""

    def __init__(self, bus: Bus, clock: Callable[[], float] = time.perf_counter, names: PodNames | None = None) -> None:
        """*clock* measures durations, in seconds."""
        self.clock = clock
        self.names = names or PodNames()
        self._bus = bus
        self._refusals: dict[PodUID, dict[type[object], str]] = {}
        """The refused pods, the latest last: each reason that was reported, and the container that was refused."""
        self._ruled: tuple[Topology, CPUSet, Ruler] | None = None

    def tell(self, event: Event | Make) -> None:
        """Send an event that is ready, or one that is made after the answer has gone out."""
        self._bus.tell(event)

    # -- names

    def name(self, pod: PodUID) -> PodName:
        """Return a pod's name, or its UID if the name is not known."""
        return self.names[pod]

    def describe(self, differences: Iterable[Drift]) -> str:
        """Return differences in words, with the names of pods."""
        return describe(differences, self.names.shown())

    # -- decisions

    def advise(self, outcome: Outcome, topology: Topology) -> Advice:
        """Return advice for a refused pod, as far as it can be found in two milliseconds."""
        until = self.clock() + _ADVICE_SECONDS
        ruler = self.ruler(topology, outcome.admitter.policy)
        return advise(ruler, outcome, self.names.shown(), lambda: self.clock() < until)

    def judged(self, outcome: Outcome, took: Took, *, ok: bool = True) -> None:
        """Report the outcome for a pod that was not admitted; not *ok*: it was, but saving or applying failed."""
        self._bus.tell(partial(_judged, outcome, took, ok=ok, again=self.is_refused(outcome.pod.uid)))

    def refused(self, outcome: Outcome, advice: Advice) -> None:
        """Report a refused pod; once for each reason, because a kubelet tries again every few seconds.

        The reason is the kind of refusal: its text has numbers, which change when other pods come and go. Until the
        refused container is admitted, the pod is the same one that waits, also with another sandbox.
        """
        uid, reason = outcome.pod.uid, type(outcome.refusal)
        reported = self._refusals[uid] = self._refusals.pop(uid, {})
        if reason not in reported:
            reported[reason] = outcome.admission.container or next(iter(outcome.due or ()), WHOLE)
            self._bus.tell(partial(_refused, outcome, advice))
        if len(self._refusals) > _MOST_REFUSALS:
            del self._refusals[next(iter(self._refusals))]

    def is_refused(self, pod: PodUID) -> bool:
        """Return whether a pod waits because it, or a container of it, was refused."""
        return pod in self._refusals

    def forget_refusals(self, pod: PodUID, admitted: Collection[str] | None = None) -> None:
        """Forget that a pod was refused, or that those of its containers were that are *admitted* now."""
        for reason, container in list(self._refusals.get(pod, {}).items()):
            if admitted is None or container in (WHOLE, *admitted):
                del self._refusals[pod][reason]
        if not self._refusals.get(pod):
            self._refusals.pop(pod, None)

    def admitted(self, outcome: Outcome, took: Took, topology: Topology) -> None:
        """Report an admitted pod, and its containers whose exclusive CPUs have changed."""
        uid = outcome.pod.uid
        self._bus.tell(partial(_admitted, outcome, took, again=self.is_refused(uid)))
        if uid in self._refusals:
            self.forget_refusals(uid, outcome.due)
        before, after = outcome.before.assignments.get(uid), outcome.admission.state.assignments.get(uid, {})
        traces: dict[str, Trace] = {}
        for container, cpus in after.items():
            if before is None or before.get(container) != cpus:
                ruler = self.ruler(topology, outcome.admitter.policy)
                self._bus.tell(partial(_assigned, outcome, traces, ruler, container, cpus))
        if len(after) < len(outcome.pod.all_containers) or outcome.pod.resources is not None:
            self._bus.tell(partial(_not_pinned, outcome))

    def not_kept(self, recovered: Recovered) -> None:
        """Report the containers that could not keep their CPUs, and why they got no others."""
        for ref, cpus in recovered.lost.items():
            why = str(recovered.refusals.get(ref.pod, ""))
            self._bus.tell(NotKept(self.name(ref.pod), ref.name, cpus, why))

    def reassigned(self, recovered: Recovered) -> None:
        """Report the containers that got other CPUs instead of those they could not keep."""
        for ref in (*recovered.lost, *recovered.changed):
            cpus = recovered.state.cpus(*ref)
            if cpus is not None:
                self._bus.tell(Assigned(self.name(ref.pod), ref.name, cpus))
        for ref, refusal in recovered.degraded.items():
            self._bus.tell(Degraded(self.name(ref.pod), ref.name, recovered.changed[ref], str(refusal)))

    def released(self, refs: Iterable[ContainerRef], before: State, after: State) -> None:
        """Report containers whose CPUs are shared again, and pods that left with them."""
        refs = list(refs)
        for ref in refs:
            if before.cpus(*ref) is not None:
                self._bus.tell(Released(self.name(ref.pod), ref.name))
        for pod in dict.fromkeys(ref.pod for ref in refs):
            if pod not in after.assignments:
                self.gone(pod)

    def gone(self, pod: PodUID) -> None:
        """Report a pod that has left, and forget its name."""
        if pod in self.names:
            self._bus.tell(Gone(self.names[pod]))
            self.names.forget(pod)

    def state(self, state: State, policy: Policy, topology: Topology, applied: tuple[int, float] | None = None) -> None:
        """Report the whole State; *applied*: how many groups were read back, and how many milliseconds it took."""
        names = {pod: self.names[pod] for pod in state.assignments}  # a pod that leaves is forgotten
        verified, milliseconds = applied or (None, None)
        self._bus.tell(
            lambda: StateChanged(
                shared=policy.pools.shared(state) or topology.online,
                reserved=policy.reserved,
                offline=topology.offline,
                exclusive={f"{shown(names[ref.pod])}/{ref.name}": cpus for ref, cpus in state.flat()},
                verified=verified,
                milliseconds=milliseconds,
            )
        )

    # -- repairs

    def drifted(self, found: Iterable[Drift]) -> None:
        """Report differences between wanted and actual CPUs."""
        for difference in found:
            self._bus.tell(Drifted(cause=difference.cause, **_about(difference, self.name)))

    def fought(self, begun: Iterable[Drift], times: int) -> None:
        """Report that another program has undone the repairs of differences so many times."""
        for difference in begun:
            about = _about(difference, self.name)
            pod, container, pool = about["pod"], about["container"], about["pool"]
            self._bus.tell(Fought(pod=pod, container=container, pool=pool, cause=difference.cause, times=times))

    def not_repaired(self, left: Iterable[Drift]) -> None:
        """Report differences that could not be repaired."""
        for difference in left:
            self._bus.tell(NotRepaired(**_about(difference, self.name)))

    def ruler(self, topology: Topology, policy: Policy) -> Ruler:
        """Return what measures CPUs on this machine under this policy."""
        if self._ruled is None or self._ruled[0] is not topology or self._ruled[1] != policy.allocatable:
            seen = policy.pools.seen(topology)
            self._ruled = topology, policy.allocatable, Ruler(seen, policy.allocatable or None)
        return self._ruled[2]


def _about(difference: Drift, name: Callable[[PodUID], PodName]) -> _About:
    """Return what the events about a difference have in common; *name* returns a pod's name."""
    ref = difference.container
    return {
        "pod": None if ref is None else name(ref.pod),
        "container": "" if ref is None else ref.name,
        "pool": "" if ref is not None else "host" if difference.cause is Cause.SHIELD else "shared",
        "found": difference.found,
        "wanted": difference.wanted,
        "why": difference.why,
    }


def _judged(outcome: Outcome, took: Took, *, ok: bool, again: bool) -> tuple[Decided, Judged]:
    pod, before, admission = outcome.pod, outcome.before, outcome.admission
    judged = Judged(pod=pod, before=before, admission=admission, seconds=took.answer, ok=ok, again=again)
    return Decided(took.decision), judged


def _admitted(outcome: Outcome, took: Took, *, again: bool) -> Sequence[Event]:
    pod = outcome.pod
    admitted = Admitted(PodName.of(pod), _document(pod), tuple(outcome.due or ()))
    return *_judged(outcome, took, ok=True, again=again), admitted


def _not_pinned(outcome: Outcome) -> list[Event]:
    """Return the events of containers that were meant to have CPUs of their own, and share."""
    missed = missed_pinning(outcome.admitter.policy, outcome.pod)
    return [
        NotPinned(PodName.of(outcome.pod), one.container.name, one.what)
        for one in missed
        if outcome.due is None or one.container.name in outcome.due
    ]


def _assigned(outcome: Outcome, traces: dict[str, Trace], ruler: Ruler, container: str, cpus: CPUSet) -> Assigned:
    """Return the event of a container that has CPUs; *traces* are made by the first one of a pod."""
    if not traces:
        traces.update(outcome.traces())
    data = (traces.get(container) or traces.get(WHOLE) or Trace()).data()
    alignment = alignment_counts(ruler.measure(cpus))
    return Assigned(PodName.of(outcome.pod), container, cpus, data["steps"], data["defects"], alignment)


def _refused(outcome: Outcome, advice: Advice) -> Refused:
    refusal, container = outcome.refusal, outcome.admission.container or WHOLE
    assert refusal is not None  # noqa: S101 - for mypy: only refused pods come here
    data = outcome.traces()[container].data()
    return Refused(
        pod=PodName.of(outcome.pod),
        container=container,
        reason=refusal.reason,
        message=refusal.message,
        need=advice.need,
        room=advice.room,
        fixes=advice.fixes,
        steps=data["steps"],
        defects=data["defects"],
        document=_document(outcome.pod),
    )


def _document(pod: Pod) -> Mapping[str, object]:
    """Return all that a plan needs to admit the pod elsewhere; not commands and labels, which may hold secrets."""
    init, containers = (tuple(map(_without_command, some)) for some in (pod.init, pod.containers))
    return pod_document(replace(pod, init=init, containers=containers, annotations={}, labels={}))


def _without_command(container: Container) -> Container:
    return replace(container, command=(), args=(), env=(), working_dir="")
