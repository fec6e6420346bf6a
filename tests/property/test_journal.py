"""Laws of the journal: what is left of its files gives exactly the whole entries in them, in order and in bounds."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pinfold.core.events.entries import Entry
from pinfold.core.events.timeline import owners_of, settled_times, state_at
from pinfold.formats.journal.record import EntryPacker, parse_records
from pinfold.node.journal.files import Archive
from pinfold.node.journal.hands import hands
from pinfold.node.journal.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NOW = 1_700_000_000.0
on_disk = settings(max_examples=40)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
names = st.text(max_size=6).filter(lambda name: name not in {"number", "time", "what"})
notes = st.tuples(st.just("note"), st.dictionaries(names, values, max_size=4))


@st.composite
def states(draw: st.DrawFn, cpus: int = 8) -> tuple[str, dict[str, Any]]:
    """A sound State of a small node: every CPU is shared or exclusive."""
    owners = draw(st.lists(st.sampled_from(["", "", "a/b/c", "a/b/d", "a/e/f"]), min_size=cpus, max_size=cpus))
    lists = {
        owner: ",".join(str(cpu) for cpu in range(cpus) if owners[cpu] == owner) for owner in dict.fromkeys(owners)
    }
    return "state", {"shared": lists.pop("", ""), "exclusive": lists}


@st.composite
def stories(draw: st.DrawFn, most: int = 40) -> list[Entry]:
    """Entries with rising numbers, and a clock that is mostly right."""
    number, time = 0, NOW
    entries = []
    for what, fields in draw(st.lists(notes | states(), max_size=most)):
        number += draw(st.integers(1, 3))
        time += draw(st.sampled_from([0.0, 0.001, 1.0, 60.0, 7200.0, -0.5, -30.0, -7200.0]))
        entries.append(Entry(number, time, what, fields))
    return entries


@contextmanager
def kept(entries: Sequence[Entry], max_bytes: int = 64 << 20) -> Iterator[Journal]:
    directory = Path(tempfile.mkdtemp())
    journal = Journal(directory / "j", clock=lambda: NOW, tell=print, max_bytes=max_bytes)
    try:
        for entry in entries:
            journal.append(entry)
        yield journal
    finally:
        journal.close()
        shutil.rmtree(directory)


@on_disk
@given(stories())
def test_all_entries_come_back_from_one_file_after_the_other(entries: list[Entry]) -> None:
    with kept(entries, max_bytes=64 * 3000) as journal:
        assert list(journal.entries()) == entries
        assert journal.lost == 0


@given(stories(most=15), st.data())
def test_any_prefix_of_a_file_gives_exactly_the_whole_entries_in_it(entries: list[Entry], data: st.DataObject) -> None:
    packer = EntryPacker()
    lines = [packer.pack(entry) for entry in entries]
    content = b"".join(lines)
    end = data.draw(st.integers(0, len(content)))
    whole = sum(len(b"".join(lines[: count + 1])) <= end for count in range(len(lines)))
    parsed = parse_records(content[:end])
    assert parsed.entries == tuple(entries[:whole])
    assert (parsed.damaged, parsed.whole) == (0, len(b"".join(lines[:whole])))


@on_disk
@given(stories(most=15), st.data())
def test_numbers_and_entries_go_on_after_any_part_is_cut_off(entries: list[Entry], data: st.DataObject) -> None:
    with kept(entries) as journal:
        journal.close()
        for path in sorted(journal.directory.iterdir())[-1:]:
            content = path.read_bytes()
            path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
        before = list(Archive(journal.directory).entries())
        again = Journal(journal.directory, clock=lambda: NOW, tell=print)
        assert again.last >= max((entry.number for entry in before), default=0)
        last = Entry(again.last + 1, NOW, "state", {"shared": "1", "exclusive": {"x/y/z": "0"}})
        again.append(last)
        again.close()
        assert before == entries[: len(before)]
        assert list(again.entries()) == [*before, last]


@given(stories(), st.data())
def test_damage_anywhere_loses_what_is_damaged_and_invents_nothing(entries: list[Entry], data: st.DataObject) -> None:
    packer = EntryPacker()
    content = bytearray(b"".join(packer.pack(entry) for entry in entries))
    for _ in range(data.draw(st.integers(1, 4)) if content else 0):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    known = {entry.number: entry for entry in entries}
    found = parse_records(bytes(content)).entries
    for entry in found:
        told = known[entry.number]
        lost_owners = {name: value for name, value in told.fields.items() if name != "exclusive"}
        assert entry in {"whole": told, "owners lost": told._replace(fields=lost_owners)}.values()
    assert [entry.number for entry in found] == sorted(entry.number for entry in found)


@on_disk
@given(stories(), st.integers(3000, 20_000))
def test_it_never_takes_more_room_than_it_may(entries: list[Entry], max_bytes: int) -> None:
    with kept([], max_bytes) as journal:
        for entry in entries:
            journal.append(entry)
            assert sum(path.stat().st_size for path in journal.directory.iterdir()) == journal.bytes <= max_bytes
        found = list(journal.entries())
        assert list(journal.newest()) == found[::-1]
        assert [entry.number for entry in found] == sorted({entry.number for entry in found})
        assert all(entry in entries for entry in found)
        if entries and not journal.lost:
            assert found[-1] == entries[-1]


@on_disk
@given(stories(), st.floats(NOW - 10_000, NOW + 100_000))
def test_the_state_at_a_time_is_what_replaying_gives(entries: list[Entry], time: float) -> None:
    replayed = None
    for index, entry in enumerate(entries):
        settled = min(later.time for later in entries[index:])  # the clock may have been set back after it
        if entry.what == "state" and settled <= time:
            replayed = entry
    found = state_at(entries, time)
    assert found.known == (replayed is not None)
    if replayed is not None:
        assert {owner: str(cpus) for owner, cpus in found.exclusive.items()}.keys() == replayed.fields[
            "exclusive"
        ].keys()  # type: ignore[attr-defined] # a dict, see states
        assert found.since == replayed.time
    with kept(entries) as journal:
        assert journal.state_at(time) == found


@given(stories(), st.integers(0, 8))
def test_the_hands_of_a_cpu_agree_with_the_state_at_every_time(entries: list[Entry], cpu: int) -> None:
    tenures = owners_of(entries, cpu)
    for earlier, later in pairwise(tenures):
        assert earlier.until == later.since
        assert (earlier.pool, earlier.owner) != (later.pool, later.owner)
    for time in settled_times(entries):
        moment = state_at(entries, time)
        if moment.known:
            (now,) = [tenure for tenure in tenures if tenure.meets(time, time)]
            owner = next((owner for owner, cpus in moment.exclusive.items() if cpu in cpus), None)
            pool = "exclusive" if owner else "shared" if cpu in moment.shared else "nobody"
            assert (now.pool, now.owner) == (pool, owner)
            assert owners_of(entries, cpu, time, time) == [now]


@on_disk
@given(stories(), st.integers(0, 8), st.data())
def test_the_hands_of_a_cpu_are_the_same_from_few_files(entries: list[Entry], cpu: int, data: st.DataObject) -> None:
    since, until = (data.draw(st.none() | st.floats(NOW - 20_000, NOW + 40_000)) for _ in range(2))
    if data.draw(st.booleans()):  # otherwise the clock is set back so often that all files are read
        entries = [entry._replace(time=NOW + entry.number * 40) for entry in entries]
    with kept(entries, max_bytes=64 * 400) as journal:
        found = list(journal.entries())
        assert hands(journal.directory, cpu, since, until) == owners_of(found, cpu, since, until)


@on_disk
@given(stories(), st.data())
def test_any_question_gets_what_a_look_through_all_entries_gives(entries: list[Entry], data: st.DataObject) -> None:
    since, until = (data.draw(st.none() | st.floats(NOW - 20_000, NOW + 40_000)) for _ in range(2))
    after, limit = data.draw(st.integers(0, 60)), data.draw(st.none() | st.integers(0, 10))
    wanted = [
        entry
        for entry in entries
        if (since is None or entry.time >= since) and (until is None or entry.time <= until) and entry.number > after
    ]
    with kept(entries, max_bytes=64 * 3000) as journal:
        found = list(journal.entries(since=since, until=until, number_after=after, limit=limit))
        assert found == wanted[:limit]
        assert list(journal.newest(since=since, until=until, number_after=after)) == wanted[::-1]
