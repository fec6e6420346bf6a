"""PodResources over a real gRPC client on a unix socket."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from grpclib.client import UnaryUnaryMethod
from grpclib.const import Status
from grpclib.exceptions import GRPCError
from hypothesis import given
from hypothesis import strategies as st

from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import preset
from pinfold.core.pods.pod import Pod, PodUID
from pinfold.core.snapshot import Snapshot
from pinfold.core.state import State
from pinfold.grpc.errors import CallError, Code
from pinfold.proto import podresources_pb2 as pb
from pinfold.serve.http.limits import Rate
from pinfold.serve.podresources import RATE, PodResourcesService, limited
from tests.property.strategies import guaranteed, pinned, pod_of
from tests.unit.grpc import ends
from tests.unit.grpc.ends import SECONDS, calling, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from google.protobuf.message import Message
    from grpclib.client import Channel

    from tests.unit.grpc.ends import Site

MACHINE = preset("sockets:1,cores:4,threads:2")
ADMITTER = Config("static", reserved=Reservation.of(CPUSet.of(0))).build(MACHINE)
LIST, ALLOCATABLE, GET = (f"/v1.PodResourcesLister/{name}" for name in ("List", "GetAllocatableResources", "Get"))


def held_after(*pods: Pod) -> Snapshot:
    state = ADMITTER.policy.start(State.new())
    for pod in pods:
        state = ADMITTER.admit(state, pod).state
    return Snapshot(MACHINE, ADMITTER.policy, state, pods)


NODE = held_after(
    pod_of(pinned(2), pinned(1, "log"), uid="web", init=[pinned(1, "mesh", sidecar=True), pinned(3, "setup")]),
    Pod(PodUID("u2"), "batch", "jobs"),
)


def serving(
    directory: Path, read: Callable[[], Snapshot] = lambda: NODE, rate: Rate = RATE
) -> AbstractAsyncContextManager[Site]:
    return ends.serving(directory, limited(PodResourcesService(read).methods, rate))


async def call(channel: Channel, name: str, request: Message, reply: type[Message]) -> Any:  # noqa: ANN401 - any message
    return reply.FromString(await call_raw(channel, name, request.SerializeToString()))


async def call_raw(channel: Channel, name: str, request: bytes) -> bytes:
    answer: bytes = await UnaryUnaryMethod(channel, name, bytes, bytes)(request, timeout=SECONDS)
    return answer


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


def test_pod_with_cpus_as_a_whole_lists_them_and_only_the_parts_that_are_a_containers_own(tmp_path: Path) -> None:
    idle = pod_of(pinned(0)).containers[0]
    pod = Pod(PodUID("w"), "w", containers=(pinned(2, "own"), idle), resources=guaranteed(3000))
    state = State(CPUSet.of(0), {pod.uid: {"own": CPUSet.of(1, 5), "app": CPUSet.of(2)}}, {pod.uid: CPUSet.of(1, 2, 5)})

    async def test() -> None:
        async with (
            serving(tmp_path, lambda: Snapshot(MACHINE, ADMITTER.policy, state, [pod])) as site,
            calling(site) as channel,
        ):
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
    served = PodResourcesService(lambda: Snapshot(MACHINE, ADMITTER.policy, state, [pod]))
    assert served.list_pods(b"") == expected
    assert served.get_pod(field(1, b"w") + field(2, b"ns")) == expected
    assert served.get_allocatable(b"") == field(2, bytes(range(1, 8)))


def test_allocatable_is_everything_but_the_reserved_cpus_whether_taken_or_not(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as site, calling(site) as channel:
            reply = await call(channel, ALLOCATABLE, pb.AllocatableResourcesRequest(), pb.AllocatableResourcesResponse)
        assert list(reply.cpu_ids) == [1, 2, 3, 4, 5, 6, 7]

    run(test())


def test_allocatable_are_no_more_cpus_than_min_shared_cpus_leaves() -> None:
    gates = {"CPUManagerPolicyAlphaOptions": True}
    reserved = Reservation.of(CPUSet.of(0))
    policy = Config("static", {"min-shared-cpus": "4"}, reserved, gates=gates).build(MACHINE).policy
    served = PodResourcesService(lambda: Snapshot(MACHINE, policy, policy.start(State.new())))
    assert served.get_allocatable(b"") == field(2, bytes(range(1, 5)))


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


def test_request_that_is_no_message_is_an_internal_error_as_the_references(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as site, calling(site) as channel:
            for name in (LIST, ALLOCATABLE, GET):
                with pytest.raises(GRPCError) as caught:
                    await call_raw(channel, name, b"\x0f\xff")
                assert caught.value.status is Status.INTERNAL
            assert site.errors == []

    run(test())


def test_unknown_fields_of_a_newer_client_do_no_harm() -> None:
    later = b"\x9a\x06\x03abc"  # field 99
    assert PodResourcesService(lambda: NODE).list_pods(later) == PodResourcesService(lambda: NODE).list_pods(b"")


@given(st.binary(max_size=64))
def test_any_request_gets_an_answer_or_a_code(request: bytes) -> None:
    for method in PodResourcesService(lambda: NODE).methods.values():
        try:
            method(request)
        except CallError as error:
            code = error.code
        else:
            code = Code.OK
        assert code in {Code.OK, Code.INTERNAL, Code.NOT_FOUND}


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
        async with (
            serving(tmp_path, lambda: Snapshot(MACHINE, ADMITTER.policy, State(CPUSet.of(0)), pods)) as site,
            calling(site) as channel,
        ):
            reply = await list_pods(channel)
        assert reply.ByteSize() > 100_000
        assert [pod.name for pod in reply.pod_resources] == [pod.name for pod in pods]

    run(test())
