"""What the HTTP server puts up with: sizes, times, numbers, garbage; on a unix socket and over TCP."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import socket
import tempfile
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinfold.serve.http.gate import HTTPGate, Users
from pinfold.serve.http.limits import LOCAL, REMOTE, Buckets, HTTPLimits, Rate, Turns, client_of, fits
from pinfold.serve.http.messages import Request, Response
from pinfold.serve.http.server import HTTPServer
from tests.needs import needs_root
from tests.unit.serve import http_site
from tests.unit.serve.http_site import GET, Clock, Site, Talk, leaping, serve, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context

WRITABLE = HTTPGate(read_only=False)
LARGE = b"b" * 100_000
OTHER = b"GET /other HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: localhost\r\n"
GARBAGE = {
    "text": (b"hello\r\n\r\n", 400),
    "zeros": (b"\0" * 100, 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", 400),
    "two hosts": (b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
    "header": (b"GET / HTTP/1.1\r\nHost: x\r\nA b: c\r\n\r\n", 400),
    "header value": (b"GET / HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n", 400),
    "length": (POST + b"Content-Length: x\r\n\r\n", 400),
    "negative": (POST + b"Content-Length: -1\r\n\r\n", 400),
    "length of many digits": (POST + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n", 400),
    "two lengths": (POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
    "coding": (POST + b"Transfer-Encoding: gzip\r\n\r\n", 501),
    "chunk": (POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    "proxy": (b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n", 501),
    "large header": (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + LARGE + b"\r\n\r\n", 431),
    "many headers": (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 20_000 + b"\r\n", 431),
    "headers without end": (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 20_000, 431),
    "target": (b"GET /" + LARGE + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
    "target without end": (b"GET /" + LARGE, 414),
    "chunk head": (POST + b"Transfer-Encoding: chunked\r\n\r\n1;" + LARGE, 400),
}


@pytest.mark.parametrize("tcp", [False, True], ids=["unix", "TCP"])
@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_is_answered_with_what_is_wrong_and_does_no_harm(tmp_path: Path, garbage: str, *, tcp: bool) -> None:
    data, status = GARBAGE[garbage]

    async def scenario(site: Site) -> None:
        talk = await site.connect()
        sending = asyncio.create_task(talk.send(data))
        answer = await talk.answer()
        assert (answer.status, answer.headers["connection"]) == (status, "close")
        assert isinstance(answer.data, dict)
        assert answer.data["message"]
        assert len(answer.body) < 400
        await sending
        assert await talk.ended() == b""
        assert site.asked == []
        assert (await site.ask(GET)).status == 200
        assert site.errors == []

    serve(None if tcp else tmp_path, scenario, gate=WRITABLE)


@pytest.mark.parametrize("tcp", [False, True], ids=["unix", "TCP"])
@pytest.mark.parametrize("declared", [True, False], ids=["declared", "in chunks"])
def test_a_client_that_sends_too_much_can_read_why_it_is_refused(tmp_path: Path, *, tcp: bool, declared: bool) -> None:
    size = 10_000_000 if tcp else 20_000_000
    head = b"Content-Length: %d\r\n\r\n" % size if declared else b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % size

    async def scenario(site: Site) -> None:
        talk = await site.connect()
        await talk.send(POST + head + b"x" * size)  # and only then it reads
        answer = await talk.answer()
        assert answer.status == 413
        assert (b"65,536" if tcp else b"16,777,216") in answer.body
        assert site.asked == []

    serve(None if tcp else tmp_path, scenario, limits=REMOTE if tcp else HTTPLimits(), gate=WRITABLE)


def test_a_client_that_goes_on_sending_without_end_is_dropped(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        talk = await site.connect()
        await talk.send(POST + b"Content-Length: 99999999999999999999\r\n\r\n")
        while not talk.writer.transport.is_closing():
            await talk.send(b"x" * 100_000)
        await until(lambda: site.server.connections == 0)

    serve(tmp_path, scenario, limits=HTTPLimits(dropped=1_000_000))


def test_the_largest_request_is_served(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        answer = await site.ask(POST + b"Content-Length: %d\r\n\r\n" % (16 << 20) + b"x" * (16 << 20))
        assert answer.data == {"path": "/", "query": {}, "size": 16 << 20}

    serve(tmp_path, scenario)


def test_a_client_that_goes_away_in_between_does_no_harm(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        for data in (b"", GET[:10], POST + b"Content-Length: 10\r\n\r\n123"):
            for crashed in (False, True):
                talk = await site.connect()
                await talk.send(data)
                if crashed:
                    talk.reset()
                await talk.leave()
        assert (await site.ask(GET)).status == 200
        assert len(site.asked) == 1

    serve(tmp_path, scenario)


# -- time


@pytest.mark.parametrize("tcp", [False, True], ids=["unix", "TCP"])
@pytest.mark.parametrize("asked", [0, 1])
def test_a_client_that_says_nothing_for_long_is_let_go(tmp_path: Path, *, tcp: bool, asked: int) -> None:
    async def scenario(site: Site) -> None:
        talk = await site.connect()
        for _ in range(asked):
            await talk.ask(GET)
        await until(lambda: site.server.connections == 1)
        said, seconds = await leaping(talk.ended())
        assert said == b""
        assert 74 <= seconds < 90  # the wait began a moment before

    serve(None if tcp else tmp_path, scenario)


def test_a_connection_can_be_kept_for_a_minute(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        talk = await site.connect()
        clock = asyncio.get_running_loop()
        assert isinstance(clock, Clock)
        for _ in range(5):
            assert (await talk.ask(GET)).status == 200
            await leaping(asyncio.sleep(60))

    serve(tmp_path, scenario)


@pytest.mark.parametrize("begun", [GET[:10], POST + b"Content-Length: 10\r\n\r\n123", GET + GET[:10]])
def test_a_request_that_is_not_complete_in_time_is_given_up(tmp_path: Path, begun: bytes) -> None:
    async def scenario(site: Site) -> None:
        talk = await site.connect()
        await talk.send(begun)
        if begun.startswith(GET):
            await talk.answer()
        answer, seconds = await leaping(talk.answer())
        assert (answer.status, answer.headers["connection"]) == (408, "close")
        assert 9 <= seconds < 20
        await leaping(talk.ended())

    serve(tmp_path, scenario)


@pytest.mark.parametrize("tcp", [False, True], ids=["unix", "TCP"])
def test_sending_byte_by_byte_does_not_give_more_time(tmp_path: Path, *, tcp: bool) -> None:
    async def drip(talk: Talk) -> int:
        answer = asyncio.ensure_future(talk.answer())
        await talk.send(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
        while not answer.done():
            await talk.send(b"y")
            await asyncio.sleep(1)
        return (await answer).status

    async def scenario(site: Site) -> None:
        talks = [await site.connect() for _ in range(50)]
        status, seconds = await leaping(asyncio.gather(*map(drip, talks)))
        assert set(status) == {408}
        assert seconds < 30
        assert (await site.ask(GET)).status == 200

    serve(None if tcp else tmp_path, scenario)


async def large(_request: Request) -> Response:
    return Response(200, content=b"x" * 20_000_000)


@pytest.mark.parametrize("tcp", [False, True], ids=["unix", "TCP"])
def test_a_client_that_does_not_read_its_answer_is_dropped(tmp_path: Path, *, tcp: bool) -> None:
    async def scenario(site: Site) -> None:
        talk = await site.connect()
        talk.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a transport of a socket can
        await talk.send(GET)
        await until(lambda: len(site.asked) == 1)
        _, seconds = await leaping(until(lambda: site.server.connections == 0))
        assert 10 <= seconds < 60
        assert site.errors == []

    serve(None if tcp else tmp_path, scenario, large)


def test_a_client_that_reads_little_by_little_is_dropped() -> None:
    async def sip(talk: Talk) -> None:
        while await talk.reader.readexactly(200_000):  # noqa: ASYNC110 - it reads slowly, and waits for nothing
            await asyncio.sleep(2)

    async def scenario(site: Site) -> None:
        talk = await site.connect()
        await talk.send(GET)
        sipping = asyncio.ensure_future(sip(talk))
        await until(lambda: len(site.asked) == 1)
        _, seconds = await leaping(until(lambda: site.server.connections == 0))
        assert 20 < seconds < 60  # an answer that is read to its end would take 200
        assert site.errors == []
        sipping.cancel()
        await asyncio.gather(sipping, return_exceptions=True)

    serve(None, scenario, large, limits=REMOTE._replace(pace=1_000_000))


def test_answers_that_are_not_read_do_not_fill_the_memory() -> None:
    async def begin(site: Site, source: str) -> tuple[Talk, int]:
        talk = await site.connect(source)
        talk.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a transport of a socket can
        await talk.send(GET)
        talk.writer.transport.resume_reading()  # type: ignore[attr-defined]  # a transport of a socket can
        head = await talk.head()
        talk.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a transport of a socket can
        return talk, head.status

    async def scenario(site: Site) -> None:
        first, status = await begin(site, "127.0.0.1")
        assert status == 200
        assert (await begin(site, "127.0.0.1"))[1] == 503  # more than one address may have
        assert (await begin(site, "127.0.0.2"))[1] == 200
        assert (await begin(site, "127.0.0.3"))[1] == 503  # more than there is
        first.reset()
        await until(lambda: site.server.connections == 1)
        assert (await begin(site, "127.0.0.3"))[1] == 200

    serve(None, scenario, large, limits=REMOTE._replace(held=50_000_000, held_each=30_000_000))


# -- numbers


@pytest.mark.parametrize("tcp", [False, True], ids=["unix", "TCP"])
def test_a_hundred_clients_at_once_are_all_served(tmp_path: Path, *, tcp: bool) -> None:
    async def scenario(site: Site) -> None:
        talks = [await site.connect() for _ in range(100)]
        answers = await asyncio.gather(*(talk.ask(GET) for talk in talks))
        assert {answer.status for answer in answers} == {200}

    serve(None if tcp else tmp_path, scenario)


class Busy:
    """A handler that answers when it is told to."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    async def handle(self, request: Request) -> Response:
        if request.path == "/v1/node":
            await self.go_on.wait()
        return Response(200)

    async def keep(self, site: Site, count: int, source: str = "127.0.0.1") -> list[Talk]:
        """Return connections with a request that is not answered yet."""
        before, talks = len(site.asked), [await site.connect(source) for _ in range(count)]
        for talk in talks:
            await talk.send(GET)
        await until(lambda: len(site.asked) == before + count)
        return talks


