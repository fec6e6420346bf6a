from __future__ import annotations

import json
from math import nan

import pytest

from pinfold.core.events.entries import Entry
from pinfold.formats.journal.record import (
    LONGEST,
    EntryPacker,
    UnusableEntry,
    format_base,
    format_record,
    parse_record,
    parse_records,
)

MANY = {f"default/pod-{index}/app": str(index) for index in range(100)}


def state(number: int, exclusive: dict[str, str], **more: object) -> Entry:
    return Entry(number, float(number), "state", {"shared": "0", "exclusive": exclusive, **more})


def note(number: int, **fields: object) -> Entry:
    return Entry(number, float(number), "note", fields)


def packed(*entries: Entry, packer: EntryPacker | None = None) -> list[bytes]:
    packer = packer or EntryPacker()
    return [packer.pack(entry) for entry in entries]


def test_what_was_written_is_read_again_with_everything_nested() -> None:
    entries = (
        note(1, steps=[{"what": "took", "took": "2-3"}], text='a\n"b"\r\u2028é\ud800'),
        note(7),
        note(8, none=None),
    )
    parsed = parse_records(b"".join(packed(*entries)))
    assert parsed.entries == entries
    assert (parsed.damaged, parsed.base) == (0, None)


def test_a_line_is_a_checksum_and_json_that_other_tools_can_read() -> None:
    line = packed(note(1, pod="web"))[0]
    assert json.loads(line[9:]) == {"number": 1, "time": 1.0, "what": "note", "pod": "web"}
    assert line.count(b"\n") == 1
    assert line.isascii()


@pytest.mark.parametrize("end", range(1, 60))
def test_a_torn_last_line_is_left_out(end: int) -> None:
    first, last = packed(note(1), note(2, pod="web", container="app"))
    torn = last[: min(end, len(last) - 1)]
    parsed = parse_records(first + torn)
    assert parsed.entries == (note(1),)
    assert (parsed.damaged, parsed.whole) == (0, len(first))


@pytest.mark.parametrize("at", [0, 8, 9, 20, -2])
def test_a_damaged_line_is_left_out_and_the_next_is_found(at: int) -> None:
    lines = packed(note(1), note(2), note(3))
    broken = bytearray(lines[1])
    broken[at] ^= 1
    parsed = parse_records(lines[0] + broken + lines[2])
    assert parsed.entries == (note(1), note(3))
    assert parsed.damaged == 1


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"7",
        b"{",
        b"null",
        b'{"a":NaN}',
        b"[" * 100_000,
        b'{"number":1}',
        b"\xff",
        b'{"number":' + b"9" * 9999,
    ],
    ids=lambda text: repr(text[:12]),
)
def test_a_right_checksum_does_not_make_nonsense_an_entry(text: bytes) -> None:
    from zlib import crc32

    parsed = parse_records(b"%08x %b\n" % (crc32(text), text) + packed(note(1))[0])
    assert parsed.entries == (note(1),)
    assert parsed.damaged == 1


def test_numbers_that_do_not_go_up_are_damage() -> None:
    parsed = parse_records(b"".join(packed(note(5), note(5, twice=True), note(4), note(6))))
    assert [entry.number for entry in parsed.entries] == [5, 6]
    assert parsed.damaged == 2


def test_only_those_who_have_moved_are_written_and_whole_states_are_read() -> None:
    later = {name: cpus for name, cpus in MANY.items() if name != "default/pod-7/app"} | {"default/new/app": "200"}
    states = [state(1, MANY), state(2, later, why="x"), state(3, later), state(4, {}), state(5, MANY)]
    lines = packed(*states)
    assert parse_records(b"".join(lines)).entries == tuple(states)
    assert len(lines[1]) < len(lines[0]) / 10
    assert json.loads(lines[1][9:])["moved"] == {"default/new/app": "200", "default/pod-7/app": None}


def test_after_a_missing_state_none_is_told_until_a_whole_one() -> None:
    states = [state(number, {**MANY, "default/new/app": str(number)}) for number in range(1, 202)]
    lines = packed(*states)
    parsed = parse_records(b"".join([*lines[:5], *lines[6:]]))
    told = [entry.number for entry in parsed.entries if "exclusive" in entry.fields]
    assert told[:5] == [1, 2, 3, 4, 5]
    assert told[5:] == list(range(told[5], 202))
    assert 6 < told[5] <= 101
    assert all(states[entry.number - 1] == entry for entry in parsed.entries if "exclusive" in entry.fields)


def test_a_base_is_the_state_before_and_no_entry() -> None:
    before, after = state(3, MANY), state(9, {**MANY, "default/new/app": "200"})
    content = format_base(before) + b"".join(packed(note(8), after, packer=EntryPacker(before)))
    parsed = parse_records(content)
    assert parsed.base == before
    assert parsed.entries == (note(8), after)
    assert parse_records(format_base(before)).last_state == before


def test_fields_cannot_pass_for_the_number_or_time_of_an_entry() -> None:
    line = EntryPacker().pack(Entry(1, 2.0, "note", {"number": 9, "time": 9, "what": "x", "moved": {}, "after": 1}))
    assert parse_records(line).entries == (Entry(1, 2.0, "note", {"moved": {}, "after": 1}),)


def test_a_state_that_uses_our_own_words_is_written_whole() -> None:
    states = (state(1, MANY), state(2, MANY, moved="who", after="tea"))
    assert parse_records(b"".join(packed(*states))).entries == states


@pytest.mark.parametrize("value", [nan, object(), "x" * LONGEST], ids=["NaN", "object", "long"])
def test_what_does_not_fit_into_a_line_is_refused(value: object) -> None:
    with pytest.raises(UnusableEntry):
        format_record({"value": value})


def test_a_line_that_is_too_long_is_not_read() -> None:
    assert parse_record(b"x" * LONGEST) is None
