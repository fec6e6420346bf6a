"""The server against clients that are slow, hostile or too many."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest
from h2.settings import SettingCodes
from hypothesis import given
from hypothesis import strategies as st

from pinfold.grpc.server import CallLimits
from tests.unit.grpc.ends import Wire, run, until, wired
from tests.unit.grpc.service import FAIL, LARGE, SAY, answers, served, works


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


def test_a_client_that_does_not_read_cannot_stay_by_sending_settings(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tmp_path, CallLimits(seconds=0.1)) as site, wired(site) as wire:
            await until(lambda: len(site.server.links) == 1)
            [link] = site.server.links
            await wire.events()
            link.pause_writing()  # as when the answer to the frame before these settings fills the socket
            wire.h2.update_settings({SettingCodes.HEADER_TABLE_SIZE: 0})
            link.data_received(wire.h2.data_to_send())
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
def test_after_any_bytes_of_a_client_the_next_client_is_served(pieces: list[bytes]) -> None:
    async def test() -> None:
        with tempfile.TemporaryDirectory() as directory:
            async with served(Path(directory)) as site:
                async with wired(site) as wire:
                    for piece in pieces:
                        await asyncio.gather(wire.send(piece), return_exceptions=True)
                assert await works(site)
                assert site.errors == []

    run(test())
