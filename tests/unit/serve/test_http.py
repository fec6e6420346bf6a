"""The HTTP server on a unix socket: what it answers, what it puts up with, and whom it serves."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import pytest

from pinfold.errors import PinfoldError
from pinfold.serve.http import HTTPError, Request, Response, Server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
    from pathlib import Path

pytestmark = pytest.mark.unfinished

GET = b"GET /v1/node HTTP/1.1\r\nHost: x\r\n\r\n"
WITHIN = 10.0


def bug(what: str) -> pytest.MarkDecorator:
    """Mark a test that shows a known bug; when it is mended, the test fails and the mark goes."""
    return pytest.mark.xfail(reason=what, strict=True)


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose time goes on by itself, and by leaps."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def data(self) -> object:
        return json.loads(self.body)


class Talk:
    """One connection to a server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> Answer:
        """Return the next answer, which says its length."""
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), WITHIN)
        first, *lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines if line)
        body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return Answer(int(first.split()[1]), headers, body)

    async def ask(self, data: bytes) -> Answer:
        await self.send(data)
        return await self.answer()

    async def ended(self) -> bytes:
        """Wait until the other side has closed, and return what it has said before."""
        try:
            return await asyncio.wait_for(self.reader.read(), WITHIN)
        except ConnectionError:
            return b""


class Site:
    """A server, the requests it was asked, and connections to it."""

    def __init__(self, path: Path, handle: Callable[[Request], Awaitable[Response]], uids: frozenset[int]) -> None:
        self.path = path
        self.asked: list[Request] = []
        self._handle = handle
        self._server = Server(self._note, uids)
        self._serving: asyncio.Server | None = None
        self._talks: list[Talk] = []

    async def _note(self, request: Request) -> Response:
        self.asked.append(request)
        return await self._handle(request)

    async def start(self) -> None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self.path))
        self._serving = await self._server.start(listener)

    async def connect(self) -> Talk:
        talk = Talk(*await asyncio.open_unix_connection(self.path))
        self._talks.append(talk)
        return talk

    async def stop(self) -> None:
        """Close both ends of everything."""
        assert self._serving is not None
        self._serving.close()
        for talk in self._talks:
            talk.writer.close()
            with suppress(ConnectionError):
                await talk.writer.wait_closed()
        served = asyncio.all_tasks() - {asyncio.current_task()}
        if served:
            _, waiting = await asyncio.wait(served, timeout=0.5)
            asyncio.get_running_loop().set_exception_handler(lambda *_: None)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            await asyncio.sleep(0)  # for the transports to close


async def echo(request: Request) -> Response:
    return Response(200, {"path": request.path, "query": dict(request.query), "size": len(request.body)})


def serve(
    directory: Path,
    scenario: Callable[[Site], Coroutine[None, None, None]],
    handle: Callable[[Request], Awaitable[Response]] = echo,
    uids: frozenset[int] = frozenset({os.geteuid()}),
) -> None:
    async def play() -> None:
        site = Site(directory / "s", handle, uids)
        await site.start()
        try:
            await scenario(site)
        finally:
            await site.stop()

    with asyncio.Runner(loop_factory=Clock) as runner:
        runner.run(play())


