"""A server on a socket, clients of it, and a clock that leaps: what the tests of the HTTP server stand on."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pinfold.serve.http.gate import Users
from pinfold.serve.http.limits import LOCAL, HTTPLimits
from pinfold.serve.http.messages import Request, Response
from pinfold.serve.http.server import HTTPServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from pathlib import Path

    from pinfold.serve.http.gate import HTTPGate

T = TypeVar("T")

GET = b"GET /v1/node HTTP/1.1\r\nHost: localhost\r\n\r\n"
ME = Users(frozenset({os.geteuid()}))
WITHIN = 20.0


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
    """One connection to a server; that the server has cut it off is no error (of a unix socket: not connected)."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        with suppress(OSError):
            await self.writer.drain()

    async def head(self) -> Answer:
        """Return the next answer without its body."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines if line)
        return Answer(int(first.split()[1]), {name.lower(): value for name, value in headers.items()}, b"")

    async def answer(self) -> Answer:
        """Return the next answer, which says its length."""
        head = await self.head()
        return head._replace(body=await self.reader.readexactly(int(head.headers.get("content-length", "0"))))

    async def ask(self, data: bytes) -> Answer:
        await self.send(data)
        return await self.answer()

    async def chunk(self) -> bytes:
        """Return the next piece of a stream; empty at its end."""
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        return (await self.reader.readexactly(size + 2))[:-2]

    async def ended(self) -> bytes:
        """Wait until the other side has closed, and return what it has said before."""
        said = b""
        with suppress(OSError):
            while piece := await self.reader.read(65536):
                said += piece
        return said

    async def leave(self) -> None:
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()

    def reset(self) -> None:
        """Go away as a client that crashed."""
        self.writer.transport.abort()


class Site:
    """A server, the requests it was asked, and connections to it."""

    def __init__(
        self, handle: Callable[[Request], Awaitable[Response]], limits: HTTPLimits, gate: HTTPGate | None
    ) -> None:
        self.asked: list[Request] = []
        self.errors: list[tuple[str, Exception]] = []
        self._handle = handle
        self.server = HTTPServer(
            self._note, ME, limits=limits, gate=gate, report=lambda what, error: self.errors.append((what, error))
        )
        self._address: str | tuple[str, int] = ""
        self._talks: list[Talk] = []

    async def _note(self, request: Request) -> Response:
        self.asked.append(request)
        return await self._handle(request)

    async def start(self, path: Path | None) -> None:
        listener = socket.socket(socket.AF_INET if path is None else socket.AF_UNIX)
        listener.bind(("127.0.0.1", 0) if path is None else str(path))
        self._address = listener.getsockname()
        await self.server.start(listener)

    @property
    def port(self) -> int:
        assert isinstance(self._address, tuple)
        return self._address[1]

    async def connect(self, source: str = "127.0.0.1") -> Talk:
        """Return a connection; over TCP it comes from any address of this host."""
        if isinstance(self._address, str):
            talk = Talk(*await asyncio.open_unix_connection(self._address))
        else:
            talk = Talk(*await asyncio.open_connection(*self._address, local_addr=(source, 0)))
        self._talks.append(talk)
        return talk

    async def ask(self, data: bytes, source: str = "127.0.0.1") -> Answer:
        """Return the answer to a request on a connection of its own."""
        return await (await self.connect(source)).ask(data)

    def forget(self) -> None:
        """Keep nothing of what has been."""
        for talk in self._talks:
            talk.reset()
        self._talks.clear()
        self.asked.clear()

    async def stop(self) -> None:
        """Close both ends of everything; nothing is left."""
        await self.server.close()
        for talk in self._talks:
            await talk.leave()
        assert self.server.connections == 0
        assert self.server.streams == 0
        await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    end = time.monotonic() + WITHIN
    while not condition():
        assert time.monotonic() < end, "it does not come"
        await asyncio.sleep(0.001)


async def leaping(awaited: Awaitable[T]) -> tuple[T, float]:
    """Return what is waited for and how many seconds that took, on a clock that leaps ahead all the while."""
    clock = asyncio.get_running_loop()
    assert isinstance(clock, Clock)
    begun, end = clock.time(), time.monotonic() + WITHIN
    task = asyncio.ensure_future(awaited)
    while not task.done():
        assert time.monotonic() < end, "it does not come"
        clock.ahead += 0.25
        await asyncio.sleep(0.0001)
    return await task, clock.time() - begun


async def echo(request: Request) -> Response:
    return Response(200, {"path": request.path, "query": dict(request.query), "size": len(request.body)})


def serve(
    place: Path | None,
    scenario: Callable[[Site], Coroutine[None, None, None]],
    handle: Callable[[Request], Awaitable[Response]] = echo,
    *,
    limits: HTTPLimits = LOCAL,
    gate: HTTPGate | None = None,
) -> None:
    """Play a scenario with a server on a unix socket in a directory, or on TCP; asyncio has nothing to complain of."""
    complaints: list[dict[str, object]] = []

    async def play() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        site = Site(handle, limits, gate)
        await site.start(None if place is None else place / "s")
        try:
            await asyncio.create_task(scenario(site))
        finally:
            await site.stop()

    with asyncio.Runner(loop_factory=Clock) as runner:
        runner.run(play())
    assert complaints == []
