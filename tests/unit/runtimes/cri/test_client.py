"""The CRI client against a runtime service on a unix socket; tests/unit/grpc has what can go wrong with gRPC."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from pinfold.core.machine.cpuset import CPUSet
from pinfold.errors import ParseError
from pinfold.formats.pods.runtime import Phase, build_pod
from pinfold.grpc.errors import CallError, Code, Unimplemented
from pinfold.proto import cri_pb2 as cri
from pinfold.runtimes.base import ApplyError
from pinfold.runtimes.cri.client import ContainerEvent, CRIClient, Happening, Version
from tests.unit.grpc import ends

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from google.protobuf.message import Message

    from pinfold.grpc.server import Method

SERVICE = "/runtime.v1.RuntimeService/"
UID = "7b1e8d5c-2f4a-4c8e-9d3b-5a6f7e8d9c0b"

INFO: dict[str, object] = {
    "sandboxID": "s1",
    "pid": 42,
    "runtimeSpec": {
        "linux": {
            "cgroupsPath": f"/kubepods/pod{UID}/c1",
            "resources": {"cpu": {"shares": 2048, "quota": 200_000, "period": 100_000, "cpus": "0-3"}},
        }
    },
}


def handler(kind: type[Message], answer: Callable[[Any], Message]) -> Method:
    def call(data: bytes) -> bytes:
        request = kind()
        request.ParseFromString(data)
        return answer(request).SerializeToString()

    return call


class FakeRuntime:
    """A runtime service with one pod and one container; what it is told to do, it remembers."""

    def __init__(self) -> None:
        self.info: dict[str, str] = {"info": json.dumps(INFO)}
        self.updates: list[cri.UpdateContainerResourcesRequest] = []
        self.events: asyncio.Queue[cri.ContainerEventResponse | None] = asyncio.Queue()

    def methods(self) -> dict[str, Method]:
        return {
            f"{SERVICE}Version": handler(cri.VersionRequest, self.version),
            f"{SERVICE}ListPodSandbox": handler(cri.ListPodSandboxRequest, self.list_pods),
            f"{SERVICE}ListContainers": handler(cri.ListContainersRequest, self.list_containers),
            f"{SERVICE}ContainerStatus": handler(cri.ContainerStatusRequest, self.status),
            f"{SERVICE}UpdateContainerResources": handler(cri.UpdateContainerResourcesRequest, self.update),
        }

    def version(self, _: object) -> cri.VersionResponse:
        return cri.VersionResponse(version="0.1.0", runtime_name="fake", runtime_version="1.2")

    def list_pods(self, _: object) -> cri.ListPodSandboxResponse:
        metadata = cri.PodSandboxMetadata(name="web", uid=UID, namespace="prod")
        labels = {"io.kubernetes.pod.uid": UID}
        return cri.ListPodSandboxResponse(items=[cri.PodSandbox(id="s1", metadata=metadata, labels=labels)])

    def list_containers(self, request: cri.ListContainersRequest) -> cri.ListContainersResponse:
        metadata = cri.ContainerMetadata(name="app", attempt=3)
        one = cri.Container(id="c1", pod_sandbox_id="s1", metadata=metadata, state=cri.CONTAINER_EXITED)
        asked = request.filter.pod_sandbox_id
        return cri.ListContainersResponse(containers=[one] if asked in {"", "s1"} else [])

    def status(self, request: cri.ContainerStatusRequest) -> cri.ContainerStatusResponse:
        if request.container_id != "c1":
            raise CallError("ContainerStatus", Code.NOT_FOUND, f"no container {request.container_id}")
        metadata = cri.ContainerMetadata(name="app")
        linux = cri.LinuxContainerResources(cpu_shares=512, memory_limit_in_bytes=1 << 30)
        status = cri.ContainerStatus(
            id=request.container_id,
            metadata=metadata,
            state=cri.CONTAINER_RUNNING,
            resources=cri.ContainerResources(linux=linux),
        )
        return cri.ContainerStatusResponse(status=status, info=self.info if request.verbose else {})

    def update(self, request: cri.UpdateContainerResourcesRequest) -> cri.UpdateContainerResourcesResponse:
        self.updates.append(request)
        return cri.UpdateContainerResourcesResponse()

    async def watch(self, _: bytes) -> AsyncIterator[bytes]:
        while (event := await self.events.get()) is not None:
            yield event.SerializeToString()


def run(test: Callable[[FakeRuntime, CRIClient], Awaitable[None]], directory: Path, *, events: bool = True) -> None:
    """Run a test with a runtime and a client of it."""

    async def both() -> None:
        runtime = FakeRuntime()
        streams = {f"{SERVICE}GetContainerEvents": runtime.watch} if events else {}
        async with ends.serving(directory, runtime.methods(), streams) as site, CRIClient(site.path) as client:
            await test(runtime, client)

    ends.run(both())


def test_the_version_names_the_runtime(tmp_path: Path) -> None:
    async def test(_: FakeRuntime, client: CRIClient) -> None:
        assert await client.version() == Version("fake", "1.2")

    run(test, tmp_path)


def test_pods_and_containers_are_listed(tmp_path: Path) -> None:
    async def test(_: FakeRuntime, client: CRIClient) -> None:
        [pod] = await client.pods()
        assert (pod.id, pod.uid, pod.name, pod.namespace, pod.ready) == ("s1", UID, "web", "prod", True)
        [container] = await client.containers()
        assert (container.id, container.pod, container.name, container.attempt) == ("c1", "s1", "app", 3)
        assert container.phase is Phase.STOPPED
        assert await client.containers(pod="s2") == []

    run(test, tmp_path)


def test_the_status_has_process_cgroup_and_amounts_and_makes_a_pod(tmp_path: Path) -> None:
    async def test(_: FakeRuntime, client: CRIClient) -> None:
        found = await client.status("c1")
        assert (found.pid, found.cgroups_path, found.pod) == (42, f"/kubepods/pod{UID}/c1", "s1")
        assert (found.shares, found.quota, found.period, found.cpus) == (2048, 200_000, 100_000, "0-3")
        assert found.memory == 1 << 30
        assert found.phase is Phase.RUNNING
        [pod] = await client.pods()
        built = build_pod(pod, [found])
        assert built is not None
        assert built.containers[0].resources.requests.cpu == 2000

    run(test, tmp_path)


def test_an_unknown_container_is_an_error_with_its_code(tmp_path: Path) -> None:
    async def test(_: FakeRuntime, client: CRIClient) -> None:
        with pytest.raises(CallError, match="ContainerStatus: NOT_FOUND: no container c9"):
            await client.status("c9")

    run(test, tmp_path)


def test_standard_fields_stand_in_where_a_runtime_adds_no_json(tmp_path: Path) -> None:
    async def test(runtime: FakeRuntime, client: CRIClient) -> None:
        runtime.info = {}
        found = await client.status("c1")
        assert (found.shares, found.quota, found.pid, found.cgroups_path) == (512, None, 0, "")

    run(test, tmp_path)


@pytest.mark.parametrize(
    ("info", "problem"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 200_000, "not JSON"),
        ("9" * 100_000, "not JSON"),
        ("[]", "a mapping is expected"),
        ('{"pid": "1"}', "pid: a whole number is expected"),
        ('{"pid": true}', "pid: a whole number is expected"),
        ('{"pid": 1.5}', "pid: a whole number is expected"),
        ('{"pid": NaN}', "pid: a whole number is expected"),
        ('{"pid": 99999999999999999999999}', "pid: a whole number is expected"),
        ('{"runtimeSpec": []}', "runtimeSpec: a mapping is expected, not a list"),
        ('{"runtimeSpec": {"linux": {"cgroupsPath": {}}}}', "cgroupsPath: text is expected"),
        ('{"runtimeSpec": {"linux": {"resources": {"cpu": 7}}}}', "cpu: a mapping is expected"),
    ],
    ids=range(13),
)
def test_hostile_json_is_an_error_in_one_line(tmp_path: Path, info: str, problem: str) -> None:
    async def test(runtime: FakeRuntime, client: CRIClient) -> None:
        runtime.info = {"info": info}
        with pytest.raises(ParseError, match=problem) as error:
            await client.status("c1")
        assert 'container "c1": info: ' in str(error.value)
        assert len(str(error.value)) < 400
        assert await client.version()

    run(test, tmp_path)


@pytest.mark.parametrize(
    "info", ["null", "{}", '{"runtimeSpec": null}', '{"runtimeSpec": {"linux": {"resources": {}}}}']
)
def test_json_that_tells_nothing_is_no_error(tmp_path: Path, info: str) -> None:
    async def test(runtime: FakeRuntime, client: CRIClient) -> None:
        runtime.info = {"info": info}
        assert (await client.status("c1")).pid == 0

    run(test, tmp_path)


def test_an_update_changes_what_is_given_and_nothing_else(tmp_path: Path) -> None:
    async def test(runtime: FakeRuntime, client: CRIClient) -> None:
        await client.update("c1", cpus=CPUSet.parse("0,2-3"), mems=CPUSet.parse("1"), quota=-1)
        await client.update("c2", quota=50_000)
        first, second = runtime.updates
        assert first.container_id == "c1"
        assert first.linux == cri.LinuxContainerResources(cpuset_cpus="0,2-3", cpuset_mems="1", cpu_quota=-1)
        assert second.linux == cri.LinuxContainerResources(cpu_quota=50_000)
        assert not first.HasField("windows")

    run(test, tmp_path)


def test_an_update_to_no_cpus_is_refused_since_runtimes_would_ignore_it(tmp_path: Path) -> None:
    async def test(runtime: FakeRuntime, client: CRIClient) -> None:
        with pytest.raises(ApplyError, match="an empty set would leave its CPUs as they are"):
            await client.update("c1", cpus=CPUSet.parse(""))
        with pytest.raises(ApplyError, match="an empty set"):
            await client.update_windows("c1", CPUSet.parse(""))
        assert not runtime.updates

    run(test, tmp_path)


def test_windows_cpus_are_set_by_processor_group(tmp_path: Path) -> None:
    async def test(runtime: FakeRuntime, client: CRIClient) -> None:
        await client.update_windows("c1", CPUSet.parse("0-2,63,64,98"), sizes=[64, 35])
        [update] = runtime.updates
        affinities = [(group.cpu_group, group.cpu_mask) for group in update.windows.affinity_cpus]
        assert affinities == [(0, 0b111 | 1 << 63), (1, 1 | 1 << 34)]
        assert not update.HasField("linux")
        with pytest.raises(ParseError, match="no processor group has CPUs 99"):
            await client.update_windows("c1", CPUSet.parse("99"), sizes=[64, 35])

    run(test, tmp_path)


def event(kind: cri.ContainerEventType, container: str = "c1") -> cri.ContainerEventResponse:
    pod = cri.PodSandboxStatus(id="s1")
    return cri.ContainerEventResponse(container_id=container, container_event_type=kind, pod_sandbox_status=pod)


def test_events_come_as_they_happen(tmp_path: Path) -> None:
    async def test(runtime: FakeRuntime, client: CRIClient) -> None:
        async with client.events() as events:
            runtime.events.put_nowait(event(cri.CONTAINER_CREATED_EVENT))
            assert await anext(events) == ContainerEvent(Happening.CREATED, "c1", "s1")
            for kind in (cri.CONTAINER_STARTED_EVENT, cri.CONTAINER_STOPPED_EVENT, cri.CONTAINER_DELETED_EVENT):
                runtime.events.put_nowait(event(kind))
            runtime.events.put_nowait(None)
            assert [one.what.value async for one in events] == ["started", "stopped", "deleted"]

    run(test, tmp_path)


def test_a_runtime_without_events_says_so(tmp_path: Path) -> None:
    async def test(_: FakeRuntime, client: CRIClient) -> None:
        async with client.events() as events:
            with pytest.raises(Unimplemented):
                await anext(events)
        assert await client.version()

    run(test, tmp_path, events=False)


def test_an_answer_that_is_no_message_of_cri_is_an_error_of_ours(tmp_path: Path) -> None:
    async def test() -> None:
        methods: dict[str, Method] = {f"{SERVICE}Version": lambda _: b"\xff\xff"}
        async with ends.serving(tmp_path, methods) as site, CRIClient(site.path) as client:
            with pytest.raises(CallError, match="Version: INTERNAL: the answer is not a message of CRI v1"):
                await client.version()

    ends.run(test())
