"""Answers a container runtime's NRI requests to its plugin: serialized requests in, serialized responses out.

A Handler decides the answers. Every request gets an answer: the runtime drops a plugin that gives none, and then
creates containers without asking. The requests of one pod are handled one after another, in the order of their arrival,
also while a handler waits. Knows no sockets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from google.protobuf.message import DecodeError, Message

from pinfold.errors import PinfoldError, excerpt
from pinfold.formats.wire.ttrpc import MOST_BODY
from pinfold.proto import nri_pb2 as nri
from pinfold.proto import ttrpc_pb2 as envelope

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_T = TypeVar("_T")
_M = TypeVar("_M", bound=Message)
Later: TypeAlias = _T | Awaitable[_T]
Updates: TypeAlias = Iterable[nri.ContainerUpdate]
Creation: TypeAlias = tuple[nri.ContainerAdjustment | None, Updates]
Failed: TypeAlias = "Callable[[str, Exception], object]"
"""Called with the method and the error when a handler raises an unexpected error."""

SERVICE: Final = "nri.pkg.api.v1alpha1.Plugin"
EVENTS: Final[Mapping[str, int]] = {
    "RunPodSandbox": nri.RUN_POD_SANDBOX,
    "StopPodSandbox": nri.STOP_POD_SANDBOX,
    "RemovePodSandbox": nri.REMOVE_POD_SANDBOX,
    "CreateContainer": nri.CREATE_CONTAINER,
    "StartContainer": nri.START_CONTAINER,
    "PostStartContainer": nri.POST_START_CONTAINER,
    "UpdateContainer": nri.UPDATE_CONTAINER,
    "StopContainer": nri.STOP_CONTAINER,
    "RemoveContainer": nri.REMOVE_CONTAINER,
}
"""The events that a Handler has methods for. Each event costs a round trip, so pinfold subscribes to no others."""

_MOST_SYNCHRONIZED: Final = 64 << 20
_LONGEST_LINE: Final = 1000

_INVALID_ARGUMENT: Final = 3
_RESOURCE_EXHAUSTED: Final = 8
_FAILED_PRECONDITION: Final = 9
_UNIMPLEMENTED: Final = 12
_INTERNAL: Final = 13


class Handler(Protocol):
    """Decides the answers to the runtime. Methods may be coroutines; a PinfoldError becomes an error reply.

    An error in `create` or `start` makes the runtime's own call fail: the container is not created, or does not start.
    No method may wait for a call to the runtime: the runtime is waiting for the answer, and after its time limit it
    goes on without one.
    """

    def synchronize(self, pods: Sequence[nri.PodSandbox], containers: Sequence[nri.Container], /) -> Later[Updates]:
        """Record all that runs, and return the updates to it. Called once for each connection."""

    def create(self, pod: nri.PodSandbox, container: nri.Container, /) -> Later[Creation]:
        """Return the changes to the container, which does not exist yet, and to others before it is created."""

    def start(self, pod: nri.PodSandbox, container: nri.Container, /) -> Later[None]:
        """Check the container: it has a pid, and has not run an instruction of its own."""

    def post_start(self, pod: nri.PodSandbox, container: nri.Container, /) -> Later[None]:
        """Check the container: it runs."""

    def update(self, pod: nri.PodSandbox, container: nri.Container, wanted: nri.LinuxResources, /) -> Later[Updates]:
        """Return the changes after another program *wanted* other resources; they override its values."""

    def stop(self, pod: nri.PodSandbox, container: nri.Container, /) -> Later[Updates]:
        """Return the changes to others after the container stopped."""

    def remove(self, pod: nri.PodSandbox, container: nri.Container, /) -> Later[None]:
        """Forget the container."""

    def run_pod(self, pod: nri.PodSandbox, /) -> Later[None]:
        """Record a pod that is about to have containers."""

    def stop_pod(self, pod: nri.PodSandbox, /) -> Later[None]:
        """Record that all of a pod's containers have stopped."""

    def remove_pod(self, pod: nri.PodSandbox, /) -> Later[None]:
        """Forget the pod."""