@pytest.mark.parametrize("tcp", [False, True], ids=["unix", "TCP"])
def test_more_clients_than_allowed_are_turned_away(tmp_path: Path, *, tcp: bool) -> None:
    busy = Busy()

    async def scenario(site: Site) -> None:
        talks = await busy.keep(site, 5)
        late = await site.connect()
        refused = await late.ask(GET)
        assert (refused.status, refused.headers["retry-after"]) == (503, "5")
        assert await late.ended() == b""
        busy.go_on.set()
        assert {(await talk.answer()).status for talk in talks} == {200}
        assert (await site.ask(GET)).status == 200

    serve(None if tcp else tmp_path, scenario, busy.handle, limits=HTTPLimits(connections=5))


def test_a_flood_of_clients_is_cut_off_without_a_word(tmp_path: Path) -> None:
    busy = Busy()

    async def ask(site: Site) -> bytes:
        talk = await site.connect()
        await talk.send(GET)
        return await talk.ended()

    async def scenario(site: Site) -> None:
        (first,) = await busy.keep(site, 1)
        said = await asyncio.gather(*[ask(site) for _ in range(200)])
        assert {answer[:12] for answer in said} <= {b"", b"HTTP/1.1 503"}
        assert site.server.connections <= 65
        busy.go_on.set()
        assert (await first.answer()).status == 200

    serve(tmp_path, scenario, busy.handle, limits=HTTPLimits(connections=1))


