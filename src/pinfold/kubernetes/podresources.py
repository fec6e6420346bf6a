"""The kubelet's PodResources API: which devices, memory and hugepages it has given to containers, at which NUMA nodes.

It has chosen them before it asks its runtime for the first container of a pod, so they can be hints for the pod's CPUs.
All pods are listed by one call; it takes 2 to 64 ms. A kubelet that does not answer delays no pod for more than a
second, and its pods are decided without these hints.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

from pinfold.core.events.daemon import HintsNotRead
from pinfold.core.topologymanager.others import Held, Holding
from pinfold.errors import ParseError, PinfoldError
from pinfold.formats.pods.runtime import told_uid
from pinfold.grpc.client import Channel
from pinfold.kubernetes.pods.discovery import AUTO, NONE
from pinfold.proto import podresources_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pinfold.core.events import Event
    from pinfold.formats.pods.runtime import RuntimePod

SOCKET: Final = "pod-resources/kubelet.sock"
WITHIN: Final = 1.0
"""Seconds for an answer. Whole pods are asked for at the same time, and have as long."""
_LIST: Final = "/v1.PodResourcesLister/List"
_HIGHEST_NODE: Final = 65535


class PodResources:
    """Asks the kubelet on a unix socket."""

    def __init__(
        self, path: Path, tell: Callable[[Event], object], *, named: bool = False, within: float = WITHIN
    ) -> None:
        """*named*: the user has named the socket, so it is reported also if it is not there."""
        self.path = path
        self._tell = tell
        self._named = named
        self._within = within
        self._channel = Channel(str(path))
        self._problem = ""

    async def find(self, pods: Sequence[RuntimePod]) -> Mapping[str, Held]:
        """Return what the containers of *pods* have, by UID; nothing, and report once why, if there is no answer."""
        if not self._named and not self.path.exists():
            return {}
        try:
            async with asyncio.timeout(self._within):
                answer = await self._channel.call(_LIST, b"")
            found = _read(answer)
        except TimeoutError:
            return self._failed(f"no answer in {self._within:.2g} s")
        except PinfoldError as error:
            return self._failed(str(error))
        self._problem = ""
        return {told_uid(pod): found.get((pod.namespace, pod.name), Held()) for pod in pods}

    def close(self) -> None:
        """End the connection."""
        self._channel.close()

    def _failed(self, why: str) -> Mapping[str, Held]:
        if why != self._problem:
            self._problem = why
            self._tell(HintsNotRead(why if str(self.path) in why else f"{self.path}: {why}"))
        return {}


def pod_resources(where: str, kubelet: Path, tell: Callable[[Event], object]) -> PodResources | None:
    """Return the source of hints that a setting names; *kubelet* is the kubelet's directory. None: there is none."""
    if where == NONE:
        return None
    return PodResources(kubelet / SOCKET, tell) if where == AUTO else PodResources(Path(where), tell, named=True)


def _read(answer: bytes) -> dict[tuple[str, str], Held]:
    """Return what containers have, by the namespace and name of their pod."""
    try:
        pods = pb.ListPodResourcesResponse.FromString(answer).pod_resources
    except (DecodeError, ValueError, RecursionError) as error:
        raise ParseError(f"{len(answer):,} bytes that are not a list of the PodResources API") from error
    return {(pod.namespace, pod.name): _held(pod.containers) for pod in pods}


def _held(containers: Iterable[pb.ContainerResources]) -> Held:
    return Held({one.name: holdings for one in containers if (holdings := (*_devices(one), *_memory(one)))})


def _devices(container: pb.ContainerResources) -> Iterable[Holding]:
    """Return the devices with their NUMA nodes; a device without any is no hint."""
    units: dict[str, list[int]] = {}
    for device in container.devices:
        units.setdefault(device.resource_name, []).append(_nodes(device.topology))
    return [Holding(name, tuple(filter(None, masks))) for name, masks in units.items() if any(masks)]


def _memory(container: pb.ContainerResources) -> Iterable[Holding]:
    """Return memory and hugepages; all blocks of one kind are one hint."""
    units: dict[str, int] = {}
    for block in container.memory:
        units[block.memory_type] = units.get(block.memory_type, 0) | _nodes(block.topology)
    return [Holding(name, (mask,), together=True) for name, mask in units.items() if mask]


def _nodes(topology: pb.TopologyInfo) -> int:
    mask = 0
    for node in topology.nodes:
        if 0 <= node.ID <= _HIGHEST_NODE:
            mask |= 1 << node.ID
    return mask
