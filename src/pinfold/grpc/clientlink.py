"""One HTTP/2 connection and the gRPC calls on it: h2 knows the frames, this knows which call each is for.

A call's answer is taken in only as it is read, within limits; a call that goes wrong leaves the others alone.
"""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

from pinfold.errors import PinfoldError, RuntimeUnavailable
from pinfold.grpc.errors import CODES, CallError, Code, Lost, Unimplemented, one_line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

_WINDOW: Final = 1 << 20
_PREFIX: Final = struct.Struct(">?I")


class Call:
    """One call on a connection: what has come for it, and how it ended."""

    def __init__(self, connection: Connection, method: str, stream: int, request: bytes) -> None:
        self.method = short_name(method)
        self.stream = stream
        self.unsent = _PREFIX.pack(False, len(request)) + request  # noqa: FBT003 - not compressed
        self.error: PinfoldError | None = None
        self.ended = False
        self.status: Code | None = None
        self.text = ""
        self._connection = connection
        self._received = bytearray()
        self._changed = asyncio.Event()

    async def messages(self) -> AsyncIterator[bytes]:
        """Yield the messages that come, until the other end says that all is well, or raise what it says."""
        while True:
            self._changed.clear()
            while (message := self._next()) is not None:
                yield message
            if self.ended:
                break
            await self._changed.wait()
        if self.error is not None:
            raise self.error
        if self._received:
            raise CallError(self.method, Code.INTERNAL, "the answer ends in the middle of a message")

    def feed(self, data: bytes) -> None:
        """Take in what came for this call."""
        self._received += data
        self._changed.set()

    def end(self, error: PinfoldError | None = None) -> None:
        """Let the reader know that nothing more comes, and why."""
        if not self.ended:
            self.ended = True
            self.error = error
            self._changed.set()

    def _next(self) -> bytes | None:
        """Return a whole message if there is one, and make room for as much."""
        if len(self._received) < _PREFIX.size:
            return None
        compressed, length = _PREFIX.unpack_from(self._received)
        if compressed or length > self._connection.max_message:
            what = "compressed" if compressed else f"of {length:,} bytes; {self._connection.max_message:,} are allowed"
            self._received.clear()
            raise CallError(self.method, Code.RESOURCE_EXHAUSTED, f"the answer is {what}")
        whole = _PREFIX.size + length
        if len(self._received) < whole:
            self._connection.make_room(self, whole - len(self._received))
            return None
        message = bytes(self._received[_PREFIX.size : whole])
        del self._received[:whole]
        self._connection.make_room(self, _PREFIX.size)
        return message


class _Protocol(h2.connection.H2Connection):
    """HTTP/2 that remembers fewer of the calls that are over: else the memory grows for 65,536 of them."""

    MAX_CLOSED_STREAMS = 1024


