"""The client against grpclib's server, and against servers that hang, restart or talk nonsense."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.server import Server
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, RequestReceived, StreamEnded
from h2.settings import SettingCodes, Settings
from hypothesis import given
from hypothesis import strategies as st

from pinfold.errors import PinfoldError, RuntimeUnavailable
from pinfold.grpc.client import Channel, ClientLink
from pinfold.grpc.errors import CallError, Code, Unimplemented
from tests.unit.grpc.ends import Raw, channel_to, clear, run, talking, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from h2.events import Event

Pairs = list[tuple[str, str]]


class Peer:
    """A service on grpclib: `Say` sends the request back, `Size` its size, `Large` as many bytes, `Watch` a stream."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.free = asyncio.Event()
        self.error = GRPCError(Status.UNKNOWN)
        self.messages: asyncio.Queue[bytes | None] = asyncio.Queue()

    def __mapping__(self) -> dict[str, Handler]:
        methods = {"Say": self.say, "Size": self.size, "Large": self.large, "Wait": self.wait, "Fail": self.fail}
        unary = {f"/t.Peer/{name}": self.handler(name, answer) for name, answer in methods.items()}
        return unary | {"/t.Peer/Watch": Handler(self.watch, Cardinality.UNARY_STREAM, bytes, bytes)}

    def handler(self, name: str, answer: Callable[[bytes], Awaitable[bytes]]) -> Handler:
        async def serve(stream: Any) -> None:  # noqa: ANN401 - grpclib's stream of any messages
            request = await stream.recv_message()
            self.asked.append(name)
            await stream.send_message(await answer(request))

        return Handler(serve, Cardinality.UNARY_UNARY, bytes, bytes)

    async def say(self, request: bytes) -> bytes:
        return request

    async def size(self, request: bytes) -> bytes:
        return str(len(request)).encode()

    async def large(self, request: bytes) -> bytes:
        return bytes(int(request))

    async def wait(self, request: bytes) -> bytes:
        await self.free.wait()
        return request

    async def fail(self, _: bytes) -> bytes:
        raise self.error

    async def watch(self, stream: Any) -> None:  # noqa: ANN401 - grpclib's stream of any messages
        await stream.recv_message()
        self.asked.append("Watch")
        while (message := await self.messages.get()) is not None:
            await stream.send_message(message)


@asynccontextmanager
async def peer_at(path: Path) -> AsyncIterator[Peer]:
    """Serve on *path* through a relay, whose connections end with the block: grpclib's own would stay."""
    behind = path.with_suffix(".behind")

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back_reader, back_writer = await asyncio.open_unix_connection(str(behind))
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(copy(reader, back_writer))
                tasks.create_task(copy(back_reader, writer))
        finally:
            back_writer.close()

    peer = Peer()
    clear(behind)
    server = Server([peer], codec=Raw())
    await server.start(path=str(behind))
    try:
        async with talking(path, relay):
            yield peer
    finally:
        server.close()
        await server.wait_closed()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


def run_with_peer(test: Callable[[Peer, Channel], Awaitable[None]], path: Path) -> None:
    async def both() -> None:
        async with peer_at(path) as peer, channel_to(path) as channel:
            await test(peer, channel)

    run(both())


async def say(channel: Channel) -> bool:
    return await channel.call("/t.Peer/Say", b"hello") == b"hello"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "c.sock"


def test_an_error_has_its_code_and_text_and_concerns_its_caller_only(path: Path) -> None:
    async def test(peer: Peer, channel: Channel) -> None:
        peer.error = GRPCError(Status.UNKNOWN, "cpuset.cpus: numerical result\nout of range é %41")
        failed, said = await asyncio.gather(channel.call("/t.Peer/Fail", b""), say(channel), return_exceptions=True)
        assert isinstance(failed, CallError)
        assert (failed.method, failed.code) == ("Fail", Code.UNKNOWN)
        assert failed.text == "cpuset.cpus: numerical result out of range é %41"
        assert said is True

    run_with_peer(test, path)


def test_a_server_that_says_it_is_not_available_is_not_available(path: Path) -> None:
    async def test(peer: Peer, channel: Channel) -> None:
        peer.error = GRPCError(Status.UNAVAILABLE, "server is not initialized yet")
        with pytest.raises(RuntimeUnavailable, match="Fail: server is not initialized yet"):
            await channel.call("/t.Peer/Fail", b"")

    run_with_peer(test, path)


def test_a_method_that_the_server_lacks_is_unimplemented(path: Path) -> None:
    async def test(_: Peer, channel: Channel) -> None:
        with pytest.raises(Unimplemented):
            await channel.call("/t.Peer/Missing", b"")
        async with channel.stream("/t.Peer/Missing", b"") as messages:
            with pytest.raises(Unimplemented):
                await anext(messages)
        assert await say(channel)

    run_with_peer(test, path)


