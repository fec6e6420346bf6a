"""The kubelet's PodResources API v1: which CPUs belong to which pod and container, for agents on the node.

Only exclusive CPUs are listed; pinfold does not manage devices, memory and claims.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

from pinfold.core.pods.pod import exclusive_cpus
from pinfold.grpc.errors import CallError, Code
from pinfold.proto import podresources_pb2 as pb
from pinfold.serve.http.limits import Buckets, Rate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from google.protobuf.message import Message

    from pinfold.core.pods.pod import Container, Pod
    from pinfold.core.snapshot import Snapshot
    from pinfold.core.state import State

    Method = Callable[[bytes], bytes]

SERVICE: Final = "v1.PodResourcesLister"
RATE: Final = Rate(100.0, 200)
"""How many calls are answered, for all clients together; the kubelet answers 100 a second, too."""


class PodResourcesService:
    """Answers the three calls; *read* returns a Snapshot of the node."""

    def __init__(self, read: Callable[[], Snapshot]) -> None:
        self._read = read

    @property
    def methods(self) -> Mapping[str, Method]:
        """The calls by their full names, for a server."""
        return {
            f"/{SERVICE}/List": self.list_pods,
            f"/{SERVICE}/GetAllocatableResources": self.get_allocatable,
            f"/{SERVICE}/Get": self.get_pod,
        }

    def list_pods(self, request: bytes) -> bytes:
        """Return all pods."""
        _parse("List", request, pb.ListPodResourcesRequest())
        node = self._read()
        found = [_pod_resources(pod, node.state) for pod in node.pods]
        return pb.ListPodResourcesResponse(pod_resources=found).SerializeToString()

    def get_allocatable(self, request: bytes) -> bytes:
        """Return the CPUs that can be exclusive at the same time, whether they are or not."""
        _parse("GetAllocatableResources", request, pb.AllocatableResourcesRequest())
        return pb.AllocatableResourcesResponse(cpu_ids=list(self._read().policy.pools.offered)).SerializeToString()

    def get_pod(self, request: bytes) -> bytes:
        """Return one pod, by its name and namespace."""
        wanted = pb.GetPodResourcesRequest()
        _parse("Get", request, wanted)
        node = self._read()
        for pod in node.pods:
            if (pod.name, pod.namespace) == (wanted.pod_name, wanted.pod_namespace):
                found = _pod_resources(pod, node.state)
                return pb.GetPodResourcesResponse(pod_resources=found).SerializeToString()
        said = f"pod {wanted.pod_name} in namespace {wanted.pod_namespace} not found"
        raise CallError("Get", Code.NOT_FOUND, said)


def limited(methods: Mapping[str, Method], rate: Rate = RATE) -> Mapping[str, Method]:
    """Return *methods* so that together they answer no faster than *rate*, and refuse the other calls."""
    buckets = Buckets(rate)

    def limit(name: str, method: Method) -> Method:
        def call(request: bytes) -> bytes:
            if buckets.take("", asyncio.get_running_loop().time()):
                raise CallError(name, Code.RESOURCE_EXHAUSTED, "too many calls; try again in a moment")
            return method(request)

        return call

    return {name: limit(name, method) for name, method in methods.items()}


def _parse(method: str, request: bytes, into: Message) -> None:
    try:
        into.ParseFromString(request)
    except DecodeError as error:
        # As the reference's server answers what it cannot read.
        raise CallError(method, Code.INTERNAL, f"the request is not a {into.DESCRIPTOR.name}") from error


def _pod_resources(pod: Pod, state: State) -> pb.PodResources:
    # An init container that has ended holds nothing any more; one that keeps running is listed as the others are.
    lasting = [container for container in pod.init if container.sidecar]
    whole = state.pods.get(pod.uid)
    return pb.PodResources(
        name=pod.name,
        namespace=pod.namespace,
        containers=[
            pb.ContainerResources(name=container.name, cpu_ids=_cpus(pod, container, state))
            for container in (*lasting, *pod.containers)
        ],
        cpu_ids=() if whole is None else list(whole),
    )


def _cpus(pod: Pod, container: Container, state: State) -> list[int]:
    cpus = state.cpus(pod.uid, container.name)
    # In a pod that has CPUs as a whole, containers without a part of their own are on what is left of them.
    shares = pod.uid in state.pods and not exclusive_cpus(pod, container, pod_level=True)
    return [] if cpus is None or shares else list(cpus)
