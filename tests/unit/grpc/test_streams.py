"""Streams of answers: the server's end against grpclib and against our own channel."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from grpclib.client import Channel as TheirChannel
from grpclib.client import UnaryStreamMethod
from grpclib.const import Status
from grpclib.encoding.base import CodecBase
from grpclib.exceptions import GRPCError

from pinfold.errors import RuntimeUnavailable
from pinfold.grpc.client import Channel
from pinfold.grpc.errors import CallError, Code
from pinfold.grpc.server import CallLimits, GRPCServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

SECONDS = 20.0  # a test that waits for something waits at most so long


class Raw(CodecBase):
    """Lets grpclib carry bytes, under the name that it expects."""

    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> Any:  # noqa: ANN401, ARG002 - as grpclib has it
        return message

    def decode(self, data: Any, message_type: Any) -> Any:  # noqa: ANN401, ARG002 - as grpclib has it
        return data


class Counter:
    """Methods that count: how many messages were asked for, and how many streams have ended."""

    def __init__(self) -> None:
        self.made = 0
        self.ended = 0
        self.gate = asyncio.Event()

    async def count(self, request: bytes) -> AsyncIterator[bytes]:
        try:
            for number in range(int(request)):
                self.made += 1
                yield str(number).encode()
        finally:
            self.ended += 1

    async def large(self, _: bytes) -> AsyncIterator[bytes]:
        while True:
            self.made += 1
            yield bytes(10_000)

    async def wait(self, _: bytes) -> AsyncIterator[bytes]:
        yield b"first"
        try:
            await self.gate.wait()
        finally:
            self.ended += 1

    async def refuse(self, _: bytes) -> AsyncIterator[bytes]:
        yield b"first"
        raise CallError("refuse", Code.ABORTED, "no more")

    async def fail(self, _: bytes) -> AsyncIterator[bytes]:
        if self.made >= 0:
            raise RuntimeError("secret")
        yield b""

    async def later(self, request: bytes) -> bytes:
        await self.gate.wait()
        return request


@asynccontextmanager
async def serving(
    directory: Path, counter: Counter, errors: list[Exception] | None = None, limits: CallLimits | None = None
) -> AsyncIterator[str]:
    path = str(directory / "s.sock")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    streams = {f"/s/{name}": getattr(counter, name) for name in ("count", "large", "wait", "refuse", "fail")}
    server = GRPCServer(
        {"/s/later": counter.later},
        streams,
        limits=limits or CallLimits(),
        report=lambda _, error: errors.append(error) if errors is not None else None,
    )
    await server.start(listener)
    try:
        yield path
    finally:
        await server.close()


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, SECONDS))


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for happens in the server, which has no event for it
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("count", [0, 1, 5000])
def test_a_stream_comes_whole_and_in_order(tmp_path: Path, count: int) -> None:
    async def test() -> None:
        counter = Counter()
        async with serving(tmp_path, counter) as path:
            channel = Channel(path)
            async with channel.stream("/s/count", str(count).encode()) as messages:
                assert [message async for message in messages] == [str(number).encode() for number in range(count)]
            channel.close()
        assert counter.ended == 1

    run(test())


def test_another_implementation_reads_a_stream_and_its_error(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, Counter()) as path:
            channel = TheirChannel(path=path, codec=Raw())
            count = UnaryStreamMethod(channel, "/s/count", bytes, bytes)
            refuse = UnaryStreamMethod(channel, "/s/refuse", bytes, bytes)
            assert await count(b"3") == [b"0", b"1", b"2"]
            with pytest.raises(GRPCError) as caught:
                await refuse(b"")
            channel.close()
        assert (caught.value.status, caught.value.message) == (Status.ABORTED, "no more")

    run(test())


def test_messages_before_an_error_are_delivered(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, Counter()) as path:
            channel = Channel(path)
            async with channel.stream("/s/refuse", b"") as messages:
                assert await anext(messages) == b"first"
                with pytest.raises(CallError, match="ABORTED: no more"):
                    await anext(messages)
            channel.close()

    run(test())


def test_an_unexpected_error_is_reported_and_ends_the_stream(tmp_path: Path) -> None:
    async def test() -> None:
        errors: list[Exception] = []
        async with serving(tmp_path, Counter(), errors) as path:
            channel = Channel(path)
            async with channel.stream("/s/fail", b"") as messages:
                with pytest.raises(CallError, match="INTERNAL") as caught:
                    await anext(messages)
            channel.close()
        assert "secret" not in str(caught.value)
        assert [str(error) for error in errors] == ["secret"]

    run(test())


def test_a_stream_that_is_not_read_stops_its_method_and_no_other(tmp_path: Path) -> None:
    async def test() -> None:
        counter = Counter()
        async with serving(tmp_path, counter) as path:
            channel = Channel(path)
            async with channel.stream("/s/large", b"") as messages:
                await anext(messages)
                await until(lambda: counter.made > 90)
                async with channel.stream("/s/count", b"3") as others:
                    assert len([message async for message in others]) == 3
                made = counter.made
                assert made < 300
                for _ in range(300):
                    await anext(messages)
                assert counter.made > made
            channel.close()

    run(test())


def test_a_stream_that_nobody_takes_is_given_up(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, Counter(), limits=CallLimits(seconds=0.1)) as path:
            channel = Channel(path)
            async with channel.stream("/s/large", b"") as messages:
                await asyncio.sleep(0.3)
                with pytest.raises(CallError, match="CANCEL"):
                    async for _ in messages:
                        pass
            channel.close()

    run(test())


def test_a_quiet_stream_lasts_longer_than_the_limit_for_slow_clients(tmp_path: Path) -> None:
    async def test() -> None:
        counter = Counter()
        async with serving(tmp_path, counter, limits=CallLimits(seconds=0.05)) as path:
            channel = Channel(path)
            async with channel.stream("/s/wait", b"") as messages:
                assert await anext(messages) == b"first"
                await asyncio.sleep(0.15)
                counter.gate.set()
                assert [message async for message in messages] == []
            channel.close()

    run(test())


def test_a_client_that_leaves_ends_the_method(tmp_path: Path) -> None:
    async def test() -> None:
        counter = Counter()
        async with serving(tmp_path, counter) as path:
            for leave_politely in (True, False):
                channel = Channel(path)
                async with channel.stream("/s/wait", b"") as messages:
                    assert await anext(messages) == b"first"
                    if not leave_politely:
                        channel.close()
                await until(lambda: counter.ended > 0)
                channel.close()
                counter.ended = 0

    run(test())


def test_a_server_that_closes_ends_its_methods_first(tmp_path: Path) -> None:
    async def test() -> None:
        counter = Counter()
        channel = None
        async with serving(tmp_path, counter) as path:
            channel = Channel(path)
            stream = channel.stream("/s/wait", b"")
            messages = await stream.__aenter__()
            assert await anext(messages) == b"first"
        assert counter.ended == 1
        with pytest.raises(RuntimeUnavailable):
            await anext(messages)
        await stream.__aexit__(None, None, None)
        channel.close()

    run(test())


def test_an_answer_may_take_longer_than_the_limit_for_slow_clients(tmp_path: Path) -> None:
    async def test() -> None:
        counter = Counter()
        async with serving(tmp_path, counter, limits=CallLimits(seconds=0.05)) as path:
            channel = Channel(path)
            slow = asyncio.create_task(channel.call("/s/later", b"request"))
            await asyncio.sleep(0.15)
            counter.gate.set()
            assert await slow == b"request"
            channel.close()

    run(test())
