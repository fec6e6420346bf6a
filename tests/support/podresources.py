"""A stand-in for the kubelet's PodResources API: it gives containers the devices and memory of a test."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from google.protobuf.json_format import Parse

from pinfold.grpc.server import GRPCServer
from pinfold.proto import podresources_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

RECORDED = {
    "name": "device",
    "namespace": "default",
    "containers": [
        {
            "name": "main",
            "devices": [{"resourceName": "example.com/nic", "deviceIds": ["nic3"], "topology": {"nodes": [{}]}}],
            "cpuIds": ["1"],
            "memory": [{"memoryType": "memory", "size": "67108864", "topology": {"nodes": [{}]}}],
        }
    ],
}
"""What a kubelet answered for a pod with a device, while its first container came; node 0 is an empty message."""


class PodResourcesAPI:
    """The answers of a kubelet, by pod."""

    def __init__(self) -> None:
        self.pods: dict[str, pb.PodResources] = {}
        self.asked = 0
        self.hangs = False
        self.garbage = b""

    @asynccontextmanager
    async def serving(self, path: Path) -> AsyncIterator[PodResourcesAPI]:
        """Serve on a unix socket."""
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen()
        server = GRPCServer({"/v1.PodResourcesLister/List": self._list})
        await server.start(listener)
        try:
            yield self
        finally:
            await server.close()
            path.unlink()  # noqa: ASYNC240 - a socket of a test

    def put(self, pod: object) -> None:
        """Let a pod come, as its answer in JSON."""
        read = Parse(json.dumps(pod), pb.PodResources())
        self.pods[read.name] = read

    def give(self, pod: str, container: str, resource: str, *nodes: int, memory: bool = False) -> None:
        """Give a container a device at these NUMA nodes, or memory."""
        found = self.pods.setdefault(pod, pb.PodResources(name=pod, namespace="default"))
        names = [one.name for one in found.containers]
        place = found.containers[names.index(container)] if container in names else found.containers.add(name=container)
        topology = pb.TopologyInfo(nodes=[pb.NUMANode(ID=node) for node in nodes])
        if memory:
            place.memory.add(memory_type=resource, size=1 << 30, topology=topology)
        else:
            place.devices.add(resource_name=resource, device_ids=["x"], topology=topology)

    async def _list(self, _request: bytes) -> bytes:
        self.asked += 1
        if self.hangs:
            await asyncio.sleep(3600)
        return self.garbage or pb.ListPodResourcesResponse(pod_resources=self.pods.values()).SerializeToString()
