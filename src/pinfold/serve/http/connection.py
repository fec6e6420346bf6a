"""One connection: bytes in, Requests out; Answers in, bytes out; every wait has an end and every buffer a size.

It does not know what is asked for, nor who may ask.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import h11

from pinfold.serve.http.messages import HTTPError, Peer, Request, ServerSentEvent, parse_target

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from pinfold.serve.http.answers import Answer
    from pinfold.serve.http.limits import Limits

_PIECE: Final = 64 << 10
_HEARTBEAT: Final = b":\n\n"
_MESSAGE: Final = 200
_VERSIONS: Final = {b"1.0", b"1.1"}
_UCRED: Final = struct.Struct("3i")


class HTTPConnection:
    """A client that is being served."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limits: Limits) -> None:
        self._reader = reader
        self._writer = writer
        self._limits = limits
        self._wire = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head)
        self._headed = False
        """Whether the head of the request has come."""
        self._head_only = False
        """Whether that is also all that the answer is to have."""
        self._waiting: asyncio.Task[object] | None = None
        self._sending: asyncio.Task[None] | None = None
        self._hurried = False
        self.closing = False
        """Whether the next answer is the last."""
        self._prepare()

    def _prepare(self) -> None:
        self._writer.transport.set_write_buffer_limits(high=self._limits.buffered)
        sock: socket.socket = self._writer.get_extra_info("socket")
        if sock.family != socket.AF_UNIX:
            # asyncio does this only for sockets that were made with the number of TCP; others wait 40 ms per answer.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # The kernel would keep megabytes for a client that does not read, and for minutes if it is gone.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * self._limits.buffered)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(self._limits.unread * 3000))

    @property
    def local(self) -> bool:
        """Whether it came over a unix socket."""
        sock: socket.socket = self._writer.get_extra_info("socket")
        return sock.family == socket.AF_UNIX

    @property
    def address(self) -> str:
        """The address at the other end; a unix socket has none."""
        if self.local:
            return ""
        address = self._writer.get_extra_info("peername")
        return address[0] if address else "unknown"

    def peer(self) -> Peer:
        """Return who is at the other end."""
        if not self.local:
            return Peer(-1, -1, -1, self.address)
        sock: socket.socket = self._writer.get_extra_info("socket")
        return Peer(*_UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)))

    # -- requests

    async def receive(self, peer: Peer, check: Callable[[str, Request], None]) -> Request | None:
        """Return the next request, None if there is none; *check* sees its method and head, and may raise."""
        if not await self._begun():
            return None
        try:
            async with asyncio.timeout(self._limits.request):
                return await self._request(peer, check)
        except TimeoutError as error:
            text = f"a request must be complete within {self._limits.request:g} seconds"
            raise HTTPError(408, "RequestTimeout", text) from error
        except h11.RemoteProtocolError as error:
            raise self._garbage(error) from error

    async def _begun(self) -> bool:
        """Whether there is a first byte; a client that has nothing to say for long is let go."""
        if self._wire.trailing_data[0]:
            await asyncio.sleep(0)  # others get their turn before the next of many requests that came at once
            return True
        self._waiting = asyncio.current_task()
        try:
            async with asyncio.timeout(self._limits.idle):
                data = await self._reader.read(_PIECE)
        except TimeoutError:
            return False
        finally:
            self._waiting = None
        self._wire.receive_data(data)
        return bool(data)

    async def _request(self, peer: Peer, check: Callable[[str, Request], None]) -> Request | None:
        head = await self._event()
        if not isinstance(head, h11.Request):
            return None
        self._headed = True
        self._head_only = head.method == b"HEAD"
        self._check_size(head)
        request = _parse(head, peer)
        check(head.method.decode(), request)
        if self._wire.they_are_waiting_for_100_continue:
            self._write(h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue"))
        return request._replace(body=await self._body())

    def _check_size(self, head: h11.Request) -> None:
        if len(head.target) > self._limits.target:
            raise self._too_long()
        if sum(len(name) + len(value) + 4 for name, value in head.headers) > self._limits.head:
            raise self._too_large_head()
        lengths = [value for name, value in head.headers if name == b"content-length"]
        if lengths and int(lengths[0]) > self._limits.body:
            raise self._too_large()

    async def _body(self) -> bytes:
        body = bytearray()
        while isinstance(event := await self._event(), h11.Data):
            body += event.data
            if len(body) > self._limits.body:
                raise self._too_large()
        return bytes(body)

    async def _event(self) -> h11.Event | None:
        while (event := self._wire.next_event()) is h11.NEED_DATA:
            self._wire.receive_data(await self._reader.read(_PIECE))
        return event if isinstance(event, h11.Event) else None

    def _garbage(self, error: h11.RemoteProtocolError) -> HTTPError:
        status = error.error_status_hint
        if status != 431:  # noqa: PLR2004 - what h11 says of whatever does not end
            return HTTPError(status, "BadRequest", f"this is no HTTP request: {error}"[:_MESSAGE])
        if self._headed:
            return HTTPError(400, "BadRequest", "the body of the request has a part without end")
        return self._too_large_head() if b"\n" in self._wire.trailing_data[0] else self._too_long()

    def _too_long(self) -> HTTPError:
        return HTTPError(414, "TooLong", f"a target has at most {self._limits.target:,} bytes")

    def _too_large_head(self) -> HTTPError:
        return HTTPError(431, "TooLarge", f"the head of a request has at most {self._limits.head:,} bytes")

    def _too_large(self) -> HTTPError:
        return HTTPError(413, "TooLarge", f"a request has at most {self._limits.body:,} bytes")

    # -- answers

    async def send(self, answer: Answer) -> bool:
        """Send an answer; return whether another request may follow."""
        stream = answer.response.stream
        head = (answer.as_last() if self.closing or stream is not None else answer).head
        try:
            if stream is None or self._head_only:
                await self._send_whole(head, b"" if self._head_only else answer.body)
            else:
                self._write(head)
                await self._stream(stream, alive=_HEARTBEAT if answer.response.events is not None else b"")
                self._write(h11.EndOfMessage())
        finally:
            await answer.response.close()
        await self._flush()
        return self._next()

    def _next(self) -> bool:
        if self.closing or self._wire.our_state is not h11.DONE or self._wire.their_state is not h11.DONE:
            return False
        self._wire.start_next_cycle()
        self._headed = self._head_only = False
        return True

    async def _send_whole(self, head: h11.Response, body: bytes) -> None:
        """Send an answer: in one piece if it is small, else no faster than it is read, but for so long only."""
        try:
            async with asyncio.timeout(self._limits.unread + len(body) / self._limits.pace):
                await self._send_pieces(head, body)
        except TimeoutError as error:
            raise ConnectionAbortedError("the client reads too slowly") from error

    async def _send_pieces(self, head: h11.Response, body: bytes) -> None:
        events: list[h11.Event] = [head]
        for start in range(0, len(body), _PIECE):
            self._write(*events, h11.Data(data=body[start : start + _PIECE]))
            events.clear()
            await self._flush()
        self._write(*events, h11.EndOfMessage())

    async def _stream(self, stream: AsyncIterator[ServerSentEvent | bytes], alive: bytes) -> None:
        """Send what comes until it ends, the client goes away or the server closes."""
        self._sending = sending = asyncio.create_task(self._pump(stream))
        leaving = asyncio.create_task(self._watch(alive))
        try:
            done, _ = await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sending.cancel()
            leaving.cancel()
            ends = await asyncio.gather(sending, leaving, return_exceptions=True)
        if leaving in done:
            raise ConnectionResetError("the client has gone away")
        if isinstance(ends[0], Exception):
            raise ends[0]
        if sending.cancelled() and not self.closing:
            raise RuntimeError("what the stream waited for was cancelled")

    async def _pump(self, stream: AsyncIterator[ServerSentEvent | bytes]) -> None:
        async for item in stream:
            data = item.encode() if isinstance(item, ServerSentEvent) else item
            if data:
                self._write(h11.Data(data=data))
            await self._flush()
            await asyncio.sleep(0)  # a stream that always has more keeps nobody else waiting

    async def _watch(self, alive: bytes) -> None:
        """Return when the client has gone; what it says is dropped, and it is told now and then that we are here."""
        there = True
        while there:
            try:
                async with asyncio.timeout(self._limits.heartbeat if alive else None):
                    there = bool(await self._reader.read(_PIECE))
            except TimeoutError:
                self._write(h11.Data(data=alive))
                await self._flush()

    # -- bytes

    def _write(self, *events: h11.Event) -> None:
        self._writer.write(b"".join(self._wire.send(event) or b"" for event in events))

    async def _flush(self) -> None:
        """Wait until the client has read enough; raise if it does not."""
        transport = self._writer.transport
        if transport.is_closing():
            raise ConnectionResetError("the client has gone away")
        if transport.get_write_buffer_size() <= self._limits.buffered:
            return
        try:
            async with asyncio.timeout(self._limits.unread):
                await self._writer.drain()
        except TimeoutError as error:
            raise ConnectionAbortedError("the client does not read") from error

    # -- the end

    def finish(self) -> None:
        """Let nothing follow: end a stream, and the wait for a request; an answer on its way goes on."""
        self.closing = self._hurried = True
        for task in (self._waiting, self._sending):
            if task is not None:
                task.cancel()

    async def end(self) -> None:
        """Close, but not before the client could read the last answer, even if it is still sending."""
        with suppress(OSError):
            self._writer.write_eof()
            self._writer.transport.set_write_buffer_limits(high=0)
            async with asyncio.timeout(self._limits.unread):
                await self._writer.drain()
            if not self._hurried:
                await self._drop()
        self.abort()

    async def _drop(self) -> None:
        """Read until the client has closed: what is unread when we close would take the answer away from it."""
        self._waiting = asyncio.current_task()
        left = self._limits.dropped
        async with asyncio.timeout(self._limits.linger):
            while left > 0 and (data := await self._reader.read(_PIECE)):
                left -= len(data)

    def abort(self) -> None:
        """Close at once."""
        self._writer.transport.abort()


def _parse(head: h11.Request, peer: Peer) -> Request:
    method = head.method.decode()
    if head.http_version not in _VERSIONS:
        raise HTTPError(505, "NotSupported", f"HTTP {head.http_version.decode()} is not spoken here; HTTP 1.1 is")
    if method == "CONNECT":
        raise HTTPError(501, "NotImplemented", "this is no proxy")
    target = parse_target(head.target.decode("ascii"))
    headers: dict[str, str] = {}
    for raw_name, raw_value in head.headers:
        name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    if target.host is not None:
        headers["host"] = target.host
    asked = "GET" if method == "HEAD" else method
    return Request(asked, target.path, target.query, b"", peer, headers, target.segments)
