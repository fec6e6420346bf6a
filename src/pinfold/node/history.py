"""Questions to a journal, as texts by name, and answers as JSON-ready data; the same for whoever asks, however."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.cpuset import MAX_CPU
from pinfold.core.entries import Subject
from pinfold.core.explanation import decides_on, explain_entry
from pinfold.errors import ParseError, excerpt
from pinfold.node.journalhands import hands

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pinfold.core.entries import Entry
    from pinfold.core.explanation import Explanation
    from pinfold.node.journalfiles import Archive

MOST: Final = 10_000
USUAL: Final = 1000
MOST_SECONDS: Final = 10**15
_TIME: Final = re.compile(r"[-+]?[0-9]{1,40}(\.[0-9]{1,40})?([eE][-+]?[0-9]{1,3})?", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_WORD: Final = re.compile(r"[a-z][a-z0-9-]{0,62}")


class Question(NamedTuple):
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
    """Ask who had this CPU, instead."""

    def wants(self, entry: Entry) -> bool:
        """Whether an entry is asked for."""
        return (
            (not self.what or entry.what in self.what)
            and entry.what not in self.but
            and (self.subject is None or self.subject.covers(entry))
        )


def parse_question(query: Mapping[str, str]) -> Question:
    """Return the question that a query asks: since, until, container, what, after, limit, cpu.

    `what` is a list; a kind with an exclamation mark before it is left out.

    >>> parse_question({"what": "!state", "limit": "5"}).but
    frozenset({'state'})
    """
    kinds = query["what"].split(",") if "what" in query else []
    for kind in kinds:
        if _WORD.fullmatch(kind.removeprefix("!")) is None:
            raise ParseError(f"{excerpt(kind)} is no kind of entry", where="what")
    return Question(
        parse_seconds(query, "since"),
        parse_seconds(query, "until"),
        Subject.parse(query["container"]) if "container" in query else None,
        frozenset(kind for kind in kinds if kind[0] != "!"),
        frozenset(kind[1:] for kind in kinds if kind[0] == "!"),
        _number(query, "after", 10**18 - 1) or 0,
        _number(query, "limit", MOST, 1) or USUAL,
        _number(query, "cpu", MAX_CPU),
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


def answer_history(archive: Archive, question: Question) -> dict[str, object]:
    """Return the entries that are asked for, the earliest first; or in whose hands a CPU was.

    `first` is when the journal begins; `more` is whether there are more entries, after the last one here.
    """
    if question.cpu is not None:
        tenures = hands(archive.directory, question.cpu, question.since, question.until)
        return {"cpu": question.cpu, "tenures": [tenure.data() for tenure in tenures], "first": archive.first()}
    found = list(islice(_wanted(archive, question), question.limit + 1))
    shown = found[: question.limit]
    return {
        "entries": [entry.data() for entry in shown],
        "first": archive.first(),
        "more": len(found) > len(shown),
    }


def _wanted(archive: Archive, question: Question) -> Iterator[Entry]:
    entries = archive.entries(since=question.since, until=question.until, number_after=question.after)
    return (entry for entry in entries if question.wants(entry))


def answer_at(archive: Archive, query: Mapping[str, str]) -> dict[str, object]:
    """Return the State at a time."""
    time = parse_seconds(query, "time")
    if time is None:
        raise ParseError("expected seconds since the epoch", where="time")
    return archive.state_at(time).data()


def explain_kept(archive: Archive, subject: Subject) -> Explanation | None:
    """Return what the journal has kept of the last decision on a container; None if it has none."""
    entry = archive.latest(lambda entry: decides_on(entry, subject))
    return None if entry is None else explain_entry(entry, subject)
