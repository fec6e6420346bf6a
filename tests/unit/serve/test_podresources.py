"""PodResources over a real gRPC client on a unix socket, and clients that are slow, hostile or too many."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest
from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.const import Status
from grpclib.exceptions import GRPCError
from hypothesis import given
from hypothesis import strategies as st

from pinfold.core.config import Config, Reservation
from pinfold.core.cpuset import EMPTY, CPUSet
from pinfold.core.pods import Pod, PodUID
from pinfold.core.presets import preset
from pinfold.core.state import State
from pinfold.grpc.errors import CallError, Code
from pinfold.grpc.server import CallLimits, GRPCServer
from pinfold.proto import podresources_pb2 as pb
from pinfold.serve.limits import Rate
from pinfold.serve.podresources import RATE, Held, PodResources, limited
from tests.property.strategies import guaranteed, pinned, pod_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
    from pathlib import Path

    from google.protobuf.message import Message

SECONDS = 20.0  # a test that waits for something waits at most so long
MACHINE = preset("sockets:1,cores:4,threads:2")
ADMITTER = Config("static", reserved=Reservation.of(CPUSet.of(0))).build(MACHINE)
LIST, ALLOCATABLE, GET = (f"/v1.PodResourcesLister/{name}" for name in ("List", "GetAllocatableResources", "Get"))


class Site(NamedTuple):
    """A server, where it listens, and what went wrong in it."""

    server: GRPCServer
    path: str
    errors: list[Exception]


def held_after(*pods: Pod) -> Held:
    state = ADMITTER.policy.start(State.new())
    for pod in pods:
        state = ADMITTER.admit(state, pod).state
    return Held(pods, state, MACHINE.online - CPUSet.of(0))


NODE = held_after(
    pod_of(pinned(2), pinned(1, "log"), uid="web", init=[pinned(1, "mesh", sidecar=True), pinned(3, "setup")]),
    Pod(PodUID("u2"), "batch", "jobs"),
)


@asynccontextmanager
async def serving(
    directory: Path,
    read: Callable[[], Held] = lambda: NODE,
    limits: CallLimits | None = None,
    rate: Rate = RATE,
) -> AsyncIterator[Site]:
    path = str(directory / "podresources.sock")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    errors: list[Exception] = []
    server = GRPCServer(
        limited(PodResources(read).methods, rate),
        limits=CallLimits() if limits is None else limits,
        report=lambda _what, error: errors.append(error),
    )
    await server.start(listener)
    try:
        yield Site(server, path, errors)
    finally:
        await server.close()


@asynccontextmanager
async def calling(site: Site) -> AsyncIterator[Channel]:
    channel = Channel(path=site.path)
    try:
        yield channel
    finally:
        channel.close()


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, SECONDS))


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for happens in the server, which has no event for it
        await asyncio.sleep(0.001)


async def call(channel: Channel, name: str, request: Message, reply: type[Message]) -> Any:  # noqa: ANN401 - any message
    return await UnaryUnaryMethod(channel, name, type(request), reply)(request, timeout=SECONDS)


async def list_pods(channel: Channel) -> pb.ListPodResourcesResponse:
    reply = await call(channel, LIST, pb.ListPodResourcesRequest(), pb.ListPodResourcesResponse)
    assert isinstance(reply, pb.ListPodResourcesResponse)
    return reply


def test_list_names_exclusive_cpus_of_lasting_containers_only(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as site, calling(site) as channel:
            web, batch = (await list_pods(channel)).pod_resources
        assert (web.name, web.namespace, batch.name, batch.namespace) == ("web", "default", "batch", "jobs")
        state = NODE.state.assignments[PodUID("web")]
        assert {c.name: list(c.cpu_ids) for c in web.containers} == {
            name: list(state[name]) for name in ("mesh", "app", "log")
        }
        assert [c.name for c in web.containers] == ["mesh", "app", "log"]
        assert not web.cpu_ids
        assert not batch.containers

    run(test())


def test_containers_of_the_shared_pool_have_no_cpus(tmp_path: Path) -> None:
    held = held_after(pod_of(pinned(1), pinned(1, "other"), uid="a"))
    shared = Pod(PodUID("b"), "b", containers=(pinned(0, "idle"),))

    async def test() -> None:
        async with serving(tmp_path, lambda: held._replace(pods=[shared])) as site, calling(site) as channel:
            (pod,) = (await list_pods(channel)).pod_resources
        assert [(c.name, list(c.cpu_ids)) for c in pod.containers] == [("idle", [])]

    run(test())


def test_pod_with_cpus_as_a_whole_lists_them_and_only_the_parts_that_are_somebodys_own(tmp_path: Path) -> None:
    idle = pod_of(pinned(0)).containers[0]
    pod = Pod(PodUID("w"), "w", containers=(pinned(2, "own"), idle), resources=guaranteed(3000))
    state = State(CPUSet.of(0), {pod.uid: {"own": CPUSet.of(1, 5), "app": CPUSet.of(2)}}, {pod.uid: CPUSet.of(1, 2, 5)})

    async def test() -> None:
        async with serving(tmp_path, lambda: Held([pod], state, EMPTY)) as site, calling(site) as channel:
            (found,) = (await list_pods(channel)).pod_resources
        assert list(found.cpu_ids) == [1, 2, 5]
        assert {c.name: list(c.cpu_ids) for c in found.containers} == {"own": [1, 5], "app": []}

    run(test())


def field(number: int, value: bytes) -> bytes:
    """Return a field of bytes as protobuf writes it: its number, its length, itself."""
    return bytes([number << 3 | 2, len(value)]) + value


def test_answers_are_field_exact() -> None:
    idle = pod_of(pinned(0)).containers[0]
    pod = Pod(PodUID("w"), "w", "ns", containers=(pinned(2, "own"), idle), resources=guaranteed(3000))
    own = {"own": CPUSet.of(1, 5), "app": CPUSet.of(2)}
    state = State(CPUSet.of(0), {pod.uid: own}, {pod.uid: CPUSet.of(1, 2, 5)})
    containers = field(3, field(1, b"own") + field(3, b"\1\5")) + field(3, field(1, b"app"))
    expected = field(1, field(1, b"w") + field(2, b"ns") + containers + field(4, b"\1\2\5"))
    served = PodResources(lambda: Held([pod], state, CPUSet.parse("1-3")))
    assert served.list_pods(b"") == expected
    assert served.get_pod(field(1, b"w") + field(2, b"ns")) == expected
    assert served.get_allocatable(b"") == field(2, b"\1\2\3")


def test_allocatable_is_everything_but_the_reserved_cpus_whether_taken_or_not(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as site, calling(site) as channel:
            reply = await call(channel, ALLOCATABLE, pb.AllocatableResourcesRequest(), pb.AllocatableResourcesResponse)
        assert list(reply.cpu_ids) == [1, 2, 3, 4, 5, 6, 7]

    run(test())


def test_get_finds_one_pod_by_name_and_namespace(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as site, calling(site) as channel:
            wanted = pb.GetPodResourcesRequest(pod_name="batch", pod_namespace="jobs")
            reply = await call(channel, GET, wanted, pb.GetPodResourcesResponse)
            assert reply.pod_resources == pb.PodResources(name="batch", namespace="jobs")

    run(test())


@pytest.mark.parametrize(("name", "namespace"), [("web", "jobs"), ("nobody", "default"), ("", ""), ("a%b\n…", "é")])
def test_get_of_an_unknown_pod_is_not_found(tmp_path: Path, name: str, namespace: str) -> None:
    async def test() -> None:
        async with serving(tmp_path) as site, calling(site) as channel:
            wanted = pb.GetPodResourcesRequest(pod_name=name, pod_namespace=namespace)
            with pytest.raises(GRPCError) as caught:
                await call(channel, GET, wanted, pb.GetPodResourcesResponse)
            assert caught.value.status is Status.NOT_FOUND
            said = f"pod {name} in namespace {namespace} not found"
            assert caught.value.message == " ".join(said.split())
            assert (await list_pods(channel)).pod_resources  # the connection goes on

    run(test())


def test_unknown_method_is_unimplemented(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as site, calling(site) as channel:
            for name in ("/v1.PodResourcesLister/Delete", "/v1alpha1.PodResourcesLister/List", "/"):
                with pytest.raises(GRPCError) as caught:
                    await call(channel, name, pb.ListPodResourcesRequest(), pb.ListPodResourcesResponse)
                assert caught.value.status is Status.UNIMPLEMENTED
            assert (await list_pods(channel)).pod_resources

    run(test())


def test_request_that_is_no_message_is_an_internal_error_as_the_references(tmp_path: Path) -> None:
    class Raw:
        """Anything, as bytes."""

        def __init__(self, data: bytes = b"\x0f\xff") -> None:
            self.data = data

        def SerializeToString(self) -> bytes:  # noqa: N802 - protobuf's name
            return self.data

    async def test() -> None:
        async with serving(tmp_path) as site, calling(site) as channel:
            for name in (LIST, ALLOCATABLE, GET):
                with pytest.raises(GRPCError) as caught:
                    await UnaryUnaryMethod(channel, name, Raw, pb.ListPodResourcesResponse)(Raw())
                assert caught.value.status is Status.INTERNAL
            assert site.errors == []

    run(test())


def test_unknown_fields_of_a_newer_client_do_no_harm() -> None:
    later = b"\x9a\x06\x03abc"  # field 99
    assert PodResources(lambda: NODE).list_pods(later) == PodResources(lambda: NODE).list_pods(b"")


@given(st.binary(max_size=64))
def test_whatever_is_asked_there_is_an_answer_or_a_code(request: bytes) -> None:
    for method in PodResources(lambda: NODE).methods.values():
        try:
            method(request)
        except CallError as error:
            code = error.code
        else:
            code = Code.OK
        assert code in {Code.OK, Code.INTERNAL, Code.NOT_FOUND}


def test_error_nobody_expected_is_reported_and_answered(tmp_path: Path) -> None:
    def read() -> Held:
        raise RuntimeError("secret")

    async def test() -> None:
        async with serving(tmp_path, read) as site, calling(site) as channel:
            with pytest.raises(GRPCError) as caught:
                await list_pods(channel)
            assert caught.value.status is Status.INTERNAL
            assert "secret" not in str(caught.value.message)
            assert [str(error) for error in site.errors] == ["secret"]

    run(test())


def test_many_calls_at_once_are_all_answered(tmp_path: Path) -> None:
    async def test() -> None:
        limits = CallLimits(calls=8)
        async with (
            serving(tmp_path, limits=limits, rate=Rate(1000.0, 1000)) as site,
            calling(site) as one,
            calling(site) as two,
        ):
            replies = await asyncio.gather(*(list_pods(channel) for channel in [one, two] * 150))
        assert len(replies) == 300
        assert all(len(reply.pod_resources) == 2 for reply in replies)

    run(test())


def test_more_calls_than_the_rate_allows_are_refused_and_later_ones_served(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, rate=Rate(per_second=50.0, burst=3)) as site, calling(site) as channel:
            replies = await asyncio.gather(*(list_pods(channel) for _ in range(20)), return_exceptions=True)
            refused = [reply for reply in replies if isinstance(reply, GRPCError)]
            assert refused
            assert {reply.status for reply in refused} == {Status.RESOURCE_EXHAUSTED}
            while True:
                try:
                    await list_pods(channel)
                except GRPCError:
                    await asyncio.sleep(0.01)
                else:
                    return

    run(test())


def test_large_answer_comes_whole(tmp_path: Path) -> None:
    pods = [pod_of(*(pinned(0, f"c{n}") for n in range(10)), uid=f"pod-{n:05}") for n in range(2000)]

    async def test() -> None:
        async with serving(tmp_path, lambda: Held(pods, State(CPUSet.of(0)), EMPTY)) as site, calling(site) as channel:
            reply = await list_pods(channel)
        assert reply.ByteSize() > 100_000
        assert [pod.name for pod in reply.pod_resources] == [pod.name for pod in pods]

    run(test())


# -- clients that do as they like


class Wire:
    """A client that sends what it wants and reads when it wants."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(0)
        self.socket.connect(path)
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))

    def begin(self, window: int = 65535) -> None:
        self.h2.local_settings = h2.settings.Settings(
            initial_values={h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window}
        )
        self.h2.initiate_connection()

    def ask(self, data: bytes = b"\0\0\0\0\0", *, end: bool = True, changed: Mapping[str, str] = {}) -> int:
        headers = {
            ":method": "POST",
            ":scheme": "http",
            ":path": LIST,
            ":authority": "x",
            "content-type": "application/grpc",
            **changed,
        }
        stream = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream, list(headers.items()))
        if data or end:
            self.h2.send_data(stream, data, end_stream=end)
        return stream

    async def send(self, data: bytes | None = None) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, self.h2.data_to_send() if data is None else data)

    async def events(self) -> list[h2.events.Event]:
        """Return what came; raises EOFError at the end of the connection."""
        try:
            data = await asyncio.get_running_loop().sock_recv(self.socket, 1 << 16)
            found = self.h2.receive_data(data)
            await self.send()
        except ConnectionError as error:
            raise EOFError from error
        if not data:
            raise EOFError
        return found

    async def status(self, stream: int) -> dict[str, str]:
        """Return all headers and trailers of a stream, as soon as it has ended."""
        seen: dict[str, str] = {}
        while True:
            for event in await self.events():
                if getattr(event, "stream_id", None) != stream:
                    continue
                if isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
                    seen |= {str(name): str(value) for name, value in event.headers or ()}
                if isinstance(event, h2.events.StreamEnded | h2.events.StreamReset):
                    return seen | ({"reset": str(event.error_code)} if isinstance(event, h2.events.StreamReset) else {})

    async def closed(self) -> bool:
        """Wait until the other end has closed."""
        try:
            while True:
                await self.events()
        except EOFError:
            return True


