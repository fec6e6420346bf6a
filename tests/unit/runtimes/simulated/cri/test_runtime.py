"""The scripted runtime over CRI, asked by the real client."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.processorgroups import GroupAffinity
from pinfold.errors import PinfoldError, RuntimeUnavailable
from pinfold.formats.pods.runtime import Phase, build_pod
from pinfold.grpc.client import Channel
from pinfold.grpc.errors import CallError, Code, Unimplemented
from pinfold.proto import cri_pb2 as cri
from pinfold.runtimes.cri.client import CRIClient, Happening, Version
from pinfold.runtimes.simulated.settings import RUNTIMES, RuntimeSettings
from tests.unit.runtimes.nrirecorder import WITHIN, Quiet, adjustment, update
from tests.unit.runtimes.simulated.scripts import NOW, PATIENT, Node, burstable, guaranteed, play

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from pinfold.proto import nri_pb2 as nri


@asynccontextmanager
async def client_of(node: Node, path: Path) -> AsyncIterator[CRIClient]:
    await node.runtime.cri.listen(str(path))
    async with CRIClient(str(path), deadline=WITHIN) as client:
        yield client


def ask(path: Path, script: Callable[[Node, CRIClient], Awaitable[None]], settings: RuntimeSettings = PATIENT) -> None:
    """Run a script with a node and a client of it."""

    async def hold(node: Node) -> None:
        async with client_of(node, path) as client:
            await script(node, client)

    play(hold, settings)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cri.sock"


def test_version_is_that_of_the_settings(path: Path) -> None:
    async def script(_: Node, client: CRIClient) -> None:
        assert await client.version() == Version("containerd", "1.7.24")

    ask(path, script, RUNTIMES["containerd-1.7"])


def test_pods_and_containers_are_listed_also_dead_ones(path: Path) -> None:
    async def script(node: Node, client: CRIClient) -> None:
        web = await node.runtime.pods.run(burstable())
        old = await node.runtime.pods.run(guaranteed("old"))
        await node.runtime.stop_pod(old.id)
        first, second = await client.pods()
        assert (first.id, first.uid, first.name, first.namespace, first.ready) == (
            web.id,
            "u-web",
            "web",
            "default",
            True,
        )
        assert (second.name, second.ready) == ("old", False)
        listed = await client.containers()
        assert [(found.name, found.phase, found.created) for found in listed] == [
            ("app", Phase.RUNNING, NOW),
            ("app", Phase.STOPPED, NOW),
        ]
        assert [found.pod for found in await client.containers(pod=old.id)] == [old.id]

    ask(path, script)


def test_listing_can_be_limited_to_a_state_and_a_label(path: Path) -> None:
    async def script(node: Node, _: CRIClient) -> None:
        channel = Channel(str(path))
        await node.runtime.pods.run(burstable())
        await node.runtime.stop_pod((await node.runtime.pods.run(guaranteed())).id)

        async def list_pods(wanted: cri.PodSandboxFilter) -> list[str]:
            request = cri.ListPodSandboxRequest(filter=wanted).SerializeToString()
            answer = await channel.call("/runtime.v1.RuntimeService/ListPodSandbox", request)
            return [found.metadata.name for found in cri.ListPodSandboxResponse.FromString(answer).items]

        async def list_containers(wanted: cri.ContainerFilter) -> list[str]:
            request = cri.ListContainersRequest(filter=wanted).SerializeToString()
            answer = await channel.call("/runtime.v1.RuntimeService/ListContainers", request)
            found = cri.ListContainersResponse.FromString(answer).containers
            return [container.labels["io.kubernetes.pod.name"] for container in found]

        stopped = cri.PodSandboxStateValue(state=cri.SANDBOX_NOTREADY)
        running = cri.ContainerStateValue(state=cri.CONTAINER_RUNNING)
        labels = {"io.kubernetes.pod.name": "db"}
        assert await list_pods(cri.PodSandboxFilter(state=stopped)) == ["db"]
        assert await list_pods(cri.PodSandboxFilter(label_selector={"app": "none"})) == []
        assert await list_containers(cri.ContainerFilter(state=running)) == ["web"]
        assert await list_containers(cri.ContainerFilter(label_selector=labels)) == ["db"]
        channel.close()

    ask(path, script)


def test_status_has_process_cgroup_and_amounts_and_makes_the_pod(path: Path) -> None:
    async def script(node: Node, client: CRIClient) -> None:
        sandbox = await node.runtime.run_pod(guaranteed())
        container = await node.runtime.create_container(sandbox.id, "app")
        assert (await client.status(container.id)).pid == 0
        container = await node.runtime.start_container(container.id)
        found = await client.status(container.id)
        assert (found.pid, found.pod, found.phase) == (container.pid, sandbox.id, Phase.RUNNING)
        assert found.cgroups_path == f"/kubepods/podu-db/{container.id}"
        assert (found.shares, found.quota, found.period, found.memory) == (2048, 200_000, 100_000, 1 << 30)
        [pod] = await client.pods()
        built = build_pod(pod, [found])
        assert built is not None
        assert built.containers[0].resources == guaranteed().containers[0].resources

    ask(path, script)


def test_status_of_a_container_that_did_not_start_says_why(path: Path) -> None:
    handler = Quiet()

    async def script(node: Node, client: CRIClient) -> None:
        await node.plug(handler)
        sandbox = await node.runtime.run_pod(guaranteed())
        container = await node.runtime.create_container(sandbox.id, "app")
        handler.error = PinfoldError("not verified")
        with pytest.raises(PinfoldError):
            await node.runtime.start_container(container.id)
        [listed] = await client.containers()
        assert listed.phase is Phase.STOPPED
        assert node.runtime.record.container(container.id).why == "StateChange: not verified (code 9)"

    ask(path, script)


def test_adjustment_by_a_plugin_is_in_the_spec_that_the_status_adds(path: Path) -> None:
    handler = Quiet()
    handler.adjustment = adjustment("2-3")

    async def script(node: Node, client: CRIClient) -> None:
        await node.plug(handler)
        await node.runtime.pods.run(guaranteed())
        [container] = await client.containers()
        assert (await client.status(container.id)).cpus == "2-3"

    ask(path, script)


def test_update_changes_the_cgroup_and_what_is_told_and_leaves_the_rest(path: Path) -> None:
    async def script(node: Node, client: CRIClient) -> None:
        await node.runtime.pods.run(guaranteed())
        container = node.runtime.record.find("db", "app")
        await client.update(container.id, cpus=CPUSet.parse("4-5"), quota=-1)
        assert node.cpus(container) == "4-5"
        assert node.quota(node.group(container)) is None
        found = node.runtime.record.container(container.id)
        assert found.told == found.spec == container.spec._replace(cpus="4-5", quota=-1)

    ask(path, script)


def test_update_that_the_kernel_refuses_is_unknown_and_one_of_no_container_not_found(path: Path) -> None:
    async def script(node: Node, client: CRIClient) -> None:
        await node.runtime.pods.run(guaranteed())
        container = node.runtime.record.find("db", "app")
        with pytest.raises(CallError, match="no such CPU") as refused:
            await client.update(container.id, cpus=CPUSet.parse("64"))
        assert refused.value.code is Code.UNKNOWN
        with pytest.raises(CallError, match="no container is c1") as missing:
            await client.update("c1", cpus=CPUSet.parse("1"))
        assert missing.value.code is Code.NOT_FOUND

    ask(path, script)


def test_update_asks_the_plugin_first_which_overrules_or_refuses(path: Path) -> None:
    class Keeper(Quiet):
        def update(
            self, pod: nri.PodSandbox, container: nri.Container, wanted: nri.LinuxResources
        ) -> list[nri.ContainerUpdate]:
            super().update(pod, container, wanted)
            return [update(container.id, "2")]

    handler = Keeper()

    async def script(node: Node, client: CRIClient) -> None:
        await node.plug(handler)
        await node.runtime.pods.run(guaranteed())
        container = node.runtime.record.find("db", "app")
        await client.update(container.id, cpus=CPUSet.parse("5"))
        assert node.cpus(container) == "2"
        handler.error = PinfoldError("not while it runs")
        with pytest.raises(CallError, match="NRI container update failed: not while it runs") as refused:
            await client.update(container.id, cpus=CPUSet.parse("5"))
        assert refused.value.code is Code.FAILED_PRECONDITION

    ask(path, script)


def test_events_tell_of_sandbox_and_containers_from_then_on(path: Path) -> None:
    async def script(node: Node, client: CRIClient) -> None:
        await node.runtime.pods.run(burstable("before"))
        async with asyncio.timeout(WITHIN), client.events() as events:
            await node.runtime.cri.until("GetContainerEvents")
            sandbox = await node.runtime.pods.run(guaranteed())
            app = node.runtime.record.find("db", "app").id
            await node.runtime.remove_pod(sandbox.id)
            told = [await anext(events) for _ in range(8)]
        assert {event.pod for event in told} == {sandbox.id}
        assert [(event.what, event.container) for event in told] == [
            (Happening.CREATED, sandbox.id),
            (Happening.STARTED, sandbox.id),
            (Happening.CREATED, app),
            (Happening.STARTED, app),
            (Happening.STOPPED, app),
            (Happening.STOPPED, sandbox.id),
            (Happening.DELETED, app),
            (Happening.DELETED, sandbox.id),
        ]

    ask(path, script)


def test_runtime_that_is_too_old_for_events_says_so(path: Path) -> None:
    async def script(_: Node, client: CRIClient) -> None:
        async with asyncio.timeout(WITHIN), client.events() as events:
            with pytest.raises(Unimplemented):
                await anext(events)

    ask(path, script, RUNTIMES["containerd-1.6"])


def test_restart_ends_the_stream_of_events_and_the_next_call_connects_again(path: Path) -> None:
    async def script(node: Node, client: CRIClient) -> None:
        await node.runtime.pods.run(burstable())
        async with asyncio.timeout(WITHIN), client.events() as events:
            await node.runtime.cri.until("GetContainerEvents")
            await node.runtime.restart()
            with pytest.raises(RuntimeUnavailable):
                await anext(events)
        assert len(await client.pods()) == 1

    ask(path, script)


def test_runtime_that_was_closed_is_not_available(path: Path) -> None:
    async def script(node: Node, client: CRIClient) -> None:
        await client.version()
        await node.runtime.close()
        with pytest.raises(RuntimeUnavailable):
            await client.version()
        assert node.runtime.cri.calls == ["Version"]

    ask(path, script)


def test_windows_container_gets_its_cpus_by_processor_group_and_tells_them(path: Path) -> None:
    async def script(node: Node, client: CRIClient) -> None:
        await node.runtime.pods.run(guaranteed())
        container = node.runtime.record.find("db", "app")
        await client.update_windows(container.id, CPUSet.parse("0-2,63,64,98"), sizes=[64, 35])
        wanted = (GroupAffinity(0b111 | 1 << 63, 0), GroupAffinity(1 | 1 << 34, 1))
        assert node.runtime.record.container(container.id).affinity == wanted
        channel = Channel(str(path))
        request = cri.ContainerStatusRequest(container_id=container.id).SerializeToString()
        answer = await channel.call("/runtime.v1.RuntimeService/ContainerStatus", request)
        channel.close()
        resources = cri.ContainerStatusResponse.FromString(answer).status.resources
        assert not resources.HasField("linux")
        told = [GroupAffinity(group.cpu_mask, group.cpu_group) for group in resources.windows.affinity_cpus]
        assert tuple(told) == wanted

    ask(path, script, RuntimeSettings(windows=True))
