"""Replays a recorded trace of pods that arrived and left, on any node.

If the trace has the result for a pod, it is compared with the result here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.allocators.order import Fidelity
from pinfold.planning.plan import EMPTY_NODE, Plan, Walk, start

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pinfold.core.admission import Admitter
    from pinfold.core.config import Config
    from pinfold.core.explaining.outcome import Outcome
    from pinfold.core.machine.topology import Topology
    from pinfold.core.pods.pod import Container, Pod, PodUID
    from pinfold.core.state import State
    from pinfold.planning.plan import Running


KEPT_WHOLE: Final = 500
"""The most pods of a trace that keep their steps; later ones keep only their CPUs."""


class Event(NamedTuple):
    """A pod arrives, or the pod with a UID leaves. A running pod that arrives again has more containers than before."""

    time: float
    """In seconds; only the order and the distances matter."""
    pod: Pod | PodUID
    then: str | None = None
    """Why the pod was refused in the recording; empty: it was admitted; None: unknown."""

    @property
    def comes(self) -> bool:
        """Whether the pod arrives."""
        return not isinstance(self.pod, str)


class ReplayMoment(NamedTuple):
    """The node after an event."""

    time: float
    pods: int
    """How many pods run."""
    exclusive: int
    """How many CPUs are exclusive."""
    refused: int
    """How many pods have been refused up to now."""


class Change(NamedTuple):
    """A pod that was refused then and is admitted now, or the other way round."""

    time: float
    """When this happened first."""
    pod: Pod
    then: str
    """Why it was refused then; empty: it was not."""
    now: str
    tries: int = 1
    """How often it happened."""


class Comparison(NamedTuple):
    """Results in the recording and now; each attempt counts."""

    tries: int
    refused_then: int
    refused_now: int
    changes: tuple[Change, ...]
    staying: int
    """How many pods run at the end that were refused then, so that the recording does not say when they leave."""


class Replay(NamedTuple):
    """The replay of a trace on a node: a plan of all pods, and the node after each event."""

    plan: Plan
    times: tuple[float, ...]
    """When each pod of the plan arrived."""
    moments: tuple[ReplayMoment, ...]
    comparison: Comparison

    @property
    def peak(self) -> ReplayMoment | None:
        """The first moment at which most CPUs were exclusive; None of an empty trace."""
        return max(self.moments, key=lambda moment: moment.exclusive, default=None)


def replay(
    events: Iterable[Event],
    topology: Topology,
    config: Config,
    running: Running = EMPTY_NODE,
    since: float | None = None,
) -> Replay:
    """Return the replay of *events* on a node.

    Events before *since* are replayed too, but only pods that still run at that time are reported.
    """
    admitter = config.build(topology)
    before = start(admitter, topology, running.state)
    course = _Course(admitter, before, since)
    for event in events:
        course.see(event)
    course.begin()
    plan = Plan(topology, config, admitter, before, tuple(row.outcome for row in course.rows), course.walk.settle())
    return Replay(plan, tuple(row.time for row in course.rows), tuple(course.moments), course.compared.result())


class _Row:
    """A pod of the plan; its result can change while it runs."""

    __slots__ = ("outcome", "time")

    def __init__(self, time: float, outcome: Outcome) -> None:
        self.time = time
        self.outcome = outcome

    @property
    def is_refused(self) -> bool:
        return self.outcome.refusal is not None


class _Course:
    """A node during a replay."""

    def __init__(self, admitter: Admitter, before: State, since: float | None) -> None:
        self.walk = Walk(admitter, before)
        self.rows: list[_Row] = []
        self.moments: list[ReplayMoment] = []
        self.compared = _Compared()
        self._admitter = admitter
        self._mine = before.shared.mask | before.exclusive.mask
        self._since = since
        """None: reporting has started."""
        self._open: dict[PodUID, _Row] = {}
        """By pod that has not left, running or refused."""
        self._there: set[PodUID] = set()
        self._refused = 0

    def see(self, event: Event) -> None:
        """Replay the next event."""
        if self._since is not None and event.time >= self._since:
            self.begin()
        if isinstance(event.pod, str):
            self._go(event.pod)
        else:
            self._come(event, event.pod)
        if self._since is None:
            self._keep_moment(event.time)

    def begin(self) -> None:
        """Report everything from now on, and first the pods that run now."""
        since, self._since = self._since, None
        if since is None or not self._open:
            return
        for uid, row in self._open.items():
            row.time = since
            self._add(row)
            self.compared.see(Event(since, row.outcome.pod, ""), uid, row.outcome)
        self._keep_moment(since)

    def _come(self, event: Event, pod: Pod) -> None:
        row = self._open.get(pod.uid)
        grows = row is not None and pod.uid in self._there
        if row is not None and grows:
            outcome = self._grow(row.outcome, pod)
        else:
            # The daemon keeps no CPUs of a pod that it refuses; a kubelet collects such CPUs later.
            outcome = self.walk.admit(pod) if event.then is None else self._attempt(pod)
        if self._since is None:
            self.compared.see(event, pod.uid, outcome)
        if outcome.refusal is None:
            self._there.add(pod.uid)
        # A pod that is refused repeatedly is one pod.
        if row is None or not (grows or (row.is_refused and outcome.refusal is not None)):
            row = self._open[pod.uid] = _Row(event.time, self._kept(outcome))
            if self._since is None:
                self._add(row)
        elif grows:
            self._refused += outcome.refusal is not None and not row.is_refused and self._since is None
            row.outcome = self._kept(outcome)

    def _grow(self, old: Outcome, pod: Pod) -> Outcome:
        """Return the outcome for a running pod with more containers; if refused, it keeps its CPUs."""
        outcome = self._attempt(pod)
        decisions = {**outcome.admission.decisions, **old.admission.decisions}
        return outcome._replace(pod=_together(old.pod, pod), admission=outcome.admission._replace(decisions=decisions))

    def _attempt(self, pod: Pod) -> Outcome:
        """Admit a pod, or leave the State unchanged."""
        attempt = Walk(self._admitter, self.walk.settle())
        outcome = attempt.admit(pod)
        if outcome.refusal is None:
            self.walk.state = attempt.state
        return outcome

    def _go(self, uid: PodUID) -> None:
        self.walk.remove(uid)
        self._there.discard(uid)
        self._open.pop(uid, None)
        self.compared.gone(uid)

    def _add(self, row: _Row) -> None:
        self.rows.append(row)
        self._refused += row.is_refused

    def _kept(self, outcome: Outcome) -> Outcome:
        # A trace can be long: with every State kept, a week would not fit into memory.
        if len(self.rows) + len(self._open) < KEPT_WHOLE:
            return outcome
        return outcome.brief(note=self._admitter.fidelity is Fidelity.KUBELET)

    def _keep_moment(self, time: float) -> None:
        exclusive = (self._mine & ~self.walk.settle().shared.mask).bit_count()
        self.moments.append(ReplayMoment(time, len(self._there), exclusive, self._refused))


class _Compared:
    """Counts the results then and now."""

    def __init__(self) -> None:
        self._tries = self._then = self._now = 0
        self._changes: dict[tuple[PodUID, bool], Change] = {}
        self._known: set[PodUID] = set()
        """The pods that were admitted then and have not left."""
        self._guests: set[PodUID] = set()
        """The pods that run now and were refused then."""

    def see(self, event: Event, uid: PodUID, outcome: Outcome) -> None:
        """Record the result for a pod."""
        if event.then is None:
            return
        now = "" if outcome.refusal is None else outcome.refusal.reason
        self._tries += 1
        self._then += bool(event.then)
        self._now += bool(now)
        if not event.then:
            self._known.add(uid)
            self._guests.discard(uid)
        elif not now and uid not in self._known:
            self._guests.add(uid)
        if bool(event.then) != bool(now):
            known = self._changes.get((uid, bool(now)))
            change = known or Change(event.time, outcome.pod, event.then, now, 0)
            self._changes[uid, bool(now)] = change._replace(tries=change.tries + 1)

    def gone(self, uid: PodUID) -> None:
        """Record that a pod has left."""
        self._known.discard(uid)
        self._guests.discard(uid)

    def result(self) -> Comparison:
        """Return the counts."""
        return Comparison(self._tries, self._then, self._now, tuple(self._changes.values()), len(self._guests))


def _together(old: Pod, new: Pod) -> Pod:
    """Return the pod with the containers of both; the new pod's containers win."""
    said = {container.name: container for container in new.all_containers}

    def both(before: tuple[Container, ...], after: tuple[Container, ...]) -> tuple[Container, ...]:
        kept = {container.name: said.get(container.name, container) for container in before}
        return tuple({**kept, **{container.name: container for container in after}}.values())

    return replace(new, init=both(old.init, new.init), containers=both(old.containers, new.containers))
