"""The CRI client against a real gRPC server on a unix socket, and against ends that hang, restart or talk nonsense."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import h2.config
import h2.connection
import pytest
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.server import Server
from hypothesis import given
from hypothesis import strategies as st

from pinfold.core.cpuset import CPUSet
from pinfold.errors import ParseError, PinfoldError, RuntimeUnavailable
from pinfold.formats.kubepods import Phase, build_pod
from pinfold.grpc.client import ClientLink
from pinfold.grpc.errors import CallError, Code, Unimplemented
from pinfold.proto import cri_pb2 as cri
from pinfold.runtimes.base import ApplyError
from pinfold.runtimes.criclient import CgroupDriver, ContainerEvent, CRIClient, Happening, Version

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
    from pathlib import Path

UID = "7b1e8d5c-2f4a-4c8e-9d3b-5a6f7e8d9c0b"
SECONDS = 20.0  # a test that waits for something waits at most so long

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


class FakeRuntime:
    """A runtime service with one pod and one container; what it is told to do, it remembers."""

    def __init__(self) -> None:
        self.info: dict[str, str] = {"info": json.dumps(INFO)}
        self.updates: list[cri.UpdateContainerResourcesRequest] = []
        self.errors: dict[str, GRPCError] = {}
        self.missing: set[str] = set()
        self.held: dict[str, asyncio.Event] = {}
        self.asked: list[str] = []
        self.labels: dict[str, str] = {}
        self.events: asyncio.Queue[cri.ContainerEventResponse | None] = asyncio.Queue()

    def __mapping__(self) -> dict[str, Handler]:
        methods: dict[str, tuple[Callable[..., Awaitable[object]], type[Any], type[Any]]] = {
            "Version": (self.version, cri.VersionRequest, cri.VersionResponse),
            "RuntimeConfig": (self.runtime_config, cri.RuntimeConfigRequest, cri.RuntimeConfigResponse),
            "ListPodSandbox": (self.list_pods, cri.ListPodSandboxRequest, cri.ListPodSandboxResponse),
            "ListContainers": (self.list_containers, cri.ListContainersRequest, cri.ListContainersResponse),
            "ContainerStatus": (self.status, cri.ContainerStatusRequest, cri.ContainerStatusResponse),
            "UpdateContainerResources": (
                self.update,
                cri.UpdateContainerResourcesRequest,
                cri.UpdateContainerResourcesResponse,
            ),
        }
        mapping = {
            f"/runtime.v1.RuntimeService/{name}": Handler(
                self.unary(name, answer), Cardinality.UNARY_UNARY, request, response
            )
            for name, (answer, request, response) in methods.items()
        }
        mapping["/runtime.v1.RuntimeService/GetContainerEvents"] = Handler(
            self.stream, Cardinality.UNARY_STREAM, cri.GetEventsRequest, cri.ContainerEventResponse
        )
        gone = {f"/runtime.v1.RuntimeService/{name}" for name in self.missing}
        return {path: handler for path, handler in mapping.items() if path not in gone}

    def unary(self, name: str, answer: Callable[..., Awaitable[object]]) -> Callable[[Any], Coroutine[Any, Any, None]]:
        async def serve(stream: Any) -> None:  # noqa: ANN401 - a stream of any messages
            request = await stream.recv_message()
            self.asked.append(name)
            if name in self.held:
                await self.held[name].wait()
            if name in self.errors:
                raise self.errors[name]
            await stream.send_message(await answer(request))

        return serve

    async def version(self, _: object) -> cri.VersionResponse:
        return cri.VersionResponse(version="0.1.0", runtime_name="fake", runtime_version="1.2")

    async def runtime_config(self, _: object) -> cri.RuntimeConfigResponse:
        return cri.RuntimeConfigResponse(linux=cri.LinuxRuntimeConfiguration(cgroup_driver=cri.CGROUPFS))

    async def list_pods(self, _: object) -> cri.ListPodSandboxResponse:
        metadata = cri.PodSandboxMetadata(name="web", uid=UID, namespace="prod")
        labels = {"io.kubernetes.pod.uid": UID}
        return cri.ListPodSandboxResponse(items=[cri.PodSandbox(id="s1", metadata=metadata, labels=labels)])

    async def list_containers(self, request: cri.ListContainersRequest) -> cri.ListContainersResponse:
        metadata = cri.ContainerMetadata(name="app", attempt=3)
        one = cri.Container(
            id="c1", pod_sandbox_id="s1", metadata=metadata, state=cri.CONTAINER_EXITED, labels=self.labels
        )
        asked = request.filter.pod_sandbox_id
        return cri.ListContainersResponse(containers=[one] if asked in {"", "s1"} else [])

    async def status(self, request: cri.ContainerStatusRequest) -> cri.ContainerStatusResponse:
        if len(request.container_id) > 10:
            raise GRPCError(Status.NOT_FOUND, f"{len(request.container_id)} characters")
        metadata = cri.ContainerMetadata(name="app")
        linux = cri.LinuxContainerResources(cpu_shares=512, memory_limit_in_bytes=1 << 30)
        status = cri.ContainerStatus(
            id=request.container_id,
            metadata=metadata,
            state=cri.CONTAINER_RUNNING,
            resources=cri.ContainerResources(linux=linux),
        )
        return cri.ContainerStatusResponse(status=status, info=self.info if request.verbose else {})

    async def update(self, request: cri.UpdateContainerResourcesRequest) -> cri.UpdateContainerResourcesResponse:
        self.updates.append(request)
        return cri.UpdateContainerResourcesResponse()

    async def stream(self, stream: Any) -> None:  # noqa: ANN401 - a stream of any messages
        await stream.recv_message()
        self.asked.append("GetContainerEvents")
        while (event := await self.events.get()) is not None:
            await stream.send_message(event)


@asynccontextmanager
async def serving(runtime: FakeRuntime, path: Path) -> AsyncIterator[None]:
    """Serve on *path* through a relay, whose connections end with the block: grpclib's own would stay."""
    behind = path.with_suffix(".behind")
    clear(path)
    clear(behind)

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back_reader, back_writer = await asyncio.open_unix_connection(str(behind))
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(copy(reader, back_writer))
                tasks.create_task(copy(back_reader, writer))
        finally:
            back_writer.close()

    server = Server([runtime])
    await server.start(path=str(behind))
    try:
        async with talking(path, relay):
            yield
    finally:
        server.close()
        await server.wait_closed()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def talking(
    path: Path, talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
) -> AsyncIterator[None]:
    """Serve with whatever *talk* does to a connection; all connections end with the block."""
    running: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        try:
            await talk(reader, writer)
        except (asyncio.CancelledError, ConnectionError):
            pass
        finally:
            running.discard(task)
            writer.close()

    server = await asyncio.start_unix_server(serve, str(path))
    try:
        yield
    finally:
        server.close()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def clear(path: Path) -> None:
    path.unlink(missing_ok=True)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0)


