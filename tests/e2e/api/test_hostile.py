"""Clients that mean harm, or do some: too much, too slow, too many, no HTTP at all."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from pinfold.serve.http.limits import REMOTE
from tests.e2e.api.client import LIVE, Stream, is_about
from tests.e2e.daemon import PATIENCE, container, pod, wait_for

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable

    from tests.e2e.api.client import Web
    from tests.e2e.daemon import Daemon

HOSTILE: Final = 10 << 20
"""More bytes than any real request has."""
_GROWTH: Final = 8 << 20


def rss(daemon: Daemon) -> int:
    """Return how much memory a daemon has."""
    line = next(line for line in Path(f"/proc/{daemon.pid}/status").read_text().splitlines() if "VmRSS" in line)
    return int(line.split()[1]) << 10


def ask_whole(web: Web, pieces: Iterable[bytes]) -> bytes:
    """Send all of this, as far as it is taken, and return what comes back."""
    with web.connect() as talk:
        with suppress(ConnectionError):
            for piece in pieces:
                talk.sendall(piece)
        answer = b""
        with suppress(ConnectionError):
            while piece := talk.recv(65536):
                answer += piece
        return answer


def test_a_request_of_10_mb_is_refused_and_costs_no_memory(daemon: Daemon, web: Web) -> None:
    web.get("pools")
    before = rss(daemon)
    piece, count = b"x" * 65536, HOSTILE // 65536
    first = b"GET /api/v1/pools HTTP/1.1\r\nHost: localhost\r\n"
    cases = {
        b"413": [first, b"Content-Length: %d\r\n\r\n" % HOSTILE, *[piece] * count],
        b"400": [b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n", *[piece] * count],
        b"431": [first, b"X: ", *[piece] * count],
        b"414": [b"GET /", *[piece] * count],
        b"413 ": [
            first,
            b"Transfer-Encoding: chunked\r\n\r\n",
            *[b"10000\r\n" + piece + b"\r\n"] * count,
        ],
    }
    for status, pieces in cases.items():
        for _ in range(3):
            answer = ask_whole(web, pieces)
            assert answer.split(b" ")[1] == status.strip(), (status, answer[:300])
    assert web.ask("/healthz").status == 200
    assert rss(daemon) - before < _GROWTH
    assert daemon.apply(pod("web", container(cpus=1)))[0]["cpus"]


def connect(stack: ExitStack, web: Web, count: int) -> list[socket.socket]:
    """Return so many connections, from as few addresses as can have them; and none from the usual one."""
    each = REMOTE.connections_each
    return [stack.enter_context(web.of(f"127.0.1.{number // each}").connect()) for number in range(count)]


def test_one_address_cannot_keep_the_others_out(daemon: Daemon, web: Web) -> None:
    with ExitStack() as stack:
        for _ in range(2 * REMOTE.connections):  # most of them are not taken
            talk = stack.enter_context(web.of("127.0.1.1").connect())
            with suppress(ConnectionError):
                talk.sendall(b"GET / HTTP/1.1\r\nHost: lo")
        assert web.ask("/healthz").status == 200
        with Stream(web) as stream:
            daemon.apply(pod("web", container(cpus=1)))
            assert stream.until(is_about("assigned", "web"))
    wait_for(lambda: web.of("127.0.1.1").ask("/healthz").status == 200, "there is room again")


def test_clients_that_send_little_by_little_delay_no_other_client(daemon: Daemon, web: Web) -> None:
    with ExitStack() as stack:
        slow = connect(stack, web, REMOTE.connections - 8)
        for talk in slow:
            talk.sendall(b"GET / HTTP/1.1\r\nHost: lo")
        with Stream(web) as stream:
            asked = time.monotonic()
            daemon.apply(pod("web", container(cpus=1)))
            assert stream.until(is_about("assigned", "web"))
            assert web.ask("/metrics").status == 200
            assert time.monotonic() - asked < LIVE
        for talk in slow:
            talk.sendall(b"c")
        assert web.ask("/healthz").status == 200


def test_seventy_slow_clients_delay_no_other_client_of_their_address(web: Web) -> None:
    with ExitStack() as stack:
        for _ in range(70):
            talk = stack.enter_context(web.connect())
            talk.sendall(b"GET / HTTP/1.1\r\nHost: lo")
        for _ in range(10):
            assert web.ask("/healthz").status == 200


def test_clients_that_ask_nothing_give_way_to_those_that_do_and_the_control_socket_goes_on(
    daemon: Daemon, web: Web
) -> None:
    with ExitStack() as stack:
        idle = connect(stack, web, REMOTE.connections)
        idle[-1].sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle[-1].recv(65536).startswith(b"HTTP/1.1 200")
        assert web.ask("/healthz").status == 200
        assert idle[0].recv(65536) == b""
        assert daemon.apply(pod("web", container(cpus=1)))[0]["cpus"]


@pytest.mark.slow
def test_a_request_that_does_not_come_to_an_end_is_cut_off(web: Web) -> None:
    with web.connect() as talk:
        begun = time.monotonic()
        talk.settimeout(0.5)
        answer = b""
        while not answer:
            assert time.monotonic() - begun < REMOTE.request + PATIENCE
            talk.sendall(b"G" if time.monotonic() == begun else b"E")
            with suppress(TimeoutError):
                answer = talk.recv(65536)
        assert b" 408 " in answer
        assert time.monotonic() - begun < REMOTE.request + LIVE


@pytest.mark.parametrize(
    "garbage",
    [b"\0" * 100, b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", b"GET\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"],
    ids=["zeros", "TLS", "half", "HTTP-2"],
)
def test_what_is_no_http_gets_an_answer_and_an_end(seen: Web, garbage: bytes) -> None:
    assert ask_whole(seen, [garbage, b"\r\n\r\n"]).startswith((b"HTTP/1.1 400", b"HTTP/1.1 505"))
    assert seen.ask("/healthz").status == 200
