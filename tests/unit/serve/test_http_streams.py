"""Streams of lines and of events: they come as they come, and end when either side wants."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.serve.http.limits import HTTPLimits
from pinfold.serve.http.messages import Request, Response, ServerSentEvent
from tests.unit.serve.http_site import GET, Site, Talk, leaping, serve, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path


class Source:
    """What is streamed, to any number of watchers."""

    def __init__(self, *, events: bool) -> None:
        self.events = events
        self.count = 0
        self.closed = 0
        self.more = asyncio.Event()

    def tell(self) -> None:
        self.count += 1
        self.more.set()
        self.more = asyncio.Event()

    async def handle(self, _request: Request) -> Response:
        if self.events:
            return Response(200, events=self._events())
        return Response(200, lines=self._lines())

    async def _lines(self) -> AsyncIterator[bytes]:
        try:
            number = 0
            while True:
                more = self.more
                while number < self.count:
                    number += 1
                    yield b"%d\n" % number
                await more.wait()
        finally:
            self.closed += 1

    async def _events(self) -> AsyncIterator[bytes]:
        try:
            number = 0
            while True:
                more = self.more
                while number < self.count:
                    number += 1
                    yield ServerSentEvent(str(number), id=str(number)).encode()
                await more.wait()
        finally:
            self.closed += 1


def endless(size: int) -> Callable[[Request], Awaitable[Response]]:
    async def lines() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * size

    async def handle(_request: Request) -> Response:
        return Response(200, lines=lines())

    return handle


async def watch(site: Site, source: str = "127.0.0.1") -> Talk:
    talk = await site.connect(source)
    await talk.send(GET)
    assert (await talk.head()).status == 200
    return talk


def test_lines_are_streamed_as_they_come(tmp_path: Path) -> None:
    source = Source(events=False)

    async def scenario(site: Site) -> None:
        talk = await site.connect()
        await talk.send(GET)
        assert (await talk.head()).headers["content-type"] == "application/x-ndjson"
        for number in range(1, 4):
            source.tell()
            assert await talk.chunk() == b"%d\n" % number

    serve(tmp_path, scenario, source.handle)


def test_events_are_streamed_as_browsers_read_them(tmp_path: Path) -> None:
    async def handle(_request: Request) -> Response:
        async def events() -> AsyncIterator[bytes]:
            yield ServerSentEvent("", retry=2000).encode()
            yield ServerSentEvent("one\ntwo", id="1", name="note").encode()

        return Response(200, events=events())

    async def scenario(site: Site) -> None:
        talk = await site.connect()
        await talk.send(GET)
        head = await talk.head()
        assert (head.headers["content-type"], head.headers["cache-control"]) == ("text/event-stream", "no-store")
        assert await talk.chunk() == b"retry: 2000\n\n"
        assert await talk.chunk() == b"id: 1\nevent: note\ndata: one\ndata: two\n\n"
        assert await talk.chunk() == b""
        assert await talk.ended() == b""

    serve(tmp_path, scenario, handle)


@pytest.mark.parametrize("tcp", [False, True], ids=["unix", "TCP"])
def test_a_stream_that_ends_by_itself_ends_the_connection_without_an_error(tmp_path: Path, *, tcp: bool) -> None:
    async def handle(_request: Request) -> Response:
        async def lines() -> AsyncIterator[bytes]:
            yield b"one\n"
            await asyncio.sleep(0.01)
            yield b"two\n"

        return Response(200, lines=lines())

    async def scenario(site: Site) -> None:
        talk = await watch(site)
        assert [await talk.chunk() for _ in range(3)] == [b"one\n", b"two\n", b""]
        assert await talk.ended() == b""
        await talk.leave()
        await until(lambda: site.server.connections == 0)
        assert site.errors == []

    serve(None if tcp else tmp_path, scenario, handle)


def test_to_an_old_client_a_stream_is_sent_plainly(tmp_path: Path) -> None:
    async def handle(_request: Request) -> Response:
        async def lines() -> AsyncIterator[bytes]:
            yield b"one\n"
            yield b"two\n"

        return Response(200, lines=lines())

    async def scenario(site: Site) -> None:
        talk = await site.connect()
        await talk.send(b"GET / HTTP/1.0\r\n\r\n")
        assert (await talk.ended()).endswith(b"\r\n\r\none\ntwo\n")

    serve(tmp_path, scenario, handle)


def test_of_a_stream_the_head_can_be_had_alone_and_it_is_not_begun(tmp_path: Path) -> None:
    source = Source(events=True)
    source.tell()

    async def scenario(site: Site) -> None:
        talk = await site.connect()
        await talk.send(GET.replace(b"GET", b"HEAD"))
        assert (await talk.ended()).endswith(b"\r\n\r\n")

    serve(tmp_path, scenario, source.handle)


@pytest.mark.parametrize("tcp", [False, True], ids=["unix", "TCP"])
@pytest.mark.parametrize("how", ["close", "half", "reset"])
def test_a_watcher_that_goes_away_is_forgotten_at_once(tmp_path: Path, *, tcp: bool, how: str) -> None:
    source = Source(events=False)

    async def scenario(site: Site) -> None:
        talk = await watch(site)
        await until(lambda: site.server.streams == 1)
        source.tell()
        assert await talk.chunk() == b"1\n"
        if how == "reset":
            talk.reset()
        elif how == "half":
            talk.writer.write_eof()
        else:
            await talk.leave()
        await until(lambda: source.closed == 1)
        await until(lambda: site.server.connections == 0)
        assert site.errors == []

    serve(None if tcp else tmp_path, scenario, source.handle)


def test_what_a_watcher_says_is_dropped(tmp_path: Path) -> None:
    source = Source(events=False)

    async def scenario(site: Site) -> None:
        talk = await watch(site)
        await talk.send(GET * 10_000)
        source.tell()
        assert await talk.chunk() == b"1\n"
        assert len(site.asked) == 1

    serve(tmp_path, scenario, source.handle)


def test_a_stream_of_events_shows_that_it_is_alive(tmp_path: Path) -> None:
    source = Source(events=True)

    async def scenario(site: Site) -> None:
        talk = await watch(site)
        for _ in range(3):
            beat, seconds = await leaping(talk.chunk())
            assert beat == b":\n\n"
            assert seconds < 30
        source.tell()
        assert await talk.chunk() == b"id: 1\ndata: 1\n\n"

    serve(tmp_path, scenario, source.handle)


def test_a_stream_that_breaks_is_cut_off_and_reported(tmp_path: Path) -> None:
    async def handle(_request: Request) -> Response:
        async def lines() -> AsyncIterator[bytes]:
            yield b"one\n"
            raise KeyError("main")

        return Response(200, lines=lines())

    async def scenario(site: Site) -> None:
        talk = await watch(site)
        assert await talk.ended() == b"4\r\none\n\r\n"  # and no end of the stream
        assert [(what, type(error)) for what, error in site.errors] == [("GET /v1/node", KeyError)]

    serve(tmp_path, scenario, handle)


@pytest.mark.parametrize("tcp", [False, True], ids=["unix", "TCP"])
def test_when_the_server_closes_streams_end_as_if_there_were_no_more(tmp_path: Path, *, tcp: bool) -> None:
    source = Source(events=True)
    source.tell()

    async def scenario(site: Site) -> None:
        talks = [await watch(site) for _ in range(10)]
        for talk in talks:
            assert await talk.chunk() == b"id: 1\ndata: 1\n\n"
        closing = asyncio.create_task(site.server.close())
        for talk in talks:
            assert await talk.chunk() == b""
            await talk.leave()
        await closing
        assert source.closed == 10

    serve(None if tcp else tmp_path, scenario, source.handle)


def test_fifty_watchers_get_everything(tmp_path: Path) -> None:
    del tmp_path
    source = Source(events=True)

    async def scenario(site: Site) -> None:
        talks = [await watch(site) for _ in range(50)]
        for _ in range(100):
            source.tell()
            await asyncio.sleep(0)
        for number in range(1, 101):
            assert {await talk.chunk() for talk in talks} == {b"id: %d\ndata: %d\n\n" % (number, number)}
        assert site.server.streams == 50
        for talk in talks:
            await talk.leave()
        await until(lambda: source.closed == 50)

    serve(None, scenario, source.handle)


def test_more_watchers_than_allowed_are_turned_away_and_others_are_served(tmp_path: Path) -> None:
    source = Source(events=True)

    async def handle(request: Request) -> Response:
        return await source.handle(request) if request.path == "/v1/node" else Response(200)

    async def scenario(site: Site) -> None:
        talks = [await watch(site) for _ in range(3)]
        refused = await site.ask(GET)
        assert (refused.status, refused.headers["retry-after"]) == (503, "5")
        assert b"clients are watching; at most 3" in refused.body
        assert (await site.ask(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")).status == 200
        await talks[0].leave()
        await until(lambda: site.server.streams == 2)
        await watch(site)

    serve(tmp_path, scenario, handle, limits=HTTPLimits(streams=3))


def test_watchers_do_not_give_way_to_others(tmp_path: Path) -> None:
    source = Source(events=True)

    async def scenario(site: Site) -> None:
        talks = [await watch(site) for _ in range(2)]
        assert (await site.ask(GET)).status == 503
        source.tell()
        assert {await talk.chunk() for talk in talks} == {b"id: 1\ndata: 1\n\n"}

    serve(tmp_path, scenario, source.handle, limits=HTTPLimits(connections=2))


def test_one_address_cannot_have_all_streams() -> None:
    source = Source(events=True)

    async def scenario(site: Site) -> None:
        talks = [await watch(site) for _ in range(3)]
        refused = await site.ask(GET)
        assert refused.status == 503
        assert b"at most 3 of them from one address" in refused.body
        await watch(site, "127.0.0.2")
        await talks[0].leave()
        await until(lambda: site.server.streams == 3)
        await watch(site)

    serve(None, scenario, source.handle, limits=HTTPLimits(streams=5, streams_each=3))


@pytest.mark.parametrize("tcp", [False, True], ids=["unix", "TCP"])
@pytest.mark.parametrize("size", [100, 1_000_000])
def test_a_watcher_that_does_not_read_is_dropped(tmp_path: Path, *, tcp: bool, size: int) -> None:
    async def scenario(site: Site) -> None:
        talk = await site.connect()
        talk.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a transport of a socket can
        await talk.send(GET)
        await until(lambda: site.server.streams == 1)
        _, seconds = await leaping(until(lambda: site.server.connections == 0))
        assert seconds >= 10
        assert site.errors == []

    serve(None if tcp else tmp_path, scenario, endless(size))


def test_a_stream_without_end_delays_no_other_client(tmp_path: Path) -> None:
    stream = endless(10)

    async def handle(request: Request) -> Response:
        return await stream(request) if request.path == "/v1/node" else Response(200, "here")

    async def scenario(site: Site) -> None:
        talk = await watch(site)
        reading = asyncio.create_task(talk.ended())
        for _ in range(20):
            assert (await site.ask(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")).data == "here"
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

    serve(tmp_path, scenario, handle)


# -- one event


@pytest.mark.parametrize(
    "event", [ServerSentEvent("x", id="1\n2"), ServerSentEvent("x", name="a\rb"), ServerSentEvent("x", id="\0")]
)
def test_an_event_whose_fields_have_more_than_a_line_is_no_event(event: ServerSentEvent) -> None:
    with pytest.raises(ValueError, match="one line"):
        event.encode()


@given(st.text())
def test_the_data_of_an_event_cannot_become_another_field(data: str) -> None:
    *lines, blank, rest = ServerSentEvent(data, id="1").encode().decode().split("\n")
    assert (lines[0], blank, rest) == ("id: 1", "", "")
    assert all(line.startswith("data: ") and "\r" not in line for line in lines[1:])