def test_one_address_cannot_have_all_connections() -> None:
    busy = Busy()

    async def scenario(site: Site) -> None:
        talks = await busy.keep(site, 3)
        many = [await site.connect() for _ in range(200)]  # most of them are turned away
        refused = await site.ask(GET)
        assert (refused.status, refused.headers["retry-after"]) == (503, "5")
        assert b"at most 3 of them from one address" in refused.body
        assert (await site.ask(OTHER, "127.0.0.2")).status == 200
        for talk in (*talks, *many):
            talk.reset()
        busy.go_on.set()
        await until(lambda: site.server.connections <= 2)
        assert (await site.ask(GET)).status == 200

    serve(None, scenario, busy.handle, limits=HTTPLimits(connections=6, connections_each=3))


def open_to_all(place: Path) -> None:
    for path in (place, *place.iterdir()):
        path.chmod(0o777)


@needs_root
def test_a_user_of_a_unix_socket_cannot_keep_the_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    busy, member = Busy(), 65534
    monkeypatch.setattr(http_site, "ME", Users(frozenset({0, member})))

    async def scenario(site: Site) -> None:
        open_to_all(place)
        os.seteuid(member)  # the kernel names the user who has connected
        try:
            await busy.keep(site, 3)
            refused = await site.ask(GET)
        finally:
            os.seteuid(0)
        assert refused.status == 503
        assert b"at most 3 of them from one address or user" in refused.body
        assert (await site.ask(OTHER)).status == 200
        busy.go_on.set()

    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        serve(place, scenario, busy.handle, limits=HTTPLimits(connections=6, connections_each=3))
    assert LOCAL.connections_each < LOCAL.connections
    assert LOCAL.streams_each < LOCAL.streams
    assert LOCAL.held_each < LOCAL.held


