"""Laws of the two codecs that NRI is made of: ttrpc messages and mux frames."""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol, TypeVar

from hypothesis import given
from hypothesis import strategies as st

from pinfold.errors import ParseError
from pinfold.formats.wire import nrimux, ttrpc
from pinfold.formats.wire.nrimux import Connection, MuxFrame, format_frames
from pinfold.formats.wire.ttrpc import MOST_MESSAGE, Message, MessageKind, format_message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T_co = TypeVar("T_co", covariant=True)


class Decoder(Protocol[T_co]):
    """Either of the two."""

    def feed(self, data: bytes) -> Sequence[T_co]: ...

    @property
    def buffered(self) -> int: ...


DECODERS: dict[str, Callable[[], Decoder[object]]] = {"ttrpc": ttrpc.TTRPCDecoder, "nrimux": nrimux.MuxDecoder}
messages = st.builds(
    Message, st.integers(0, 2**32 - 1), st.sampled_from(MessageKind), st.binary(max_size=300), st.integers(0, 255)
)
frames = st.builds(MuxFrame, st.sampled_from(Connection), st.binary(min_size=1, max_size=300))
lengths = st.integers(0, 40) | st.sampled_from([MOST_MESSAGE - 11, MOST_MESSAGE, MOST_MESSAGE + 1, 2**31, 2**32 - 1])
headers = {
    "ttrpc": st.builds(struct.Struct(">IIBB").pack, lengths, st.integers(0, 9), st.integers(0, 4), st.integers(0, 255)),
    "nrimux": st.builds(struct.Struct(">II").pack, st.integers(0, 3), lengths),
}


def hostile(name: str) -> st.SearchStrategy[tuple[str, bytes]]:
    """Return bytes that look like messages for a while, and some that do not."""
    pieces = (
        headers[name] | st.binary(max_size=40) | messages.map(format_message) | frames.map(lambda f: format_frames(*f))
    )
    return st.lists(pieces, max_size=6).map(b"".join).map(lambda data: (name, data))


inputs = st.sampled_from(sorted(DECODERS)).flatmap(hostile)
cuts = st.lists(st.integers(0, 2000), max_size=8)


def pieces_of(data: bytes, at: Sequence[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(cut for cut in at if cut < len(data))})
    return [data[start:end] for start, end in pairwise(edges)]


def decode(decoder: Decoder[object], pieces: Sequence[bytes]) -> tuple[list[object], str]:
    """Return what was found, and the error that ended it."""
    found: list[object] = []
    for piece in pieces:
        try:
            found += decoder.feed(piece)
        except ParseError as error:
            assert decoder.buffered == 0
            assert "\n" not in str(error)  # noqa: PT017 - errors are a way out as good as any
            return found, str(error)
        assert decoder.buffered < 8 + MOST_MESSAGE
    return found, ""


@given(st.lists(messages, max_size=5), cuts)
def test_messages_come_back_however_they_are_cut(sent: list[Message], at: list[int]) -> None:
    data = b"".join(map(format_message, sent))
    assert decode(ttrpc.TTRPCDecoder(), pieces_of(data, at)) == (sent, "")


@given(st.lists(frames, max_size=5), cuts)
def test_frames_come_back_however_they_are_cut(sent: list[MuxFrame], at: list[int]) -> None:
    data = b"".join(format_frames(*frame) for frame in sent)
    assert decode(nrimux.MuxDecoder(), pieces_of(data, at)) == (sent, "")


@given(messages, st.integers(0, 20_000), cuts)
def test_message_comes_back_through_frames(message: Message, size: int, at: list[int]) -> None:
    long = message._replace(body=message.body + bytes(size))
    decoder = ttrpc.TTRPCDecoder()
    found: list[Message] = []
    mux = nrimux.MuxDecoder()
    for piece in pieces_of(format_frames(Connection.PLUGIN, format_message(long)), at):
        for frame in mux.feed(piece):
            assert len(frame.data) <= 4088
            found += decoder.feed(frame.data)
    assert found == [long]


@given(inputs, cuts)
def test_any_bytes_give_the_same_however_they_are_cut(given_bytes: tuple[str, bytes], at: list[int]) -> None:
    name, data = given_bytes
    found, problem = decode(DECODERS[name](), pieces_of(data, at))
    all_found, all_problem = decode(DECODERS[name](), [data[i : i + 1] for i in range(len(data))])
    assert problem == all_problem
    # What stands before a bad header in the same piece is lost with it.
    assert found == (all_found[: len(found)] if problem else all_found)
