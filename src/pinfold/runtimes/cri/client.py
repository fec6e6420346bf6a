"""A client of the CRI runtime service (v1): lists pods and containers, and updates containers.

Turns messages into the values of `formats/kubepods`; decides nothing. Imported only where a runtime is really asked: it
imports h2 and protobuf.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeVar

from google.protobuf.message import DecodeError

from pinfold.core.machine.processorgroups import affinities_of
from pinfold.errors import ParseError, excerpt
from pinfold.formats.wire.criinfo import Info, parse_info
from pinfold.grpc.client import DEADLINE, Channel
from pinfold.grpc.errors import CallError, Code
from pinfold.proto import cri_pb2 as cri
from pinfold.runtimes.base import ApplyError
from pinfold.runtimes.cri.messages import container_of, pod_of, status_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from types import TracebackType

    from google.protobuf.message import Message

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.formats.pods.runtime import RuntimeContainer, RuntimePod

_SERVICE: Final = "/runtime.v1.RuntimeService/"
_Answer = TypeVar("_Answer", bound="Message")


class Version(NamedTuple):
    """The name and version of a container runtime."""

    name: str
    version: str


class Happening(StrEnum):
    """The kinds of container events."""

    CREATED = "created"
    STARTED = "started"
    STOPPED = "stopped"
    DELETED = "deleted"


class ContainerEvent(NamedTuple):
    """An event of a container, or of a pod's sandbox: then the container's id is the pod's."""

    what: Happening
    container: str
    pod: str


_HAPPENINGS: Final = {
    cri.CONTAINER_CREATED_EVENT: Happening.CREATED,
    cri.CONTAINER_STARTED_EVENT: Happening.STARTED,
    cri.CONTAINER_STOPPED_EVENT: Happening.STOPPED,
    cri.CONTAINER_DELETED_EVENT: Happening.DELETED,
}


class CRIClient:
    """Asks a container runtime on a unix socket; every call ends within the deadline (seconds).

    Raises RuntimeUnavailable where there is no answer, CallError where the answer is an error (Unimplemented where the
    runtime is too old for the call), ParseError where the answer is invalid.
    """

    def __init__(self, path: str, *, deadline: float = DEADLINE) -> None:
        self.path = path
        self._channel = Channel(path, deadline=deadline)

    def is_there(self) -> bool:
        """Return whether the socket exists."""
        return Path(self.path).exists()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; a later call makes a new one."""
        self._channel.close()

    async def version(self) -> Version:
        """Return the runtime's name and version."""
        answer = await self._call("Version", cri.VersionRequest(), cri.VersionResponse)
        return Version(answer.runtime_name, answer.runtime_version)

    async def pods(self) -> list[RuntimePod]:
        """Return all pods; CRI does not list their cgroups, only a container's status has them."""
        answer = await self._call("ListPodSandbox", cri.ListPodSandboxRequest(), cri.ListPodSandboxResponse)
        return [pod_of(item) for item in answer.items]

    async def containers(self, pod: str = "") -> list[RuntimeContainer]:
        """Return all containers, or those of one pod, also those that have ended; their amounts are not listed."""
        request = cri.ListContainersRequest(filter=cri.ContainerFilter(pod_sandbox_id=pod) if pod else None)
        answer = await self._call("ListContainers", request, cri.ListContainersResponse)
        return [container_of(item) for item in answer.containers]

    async def status(self, container: str) -> RuntimeContainer:
        """Return all that the runtime knows of a container, with its process, its cgroup and its amounts."""
        request = cri.ContainerStatusRequest(container_id=container, verbose=True)
        answer = await self._call("ContainerStatus", request, cri.ContainerStatusResponse)
        try:
            info = parse_info(answer.info["info"]) if "info" in answer.info else Info()
        except ParseError as error:
            raise error.within(f"{self.path}: container {excerpt(container)}") from error
        return status_of(answer.status, info)

    async def update(
        self, container: str, *, cpus: CPUSet | None = None, mems: CPUSet | None = None, quota: int = 0
    ) -> None:
        """Change only the values that are given; quota -1 lifts it. If the kernel refuses, raise a CallError."""
        if (cpus is not None and not cpus) or (mems is not None and not mems):
            raise ApplyError(f"container {excerpt(container)}: an empty set would leave its CPUs as they are")
        resources = cri.LinuxContainerResources(
            cpuset_cpus=str(cpus or ""), cpuset_mems=str(mems or ""), cpu_quota=quota
        )
        await self._update(cri.UpdateContainerResourcesRequest(container_id=container, linux=resources))

    async def update_windows(self, container: str, cpus: CPUSet, sizes: Sequence[int] | None = None) -> None:
        """Set the CPUs of a Windows container; *sizes* are those of the node's processor groups, where known."""
        if not cpus:
            raise ApplyError(f"container {excerpt(container)}: an empty set would leave its CPUs as they are")
        groups = [
            cri.WindowsCpuGroupAffinity(cpu_mask=mask, cpu_group=group) for mask, group in affinities_of(cpus, sizes)
        ]
        resources = cri.WindowsContainerResources(affinity_cpus=groups)
        await self._update(cri.UpdateContainerResourcesRequest(container_id=container, windows=resources))

    @asynccontextmanager
    async def events(self) -> AsyncIterator[AsyncIterator[ContainerEvent]]:
        """Watch containers for as long as the block lasts; reading raises Unimplemented where one has to poll.

        Earlier events are not sent: list after entering the block. containerd 1.7 sends each event to only one
        watcher, so poll now and then as well.
        """
        async with self._channel.stream(f"{_SERVICE}GetContainerEvents", b"") as messages:
            yield self._events(messages)

    async def _events(self, messages: AsyncIterator[bytes]) -> AsyncIterator[ContainerEvent]:
        async for message in messages:
            event = _decode("GetContainerEvents", message, cri.ContainerEventResponse)
            what = _HAPPENINGS.get(event.container_event_type)
            if what is not None:
                yield ContainerEvent(what, event.container_id, event.pod_sandbox_status.id)

    async def _update(self, request: cri.UpdateContainerResourcesRequest) -> None:
        await self._call("UpdateContainerResources", request, cri.UpdateContainerResourcesResponse)

    async def _call(self, method: str, request: Message, answer: type[_Answer]) -> _Answer:
        return _decode(method, await self._channel.call(_SERVICE + method, request.SerializeToString()), answer)


def _decode(method: str, data: bytes, kind: type[_Answer]) -> _Answer:
    answer = kind()
    try:
        answer.ParseFromString(data)
    except DecodeError as error:
        raise CallError(method, Code.INTERNAL, "the answer is not a message of CRI v1") from error
    return answer
