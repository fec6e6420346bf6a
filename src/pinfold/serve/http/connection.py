"""One connection: bytes in, Requests out; Answers in, bytes out. Every wait has an end and every buffer a size.

It knows neither the content nor the access rules.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import h11

from pinfold.serve.http.limits import client_of
from pinfold.serve.http.messages import HTTPError, Peer, Request, parse_target

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from pinfold.serve.http.answers import Answer
    from pinfold.serve.http.limits import HTTPLimits

_PIECE: Final = 64 << 10
_HEARTBEAT: Final = b":\n\n"
_MESSAGE: Final = 200
_UCRED: Final = struct.Struct("3i")
_GID: Final = struct.Struct("I")
_MOST_GROUPS: Final = 256  # what Python can read; a process with more counts as one without
_SO_PEERGROUPS: Final = 59
"""Of Linux; Python does not name it."""


class HTTPConnection:
    """A client that is being served."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limits: HTTPLimits) -> None:
        self.peer = _peer(writer)
        self.client = client_of(self.peer.address) or f"user {self.peer.uid}"
        self.closing = False
        """Whether the next answer is the last."""
        self.waiting = False
        """Whether the connection waits for the client to send something."""
        self.since = 0.0
        """When the wait for the latest request began."""
        self.sending: Answer | None = None
        self._reader = reader
        self._writer = writer
        self._limits = limits
        self._wire = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head)
        self._head: h11.Request | None = None
        """The head of the request that is being received or answered."""
        self._streaming: asyncio.Timeout | None = None
        writer.transport.set_write_buffer_limits(high=limits.buffered)

    @property
    def busy(self) -> bool:
        """Whether it has a request to answer."""
        return self._head is not None and not self.waiting

    def __str__(self) -> str:
        head = self._head
        return "a client" if head is None else f"{head.method.decode()} {head.target.decode()}"[:_MESSAGE]

    # -- requests

    async def receive(self, check: Callable[[Request], None]) -> Request | None:
        """Return the next request, None if there is none; *check* gets it before its body comes, and may raise."""
        self.since = _now()
        try:
            async with asyncio.timeout(self._limits.idle) as deadline:
                # Other clients have their turn between requests that came at once; and what came with the connection
                # is there after that, so that a client that asks at once never gives way.
                await asyncio.sleep(0)
                if self.closing:
                    return None
                if not self._wire.trailing_data[0]:
                    await self._read_more()
                deadline.reschedule(_now() + self._limits.request)
                return await self._request(check)
        except TimeoutError as error:
            if self._head is None and not self._wire.trailing_data[0]:
                return None
            text = f"a request must be complete within {self._limits.request:g} seconds"
            raise HTTPError(408, "RequestTimeout", text) from error
        except h11.RemoteProtocolError as error:
            raise self._broken(error) from error

    async def _request(self, check: Callable[[Request], None]) -> Request | None:
        head = await self._event()
        if not isinstance(head, h11.Request):
            return None
        self._head = head
        request = _parse(head, self.peer, self._limits)
        check(request)
        if self._wire.they_are_waiting_for_100_continue:
            await self._send(h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue"))
        body = bytearray()
        while isinstance(event := await self._event(), h11.Data):
            body += event.data
            if len(body) > self._limits.body:
                raise _too_large(413, "the body of a request", self._limits.body)
        return request._replace(body=bytes(body))

    async def _event(self) -> object:
        while (event := self._wire.next_event()) is h11.NEED_DATA:
            await self._read_more()
        return event

    async def _read_more(self) -> None:
        self._wire.receive_data(await self._read())

    async def _read(self) -> bytes:
        self.waiting = True
        try:
            return await self._reader.read(_PIECE)
        finally:
            self.waiting = False

    def _broken(self, error: h11.RemoteProtocolError) -> HTTPError:
        if self._head is not None:
            return HTTPError(400, "BadRequest", f"the body is broken: {error}"[:_MESSAGE])
        status = error.error_status_hint
        if status != 431:  # noqa: PLR2004 - what h11 says of anything that is too long and has no end
            return HTTPError(status, "BadRequest", f"not an HTTP request: {error}"[:_MESSAGE])
        line_ended = b"\n" in self._wire.trailing_data[0]
        return _too_large(431 if line_ended else 414, "the head of a request", self._limits.head)

    # -- answers

    async def send(self, answer: Answer) -> bool:
        """Send an answer; return whether another request may follow."""
        self.sending, stream = answer, answer.response.stream
        head_only = self._head is not None and self._head.method == b"HEAD"
        try:
            if stream is None or head_only:
                await self._send_whole(answer.head, b"" if head_only else answer.body)
            else:
                await self._send(answer.head)
                await self._stream(stream, _HEARTBEAT if answer.response.lines is None else b"")
            await self._send(h11.EndOfMessage())
        finally:
            self.sending = None
        if self.closing or not self._wire.our_state is self._wire.their_state is h11.DONE:
            return False
        self._wire.start_next_cycle()
        self._head = None
        return True

    async def _send_whole(self, head: h11.Response, body: bytes) -> None:
        """Send an answer: in one piece if it is small, else no faster than the client reads it."""
        if len(body) <= _PIECE:  # `_send` waits for a client, but not for ever
            await self._send(head, h11.Data(data=body))
            return
        async with asyncio.timeout(self._limits.unread + len(body) / self._limits.pace):
            await self._send(head, h11.Data(data=body[:_PIECE]))
            for start in range(_PIECE, len(body), _PIECE):
                await self._send(h11.Data(data=body[start : start + _PIECE]))

    async def _stream(self, stream: AsyncIterator[bytes], alive: bytes) -> None:
        """Send what comes until the stream ends or the server closes; raise if the client leaves before."""
        try:
            async with asyncio.timeout(None) as self._streaming:
                watching = asyncio.create_task(self._watch(alive))
                async for data in stream:
                    await self._send(h11.Data(data=data))
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
                    async with asyncio.timeout(self._limits.heartbeat):
                        there = bool(await self._reader.read(_PIECE))
                except TimeoutError:
                    await self._send(h11.Data(data=alive))
        self._stop_stream()

    def _stop_stream(self) -> None:
        if self._streaming is not None and not self._streaming.expired():
            self._streaming.reschedule(0)

    async def _send(self, *events: h11.Event) -> None:
        """Send, and wait until the client has read enough of it; raise OSError if it does not read."""
        transport = self._writer.transport
        transport.write(b"".join(self._wire.send(event) or b"" for event in events))
        if transport.is_closing():
            raise ConnectionResetError("the client has gone")
        if transport.get_write_buffer_size() > self._limits.buffered:
            async with asyncio.timeout(self._limits.unread):
                await self._writer.drain()

    # -- the end

    def finish(self) -> None:
        """Let nothing follow: stop waiting for the client and end a stream; an answer on its way goes on."""
        self.closing = True
        self._stop_stream()
        if self.waiting:
            self.abort()

    async def end(self, linger: float) -> None:
        """Close; but first let the client read the last answer: it is lost if the client still sends when we close."""
        left = self._limits.dropped
        with suppress(OSError):
            self._writer.write_eof()
            if self._writer.transport.get_write_buffer_size():
                self._writer.transport.set_write_buffer_limits(high=0)
                async with asyncio.timeout(self._limits.unread):
                    await self._writer.drain()
            async with asyncio.timeout(linger):
                while left > 0 and (data := await self._read()):
                    left -= len(data)
        self.abort()

    def abort(self) -> None:
        """Close at once."""
        self._writer.transport.abort()


def _peer(writer: asyncio.StreamWriter) -> Peer:
    sock: socket.socket = writer.get_extra_info("socket")
    if sock.family == socket.AF_UNIX:
        pid, uid, gid = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
        return Peer(pid, uid, gid, groups=_groups(sock) | {gid})
    address = writer.get_extra_info("peername")
    return Peer(-1, -1, -1, address[0] if address else "unknown")


def _groups(sock: socket.socket) -> frozenset[int]:
    """Return the further groups of the process that has connected, as it had them then."""
    with suppress(OSError):  # a kernel before 4.13 does not say
        found = sock.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _MOST_GROUPS * _GID.size)
        return frozenset(gid for (gid,) in _GID.iter_unpack(found))
    return frozenset()