class RequestError(PinfoldError):
    """A request that cannot be answered; *code* is gRPC's."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Dispatcher:
    """Answers the requests of one connection.

    `runtime`, `configured`, `synchronized` and `over` hold what the runtime has sent so far.
    """

    def __init__(self, handler: Handler, mask: int, failed: Failed) -> None:
        self._handler = handler
        self._mask = mask
        self._failed = failed
        self._pieces: list[nri.SynchronizeRequest] = []
        self._size = 0
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Held by the request of a pod that is being handled; there for as long as requests of the pod are."""
        self.runtime = ""
        self.configured = self.synchronized = self.over = False
        self._methods: dict[str, Callable[[bytes], Awaitable[Message]]] = {
            "Configure": self._configure,
            "Synchronize": self._synchronize,
            "CreateContainer": self._create,
            "UpdateContainer": self._update,
            "StopContainer": self._stop,
            "StateChange": self._state_change,
            "Shutdown": self._shutdown,
        }
        self._events: dict[int, Callable[[nri.PodSandbox, nri.Container], Later[None]]] = {
            nri.RUN_POD_SANDBOX: lambda pod, _: handler.run_pod(pod),
            nri.STOP_POD_SANDBOX: lambda pod, _: handler.stop_pod(pod),
            nri.REMOVE_POD_SANDBOX: lambda pod, _: handler.remove_pod(pod),
            nri.START_CONTAINER: handler.start,
            nri.POST_START_CONTAINER: handler.post_start,
            nri.REMOVE_CONTAINER: handler.remove,
        }

    async def answer(self, body: bytes) -> bytes:
        """Return the Response to a Request, both serialized."""
        method = ""
        try:
            request = parse(envelope.Request, body)
            method = line(request.method)
            response = await self._respond(request)
        except RequestError as error:
            response = _error(error.code, str(error))
        except PinfoldError as error:
            response = _error(_FAILED_PRECONDITION, str(error))
        except Exception as error:  # noqa: BLE001 - a bug must not drop the plugin: containers would be created unasked
            self._failed(method, error)
            response = _error(_INTERNAL, f"{method}: internal error ({type(error).__name__})")
        return bytes(response.SerializeToString())

    async def _respond(self, request: envelope.Request) -> envelope.Response:
        if request.service != SERVICE:
            raise RequestError(_UNIMPLEMENTED, f"no service {excerpt(request.service)}; this is {SERVICE}")
        if method := self._methods.get(request.method):
            message = await method(request.payload)
        elif event := EVENTS.get(request.method):
            message = await self._event(event, parse(nri.ContainerRequest, request.payload))
        else:
            # NRI 0.12 falls back to StateChange for a method that a plugin does not have.
            raise RequestError(_UNIMPLEMENTED, f"no method {excerpt(request.method)}")
        response = envelope.Response(payload=message.SerializeToString())
        if response.ByteSize() > MOST_BODY:
            raise RequestError(_RESOURCE_EXHAUSTED, f"an answer of {response.ByteSize():,} bytes is too long to send")
        return response

    async def _configure(self, payload: bytes) -> Message:
        request = parse(nri.ConfigureRequest, payload)
        self.runtime = line(f"{request.runtime_name} {request.runtime_version}")
        self.configured = True
        return nri.ConfigureResponse(events=self._mask)

    async def _synchronize(self, payload: bytes) -> Message:
        request = parse(nri.SynchronizeRequest, payload)
        if request.more:
            self._keep(request, len(payload))
            return nri.SynchronizeResponse(more=True)
        pieces = [*self._pieces, request]
        self._forget()
        pods = [pod for piece in pieces for pod in piece.pods]
        containers = [container for piece in pieces for container in piece.containers]
        updates = await _decided(self._handler.synchronize(pods, containers))
        response = nri.SynchronizeResponse(update=updates)
        self.synchronized = True
        return response

    def _keep(self, piece: nri.SynchronizeRequest, size: int) -> None:
        self._pieces.append(piece)
        self._size += size
        if self._size > _MOST_SYNCHRONIZED:
            self._forget()
            raise RequestError(_RESOURCE_EXHAUSTED, f"Synchronize of more than {_MOST_SYNCHRONIZED:,} bytes")

    def _forget(self) -> None:
        self._pieces = []
        self._size = 0

    async def _create(self, payload: bytes) -> Message:
        request = parse(nri.ContainerRequest, payload)
        pod, container = request.pod, request.container
        adjustment, updates = await self._in_turn(pod, lambda: self._handler.create(pod, container))
        return nri.CreateContainerResponse(adjust=adjustment, update=updates)

    async def _update(self, payload: bytes) -> Message:
        request = parse(nri.UpdateContainerRequest, payload)
        pod, container, wanted = request.pod, request.container, request.linux_resources
        updates = await self._in_turn(pod, lambda: self._handler.update(pod, container, wanted))
        return nri.UpdateContainerResponse(update=updates)

    async def _stop(self, payload: bytes) -> Message:
        request = parse(nri.ContainerRequest, payload)
        updates = await self._in_turn(request.pod, lambda: self._handler.stop(request.pod, request.container))
        return nri.StopContainerResponse(update=updates)

    async def _state_change(self, payload: bytes) -> Message:
        request = parse(nri.StateChangeEvent, payload)
        return await self._event(request.event, request)

    async def _event(self, event: int, about: nri.ContainerRequest | nri.StateChangeEvent) -> Message:
        if handle := self._events.get(event):
            await self._in_turn(about.pod, lambda: handle(about.pod, about.container))
        return nri.Empty()

    async def _in_turn(self, pod: nri.PodSandbox, decide: Callable[[], Later[_T]]) -> _T:
        """Return what a handler decides, after all earlier requests of the same pod."""
        async with self._turns.setdefault(pod.id, asyncio.Lock()):
            return await _decided(decide())

    async def _shutdown(self, _payload: bytes) -> Message:
        self.over = True
        return nri.Empty()


async def _decided(later: Later[_T]) -> _T:
    return await later if isinstance(later, Awaitable) else later


def parse(kind: type[_M], data: bytes) -> _M:
    """Return the message in *data*."""
    try:
        message: _M = kind.FromString(data)
    # The last two come from protobuf's slower implementation in Python.
    except (DecodeError, ValueError, RecursionError) as error:
        raise RequestError(_INVALID_ARGUMENT, f"{len(data):,} bytes that are not a {kind.__name__}") from error
    return message


def line(text: str) -> str:
    """Return *text* as one line that is not too long and can be encoded."""
    short = text if len(text) <= _LONGEST_LINE else f"{text[:_LONGEST_LINE]}…"
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in short)


def _error(code: int, message: str) -> envelope.Response:
    return envelope.Response(status=envelope.Status(code=code, message=line(message)))
