"""The client against grpclib's server, which may also be slow, restart or fail."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.server import Server

from pinfold.errors import RuntimeUnavailable
from pinfold.grpc.errors import CallError, Code, Unimplemented
from tests.unit.grpc.ends import Raw, channel_to, clear, run, talking, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from pinfold.grpc.client import Channel


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