# -- who gives way


@pytest.mark.parametrize(
    "begun", [b"", GET[:10], POST + b"Content-Length: 10\r\n\r\n123"], ids=["nothing", "half a head", "half a body"]
)
def test_clients_that_send_no_whole_request_do_not_keep_others_of_their_address_out(begun: bytes) -> None:
    async def scenario(site: Site) -> None:
        slow = [await site.connect() for _ in range(REMOTE.connections_each + 6)]
        for talk in slow:
            await talk.send(begun)
        for _ in range(10):
            assert (await site.ask(GET)).status == 200
        assert site.server.connections <= REMOTE.connections_each
        assert await slow[0].ended() == b""

    serve(None, scenario, limits=REMOTE, gate=WRITABLE)


@pytest.mark.parametrize("tcp", [False, True], ids=["unix", "TCP"])
def test_the_client_that_has_asked_nothing_for_longest_gives_way(tmp_path: Path, *, tcp: bool) -> None:
    async def scenario(site: Site) -> None:
        first, second, third = [await site.connect() for _ in range(3)]
        for talk in (second, third, first):
            assert (await talk.ask(GET)).status == 200
        late = await site.connect()
        assert (await late.ask(GET)).status == 200
        assert await second.ended() == b""
        for talk in (first, third, late):
            assert (await talk.ask(GET)).status == 200

    serve(None if tcp else tmp_path, scenario, limits=HTTPLimits(connections=3))


def test_of_several_addresses_the_one_that_wants_more_gives_way_itself() -> None:
    async def scenario(site: Site) -> None:
        older, mine, other = [await site.connect(f"127.0.0.{number}") for number in (1, 2, 3)]
        for talk in (older, mine, other):
            assert (await talk.ask(GET)).status == 200
        assert (await site.ask(GET, "127.0.0.2")).status == 200
        assert await mine.ended() == b""
        assert (await older.ask(GET)).status == 200
        assert (await site.ask(GET, "127.0.0.4")).status == 200  # this one has none to give up
        assert await other.ended() == b""

    serve(None, scenario, limits=HTTPLimits(connections=3))


def test_an_address_with_all_it_may_have_gets_no_place_of_another() -> None:
    busy = Busy()

    async def scenario(site: Site) -> None:
        idle = await site.connect("127.0.0.2")
        assert (await idle.ask(OTHER)).status == 200
        await busy.keep(site, 2)
        assert (await site.ask(OTHER)).status == 503
        assert (await idle.ask(OTHER)).status == 200

    serve(None, scenario, busy.handle, limits=HTTPLimits(connections=3, connections_each=2))


def test_a_client_that_lingers_after_its_last_answer_gives_way(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        talk = await site.connect()
        assert (await talk.ask(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))).status == 200
        assert (await site.ask(GET)).status == 200

    serve(tmp_path, scenario, limits=HTTPLimits(connections=1))


