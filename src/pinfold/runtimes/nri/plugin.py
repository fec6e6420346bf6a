"""A plugin's connection to a container runtime over NRI: registers, carries requests and answers, connects again.

Requests are handled in the order of their arrival. While one waits for a source of pods, those of other pods are
answered. Unsolicited updates (UpdateContainers) are not offered: up to NRI 0.12.0 they can hang the runtime for good.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from pinfold.errors import ConfigError, PinfoldError, RuntimeUnavailable, excerpt
from pinfold.formats.wire import nrimux, ttrpc
from pinfold.formats.wire.nrimux import Connection
from pinfold.proto import nri_pb2 as nri
from pinfold.proto import ttrpc_pb2 as envelope
from pinfold.runtimes.backoff import BackOff
from pinfold.runtimes.nri.requests import EVENTS, Dispatcher, line, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import NoReturn

    from pinfold.runtimes.nri.requests import Failed, Handler

_SERVICE: Final = "nri.pkg.api.v1alpha1.Runtime"
_REGISTER: Final = 1  # the stream of our one call; a client's streams are odd
_CHUNK: Final = 1 << 16
_SLOWEST: Final = 10.0
_AWAY: Final = 0.25
"""How long to wait for a runtime that does not listen; it may report that pods have ended when it is back."""
_MOST_APART: Final = 1.0
"""The longest pause between two connections: until the next one, containers start without being asked for."""
_MOST_WAITING: Final = 64


class NRILink(StrEnum):
    """The stages of a connection."""

    CLOSED = "closed"
    CONNECTED = "connected"
    REGISTERED = "registered"
    SYNCHRONIZED = "synchronized"


Changed: TypeAlias = "Callable[[NRILink, str], object]"
"""Called at each change of a Link, with the runtime's name and version, or why it was closed."""


def _ignore(_first: object, _second: object, /) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class PluginIdentity:
    """The plugin's name, index and events. The runtime calls plugins in the order of their index."""

    name: str = "pinfold"
    index: str = "10"
    events: frozenset[int] = frozenset(EVENTS.values())

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError("an NRI plugin without a name")
        if not (len(self.index) == len("10") and self.index.isascii() and self.index.isdigit()):
            raise ConfigError(f"NRI plugin index {excerpt(self.index)}; two digits are expected, such as 10")
        # No event would mean all of them, and an unknown one makes the runtime hang up.
        if not self.events or not self.events <= set(nri.Event.values()) - {nri.UNKNOWN}:
            raise ConfigError(f"NRI events {sorted(self.events)}; some of 1 to {max(nri.Event.values())} are expected")

    @property
    def mask(self) -> int:
        """The events as NRI has them: bit n - 1 for event n."""
        return sum(1 << (event - 1) for event in self.events)


class Launch(NamedTuple):
    """How a runtime started this process as its plugin: a connected socket, and the name to register."""

    fd: int
    identity: PluginIdentity


def launched(environ: Mapping[str, str]) -> Launch | None:
    """Return how the runtime started us according to the environment; None if it did not.

    >>> launched({"NRI_PLUGIN_SOCKET": "3", "NRI_PLUGIN_NAME": "pinfold", "NRI_PLUGIN_IDX": "10"}).fd
    3
    >>> launched({"HOME": "/root"})
    """
    number = environ.get("NRI_PLUGIN_SOCKET")
    if number is None:
        return None
    if not (number.isascii() and number.isdigit() and len(number) < len("10000000")):
        raise ConfigError(f"NRI_PLUGIN_SOCKET is {excerpt(number)}; the number of an open file is expected")
    return Launch(int(number), PluginIdentity(environ.get("NRI_PLUGIN_NAME", ""), environ.get("NRI_PLUGIN_IDX", "")))


class RegistrationRefused(RuntimeUnavailable):
    """The runtime does not want this plugin."""


