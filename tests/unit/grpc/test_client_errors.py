"""The client against servers that are missing, hang or talk nonsense."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, RequestReceived, StreamEnded
from h2.settings import SettingCodes, Settings
from hypothesis import given
from hypothesis import strategies as st

from pinfold.errors import PinfoldError, RuntimeUnavailable
from pinfold.grpc.client import Channel, ClientLink
from pinfold.grpc.errors import CallError
from tests.unit.grpc.ends import channel_to, clear, run, serving, talking

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from h2.events import Event

Pairs = list[tuple[str, str]]
SAY = "/test.Service/Say"
SETTINGS = b"\0\0\0\4\0\0\0\0\0"
"""A frame with the settings of a server that has none of its own."""


async def say(channel: Channel) -> bool:
    return await channel.call(SAY, b"hello") == b"hello"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "grpc.sock"


@pytest.mark.parametrize("name", ["missing.sock", "x" * 200, "a\0b", "."])
def test_a_socket_that_is_not_there_is_a_server_that_is_not_available(tmp_path: Path, name: str) -> None:
    async def test() -> None:
        async with channel_to(tmp_path / name) as channel:
            with pytest.raises(RuntimeUnavailable):
                await say(channel)
            with pytest.raises(RuntimeUnavailable):
                async with channel.stream(SAY, b""):
                    pass

    run(test())


def test_a_server_that_accepts_and_never_speaks_runs_into_the_deadline(path: Path) -> None:
    async def talk(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        while await reader.read(4096):
            pass

    async def test() -> None:
        async with talking(path, talk), channel_to(path, deadline=0.05) as channel:
            with pytest.raises(RuntimeUnavailable, match="Say had no answer"):
                await say(channel)

    run(test())


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\0",
        b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
        bytes(range(256)) * 40,
        b"\xff" * 100_000,
        b"\xff" * 1_000_000,
        SETTINGS + b"\0\0\5\1\4\0\0\0\1" + b"\xff" * 5,
        SETTINGS + b"\0\0\10\7\0\0\0\0\0" + b"\0" * 8,
        SETTINGS + b"\0\0\4\3\0\0\0\0\1" + b"\0\0\0\2",
    ],
    ids=["nothing", "one byte", "HTTP/1", "all bytes", "ones", "many ones", "no HPACK", "goodbye", "call broken off"],
)
def test_garbage_is_an_error_of_ours_and_the_next_call_connects_anew(path: Path, garbage: bytes) -> None:
    connections = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.read(24)
        writer.write(garbage)
        await writer.drain()

    async def test() -> None:
        async with channel_to(path) as channel:
            async with talking(path, talk):
                with pytest.raises((RuntimeUnavailable, CallError)) as error:
                    await say(channel)
                assert len(str(error.value).splitlines()) == 1
                assert connections
            clear(path)
            async with serving(path.parent, {SAY: lambda request: request}):
                assert await say(channel)

    run(test())


@asynccontextmanager
async def scripted(path: Path, respond: Callable[[H2Connection, Event], None]) -> AsyncIterator[Channel]:
    """Connect a channel to a server that does only what *respond* does at each event."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        server.initiate_connection()
        writer.write(server.data_to_send())
        while data := await reader.read(65536):
            for event in server.receive_data(data):
                respond(server, event)
            writer.write(server.data_to_send())

    async with talking(path, talk), channel_to(path) as channel:
        yield channel


def answer(server: H2Connection, stream: int, headers: Pairs, body: bytes, trailers: Pairs) -> None:
    def encoded(pairs: Pairs) -> list[tuple[bytes, bytes]]:
        return [(name.encode(), value.encode(errors="surrogateescape")) for name, value in pairs]

    server.send_headers(stream, encoded(headers))
    server.send_data(stream, body)
    server.send_headers(stream, encoded(trailers), end_stream=True)


