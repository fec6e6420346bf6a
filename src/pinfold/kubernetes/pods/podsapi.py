"""The kubelet's Pods API: its pods over gRPC, on a unix socket in its directory that only root can use."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from google.protobuf.message import DecodeError, Message

from pinfold.errors import ParseError
from pinfold.formats.pods.manifest import read_object
from pinfold.formats.pods.runtime import told_uid
from pinfold.grpc.client import Channel
from pinfold.grpc.errors import CallError, Code
from pinfold.kubernetes.pods.base import PodChange
from pinfold.proto import podsapi_pb2 as api

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from pinfold.core.pods.pod import Pod
    from pinfold.formats.pods.runtime import RuntimePod
    from pinfold.kubernetes.pods.base import Found

_M = TypeVar("_M", bound=Message)
SOCKET: Final = "pods-api/pods-api.sock"
_SERVICE: Final = "/v1alpha1.Pods/"


class PodsAPI:
    """Asks the kubelet on a unix socket."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        self._channel = Channel(str(path))

    def is_there(self) -> bool:
        """Return whether the socket exists."""
        return self._path.exists()

    async def find(self, pods: Sequence[RuntimePod]) -> Found:
        """Return those of *pods* that the kubelet knows."""
        found = await asyncio.gather(*map(self._get, pods))
        return {pod.id: known for pod, known in zip(pods, found, strict=True) if known is not None}

    async def changes(self) -> AsyncIterator[PodChange | None]:
        """Yield all pods, and then the changes."""
        async with self._channel.stream(f"{_SERVICE}WatchPods", b"") as messages:
            yield None
            async for message in messages:
                event = _parse(api.WatchPodsEvent, message)
                if event.type in {api.ADDED, api.MODIFIED, api.DELETED}:
                    yield _change(_parse(api.Pod, event.pod), gone=event.type == api.DELETED)

    async def _get(self, pod: RuntimePod) -> Pod | None:
        request = api.GetPodRequest(podUID=told_uid(pod)).SerializeToString()
        try:
            answer = await self._channel.call(f"{_SERVICE}GetPod", request)
        except CallError as error:
            if error.code is Code.NOT_FOUND:
                return None
            raise
        return _pod_of(_parse(api.Pod, _parse(api.GetPodResponse, answer).pod))


def _parse(kind: type[_M], data: bytes) -> _M:
    try:
        message: _M = kind.FromString(data)
    except (DecodeError, ValueError, RecursionError) as error:
        raise ParseError(f"{len(data):,} bytes that are not a {kind.__name__} of the Pods API") from error
    return message


def _change(pod: api.Pod, *, gone: bool) -> PodChange:
    """Return a change; a pod that cannot be read counts as unknown, and `find` says why when it is asked."""
    known = None
    with suppress(ParseError):
        known = None if gone else _pod_of(pod)
    return PodChange(pod.metadata.uid, known)


def _pod_of(pod: api.Pod) -> Pod | None:
    """Return the pod that a message describes; None if it has ended."""
    metadata = pod.metadata
    owners = [{"kind": one.kind, "name": one.name, "controller": one.controller} for one in metadata.ownerReferences]
    spec: dict[str, object] = {
        "initContainers": [_container(container) for container in pod.spec.initContainers],
        "containers": [_container(container) for container in pod.spec.containers],
    }
    if pod.spec.HasField("resources"):
        spec["resources"] = _resources(pod.spec.resources)
    document = {
        "metadata": {
            "name": metadata.name,
            "namespace": metadata.namespace,
            "uid": metadata.uid,
            "annotations": dict(metadata.annotations),
            "ownerReferences": owners,
        },
        "spec": spec,
        "status": {"phase": pod.status.phase},
    }
    return read_object(document, source="Pods API")


def _container(container: api.Container) -> dict[str, object]:
    document: dict[str, object] = {"name": container.name, "resources": _resources(container.resources)}
    return document | ({"restartPolicy": container.restartPolicy} if container.restartPolicy else {})


def _resources(resources: api.ResourceRequirements) -> dict[str, dict[str, str]]:
    """Return the amounts of CPU and memory: pinfold reads no others."""
    both = {"limits": resources.limits, "requests": resources.requests}
    return {
        which: {name: amounts[name].string for name in ("cpu", "memory") if name in amounts}
        for which, amounts in both.items()
    }
