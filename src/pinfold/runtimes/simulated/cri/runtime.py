"""ScriptedCRI: a CRI v1 runtime service of a scripted runtime, as containerd answers it; real gRPC on a unix socket.

It lists the runtime's pods and containers, streams events, and updates resources, which asks NRI plugins too. The
script makes pods and containers, not CRI.
"""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from pinfold.errors import PinfoldError
from pinfold.grpc.errors import CallError, Code
from pinfold.grpc.server import GRPCServer
from pinfold.proto import cri_pb2 as cri
from pinfold.runtimes.simulated.cri import messages
from pinfold.runtimes.simulated.nri.peer import PluginError
from pinfold.runtimes.simulated.nri.runtime import WITHIN
from pinfold.runtimes.simulated.record import NotInRecord

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from google.protobuf.message import Message

    from pinfold.runtimes.cri.client import Happening
    from pinfold.runtimes.simulated.record import SandboxRecord
    from pinfold.runtimes.simulated.runtime import ScriptedRuntime

_R = TypeVar("_R", bound="Message")
_SERVICE: Final = "/runtime.v1.RuntimeService/"


class ScriptedCRI:
    """The service; `calls` has the method of every call that was answered, in order, and of every stream that began."""

    def __init__(self, runtime: ScriptedRuntime) -> None:
        self.calls: list[str] = []
        self._runtime = runtime
        self._settings = runtime.settings
        self.path = ""
        self._server: GRPCServer | None = None
        self._watchers: set[asyncio.Queue[bytes]] = set()
        self._called = asyncio.Event()

    async def listen(self, path: str = "") -> None:
        """Serve on a unix socket; without *path*, on the same one again."""
        self.path = path or self.path
        self._server = GRPCServer(self._methods(), self._streams())
        await self._server.start(_bound(self.path))

    async def close(self) -> None:
        """Stop serving, and end all connections."""
        if self._server is not None:
            await self._server.close()
            self._server = None

    async def until(self, method: str, count: int = 1, within: float = WITHIN) -> None:
        """Wait until a method was called *count* times since the runtime was made, for *within* seconds at most."""
        async with asyncio.timeout(within):
            while self.calls.count(method) < count:
                self._called.clear()
                await self._called.wait()

    def tell(self, what: Happening, about: str, sandbox: SandboxRecord) -> None:
        """Send an event to all watchers; *about* is the id of a container, or of the sandbox itself."""
        found = self._runtime.record.containers_of(sandbox.id)
        statuses = [messages.status_of(container, windows=self._settings.windows) for container in found]
        event = messages.event_of(what, about, sandbox, statuses, self._runtime.now()).SerializeToString()
        for watcher in self._watchers:
            watcher.put_nowait(event)

    def _methods(self) -> dict[str, Callable[[bytes], Awaitable[bytes]]]:
        methods = {
            "Version": self._method(cri.VersionRequest, self._version),
            "ListPodSandbox": self._method(cri.ListPodSandboxRequest, self._list_sandboxes),
            "ListContainers": self._method(cri.ListContainersRequest, self._list_containers),
            "ContainerStatus": self._method(cri.ContainerStatusRequest, self._status),
            "UpdateContainerResources": self._method(cri.UpdateContainerResourcesRequest, self._update),
        }
        return {f"{_SERVICE}{name}": method for name, method in methods.items()}

    def _streams(self) -> dict[str, Callable[[bytes], AsyncIterator[bytes]]]:
        return {f"{_SERVICE}GetContainerEvents": self._watch} if self._settings.events else {}

    def _method(
        self, kind: type[_R], answer: Callable[[_R], Awaitable[Message]]
    ) -> Callable[[bytes], Awaitable[bytes]]:
        name = kind.__name__.removesuffix("Request")

        async def call(data: bytes) -> bytes:
            try:
                return bytes((await answer(kind.FromString(data))).SerializeToString())
            except NotInRecord as error:
                raise CallError(name, Code.NOT_FOUND, str(error)) from error
            except PluginError as error:
                raise CallError(name, Code(error.code), f"NRI container update failed: {error.text}") from error
            except PinfoldError as error:
                raise CallError(name, Code.UNKNOWN, str(error)) from error
            finally:
                self._note(name)

        return call

    def _note(self, method: str) -> None:
        self.calls.append(method)
        self._called.set()

    async def _version(self, _: cri.VersionRequest) -> cri.VersionResponse:
        return cri.VersionResponse(
            version="0.1.0",
            runtime_name=self._settings.name,
            runtime_version=self._settings.version,
            runtime_api_version="v1",
        )

    async def _list_sandboxes(self, request: cri.ListPodSandboxRequest) -> cri.ListPodSandboxResponse:
        found = self._runtime.record.sandboxes.values()
        listed = [sandbox for sandbox in found if messages.is_sandbox_listed(sandbox, request.filter)]
        return cri.ListPodSandboxResponse(items=map(messages.sandbox_of, listed))

    async def _list_containers(self, request: cri.ListContainersRequest) -> cri.ListContainersResponse:
        found = self._runtime.record.containers.values()
        listed = [container for container in found if messages.is_listed(container, request.filter)]
        return cri.ListContainersResponse(containers=map(messages.container_of, listed))

    async def _status(self, request: cri.ContainerStatusRequest) -> cri.ContainerStatusResponse:
        container = self._runtime.record.container(request.container_id)
        status = messages.status_of(container, windows=self._settings.windows)
        info = {"info": messages.info_of(container)} if request.verbose else {}
        return cri.ContainerStatusResponse(status=status, info=info)

    async def _update(self, request: cri.UpdateContainerResourcesRequest) -> cri.UpdateContainerResourcesResponse:
        if self._settings.windows:
            self._runtime.set_affinity(request.container_id, messages.affinity_of(request.windows))
        else:
            await self._runtime.update_container(request.container_id, messages.spec_of(request.linux))
        return cri.UpdateContainerResourcesResponse()

    async def _watch(self, _: bytes) -> AsyncIterator[bytes]:
        """Yield the events from now on."""
        watcher: asyncio.Queue[bytes] = asyncio.Queue()
        self._watchers.add(watcher)
        self._note("GetContainerEvents")
        try:
            while True:
                yield await watcher.get()
        finally:
            self._watchers.discard(watcher)


def _bound(path: str) -> socket.socket:
    Path(path).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    return listener
