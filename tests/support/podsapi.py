"""A stand-in for the kubelet's Pods API: it knows the pods that it is given, and reports changes to those who watch."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from pinfold.grpc.errors import CallError, Code
from pinfold.grpc.server import GRPCServer
from pinfold.proto import podsapi_pb2 as api

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from pinfold.core.pods.pod import Amounts, Container, Pod, Resources


class PodsAPI:
    """The pods of a kubelet by UID."""

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self.asked: list[str] = []
        """The UIDs of pods that were asked for."""
        self.hangs = False
        self.watches = 0
        self._queues: set[asyncio.Queue[bytes]] = set()

    @asynccontextmanager
    async def serving(self, path: Path) -> AsyncIterator[PodsAPI]:
        """Serve on a unix socket."""
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen()
        server = GRPCServer({"/v1alpha1.Pods/GetPod": self._get}, {"/v1alpha1.Pods/WatchPods": self._watch})
        await server.start(listener)
        try:
            yield self
        finally:
            await server.close()
            path.unlink()  # noqa: ASYNC240 - a socket of a test

    def put(self, pod: Pod) -> None:
        """Let a pod come, or change."""
        kind = api.MODIFIED if pod.uid in self.pods else api.ADDED
        self.pods[pod.uid] = pod
        self._tell(kind, message_of(pod).SerializeToString())

    def remove(self, uid: str) -> None:
        """Let a pod go; as the kubelet does, with its names only."""
        pod = self.pods.pop(uid)
        metadata = api.ObjectMeta(name=pod.name, namespace=pod.namespace, uid=uid)
        self._tell(api.DELETED, api.Pod(metadata=metadata).SerializeToString())

    def _tell(self, kind: api.EventType, pod: bytes) -> None:
        for queue in self._queues:
            queue.put_nowait(api.WatchPodsEvent(type=kind, pod=pod).SerializeToString())

    async def _get(self, request: bytes) -> bytes:
        uid = api.GetPodRequest.FromString(request).podUID
        self.asked.append(uid)
        if self.hangs:
            await asyncio.sleep(3600)
        pod = self.pods.get(uid)
        if pod is None:
            raise CallError("GetPod", Code.NOT_FOUND, "pod not found")
        return api.GetPodResponse(pod=message_of(pod).SerializeToString()).SerializeToString()

    async def _watch(self, _request: bytes) -> AsyncIterator[bytes]:
        self.watches += 1
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._queues.add(queue)
        for pod in self.pods.values():
            yield api.WatchPodsEvent(type=api.ADDED, pod=message_of(pod).SerializeToString()).SerializeToString()
        yield api.WatchPodsEvent(type=api.INITIAL_SYNC_COMPLETE).SerializeToString()
        while True:
            yield await queue.get()


def message_of(pod: Pod) -> api.Pod:
    """Return a pod as the kubelet sends it."""
    spec = api.PodSpec(
        initContainers=[_container(one) for one in pod.init], containers=[_container(one) for one in pod.containers]
    )
    if pod.resources is not None:
        spec.resources.CopyFrom(_resources(pod.resources))
    metadata = api.ObjectMeta(name=pod.name, namespace=pod.namespace, uid=pod.uid, annotations=pod.annotations)
    if pod.owner:
        kind, _, name = pod.owner.partition("/")
        metadata.ownerReferences.add(kind=kind, name=name, controller=True)
    return api.Pod(metadata=metadata, spec=spec, status=api.PodStatus(phase="Pending"))


def _container(container: Container) -> api.Container:
    policy = "Always" if container.sidecar else ""
    return api.Container(name=container.name, resources=_resources(container.resources), restartPolicy=policy)


def _resources(resources: Resources) -> api.ResourceRequirements:
    return api.ResourceRequirements(limits=_amounts(resources.limits), requests=_amounts(resources.requests))


def _amounts(amounts: Amounts) -> dict[str, api.Quantity]:
    texts = {"cpu": amounts.cpu and f"{amounts.cpu}m", "memory": amounts.memory and str(amounts.memory)}
    return {name: api.Quantity(string=text) for name, text in texts.items() if text}