class Plugin:
    """One plugin: its identity, its handler, and the callback for changes."""

    def __init__(
        self,
        handler: Handler,
        identity: PluginIdentity | None = None,
        changed: Changed = _ignore,
        failed: Failed = _ignore,
    ) -> None:
        self._handler = handler
        self._identity = identity or PluginIdentity()
        self._changed = changed
        self._failed = failed
        self._told: tuple[NRILink, str] = (NRILink.CLOSED, "")
        self.lived = 0.0
        """For how many seconds the last connection was registered."""

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Register, and answer until the connection ends; an error is reported as the reason."""
        dispatcher = Dispatcher(self._handler, self._identity.mask, self._failed)
        session = _Session(reader, writer, dispatcher, self.tell)
        try:
            reason = await session.run(self._identity)
        except (PinfoldError, OSError) as error:
            reason = str(error) or type(error).__name__
        finally:
            self.lived = session.lived
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
        self.tell(NRILink.CLOSED, reason)

    def tell(self, link: NRILink, detail: str) -> None:
        """Report a change, once."""
        if self._told != (link, detail):
            self._told = (link, detail)
            self._changed(link, detail)


class _Session:
    """Carries messages between a socket and a Dispatcher."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, dispatcher: Dispatcher, tell: Changed
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._dispatcher = dispatcher
        self._tell = tell
        self._messages = nrimux.Messages()
        self._since: float | None = None
        self._answering: set[asyncio.Task[None]] = set()

    @property
    def lived(self) -> float:
        """The seconds since registration; 0 before it."""
        return 0.0 if self._since is None else asyncio.get_running_loop().time() - self._since

    async def run(self, identity: PluginIdentity) -> str:
        """Register, and answer requests until one side closes the connection; return why it ended."""
        self._tell(NRILink.CONNECTED, "")
        # At once: until a new connection has registered, the runtime accepts no other.
        await self._register(identity)
        try:
            return await self._answer_all()
        finally:
            # The runtime need not wait. A decision that has begun is not broken off, though no one reads its answer.
            self._writer.close()
            await asyncio.gather(*self._answering, return_exceptions=True)

    async def _answer_all(self) -> str:
        while data := await self._reader.read(_CHUNK):
            for connection, message in self._messages.feed(data):
                await self._receive(connection, message)
                if self._dispatcher.over:
                    return "the runtime shuts down"
        registered = self._dispatcher.configured
        return "closed by the runtime" if registered else "closed by the runtime before it registered the plugin"

    async def _register(self, identity: PluginIdentity) -> None:
        wanted = nri.RegisterPluginRequest(plugin_name=identity.name, plugin_idx=identity.index)
        request = envelope.Request(service=_SERVICE, method="RegisterPlugin", payload=wanted.SerializeToString())
        body = request.SerializeToString()
        await self._send(Connection.RUNTIME, ttrpc.Message(_REGISTER, ttrpc.MessageKind.REQUEST, body))

    async def _receive(self, connection: Connection, message: ttrpc.Message) -> None:
        match connection, message.kind:
            case Connection.PLUGIN, ttrpc.MessageKind.REQUEST:
                await self._begin(message)
            # It may come after the first requests: being configured is the sign of success.
            case Connection.RUNTIME, ttrpc.MessageKind.RESPONSE if message.stream == _REGISTER:
                _check_registration(message.body)

    async def _begin(self, message: ttrpc.Message) -> None:
        """Answer a request, or leave it to a task of its own if the answer has to wait."""
        task = asyncio.create_task(self._answer(message))
        self._answering.add(task)
        task.add_done_callback(self._answered)
        await asyncio.sleep(0)  # it runs in this round of the loop
        if len(self._answering) > _MOST_WAITING:
            await asyncio.wait(self._answering, return_when=asyncio.FIRST_COMPLETED)

    async def _answer(self, message: ttrpc.Message) -> None:
        body = await self._dispatcher.answer(message.body)
        await self._send(Connection.PLUGIN, ttrpc.Message(message.stream, ttrpc.MessageKind.RESPONSE, body))
        self._follow()

    def _answered(self, task: asyncio.Task[None]) -> None:
        """Let an error end the session."""
        self._answering.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._reader.set_exception(error)  # type: ignore[arg-type]  # no other kind gets here

    async def _send(self, connection: Connection, message: ttrpc.Message) -> None:
        self._writer.write(nrimux.format_frames(connection, ttrpc.format_message(message)))
        if not self._writer.transport.get_write_buffer_size():
            return  # the socket has taken it
        try:
            async with asyncio.timeout(_SLOWEST):
                await self._writer.drain()
        except TimeoutError:
            raise RuntimeUnavailable(f"the runtime does not read its NRI socket for {_SLOWEST:g} s") from None

    def _follow(self) -> None:
        if self._dispatcher.configured:
            self._since = asyncio.get_running_loop().time() if self._since is None else self._since
            link = NRILink.SYNCHRONIZED if self._dispatcher.synchronized else NRILink.REGISTERED
            self._tell(link, self._dispatcher.runtime)


async def serve(path: str, plugin: Plugin) -> NoReturn:
    """Keep *plugin* connected to the runtime's socket at *path*, for ever."""
    back_off = BackOff(_MOST_APART)
    while True:
        try:
            streams = await asyncio.open_unix_connection(path)
        except OSError as error:
            plugin.tell(NRILink.CLOSED, f"{path}: {error.strerror or error}")
            await asyncio.sleep(_AWAY)
        else:
            await plugin.run(*streams)
            await asyncio.sleep(back_off.after(plugin.lived))


async def serve_launched(launch: Launch, plugin: Plugin) -> None:
    """Serve the connection that the runtime started this process with, until it ends; there is no second one."""
    try:
        connected = socket.socket(fileno=launch.fd)
    except OSError as error:
        raise ConfigError(f"NRI_PLUGIN_SOCKET is {launch.fd}, which is not a socket: {error.strerror}") from error
    if (connected.family, connected.type) != (socket.AF_UNIX, socket.SOCK_STREAM):
        connected.close()
        raise ConfigError(f"NRI_PLUGIN_SOCKET is {launch.fd}, which is not a unix stream socket")
    # Else every process that we start would keep the connection open.
    connected.set_inheritable(False)
    await plugin.run(*await asyncio.open_unix_connection(sock=connected))


def _check_registration(body: bytes) -> None:
    status = parse(envelope.Response, body).status
    if status.code:
        raise RegistrationRefused(f"the runtime refused the plugin: {line(status.message)} (code {status.code})")