def run(
    test: Callable[[FakeRuntime, CRIClient], Awaitable[None]], path: Path, runtime: FakeRuntime | None = None
) -> None:
    """Run a test with a runtime and a client of it."""

    async def both() -> None:
        served = runtime or FakeRuntime()
        async with asyncio.timeout(SECONDS), serving(served, path), CRIClient(str(path), deadline=SECONDS) as client:
            await test(served, client)

    asyncio.run(both())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cri.sock"


def test_version_and_cgroup_driver(path: Path) -> None:
    async def test(_: FakeRuntime, client: CRIClient) -> None:
        assert await client.version() == Version("fake", "1.2")
        assert await client.runtime_config() is CgroupDriver.CGROUPFS

    run(test, path)


def test_a_runtime_too_old_to_tell_its_cgroup_driver(path: Path) -> None:
    async def test(_: FakeRuntime, client: CRIClient) -> None:
        assert await client.runtime_config() is None

    runtime = FakeRuntime()
    runtime.missing = {"RuntimeConfig"}
    run(test, path, runtime)


def test_pods_and_containers_are_listed(path: Path) -> None:
    async def test(_: FakeRuntime, client: CRIClient) -> None:
        [pod] = await client.pods()
        assert (pod.id, pod.uid, pod.name, pod.namespace, pod.ready) == ("s1", UID, "web", "prod", True)
        [container] = await client.containers()
        assert (container.id, container.pod, container.name, container.attempt) == ("c1", "s1", "app", 3)
        assert container.phase is Phase.STOPPED
        assert await client.containers(pod="s2") == []

    run(test, path)


