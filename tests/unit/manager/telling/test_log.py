"""The log: a line for each entry, and no waiting for a reader that does not read."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import socket
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pinfold.core.events.daemon import LogDropped
from pinfold.core.events.entries import Entry
from pinfold.manager.telling.log import Descriptor, Log, format_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def entry(number: int, **fields: object) -> Entry:
    return Entry(number, 0.0, "warning", fields)


class Narrow:
    """Takes as many bytes as it has room for."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.text = b""

    def write(self, data: bytes) -> int:
        taken = data[: self.room]
        self.room -= len(taken)
        self.text += taken
        return len(taken)


class Desk:
    """A log in JSON, and what it tells of itself."""

    def __init__(self, room: int) -> None:
        self.out = Narrow(room)
        self.told: list[LogDropped] = []
        self.log = Log(self.out, self.told.append, as_json=True)

    def numbers(self) -> list[int]:
        return [json.loads(line)["number"] for line in self.out.text.splitlines()]


def test_a_line_has_the_word_and_the_fields_and_quotes_what_is_not_plain() -> None:
    line = format_line(entry(1, pod="web", cpus="", why='say "no"', pid=7), as_json=False)
    assert line[24:] == ' event=warning pod=web cpus="" why="say \\"no\\"" pid=7\n'


def test_a_field_cannot_begin_another_line() -> None:
    assert format_line(entry(1, why="a\nevent=serving"), as_json=False).count("\n") == 1


@given(text=st.text(), as_json=st.booleans())
@example(text="\x1b[2J\x07\x9b31m\r\n\u2028event=x", as_json=False)
@example(text="\x7f", as_json=True)
@example(text="\x7f", as_json=False)
def test_no_name_or_output_of_others_brings_a_control_character_into_the_log(text: str, *, as_json: bool) -> None:
    line = format_line(entry(1, pod=text), as_json=as_json)
    assert line[-1] == "\n"
    assert line[:-1].isprintable()


def test_json_has_the_number_and_the_time_too() -> None:
    found = json.loads(format_line(entry(3, pod="web"), as_json=True))
    assert found == {"number": 3, "time": 0.0, "what": "warning", "pod": "web"}


def test_lines_without_room_are_dropped_counted_and_told_of_when_there_is_room_again() -> None:
    desk = Desk(room=1000)
    desk.log.take(entry(1))
    desk.out.room = 0
    for number in (2, 3):
        desk.log.take(entry(number))
    assert not desk.told
    desk.out.room = 1000
    desk.log.take(entry(4))
    desk.log.take(entry(5))
    assert desk.numbers() == [1, 4, 5]
    assert desk.told == [LogDropped(2)]


@given(st.lists(st.integers(0, 100), max_size=20))
def test_every_line_is_whole_or_dropped_however_little_room_there_is(rooms: list[int]) -> None:
    desk = Desk(room=0)
    for number, room in enumerate(rooms):
        desk.out.room = room
        desk.log.take(entry(number))
    desk.out.room = 1000
    desk.log.take(entry(len(rooms)))
    found = desk.numbers()
    assert found == sorted(found)
    assert found[-1] == len(rooms)
    assert len(found) + sum(told.lines for told in desk.told) == len(rooms) + 1


# -- real descriptors that are not read


@pytest.fixture(params=["pipe", "terminal", "socket"])
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[int, int]]:
    """The end to read from, and the one to write to."""
    match request.param:
        case "pipe":
            reading, writing = os.pipe()
        case "terminal":
            reading, writing = pty.openpty()
        case _:
            reading, writing = (end.detach() for end in socket.socketpair())
    yield reading, writing
    os.close(reading)
    os.close(writing)


def test_a_reader_that_does_not_read_stops_nothing(ends: tuple[int, int]) -> None:
    out = Descriptor(ends[1])
    line = b"x" * 199 + b"\n"
    written = [out.write(line) for _ in range(10_000)]  # much more than any of them holds
    assert written[0] == len(line)
    assert written[-1] == 0


def test_what_was_read_makes_room_again(ends: tuple[int, int]) -> None:
    reading, writing = ends
    out = Descriptor(writing)
    while out.write(b"x" * 200):
        pass
    for _ in range(100):
        os.read(reading, 1 << 16)
        if out.write(b"y"):
            return
    pytest.fail("there is no room")


def test_others_that_write_to_the_same_place_wait_as_before(ends: tuple[int, int]) -> None:
    Descriptor(ends[1])
    assert not fcntl.fcntl(ends[1], fcntl.F_GETFL) & os.O_NONBLOCK


def test_a_reader_that_is_gone_stops_nothing() -> None:
    reading, writing = os.pipe()
    out = Descriptor(writing)
    os.close(reading)
    assert out.write(b"line\n") == 0
    os.close(writing)


def test_a_long_line_goes_into_a_file_whole_and_behind_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb", buffering=0) as file:
        file.write(b"before\n")
        assert Descriptor(file.fileno()).write(b"x" * 100_000) == 100_000
        file.write(b"after\n")
    assert path.read_bytes() == b"before\n" + b"x" * 100_000 + b"after\n"