@asynccontextmanager
async def wired(site: Site, window: int = 65535) -> AsyncIterator[Wire]:
    wire = Wire(site.path)
    wire.begin(window)
    await wire.send()
    try:
        yield wire
    finally:
        wire.socket.close()


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", Code.INTERNAL),
        (b"\0\0\0", Code.INTERNAL),
        (b"\0\0\0\0\5abc", Code.INTERNAL),
        (b"\0\0\0\0\0\0\0\0\0\0", Code.INTERNAL),
        (b"\1\0\0\0\0", Code.UNIMPLEMENTED),
        (b"\0\x7f\xff\xff\xff", Code.RESOURCE_EXHAUSTED),
    ],
    ids=["nothing", "half a prefix", "half a message", "two messages", "compressed", "2 GB announced"],
)
def test_request_that_is_not_one_message_has_a_code(tmp_path: Path, data: bytes, code: Code) -> None:
    async def test() -> None:
        async with serving(tmp_path) as site, wired(site) as wire:
            stream = wire.ask(data)
            await wire.send()
            assert (await wire.status(stream))["grpc-status"] == str(code.value)
            stream = wire.ask()
            await wire.send()
            assert (await wire.status(stream))["grpc-status"] == "0"

    run(test())


def test_endless_request_is_refused_before_it_ends(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as site, wired(site) as wire:
            stream = wire.ask(b"\0\0\1\0\1" + b"x" * 100, end=False)
            await wire.send()
            status = await wire.status(stream)
            assert status["grpc-status"] == str(Code.RESOURCE_EXHAUSTED.value)
            assert "65,537 bytes" in status["grpc-message"]

    run(test())


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({":method": "GET"}, "405"),
        ({"content-type": "application/json"}, "415"),
        ({"content-type": "application/grpcx"}, "415"),
    ],
)
def test_what_is_no_grpc_gets_an_http_status(tmp_path: Path, changed: dict[str, str], status: str) -> None:
    async def test() -> None:
        async with serving(tmp_path) as site, wired(site) as wire:
            stream = wire.ask(changed=changed)
            await wire.send()
            assert (await wire.status(stream))[":status"] == status

    run(test())


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 100, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 50]
)
def test_what_is_no_http2_is_hung_up_on(tmp_path: Path, data: bytes) -> None:
    async def test() -> None:
        async with serving(tmp_path, limits=CallLimits(seconds=0.1)) as site:
            wire = Wire(site.path)
            await wire.send(data)
            with wire.socket:
                while await asyncio.get_running_loop().sock_recv(wire.socket, 1 << 16):
                    pass
            await until(lambda: len(site.server.links) == 0)
            async with calling(site) as channel:
                assert (await list_pods(channel)).pod_resources

    run(test())