@pytest.mark.parametrize(
    ("headers", "body", "trailers", "problem"),
    [
        ([(":status", "200")], struct.pack(">?I", 0, 0xFFFFFFFF), [("grpc-status", "0")], "4,294,967,295 bytes"),
        ([(":status", "200")], b"\1\0\0\0\0", [("grpc-status", "0")], "compressed"),
        ([(":status", "200")], b"\0\0\0\0\5abc", [("grpc-status", "0")], "the last message is not complete"),
        ([(":status", "200")], b"", [("grpc-status", "0")], "no message; one is expected"),
        ([(":status", "200")], b"\0\0\0\0\0" * 2, [("grpc-status", "0")], "more than one message"),
        ([(":status", "200")], b"\0\0\0\0\0", [("x", "y")], "the answer has no status"),
        ([(":status", "200")], b"", [("grpc-status", "x"), ("grpc-message", "%zz%ff")], "UNKNOWN"),
        ([(":status", "404")], b"not here", [("x", "y")], "HTTP status 404"),
        ([(":status", "200"), ("x", "\udcff")], b"", [("grpc-status", "5"), ("grpc-message", "n" * 9000)], "NOT_FOUND"),
    ],
    ids=[
        "4 GB",
        "compressed",
        "cut off",
        "empty",
        "two",
        "no status",
        "odd status",
        "HTTP error",
        "long and not UTF-8",
    ],
)
def test_answers_that_are_not_grpc_are_errors_of_ours(
    path: Path, headers: Pairs, body: bytes, trailers: Pairs, problem: str
) -> None:
    def respond(server: H2Connection, event: Event) -> None:
        if isinstance(event, StreamEnded):
            answer(server, event.stream_id, headers, body, trailers)

    async def test() -> None:
        async with scripted(path, respond) as channel:
            with pytest.raises(PinfoldError, match=problem) as error:
                await say(channel)
            assert len(str(error.value)) < 700
            assert len(str(error.value).splitlines()) == 1

    run(test())


@asynccontextmanager
async def linked() -> AsyncIterator[tuple[ClientLink, socket.socket]]:
    """Yield a link, and the socket at its other end."""
    ours, theirs = socket.socketpair()
    theirs.settimeout(0)
    loop = asyncio.get_running_loop()
    _, link = await loop.create_connection(lambda: ClientLink("x.sock"), sock=ours)
    with theirs:
        yield link, theirs
    link.close("the test is over")


def test_the_headers_of_a_call_go_out_even_if_the_server_takes_no_data_yet() -> None:
    async def test() -> None:
        server = H2Connection(H2Configuration(client_side=False))
        server.local_settings = Settings(client=False, initial_values={SettingCodes.INITIAL_WINDOW_SIZE: 0})
        server.initiate_connection()
        async with linked() as (link, theirs):
            link.data_received(server.data_to_send())
            call = await link.start(SAY, b"hello")
            found: list[type[Event]] = []
            while RequestReceived not in found:
                data = await asyncio.get_running_loop().sock_recv(theirs, 65536)
                found += [type(event) for event in server.receive_data(data)]
            assert DataReceived not in found
            assert len(call.unsent) == 10

    run(test())


def test_a_call_that_gets_room_and_is_broken_off_in_one_breath_leaves_the_connection_alone(path: Path) -> None:
    asked = 0

    def respond(server: H2Connection, event: Event) -> None:
        nonlocal asked
        if isinstance(event, DataReceived) and event.stream_id == 1 and not asked:
            asked += 1
            server.increment_flow_control_window(1 << 20)
            server.increment_flow_control_window(1 << 20, 1)
            server.reset_stream(1, ErrorCodes.REFUSED_STREAM)
        if isinstance(event, StreamEnded):
            answer(server, event.stream_id, [(":status", "200")], b"\0\0\0\0\5hello", [("grpc-status", "0")])

    async def test() -> None:
        async with scripted(path, respond) as channel:
            refused, said = await asyncio.gather(
                channel.call(SAY, bytes(100_000)), say(channel), return_exceptions=True
            )
            assert isinstance(refused, CallError)
            assert "REFUSED_STREAM" in str(refused)
            assert said is True

    run(test())


frames = st.builds(
    lambda body, kind, flags, stream: (
        len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body
    ),
    st.binary(max_size=20),
    st.integers(0, 12),
    st.integers(0, 255),
    st.sampled_from([0, 1, 3, 2, 1 << 31]),
)


@given(st.lists(frames | st.binary(max_size=40), max_size=8), st.booleans())
def test_any_bytes_end_calls_with_errors_of_ours_or_leave_them_waiting(pieces: list[bytes], polite: bool) -> None:  # noqa: FBT001 - drawn
    async def test() -> None:
        async with linked() as (link, _):
            call = await link.start("/s/M", b"request")
            for piece in [SETTINGS, *pieces] if polite else pieces:
                link.data_received(piece)
            link.close("the test is over")
            with suppress(PinfoldError):
                async for _ in call.inbox.messages():
                    pass
            assert call.inbox.closed

    asyncio.run(test())
