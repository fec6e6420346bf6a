"""An HTTP/1.1 server for one handler: on a unix socket for known users, over TCP for requests that pass its gate."""

from __future__ import annotations

import asyncio
import asyncio.constants
import math
import socket
from collections import Counter
from typing import TYPE_CHECKING, Final

from pinfold.errors import PinfoldError
from pinfold.serve.http.answers import Answer, prepare
from pinfold.serve.http.carrier import Carrier
from pinfold.serve.http.gate import HTTPGate, Users
from pinfold.serve.http.limits import LOCAL, Buckets, HTTPLimits, client_of, fits
from pinfold.serve.http.messages import HTTPError, Peer, Request, Response

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pinfold.serve.http.connection import HTTPConnection

_EXTRA: Final = 64
"""How many clients at once get the answer that there are too many."""
_AGAIN: Final = (("retry-after", "5"),)
_ACCEPT_AGAIN: Final = 0.05
"""Seconds until the next attempt to let a client in for whom there was no file."""


def _tell_loop(what: str, error: Exception) -> None:
    asyncio.get_running_loop().call_exception_handler({"message": f"no answer to {what}", "exception": error})


class HTTPServer:
    """Serves one handler on any number of listening sockets."""

    def __init__(
        self,
        handle: Callable[[Request], Awaitable[Response]],
        users: Users | None = None,
        *,
        limits: HTTPLimits = LOCAL,
        gate: HTTPGate | None = None,
        report: Callable[[str, Exception], None] = _tell_loop,
    ) -> None:
        """*users* may use it on a unix socket, *gate* checks requests over TCP, *report* gets unexpected errors."""
        self._handle = handle
        self._users = users or Users()
        self._limits = limits
        self._gate = gate or HTTPGate()
        self._report = report
        self._buckets = Buckets(limits.rate)
        self._listening: list[asyncio.Server] = []
        self._open: dict[HTTPConnection, asyncio.Task[None]] = {}
        self._closing = False

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._open)

    @property
    def streams(self) -> int:
        """How many streams are being sent."""
        return sum(self._streams().values())

    async def start(self, listener: socket.socket) -> asyncio.Server:
        """Begin to serve on a listening socket."""
        # asyncio would wait for a second, in which no one hears whether the daemon is healthy.
        vars(asyncio.constants)["ACCEPT_RETRY_DELAY"] = _ACCEPT_AGAIN
        local = listener.family == socket.AF_UNIX
        if not local:
            _prepare(listener, self._limits)
        loop = asyncio.get_running_loop()
        start = loop.create_unix_server if local else loop.create_server
        server = await start(lambda: Carrier(self._connected), sock=listener)
        self._listening.append(server)
        return server

    async def close(self) -> None:
        """Stop: clients that wait or watch are let go at once, an answer on its way gets a moment."""
        self._closing = True
        for server in self._listening:
            server.close()
        for connection in self._open:
            connection.finish()
        if tasks := list(self._open.values()):
            _, slow = await asyncio.wait(tasks, timeout=self._limits.farewell)
            for task in slow:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self._open.clear()  # a task that was cancelled before it began has not removed itself
        await asyncio.sleep(0)  # asyncio closes the sockets of ended connections in its next round

    def _connected(self, carrier: Carrier) -> None:
        try:
            from pinfold.serve.http.connection import HTTPConnection  # noqa: PLC0415 - some daemons have no client
        except OSError:  # no more files can be opened
            carrier.transport.abort()
            raise
        connection = HTTPConnection(carrier, self._limits)
        self._make_room(connection.client)
        if self._closing or len(self._open) >= self._limits.connections + _EXTRA:
            connection.abort()
            return
        self._open[connection] = asyncio.create_task(self._serve(connection))

    def _make_room(self, client: str) -> None:
        """Close connections that wait for a request, if a client has no room for one more: the longest waiting first.

        If the client has all that one may have, only its own give way; else they are the first to do so.
        """
        if self._has_room():
            return
        mine = [one for one in self._open if one.client == client]
        alone = len(mine) >= self._limits.connections_each
        crowd, most = (mine, self._limits.connections_each) if alone else (list(self._open), self._limits.connections)
        waiting = sorted((one for one in crowd if one.waiting), key=lambda one: (one.client != client, one.since))
        for connection in waiting[: max(0, len(crowd) + 1 - most)]:
            connection.abort()
            del self._open[connection]

    def _has_room(self) -> bool:
        """Return whether there is room for one more client, even if all are the same one: then none is counted."""
        return len(self._open) < min(self._limits.connections, self._limits.connections_each)

    async def _serve(self, connection: HTTPConnection) -> None:
        try:
            while await self._exchange(connection):
                pass
            await connection.end(0 if self._closing else self._limits.linger)
        except OSError:
            pass  # the client has gone, or does not read
        except Exception as error:  # noqa: BLE001 - one connection must not end the daemon; the error is reported
            self._report(str(connection), error)
        finally:
            connection.abort()
            self._open.pop(connection, None)

    async def _exchange(self, connection: HTTPConnection) -> bool:
        """Answer one request; return whether another may follow."""
        try:
            self._check_user(connection.peer)
            request = await connection.receive(self._check)
            if request is None:
                return False
            self._check_busy(connection)
            answer = await self._answer(connection, request)
            self._check_share(connection.client, answer)
        except HTTPError as error:
            connection.closing = True
            answer = prepare(Response.failure(error))
        return await connection.send(answer)

    def _check_user(self, peer: Peer) -> None:
        if not peer.address and not self._users.include(peer):
            raise HTTPError(403, "Forbidden", f"user {peer.uid} may not use this socket; ask root or join its group")

    def _check_busy(self, connection: HTTPConnection) -> None:
        if self._has_room():
            return
        limits, others = self._limits, (one for one in self._open if one.busy and one is not connection)
        taken = Counter(one.client for one in others)
        if not fits(taken, connection.client, 1, limits.connections, limits.connections_each):
            raise _too_many("Connections", "asking", limits.connections, limits.connections_each)

    def _check(self, request: Request) -> None:
        if not request.peer.address:
            return
        self._gate.check(request)
        wait = self._buckets.take(client_of(request.peer.address), asyncio.get_running_loop().time())
        if wait:
            again = (("retry-after", str(math.ceil(wait))),)
            raise HTTPError(429, "TooManyRequests", f"too many requests from {request.peer.address}", again)

    async def _answer(self, connection: HTTPConnection, request: Request) -> Answer:
        try:
            return prepare(await self._respond(request))
        except Exception as error:
            self._report(str(connection), error)
            text = f"unexpected error ({type(error).__name__}); see the daemon's log"
            raise HTTPError(500, "InternalError", text) from error

    async def _respond(self, request: Request) -> Response:
        try:
            return await self._handle(request)
        except PinfoldError as error:
            return Response.failure(error)
        except asyncio.CancelledError as error:
            # If this task was not cancelled, then something that the handler waited for was: an error of the handler.
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
            raise RuntimeError("what the handler waited for was cancelled") from error

    def _check_share(self, client: str, answer: Answer) -> None:
        """Raise if there is no room for one more stream, or for a large answer until the client has read it."""
        limits, size = self._limits, len(answer.body)
        if answer.response.stream is not None:
            if not fits(self._streams(), client, 1, limits.streams, limits.streams_each):
                raise _too_many("Streams", "watching", limits.streams, limits.streams_each)
        elif size > limits.buffered and not fits(self._held(), client, size, limits.held, limits.held_each):
            text = "clients have too much unread data; try again later"
            raise HTTPError(503, "TooMuch", text, _AGAIN)

    def _streams(self) -> Counter[str]:
        return Counter(one.client for one in self._open if one.sending and one.sending.response.stream is not None)

    def _held(self) -> Counter[str]:
        held: Counter[str] = Counter()
        for one in self._open:
            held[one.client] += len(one.sending.body) if one.sending else 0
        return held


def _prepare(listener: socket.socket, limits: HTTPLimits) -> None:
    """Set what accepted connections inherit."""
    # asyncio does this only for sockets that name TCP as their protocol; others would wait 40 ms per answer.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # The kernel would keep megabytes for a client that does not read, and for minutes if it is gone.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * limits.buffered)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(limits.unread * 3000))


def _too_many(what: str, doing: str, most: int, each: int) -> HTTPError:
    of_one = f", and at most {each} of them from one address or user" if each < most else ""
    text = f"too many clients are {doing}; at most {most} are served at once{of_one}"
    return HTTPError(503, f"TooMany{what}", text, _AGAIN)
