"""ttrpc messages: what is one, and what is refused."""

from __future__ import annotations

import struct

import pytest

from pinfold.errors import ParseError
from pinfold.formats.wire.ttrpc import (
    MOST_BODY,
    MOST_MESSAGE,
    Message,
    MessageKind,
    TTRPCDecoder,
    TTRPCError,
    format_message,
)

HELLO = Message(3, MessageKind.RESPONSE, b"hello", flags=1)


def header(length: int, kind: int = 1) -> bytes:
    return struct.pack(">IIBB", length, 1, kind, 0)


def test_message_comes_back_with_stream_kind_and_flags() -> None:
    assert TTRPCDecoder().feed(format_message(HELLO)) == [HELLO]


def test_messages_that_come_together_are_all_found() -> None:
    empty = Message(5, MessageKind.DATA, b"")
    assert TTRPCDecoder().feed(format_message(HELLO) + format_message(empty) * 2) == [HELLO, empty, empty]


def test_begun_message_waits_for_its_end() -> None:
    decoder = TTRPCDecoder()
    data = format_message(HELLO)
    assert decoder.feed(data + data[:-1]) == [HELLO]
    assert decoder.buffered == len(data) - 1
    assert decoder.feed(data[-1:]) == [HELLO]
    assert decoder.buffered == 0


def test_longest_message_is_taken() -> None:
    longest = Message(1, MessageKind.REQUEST, bytes(MOST_BODY))
    data = format_message(longest)
    assert len(data) == MOST_MESSAGE
    assert TTRPCDecoder().feed(data) == [longest]


def test_longer_message_is_not_made() -> None:
    with pytest.raises(TTRPCError, match="4,194,305 bytes; at most 4,194,304 are allowed"):
        format_message(Message(1, MessageKind.REQUEST, bytes(MOST_BODY + 1)))


@pytest.mark.parametrize("length", [MOST_BODY + 1, 0xFFFFFFFF])
def test_longer_message_is_refused_when_its_header_is_there(length: int) -> None:
    decoder = TTRPCDecoder()
    assert decoder.feed(header(length)[:9]) == []
    with pytest.raises(TTRPCError, match=f"a ttrpc message of {length:,} bytes"):
        decoder.feed(header(length)[9:])
    assert decoder.buffered == 0


@pytest.mark.parametrize("kind", [0, 4, 255])
def test_unknown_type_is_refused_before_the_body_comes(kind: int) -> None:
    with pytest.raises(ParseError, match=f"a ttrpc message of type {kind}; known are"):
        TTRPCDecoder().feed(header(100, kind))


def test_nothing_is_taken_after_an_error() -> None:
    decoder = TTRPCDecoder()
    for data in (header(0, 9), format_message(HELLO), b""):
        with pytest.raises(TTRPCError, match="type 9"):
            decoder.feed(data)
    assert decoder.buffered == 0
