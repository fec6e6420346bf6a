"""One client of a gRPC server: frames to calls and back, with limits on everything; h2 knows the frames.

A call that goes wrong leaves the others alone, and a client that does not read is let go.
"""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from urllib.parse import quote

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

from pinfold.grpc.errors import CallError, Code

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_PREFIX: Final = struct.Struct(">?I")
_CONTENT: Final = "application/grpc"
# What may stand in a status message as it is: printable ASCII but for the percent sign.
_PLAIN: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
# h2 looks at the size of a frame, at most 16 KB, only when all of it has come: that may be 16 MB.
_MOST_UNHEARD: Final = 256 << 10


class CallLimits(NamedTuple):
    """What a server puts up with. Sizes are bytes."""

    message: int = 64 << 10
    headers: int = 16 << 10
    buffered: int = 64 << 10
    """What is kept for a client that does not read its socket; no more is read from it then."""
    calls: int = 32
    """At once, on one connection."""
    connections: int = 32
    seconds: float = 10.0
    """For a call from its first byte until its answer is taken."""


class Host(Protocol):
    """Where a client is connected."""

    limits: CallLimits

    def answer(self, name: str, request: bytes) -> bytes:
        """Return the answer to a call, or raise a CallError that says why there is none."""
        ...

    def join(self, connection: Connection) -> bool:
        """Take a client in, whether we did."""
        ...

    def use(self, connection: Connection) -> None:
        """Note that a client calls."""
        ...

    def leave(self, connection: Connection) -> None:
        """Forget a client."""
        ...


class _Call:
    """One call: what has come of its request, and what is left to send of its answer."""

    def __init__(self, name: str, timer: asyncio.TimerHandle) -> None:
        self.name = name
        self.timer = timer
        self.received = bytearray()
        self.ended = False
        """Whether the request is complete."""
        self.unsent = b""
        self.trailers: list[tuple[str, str]] | None = None
        """What comes after the answer; None until there is one."""


class _Protocol(h2.connection.H2Connection):
    """HTTP/2 that remembers fewer of the calls that are over."""

    MAX_CLOSED_STREAMS = 1024


