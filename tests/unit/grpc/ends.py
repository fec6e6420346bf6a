"""The ends of gRPC connections in tests: our server, grpclib, and ends that send and read as they like."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from grpclib.client import Channel as TheirChannel
from grpclib.encoding.base import CodecBase
from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes, Settings

from pinfold.grpc.client import Channel
from pinfold.grpc.server import CallLimits, GRPCServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
    from pathlib import Path

    from pinfold.grpc.server import Method, Stream

    Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

SECONDS = 20.0  # a test that waits for something waits at most so long


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, SECONDS))


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for happens at the other end, which has no event for it
        await asyncio.sleep(0.001)


class Raw(CodecBase):
    """Lets grpclib carry bytes, under the name that it expects."""

    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> Any:  # noqa: ANN401, ARG002 - as grpclib has it
        return message

    def decode(self, data: Any, message_type: Any) -> Any:  # noqa: ANN401, ARG002 - as grpclib has it
        return data


class Site(NamedTuple):
    """Our server, where it listens, and the errors of its methods."""

    server: GRPCServer
    path: str
    errors: list[Exception]


@asynccontextmanager
async def serving(
    directory: Path,
    methods: Mapping[str, Method],
    streams: Mapping[str, Stream] | None = None,
    limits: CallLimits | None = None,
) -> AsyncIterator[Site]:
    path = str(directory / "grpc.sock")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    errors: list[Exception] = []
    server = GRPCServer(
        methods, streams, limits=limits or CallLimits(), report=lambda _what, error: errors.append(error)
    )
    await server.start(listener)
    try:
        yield Site(server, path, errors)
    finally:
        await server.close()


@asynccontextmanager
async def channel_to(path: str | Path, deadline: float = SECONDS) -> AsyncIterator[Channel]:
    """Connect our own client."""
    channel = Channel(str(path), deadline=deadline)
    try:
        yield channel
    finally:
        channel.close()


@asynccontextmanager
async def calling(site: Site) -> AsyncIterator[TheirChannel]:
    """Connect grpclib."""
    channel = TheirChannel(path=site.path, codec=Raw())
    try:
        yield channel
    finally:
        channel.close()


class Wire:
    """A client that sends what it wants and reads when it wants."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(0)
        self.socket.connect(path)
        self.h2 = H2Connection(H2Configuration(header_encoding="utf-8"))

    def begin(self, window: int = 65535) -> None:
        self.h2.local_settings = Settings(initial_values={SettingCodes.INITIAL_WINDOW_SIZE: window})
        self.h2.initiate_connection()

    def ask(
        self, name: str, data: bytes = b"\0\0\0\0\0", *, end: bool = True, changed: Mapping[str, str] | None = None
    ) -> int:
        headers = {
            ":method": "POST",
            ":scheme": "http",
            ":path": name,
            ":authority": "x",
            "content-type": "application/grpc",
            **(changed or {}),
        }
        stream = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream, list(headers.items()))
        if data or end:
            self.h2.send_data(stream, data, end_stream=end)
        return stream

    async def send(self, data: bytes | None = None) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, self.h2.data_to_send() if data is None else data)

    async def events(self) -> list[events.Event]:
        """Return what came; raises EOFError at the end of the connection."""
        try:
            data = await asyncio.get_running_loop().sock_recv(self.socket, 1 << 16)
            found = self.h2.receive_data(data)
            await self.send()
        except ConnectionError as error:
            raise EOFError from error
        if not data:
            raise EOFError
        return found

    async def status(self, stream: int) -> dict[str, str]:
        """Return all headers and trailers of a stream, as soon as it has ended."""
        seen: dict[str, str] = {}
        while True:
            for event in await self.events():
                if getattr(event, "stream_id", None) != stream:
                    continue
                if isinstance(event, events.ResponseReceived | events.TrailersReceived):
                    seen |= {str(name): str(value) for name, value in event.headers or ()}
                if isinstance(event, events.StreamEnded | events.StreamReset):
                    return seen | ({"reset": str(event.error_code)} if isinstance(event, events.StreamReset) else {})

    async def closed(self) -> bool:
        """Wait until the other end has closed."""
        with suppress(EOFError):
            while True:
                await self.events()
        return True


@asynccontextmanager
async def wired(site: Site, window: int = 65535) -> AsyncIterator[Wire]:
    wire = Wire(site.path)
    wire.begin(window)
    await wire.send()
    try:
        yield wire
    finally:
        wire.socket.close()


def clear(path: Path) -> None:
    path.unlink(missing_ok=True)


@asynccontextmanager
async def talking(path: Path, talk: Talk) -> AsyncIterator[None]:
    """Serve each connection by *talk*; all connections end with the block."""
    running: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        try:
            await talk(reader, writer)
        except (asyncio.CancelledError, ConnectionError):
            pass
        finally:
            running.discard(task)
            writer.close()

    clear(path)
    server = await asyncio.start_unix_server(serve, str(path))
    try:
        yield
    finally:
        server.close()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
