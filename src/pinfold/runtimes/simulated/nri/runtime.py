"""ScriptedNRI: a container runtime's side of NRI, as containerd has it: real bytes on real sockets.

Accepts plugins one after another, registers, configures and synchronizes them, and asks them. A plugin that does not
answer in time is dropped, and the runtime goes on as if it had not asked. A plugin that answers with an error stays.
`hooks` decides which requests are sent and what follows from the answers.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from pinfold.errors import PinfoldError, excerpt
from pinfold.proto import nri_pb2 as nri
from pinfold.runtimes.simulated.nri.peer import PluginError, PluginGone, PluginPeer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from google.protobuf.message import Message

    from pinfold.runtimes.simulated.settings import RuntimeSettings

_M = TypeVar("_M", bound="Message")

WITHIN: Final = 10.0
"""How many seconds to wait for something that should happen at once."""
UNKNOWN: Final = 2
_MILLI: Final = 1000
_INDEX: Final = len("10")
_ALL_EVENTS: Final = sum(1 << (event - 1) for event in nri.Event.values() if event)
_METHODS: Final = {number: name.title().replace("_", "") for name, number in nri.Event.items()}


class RegisteredPlugin(NamedTuple):
    """A plugin that is registered; *events* are those that it asked for, bit n - 1 for event n."""

    name: str
    """Its index and its name, such as 10-pinfold."""
    events: int
    peer: PluginPeer

    def wants(self, event: nri.Event) -> bool:
        """Whether the plugin asked for an event."""
        return bool(self.events >> (event - 1) & 1)


Synchronize: TypeAlias = "Callable[[RegisteredPlugin], Awaitable[None]]"
"""Sends a new plugin all pods and containers, and applies its answer."""


class ScriptedNRI:
    """The plugins of a scripted runtime.

    `plugins` has those that are synchronized, in the order of their indexes. `errors` has every error that a plugin
    answered with, and why the runtime dropped a plugin, or a connection before it was one.
    """

    def __init__(self, settings: RuntimeSettings, synchronize: Synchronize) -> None:
        self.settings = settings
        self.plugins: list[RegisteredPlugin] = []
        self.errors: list[PinfoldError] = []
        self._synchronize = synchronize
        self.path = ""
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.Task[None], PluginPeer] = {}
        self._registering = asyncio.Lock()
        self._changed = asyncio.Event()

    async def listen(self, path: str = "") -> None:
        """Accept plugins on a unix socket; without *path*, on the same one again."""
        self.path = path or self.path
        self._server = await asyncio.start_unix_server(self._accept, self.path)

    async def attach(self, *, synchronize: bool = True) -> socket.socket:
        """Return the plugin's end of a new connection, as a runtime gives it to a plugin that it starts itself.

        containerd 1.7 does not *synchronize* such a plugin.
        """
        ours, theirs = socket.socketpair()
        self._accept(*await asyncio.open_unix_connection(sock=ours), synchronize=synchronize)
        return theirs

    async def close(self) -> None:
        """Stop listening, and drop all plugins."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for peer in self._serving.values():
            peer.close("the runtime stops")
        if self._serving:
            await asyncio.wait(self._serving, timeout=WITHIN)

    async def until(self, count: int = 1, within: float = WITHIN) -> None:
        """Wait until so many plugins are synchronized; raise PluginGone after *within* seconds."""
        try:
            async with asyncio.timeout(within):
                while len(self.plugins) != count:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            found = f"{len(self.plugins)} instead of {count} plugins after {within:g} s"
            raise PluginGone(f"{found}; errors: {'; '.join(map(str, self.errors)) or 'none'}") from None

    async def ask(self, event: nri.Event, method: str, request: Message, kind: type[_M]) -> list[tuple[str, _M]]:
        """Return what each plugin that wants *event* answers, by its name; raise the first error among them."""
        answers = []
        for plugin in [plugin for plugin in self.plugins if plugin.wants(event)]:
            try:
                answer = await plugin.peer.ask(method, request, kind, within=self.settings.request_timeout)
            except PluginGone as error:
                self.errors.append(error)
                self._drop(plugin.peer)
            except PluginError as error:
                self.errors.append(error)
                raise
            else:
                answers.append((plugin.name, answer))
        return answers

    async def tell(self, event: nri.Event, about: nri.ContainerRequest) -> None:
        """Send *event* to every plugin that wants it; raise the first error among the answers."""
        if self.settings.own_methods:
            await self.ask(event, _METHODS[event], about, nri.Empty)
        else:
            change = nri.StateChangeEvent(event=event, pod=about.pod, container=about.container)
            await self.ask(event, "StateChange", change, nri.Empty)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, synchronize: bool = True) -> None:
        peer = PluginPeer(reader, writer)
        task = asyncio.create_task(self._serve(peer, synchronize=synchronize))
        self._serving[task] = peer
        task.add_done_callback(self._serving.pop)

    async def _serve(self, peer: PluginPeer, *, synchronize: bool) -> None:
        receiving = asyncio.create_task(peer.run())
        try:
            async with self._registering:
                plugin = await self._register(peer)
                if synchronize:
                    await self._synchronize(plugin)
                self._add(plugin)
        except PinfoldError as error:
            self.errors.append(error)
            peer.close(str(error))
        await receiving
        self._drop(peer)

    async def _register(self, peer: PluginPeer) -> RegisteredPlugin:
        """Register and configure a plugin, or raise why containerd would not."""
        wanted = await peer.registration(self.settings.registration_timeout)
        name = f"{wanted.plugin_idx}-{wanted.plugin_name}"
        if not wanted.plugin_name or len(wanted.plugin_idx) != _INDEX or not wanted.plugin_idx.isdigit():
            problem = f"invalid plugin {excerpt(name)}; expected an index of two digits and a name"
            peer.answer_registration(UNKNOWN, problem)
            raise PluginError("RegisterPlugin", UNKNOWN, problem)
        peer.answer_registration()
        return RegisteredPlugin(name, await self._configure(peer), peer)

    async def _configure(self, peer: PluginPeer) -> int:
        settings = self.settings
        request = nri.ConfigureRequest(
            runtime_name=settings.name,
            runtime_version=settings.version,
            registration_timeout=int(settings.registration_timeout * _MILLI),
            request_timeout=int(settings.request_timeout * _MILLI),
        )
        answer = await peer.ask("Configure", request, nri.ConfigureResponse, within=settings.request_timeout)
        if answer.events & ~_ALL_EVENTS:
            problem = f"events {answer.events:#x} are not among the known {_ALL_EVENTS:#x}"
            raise PluginError("Configure", UNKNOWN, problem)
        return int(answer.events) or _ALL_EVENTS

    def _add(self, plugin: RegisteredPlugin) -> None:
        if not plugin.peer.why:
            self.plugins = sorted([*self.plugins, plugin], key=lambda found: found.name[:_INDEX])
            self._changed.set()

    def _drop(self, peer: PluginPeer) -> None:
        self.plugins = [plugin for plugin in self.plugins if plugin.peer is not peer]
        self._changed.set()
