"""The server against grpclib's client, and against requests that are not what they should be."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from pinfold.grpc.errors import Code
from pinfold.grpc.server import CallLimits
from tests.unit.grpc.ends import calling, run, wired
from tests.unit.grpc.service import FAIL, LARGE, LATER, REFUSE, SAY, answers, call, served

if TYPE_CHECKING:
    from pathlib import Path


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
