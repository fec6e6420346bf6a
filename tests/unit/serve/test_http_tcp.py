"""The HTTP server over TCP: read-only, for this host under its own names, and for no other page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.serve.http.gate import LOOPBACK, HTTPGate
from pinfold.serve.http.messages import HTTPError, Peer, Request
from tests.unit.serve.http_site import GET, Site, serve

if TYPE_CHECKING:
    from pathlib import Path


def asking(*lines: str, method: str = "GET", target: str = "/") -> bytes:
    return "\r\n".join([f"{method} {target} HTTP/1.1", *lines, "", ""]).encode("latin-1")


def test_who_asks_over_tcp_is_an_address_and_no_user() -> None:
    async def scenario(site: Site) -> None:
        assert (await site.ask(GET)).status == 200
        assert site.asked[0].peer == Peer(-1, -1, -1, "127.0.0.1")

    serve(None, scenario)


@pytest.mark.parametrize("host", ["localhost", "LocalHost:9440", "127.0.0.1", "127.0.0.1:1", "[::1]:9440", "node-7:80"])
def test_the_names_of_this_host_are_served(host: str) -> None:
    async def scenario(site: Site) -> None:
        assert (await site.ask(asking(f"Host: {host}"))).status == 200

    serve(None, scenario, gate=HTTPGate(LOOPBACK | {"node-7"}))


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:9440", "localhost.evil.example", "localhost.", "10.0.0.7:9440", "[::2]"),
        *("localhost:x", "localhost:", "local host", "a@localhost", "localhost, evil.example", "127.1", "\xe4"),
    ],
)
def test_other_names_are_refused_even_if_they_point_here(host: str) -> None:
    async def scenario(site: Site) -> None:
        answer = await site.ask(asking(f"Host: {host}"))
        assert answer.status in {400, 421}
        assert site.asked == []

    serve(None, scenario)


def test_a_refused_name_is_told_what_would_let_it_in() -> None:
    async def scenario(site: Site) -> None:
        answer = await site.ask(asking("Host: node-8.example:9440"))
        assert isinstance(answer.data, dict)
        assert "known: 127.0.0.1, [::1], localhost; --allow-host adds one" in answer.data["message"]

    serve(None, scenario)


def test_the_name_in_the_target_counts_where_there_is_one() -> None:
    async def scenario(site: Site) -> None:
        refused = await site.ask(asking("Host: localhost", target="http://evil.example/"))
        assert refused.status == 421
        assert (await site.ask(asking("Host: evil.example", target="http://localhost:1/a"))).status == 200

    serve(None, scenario)


def test_a_request_without_a_host_is_refused_also_from_old_clients() -> None:
    async def scenario(site: Site) -> None:
        assert (await site.ask(b"GET / HTTP/1.0\r\n\r\n")).status == 400
        assert (await site.ask(b"GET / HTTP/1.1\r\nHost:\r\n\r\n")).status == 400

    serve(None, scenario)


def test_an_address_will_do_where_others_may_read() -> None:
    async def scenario(site: Site) -> None:
        for host in ("10.0.0.7:9440", "[fe80::1]:9440"):
            assert (await site.ask(asking(f"Host: {host}"))).status == 200
        for host in ("evil.example", "10.0.0.7.evil.example", "999.0.0.1", "[::g]"):
            assert (await site.ask(asking(f"Host: {host}"))).status == 421

    serve(None, scenario, gate=HTTPGate(addresses=True))


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:9440", 200),
        ("http://localhost", 403),
        ("http://localhost:1", 403),
        ("https://localhost:9440", 403),
        ("http://evil.example", 403),
        ("null", 403),
        ("", 403),
    ],
)
def test_pages_of_other_origins_may_not_ask(origin: str, status: int) -> None:
    async def scenario(site: Site) -> None:
        answer = await site.ask(asking("Host: localhost:9440", f"Origin: {origin}"))
        assert answer.status == status
        assert not any(name.startswith("access-control") for name in answer.headers)

    serve(None, scenario)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW", "get"])
def test_nothing_but_reading_is_allowed(method: str) -> None:
    async def scenario(site: Site) -> None:
        answer = await site.ask(asking("Host: localhost", method=method))
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
        assert site.asked == []

    serve(None, scenario)


def test_a_client_that_would_send_a_change_is_refused_before_it_sends_it() -> None:
    async def scenario(site: Site) -> None:
        answer = await site.ask(asking("Host: localhost", "Content-Length: 9", "Expect: 100-continue", method="POST"))
        assert answer.status == 405

    serve(None, scenario)


def test_heads_can_be_had_over_tcp() -> None:
    async def scenario(site: Site) -> None:
        talk = await site.connect()
        await talk.send(asking("Host: localhost", method="HEAD"))
        assert (await talk.head()).status == 200
        assert (await talk.ask(GET)).status == 200

    serve(None, scenario)


def test_a_gate_may_let_changes_in() -> None:
    async def scenario(site: Site) -> None:
        assert (await site.ask(asking("Host: localhost", method="DELETE"))).status == 200

    serve(None, scenario, gate=HTTPGate(read_only=False))


def test_the_gate_is_for_tcp_alone(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        assert (await site.ask(asking("Host: pinfold", "Origin: x", method="DELETE"))).status == 200

    serve(tmp_path, scenario)


@given(st.text(alphabet=st.characters(max_codepoint=255)))
def test_a_gate_knows_no_name_but_its_own(host: str) -> None:
    assert not HTTPGate(frozenset({"\0"})).knows(host)


# -- what a query says


def query(**fields: str) -> Request:
    return Request("GET", "/", fields, b"", Peer(-1, -1, -1))


def test_a_number_of_the_query_is_a_number() -> None:
    assert query(after="0042").number("after", 7) == 42
    assert query().number("after", 7) == 7


@pytest.mark.parametrize("text", ["", "-1", "+1", " 1", "1.0", "1e3", "1_0", "\u00b2", "\u0663", "x", "9" * 5000])
def test_what_is_no_number_is_refused_by_name(text: str) -> None:
    with pytest.raises(HTTPError, match="after: ") as refused:
        query(after=text).number("after", 0)
    assert refused.value.status == 400
    assert len(str(refused.value)) < 200
