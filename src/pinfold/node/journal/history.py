"""Queries to a journal, as texts by name, and answers as JSON-ready data; the same for the API and the CLI."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pinfold.core.events.entries import Entry, Subject
from pinfold.core.events.timeline import Moment, moment_of
from pinfold.core.explaining.explanation import decides_on, explain_entry
from pinfold.core.machine.cpuset import MAX_CPU, CPUSet
from pinfold.errors import ParseError, excerpt
from pinfold.node.journal.hands import hands

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pinfold.core.explaining.explanation import Explanation
    from pinfold.node.journal.files import Archive

MOST: Final = 10_000
USUAL: Final = 1000
MOST_BYTES: Final = 4 << 20
"""The approximate size of an answer; the client asks again for more."""
MOST_SECONDS: Final = 10**15
_TIME: Final = re.compile(r"[-+]?[0-9]{1,40}(\.[0-9]{1,40})?([eE][-+]?[0-9]{1,3})?", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_WORD: Final = re.compile(r"[a-z][a-z0-9-]{0,62}")
_POOLS: Final = ("reserved", "offline")


class HistoryQuestion(NamedTuple):
    """Which entries are asked for."""

    since: float | None = None
    until: float | None = None
    subject: Subject | None = None
    what: frozenset[str] = frozenset()
    """Only these kinds; none: all."""
    but: frozenset[str] = frozenset()
    """Not these kinds."""
    after: int = 0
    """Only entries with a higher number."""
    limit: int = USUAL
    cpu: int | None = None
    """Ask for the owners of this CPU instead."""
    newest: bool = False
    """If there are too many, return the last ones instead of the first."""
    brief: bool = False
    """Leave nested objects out: of a State only its time, of a decision only its outcome."""

    def wants(self, entry: Entry) -> bool:
        """Whether an entry is asked for."""
        return (
            (not self.what or entry.what in self.what)
            and entry.what not in self.but
            and (self.subject is None or self.subject.covers(entry))
        )


def parse_question(query: Mapping[str, str]) -> HistoryQuestion:
    """Return the question that a query asks: since, until, container, what, after, limit, cpu, newest, brief.

    `what` is a list; a kind with an exclamation mark before it is left out.

    >>> parse_question({"what": "!state", "limit": "5"}).but
    frozenset({'state'})
    """
    kinds = query["what"].split(",") if "what" in query else []
    for kind in kinds:
        if _WORD.fullmatch(kind.removeprefix("!")) is None:
            raise ParseError(f"{excerpt(kind)} is not a kind of entry", where="what")
    return HistoryQuestion(
        parse_seconds(query, "since"),
        parse_seconds(query, "until"),
        Subject.parse(query["container"]) if "container" in query else None,
        frozenset(kind for kind in kinds if kind[0] != "!"),
        frozenset(kind[1:] for kind in kinds if kind[0] == "!"),
        _number(query, "after", 10**18 - 1) or 0,
        _number(query, "limit", MOST, 1) or USUAL,
        _number(query, "cpu", MAX_CPU),
        _flag(query, "newest"),
        _flag(query, "brief"),
    )


def parse_seconds(query: Mapping[str, str], name: str) -> float | None:
    """Return the time in a query, None if there is none."""
    if name not in query:
        return None
    text = query[name]
    if _TIME.fullmatch(text) is None or not abs(float(text)) <= MOST_SECONDS:
        raise ParseError(f"{excerpt(text)} is no time; expected seconds since the epoch", where=name)
    return float(text)


def _number(query: Mapping[str, str], name: str, most: int, least: int = 0) -> int | None:
    if name not in query:
        return None
    text = query[name]
    if _NUMBER.fullmatch(text) is None or not least <= int(text) <= most:
        raise ParseError(f"{excerpt(text)} is not within {least} to {most}", where=name)
    return int(text)


def _flag(query: Mapping[str, str], name: str) -> bool:
    text = query.get(name, "false")
    if text not in {"true", "false"}:
        raise ParseError(f"{excerpt(text)} is neither true nor false", where=name)
    return text == "true"


def answer_history(archive: Archive, question: HistoryQuestion) -> dict[str, object]:
    """Return the requested entries, the earliest first; or the owners of a CPU.

    `first` is when the journal begins. `more` is whether there are more than the limit or one answer allows: after the
    last one here; or before the first one, if the newest are asked for.
    """
    if question.cpu is not None:
        tenures = hands(archive.directory, question.cpu, question.since, question.until)
        told, more = _fit(tenure.data() for tenure in tenures)
        return {"cpu": question.cpu, "tenures": told, "first": _first(archive), "more": more}
    entries = (entry for entry in _within(archive, question) if question.wants(entry))
    shown, more = _fit(map(_brief if question.brief else Entry.public, entries), question.limit)
    return {"entries": shown[::-1] if question.newest else shown, "first": _first(archive), "more": more}


def _first(archive: Archive) -> float | None:
    first = archive.first()
    return None if first is None else round(first, 3)  # as that entry has it


def _within(archive: Archive, question: HistoryQuestion) -> Iterator[Entry]:
    read = archive.newest if question.newest else archive.entries
    return read(since=question.since, until=question.until, number_after=question.after)


def _fit(rows: Iterable[dict[str, object]], limit: int | None = None) -> tuple[list[dict[str, object]], bool]:
    """Return the first rows, at least one, that fit into one answer; and whether there are more."""
    shown: list[dict[str, object]] = []
    size = 0
    for row in rows:
        size += len(json.dumps(row))
        if shown and (len(shown) == limit or size > MOST_BYTES):
            return shown, True
        shown.append(row)
    return shown, False


def _brief(entry: Entry) -> dict[str, object]:
    return {name: value for name, value in entry.public().items() if not _has_objects(value)}


def _has_objects(value: object) -> bool:
    parts: list[Any] = value if isinstance(value, list) else []  # Any: JSON
    return isinstance(value, dict) or any(isinstance(part, dict | list) for part in parts)


def answer_at(archive: Archive, query: Mapping[str, str]) -> dict[str, object]:
    """Return the State at a time, and which CPUs were reserved and offline, if the journal has them."""
    time = parse_seconds(query, "time")
    if time is None:
        raise ParseError("expected seconds since the epoch", where="time")
    entry = archive.entry_of_state(time)
    if entry is None:
        return Moment(time).data()
    return {**moment_of(entry, time).data(), **_pools(entry)}


def _pools(entry: Entry) -> dict[str, str]:
    try:
        return {name: str(CPUSet.parse(entry.text(name))) for name in _POOLS if name in entry.fields}
    except ParseError:
        return {}


def explain_kept(archive: Archive, subject: Subject) -> Explanation | None:
    """Return the journal's entry of the last decision on a container; None if it has none."""
    entry = archive.latest(lambda entry: decides_on(entry, subject))
    return None if entry is None else explain_entry(entry, subject)
