"""The scripted runtime beside a real containerd: both are driven alike, and tell a plugin the same."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import pytest

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.pods.pod import Amounts, Container, Pod, PodUID, Resources
from pinfold.errors import PinfoldError
from pinfold.formats.pods.runtime import Phase, parent_of, parse_parent
from pinfold.grpc.errors import CallError
from pinfold.node.podgroups.simulated import Simulated
from pinfold.proto import cri_pb2 as cri
from pinfold.proto import nri_pb2 as nri
from pinfold.runtimes.cri.client import CRIClient, Happening
from pinfold.runtimes.nri.plugin import NRILink, serve
from pinfold.runtimes.simulated.record import Spec
from pinfold.runtimes.simulated.runtime import ScriptedRuntime
from tests.e2e.containerd import CALL, Ask, Containerd, PodOnNode
from tests.needs import needs_lab
from tests.unit.runtimes.nrirecorder import Quiet, Told, adjustment

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

T = TypeVar("T")

pytestmark = [pytest.mark.slow, needs_lab]

AMOUNTS = {"app": 2000, "refused": 1000, "late": 1000, "never": 1000}


class Heard(NamedTuple):
    """What a plugin was told of a container."""

    event: str
    container: str
    state: int
    runs: bool
    amounts: tuple[int, int, int, str]
    labels: tuple[str, ...]
    annotations: tuple[str, ...]


class Listener(Quiet):
    """Pins every container to one CPU, refuses what it is told to, and keeps what it hears."""

    def __init__(self) -> None:
        super().__init__()
        self.adjustment = adjustment("1")
        self.adjustment.linux.resources.cpu.quota.value = -1
        self.heard: list[Heard | str] = []
        self.refused = ""

    def note(self, what: str, *about: nri.PodSandbox | nri.Container) -> None:
        for thing in about:
            self.heard.append(_heard(what, thing) if isinstance(thing, nri.Container) else f"{what} {thing.name}")
        if what.partition(" ")[0] == self.refused:
            raise PinfoldError("refused")


def _heard(what: str, container: nri.Container) -> Heard:
    cpu = container.linux.resources.cpu
    return Heard(
        what,
        container.name,
        container.state,
        bool(container.pid),
        (cpu.shares.value, cpu.quota.value, cpu.period.value, cpu.cpus),
        tuple(sorted(container.labels)),
        tuple(sorted(container.annotations)),
    )


class Driven(Protocol):
    """A node with one pod."""

    async def run_pod(self) -> None: ...
    async def create(self, name: str) -> str: ...
    async def start(self, container: str) -> None: ...
    async def update(self, container: str, asked: Spec) -> None: ...
    async def stop(self, container: str) -> None: ...
    async def remove(self, container: str) -> None: ...
    async def stop_pod(self) -> None: ...
    async def remove_pod(self) -> None: ...
    async def restart(self) -> None: ...


class Scripted:
    """The scripted runtime."""

    def __init__(self, runtime: ScriptedRuntime) -> None:
        self.runtime = runtime
        self.sandbox = ""

    async def run_pod(self) -> None:
        containers = [Container(name, _exactly(milli)) for name, milli in AMOUNTS.items()]
        pod = Pod(PodUID("u1"), "db", containers=tuple(containers))
        self.sandbox = (await self.runtime.run_pod(pod)).id

    async def create(self, name: str) -> str:
        return (await self.runtime.create_container(self.sandbox, name)).id

    async def start(self, container: str) -> None:
        await self.runtime.start_container(container)
        await self.runtime.post_start(container)

    async def update(self, container: str, asked: Spec) -> None:
        await self.runtime.update_container(container, asked)

    async def stop(self, container: str) -> None:
        await self.runtime.stop_container(container)

    async def remove(self, container: str) -> None:
        await self.runtime.remove_container(container)

    async def stop_pod(self) -> None:
        await self.runtime.stop_pod(self.sandbox)

    async def remove_pod(self) -> None:
        await self.runtime.remove_pod(self.sandbox)

    async def restart(self) -> None:
        await self.runtime.restart()


class Real:
    """A containerd; its driver has a loop of its own, so that each call is made from another thread."""

    def __init__(self, containerd: Containerd) -> None:
        self.containerd = containerd
        self.pod: PodOnNode | None = None

    async def run_pod(self) -> None:
        self.pod = await asyncio.to_thread(self.containerd.run_pod, "db", milli=sum(AMOUNTS.values()))

    async def create(self, name: str) -> str:
        assert self.pod is not None
        return await asyncio.to_thread(self.containerd.create, self.pod, Ask(name, AMOUNTS[name]))

    async def start(self, container: str) -> None:
        await asyncio.to_thread(self.containerd.start_container, container)

    async def update(self, container: str, asked: Spec) -> None:
        amounts = {"cpu_shares": asked.shares, "cpu_quota": asked.quota, "cpu_period": asked.period}
        await asyncio.to_thread(self.containerd.wait, self.containerd.update_async(container, **amounts))

    async def stop(self, container: str) -> None:
        await asyncio.to_thread(self.containerd.wait, self.containerd.stop_container_async(container))

    async def remove(self, container: str) -> None:
        request = cri.RemoveContainerRequest(container_id=container)
        call = self.containerd.call("RemoveContainer", request, cri.RemoveContainerResponse)
        await asyncio.to_thread(self.containerd.wait, call)

    async def stop_pod(self) -> None:
        assert self.pod is not None
        request = cri.StopPodSandboxRequest(pod_sandbox_id=self.pod.id)
        call = self.containerd.call("StopPodSandbox", request, cri.StopPodSandboxResponse)
        await asyncio.to_thread(self.containerd.wait, call)

    async def remove_pod(self) -> None:
        assert self.pod is not None
        await asyncio.to_thread(self.containerd.remove_pod, self.pod)

    async def restart(self) -> None:
        await asyncio.to_thread(self.containerd.restart)


def _exactly(milli: int) -> Resources:
    return Resources(Amounts(milli, 1 << 30), Amounts(milli, 1 << 30))


async def play(node: Driven, listener: Listener, told: Told) -> None:
    """Have everything happen that a plugin is told of, refusals and a restart included."""
    await node.run_pod()
    app = await node.create("app")
    await node.start(app)
    await node.update(app, Spec(shares=512))
    await node.update(app, Spec(1024, 100_000, 100_000))
    listener.refused = "create"
    with pytest.raises(PinfoldError, match="refused"):
        await node.create("refused")
    listener.refused = "start"
    late = await node.create("late")
    with pytest.raises(PinfoldError, match="refused"):
        await node.start(late)
    listener.refused = ""
    never = await node.create("never")
    await node.stop(app)
    await node.remove(app)
    told.links.clear()
    await node.restart()
    await told.until(NRILink.SYNCHRONIZED)
    await node.remove(never)
    await node.remove(late)
    await node.stop_pod()
    await node.remove_pod()
    await node.run_pod()
    await node.stop_pod()
    await node.remove_pod()
    listener.refused = "run_pod"
    with pytest.raises(PinfoldError, match="refused"):
        await node.run_pod()


async def heard(node: Driven, socket: str) -> list[Heard | str]:
    """Return what a plugin at *socket* hears of it all."""
    listener, told = Listener(), Told()
    serving = asyncio.create_task(serve(socket, told.plugin(listener)))
    try:
        await told.until(NRILink.SYNCHRONIZED)
        await play(node, listener, told)
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
    return listener.heard


class Seen(NamedTuple):
    """What a client is told of a container."""

    phase: Phase
    runs: bool
    attempt: int
    amounts: tuple[int | None, int | None, int | None, str]
    is_in_its_pod: bool
    labels: tuple[str, ...]
    annotations: tuple[str, ...]


async def seen(node: Driven, socket: str) -> list[object]:
    """Return what a client at *socket* sees of a pod's life: statuses, lists, then the events."""
    found: list[object] = []
    async with asyncio.timeout(CALL), CRIClient(socket, deadline=CALL) as client, client.events() as events:
        await client.version()
        await node.run_pod()
        [pod] = await client.pods()
        app = await node.create("app")
        found.append(await _status(client, app))
        await node.start(app)
        found.append(await _status(client, app))
        await node.update(app, Spec(shares=512))
        found.append(await _status(client, app))
        await node.stop(app)
        found.append(await _status(client, app))
        with pytest.raises(CallError) as missing:
            await client.status("f" * 64)
        found += [(listed.name, listed.phase) for listed in await client.containers(pod.id)]
        await node.stop_pod()
        found += [(listed.name, listed.ready, missing.value.code) for listed in await client.pods()]
        await node.remove(app)
        await node.remove_pod()
        names = {app: "app", pod.id: "sandbox"}
        async for event in events:
            found.append((event.what, names[event.container], names[event.pod]))
            if (event.what, event.container) == (Happening.DELETED, pod.id):
                break
    return found


