"""Counters: what a node has done since the daemon started, counted from events."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from pinfold.core.events import Measured
from pinfold.core.events.daemon import RuntimeLinked
from pinfold.core.events.decisions import Gone
from pinfold.core.events.measures import Applied, Configured, Decided, Judged, Left, Looked, Saved
from pinfold.core.events.repairs import Drifted, Fought, LostUpdate
from pinfold.core.events.running import RanUnpinned
from pinfold.core.machine.cpuset import EMPTY
from pinfold.core.pods.pod import PodUID
from pinfold.core.reconcile import Cause
from pinfold.formats.openmetrics import Sample
from pinfold.serve.metrics import table as rows
from pinfold.serve.metrics.admissions import Admissions
from pinfold.serve.metrics.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Collection

    from pinfold.core.admission import Admitter
    from pinfold.core.events import Event
    from pinfold.core.reconcile import Drift, Wanted

_Counted = Measured | Gone | RanUnpinned | LostUpdate | Drifted | Fought | RuntimeLinked


class Counters:
    """Everything that is counted; made once for each daemon, and subscribed to its bus."""

    def __init__(self, admitter: Admitter, now: float, links: Collection[str] = ("connected",)) -> None:
        """*links* are the states of the connection to the runtime in which it can be reached."""
        self.tally = Tally()
        self.drift_left = 0
        """How many differences the last check could not repair."""
        self._admissions = Admissions(self.tally, admitter)
        self._links = links
        self._connected = False
        self._looked = now
        """When the actual state was last checked."""

    @property
    def repaired(self) -> int:
        """How many differences were repaired, of all causes."""
        return int(sum(sample.value for sample in self.tally.samples(rows.DRIFT_REPAIRS) if isinstance(sample, Sample)))

    def hear(self, event: Event) -> None:
        """Count an event, if it is of a kind that is counted."""
        if isinstance(event, _Counted):
            self._count(event)

    def _count(self, event: _Counted) -> None:  # noqa: C901, PLR0912 - one case for each kind of event
        match event:
            case Configured(admitter):
                self._admissions.configured(admitter)
            case Decided(seconds):
                self.tally.observe(rows.DECISION_SECONDS, seconds)
            case Judged():
                self._admissions.judged(event)
            case Left(containers):
                self._admissions.left(containers)
            case Gone(pod):
                self._admissions.gone(PodUID(pod.uid))
            case Saved(seconds, ok):
                self.tally.add(rows.SAVES if ok else rows.SAVE_FAILURES)
                self.tally.observe(rows.SAVE_SECONDS, seconds)
            case Applied(seconds, ok):
                self.tally.observe(rows.APPLY_SECONDS, seconds, "ok" if ok else "failed")
            case Looked():
                self._count_drift(event)
            case RanUnpinned(seconds=seconds):
                self.tally.add(rows.UNPINNED_CONTAINERS)
                self.tally.add(rows.UNPINNED, by=max(seconds, 0.0))
            case LostUpdate():
                self.tally.add(rows.DRIFT_REPAIRS, "lost_update")
            case Drifted(cause=cause):
                if cause == Cause.SHIELD:  # the others are counted when they were repaired
                    self.tally.add(rows.DRIFT_REPAIRS, cause)
            case Fought(cause=cause):
                self.tally.add(rows.FIGHTS, cause)
            case RuntimeLinked(link=link):
                self._count_link(connected=link in self._links)
            case _:
                assert_never(event)

    def _count_drift(self, look: Looked) -> None:
        """Count repairs, and for how long containers may have been on CPUs of others."""
        still = {difference.container for difference in look.left}
        for difference in look.found:
            if difference.container not in still:
                self.tally.add(rows.DRIFT_REPAIRS, _cause(look.want, difference))
        self.drift_left = len(look.left)
        if any(_overlaps(look.want, difference) for difference in look.found):
            self.tally.add(rows.OVERLAP, by=max(look.now - self._looked, 0.0))
        self._looked = look.now

    def _count_link(self, *, connected: bool) -> None:
        """Count the connection to the runtime when it is lost; attempts to get it back are not counted."""
        if self._connected and not connected:
            self.tally.add(rows.DISCONNECTS)
        self._connected = connected


def _cause(want: Wanted, difference: Drift) -> str:
    if difference.cause is not Cause.CPUS:
        return difference.cause
    if difference.container is None:
        return "pool"
    return "exclusive" if difference.container in want.exclusive else "shared"


def _overlaps(want: Wanted, difference: Drift) -> bool:
    """Whether a container or the pool was on CPUs that belong to a container of another pod."""
    who = difference.container
    taken = EMPTY
    for owner, cpus in want.exclusive.items():
        if who is None or owner.pod != who.pod:
            taken |= cpus
    return bool(difference.found & taken)