def test_of_clients_that_ask_as_soon_as_they_connect_none_goes_without_an_answer() -> None:
    busy = Busy()

    async def scenario(site: Site) -> None:
        sockets = connect_at_once(site, 30)
        for one in sockets:
            one.sendall(GET)
        talks = [Talk(*await asyncio.open_connection(sock=one)) for one in sockets]
        refused = await asyncio.gather(*(talk.answer() for talk in talks[5:]))
        assert {answer.status for answer in refused} == {503}
        busy.go_on.set()
        assert {(await talk.answer()).status for talk in talks[:5]} == {200}
        for talk in talks:
            await talk.leave()

    serve(None, scenario, busy.handle, limits=HTTPLimits(connections=5))


def test_a_client_is_served_that_asks_among_many_that_connect_at_once_and_ask_nothing() -> None:
    async def scenario(site: Site) -> None:
        sockets = connect_at_once(site, 30)
        sockets[-1].sendall(GET)
        talks = [Talk(*await asyncio.open_connection(sock=one)) for one in sockets]
        assert (await talks[-1].answer()).status == 200
        for talk in talks:
            await talk.leave()

    serve(None, scenario, limits=HTTPLimits(connections=5))


def connect_at_once(site: Site, count: int) -> list[socket.socket]:
    """Return connections that the server sees all at the same time, since it does not run until this returns."""
    return [socket.create_connection(("127.0.0.1", site.port)) for _ in range(count)]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 5))), st.integers(1, 12), st.integers(1, 12))
def test_clients_never_have_more_than_there_is_and_the_first_gets_any_amount(
    steps: list[tuple[str, int]], most: int, each: int
) -> None:
    taken: Counter[str] = Counter()
    for client, count in steps:
        within = taken.total() + count <= most and taken[client] + count <= each
        if fits(taken, client, count, most, each):
            assert within or not taken[client]
            assert taken.total() + count <= most or not taken
            taken[client] += count
        else:
            assert not within
    assert all(fits(Counter(), client, most + each, most, each) for client in "abc")


def test_few_have_a_turn_at_once_and_no_client_has_two() -> None:
    async def scenario() -> None:
        turns, having, ended = Turns(2), list[str](), list[str]()

        async def ask(client: str) -> None:
            async with turns.turn(client):
                having.append(client)
                assert len(having) <= 2
                assert len(set(having)) == len(having)
                for _ in range(3):
                    await asyncio.sleep(0)
                having.remove(client)
                ended.append(client)

        await asyncio.gather(*map(ask, "aaaaaaaabc"))
        assert sorted(ended) == sorted("aaaaaaaabc")
        assert {"b", "c"} <= set(ended[:5])  # they do not wait for all that the first has asked

    asyncio.run(scenario())


def test_a_turn_that_is_given_up_is_the_next_ones() -> None:
    async def scenario() -> None:
        turns = Turns(1)
        async with turns.turn("a"):
            waiting = [asyncio.create_task(turns.turn(client).__aenter__()) for client in "ab"]
            await asyncio.sleep(0)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        for client in "ab":
            async with asyncio.timeout(10), turns.turn(client):
                pass

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("::1", "::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("unknown", "unknown"),
        ("", ""),
    ],
)
def test_addresses_of_one_network_of_ipv6_are_one_client(address: str, client: str) -> None:
    assert client_of(address) == client


def test_an_address_that_asks_too_often_has_to_wait() -> None:
    async def scenario(site: Site) -> None:
        talk = await site.connect()
        assert [(await talk.ask(GET)).status for _ in range(3)] == [200] * 3
        refused = await talk.ask(GET)
        assert (refused.status, refused.headers["retry-after"]) == (429, "10")
        await leaping(asyncio.sleep(10))
        assert (await site.ask(GET)).status == 200

    serve(None, scenario, limits=HTTPLimits(rate=Rate(0.1, 3)))


def test_a_unix_socket_has_no_rate(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        talk = await site.connect()
        assert [(await talk.ask(GET)).status for _ in range(5)] == [200] * 5

    serve(tmp_path, scenario, limits=HTTPLimits(rate=Rate(0.1, 1)))


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 10)), max_size=60), st.integers(1, 5), st.floats(0.1, 10))
def test_no_address_gets_more_than_its_rate(steps: list[tuple[int, float]], burst: int, per_second: float) -> None:
    buckets, now = Buckets(Rate(per_second, burst)), 0.0
    taken: dict[int, int] = {}
    for address, passed in steps:
        now += passed
        wait = buckets.take(str(address), now)
        assert 0 <= wait <= 1 / per_second + 1e-6
        taken[address] = taken.get(address, 0) + (wait == 0)
        assert taken[address] <= burst + now * per_second + 1e-6


