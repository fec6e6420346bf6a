"""NRI's frames: what is one, how long ours are, and what is refused."""

from __future__ import annotations

import struct

import pytest

from pinfold.errors import ParseError
from pinfold.formats.wire.nrimux import Connection, MuxDecoder, MuxError, MuxFrame, format_frames
from pinfold.formats.wire.ttrpc import MOST_MESSAGE

HELLO = MuxFrame(Connection.RUNTIME, b"hello")


def header(connection: int, length: int) -> bytes:
    return struct.pack(">II", connection, length)


def test_short_data_is_one_frame() -> None:
    assert MuxDecoder().feed(format_frames(*HELLO)) == [HELLO]


@pytest.mark.parametrize("size", [1, 4087, 4088, 4089, 4096, 8176, 8177, 100_000])
def test_no_frame_towards_the_runtime_has_more_than_4096_bytes_with_its_header(size: int) -> None:
    data = bytes(index % 251 for index in range(size))
    frames = MuxDecoder().feed(format_frames(Connection.PLUGIN, data))
    assert max(8 + len(frame.data) for frame in frames) <= 4096
    assert b"".join(frame.data for frame in frames) == data
    assert len(frames) == -(-size // 4088)


def test_frame_towards_us_can_be_as_long_as_a_message() -> None:
    decoder = MuxDecoder()
    assert decoder.feed(header(1, MOST_MESSAGE)) == []
    assert decoder.feed(bytes(MOST_MESSAGE)) == [MuxFrame(Connection.PLUGIN, bytes(MOST_MESSAGE))]


@pytest.mark.parametrize("length", [MOST_MESSAGE + 1, 0xFFFFFFFF])
def test_longer_frame_is_refused_when_its_header_is_there(length: int) -> None:
    decoder = MuxDecoder()
    assert decoder.feed(header(1, length)[:7]) == []
    with pytest.raises(MuxError, match=f"an NRI frame of {length:,} bytes; at most 4,194,314 are allowed"):
        decoder.feed(header(1, length)[7:])
    assert decoder.buffered == 0


@pytest.mark.parametrize("connection", [0, 3, 0xFFFFFFFF])
def test_unknown_connection_is_refused(connection: int) -> None:
    with pytest.raises(ParseError, match=f"an NRI frame of connection {connection}; known are 1 .plugin. and 2"):
        MuxDecoder().feed(header(connection, 0))


def test_speech_of_another_protocol_is_refused_at_once() -> None:
    with pytest.raises(MuxError, match="connection 1195725856"):
        MuxDecoder().feed(b"GET / HTTP/1.1\r\n")


def test_nothing_is_taken_after_an_error() -> None:
    decoder = MuxDecoder()
    for data in (header(9, 0), format_frames(*HELLO), b""):
        with pytest.raises(MuxError, match="connection 9"):
            decoder.feed(data)
    assert decoder.buffered == 0