def test_frame_of_sixteen_megabytes_is_not_taken_in(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as site, wired(site) as wire:
            await wire.events()
            await wire.send(b"\xff\xff\xff\0\0\0\0\0\1")
            with pytest.raises(ConnectionError):
                await wire.send(b"x" * (16 << 20))
            await until(lambda: len(site.server.links) == 0)

    run(test())


def test_client_that_says_nothing_is_let_go(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, limits=CallLimits(seconds=0.05)) as site:
            wire = Wire(site.path)
            with wire.socket:
                assert await wire.closed()

    run(test())


def test_request_that_never_ends_is_given_up(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, limits=CallLimits(seconds=0.05)) as site, wired(site) as wire:
            stream = wire.ask(b"\0", end=False)
            await wire.send()
            assert "reset" in await wire.status(stream)
            stream = wire.ask()
            await wire.send()
            assert (await wire.status(stream))["grpc-status"] == "0"

    run(test())


def test_answer_that_nobody_takes_is_given_up_and_others_go_on(tmp_path: Path) -> None:
    async def test() -> None:
        limits = CallLimits(seconds=0.1)
        async with serving(tmp_path, limits=limits) as site, wired(site, window=3) as wire:
            stream = wire.ask()
            await wire.send()
            assert "reset" in await wire.status(stream)
            async with calling(site) as channel:
                assert (await list_pods(channel)).pod_resources

    run(test())


def test_client_that_does_not_read_its_socket_is_let_go(tmp_path: Path) -> None:
    pods = [pod_of(pinned(0), uid="x" * 200 + str(n)) for n in range(2000)]

    async def test() -> None:
        limits = CallLimits(seconds=0.1)
        held = Held(pods, State(CPUSet.of(0)), EMPTY)
        async with serving(tmp_path, lambda: held, limits) as site, wired(site, window=(1 << 31) - 1) as wire:
            wire.h2.increment_flow_control_window((1 << 31) - 1 - 65535)
            for _ in range(8):
                wire.ask()
            await wire.send()
            await until(lambda: len(site.server.links) == 1)
            await until(lambda: len(site.server.links) == 0)

    run(test())


def test_call_taken_back_in_the_same_breath_leaves_the_connection_alone(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as site, wired(site) as wire:
            for _ in range(500):
                wire.h2.reset_stream(wire.ask())
            await wire.send()
            stream = wire.ask()
            await wire.send()
            assert (await wire.status(stream))["grpc-status"] == "0"
            assert site.errors == []

    run(test())


def test_headers_without_end_are_hung_up_on(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as site, wired(site) as wire:
            for n in range(20):
                wire.ask(changed={"x-long": f"{n}" + "x" * 1000})
            stream = wire.ask(changed={"x-long": "x" * 15_000, "x-more": "y" * 15_000})
            assert stream
            await wire.send()
            assert await wire.closed()

    run(test())


def test_too_many_clients_replace_the_one_that_was_idle_for_longest(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            serving(tmp_path, limits=CallLimits(connections=2)) as site,
            wired(site) as first,
            wired(site) as second,
        ):
            await until(lambda: len(site.server.links) == 2)
            stream = first.ask()
            await first.send()
            await first.status(stream)
            async with calling(site) as third:
                assert (await list_pods(third)).pod_resources
                assert await second.closed()
                stream = first.ask()
                await first.send()
                assert (await first.status(stream))["grpc-status"] == "0"

    run(test())


def test_too_many_busy_clients_keep_a_new_one_out(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, limits=CallLimits(connections=1)) as site, wired(site) as busy:
            busy.ask(b"", end=False)
            await busy.send()
            await busy.events()
            await until(lambda: len(site.server.links) == 1)
            stream = busy.ask()
            await busy.send()
            await busy.status(stream)  # so the first call has been seen as well
            with Wire(site.path).socket as late:
                assert await asyncio.get_running_loop().sock_recv(late, 10) == b""

    run(test())


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_whatever_is_sent_the_next_client_is_served(pieces: list[bytes]) -> None:
    import tempfile
    from pathlib import Path

    async def test() -> None:
        with tempfile.TemporaryDirectory() as directory:
            async with serving(Path(directory)) as site:
                async with wired(site) as wire:
                    for piece in pieces:
                        with_error = asyncio.gather(wire.send(piece), return_exceptions=True)
                        await with_error
                async with calling(site) as channel:
                    assert (await list_pods(channel)).pod_resources
                assert site.errors == []

    run(test())