def test_a_request_is_answered_in_json(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        answer = await (await site.connect()).ask(GET)
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert answer.data == {"path": "/v1/node", "query": {}, "size": 0}

    serve(tmp_path, scenario)


def test_who_asks_is_known(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        await (await site.connect()).ask(GET)
        assert site.asked[0].peer == (os.getpid(), os.geteuid(), os.getegid())

    serve(tmp_path, scenario)


def test_one_connection_serves_many_requests_also_if_they_come_at_once(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        talk = await site.connect()
        for _ in range(3):
            assert (await talk.ask(GET)).status == 200
        await talk.send(GET * 3)
        assert [(await talk.answer()).status for _ in range(3)] == [200] * 3
        assert len(site.asked) == 6

    serve(tmp_path, scenario)


def test_a_body_may_come_in_pieces(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        talk = await site.connect()
        for piece in (b"POST / HTTP/1.1\r\nHo", b"st: x\r\nContent-Length: 6\r\n", b"\r\n123", b"456"):
            await talk.send(piece)
            await asyncio.sleep(0)
        assert (await talk.answer()).data == {"path": "/", "query": {}, "size": 6}
        chunked = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
        assert (await talk.ask(chunked)).data == {"path": "/", "query": {}, "size": 5}

    serve(tmp_path, scenario)


@bug("Expect: 100-continue is not answered; curl waits a second for large files")
def test_a_client_that_waits_to_be_let_go_on_is_told_to(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        talk = await site.connect()
        await talk.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n")
        try:
            first = await asyncio.wait_for(talk.answer(), 1)
        except TimeoutError:
            pytest.fail("it waits in vain")
        assert first.status == 100
        assert (await talk.ask(b"x")).status == 200

    serve(tmp_path, scenario)


@pytest.mark.parametrize(
    ("query", "expected"),
    [("", {}), ("?a=1&b=2", {"a": "1", "b": "2"}), ("?a=b=c&x&=", {"a": "b=c", "": ""}), ("?a=%20", {"a": "%20"})],
)
def test_the_query_is_split(tmp_path: Path, query: str, expected: dict[str, str]) -> None:
    async def scenario(site: Site) -> None:
        await (await site.connect()).ask(f"GET /{query} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert site.asked[0].query == expected

    serve(tmp_path, scenario)


def test_errors_on_purpose_have_a_status_a_reason_and_a_message(tmp_path: Path) -> None:
    errors = [HTTPError(404, "NotFound", "nothing there"), PinfoldError("cannot be")]

    async def fail(_request: Request) -> Response:
        raise errors.pop(0)

    async def scenario(site: Site) -> None:
        talk = await site.connect()
        answers = [await talk.ask(GET) for _ in range(2)]
        assert [answer.status for answer in answers] == [404, 400]
        assert [answer.data for answer in answers] == [
            {"reason": "NotFound", "message": "nothing there"},
            {"reason": "PinfoldError", "message": "cannot be"},
        ]

    serve(tmp_path, scenario, fail)


@bug("the connection is closed without an answer")
@pytest.mark.parametrize("broken", ["handler", "answer"])
def test_an_error_that_nobody_expected_is_answered_too(tmp_path: Path, broken: str) -> None:
    async def fail(_request: Request) -> Response:
        if broken == "handler":
            raise KeyError("main")
        return Response(200, {"no JSON"})

    async def scenario(site: Site) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        talk = await site.connect()
        await talk.send(GET)
        assert (await talk.ended() or b"HTTP/1.1 0").split()[1] == b"500"

    serve(tmp_path, scenario, fail)


def test_other_users_are_refused_before_they_are_heard(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        talk = await site.connect()
        answer = await talk.ask(GET)
        assert answer.status == 403
        assert f"user {os.geteuid()}" in answer.body.decode()
        assert await talk.ended() == b""
        assert site.asked == []

    serve(tmp_path, scenario, uids=frozenset({os.geteuid() + 1}))


@pytest.mark.parametrize(
    "garbage",
    [
        b"hello\r\n\r\n",
        b"\0" * 100,
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"b" * 100_000 + b"\r\n\r\n",
        b"GET /" + b"b" * 100_000,
    ],
    ids=["text", "zeros", "no host", "length", "chunk", "header", "target"],
)
def test_garbage_ends_the_connection_and_nothing_else(tmp_path: Path, garbage: bytes) -> None:
    async def scenario(site: Site) -> None:
        talk = await site.connect()
        await talk.send(garbage)
        assert b" 200 " not in await talk.ended()
        assert site.asked == []
        assert (await (await site.connect()).ask(GET)).status == 200

    serve(tmp_path, scenario)


@bug("the connection is closed without an answer")
def test_garbage_is_answered_with_what_is_wrong(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        talk = await site.connect()
        await talk.send(b"hello\r\n\r\n")
        assert (await talk.ended()).startswith(b"HTTP/1.1 400 ")

    serve(tmp_path, scenario)


def test_a_body_that_is_too_large_is_refused(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        talk = await site.connect()
        await talk.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 17000000\r\n\r\n")
        sending = asyncio.create_task(talk.send(b"x" * 17_000_000))
        answer = await talk.answer()
        await asyncio.gather(sending, return_exceptions=True)
        assert answer.status == 413
        assert b"16,777,216" in answer.body
        assert site.asked == []

    serve(tmp_path, scenario)


def test_a_client_that_goes_away_in_between_does_no_harm(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        for data in (b"", GET[:10], b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n123"):
            talk = await site.connect()
            await talk.send(data)
            talk.writer.close()
            await talk.writer.wait_closed()
        assert (await (await site.connect()).ask(GET)).status == 200
        assert len(site.asked) == 1

    serve(tmp_path, scenario)


@pytest.mark.parametrize(
    "begun",
    [
        pytest.param(b"", marks=bug("it may take for ever until a request is complete")),
        pytest.param(GET[:10], marks=bug("it may take for ever until a request is complete")),
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n123",
    ],
    ids=["nothing", "head", "body"],
)
def test_a_client_that_takes_too_long_is_let_go(tmp_path: Path, begun: bytes) -> None:
    async def scenario(site: Site) -> None:
        clock = asyncio.get_running_loop()
        assert isinstance(clock, Clock)
        talk = await site.connect()
        await talk.send(begun)
        for _ in range(10):
            await asyncio.sleep(0.001)
        clock.ahead += 3600
        try:
            assert await asyncio.wait_for(talk.reader.read(), 2) == b""
        except TimeoutError:
            pytest.fail("it is still connected after an hour")

    serve(tmp_path, scenario)


def test_lines_are_streamed_as_they_come(tmp_path: Path) -> None:
    more = asyncio.Event()

    async def stream(_request: Request) -> Response:
        async def lines() -> AsyncIterator[bytes]:
            yield b"one\n"
            await more.wait()
            yield b"two\n"

        return Response(200, lines=lines())

    async def scenario(site: Site) -> None:
        talk = await site.connect()
        answer = await talk.ask(GET)
        assert answer.headers["content-type"] == "application/x-ndjson"
        assert b"one" in await talk.reader.readuntil(b"one\n\r\n")
        more.set()
        assert b"two" in await talk.ended()

    serve(tmp_path, scenario, stream)


@bug("it is noticed only at the next line")
def test_a_watcher_that_goes_away_is_forgotten(tmp_path: Path) -> None:
    forgotten = asyncio.Event()

    async def stream(_request: Request) -> Response:
        async def lines() -> AsyncIterator[bytes]:
            try:
                yield b"one\n"
                await asyncio.Event().wait()
            finally:
                forgotten.set()

        return Response(200, lines=lines())

    async def scenario(site: Site) -> None:
        talk = await site.connect()
        await talk.ask(GET)
        talk.writer.close()
        await talk.writer.wait_closed()
        try:
            await asyncio.wait_for(forgotten.wait(), 1)
        except TimeoutError:
            pytest.fail("it is still served, though nobody listens")

    serve(tmp_path, scenario, stream)


def test_a_hundred_clients_at_once_are_all_served(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        talks = [await site.connect() for _ in range(100)]
        answers = await asyncio.gather(*(talk.ask(GET) for talk in talks))
        assert {answer.status for answer in answers} == {200}

    serve(tmp_path, scenario)