class Connection(asyncio.Protocol):
    """A client: frames to calls and back."""

    def __init__(self, server: Host) -> None:
        self.calls: dict[int, _Call] = {}
        self._server = server
        self._limits = server.limits
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        """Ends a client that does not begin, or does not read."""
        self._paused = False
        self._unheard = 0
        """Bytes that came since h2 last made something of them."""
        # Headers stay bytes: what is no UTF-8 must not end the connection.
        self._h2 = _Protocol(h2.config.H2Configuration(client_side=False, header_encoding=None))
        self._h2.local_settings = h2.settings.Settings(
            client=False,
            initial_values={
                h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: self._limits.calls,
                h2.settings.SettingCodes.MAX_HEADER_LIST_SIZE: self._limits.headers,
            },
        )
        self._h2.decoder.max_header_list_size = self._limits.headers

    # -- what asyncio tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Introduce ourselves, unless there are too many already."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a unix socket is one
        self._transport = transport
        if not self._server.join(self):
            transport.abort()
            return
        transport.set_write_buffer_limits(high=self._limits.buffered)
        self._set_timer()
        self._h2.initiate_connection()
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - whyever it was
        """Forget all calls."""
        self._transport = None
        self._stop_timer()
        for call in self.calls.values():
            call.timer.cancel()
        self.calls.clear()
        self._server.leave(self)

    def pause_writing(self) -> None:
        """Take nothing more from a client that does not read; if it goes on so, let it go."""
        self._paused = True
        if self._transport is not None:
            self._transport.pause_reading()
            self._set_timer()

    def resume_writing(self) -> None:
        """Go on."""
        self._paused = False
        self._stop_timer()
        if self._transport is not None:
            self._transport.resume_reading()
            self._send_more()
            self._flush()

    def data_received(self, data: bytes) -> None:
        """Hand what came to the calls it is for."""
        try:
            events = self._h2.receive_data(data)
        except (h2.exceptions.H2Error, ValueError):  # not HTTP/2, or no longer
            self.close()
            return
        self._unheard = 0 if events else self._unheard + len(data)
        if self._unheard > _MOST_UNHEARD:
            self.close()
            return
        # Calls that were taken back in the same breath are not worth an answer.
        gone = {event.stream_id for event in events if isinstance(event, h2.events.StreamReset)}
        for event in events:
            handle = _HANDLERS.get(type(event))
            if handle is not None and (getattr(event, "stream_id", None) not in gone or handle is _RESET):
                with suppress(h2.exceptions.H2Error):
                    handle(self, event)
        self._flush()

    def close(self) -> None:
        """Say goodbye, and end the connection."""
        self._server.leave(self)
        if self._transport is not None:
            with suppress(h2.exceptions.H2Error):
                self._h2.close_connection()
            self._flush()
            self._transport.close()
            self._set_timer()  # a client that does not read does not keep it open either

    # -- what h2 tells

    def on_settings(self, _: h2.events.RemoteSettingsChanged) -> None:
        """Wait no longer for a client that has introduced itself."""
        if not self._paused:
            self._stop_timer()
        self._send_more()

    def on_request(self, event: h2.events.RequestReceived) -> None:
        """Begin a call."""
        headers = dict(event.headers or ())
        status = _http_status(headers)
        if status is not None:
            self._h2.send_headers(event.stream_id, [(":status", status)], end_stream=True)
            self._reset(event.stream_id, h2.errors.ErrorCodes.NO_ERROR)
            return
        self._server.use(self)
        name = headers.get(b":path", b"").decode(errors="replace")
        timer = asyncio.get_running_loop().call_later(self._limits.seconds, self._expire, event.stream_id)
        self.calls[event.stream_id] = _Call(name, timer)

    def on_data(self, event: h2.events.DataReceived) -> None:
        """Take in a piece of a request."""
        if event.flow_controlled_length:
            self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        call = self.calls.get(event.stream_id)
        if call is None or call.trailers is not None:
            return
        call.received += event.data or b""
        try:
            _check_size(call, self._limits.message)
        except CallError as error:
            self._fail(event.stream_id, call, error)

    def on_end(self, event: h2.events.StreamEnded) -> None:
        """Answer a call whose request is complete."""
        call = self.calls.get(event.stream_id)
        if call is None or call.trailers is not None:
            return
        call.ended = True
        try:
            answer = self._server.answer(call.name, _message(call))
        except CallError as error:
            self._fail(event.stream_id, call, error)
            return
        self._h2.send_headers(event.stream_id, [(":status", "200"), ("content-type", _CONTENT)])
        call.unsent = _PREFIX.pack(False, len(answer)) + answer  # noqa: FBT003 - not compressed
        call.trailers = [("grpc-status", "0")]
        self._send(event.stream_id, call)

    def on_reset(self, event: h2.events.StreamReset) -> None:
        """Forget a call that the client has given up."""
        self._forget(event.stream_id)

    def on_window(self, _: h2.events.WindowUpdated) -> None:
        """Send more of the answers that had to wait."""
        self._send_more()

    def on_goaway(self, _: h2.events.ConnectionTerminated) -> None:
        """End the connection: h2 reads nothing more after this."""
        self.close()

    # -- answers

    def _fail(self, stream: int, call: _Call, error: CallError) -> None:
        headers = [(":status", "200"), ("content-type", _CONTENT), ("grpc-status", str(error.code.value))]
        call.trailers = [*headers, ("grpc-message", quote(error.text, safe=_PLAIN))]
        self._finish(stream, call)

    def _send_more(self) -> None:
        for stream, call in list(self.calls.items()):
            if call.trailers is not None:
                with suppress(h2.exceptions.H2Error):
                    self._send(stream, call)

    def _send(self, stream: int, call: _Call) -> None:
        """Send what the client takes now; nothing while its socket is full."""
        while call.unsent and not self._paused:
            room = min(self._h2.local_flow_control_window(stream), self._h2.max_outbound_frame_size)
            if room <= 0:
                return
            piece, call.unsent = call.unsent[:room], call.unsent[room:]
            self._h2.send_data(stream, piece)
            self._flush()
        if not call.unsent:
            self._finish(stream, call)

    def _finish(self, stream: int, call: _Call) -> None:
        self._h2.send_headers(stream, call.trailers or [], end_stream=True)
        if not call.ended:  # the client need not send the rest
            self._reset(stream, h2.errors.ErrorCodes.NO_ERROR)
        self._forget(stream)

    def _forget(self, stream: int) -> None:
        if call := self.calls.pop(stream, None):
            call.timer.cancel()

    def _expire(self, stream: int) -> None:
        """Give up a call that takes too long, be it to ask or to read."""
        self._forget(stream)
        self._reset(stream, h2.errors.ErrorCodes.CANCEL)
        self._flush()

    def _reset(self, stream: int, code: h2.errors.ErrorCodes) -> None:
        with suppress(h2.exceptions.H2Error):
            self._h2.reset_stream(stream, code)

    # -- the socket

    def _flush(self) -> None:
        if self._transport is not None and (data := self._h2.data_to_send()):
            self._transport.write(data)

    def _set_timer(self) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(self._limits.seconds, self._abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


_RESET: Final = Connection.on_reset
_HANDLERS: Final[Mapping[type, Callable[..., None]]] = {
    h2.events.RemoteSettingsChanged: Connection.on_settings,
    h2.events.RequestReceived: Connection.on_request,
    h2.events.DataReceived: Connection.on_data,
    h2.events.StreamEnded: Connection.on_end,
    h2.events.StreamReset: _RESET,
    h2.events.WindowUpdated: Connection.on_window,
    h2.events.ConnectionTerminated: Connection.on_goaway,
}


def _http_status(headers: Mapping[bytes, bytes]) -> str | None:
    """Return the HTTP status for what is no gRPC; None if it is."""
    if headers.get(b":method") != b"POST":
        return "405"
    kind = headers.get(b"content-type", b"")
    return (
        None if kind == b"application/grpc" or kind.startswith((b"application/grpc+", b"application/grpc;")) else "415"
    )


def _check_size(call: _Call, most: int) -> None:
    """Raise if what has come of a request cannot become one that we take."""
    if len(call.received) < _PREFIX.size:
        return
    compressed, length = _PREFIX.unpack_from(call.received)
    if compressed:
        raise CallError(call.name, Code.UNIMPLEMENTED, "compressed requests are not understood")
    if length > most:
        raise CallError(call.name, Code.RESOURCE_EXHAUSTED, f"a request of {length:,} bytes; {most:,} are allowed")
    if len(call.received) > _PREFIX.size + length:
        raise CallError(call.name, Code.INTERNAL, "more than one request in a call")


def _message(call: _Call) -> bytes:
    if len(call.received) < _PREFIX.size or len(call.received) != _PREFIX.size + _PREFIX.unpack_from(call.received)[1]:
        raise CallError(call.name, Code.INTERNAL, "the request ends before it is complete")
    return bytes(call.received[_PREFIX.size :])