class Connection(asyncio.Protocol):
    """An HTTP/2 connection: frames to calls and back."""

    def __init__(self, path: str, max_message: int) -> None:
        self.max_message = max_message
        self.usable = False
        self._path = path
        self._calls: dict[int, Call] = {}
        self._fewer = asyncio.Event()
        self._transport: asyncio.Transport | None = None
        self._unanswered = 0
        # Headers stay bytes: what is no UTF-8 must not end the connection.
        config = h2.config.H2Configuration(client_side=True, header_encoding=None)
        self._h2 = _Protocol(config)
        self._h2.local_settings = h2.settings.Settings(
            client=True,
            initial_values={
                h2.settings.SettingCodes.ENABLE_PUSH: 0,
                h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW,
                h2.settings.SettingCodes.MAX_HEADER_LIST_SIZE: 64 << 10,
            },
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Introduce ourselves."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a unix socket is one
        self._transport = transport
        self._h2.initiate_connection()
        # The streams bound what may wait; the connection as a whole must never be what stops one of them.
        self._h2.increment_flow_control_window(max(self.max_message, 16 * _WINDOW))
        self.usable = True
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """End all calls."""
        self.lose(str(exc) if exc else "the connection was closed")

    def data_received(self, data: bytes) -> None:
        """Hand what came to the calls it is for."""
        try:
            for event in self._h2.receive_data(data):
                if handle := _HANDLERS.get(type(event)):
                    handle(self, event)
        except (h2.exceptions.H2Error, ValueError) as error:
            self._flush()
            self.lose(f"what came is no HTTP/2: {one_line(str(error) or type(error).__name__)}")
        else:
            self._flush()

    def lose(self, why: str, kind: type[RuntimeUnavailable] = Lost) -> None:
        """End the connection, and with it all calls."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()
        for call in list(self._calls.values()):
            call.end(kind(f"{self._path}: {call.method}: {why}"))
        self._calls.clear()
        self._fewer.set()

    async def start(self, method: str, request: bytes, seconds: float | None) -> Call:
        """Send a request, as far as the other end takes it now; wait while it has as many calls as it allows."""
        while self.usable and len(self._calls) >= self._h2.remote_settings.max_concurrent_streams:
            self._fewer.clear()
            await self._fewer.wait()
        if not self.usable:
            raise Lost(f"{self._path}: {short_name(method)}: the connection was closed")
        try:
            stream = self._h2.get_next_available_stream_id()
            self._h2.send_headers(stream, _headers(method, seconds))
        except h2.exceptions.H2Error as error:  # for one, all stream numbers are used up
            self.lose(one_line(str(error)))
            raise Lost(f"{self._path}: {short_name(method)}: {one_line(str(error))}") from error
        call = self._calls[stream] = Call(self, method, stream, request)
        self._send(call)
        self._flush()
        return call

    def end(self, call: Call) -> None:
        """Forget a call; if it has not ended by itself, tell the other end that nobody waits for it."""
        if self._calls.pop(call.stream, None) is not None:
            self._fewer.set()
            with suppress(h2.exceptions.H2Error):
                self._h2.reset_stream(call.stream, h2.errors.ErrorCodes.CANCEL)
            self._flush()

    def make_room(self, call: Call, needed: int) -> None:
        """Let the other end send at least so much more for a call, in large steps."""
        if call.stream not in self._calls:
            return
        with suppress(h2.exceptions.H2Error):
            window = self._h2.remote_flow_control_window(call.stream)
            wanted = min(max(needed, _WINDOW), self.max_message + _PREFIX.size)
            if window < wanted // 2:
                self._h2.increment_flow_control_window(wanted - window, call.stream)
                self._flush()

    def _send(self, call: Call) -> None:
        while call.unsent:
            room = min(self._h2.local_flow_control_window(call.stream), self._h2.max_outbound_frame_size)
            if room <= 0:
                return
            piece, call.unsent = call.unsent[:room], call.unsent[room:]
            self._h2.send_data(call.stream, piece, end_stream=not call.unsent)

    def _flush(self) -> None:
        if self._transport is not None and (data := self._h2.data_to_send()):
            self._transport.write(data)

    def on_headers(self, event: h2.events.ResponseReceived | h2.events.TrailersReceived) -> None:
        """Note how the other end says a call went."""
        call = self._calls.get(event.stream_id or 0)
        if call is None:
            return
        headers = _readable(event.headers or ())
        if (status := headers.get(":status", "200")) != "200":
            self.end(call)
            call.end(CallError(call.method, Code.UNKNOWN, f"HTTP status {status}"))
        elif "grpc-status" in headers:
            call.status = CODES.get(headers["grpc-status"], Code.UNKNOWN)
            call.text = unquote(headers.get("grpc-message", ""))

    def on_data(self, event: h2.events.DataReceived) -> None:
        """Hand a piece of an answer to its call, whose reader makes room for more."""
        length = event.flow_controlled_length or 0
        self._unanswered += length
        if self._unanswered >= _WINDOW:
            self._h2.increment_flow_control_window(self._unanswered)
            self._unanswered = 0
        if call := self._calls.get(event.stream_id or 0):
            call.feed(event.data or b"")

    def on_window(self, event: h2.events.WindowUpdated) -> None:
        """Send more of the requests that had to wait."""
        waiting = (self._calls.get(event.stream_id),) if event.stream_id else tuple(self._calls.values())
        for call in waiting:
            if call is not None:
                self._send(call)

    def on_settings(self, _: h2.events.RemoteSettingsChanged) -> None:
        """Send more of the requests that had to wait."""
        self._fewer.set()
        for call in tuple(self._calls.values()):
            self._send(call)

    def on_end(self, event: h2.events.StreamEnded) -> None:
        """End a call as the other end says."""
        call = self._calls.pop(event.stream_id or 0, None)
        if call is None:
            return
        self._fewer.set()
        if call.unsent:
            with suppress(h2.exceptions.H2Error):
                self._h2.reset_stream(call.stream, h2.errors.ErrorCodes.CANCEL)
        call.end(self._outcome(call))

    def _outcome(self, call: Call) -> PinfoldError | None:
        match call.status:
            case None:
                return CallError(call.method, Code.INTERNAL, "the answer has no status")
            case Code.OK:
                return None
            case Code.UNIMPLEMENTED:
                return Unimplemented(call.method, call.status, call.text)
            case Code.UNAVAILABLE:
                return RuntimeUnavailable(f"{self._path}: {call.method}: {one_line(call.text)}")
            case code:
                return CallError(call.method, code, call.text)

    def on_reset(self, event: h2.events.StreamReset) -> None:
        """End a call that the other end has broken off."""
        if call := self._calls.pop(event.stream_id or 0, None):
            self._fewer.set()
            call.end(CallError(call.method, Code.UNKNOWN, f"the call was broken off ({_error_name(event.error_code)})"))

    def on_goaway(self, event: h2.events.ConnectionTerminated) -> None:
        """End all calls: h2 reads nothing more after this."""
        self.lose(f"the other end is going away ({_error_name(event.error_code)})")


_HANDLERS: Final[Mapping[type, Callable[..., None]]] = {
    h2.events.ResponseReceived: Connection.on_headers,
    h2.events.TrailersReceived: Connection.on_headers,
    h2.events.DataReceived: Connection.on_data,
    h2.events.WindowUpdated: Connection.on_window,
    h2.events.RemoteSettingsChanged: Connection.on_settings,
    h2.events.StreamEnded: Connection.on_end,
    h2.events.StreamReset: Connection.on_reset,
    h2.events.ConnectionTerminated: Connection.on_goaway,
}


def _headers(method: str, seconds: float | None) -> list[tuple[str, str]]:
    headers = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", method),
        (":authority", "localhost"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
    ]
    if seconds is not None:
        # The other end can then give up as well; eight digits are allowed.
        headers.append(("grpc-timeout", f"{min(int(seconds * 1000), 99_999_999)}m"))
    return headers


def _readable(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, value in headers}


def short_name(method: str) -> str:
    """Return the method without its service."""
    return method.rpartition("/")[2]


def _error_name(code: object) -> str:
    return code.name if isinstance(code, h2.errors.ErrorCodes) else str(code)
