"""The server's end of gRPC, on unix sockets: methods with one answer, and methods with a stream of answers.

A method gets a request and gives answers, all of them bytes. Every client is limited in what it can use up: a call that
goes wrong leaves the others alone, and a client that does not read is disconnected.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import H2Error
from h2.settings import SettingCodes

from pinfold.grpc.errors import CallError, Code
from pinfold.grpc.frames import Status, answer_headers, format_status, frame, readable, refusal
from pinfold.grpc.link import Inbox, Link

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    Method = Callable[[bytes], bytes | Awaitable[bytes]]
    Stream = Callable[[bytes], AsyncIterator[bytes]]
    Report = Callable[[str, Exception], None]


class CallLimits(NamedTuple):
    """What a server allows its clients. Sizes are bytes."""

    message: int = 64 << 10
    headers: int = 16 << 10
    calls: int = 32
    """At once, on one connection."""
    connections: int = 32
    seconds: float = 10.0
    """For a client to introduce itself, to send a request, and to take each answer."""


DEFAULT: Final = CallLimits()


def _tell_loop(what: str, error: Exception) -> None:
    asyncio.get_running_loop().call_exception_handler({"message": f"no answer to {what}", "exception": error})


class GRPCServer:
    """Serves methods by their full names, `/package.Service/Method`, on any number of listening sockets."""

    def __init__(
        self,
        methods: Mapping[str, Method],
        streams: Mapping[str, Stream] | None = None,
        *,
        limits: CallLimits = DEFAULT,
        report: Report = _tell_loop,
    ) -> None:
        """*report* gets the errors of methods that are not a CallError, with the name of the method."""
        self.limits = limits
        self._methods = methods
        self._streams = streams or {}
        self._report = report
        self._listening: list[asyncio.Server] = []
        self._links: set[ServerLink] = set()

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._links)

    async def start(self, listener: socket.socket) -> None:
        """Begin to serve on a listening socket."""
        loop = asyncio.get_running_loop()
        self._listening.append(await loop.create_unix_server(lambda: ServerLink(self), sock=listener))

    async def close(self) -> None:
        """Stop serving: end all calls, tell the clients, and wait until the methods have cleaned up."""
        for server in self._listening:
            server.close()
        tasks = [call.task for link in self._links for call in link.calls.values()]
        for link in list(self._links):
            link.close("the server stops")
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # the sockets are closed in the next round of the loop

    async def answers(self, name: str, request: bytes) -> AsyncGenerator[bytes, None]:
        """Yield the answers to a call; raise a CallError, and nothing else, if there is none or no other."""
        if name not in self._methods and name not in self._streams:
            raise CallError(name, Code.UNIMPLEMENTED, f"unknown method {name}")
        try:
            if name in self._methods:
                answer = self._methods[name](request)
                yield answer if isinstance(answer, bytes) else await answer
            else:
                stream = self._streams[name](request)
                async with aclosing(stream) if isinstance(stream, AsyncGenerator) else nullcontext():
                    async for message in stream:
                        yield message
        except CallError:
            raise
        except Exception as error:
            self._report(name, error)
            raise CallError(name, Code.INTERNAL, "an unexpected error; it is in the server's log") from error

    def join(self, link: ServerLink) -> bool:
        """Accept a client, if need be in place of the one that was idle for longest; False if all are busy."""
        if len(self._links) >= self.limits.connections:
            idle = min((other for other in self._links if not other.calls), key=lambda other: other.used, default=None)
            if idle is None:
                return False
            idle.close("too many clients")
        self._links.add(link)
        return True

    def leave(self, link: ServerLink) -> None:
        """Forget a client."""
        self._links.discard(link)


@dataclass(eq=False, slots=True)
class ServerCall:
    """One call of a client."""

    stream: int
    name: str
    inbox: Inbox
    """The request, as it comes."""
    task: asyncio.Task[None] = field(init=False)
    answering: bool = False
    """Whether the headers of the answer were sent."""


class ServerLink(Link):
    """A connected client: one task for each of its calls, and the limits on what it can use up."""

    def __init__(self, server: GRPCServer) -> None:
        self.calls: dict[int, ServerCall] = {}
        self.used = 0.0
        """When the client last called."""
        self._server = server
        self._limits = limits = server.limits
        self._room = asyncio.Event()
        """Set when the client takes more of its answers."""
        self._timer: asyncio.TimerHandle | None = None
        """Disconnects a client that does not introduce itself, or does not read."""
        settings = {
            SettingCodes.MAX_CONCURRENT_STREAMS: limits.calls,
            SettingCodes.MAX_HEADER_LIST_SIZE: limits.headers,
        }
        super().__init__(settings, client=False)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the settings, unless there are too many clients already."""
        if self._server.join(self):
            super().connection_made(transport)
            self._set_timer()
        else:
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the reason makes no difference
        """End all calls."""
        self._stop_timer()
        self._leave()

    def pause_writing(self) -> None:
        """Take no more requests from a client that does not read; disconnect it if that lasts."""
        self._paused = True
        self._transport.pause_reading()
        self._set_timer()

    def resume_writing(self) -> None:
        """Continue after the client has read."""
        self._paused = False
        self._stop_timer()
        self._transport.resume_reading()
        self._room.set()

    def close(self, why: str) -> None:
        """End all calls and the connection, and tell the client why."""
        self._leave()
        with suppress(H2Error):
            self._h2.close_connection(additional_data=why.encode())
        self._flush()
        self._transport.close()
        self._set_timer()  # a client that does not read must not keep it open

    def _leave(self) -> None:
        self._server.leave(self)
        for call in self.calls.values():
            call.task.cancel()

    def _handle(self, event: Event) -> None:
        match event:
            case RequestReceived():
                self._begin(event.stream_id, readable(event.headers))
            case DataReceived():
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                if call := self.calls.get(event.stream_id):
                    call.inbox.feed(event.data)
            case StreamEnded() if event.stream_id in self.calls:
                self.calls[event.stream_id].inbox.close()
            case StreamReset() if event.stream_id in self.calls:
                self.calls.pop(event.stream_id).task.cancel()
            case WindowUpdated():
                self._room.set()
            case RemoteSettingsChanged():
                if not self._paused:
                    self._stop_timer()
                self._room.set()
            case ConnectionTerminated():  # h2 reads nothing more after this
                self.close("goodbye")

    def _begin(self, stream: int, headers: dict[str, str]) -> None:
        """Begin a call, or refuse what is not a call."""
        if status := refusal(headers):
            self._h2.send_headers(stream, [(":status", status)], end_stream=True)
            self._reset(stream, ErrorCodes.NO_ERROR)
            return
        self.used = asyncio.get_running_loop().time()
        name = headers.get(":path", "")
        call = self.calls[stream] = ServerCall(stream, name, Inbox(name, self._limits.message))
        call.task = asyncio.create_task(self._serve(call))

    async def _serve(self, call: ServerCall) -> None:
        """Wait for the request, send the answers, end the call."""
        try:
            async with asyncio.timeout(self._limits.seconds):
                request = await call.inbox.only()
            async with aclosing(self._server.answers(call.name, request)) as answers:
                async for answer in answers:
                    await self._send(call, answer)
            self._finish(call, Status(Code.OK))
        except CallError as error:
            self._finish(call, Status(error.code, error.text))
        except TimeoutError:  # the client is too slow to ask, or to read
            self._reset(call.stream, ErrorCodes.CANCEL)
        except H2Error:
            pass  # the client has taken the call back
        finally:
            self.calls.pop(call.stream, None)
            self._flush()

    async def _send(self, call: ServerCall, answer: bytes) -> None:
        self._introduce(call)
        unsent = frame(answer)
        async with asyncio.timeout(self._limits.seconds):
            while unsent := self._push(call.stream, unsent):
                self._room.clear()
                await self._room.wait()

    def _introduce(self, call: ServerCall) -> None:
        if not call.answering:
            call.answering = True
            self._h2.send_headers(call.stream, answer_headers())

    def _finish(self, call: ServerCall, status: Status) -> None:
        with suppress(H2Error):  # the client has taken the call back
            if status.code is Code.OK:
                self._introduce(call)
            headers = [] if call.answering else answer_headers()
            self._h2.send_headers(call.stream, [*headers, *format_status(status)], end_stream=True)
            if not call.inbox.closed:  # the client need not send the rest
                self._reset(call.stream, ErrorCodes.NO_ERROR)

    def _set_timer(self) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(self._limits.seconds, self._transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
