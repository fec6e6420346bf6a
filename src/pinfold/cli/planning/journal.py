"""A daemon's journal as the events of a replay, file by file; and how pods fared then, beside how they fare now."""

from __future__ import annotations

import time
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING, Final

from pinfold.cli.arguments.when import parse_when, show_when
from pinfold.cli.planning.arguments import BadQuestion
from pinfold.formats.journal.trace import JournalReader
from pinfold.formats.pods.trace import MAX_EVENTS
from pinfold.node.journal.files import DIRECTORY, find_segments, walk
from pinfold.render.columns import DIM, GREEN, RED, Cell, Column, Line, format_columns, join_parts
from pinfold.render.machine.canvas import Canvas, wrap
from pinfold.render.plan.replay import format_seconds
from pinfold.render.plan.table import plural
from pinfold.settings.places import check_path

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pinfold.core.events.entries import Entry
    from pinfold.planning.replay import Change, Event, Replay
    from pinfold.render.machine.canvas import Look

MOST_PODS: Final = 100_000
"""The most pods in one replay; --since continues with the rest."""
_MOST_ROWS: Final = 20


class JournalEvents:
    """The events that the flags select, read once; afterwards, notes on them."""

    def __init__(self, args: argparse.Namespace, most: int = MOST_PODS) -> None:
        now = time.time()
        self.since = None if args.since is None else parse_when(args.since, now, "--since")
        self._until = inf if args.until is None else parse_when(args.until, now, "--until")
        if self.since is not None and self.since > self._until:
            raise BadQuestion(f"--since {args.since} is after --until {args.until}")
        self._directory = find_journal(args.journal)
        self._reader = JournalReader(self.since)
        self._most = most
        self._pods = self._events = 0
        self._stopped: float | None = None

    def __iter__(self) -> Iterator[Event]:
        wanted = (entry for entry in read_entries(self._directory) if entry.time <= self._until)
        for event in self._reader.events(wanted):
            if self.since is None or event.time >= self.since:
                if self._pods == self._most or self._events == MAX_EVENTS:
                    self._stopped = event.time
                    return
                self._pods += event.comes
                self._events += 1
            yield event

    @property
    def remarks(self) -> list[str]:
        """Notes on what was read."""
        remarks = self._reader.remarks
        if self._stopped is not None:
            when = show_when(self._stopped).replace(" ", "T")
            remarks.append(f"stopped at {when} after {plural(self._pods, 'pod')}; go on with --since {when}")
        elif not self._events:
            remarks.append(f"no pod came or went within these times: {self._directory}")
        return remarks


def find_journal(text: str) -> Path:
    """Return the directory of the journal's files: the one that is named, or its place in a state directory."""
    named = check_path(text, "--journal")
    for directory in (named / DIRECTORY, named):
        if find_segments(directory):
            return directory
    raise BadQuestion(f"--journal: there is no journal in {text}")


def read_entries(directory: Path) -> Iterator[Entry]:
    """Yield all entries in the order of their numbers, one file in memory at a time.

    Where the clock was set back, entries before it get at most the time of the entry after it.
    """
    found = find_segments(directory)
    number = 0
    ends = (segment.second + 1.0 if segment.back else inf for segment in reversed(found[1:]))
    bounds = list(accumulate(ends, min, initial=inf))[::-1]
    for segment, bound in zip(found, bounds, strict=False):
        for entry in walk([segment]):
            if entry.number > number:
                number = entry.number
                yield entry._replace(time=min(entry.time, bound))


def format_then(replay: Replay, look: Look) -> str:
    """Return for the terminal the pods refused then that fit now, and those refused only now."""
    compared = replay.comparison
    rows: list[Sequence[Cell] | Line] = [_row(replay, change) for change in compared.changes[:_MOST_ROWS]]
    if len(compared.changes) > _MOST_ROWS:
        rows.append(Line(f"and {len(compared.changes) - _MOST_ROWS:,} more; see -o json", DIM))
    columns = (Column("AFTER"), Column("POD", 12, cut=True), Column("THEN", 12), Column("NOW", 12))
    table = format_columns(columns, rows, look) if rows else Canvas()
    return join_parts([table, _sum(replay, look)], look)


def _row(replay: Replay, change: Change) -> Sequence[Cell]:
    after = format_seconds(max(change.time - replay.moments[0].time, 0))
    fates = (Cell(fate, RED) if fate else Cell("let in", GREEN) for fate in (change.then, change.now))
    return (Cell(after), Cell(change.pod.name), *fates)


def _sum(replay: Replay, look: Look) -> Canvas:
    compared = replay.comparison
    canvas = Canvas()
    tries = f"{compared.tries:,} {'try' if compared.tries == 1 else 'tries'}"
    text = f"of {tries}, {compared.refused_then:,} refused then, {compared.refused_now:,} now"
    canvas.append(wrap(text, look.width, indent=2), "")
    if compared.staying:
        are, they = ("is", "it") if compared.staying == 1 else ("are", "they")
        unknown = f"the journal does not say when {they} would have left"
        text = f"{plural(compared.staying, 'pod')} refused then {are} assumed to stay; {unknown}"
        canvas.append(wrap(text, look.width, indent=2), DIM)
    return canvas


def then_data(replay: Replay) -> dict[str, object]:
    """Return the same, ready for JSON."""
    compared = replay.comparison
    changes = [
        {
            "time": change.time,
            "namespace": change.pod.namespace,
            "pod": change.pod.name,
            "then": change.then or None,
            "now": change.now or None,
            "tries": change.tries,
        }
        for change in compared.changes
    ]
    return {**compared._asdict(), "changes": changes}