def test_addresses_are_not_remembered_without_end() -> None:
    buckets = Buckets(Rate(1, 1))
    tracemalloc.start()
    try:
        for number in range(5000):
            buckets.take(str(number), 0.0)
        before = tracemalloc.get_traced_memory()[0]
        for number in range(5000, 20_000):
            buckets.take(str(number), 0.0)
        assert tracemalloc.get_traced_memory()[0] - before < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("tcp", [False, True], ids=["unix", "TCP"])
def test_memory_does_not_grow_with_requests(tmp_path: Path, *, tcp: bool) -> None:
    async def some(site: Site, count: int) -> int:
        talk = await site.connect()
        for _ in range(count):
            await talk.ask(GET)
        await talk.leave()
        for _ in range(count // 10):
            await site.ask(b"hello\r\n\r\n")
        site.forget()
        await until(lambda: site.server.connections == 0)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    async def scenario(site: Site) -> None:
        before = await some(site, 100)
        assert await some(site, 500) - before < 200_000

    tracemalloc.start()
    try:
        serve(None if tcp else tmp_path, scenario)
    finally:
        tracemalloc.stop()


# -- anything


WORDS = [
    *(b"GET", b"HEAD", b"POST", b"CONNECT", b" / ", b" /%41?a=b ", b" * ", b" HTTP/1.1", b" HTTP/1.0", b"\r\n", b"\n"),
    *(b"Host: localhost\r\n", b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"3\r\nabc\r\n0\r\n\r\n"),
    *(
        b"Expect: 100-continue\r\n",
        b"Upgrade: h2c\r\n",
        b"Connection: close\r\n",
        b"Connection: upgrade\r\n",
        b"\r\n\r\n",
    ),
    *(b"abc", b"\0", b"\xff", b": ", GET, GET[:-4]),
]


@settings(max_examples=10)
@given(st.lists(st.lists(st.sampled_from(WORDS) | st.binary(max_size=20), max_size=12).map(b"".join), max_size=30))
def test_no_bytes_break_the_server_nor_stay_in_it(talks: list[bytes]) -> None:
    async def say(site: Site, data: bytes) -> bytes:
        talk = await site.connect()
        await talk.send(data)
        talk.writer.write_eof()
        said = await talk.ended()
        await talk.leave()
        return said

    async def scenario(site: Site) -> None:
        for said in await asyncio.gather(*(say(site, data) for data in talks)):
            assert said[:9] in {b"", b"HTTP/1.1 "}
        await until(lambda: site.server.connections == 0)
        assert site.errors == []
        assert (await site.ask(GET)).status == 200

    serve(None, scenario)


class Noting(asyncio.SelectorEventLoop):
    """An event loop that notes for how long servers wait until they listen again."""

    def __init__(self) -> None:
        super().__init__()
        self.delays: list[float] = []

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if callback.__name__ == "_start_serving":
            self.delays.append(delay)
        return super().call_later(delay, callback, *args, context=context)


class FullListener(socket.socket):
    """A socket whose first client finds no file."""

    refused = 0

    def accept(self) -> tuple[socket.socket, object]:
        if not self.refused:
            self.refused += 1
            raise OSError(errno.EMFILE, "too many open files")
        return super().accept()


def test_a_client_for_whom_there_was_no_file_is_let_in_after_a_moment(tmp_path: Path) -> None:
    async def answer(_request: Request) -> Response:
        return Response(200, {})

    async def scenario() -> None:
        loop.set_exception_handler(lambda _loop, _context: None)
        listener = FullListener(socket.AF_UNIX)
        listener.bind(str(tmp_path / "s.sock"))
        server = HTTPServer(answer, http_site.ME)
        await server.start(listener)
        talk = Talk(*await asyncio.open_unix_connection(tmp_path / "s.sock"))
        assert (await talk.ask(GET)).status == 200
        assert listener.refused == 1
        assert max(loop.delays) <= 0.05
        talk.writer.close()
        await server.close()

    loop = Noting()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(scenario())
