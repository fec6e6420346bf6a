"""The shared part of gRPC client and server: HTTP/2 on a socket, and the messages of a call as they arrive.

h2 knows the frames of HTTP/2; a Link carries them, and limits what the other end can make it keep.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.exceptions import H2Error
from h2.settings import SettingCodes, Settings

from pinfold.grpc.errors import CallError, Code, one_line
from pinfold.grpc.frames import PREFIX, frame_size

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from h2.errors import ErrorCodes
    from h2.events import Event

_BUFFERED: Final = 64 << 10
"""How much is kept for an end that does not read its socket, before this end pauses."""
# h2 checks the size of a frame, at most 16 KB, only when the whole frame has come: that may be 16 MB.
_MAX_UNPARSED: Final = 256 << 10


class Inbox:
    """The messages that come for one call, until the other end has sent its last."""

    def __init__(self, method: str, limit: int, on_wait: Callable[[int], None] = lambda _: None) -> None:
        """*on_wait* gets the number of missing bytes whenever the reader begins to wait."""
        self.closed = False
        self._method = method
        self._limit = limit
        self._on_wait = on_wait
        self._received = bytearray()
        self._error: Exception | None = None
        self._changed = asyncio.Event()

    def feed(self, data: bytes) -> None:
        """Add bytes that came."""
        self._received += data
        self._changed.set()

    def close(self, error: Exception | None = None) -> None:
        """Record that nothing more comes; the reader gets *error* after the last message."""
        if not self.closed:
            self.closed = True
            self._error = error
            self._changed.set()

    async def messages(self) -> AsyncIterator[bytes]:
        """Yield each message as soon as it is complete."""
        while True:
            while len(self._received) >= (size := frame_size(self._received, self._method, self._limit)):
                message = bytes(self._received[PREFIX.size : size])
                del self._received[:size]
                yield message
            if self.closed:
                break
            self._changed.clear()
            self._on_wait(size - len(self._received))
            await self._changed.wait()
        if self._error is not None:
            raise self._error
        if self._received:
            raise CallError(self._method, Code.INTERNAL, "the last message is not complete")

    async def only(self) -> bytes:
        """Return the message of a call that has exactly one in this direction."""
        found = None
        async for message in self.messages():
            if found is not None:
                raise CallError(self._method, Code.INTERNAL, "more than one message; one is expected")
            found = message
        if found is None:
            raise CallError(self._method, Code.INTERNAL, "no message; one is expected")
        return found


class _HTTP2(H2Connection):
    """HTTP/2 that remembers at most 1,024 finished calls; by default it remembers 65,536, which takes memory."""

    MAX_CLOSED_STREAMS = 1024


class Link(asyncio.Protocol, ABC):
    """One end of an HTTP/2 connection: carries frames, and leaves to its subclass what they mean for the calls."""

    _transport: asyncio.Transport

    def __init__(self, settings: dict[SettingCodes, int], *, client: bool) -> None:
        # Headers stay bytes: a value that is not UTF-8 must not end the connection.
        self._h2 = _HTTP2(H2Configuration(client_side=client, header_encoding=None))
        self._h2.local_settings = Settings(client=client, initial_values=settings)
        self._h2.decoder.max_header_list_size = settings[SettingCodes.MAX_HEADER_LIST_SIZE]
        self._paused = False
        """Whether the socket takes no more for now."""
        self._unparsed = 0
        """Bytes that came since the last complete frame."""

    @abstractmethod
    def close(self, why: str) -> None:
        """End the connection and all calls."""

    @abstractmethod
    def _handle(self, event: Event) -> None:
        """Do what a frame asks for."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send this end's settings."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a unix socket is one
        self._transport = transport
        transport.set_write_buffer_limits(high=_BUFFERED)
        self._h2.initiate_connection()
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Handle the frames that came."""
        try:
            events = self._h2.receive_data(data)
        except (H2Error, ValueError) as error:
            self.close(f"the bytes received are not HTTP/2: {one_line(str(error) or type(error).__name__)}")
            return
        self._unparsed = 0 if events else self._unparsed + len(data)
        if self._unparsed > _MAX_UNPARSED:
            self.close(f"a frame of more than {_MAX_UNPARSED:,} bytes")
            return
        for event in events:
            with suppress(H2Error):  # a later frame has ended the stream already
                self._handle(event)
        self._flush()

    def _push(self, stream: int, data: memoryview, *, end: bool = False) -> memoryview:
        """Send as much as the other end takes now and return the rest; with *end*, the last byte ends the stream."""
        while data and not self._paused:
            room = min(self._h2.local_flow_control_window(stream), self._h2.max_outbound_frame_size)
            if room <= 0:
                break
            piece, data = data[:room], data[room:]
            self._h2.send_data(stream, piece, end_stream=end and not data)
            self._flush()  # which may pause this end
        return data

    def _reset(self, stream: int, code: ErrorCodes) -> None:
        """Break a stream off, if it is still open."""
        with suppress(H2Error):
            self._h2.reset_stream(stream, code)
        self._flush()

    def _flush(self) -> None:
        if (data := self._h2.data_to_send()) and not self._transport.is_closing():
            self._transport.write(data)