def test_the_status_has_process_cgroup_and_amounts_and_makes_a_pod(path: Path) -> None:
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

    run(test, path)


def test_standard_fields_stand_in_where_a_runtime_adds_no_json(path: Path) -> None:
    async def test(runtime: FakeRuntime, client: CRIClient) -> None:
        runtime.info = {}
        found = await client.status("c1")
        assert (found.shares, found.quota, found.pid, found.cgroups_path) == (512, None, 0, "")

    run(test, path)


@pytest.mark.parametrize(
    ("info", "problem"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        ("[" * 200_000, "no JSON"),
        ("9" * 100_000, "no JSON"),
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
def test_hostile_json_is_an_error_in_one_line(path: Path, info: str, problem: str) -> None:
    async def test(runtime: FakeRuntime, client: CRIClient) -> None:
        runtime.info = {"info": info}
        with pytest.raises(ParseError, match=problem) as error:
            await client.status("c1")
        assert 'container "c1": info: ' in str(error.value)
        assert len(str(error.value)) < 400
        assert await client.version()

    run(test, path)


@pytest.mark.parametrize(
    "info", ["null", "{}", '{"runtimeSpec": null}', '{"runtimeSpec": {"linux": {"resources": {}}}}']
)
def test_json_that_tells_nothing_is_no_error(path: Path, info: str) -> None:
    async def test(runtime: FakeRuntime, client: CRIClient) -> None:
        runtime.info = {"info": info}
        assert (await client.status("c1")).pid == 0

    run(test, path)


def test_an_update_changes_what_is_given_and_nothing_else(path: Path) -> None:
    async def test(runtime: FakeRuntime, client: CRIClient) -> None:
        await client.update("c1", cpus=CPUSet.parse("0,2-3"), mems=CPUSet.parse("1"), quota=-1)
        await client.update("c2", quota=50_000, period=100_000, shares=512)
        first, second = runtime.updates
        assert first.container_id == "c1"
        assert first.linux == cri.LinuxContainerResources(cpuset_cpus="0,2-3", cpuset_mems="1", cpu_quota=-1)
        assert second.linux == cri.LinuxContainerResources(cpu_quota=50_000, cpu_period=100_000, cpu_shares=512)
        assert not first.HasField("windows")

    run(test, path)


def test_an_update_to_no_cpus_is_refused_since_runtimes_would_ignore_it(path: Path) -> None:
    async def test(runtime: FakeRuntime, client: CRIClient) -> None:
        with pytest.raises(ApplyError, match="an empty set would leave its CPUs as they are"):
            await client.update("c1", cpus=CPUSet.parse(""))
        with pytest.raises(ApplyError, match="an empty set"):
            await client.update_windows("c1", CPUSet.parse(""))
        assert not runtime.updates

    run(test, path)


def test_windows_cpus_are_set_by_processor_group(path: Path) -> None:
    async def test(runtime: FakeRuntime, client: CRIClient) -> None:
        await client.update_windows("c1", CPUSet.parse("0-2,63,64,98"), sizes=[64, 35])
        [update] = runtime.updates
        affinities = [(group.cpu_group, group.cpu_mask) for group in update.windows.affinity_cpus]
        assert affinities == [(0, 0b111 | 1 << 63), (1, 1 | 1 << 34)]
        assert not update.HasField("linux")
        with pytest.raises(ParseError, match="no processor group has CPUs 99"):
            await client.update_windows("c1", CPUSet.parse("99"), sizes=[64, 35])

    run(test, path)


def test_an_error_has_its_code_and_text_and_concerns_its_caller_only(path: Path) -> None:
    async def test(runtime: FakeRuntime, client: CRIClient) -> None:
        text = "cpuset.cpus: numerical result\nout of range é %41"
        runtime.errors["UpdateContainerResources"] = GRPCError(Status.UNKNOWN, text)
        update = client.update("c1", cpus=CPUSet.parse("999"))
        failed, version = await asyncio.gather(update, client.version(), return_exceptions=True)
        assert isinstance(failed, CallError)
        assert failed.code is Code.UNKNOWN
        assert failed.text == "cpuset.cpus: numerical result out of range é %41"
        assert version == Version("fake", "1.2")

    run(test, path)


def test_a_runtime_that_says_it_is_not_available_is_not_available(path: Path) -> None:
    async def test(runtime: FakeRuntime, client: CRIClient) -> None:
        runtime.errors["Version"] = GRPCError(Status.UNAVAILABLE, "server is not initialized yet")
        with pytest.raises(RuntimeUnavailable, match="Version: server is not initialized yet"):
            await client.version()

    run(test, path)


def test_a_slow_call_holds_up_nobody_else(path: Path) -> None:
    async def test(runtime: FakeRuntime, client: CRIClient) -> None:
        runtime.held["ListPodSandbox"] = asyncio.Event()
        slow = asyncio.create_task(client.pods())
        await until(lambda: "ListPodSandbox" in runtime.asked)
        found = await asyncio.gather(*(client.status("c1") for _ in range(300)))
        assert {one.pid for one in found} == {42}
        assert not slow.done()
        runtime.held["ListPodSandbox"].set()
        assert len(await slow) == 1

    run(test, path)


def test_a_call_without_an_answer_ends_at_the_deadline_and_later_ones_work(path: Path) -> None:
    async def test(runtime: FakeRuntime, _: CRIClient) -> None:
        runtime.held["ListPodSandbox"] = asyncio.Event()
        async with CRIClient(str(path), deadline=0.05) as client:
            with pytest.raises(RuntimeUnavailable, match=r"ListPodSandbox had no answer in 0\.05 s"):
                await client.pods()
        async with CRIClient(str(path), deadline=SECONDS) as client:
            assert await client.version()

    run(test, path)


def test_a_cancelled_call_leaves_the_connection_usable(path: Path) -> None:
    async def test(runtime: FakeRuntime, client: CRIClient) -> None:
        runtime.held["ListPodSandbox"] = asyncio.Event()
        slow = asyncio.create_task(client.pods())
        await until(lambda: "ListPodSandbox" in runtime.asked)
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        assert await client.version()

    run(test, path)


def test_large_answers_and_requests_come_through(path: Path) -> None:
    async def test(runtime: FakeRuntime, client: CRIClient) -> None:
        runtime.labels = {"large": "x" * (5 << 20)}
        [container] = await client.containers()
        assert len(container.labels["large"]) == 5 << 20
        with pytest.raises(CallError, match="NOT_FOUND: 300000 characters"):
            await client.status("c" * 300_000)

    run(test, path)


def test_an_answer_beyond_the_limit_is_refused_and_the_connection_lives(path: Path) -> None:
    async def test(runtime: FakeRuntime, client: CRIClient) -> None:
        runtime.labels = {"large": "x" * (17 << 20)}
        with pytest.raises(CallError, match="16,777,216 are allowed"):
            await client.containers()
        assert await client.version()
        assert await client.version()

    run(test, path)


def event(kind: cri.ContainerEventType, container: str = "c1") -> cri.ContainerEventResponse:
    pod = cri.PodSandboxStatus(id="s1")
    return cri.ContainerEventResponse(container_id=container, container_event_type=kind, pod_sandbox_status=pod)


def test_events_come_as_they_happen(path: Path) -> None:
    async def test(runtime: FakeRuntime, client: CRIClient) -> None:
        async with client.events() as events:
            runtime.events.put_nowait(event(cri.CONTAINER_CREATED_EVENT))
            assert await anext(events) == ContainerEvent(Happening.CREATED, "c1", "s1")
            for kind in (cri.CONTAINER_STARTED_EVENT, cri.CONTAINER_STOPPED_EVENT, cri.CONTAINER_DELETED_EVENT):
                runtime.events.put_nowait(event(kind))
            runtime.events.put_nowait(None)
            assert [one.what.value async for one in events] == ["started", "stopped", "deleted"]

    run(test, path)


def test_a_runtime_without_events_says_so(path: Path) -> None:
    async def test(_: FakeRuntime, client: CRIClient) -> None:
        async with client.events() as events:
            with pytest.raises(Unimplemented):
                await anext(events)
        assert await client.version()

    runtime = FakeRuntime()
    runtime.missing = {"GetContainerEvents"}
    run(test, path, runtime)


def test_events_that_nobody_reads_stop_the_sender_and_nobody_else(path: Path) -> None:
    async def test(runtime: FakeRuntime, client: CRIClient) -> None:
        large = event(cri.CONTAINER_CREATED_EVENT, "x" * (256 << 10))
        for _ in range(80):
            runtime.events.put_nowait(large)
        async with client.events() as events:
            await until(lambda: "GetContainerEvents" in runtime.asked)
            runtime.labels = {"large": "x" * (3 << 20)}
            assert len(await client.containers()) == 1
            assert runtime.events.qsize() > 60
            for _ in range(80):
                assert len((await anext(events)).container) == 256 << 10

    run(test, path)


def test_a_lost_runtime_ends_the_events(path: Path) -> None:
    async def test() -> None:
        runtime = FakeRuntime()
        async with CRIClient(str(path), deadline=SECONDS) as client:
            async with serving(runtime, path):
                watching = asyncio.create_task(first_event(client))
                await until(lambda: "GetContainerEvents" in runtime.asked)
            with pytest.raises(RuntimeUnavailable, match="GetContainerEvents: the connection was closed"):
                await watching

    async def first_event(client: CRIClient) -> ContainerEvent:
        async with client.events() as events:
            return await anext(events)

    asyncio.run(test())


def test_a_restarted_runtime_is_found_again_by_the_next_call(path: Path) -> None:
    async def test() -> None:
        async with asyncio.timeout(SECONDS), CRIClient(str(path), deadline=SECONDS) as client:
            for _ in range(3):
                async with serving(FakeRuntime(), path):
                    assert await client.version()
            clear(path)
            with pytest.raises(RuntimeUnavailable, match=r"cri\.sock: "):
                await client.version()
            async with serving(FakeRuntime(), path):
                assert await client.version()

    asyncio.run(test())


@pytest.mark.parametrize("name", ["missing.sock", "x" * 200, "a\0b", "."])
def test_a_socket_that_is_not_there_is_a_runtime_that_is_not_available(tmp_path: Path, name: str) -> None:
    async def test() -> None:
        async with CRIClient(f"{tmp_path}/{name}") as client:
            with pytest.raises(RuntimeUnavailable):
                await client.version()
            with pytest.raises(RuntimeUnavailable):
                async with client.events():
                    pass

    asyncio.run(test())


def test_an_end_that_accepts_and_never_speaks_runs_into_the_deadline(path: Path) -> None:
    async def talk(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        while await reader.read(4096):
            pass

    async def test() -> None:
        async with talking(path, talk), CRIClient(str(path), deadline=0.05) as client:
            with pytest.raises(RuntimeUnavailable, match="Version had no answer"):
                await client.version()

    asyncio.run(test())


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\0",
        b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
        bytes(range(256)) * 40,
        b"\xff" * 100_000,
        b"\0\0\0\4\0\0\0\0\0" + b"\0\0\5\1\4\0\0\0\1" + b"\xff" * 5,  # settings, then headers that are no HPACK
        b"\0\0\0\4\0\0\0\0\0" + b"\0\0\10\7\0\0\0\0\0" + b"\0" * 8,  # settings, then the end
        b"\0\0\0\4\0\0\0\0\0" + b"\0\0\4\3\0\0\0\0\1" + b"\0\0\0\2",  # settings, then the call is broken off
    ],
    ids=range(8),
)
def test_garbage_is_an_error_of_ours_and_the_next_call_connects_anew(path: Path, garbage: bytes) -> None:
    connections = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.read(24)
        writer.write(garbage)
        await writer.drain()

    async def test() -> None:
        async with asyncio.timeout(SECONDS), CRIClient(str(path), deadline=SECONDS) as client:
            async with talking(path, talk):
                with pytest.raises((RuntimeUnavailable, CallError)) as error:
                    await client.version()
                assert len(str(error.value).splitlines()) == 1
                assert connections
            clear(path)
            async with serving(FakeRuntime(), path):
                assert await client.version()

    asyncio.run(test())


@pytest.mark.parametrize(
    ("headers", "body", "trailers", "problem"),
    [
        ([(":status", "200")], b"\0\0\0\0\2\xff\xff", [("grpc-status", "0")], "no message of CRI v1"),
        ([(":status", "200")], struct.pack(">?I", 0, 0xFFFFFFFF), [("grpc-status", "0")], "4,294,967,295 bytes"),
        ([(":status", "200")], b"\1\0\0\0\0", [("grpc-status", "0")], "compressed"),
        ([(":status", "200")], b"\0\0\0\0\5abc", [("grpc-status", "0")], "the last message is not complete"),
        ([(":status", "200")], b"", [("grpc-status", "0")], "no message; one is expected"),
        ([(":status", "200")], b"\0\0\0\0\0" * 2, [("grpc-status", "0")], "more than one message"),
        ([(":status", "200")], b"\0\0\0\0\0", [("x", "y")], "the answer has no status"),
        ([(":status", "200")], b"", [("grpc-status", "x"), ("grpc-message", "%zz%ff")], "UNKNOWN"),
        ([(":status", "404")], b"not here", [("x", "y")], "HTTP status 404"),
        ([(":status", "200"), ("x", "\udcff")], b"", [("grpc-status", "5"), ("grpc-message", "n" * 9000)], "NOT_FOUND"),
    ],
    ids=range(10),
)
def test_answers_that_are_no_grpc_are_errors_of_ours(
    path: Path, headers: list[tuple[str, str]], body: bytes, trailers: list[tuple[str, str]], problem: str
) -> None:
    def encoded(pairs: list[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
        return [(name.encode(), value.encode(errors="surrogateescape")) for name, value in pairs]

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding=None))
        server.initiate_connection()
        asked = False
        while data := await reader.read(65536):
            server.receive_data(data)
            if not asked and 1 in server.streams:
                asked = True
                server.send_headers(1, encoded(headers))
                server.send_data(1, body)
                server.send_headers(1, encoded(trailers), end_stream=True)
            writer.write(server.data_to_send())

    async def test() -> None:
        async with talking(path, talk), CRIClient(str(path), deadline=SECONDS) as client:
            with pytest.raises(PinfoldError, match=problem) as error:
                await client.version()
            assert len(str(error.value)) < 700
            assert len(str(error.value).splitlines()) == 1

    asyncio.run(test())


settings_frame = b"\0\0\0\4\0\0\0\0\0"
frames = st.builds(
    lambda body, kind, flags, stream: (
        len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body
    ),
    st.binary(max_size=20),
    st.integers(0, 12),
    st.integers(0, 255),
    st.sampled_from([0, 1, 3, 2, 1 << 31]),
)


@given(st.lists(frames | st.binary(max_size=40), max_size=8), st.booleans())
def test_any_bytes_end_calls_with_errors_of_ours_or_leave_them_waiting(pieces: list[bytes], polite: bool) -> None:  # noqa: FBT001 - drawn
    async def test() -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            _, connection = await asyncio.get_running_loop().create_connection(lambda: ClientLink("x.sock"), sock=ours)
            call = await connection.start("/s/M", b"request", None)
            for piece in [settings_frame, *pieces] if polite else pieces:
                connection.data_received(piece)
            connection.close("the test is over")
            with suppress(PinfoldError):
                async for _ in call.inbox.messages():
                    pass
            assert call.inbox.closed

    asyncio.run(test())