async def _status(client: CRIClient, container: str) -> Seen:
    status = await client.status(container)
    return Seen(
        status.phase,
        bool(status.pid),
        status.attempt,
        (status.shares, status.quota, status.period, status.cpus),
        parse_parent(parent_of(status.cgroups_path)) is not None and status.cgroups_path.endswith(f"/{container}"),
        tuple(sorted(status.labels)),
        tuple(sorted(status.annotations)),
    )


async def scripted(look: Callable[[Driven, str], Awaitable[list[T]]], directory: Path) -> list[T]:
    """Return what a plugin or client gets from a scripted runtime."""
    runtime = ScriptedRuntime(Simulated(CPUSet.parse("0-7")))
    service = runtime.nri if look is heard else runtime.cri
    await service.listen(str(directory / "runtime.sock"))
    try:
        return await look(Scripted(runtime), service.path)
    finally:
        await runtime.close()


def test_scripted_runtime_tells_a_plugin_what_containerd_tells(tmp_path: Path) -> None:
    with Containerd("sid") as containerd:
        real = asyncio.run(heard(Real(containerd), str(containerd.nri_socket)))
    assert asyncio.run(scripted(heard, tmp_path)) == real


def test_scripted_runtime_tells_a_client_what_containerd_tells(tmp_path: Path) -> None:
    with Containerd("sid") as containerd:
        real = asyncio.run(seen(Real(containerd), str(containerd.cri_socket)))
    assert asyncio.run(scripted(seen, tmp_path)) == real
