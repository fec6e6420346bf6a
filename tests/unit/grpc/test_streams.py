"""Methods of the server that are coroutines or streams, read by our own channel and by grpclib."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from grpclib.client import UnaryStreamMethod
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from pinfold.errors import RuntimeUnavailable
from pinfold.grpc.errors import CallError, Code
from pinfold.grpc.server import CallLimits
from tests.unit.grpc.ends import calling, channel_to, run, serving, until, wired

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from pinfold.grpc.client import Channel
    from tests.unit.grpc.ends import Site


class Counter:
    """Methods that count how many messages were made, and how many of the streams have ended."""

    def __init__(self) -> None:
        self.made = 0
        self.ended = 0
        self.free = asyncio.Event()

    async def count(self, request: bytes) -> AsyncIterator[bytes]:
        for number in range(int(request)):
            yield b"%d" % number

    async def large(self, _: bytes) -> AsyncIterator[bytes]:
        try:
            while True:
                self.made += 1
                yield bytes(10_000)
        finally:
            self.ended += 1

    async def wait(self, _: bytes) -> AsyncIterator[bytes]:
        yield b"first"
        try:
            await self.free.wait()
        finally:
            self.ended += 1

    async def refuse(self, _: bytes) -> AsyncIterator[bytes]:
        yield b"first"
        raise CallError("refuse", Code.ABORTED, "no more")

    async def fail(self, request: bytes) -> AsyncIterator[bytes]:
        yield request
        raise TimeoutError("secret")

    async def later(self, request: bytes) -> bytes:
        await self.free.wait()
        return request


def served(directory: Path, counter: Counter, limits: CallLimits | None = None) -> AbstractAsyncContextManager[Site]:
    streams = {f"/s/{name}": getattr(counter, name) for name in ("count", "large", "wait", "refuse", "fail")}
    return serving(directory, {"/s/later": counter.later}, streams, limits)


@pytest.mark.parametrize("count", [0, 1, 5000])
def test_a_stream_comes_whole_and_in_order(tmp_path: Path, count: int) -> None:
    async def test() -> None:
        expected = [b"%d" % number for number in range(count)]
        async with served(tmp_path, Counter()) as site, channel_to(site.path) as channel, calling(site) as theirs:
            async with channel.stream("/s/count", b"%d" % count) as messages:
                assert [message async for message in messages] == expected
            assert await UnaryStreamMethod(theirs, "/s/count", bytes, bytes)(b"%d" % count) == expected

    run(test())


def test_messages_before_an_error_are_delivered(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tmp_path, Counter()) as site, channel_to(site.path) as channel, calling(site) as theirs:
            async with channel.stream("/s/refuse", b"") as messages:
                assert await anext(messages) == b"first"
                with pytest.raises(CallError, match="ABORTED: no more"):
                    await anext(messages)
            with pytest.raises(GRPCError) as caught:
                await UnaryStreamMethod(theirs, "/s/refuse", bytes, bytes)(b"")
            assert (caught.value.status, caught.value.message) == (Status.ABORTED, "no more")
            assert site.errors == []

    run(test())


def test_an_unexpected_error_is_reported_and_ends_the_stream(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tmp_path, Counter()) as site, channel_to(site.path) as channel:
            async with channel.stream("/s/fail", b"") as messages:
                assert await anext(messages) == b""
                with pytest.raises(CallError, match="INTERNAL") as caught:
                    await anext(messages)
            assert "secret" not in str(caught.value)
            assert [str(error) for error in site.errors] == ["secret"]

    run(test())


def test_a_stream_that_is_not_read_stops_its_method_and_no_other(tmp_path: Path) -> None:
    async def test() -> None:
        counter = Counter()
        async with (
            served(tmp_path, counter) as site,
            channel_to(site.path) as channel,
            channel.stream("/s/large", b"") as messages,
        ):
            await anext(messages)
            await until(lambda: counter.made > 90)
            async with channel.stream("/s/count", b"3") as others:
                assert len([message async for message in others]) == 3
            made = counter.made
            assert made < 300
            for _ in range(300):
                await anext(messages)
            assert counter.made > made

    run(test())


def test_a_stream_that_the_client_does_not_take_is_given_up(tmp_path: Path) -> None:
    async def test() -> None:
        counter = Counter()
        async with served(tmp_path, counter, CallLimits(seconds=0.1)) as site, wired(site) as wire:
            stream = wire.ask("/s/large")
            await wire.send()
            assert "reset" in await wire.status(stream)
            assert counter.ended == 1

    run(test())


def test_a_stream_to_a_client_that_does_not_read_its_socket_keeps_little_in_memory(tmp_path: Path) -> None:
    async def test() -> None:
        counter = Counter()
        limits = CallLimits(seconds=0.1)
        async with served(tmp_path, counter, limits) as site, wired(site, window=(1 << 31) - 1) as wire:
            wire.h2.increment_flow_control_window((1 << 31) - 1 - 65535)
            wire.ask("/s/large")
            await wire.send()
            await until(lambda: counter.ended == 1)
            assert counter.made < 100
            await until(lambda: not site.server.links)

    run(test())


def test_a_quiet_stream_lasts_longer_than_the_limit_for_slow_clients(tmp_path: Path) -> None:
    async def test() -> None:
        counter = Counter()
        async with (
            served(tmp_path, counter, CallLimits(seconds=0.05)) as site,
            channel_to(site.path) as channel,
            channel.stream("/s/wait", b"") as messages,
        ):
            assert await anext(messages) == b"first"
            await asyncio.sleep(0.15)
            counter.free.set()
            assert [message async for message in messages] == []

    run(test())


def test_a_coroutine_may_take_longer_than_the_limit_for_slow_clients(tmp_path: Path) -> None:
    async def test() -> None:
        counter = Counter()
        async with served(tmp_path, counter, CallLimits(seconds=0.05)) as site, channel_to(site.path) as channel:
            slow = asyncio.create_task(channel.call("/s/later", b"request"))
            await asyncio.sleep(0.15)
            counter.free.set()
            assert await slow == b"request"

    run(test())


@pytest.mark.parametrize("name", ["wait", "large"])
@pytest.mark.parametrize("politely", [True, False], ids=["call ended", "connection closed"])
def test_a_client_that_leaves_ends_the_method(tmp_path: Path, name: str, *, politely: bool) -> None:
    async def test() -> None:
        counter = Counter()
        async with served(tmp_path, counter) as site, channel_to(site.path) as channel:
            async with channel.stream(f"/s/{name}", b"") as messages:
                await anext(messages)
                if not politely:
                    channel.close()
            await until(lambda: counter.ended == 1)

    run(test())


def test_a_server_that_closes_ends_its_methods_first(tmp_path: Path) -> None:
    async def first_two(channel: Channel) -> None:
        async with channel.stream("/s/wait", b"") as messages:
            assert await anext(messages) == b"first"
            ready.set()
            await anext(messages)

    async def test() -> None:
        counter = Counter()
        async with served(tmp_path, counter) as site, channel_to(site.path) as channel:
            watching = asyncio.create_task(first_two(channel))
            await ready.wait()
            await site.server.close()
            assert counter.ended == 1
            with pytest.raises(RuntimeUnavailable, match="going away"):
                await watching

    ready = asyncio.Event()
    run(test())
