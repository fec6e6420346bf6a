"""A recorded trace of pods that came and went, lived through once more on a node of any kind.

Where it was recorded what became of a pod, that is compared with what becomes of it here.
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
    from pinfold.core.machine.topology import Topology
    from pinfold.core.outcome import Outcome
    from pinfold.core.pods.pod import Container, Pod, PodUID
    from pinfold.core.state import State
    from pinfold.planning.plan import Running


KEPT_WHOLE: Final = 500
"""So many pods of a trace keep the steps that led to their CPUs; of the later ones only the CPUs are kept."""


class Event(NamedTuple):
    """A pod comes, or the one with a UID goes. One that is there and comes again has more containers than before."""

    time: float
    """In seconds; only the order and the distances matter."""
    pod: Pod | PodUID
    then: str | None = None
    """Why the pod was refused when this was recorded; empty: it was let in; None: nobody knows."""

    @property
    def comes(self) -> bool:
        """Whether the pod comes."""
        return not isinstance(self.pod, str)


class ReplayMoment(NamedTuple):
    """The node after an event."""

    time: float
    pods: int
    """How many are there."""
    exclusive: int
    """How many CPUs are exclusive."""
    refused: int
    """How many pods have been refused up to now."""


class Change(NamedTuple):
    """A pod that was refused then and is let in now, or the other way round."""

    time: float
    """When that was so for the first time."""
    pod: Pod
    then: str
    """Why it was refused then; empty: it was not."""
    now: str
    tries: int = 1
    """How often it was so."""


class Comparison(NamedTuple):
    """How pods fared when they were recorded, and how they fare now; each try counts."""

    tries: int
    refused_then: int
    refused_now: int
    changes: tuple[Change, ...]
    staying: int
    """How many are there at the end that were never let in then, so that nobody knows when they would have gone."""


class Replay(NamedTuple):
    """What a node made of a trace: a plan of all that came, and the moments on the way."""

    plan: Plan
    times: tuple[float, ...]
    """When each pod of the plan came."""
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
    """Return what the node would have made of *events*.

    What comes before *since* is lived through too, but of it only those who are there at that time are told of.
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
    """A pod of the plan; what became of it can change while it is there."""

    __slots__ = ("outcome", "time")

    def __init__(self, time: float, outcome: Outcome) -> None:
        self.time = time
        self.outcome = outcome

    @property
    def is_refused(self) -> bool:
        return self.outcome.refusal is not None


class _Course:
    """A node on its way through a trace."""

    def __init__(self, admitter: Admitter, before: State, since: float | None) -> None:
        self.walk = Walk(admitter, before)
        self.rows: list[_Row] = []
        self.moments: list[ReplayMoment] = []
        self.compared = _Compared()
        self._admitter = admitter
        self._mine = before.shared.mask | before.exclusive.mask
        self._since = since
        """None: what happens now is told of."""
        self._open: dict[PodUID, _Row] = {}
        """By pod that has not gone, be it there or refused."""
        self._there: set[PodUID] = set()
        self._refused = 0

    def see(self, event: Event) -> None:
        """Live through the next event."""
        if self._since is not None and event.time >= self._since:
            self.begin()
        if isinstance(event.pod, str):
            self._go(event.pod)
        else:
            self._come(event, event.pod)
        if self._since is None:
            self._keep_moment(event.time)

    def begin(self) -> None:
        """Tell of everything from now on, and first of those who are here."""
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
            # A daemon takes nothing over from a pod that it refuses; a kubelet collects what such a pod leaves behind.
            outcome = self.walk.admit(pod) if event.then is None else self._attempt(pod)
        if self._since is None:
            self.compared.see(event, pod.uid, outcome)
        if outcome.refusal is None:
            self._there.add(pod.uid)
        # A pod that is refused again and again is one pod.
        if row is None or not (grows or (row.is_refused and outcome.refusal is not None)):
            row = self._open[pod.uid] = _Row(event.time, self._kept(outcome))
            if self._since is None:
                self._add(row)
        elif grows:
            self._refused += outcome.refusal is not None and not row.is_refused and self._since is None
            row.outcome = self._kept(outcome)

    def _grow(self, old: Outcome, pod: Pod) -> Outcome:
        """Return what becomes of a pod that is there and has more containers; refused, it keeps what it has."""
        outcome = self._attempt(pod)
        decisions = {**outcome.admission.decisions, **old.admission.decisions}
        return outcome._replace(pod=_together(old.pod, pod), admission=outcome.admission._replace(decisions=decisions))

    def _attempt(self, pod: Pod) -> Outcome:
        """Let a pod in, or leave everything as it is."""
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
        # A trace can be long: were every State kept, a week would not fit into memory.
        if len(self.rows) + len(self._open) < KEPT_WHOLE:
            return outcome
        return outcome.brief(note=self._admitter.fidelity is Fidelity.KUBELET)

    def _keep_moment(self, time: float) -> None:
        exclusive = (self._mine & ~self.walk.settle().shared.mask).bit_count()
        self.moments.append(ReplayMoment(time, len(self._there), exclusive, self._refused))


class _Compared:
    """Counts how pods fare, then and now."""

    def __init__(self) -> None:
        self._tries = self._then = self._now = 0
        self._changes: dict[tuple[PodUID, bool], Change] = {}
        self._known: set[PodUID] = set()
        """Who was let in then, and has not gone."""
        self._guests: set[PodUID] = set()
        """Who is there now, and was never let in then."""

    def see(self, event: Event, uid: PodUID, outcome: Outcome) -> None:
        """Take note of what became of a pod."""
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
        """Take note that a pod is not there any more."""
        self._known.discard(uid)
        self._guests.discard(uid)

    def result(self) -> Comparison:
        """Return what was counted."""
        return Comparison(self._tries, self._then, self._now, tuple(self._changes.values()), len(self._guests))


def _together(old: Pod, new: Pod) -> Pod:
    """Return the pod with the containers of both; what the new one says of a container counts."""
    said = {container.name: container for container in new.all_containers}

    def both(before: tuple[Container, ...], after: tuple[Container, ...]) -> tuple[Container, ...]:
        kept = {container.name: said.get(container.name, container) for container in before}
        return tuple({**kept, **{container.name: container for container in after}}.values())

    return replace(new, init=both(old.init, new.init), containers=both(old.containers, new.containers))