def test_a_slow_call_holds_up_no_other(path: Path) -> None:
    async def test(peer: Peer, channel: Channel) -> None:
        slow = asyncio.create_task(channel.call("/t.Peer/Wait", b"slow"))
        await until(lambda: "Wait" in peer.asked)
        assert all(await asyncio.gather(*(say(channel) for _ in range(300))))
        assert not slow.done()
        peer.free.set()
        assert await slow == b"slow"

    run_with_peer(test, path)


def test_a_call_without_an_answer_ends_at_its_deadline_and_later_ones_work(path: Path) -> None:
    async def test(_: Peer, channel: Channel) -> None:
        with pytest.raises(RuntimeUnavailable, match=r"Wait had no answer in 0\.05 s"):
            await channel.call("/t.Peer/Wait", b"", deadline=0.05)
        assert await say(channel)

    run_with_peer(test, path)


def test_a_cancelled_call_leaves_the_connection_usable(path: Path) -> None:
    async def test(peer: Peer, channel: Channel) -> None:
        slow = asyncio.create_task(channel.call("/t.Peer/Wait", b""))
        await until(lambda: "Wait" in peer.asked)
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        assert await say(channel)

    run_with_peer(test, path)


def test_large_answers_and_requests_come_through(path: Path) -> None:
    async def test(_: Peer, channel: Channel) -> None:
        assert len(await channel.call("/t.Peer/Large", b"%d" % (5 << 20))) == 5 << 20
        assert await channel.call("/t.Peer/Size", bytes(300_000)) == b"300000"

    run_with_peer(test, path)


def test_an_answer_beyond_the_limit_is_refused_and_the_connection_lives(path: Path) -> None:
    async def test(_: Peer, channel: Channel) -> None:
        with pytest.raises(CallError, match="16,777,216 are allowed"):
            await channel.call("/t.Peer/Large", b"%d" % (17 << 20))
        assert await say(channel)
        assert len(await channel.call("/t.Peer/Large", b"%d" % (16 << 20))) == 16 << 20

    run_with_peer(test, path)


def test_the_messages_of_a_stream_come_as_they_are_sent(path: Path) -> None:
    async def test(peer: Peer, channel: Channel) -> None:
        async with channel.stream("/t.Peer/Watch", b"") as messages:
            peer.messages.put_nowait(b"one")
            assert await anext(messages) == b"one"
            for message in (b"two", b"", None):
                peer.messages.put_nowait(message)
            assert [message async for message in messages] == [b"two", b""]

    run_with_peer(test, path)


def test_a_stream_that_is_not_read_stops_its_sender_and_no_other_call(path: Path) -> None:
    async def test(peer: Peer, channel: Channel) -> None:
        for _ in range(80):
            peer.messages.put_nowait(bytes(256 << 10))
        async with channel.stream("/t.Peer/Watch", b"") as messages:
            await until(lambda: "Watch" in peer.asked)
            assert len(await channel.call("/t.Peer/Large", b"%d" % (3 << 20))) == 3 << 20
            assert peer.messages.qsize() > 60
            for _ in range(80):
                assert len(await anext(messages)) == 256 << 10

    run_with_peer(test, path)


def test_a_lost_server_ends_the_stream(path: Path) -> None:
    async def test() -> None:
        async with channel_to(path) as channel:
            async with peer_at(path) as peer:
                watching = asyncio.create_task(first(channel))
                await until(lambda: "Watch" in peer.asked)
            with pytest.raises(RuntimeUnavailable, match="Watch: the connection was closed"):
                await watching

    async def first(channel: Channel) -> bytes:
        async with channel.stream("/t.Peer/Watch", b"") as messages:
            return await anext(messages)

    run(test())


def test_a_restarted_server_is_found_again_by_the_next_call(path: Path) -> None:
    async def test() -> None:
        async with channel_to(path) as channel:
            for _ in range(3):
                async with peer_at(path):
                    assert await say(channel)
            clear(path)
            with pytest.raises(RuntimeUnavailable, match=r"c\.sock: "):
                await say(channel)
            async with peer_at(path):
                assert await say(channel)

    run(test())


@pytest.mark.parametrize("name", ["missing.sock", "x" * 200, "a\0b", "."])
def test_a_socket_that_is_not_there_is_a_server_that_is_not_available(tmp_path: Path, name: str) -> None:
    async def test() -> None:
        async with channel_to(tmp_path / name) as channel:
            with pytest.raises(RuntimeUnavailable):
                await say(channel)
            with pytest.raises(RuntimeUnavailable):
                async with channel.stream("/t.Peer/Watch", b""):
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


SETTINGS = b"\0\0\0\4\0\0\0\0\0"


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
            async with peer_at(path):
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
            call = await link.start("/t.Peer/Say", b"hello")
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
                channel.call("/t.Peer/Size", bytes(100_000)), say(channel), return_exceptions=True
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
