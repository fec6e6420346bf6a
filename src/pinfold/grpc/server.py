"""The server's end of gRPC, on unix sockets: methods with one answer, and methods with a stream of answers.

A method gets a request and gives answers, all of them bytes. Each client is limited in what it can use up: a call that
goes wrong leaves the others alone, and a client that does not read is disconnected.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from h2 import events
from h2.errors import ErrorCodes
from h2.exceptions import H2Error
from h2.settings import SettingCodes

from pinfold.grpc.errors import CallError, Code
from pinfold.grpc.frames import ANSWER_HEADERS, Status, format_status, frame, readable, refusal
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
    """For a client to send its settings, to send a request, and to take each answer."""


DEFAULT: Final = CallLimits()


def _tell_loop(what: str, error: Exception) -> None:
    asyncio.get_running_loop().call_exception_handler({"message": f"no answer to {what}", "exception": error})


async def _once(method: Method, request: bytes) -> AsyncIterator[bytes]:
    answer = method(request)
    yield answer if isinstance(answer, bytes) else await answer


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
        self.links: set[ServerLink] = set()
        """The connected clients."""
        self._streams = {name: partial(_once, method) for name, method in methods.items()} | dict(streams or {})
        self._report = report
        self._listening: list[asyncio.Server] = []

    async def start(self, listener: socket.socket) -> None:
        """Begin to serve on a listening socket."""
        loop = asyncio.get_running_loop()
        self._listening.append(await loop.create_unix_server(lambda: ServerLink(self), sock=listener))

    async def close(self) -> None:
        """Stop serving: end all calls, tell the clients, and wait until the methods have cleaned up."""
        for server in self._listening:
            server.close()
        tasks = [call.task for link in self.links for call in link.calls.values()]
        for link in list(self.links):
            link.close("the server stops")
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # the sockets are closed in the next round of the loop

    def make_room(self) -> bool:
        """Whether one more client may connect; if need be, disconnect the one that was idle for longest."""
        if len(self.links) < self.limits.connections:
            return True
        idle = min((link for link in self.links if not link.calls), key=lambda link: link.last_used, default=None)
        if idle is not None:
            idle.close("too many clients")
        return idle is not None

    async def answers(self, name: str, request: bytes) -> AsyncGenerator[bytes, None]:
        """Yield the answers to a call; every error is a CallError."""
        if name not in self._streams:
            raise CallError(name, Code.UNIMPLEMENTED, f"unknown method {name}")
        try:
            answers = self._streams[name](request)
            async with aclosing(answers) if isinstance(answers, AsyncGenerator) else nullcontext():
                async for answer in answers:
                    yield answer
        except CallError:
            raise
        except Exception as error:
            self._report(name, error)
            raise CallError(name, Code.INTERNAL, "an unexpected error; the server has logged it") from error


class ServerCall(NamedTuple):
    """A call of a client: the request as it comes, and the task that answers it."""

    inbox: Inbox
    task: asyncio.Task[None]


class ServerLink(Link):
    """A connected client: its calls, and the limits on what it can use up."""

    def __init__(self, server: GRPCServer) -> None:
        self.calls: dict[int, ServerCall] = {}
        """By the number of the stream."""
        self.last_used = asyncio.get_running_loop().time()
        """When the client last called; before its first call, when it connected."""
        self._server = server
        self._limits = limits = server.limits
        self._room = asyncio.Event()
        """Set when the client takes more of its answers."""
        self._timer: asyncio.TimerHandle | None = None
        """Disconnects a client that does not send its settings, or does not read."""
        settings = {
            SettingCodes.MAX_CONCURRENT_STREAMS: limits.calls,
            SettingCodes.MAX_HEADER_LIST_SIZE: limits.headers,
        }
        super().__init__(settings, client=False)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the settings, unless all clients are busy and no more are allowed."""
        if not self._server.make_room():
            transport.close()
            return
        self._server.links.add(self)
        super().connection_made(transport)
        self._set_timer()

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
        self._server.links.discard(self)
        for call in self.calls.values():
            call.task.cancel()

    def _handle(self, event: events.Event) -> None:
        match event:
            case events.RequestReceived():
                self._begin(event.stream_id, readable(event.headers))
            case events.DataReceived():
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                if call := self.calls.get(event.stream_id):
                    call.inbox.feed(event.data)
            case events.StreamEnded() if event.stream_id in self.calls:
                self.calls[event.stream_id].inbox.close()
            case events.StreamReset() if event.stream_id in self.calls:
                self.calls[event.stream_id].task.cancel()
            case events.WindowUpdated() | events.RemoteSettingsChanged():
                if not self._paused:
                    self._stop_timer()
                self._room.set()
            case events.ConnectionTerminated():  # h2 reads nothing more after this
                self.close("goodbye")

    def _begin(self, stream: int, headers: dict[str, str]) -> None:
        """Begin a call, or refuse a request that is not gRPC."""
        if status := refusal(headers):
            self._h2.send_headers(stream, [(":status", status)], end_stream=True)
            self._reset(stream, ErrorCodes.NO_ERROR)
            return
        name = headers.get(":path", "")
        inbox = Inbox(name, self._limits.message)
        task = asyncio.create_task(self._serve(stream, name, inbox))
        task.add_done_callback(lambda _: self.calls.pop(stream))
        self.calls[stream] = ServerCall(inbox, task)
        self.last_used = asyncio.get_running_loop().time()

    async def _serve(self, stream: int, name: str, inbox: Inbox) -> None:
        """Answer a call, and end it."""
        try:
            with suppress(H2Error):  # the client has broken the call off
                self._h2.send_headers(stream, ANSWER_HEADERS)
                status = await self._answer(stream, name, inbox)
                self._h2.send_headers(stream, format_status(status), end_stream=True)
                if not inbox.closed:  # the client need not send the rest
                    self._reset(stream, ErrorCodes.NO_ERROR)
        except TimeoutError:  # the client is too slow to ask, or to read
            self._reset(stream, ErrorCodes.CANCEL)
        self._flush()

    async def _answer(self, stream: int, name: str, inbox: Inbox) -> Status:
        try:
            async with asyncio.timeout(self._limits.seconds):
                request = await inbox.only()
            async with aclosing(self._server.answers(name, request)) as answers:
                async for answer in answers:
                    await self._send(stream, answer)
        except CallError as error:
            return Status(error.code, error.text)
        return Status(Code.OK)

    async def _send(self, stream: int, answer: bytes) -> None:
        unsent = frame(answer)
        async with asyncio.timeout(self._limits.seconds):
            while unsent := self._push(stream, unsent):
                self._room.clear()
                await self._room.wait()

    def _set_timer(self) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(self._limits.seconds, self._transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
