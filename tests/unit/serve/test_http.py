"""The HTTP server: its answers, which users it serves, and how it reports errors."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING

import pytest

from pinfold.errors import PinfoldError
from pinfold.serve.http.gate import Users
from pinfold.serve.http.messages import HTTPError, Peer, Request, Response
from pinfold.serve.http.server import HTTPServer
from tests.unit.serve.http_site import GET, Site, Talk, echo, leaping, serve, until

if TYPE_CHECKING:
    from pathlib import Path


def test_a_request_is_answered_in_json(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        answer = await site.ask(GET)
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert answer.headers["date"].endswith(" GMT")
        assert answer.data == {"path": "/v1/node", "query": {}, "size": 0}

    serve(tmp_path, scenario)


def test_who_asks_is_known(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        await site.ask(GET)
        assert site.asked[0].peer == Peer(
            os.getpid(), os.geteuid(), os.getegid(), groups=frozenset({os.getegid(), *os.getgroups()})
        )

    serve(tmp_path, scenario)


def test_one_connection_serves_many_requests_also_if_they_come_at_once(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        talk = await site.connect()
        for _ in range(3):
            assert (await talk.ask(GET)).status == 200
        await talk.send(GET * 1000)
        assert [(await talk.answer()).status for _ in range(1000)] == [200] * 1000
        assert len(site.asked) == 1003

    serve(tmp_path, scenario)


def test_requests_that_come_at_once_are_answered_in_order_and_others_in_between(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        many, one = await site.connect(), await site.connect()
        await many.send(b"".join(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(300)))
        await one.ask(b"GET /one HTTP/1.1\r\nHost: x\r\n\r\n")
        for number in range(300):
            assert b'"/%d"' % number in (await many.answer()).body
        assert [request.path for request in site.asked][-1] != "/one"

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


def test_a_client_that_waits_to_be_let_go_on_is_told_to(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        talk = await site.connect()
        wait = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n"
        assert (await talk.ask(wait)).status == 100
        assert (await talk.ask(b"x")).status == 200
        assert (await talk.ask(wait.replace(b"h: 1", b"h: 99999999"))).status == 413

    serve(tmp_path, scenario)


@pytest.mark.parametrize(
    ("target", "query", "segments"),
    [
        ("/", {}, ()),
        ("/v1/node/?a=1&b=2", {"a": "1", "b": "2"}, ("v1", "node")),
        ("/?a=b=c&x&=", {"a": "b=c", "x": "", "": ""}, ()),
        ("/%C3%A4/a%2Fb/..?a=%20+%26", {"a": "  &"}, ("ä", "a/b", "..")),
        ("/a//b", {}, ("a", "", "b")),
        ("http://other/a", {}, ("a",)),
    ],
)
def test_path_and_query_are_decoded_after_they_are_split(
    tmp_path: Path, target: str, query: dict[str, str], segments: tuple[str, ...]
) -> None:
    async def scenario(site: Site) -> None:
        await site.ask(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert (site.asked[0].query, site.asked[0].segments) == (query, segments)

    serve(tmp_path, scenario)


@pytest.mark.parametrize("target", ["x", "*x", "/%", "/%4", "/%zz", "/%ff", "/?a=%ff", "/?" + "a&" * 101, "/\xb2"])
def test_a_target_that_cannot_be_decoded_is_refused(tmp_path: Path, target: str) -> None:
    async def scenario(site: Site) -> None:
        answer = await site.ask(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode("latin-1"))
        assert answer.status == 400
        assert site.asked == []

    serve(tmp_path, scenario)


def test_headers_have_names_in_lower_case_and_are_joined(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        await site.ask(b"GET / HTTP/1.1\r\nHOST: x\r\nLast-Event-ID: 7\r\nAccept: a\r\nAccept: b\r\n\r\n")
        assert site.asked[0].headers == {"host": "x", "last-event-id": "7", "accept": "a, b"}

    serve(tmp_path, scenario)


def test_the_head_of_an_answer_can_be_had_alone(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        talk = await site.connect()
        length = (await talk.ask(GET)).headers["content-length"]
        await talk.send(GET.replace(b"GET", b"HEAD"))
        head = await talk.head()
        assert (head.status, head.headers["content-length"]) == (200, length)
        assert (await talk.ask(GET)).status == 200
        assert [request.method for request in site.asked] == ["GET"] * 3

    serve(tmp_path, scenario)


@pytest.mark.parametrize(
    "request_", [GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), b"GET / HTTP/1.0\r\n\r\n"]
)
def test_a_connection_is_closed_when_the_client_asks_for_that(tmp_path: Path, request_: bytes) -> None:
    async def scenario(site: Site) -> None:
        talk = await site.connect()
        answer = await talk.ask(request_ + GET)
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await talk.ended() == b""
        assert len(site.asked) == 1

    serve(tmp_path, scenario)


def test_a_client_that_has_said_all_still_gets_its_answer(tmp_path: Path) -> None:
    content = b"x" * 3_000_000

    async def large(_request: Request) -> Response:
        return Response(200, content=content)

    async def scenario(site: Site) -> None:
        talk = await site.connect()
        await talk.send(GET)
        talk.writer.write_eof()
        assert (await talk.ended()).endswith(b"\r\n\r\n" + content)

    serve(tmp_path, scenario, large)


def test_an_answer_may_be_bytes_with_a_type_and_headers(tmp_path: Path) -> None:
    async def metrics(_request: Request) -> Response:
        return Response(200, content=b"up 1\n", kind="text/plain; version=0.0.4", headers=(("X-More", "a"),))

    async def scenario(site: Site) -> None:
        answer = await site.ask(GET)
        assert (answer.body, answer.headers["content-type"]) == (b"up 1\n", "text/plain; version=0.0.4")
        assert (answer.headers["x-more"], answer.headers["x-content-type-options"]) == ("a", "nosniff")

    serve(tmp_path, scenario, metrics)


def test_every_page_has_headers_that_keep_it_harmless(tmp_path: Path) -> None:
    policies = [(), (("Content-Security-Policy", "default-src 'self'"),)]

    async def page(_request: Request) -> Response:
        return Response(200, content=b"<p>", kind="text/html; charset=utf-8", headers=policies.pop(0))

    async def scenario(site: Site) -> None:
        talk = await site.connect()
        first, second = await talk.ask(GET), await talk.ask(GET)
        assert first.headers["content-security-policy"].startswith("default-src 'none'")
        assert second.headers["content-security-policy"] == "default-src 'self'"
        assert {"referrer-policy": "no-referrer", "cache-control": "no-store"}.items() <= second.headers.items()
        assert second.headers["x-frame-options"] == "DENY"

    serve(tmp_path, scenario, page)


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_without_a_body_has_none(tmp_path: Path, status: int) -> None:
    async def nothing(_request: Request) -> Response:
        return Response(status)

    async def scenario(site: Site) -> None:
        talk = await site.connect()
        assert (await talk.ask(GET)).headers.get("content-length") is None
        assert (await talk.ask(GET)).status == status

    serve(tmp_path, scenario, nothing)


def test_errors_on_purpose_have_a_status_a_reason_and_a_message(tmp_path: Path) -> None:
    errors = [HTTPError(405, "NotHere", "only read", (("Allow", "GET"),)), PinfoldError("cannot be")]

    async def fail(_request: Request) -> Response:
        raise errors.pop(0)

    async def scenario(site: Site) -> None:
        talk = await site.connect()
        answers = [await talk.ask(GET) for _ in range(2)]
        assert [answer.status for answer in answers] == [405, 400]
        assert [answer.data for answer in answers] == [
            {"reason": "NotHere", "message": "only read"},
            {"reason": "PinfoldError", "message": "cannot be"},
        ]
        assert answers[0].headers["allow"] == "GET"
        assert site.errors == []

    serve(tmp_path, scenario, fail)


def deep() -> list[object]:
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    return nested


WRONG_ANSWERS = {
    "no JSON": Response(200, {"no JSON"}),
    "no number": Response(200, float("nan")),
    "deep": Response(200, deep()),
    "no status": Response(42),
    "interim": Response(100),
    "header name": Response(200, headers=(("a b", "c"),)),
    "header value": Response(200, headers=(("a", "b\r\nSet-Cookie: c"),)),
    "header letters": Response(200, headers=(("a", "ä"),)),
    "kind": Response(200, content=b"", kind="a\nb"),
    "length": Response(200, headers=(("Content-Length", "5"),)),
}


@pytest.mark.parametrize("wrong", WRONG_ANSWERS)
def test_an_answer_that_cannot_be_sent_is_an_error_and_answered_as_one(tmp_path: Path, wrong: str) -> None:
    async def fail(_request: Request) -> Response:
        return WRONG_ANSWERS[wrong]

    async def scenario(site: Site) -> None:
        talk = await site.connect()
        answer = await talk.ask(GET)
        assert (answer.status, answer.headers["connection"]) == (500, "close")
        assert b"InternalError" in answer.body
        assert await talk.ended() == b""
        assert [what for what, _ in site.errors] == ["GET /v1/node"]

    serve(tmp_path, scenario, fail)


@pytest.mark.parametrize("error", [KeyError("main"), OSError("disk"), asyncio.CancelledError()], ids=repr)
def test_an_unexpected_error_is_answered_and_reported(tmp_path: Path, error: BaseException) -> None:
    async def fail(_request: Request) -> Response:
        raise error

    async def scenario(site: Site) -> None:
        answer = await site.ask(GET)
        assert answer.status == 500
        assert b"InternalError" in answer.body
        assert b"main" not in answer.body
        assert len(site.errors) == 1
        assert error in (site.errors[0][1], site.errors[0][1].__cause__)

    serve(tmp_path, scenario, fail)


def test_an_error_without_a_listener_goes_to_the_loop(tmp_path: Path) -> None:
    heard: list[dict[str, object]] = []

    async def fail(_request: Request) -> Response:
        raise KeyError("main")

    async def play() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
        server = HTTPServer(fail, Users(frozenset({os.geteuid()})))
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(tmp_path / "s"))
        await server.start(listener)
        talk = Talk(*await asyncio.open_unix_connection(tmp_path / "s"))
        assert (await talk.ask(GET)).status == 500
        await talk.leave()
        await server.close()

    asyncio.run(play())
    assert [context["message"] for context in heard] == ["no answer to GET /v1/node"]


def test_other_users_are_refused_before_they_are_heard(tmp_path: Path) -> None:
    async def scenario() -> None:
        server = HTTPServer(echo, Users(frozenset({os.geteuid() + 1})))
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(tmp_path / "s"))
        await server.start(listener)
        talk = Talk(*await asyncio.open_unix_connection(tmp_path / "s"))
        answer = await talk.ask(GET)
        assert answer.status == 403
        assert f"user {os.geteuid()}" in answer.body.decode()
        assert await talk.ended() == b""
        await talk.leave()
        await server.close()

    asyncio.run(scenario())


# -- the end


def test_when_it_closes_clients_that_say_nothing_are_let_go_at_once(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        talks = [await site.connect() for _ in range(5)]
        await talks[0].ask(GET)
        await until(lambda: site.server.connections == 5)
        await site.server.close()
        assert site.server.connections == 0
        assert [await talk.ended() for talk in talks] == [b""] * 5

    serve(tmp_path, scenario)


def test_when_it_closes_an_answer_on_its_way_is_finished(tmp_path: Path) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_request: Request) -> Response:
        begun.set()
        await go_on.wait()
        return Response(200, "done")

    async def scenario(site: Site) -> None:
        talk = await site.connect()
        await talk.send(GET)
        await begun.wait()
        closing = asyncio.create_task(site.server.close())
        await asyncio.sleep(0)
        go_on.set()
        answer = await talk.answer()
        assert (answer.data, answer.headers["connection"]) == ("done", "close")
        await talk.leave()
        await closing

    serve(tmp_path, scenario, slow)


def test_when_it_closes_an_answer_that_takes_long_is_given_up(tmp_path: Path) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def stuck(_request: Request) -> Response:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    async def scenario(site: Site) -> None:
        talk = await site.connect()
        await talk.send(GET)
        await begun.wait()
        _, seconds = await leaping(site.server.close())
        assert 1 <= seconds < 5
        assert ended.is_set()
        assert await talk.ended() == b""

    serve(tmp_path, scenario, stuck)


def test_no_client_is_served_after_it_has_closed(tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        await site.server.close()
        with pytest.raises(OSError, match=r"."):
            await site.connect()

    serve(tmp_path, scenario)


def test_a_loop_that_ends_around_it_ends_it_without_a_word(tmp_path: Path) -> None:
    complaints: list[dict[str, object]] = []

    async def stuck(_request: Request) -> Response:
        await asyncio.Event().wait()
        raise AssertionError

    async def play(clients: list[socket.socket]) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        server = HTTPServer(stuck, Users(frozenset({os.geteuid()})))
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(tmp_path / "s"))
        serving = await server.start(listener)
        for client in clients:
            client.connect(str(tmp_path / "s"))
        clients[1].sendall(GET[:10])
        clients[2].sendall(GET)
        await until(lambda: server.connections == 3)
        serving.close()

    clients = [socket.socket(socket.AF_UNIX) for _ in range(3)]
    asyncio.run(play(clients))
    for client in clients:
        client.close()
    assert complaints == []
