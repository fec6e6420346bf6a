"""The client's end of gRPC: calls over one unix socket, with deadlines; any number of them at once.

The channel connects when a call needs it, and again after the connection was lost. Requests and answers are bytes.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from h2 import events
from h2.errors import ErrorCodes
from h2.exceptions import H2Error
from h2.settings import SettingCodes

from pinfold.errors import PinfoldError, RuntimeUnavailable
from pinfold.grpc.errors import CallError, Code, Lost, Unimplemented, one_line, short_name
from pinfold.grpc.frames import Status, frame, parse_status, readable, request_headers
from pinfold.grpc.link import Inbox, Link

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

DEADLINE: Final = 5.0
_MAX_MESSAGE: Final = 16 << 20
_WINDOW: Final = 1 << 20
"""How much may come for a call before its reader asks for more."""
_CONNECTION_WINDOW: Final = 16 << 20
"""How much may come for all calls before the link asks for more, which it does at once: no call stops another."""
_SETTINGS: Final = {
    SettingCodes.ENABLE_PUSH: 0,
    SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW,
    SettingCodes.MAX_HEADER_LIST_SIZE: 64 << 10,
}


class Channel:
    """Calls to the server on a unix socket; each call ends within its deadline (seconds)."""

    def __init__(self, path: str, *, deadline: float = DEADLINE) -> None:
        self.path = path
        self.deadline = deadline
        self._link: ClientLink | None = None
        self._connecting = asyncio.Lock()

    async def call(self, method: str, request: bytes, *, deadline: float | None = None) -> bytes:
        """Return the answer to a request; *method* is `/package.Service/Method`."""
        seconds = self.deadline if deadline is None else deadline
        try:
            async with asyncio.timeout(seconds):
                try:
                    return await self._ask(method, request, seconds)
                except Lost:
                    # The server may have restarted since the last call; if a new connection fails too, it is gone.
                    return await self._ask(method, request, seconds)
        except TimeoutError as error:
            raise RuntimeUnavailable(f"{self.path}: {short_name(method)} had no answer in {seconds:g} s") from error

    @asynccontextmanager
    async def stream(self, method: str, request: bytes) -> AsyncIterator[AsyncIterator[bytes]]:
        """Yield the messages of a stream while the block lasts; the server waits while they are not read."""
        try:
            async with asyncio.timeout(self.deadline):
                link = await self._connected()
                call = await link.start(method, request)
        except TimeoutError as error:
            raise RuntimeUnavailable(f"{self.path}: no connection in {self.deadline:g} s") from error
        try:
            yield call.inbox.messages()
        finally:
            link.end(call)

    def close(self) -> None:
        """End the connection and every call on it; a later call connects again."""
        if self._link is not None:
            self._link.close("closed by us", RuntimeUnavailable)

    async def _ask(self, method: str, request: bytes, seconds: float) -> bytes:
        link = await self._connected()
        call = await link.start(method, request, seconds)
        try:
            return await call.inbox.only()
        finally:
            link.end(call)

    async def _connected(self) -> ClientLink:
        async with self._connecting:
            if self._link is None or not self._link.usable:
                connect = asyncio.get_running_loop().create_unix_connection
                try:
                    _, self._link = await connect(lambda: ClientLink(self.path), self.path)
                except (OSError, ValueError) as error:  # ValueError: a path with NUL
                    raise RuntimeUnavailable(f"{self.path}: {getattr(error, 'strerror', None) or error}") from error
            return self._link


@dataclass(eq=False, slots=True)
class ClientCall:
    """A call that is under way."""

    stream: int
    method: str
    inbox: Inbox
    unsent: memoryview
    """The part of the request that the server has not taken yet."""
    status: Status | None = None


class ClientLink(Link):
    """A connection to a server: sends requests, and passes each frame to its call."""

    def __init__(self, path: str) -> None:
        super().__init__(_SETTINGS, client=True)
        self.usable = False
        self._path = path
        self._calls: dict[int, ClientCall] = {}
        self._slot_free = asyncio.Event()
        """Set when a call has ended, and when the server may allow more at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the settings, and open the connection's window."""
        super().connection_made(transport)
        self._h2.increment_flow_control_window(_CONNECTION_WINDOW)
        self.usable = True
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """End all calls."""
        self.close(str(exc) if exc else "the connection was closed")

    def close(self, why: str, kind: type[RuntimeUnavailable] = Lost) -> None:
        """End the connection, and all calls with an error of this kind."""
        self.usable = False
        self._flush()
        self._transport.abort()
        for call in self._calls.values():
            call.inbox.close(kind(f"{self._path}: {call.method}: {why}"))
        self._calls.clear()
        self._slot_free.set()

    async def start(self, method: str, request: bytes, seconds: float | None = None) -> ClientCall:
        """Begin a call; wait first while the server has as many calls as it allows."""
        while self.usable and len(self._calls) >= self._h2.remote_settings.max_concurrent_streams:
            self._slot_free.clear()
            await self._slot_free.wait()
        if not self.usable:
            raise Lost(f"{self._path}: {short_name(method)}: the connection was closed")
        try:
            stream = self._h2.get_next_available_stream_id()
            self._h2.send_headers(stream, request_headers(method, seconds))
        except H2Error as error:  # for one, all stream numbers are used up
            self.close(one_line(str(error)))
            raise Lost(f"{self._path}: {short_name(method)}: {one_line(str(error))}") from error
        inbox = Inbox(method, _MAX_MESSAGE, partial(self._make_room, stream))
        call = self._calls[stream] = ClientCall(stream, short_name(method), inbox, frame(request))
        self._send(call)
        self._flush()
        return call

    def end(self, call: ClientCall) -> None:
        """Forget a call; if the server is still busy with it, tell it to stop."""
        if call.stream in self._calls:
            self._forget(call)
            self._reset(call.stream, ErrorCodes.CANCEL)

    def _forget(self, call: ClientCall) -> None:
        del self._calls[call.stream]
        self._slot_free.set()

    def _send(self, call: ClientCall) -> None:
        with suppress(H2Error):  # the server has ended the call; one of the next events says so
            call.unsent = self._push(call.stream, call.unsent, end=True)

    def _make_room(self, stream: int, missing: int) -> None:
        """Let the server send at least so much more for a call, in large steps."""
        with suppress(H2Error):  # the call has ended
            window = self._h2.remote_flow_control_window(stream)
            wanted = max(missing, _WINDOW)
            if window < wanted // 2:
                self._h2.increment_flow_control_window(wanted - window, stream)
                self._flush()

    def _handle(self, event: events.Event) -> None:
        call = self._calls.get(getattr(event, "stream_id", 0))
        match event:
            case events.ResponseReceived() | events.TrailersReceived() if call:
                self._on_headers(call, readable(event.headers))
            case events.DataReceived():
                self._on_data(call, event.data)
            case events.StreamEnded() if call:
                self._on_end(call, self._error_of(call))
            case events.StreamReset() if call:
                why = f"the server broke the call off ({_name(event.error_code)})"
                self._on_end(call, CallError(call.method, Code.UNKNOWN, why))
            case events.WindowUpdated() | events.RemoteSettingsChanged():
                self._slot_free.set()
                for each in self._calls.values():
                    self._send(each)
            case events.ConnectionTerminated():  # h2 reads nothing more after this
                self.close(f"the server is going away ({_name(event.error_code)})")

    def _on_headers(self, call: ClientCall, headers: dict[str, str]) -> None:
        call.status = parse_status(headers) or call.status
        if (status := headers.get(":status", "200")) != "200":
            self.end(call)
            call.inbox.close(CallError(call.method, Code.UNKNOWN, f"HTTP status {status}"))

    def _on_data(self, call: ClientCall | None, data: bytes) -> None:
        """Hand a piece of an answer to its call, whose reader makes room for more."""
        if self._h2.inbound_flow_control_window < _CONNECTION_WINDOW // 2:
            self._h2.increment_flow_control_window(_CONNECTION_WINDOW // 2)
        if call:
            call.inbox.feed(data)

    def _on_end(self, call: ClientCall, error: PinfoldError | None) -> None:
        self._forget(call)
        if call.unsent:  # the server does not want the rest
            self._reset(call.stream, ErrorCodes.CANCEL)
        call.inbox.close(error)

    def _error_of(self, call: ClientCall) -> PinfoldError | None:
        """Return the error for the status that the server gave a call; None if all is well."""
        if call.status is None:
            return CallError(call.method, Code.INTERNAL, "the answer has no status")
        code, text = call.status
        if code is Code.UNAVAILABLE:
            return RuntimeUnavailable(f"{self._path}: {call.method}: {one_line(text)}")
        kind = Unimplemented if code is Code.UNIMPLEMENTED else CallError
        return None if code is Code.OK else kind(call.method, code, text)


def _name(code: ErrorCodes | int | None) -> str:
    return code.name if isinstance(code, ErrorCodes) else str(code)