def _parse(head: h11.Request, peer: Peer, limits: HTTPLimits) -> Request:
    """Return a request without its body; raise if it cannot be served."""
    if head.http_version not in {b"1.0", b"1.1"}:
        raise HTTPError(505, "NotSupported", f"HTTP {head.http_version.decode()} is not supported; HTTP 1.1 is")
    if head.method == b"CONNECT":
        raise HTTPError(501, "NotImplemented", "CONNECT is not supported; this is not a proxy")
    if len(head.target) + sum(len(name) + len(value) + 4 for name, value in head.headers) > limits.head:
        raise _too_large(431, "the head of a request", limits.head)
    headers: dict[str, str] = {}
    for raw_name, raw_value in head.headers:
        name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    if int(headers.get("content-length", "0")) > limits.body:
        raise _too_large(413, "the body of a request", limits.body)
    target = head.target.decode("ascii")
    if target[:7].lower() == "http://":
        headers["host"], _, rest = target[7:].partition("/")
        target = f"/{rest}"
    method = "GET" if head.method == b"HEAD" else head.method.decode()
    path, segments, query = parse_target(target)
    return Request(method, path, query, b"", peer, headers, segments)


def _too_large(status: int, what: str, most: int) -> HTTPError:
    return HTTPError(status, "TooLarge", f"{what} has at most {most:,} bytes")


def _now() -> float:
    return asyncio.get_running_loop().time()
