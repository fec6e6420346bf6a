"""A small HTTP/1.1 server on asyncio: h11 speaks the protocol, this serves a handler, with limits on everything.

On a unix socket it serves users that it knows; over TCP whoever passes its gate.
"""

from __future__ import annotations

import asyncio
import math
import socket
from functools import partial
from typing import TYPE_CHECKING, Final

from pinfold.errors import PinfoldError
from pinfold.serve.http.answers import Answer, prepare
from pinfold.serve.http.connection import HTTPConnection
from pinfold.serve.http.gate import HTTPGate
from pinfold.serve.http.limits import LOCAL, Buckets, Limits, Shares, client_of
from pinfold.serve.http.messages import HTTPError, Peer, Request, Response

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_TURNED_AWAY: Final = 64
_AGAIN: Final = (("retry-after", "5"),)


def _tell_loop(what: str, error: Exception) -> None:
    asyncio.get_running_loop().call_exception_handler({"message": f"no answer to {what}", "exception": error})


class HTTPServer:
    """Serves one handler on any number of listening sockets."""

    def __init__(
        self,
        handle: Callable[[Request], Awaitable[Response]],
        uids: frozenset[int] = frozenset(),
        *,
        limits: Limits = LOCAL,
        gate: HTTPGate | None = None,
        report: Callable[[str, Exception], None] = _tell_loop,
    ) -> None:
        """*uids* may use it on a unix socket, *gate* says who over TCP; *report* hears of errors nobody expected."""
        self._handle = handle
        self._uids = uids
        self._limits = limits
        self._gate = HTTPGate() if gate is None else gate
        self._report = report
        self._buckets = None if limits.rate is None else Buckets(limits.rate)
        self._listening: list[asyncio.Server] = []
        self._open: dict[asyncio.Task[None], HTTPConnection] = {}
        self._closing = False
        self._served = Shares(limits.connections, limits.connections_each)
        self._refused = Shares(_TURNED_AWAY, _TURNED_AWAY // 2)
        self._watching = Shares(limits.streams, limits.streams_each)
        self._held = Shares(limits.held, limits.held_each)

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._open)

    @property
    def streams(self) -> int:
        """How many clients are watching."""
        return self._watching.total

    async def start(self, listener: socket.socket) -> asyncio.Server:
        """Begin to serve on a listening socket."""
        # A plain function gets the streams: a task that asyncio makes for a coroutine cannot be ended without a
        # traceback before Python 3.12, nor waited for.
        start = asyncio.start_unix_server if listener.family == socket.AF_UNIX else asyncio.start_server
        server = await start(self._connected, sock=listener, limit=self._limits.head)
        self._listening.append(server)
        return server

    async def close(self) -> None:
        """Serve no more: whoever waits or watches is let go at once, an answer on its way gets a moment."""
        self._closing = True
        for server in self._listening:
            server.close()
        for connection in self._open.values():
            connection.finish()
        tasks = list(self._open)
        if tasks:
            _, slow = await asyncio.wait(tasks, timeout=self._limits.farewell)
            for task in slow:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # the sockets of ended connections are closed in the next round of the loop

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = HTTPConnection(reader, writer, self._limits)
        client = client_of(connection.address)
        shares = next((found for found in (self._served, self._refused) if found.take(client)), None)
        if self._closing or shares is None:
            connection.abort()
            return
        task = asyncio.create_task(self._serve(connection, full=shares is self._refused))
        self._open[task] = connection
        task.add_done_callback(partial(self._ended, shares, client))

    def _ended(self, shares: Shares, client: str, task: asyncio.Task[None]) -> None:
        del self._open[task]
        shares.give(client)

    async def _serve(self, connection: HTTPConnection, *, full: bool) -> None:
        try:
            peer = connection.peer()
            refusal = self._refusal(connection, peer, full=full)
            if refusal is None:
                while await self._exchange(connection, peer):
                    pass
            else:
                await _refuse(connection, refusal)
            await connection.end()
        except OSError:
            pass  # the client has gone, or does not read
        except Exception as error:  # noqa: BLE001 - one connection must not end the daemon; it is reported
            self._report("a client", error)
        finally:
            connection.abort()

    def _refusal(self, connection: HTTPConnection, peer: Peer, *, full: bool) -> HTTPError | None:
        if full:
            return _too_many("Connections", "connected", self._limits.connections, self._limits.connections_each)
        if connection.local and peer.uid not in self._uids:
            return HTTPError(403, "Forbidden", f"user {peer.uid} may not use this socket")
        return None

    async def _exchange(self, connection: HTTPConnection, peer: Peer) -> bool:
        try:
            request = await connection.receive(peer, self._check)
        except HTTPError as error:
            await _refuse(connection, error)
            return False
        if request is None:
            return False
        answer = await self._answer(connection, request)
        client = client_of(peer.address)
        if answer.response.stream is None:
            return await self._send_whole(connection, client, answer)
        return await self._send_stream(connection, client, request, answer)

    def _check(self, method: str, request: Request) -> None:
        if not request.peer.address:
            return
        self._gate.check(method, request)
        wait = 0.0 if self._buckets is None else self._buckets.take(client_of(request.peer.address), _now())
        if wait:
            again = (("retry-after", str(math.ceil(wait))),)
            raise HTTPError(429, "TooManyRequests", f"too many requests from {request.peer.address}", again)

    async def _answer(self, connection: HTTPConnection, request: Request) -> Answer:
        try:
            return await self._prepared(request)
        except HTTPError as error:
            return prepare(Response.failure(error))
        except PinfoldError as error:
            return prepare(Response.failure(HTTPError(400, type(error).__name__, str(error))))
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer and the log the error
            connection.closing = True
            return prepare(Response.failure(self._unexpected(request, error)))

    async def _prepared(self, request: Request) -> Answer:
        try:
            response = await self._handle(request)
        except asyncio.CancelledError as error:
            # Something that the handler waited for was cancelled; unless it was we ourselves, that is its error.
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
            raise RuntimeError("what the handler waited for was cancelled") from error
        try:
            return prepare(response)
        except Exception:
            await response.close()
            raise

    def _unexpected(self, request: Request, error: Exception) -> HTTPError:
        self._report(f"{request.method} {request.path}", error)
        return HTTPError(500, "InternalError", f"an error nobody expected ({type(error).__name__}); it is in the log")

    async def _send_whole(self, connection: HTTPConnection, client: str, answer: Answer) -> bool:
        size = len(answer.body)
        if size <= self._limits.buffered:
            return await connection.send(answer)
        if not self._held.take(client, size):
            text = "too much is on its way to clients that have not read it yet"
            await _refuse(connection, HTTPError(503, "TooMuch", text, _AGAIN))
            return False
        try:
            return await connection.send(answer)
        finally:
            self._held.give(client, size)

    async def _send_stream(self, connection: HTTPConnection, client: str, request: Request, answer: Answer) -> bool:
        if not self._watching.take(client):
            await answer.response.close()
            await _refuse(connection, _too_many("Streams", "watching", self._limits.streams, self._limits.streams_each))
            return False
        try:
            return await connection.send(answer)
        except OSError:
            raise
        except Exception as error:
            # The answer has begun: all that is left is to cut it off.
            self._report(f"{request.method} {request.path}", error)
            raise ConnectionAbortedError("the stream broke") from error
        finally:
            self._watching.give(client)


def _too_many(what: str, doing: str, most: int, each: int) -> HTTPError:
    of_one = f", and at most {each} of them from one address" if each < most else ""
    text = f"too many clients are {doing}; at most {most} are served at once{of_one}"
    return HTTPError(503, f"TooMany{what}", text, _AGAIN)


async def _refuse(connection: HTTPConnection, error: HTTPError) -> None:
    connection.closing = True
    await connection.send(prepare(Response.failure(error)))


def _now() -> float:
    return asyncio.get_running_loop().time()
