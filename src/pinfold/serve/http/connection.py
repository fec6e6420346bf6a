"""One connection: bytes in, Requests out; Answers in, bytes out. Every wait has an end and every buffer a size.

`incoming.py` reads the requests. Answers are framed here: we make them ourselves, and `answers.py` has checked them.
It knows neither the content nor the access rules.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pinfold.serve.http.incoming import Incoming
from pinfold.serve.http.limits import client_of
from pinfold.serve.http.messages import Peer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from pinfold.serve.http.answers import Answer
    from pinfold.serve.http.carrier import Carrier
    from pinfold.serve.http.limits import HTTPLimits
    from pinfold.serve.http.messages import Request

_PIECE: Final = 64 << 10
_HEARTBEAT: Final = b":\n\n"
_LONGEST: Final = 200
_CHUNKED: Final = b"transfer-encoding: chunked\r\n"
_LAST: Final = b"connection: close\r\n"
_UCRED: Final = struct.Struct("3i")
_GID: Final = struct.Struct("I")
_MOST_GROUPS: Final = 256  # what Python can read; a process with more counts as one without
_SO_PEERGROUPS: Final = 59
"""Of Linux; Python does not name it."""


class HTTPConnection:
    """A client that is being served."""

    def __init__(self, carrier: Carrier, limits: HTTPLimits) -> None:
        self.peer = _peer(carrier.transport)
        self.client = client_of(self.peer.address) or f"user {self.peer.uid}"
        self.closing = False
        """Whether the next answer is the last."""
        self.sending: Answer | None = None
        self._carrier = carrier
        self._limits = limits
        self._incoming = Incoming(carrier, self.peer, limits)
        self._streaming: asyncio.Timeout | None = None
        self._chunked = False
        carrier.transport.set_write_buffer_limits(high=limits.buffered)

    @property
    def waiting(self) -> bool:
        """Whether the connection waits for the client to send something."""
        return self._incoming.waiting

    @property
    def since(self) -> float:
        """When the wait for the latest request began."""
        return self._incoming.since

    @property
    def busy(self) -> bool:
        """Whether it has a request to answer."""
        return self._incoming.head is not None and not self.waiting

    def __str__(self) -> str:
        head = self._incoming.head
        return "a client" if head is None else f"{head.method.decode()} {head.target.decode()}"[:_LONGEST]

    async def receive(self, check: Callable[[Request], None]) -> Request | None:
        """Return the next request, None if there is none; *check* gets it before its body comes, and may raise."""
        await self._incoming.give_way()
        request = None if self.closing else await self._incoming.receive(check)
        self.closing = self.closing or self._incoming.last
        return request

    # -- answers

    async def send(self, answer: Answer) -> bool:
        """Send an answer; return whether another request may follow."""
        self.sending, stream, asked = answer, answer.response.stream, self._incoming.head
        last = self.closing or stream is not None
        self._chunked = stream is not None and asked is not None and asked.http_version != b"1.0"
        head = answer.head + (_CHUNKED if self._chunked else b"") + (_LAST if last else b"") + b"\r\n"
        try:
            if asked is not None and asked.method == b"HEAD":
                await self._send(head)
            elif stream is None:
                await self._send_whole(head, answer.body)
            else:
                await self._send(head)
                await self._stream(stream, _HEARTBEAT if answer.response.lines is None else b"")
                await self._send(b"0\r\n\r\n" if self._chunked else b"")
        finally:
            self.sending = None
        if last or self.closing:
            return False
        self._incoming.head = None
        return True

    async def _send_whole(self, head: bytes, body: bytes) -> None:
        """Send an answer: in one piece if it is small, else no faster than the client reads it."""
        if len(body) <= _PIECE:  # `_send` waits for a client, but not for ever
            await self._send(head + body)
            return
        async with asyncio.timeout(self._limits.unread + len(body) / self._limits.pace):
            await self._send(head + body[:_PIECE])
            for start in range(_PIECE, len(body), _PIECE):
                await self._send(body[start : start + _PIECE])

    async def _stream(self, stream: AsyncIterator[bytes], alive: bytes) -> None:
        """Send what comes until the stream ends or the server closes; raise if the client leaves before."""
        try:
            async with asyncio.timeout(None) as self._streaming:
                watching = asyncio.create_task(self._watch(alive))
                async for data in stream:
                    await self._send_piece(data)
                    await asyncio.sleep(0)  # a stream that always has more lets other clients have their turn
        except TimeoutError:
            if not self.closing:
                raise
        finally:
            self._streaming = None
            watching.cancel()
            await asyncio.wait([watching])
            await stream.aclose()  # type: ignore[attr-defined]  # every stream is a generator

    async def _watch(self, alive: bytes) -> None:
        """Send *alive* now and then, drop what the client sends, and stop streaming when it closes the connection."""
        there = True
        with suppress(OSError):
            while there:
                try:
                    there = bool(await self._carrier.read(asyncio.get_running_loop().time() + self._limits.heartbeat))
                except TimeoutError:
                    await self._send_piece(alive)
        self._stop_stream()

    def _stop_stream(self) -> None:
        if self._streaming is not None and not self._streaming.expired():
            self._streaming.reschedule(0)

    async def _send_piece(self, data: bytes) -> None:
        """Send a piece of a stream; an empty chunk would end it."""
        await self._send(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked and data else data)

    async def _send(self, data: bytes) -> None:
        await self._carrier.write(data, self._limits.unread)

    # -- the end

    def finish(self) -> None:
        """Let nothing follow: stop waiting for the client and end a stream; an answer on its way goes on."""
        self.closing = True
        self._stop_stream()
        if self.waiting:
            self.abort()

    async def end(self, linger: float) -> None:
        """Close; but first let the client read the last answer: it is lost if the client still sends when we close."""
        transport, left = self._carrier.transport, self._limits.dropped
        with suppress(OSError):
            if not self._carrier.ended:
                transport.write_eof()
            if transport.get_write_buffer_size():
                await self._carrier.flush(self._limits.unread)
            until = asyncio.get_running_loop().time() + linger
            while left > 0 and (data := await self._incoming.read(until)):
                left -= len(data)
        self.abort()

    def abort(self) -> None:
        """Close at once."""
        self._carrier.transport.abort()


def _peer(transport: asyncio.Transport) -> Peer:
    sock: socket.socket = transport.get_extra_info("socket")
    if sock.family == socket.AF_UNIX:
        pid, uid, gid = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
        return Peer(pid, uid, gid, groups=_groups(sock) | {gid})
    address = transport.get_extra_info("peername")
    return Peer(-1, -1, -1, address[0] if address else "unknown")


def _groups(sock: socket.socket) -> frozenset[int]:
    """Return the further groups of the process that has connected, as it had them then."""
    with suppress(OSError):  # a kernel before 4.13 does not say
        found = sock.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _MOST_GROUPS * _GID.size)
        return frozenset(gid for (gid,) in _GID.iter_unpack(found))
    return frozenset()
