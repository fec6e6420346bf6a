"""What the connection itself decides: where an answer ends, whether a request may follow, and how long it waits."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from pinfold.serve.http.limits import HTTPLimits
from pinfold.serve.http.messages import Request, Response
from tests.unit.serve.http_site import GET, Site, leaping, serve, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

UPGRADE = GET.replace(b"\r\n\r\n", b"\r\nUpgrade: h2c\r\n\r\n")
POST = b"POST / HTTP/1.1\r\nHost: x\r\n"


async def three(_request: Request) -> Response:
    async def lines() -> AsyncIterator[bytes]:
        for line in (b"one\n", b"", b"three\n"):
            yield line

    return Response(200, lines=lines())


def test_an_empty_piece_does_not_end_a_stream(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        talk = await site.connect()
        await talk.send(GET)
        head = await talk.head()
        assert (head.headers["transfer-encoding"], head.headers["connection"]) == ("chunked", "close")
        assert await talk.ended() == b"4\r\none\n\r\n6\r\nthree\n\r\n0\r\n\r\n"

    serve(tmp_path, scenario, three)


def test_a_stream_for_an_old_client_has_no_chunks_and_ends_with_the_connection(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        talk = await site.connect()
        await talk.send(b"GET / HTTP/1.0\r\n\r\n")
        head = await talk.head()
        assert "transfer-encoding" not in head.headers
        assert head.headers["connection"] == "close"
        assert await talk.ended() == b"one\nthree\n"

    serve(tmp_path, scenario, three)


def test_the_head_of_a_stream_can_be_had_alone(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        talk = await site.connect()
        await talk.send(GET.replace(b"GET", b"HEAD"))
        head = await talk.head()
        assert (head.headers["transfer-encoding"], head.headers["connection"]) == ("chunked", "close")
        assert await talk.ended() == b""

    serve(tmp_path, scenario, three)


def test_an_answer_says_only_if_it_is_the_last_that_the_connection_closes(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        talk = await site.connect()
        assert "connection" not in (await talk.ask(GET)).headers
        closing = GET.replace(b"\r\n\r\n", b"\r\nConnection: x, Close\r\n\r\n")
        assert (await talk.ask(closing)).headers["connection"] == "close"
        assert await talk.ended() == b""

    serve(tmp_path, scenario)


def test_a_client_that_asks_for_another_protocol_is_answered_and_may_go_on(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        talk = await site.connect()
        await talk.send(UPGRADE + GET)
        assert [(await talk.answer()).status for _ in range(2)] == [200, 200]
        last = await talk.ask(UPGRADE.replace(b"Upgrade", b"Connection: close\r\nUpgrade"))
        assert (last.status, last.headers["connection"]) == (200, "close")
        assert await talk.ended() == b""

    serve(tmp_path, scenario)


def test_a_broken_request_after_a_good_one_is_refused_after_its_answer(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        talk = await site.connect()
        await talk.send(GET + b"hello\r\n\r\n" + GET)
        assert [(await talk.answer()).status for _ in range(2)] == [200, 400]
        assert await talk.ended() == b""
        assert len(site.asked) == 1

    serve(tmp_path, scenario)


def test_a_body_is_not_taken_for_a_request(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        talk = await site.connect()
        await talk.send(POST + b"Content-Length: %d\r\n\r\n" % len(GET) + GET + GET)
        assert [(await talk.answer()).status for _ in range(2)] == [200, 200]
        assert [request.body for request in site.asked] == [GET, b""]

    serve(tmp_path, scenario)


# -- how long it waits


def test_a_request_in_pieces_does_not_shorten_the_wait_for_the_next(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        talk = await site.connect()
        for data in (GET[:10], GET[10:]):
            await talk.send(data)
            await leaping(asyncio.sleep(5))
        assert (await talk.answer()).status == 200
        said, seconds = await leaping(talk.ended())
        assert said == b""
        assert 65 <= seconds < 90

    serve(tmp_path, scenario)


def test_a_client_that_never_stops_sending_has_no_more_time(tmp_path: Path) -> None:
    chunk = b"1;%b\r\nx\r\n" % (b"y" * 10_000)

    async def scenario(site: Site) -> None:
        talk = await site.connect()
        answer = asyncio.ensure_future(talk.answer())
        await talk.send(POST + b"Transfer-Encoding: chunked\r\n\r\n")

        async def flood() -> None:
            while not answer.done():
                await talk.send(chunk * 20)
                await asyncio.sleep(0)

        await leaping(flood())
        assert (await answer).status == 408

    serve(tmp_path, scenario)


@pytest.mark.parametrize("tcp", [False, True], ids=["unix", "TCP"])
def test_what_a_client_sends_during_an_answer_is_not_received_without_end(tmp_path: Path, *, tcp: bool) -> None:
    go_on = asyncio.Event()

    async def slow(_request: Request) -> Response:
        await go_on.wait()
        return Response(200)

    async def scenario(site: Site) -> None:
        talk = await site.connect()
        await talk.send(GET)
        await until(lambda: len(site.asked) == 1)
        talk.writer.write(b"x" * 20_000_000)
        for _ in range(100):
            await asyncio.sleep(0)
        assert talk.writer.transport.get_write_buffer_size() > 10_000_000
        go_on.set()
        assert (await talk.answer()).status == 200
        assert (await talk.answer()).status == 414

    serve(None if tcp else tmp_path, scenario, slow, limits=HTTPLimits())
