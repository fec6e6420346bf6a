"""PodResources of a running daemon: what the API says, over gRPC."""

from __future__ import annotations

import asyncio
import signal
import socket
from typing import TYPE_CHECKING, Any

import pytest
from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from pinfold.core.machine.cpuset import CPUSet
from pinfold.proto import podresources_pb2 as pb
from tests.e2e.api.client import Web, simulated
from tests.e2e.daemon import PATIENCE, container, pod

if TYPE_CHECKING:
    from pathlib import Path

    from google.protobuf.message import Message

    from tests.e2e.api.client import Data


class Lister:
    """A gRPC client of PodResources."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def call(self, name: str, request: Message, reply: type[Message]) -> Any:  # noqa: ANN401 - any message
        async def ask() -> Message:
            channel = Channel(path=str(self._path))
            method = UnaryUnaryMethod(channel, f"/v1.PodResourcesLister/{name}", type(request), reply)
            try:
                return await method(request, timeout=PATIENCE)
            finally:
                channel.close()

        return asyncio.run(ask())

    def pods(self) -> Data:
        answer = self.call("List", pb.ListPodResourcesRequest(), pb.ListPodResourcesResponse)
        return {
            f"{one.namespace}/{one.name}": {each.name: str(CPUSet.from_cpus(each.cpu_ids)) for each in one.containers}
            for one in answer.pod_resources
        }


def test_pod_resources_are_those_of_the_api_while_pods_come_and_go() -> None:
    with simulated() as daemon:
        path = daemon.place.directory / "kubelet" / "pr.sock"
        web = Web(daemon.start("--pod-resources-socket", str(path)))
        lister = Lister(path)
        assert lister.pods() == {}
        daemon.apply(pod("web", container(cpus=4), container(name="log", cpus=1)), pod("db"))
        rows = {(row["pod"], row["container"]): row["cpus"] for row in web.get("containers") if row["exclusive"]}
        web_cpus = {"app": rows["web", "app"], "log": rows["web", "log"]}
        assert lister.pods() == {"default/web": web_cpus, "default/db": {"app": ""}}
        found = lister.call("Get", _named("web"), pb.GetPodResourcesResponse).pod_resources
        assert {each.name: str(CPUSet.from_cpus(each.cpu_ids)) for each in found.containers} == web_cpus
        allocatable = lister.call(
            "GetAllocatableResources", pb.AllocatableResourcesRequest(), pb.AllocatableResourcesResponse
        )
        pools = {name: CPUSet.parse(text) for name, text in web.get("pools").items()}
        assert CPUSet.from_cpus(allocatable.cpu_ids) == pools["online"] - pools["reserved"]
        daemon.delete("web")
        assert lister.pods() == {"default/db": {"app": ""}}
        with pytest.raises(GRPCError) as caught:
            lister.call("Get", _named("web"), pb.GetPodResourcesResponse)
        assert caught.value.status is Status.NOT_FOUND


def _named(name: str) -> pb.GetPodResourcesRequest:
    return pb.GetPodResourcesRequest(pod_name=name, pod_namespace="default")


def test_pod_resources_come_back_with_the_daemon_and_go_with_it() -> None:
    with simulated() as daemon:
        path = daemon.place.directory / "pr.sock"
        daemon.start("--pod-resources-socket", str(path))
        daemon.apply(pod("web", container(cpus=2)))
        before = Lister(path).pods()
        assert path.stat().st_mode & 0o777 == 0o600
        daemon.restart("--pod-resources-socket", str(path))  # killed: its socket is left behind
        assert Lister(path).pods() == before
        assert daemon.kill(signal.SIGTERM) == 0
        assert not path.exists()


def test_the_socket_of_a_kubelet_is_left_alone() -> None:
    with simulated() as daemon, socket.socket(socket.AF_UNIX) as kubelet, socket.socket(socket.AF_UNIX) as client:
        path = daemon.place.directory / "kubelet.sock"
        kubelet.bind(str(path))
        kubelet.listen()
        ended = daemon.try_to_start("--pod-resources-socket", str(path))
        assert (ended.returncode, ended.stdout) == (5, "")
        assert f"--pod-resources-socket: {path} is in use by" in ended.stderr
        assert not daemon.socket.exists()
        client.connect(str(path))
