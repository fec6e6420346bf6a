"""Turns what a Manager tells its Observer, and what it notes, into events, until it tells events itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.cpuset import EMPTY
from pinfold.core.events.about import PodName
from pinfold.core.events.daemon import RuntimeLinked
from pinfold.core.events.measures import Applied, Configured, Decided, Judged, Left, Looked, Saved
from pinfold.core.events.repairs import LostUpdate
from pinfold.core.events.running import RanUnpinned

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from pinfold.core.admission import Admission, Admitter
    from pinfold.core.entries import Entry
    from pinfold.core.events import Event
    from pinfold.core.pods import ContainerRef, Pod
    from pinfold.core.reconcile import Drift, Wanted
    from pinfold.core.state import State


class Observing:
    """An Observer that passes events on to *hear*."""

    def __init__(self, hear: Callable[[Event], None]) -> None:
        self._hear = hear

    def reconfigured(self, admitter: Admitter) -> None:
        """Pass on that another Admitter decides."""
        self._hear(Configured(admitter))

    def decided(self, seconds: float) -> None:
        """Pass on how long a decision took."""
        self._hear(Decided(seconds))

    def admitted(self, pod: Pod, before: State, admission: Admission, seconds: float, *, ok: bool = True) -> None:
        """Pass on what became of a pod."""
        self._hear(Judged(pod=pod, before=before, admission=admission, seconds=seconds, ok=ok))

    def released(self, containers: Collection[ContainerRef]) -> None:
        """Pass on which containers are gone."""
        self._hear(Left(tuple(containers)))

    def saved(self, seconds: float, *, ok: bool = True) -> None:
        """Pass on whether a State was saved."""
        self._hear(Saved(seconds, ok))

    def applied(self, seconds: float, *, ok: bool = True) -> None:
        """Pass on whether a State was applied."""
        self._hear(Applied(seconds, ok))

    def looked(self, want: Wanted, found: Sequence[Drift], left: Sequence[Drift], now: float) -> None:
        """Pass on what a look has found."""
        self._hear(Looked(want, tuple(found), tuple(left), now))

    def take(self, entry: Entry) -> None:
        """Pass on what is counted of notes."""
        pod, container = PodName("", entry.text("pod"), ""), entry.text("container")
        match entry.what:
            case "ran-unpinned":
                seconds = entry.fields.get("seconds")
                self._hear(RanUnpinned(pod, container, seconds if isinstance(seconds, int | float) else 0.0))
            case "lost-update":
                self._hear(LostUpdate(pod, container, EMPTY, EMPTY))
            case "runtime":
                self._hear(RuntimeLinked(entry.text("link"), entry.text("detail")))
