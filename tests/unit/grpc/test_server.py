"""The server against grpclib's client, and against clients that are slow, hostile or too many."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from grpclib.client import UnaryUnaryMethod
from grpclib.const import Status
from grpclib.exceptions import GRPCError
from hypothesis import given
from hypothesis import strategies as st

from pinfold.grpc.errors import CallError, Code
from pinfold.grpc.server import CallLimits
from tests.unit.grpc.ends import SECONDS, Site, Wire, calling, run, serving, until, wired

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from grpclib.client import Channel

    from pinfold.grpc.server import Method

SAY, LARGE, LATER, REFUSE, FAIL = (f"/test.Service/{name}" for name in ("Say", "Large", "Later", "Refuse", "Fail"))


def say(request: bytes) -> bytes:
    return request


def large(request: bytes) -> bytes:
    return bytes(int(request or b"400000"))


async def later(request: bytes) -> bytes:
    await asyncio.sleep(0)
    return request


def refuse(request: bytes) -> bytes:
    raise CallError("Refuse", Code.NOT_FOUND, request.decode())


def fail(_: bytes) -> bytes:
    raise RuntimeError("secret")


METHODS: dict[str, Method] = {SAY: say, LARGE: large, LATER: later, REFUSE: refuse, FAIL: fail}


def served(directory: Path, limits: CallLimits | None = None) -> AbstractAsyncContextManager[Site]:
    return serving(directory, METHODS, limits=limits)


async def call(channel: Channel, name: str, request: bytes = b"") -> bytes:
    answer: bytes = await UnaryUnaryMethod(channel, name, bytes, bytes)(request, timeout=SECONDS)
    return answer


async def works(site: Site) -> bool:
    async with calling(site) as channel:
        return await call(channel, SAY, b"hello") == b"hello"


async def answers(wire: Wire) -> bool:
    """Whether a call on this connection is answered well."""
    stream = wire.ask(SAY)
    await wire.send()
    return (await wire.status(stream))["grpc-status"] == "0"


@pytest.mark.parametrize("name", [SAY, LATER])
@pytest.mark.parametrize("size", [0, 1, 64 << 10])
def test_a_method_gets_the_request_and_its_answer_comes_back(tmp_path: Path, name: str, size: int) -> None:
    async def test() -> None:
        async with served(tmp_path) as site, calling(site) as channel:
            assert await call(channel, name, b"x" * size) == b"x" * size

    run(test())


def test_an_unknown_method_is_unimplemented(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tmp_path) as site, calling(site) as channel:
            for name in ("/test.Service/Missing", "/Say", "/"):
                with pytest.raises(GRPCError) as caught:
                    await call(channel, name)
                assert caught.value.status is Status.UNIMPLEMENTED
            assert await call(channel, SAY, b"hello") == b"hello"

    run(test())


@pytest.mark.parametrize("text", ["no pod", "100 %", "a%41b", "é …", ""])
def test_a_call_error_arrives_with_its_code_and_text(tmp_path: Path, text: str) -> None:
    async def test() -> None:
        async with served(tmp_path) as site, calling(site) as channel:
            with pytest.raises(GRPCError) as caught:
                await call(channel, REFUSE, text.encode())
            assert (caught.value.status, caught.value.message or "") == (Status.NOT_FOUND, text)
            assert site.errors == []

    run(test())


def test_an_unexpected_error_is_reported_and_the_client_gets_no_details(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tmp_path) as site, calling(site) as channel:
            with pytest.raises(GRPCError) as caught:
                await call(channel, FAIL)
            assert caught.value.status is Status.INTERNAL
            assert "secret" not in str(caught.value.message)
            assert [str(error) for error in site.errors] == ["secret"]

    run(test())


def test_many_calls_at_once_are_all_answered(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tmp_path, CallLimits(calls=8)) as site, calling(site) as one, calling(site) as two:
            requests = [b"%d" % number for number in range(300)]
            found = await asyncio.gather(
                *(call((one, two)[number % 2], SAY, request) for number, request in enumerate(requests))
            )
        assert found == requests

    run(test())


def test_a_large_answer_comes_whole(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tmp_path) as site, calling(site) as channel:
            assert await call(channel, LARGE, b"3000000") == bytes(3_000_000)

    run(test())


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", Code.INTERNAL),
        (b"\0\0\0", Code.INTERNAL),
        (b"\0\0\0\0\5abc", Code.INTERNAL),
        (b"\0\0\0\0\0\0\0\0\0\0", Code.INTERNAL),
        (b"\1\0\0\0\0", Code.UNIMPLEMENTED),
        (b"\0\x7f\xff\xff\xff", Code.RESOURCE_EXHAUSTED),
    ],
    ids=["nothing", "half a prefix", "half a message", "two messages", "compressed", "2 GB announced"],
)
def test_a_request_that_is_not_one_message_has_a_code(tmp_path: Path, data: bytes, code: Code) -> None:
    async def test() -> None:
        async with served(tmp_path) as site, wired(site) as wire:
            stream = wire.ask(SAY, data)
            await wire.send()
            assert (await wire.status(stream))["grpc-status"] == str(code.value)
            assert await answers(wire)

    run(test())


def test_an_endless_request_is_refused_before_it_ends(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tmp_path) as site, wired(site) as wire:
            stream = wire.ask(SAY, b"\0\0\1\0\1" + b"x" * 100, end=False)
            await wire.send()
            status = await wire.status(stream)
            assert status["grpc-status"] == str(Code.RESOURCE_EXHAUSTED.value)
            assert "65,537 bytes" in status["grpc-message"]

    run(test())


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({":method": "GET"}, "405"),
        ({"content-type": "application/json"}, "415"),
        ({"content-type": "application/grpcx"}, "415"),
    ],
)
def test_a_request_that_is_not_grpc_gets_an_http_status(tmp_path: Path, changed: dict[str, str], status: str) -> None:
    async def test() -> None:
        async with served(tmp_path) as site, wired(site) as wire:
            stream = wire.ask(SAY, changed=changed)
            await wire.send()
            assert (await wire.status(stream))[":status"] == status

    run(test())


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 100, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 50]
)
def test_a_client_that_does_not_speak_http2_is_disconnected(tmp_path: Path, data: bytes) -> None:
    async def test() -> None:
        async with served(tmp_path, CallLimits(seconds=0.1)) as site:
            wire = Wire(site.path)
            await wire.send(data)
            with wire.socket:
                while await asyncio.get_running_loop().sock_recv(wire.socket, 1 << 16):
                    pass
            await until(lambda: not site.server.links)
            assert await works(site)

    run(test())


def test_a_frame_of_sixteen_megabytes_is_not_taken_in(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tmp_path) as site, wired(site) as wire:
            await wire.events()
            await wire.send(b"\xff\xff\xff\0\0\0\0\0\1")
            with pytest.raises(ConnectionError):
                await wire.send(b"x" * (16 << 20))
            await until(lambda: not site.server.links)

    run(test())


def test_a_client_that_says_nothing_is_disconnected(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tmp_path, CallLimits(seconds=0.05)) as site:
            wire = Wire(site.path)
            with wire.socket:
                assert await wire.closed()

    run(test())


def test_a_client_may_be_idle_for_longer_than_the_limit_for_slow_ones(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tmp_path, CallLimits(seconds=0.05)) as site, wired(site) as wire:
            assert await answers(wire)
            await asyncio.sleep(0.15)
            assert await answers(wire)

    run(test())


def test_a_request_that_never_ends_is_given_up(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tmp_path, CallLimits(seconds=0.05)) as site, wired(site) as wire:
            stream = wire.ask(SAY, b"\0", end=False)
            await wire.send()
            assert "reset" in await wire.status(stream)
            assert await answers(wire)

    run(test())


def test_an_answer_that_the_client_does_not_take_is_given_up_and_others_go_on(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tmp_path, CallLimits(seconds=0.1)) as site, wired(site, window=3) as wire:
            stream = wire.ask(LARGE)
            await wire.send()
            assert "reset" in await wire.status(stream)
            assert await works(site)

    run(test())


def test_a_client_that_does_not_read_its_socket_is_disconnected(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            served(tmp_path, CallLimits(seconds=0.1)) as site,
            wired(site, window=(1 << 31) - 1) as wire,
        ):
            wire.h2.increment_flow_control_window((1 << 31) - 1 - 65535)
            for _ in range(8):
                wire.ask(LARGE)
            await wire.send()
            await until(lambda: len(site.server.links) == 1)
            await until(lambda: not site.server.links)

    run(test())


def test_calls_that_are_taken_back_in_the_same_breath_leave_the_connection_alone(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tmp_path) as site, wired(site) as wire:
            for _ in range(500):
                wire.h2.reset_stream(wire.ask(FAIL))
            await wire.send()
            assert await answers(wire)
            assert site.errors == []

    run(test())


def test_headers_without_end_get_the_client_disconnected(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tmp_path) as site, wired(site) as wire:
            for number in range(20):
                wire.ask(SAY, changed={"x-long": f"{number}" + "x" * 1000})
            wire.ask(SAY, changed={"x-long": "x" * 15_000, "x-more": "y" * 15_000})
            await wire.send()
            assert await wire.closed()

    run(test())


def test_too_many_clients_replace_the_one_that_was_idle_for_longest(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tmp_path, CallLimits(connections=2)) as site, wired(site) as first, wired(site) as second:
            await until(lambda: len(site.server.links) == 2)
            assert await answers(first)
            assert await works(site)
            assert await second.closed()
            assert await answers(first)

    run(test())


def test_too_many_busy_clients_keep_a_new_one_out(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tmp_path, CallLimits(connections=1)) as site, wired(site) as busy:
            busy.ask(SAY, b"", end=False)
            await busy.send()
            assert await answers(busy)  # so the first call has been seen as well
            with Wire(site.path).socket as late:
                assert await asyncio.get_running_loop().sock_recv(late, 10) == b""

    run(test())


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_whatever_a_client_sends_the_next_one_is_served(pieces: list[bytes]) -> None:
    async def test() -> None:
        with tempfile.TemporaryDirectory() as directory:
            async with served(Path(directory)) as site:
                async with wired(site) as wire:
                    for piece in pieces:
                        await asyncio.gather(wire.send(piece), return_exceptions=True)
                assert await works(site)
                assert site.errors == []

    run(test())
