"""Laws of events: each audience is told all that those before it are, and the journal gives back what it was told."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_args

from hypothesis import given
from hypothesis import strategies as st

from pinfold.core.events import Told
from pinfold.core.events.about import Audience, PodName
from pinfold.core.events.entries import Entry, Subject
from pinfold.core.events.fields import entry_fields, is_for
from pinfold.core.events.timeline import state_at
from pinfold.core.explaining.explanation import decides_on, explain_entry
from pinfold.core.machine.cpuset import CPUSet
from pinfold.formats.journal.record import EntryPacker, parse_records
from pinfold.formats.journal.trace import JournalReader

_words = st.text(max_size=8)
_cpus = st.sets(st.integers(0, 40), max_size=6).map(lambda cpus: CPUSet.of(*cpus))
_pods = st.builds(PodName, _words, _words, _words)
_data = st.dictionaries(_words, _words | st.integers() | st.lists(_words, max_size=2), max_size=3)
_rows = st.lists(_data, max_size=2).map(tuple)
OF_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "str": _words,
    "str | None": st.none() | _words,
    "int": st.integers(),
    "int | None": st.none() | st.integers(),
    "float": st.floats(0, 1e9),
    "float | None": st.none() | st.floats(0, 1e9),
    "CPUSet": _cpus,
    "CPUSet | None": st.none() | _cpus,
    "PodName": _pods,
    "PodName | None": st.none() | _pods,
    "Data": _data,
    "Data | None": st.none() | _data,
    "Rows": _rows,
    "tuple[str, ...]": st.lists(_words, max_size=3).map(tuple),
    "tuple[int, ...]": st.lists(st.integers(), max_size=3).map(tuple),
    "Mapping[str, CPUSet]": st.dictionaries(_words, _cpus, max_size=3),
}
"""What a field can be, by its annotation; one that is not here has no rendering that was thought of."""


def of_class(cls: Any) -> st.SearchStrategy[Told]:  # noqa: ANN401 - a class of the union; mypy has no name for it
    return st.builds(cls, **{field.name: OF_TYPE[str(field.type)] for field in fields(cls)})


events = st.one_of(*map(of_class, get_args(Told)))


def entry(number: int, event: Told, audience: Audience = Audience.JOURNAL) -> Entry:
    return Entry(number, 1.5 * number, event.what, entry_fields(event, audience))


@given(events)
def test_an_audience_is_told_all_that_those_before_it_are_told(event: Told) -> None:
    log, stream, journal = (entry_fields(event, audience).items() for audience in Audience)
    assert list(log) == [item for item in stream if item in log]
    assert list(stream) == [item for item in journal if item in stream]


@given(events, st.sampled_from([Audience.LOG, Audience.STREAM]))
def test_the_log_and_the_stream_are_told_words_and_numbers_only(event: Told, audience: Audience) -> None:
    if is_for(event, audience):
        assert all(isinstance(value, str | int | float) for value in entry_fields(event, audience).values())


@given(st.lists(events, max_size=8))
def test_the_journal_gives_back_every_event_as_it_was_told(told: list[Told]) -> None:
    entries = [entry(number, event) for number, event in enumerate(told, 1)]
    packer = EntryPacker()
    parsed = parse_records(b"".join(map(packer.pack, entries)))
    assert list(parsed.entries) == entries
    assert not parsed.damaged


@given(st.lists(events, max_size=8))
def test_those_who_read_the_journal_can_read_every_event(told: list[Told]) -> None:
    entries = [entry(number, event) for number, event in enumerate(told, 1)]
    list(JournalReader().events(entries))
    state_at(entries, 1e9)
    for kept in entries:
        subject = Subject(None, kept.text("pod"), None)
        if decides_on(kept, subject):
            explain_entry(kept, subject)
