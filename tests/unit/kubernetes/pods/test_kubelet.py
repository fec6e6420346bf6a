"""Pods from the kubelet's list: over plain HTTP, with a token, and what any other answer is."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from pinfold.errors import PinfoldError
from pinfold.kubernetes.http import HTTPClient, Server
from pinfold.kubernetes.pods.kubelet import KubeletPods, ReadOnlyPort, accepts, root_listens
from tests.support.apiserver import APIServer
from tests.support.cluster import NODE, account, api_pod, certificate
from tests.unit.kubernetes.pods.test_apiserver import LEVEL, WEB, told

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@asynccontextmanager
async def answering(answer: bytes, *, hold: bool = False) -> AsyncIterator[Server]:
    """Answer every request with these bytes; *hold*: and keep the connection open."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
            if hold:
                await reader.read()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    tasks: list[asyncio.Task[None]] = []
    server = await asyncio.start_server(lambda *ends: tasks.append(asyncio.create_task(serve(*ends))), "127.0.0.1", 0)
    async with server:
        try:
            yield Server("127.0.0.1", server.sockets[0].getsockname()[1])
        finally:
            await asyncio.gather(*tasks)


def listed(*items: object) -> bytes:
    document = {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + json.dumps(document).encode()


def source(server: Server) -> KubeletPods:
    return KubeletPods("kubelet", lambda: server, lambda: True)


def test_the_read_only_port_tells_pods_and_items_that_are_no_pods_do_no_harm() -> None:
    async def run() -> None:
        async with answering(listed(7, {}, {"metadata": 7}, api_pod(WEB), api_pod(LEVEL))) as server:
            assert (await source(server).find([told(WEB)]))["s-web"].init == WEB.init

    asyncio.run(run())


def test_a_pod_that_cannot_be_read_is_an_error_only_when_it_is_asked_for() -> None:
    async def run() -> None:
        broken = {**api_pod(LEVEL), "spec": {"containers": 7}}
        async with answering(listed(api_pod(WEB), broken)) as server:
            assert await source(server).find([told(WEB)])
            with pytest.raises(PinfoldError, match=r"kubelet: spec\.containers: 7 where"):
                await source(server).find([told(LEVEL)])

    asyncio.run(run())


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"", "ended the connection"),
        (b"\xff\xfe\0", "127.0.0.1"),
        (b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 12\r\n\r\nUnauthorized", "HTTP status 401: Unauthorized"),
        (b"HTTP/1.1 403 Forbidden\r\n\r\nForbidden (user=x)\n", r"HTTP status 403: Forbidden \(user=x\)"),
        (b"HTTP/1.1 200 OK\r\n\r\n\xff", "not JSON"),
        (b"HTTP/1.1 200 OK\r\n\r\n{", "not JSON"),
        (b"HTTP/1.1 200 OK\r\n\r\n[1]", "not a JSON object"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}", "without sending complete message"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000, "127.0.0.1"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "127.0.0.1"),
    ],
    ids=range(10),
)
def test_any_other_answer_is_an_error_in_one_line(answer: bytes, problem: str) -> None:
    async def run() -> None:
        async with answering(answer) as server:
            with pytest.raises(PinfoldError, match=problem) as caught:
                await source(server).find([told(WEB)])
            assert len(str(caught.value).splitlines()) == 1

    asyncio.run(run())


def test_an_answer_that_never_ends_is_given_up() -> None:
    async def run() -> None:
        async with answering(b"HTTP/1.1 200 OK\r\n\r\n{", hold=True) as server:
            with pytest.raises(PinfoldError, match=r"no answer in 0\.05 s"):
                await HTTPClient(server, timeout=0.05).send("GET", "/pods")

    asyncio.run(run())


def test_a_stream_ends_after_silence_and_a_line_that_is_too_long() -> None:
    async def lines(answer: bytes, *, hold: bool) -> list[bytes]:
        async with (
            answering(b"HTTP/1.1 200 OK\r\n\r\n" + answer, hold=hold) as server,
            HTTPClient(server).lines("/", silence=0.05) as lines,
        ):
            return [line async for line in lines]

    assert asyncio.run(lines(b"a\nb\n", hold=False)) == [b"a", b"b"]
    with pytest.raises(PinfoldError, match=r"no answer in 0\.05 s"):
        asyncio.run(lines(b"a\n", hold=True))
    with pytest.raises(PinfoldError, match=r"a line of more than 4,194,304 bytes"):
        asyncio.run(lines(b"x" * (5 << 20), hold=False))


def test_the_kubelets_own_certificate_is_trusted_for_the_name_of_the_node(tmp_path: Path, cert: Path) -> None:
    own = certificate(tmp_path, "kubelet", host=NODE)
    (tmp_path / "pki").mkdir()
    own.rename(tmp_path / "pki/kubelet.crt")

    async def run() -> None:
        async with APIServer().serving(tmp_path / "pki/kubelet.crt") as server:
            service = account(tmp_path / "account", server, trusted=cert)
            trusted = service.kubelet(tmp_path)._replace(port=server.port)
            with pytest.raises(PinfoldError, match="HTTP status 404"):  # the stand-in is no kubelet, but was asked
                await source(trusted).find([told(WEB)])
            assert [call.token for call in server.calls] == ["good"]
            foreign = service.kubelet(tmp_path / "nowhere")._replace(port=server.port)
            with pytest.raises(PinfoldError, match="certificate not trusted"):
                await source(foreign).find([told(WEB)])

    asyncio.run(run())


def test_only_a_port_on_which_root_listens_can_be_the_kubelets(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    row = "   0: 00000000:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 {uid:5d}        0 1\n"
    for port, state, uid, expected in ((10255, "0A", 0, True), (10255, "0A", 1000, False), (10255, "01", 0, False)):
        (tmp_path / "net/tcp").write_text("  sl  local_address\n" + row.format(port=port, state=state, uid=uid))
        assert root_listens(10255, tmp_path) is expected
        assert not root_listens(10250, tmp_path)


def test_a_thread_looks_for_the_read_only_port_and_no_request_waits_for_it() -> None:
    looks: list[bool] = []
    answers = [False, False, True]

    def listens(_port: int) -> bool:
        looks.append(threading.current_thread() is threading.main_thread())
        return answers.pop(0) if len(answers) > 1 else answers[0]

    async def run() -> None:
        port = ReadOnlyPort("127.0.0.1", listener.getsockname()[1], listens=listens, every=0.01)
        assert [port.is_there() for _ in range(100)] == [False] * 100
        assert looks == [True], "only the first look, before the daemon serves, is not a thread's"
        following = asyncio.create_task(port.follow(print))
        async with asyncio.timeout(60):
            while not port.is_there():  # noqa: ASYNC110 - nothing tells when
                await asyncio.sleep(0.01)
        following.cancel()
        answers[:] = [False]
        assert await port.find([told(WEB)]) == {}, "another program listens there by now"
        assert not port.is_there()
        assert not any(looks[1:])

    with socket.create_server(("127.0.0.1", 0)) as listener:
        asyncio.run(run())


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_where_no_program_accepts_a_connection_the_kernel_lists_none_after_the_start(address: str) -> None:
    asked: list[int] = []

    def listens(port: int) -> bool:
        asked.append(port)
        return True

    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as bound:
        bound.bind((address, 0))  # it does not listen
        number = bound.getsockname()[1]
        port = ReadOnlyPort(address, number, listens=listens)
        assert asked == [number]
        assert asyncio.run(port.find([told(WEB)])) == {}
        assert (asked, port.is_there()) == ([number], False)
        bound.listen()
        assert accepts(address, number)
