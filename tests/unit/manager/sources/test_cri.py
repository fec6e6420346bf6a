"""CRISource against a scripted runtime: runtimes that go away, tell nothing, or refuse; containers that must wait."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest

from pinfold.core.machine.cpuset import EMPTY
from pinfold.manager.sources.cri import CRISource
from pinfold.manager.sources.nri import NRISource
from pinfold.runtimes.cri.client import CRIClient
from pinfold.runtimes.inherited import Inherited
from pinfold.runtimes.nri.answers import Answers
from tests.unit.manager.sources.test_supervisor import Clock
from tests.unit.manager.test_scripted_node import Pinfold
from tests.unit.runtimes.simulated.scripts import PATIENT, Node, guaranteed, play

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from pinfold.formats.pods.runtime import RuntimeContainer
    from pinfold.runtimes.inherited import ProcessesOf
    from pinfold.runtimes.simulated.settings import RuntimeSettings


@asynccontextmanager
async def following(pinfold: Pinfold, path: Path) -> AsyncIterator[CRISource]:
    """Have pinfold follow the runtime at a socket."""
    async with CRIClient(str(path)) as client:
        source = CRISource(pinfold.node, client, pinfold.bus)
        task = asyncio.create_task(source.follow())
        try:
            yield source
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for what the source does by itself."""
    async with asyncio.timeout(20):
        while not is_so():  # noqa: ASYNC110 - it happens in the source, which sends no event
            await asyncio.sleep(0.01)


def play_followed(
    tmp_path: Path, script: Callable[[Node, Pinfold], Awaitable[None]], settings: RuntimeSettings = PATIENT
) -> None:
    """Play a script on a node that pinfold follows over CRI, and already knows."""
    path = tmp_path / "cri.sock"

    async def followed(node: Node) -> None:
        pinfold = Pinfold(node, "cri")
        await node.runtime.cri.listen(str(path))
        async with following(pinfold, path):
            await until(lambda: pinfold.node.roster.is_complete)
            await script(node, pinfold)

    play(followed, settings)


def test_a_runtime_that_goes_away_is_followed_again_when_it_is_back(tmp_path: Path) -> None:
    path = tmp_path / "cri.sock"

    async def script(node: Node) -> None:
        pinfold = Pinfold(node, "cri")
        async with following(pinfold, path):
            await until(lambda: pinfold.node.link[0] == "closed" and bool(pinfold.node.link[1]))
            for _ in range(2):
                await node.runtime.cri.listen(str(path))
                await until(lambda: pinfold.node.link == ("connected", "containerd 2.1.9"))
                await node.runtime.cri.close()
                await until(lambda: pinfold.node.link[0] == "closed")

    play(script)


def test_a_container_that_starts_while_the_runtime_is_away_is_freed_of_what_it_has_inherited(tmp_path: Path) -> None:
    path = tmp_path / "cri.sock"
    freed: list[str] = []

    class Freeing(Inherited):
        def lift_running(self, container: RuntimeContainer) -> None:
            freed.append(container.id)

    async def script(node: Node) -> None:
        pinfold = Pinfold(node, "cri")
        await node.runtime.pods.run(guaranteed("before"))
        await node.runtime.cri.listen(str(path))
        async with following(pinfold, path):
            await until(lambda: str(pinfold.manager.state.exclusive) == "1-2")
            pinfold.node.inherited = Freeing(cast("ProcessesOf", None), lambda: EMPTY)
            await node.runtime.cri.close()
            await until(lambda: pinfold.node.link[0] == "closed")
            known = set(pinfold.node.roster.containers)
            await node.runtime.pods.run(guaranteed("late"))
            await node.runtime.cri.listen(str(path))
            await until(lambda: str(pinfold.manager.state.exclusive) == "1-4")
            assert set(freed) == pinfold.node.roster.containers.keys() - known

    play(script)
    assert len(freed) == 1


class Watchful(Inherited):
    """Notes which CPUs were exclusive when a container was freed."""

    def __init__(self, pinfold: Pinfold) -> None:
        super().__init__(cast("ProcessesOf", None), lambda: EMPTY)
        self._pinfold = pinfold
        self.freed: list[tuple[str, str]] = []

    def lift_running(self, container: RuntimeContainer) -> None:
        self.freed.append((container.id, str(self._pinfold.manager.state.exclusive)))


def play_looked(tmp_path: Path, script: Callable[[Node, Pinfold, CRIClient], Awaitable[None]]) -> None:
    """Play a script that looks at the runtime itself."""
    path = tmp_path / "cri.sock"

    async def looked(node: Node) -> None:
        await node.runtime.cri.listen(str(path))
        async with CRIClient(str(path)) as client:
            await script(node, Pinfold(node, "cri"), client)

    play(looked)


def test_what_a_container_has_inherited_is_lifted_before_the_runtime_gets_cpus_back(tmp_path: Path) -> None:
    async def script(node: Node, pinfold: Pinfold, client: CRIClient) -> None:
        source = CRISource(pinfold.node, client, pinfold.bus)
        first = await node.runtime.pods.run(guaranteed("first"))
        await source.look()
        pinfold.node.inherited = watchful = Watchful(pinfold)
        await node.runtime.remove_pod(first.id)
        await node.runtime.pods.run(guaranteed("late", milli=4000))
        await source.look()
        assert [cpus for _, cpus in watchful.freed] == ["1-2"]
        assert str(pinfold.manager.state.exclusive) == "1-4"

    play_looked(tmp_path, script)


def test_a_container_that_was_created_and_starts_while_the_runtime_is_away_is_freed_too(tmp_path: Path) -> None:
    async def script(node: Node, pinfold: Pinfold, client: CRIClient) -> None:
        sandbox = await node.runtime.run_pod(guaranteed())
        created = await node.runtime.create_container(sandbox.id, "app")
        await CRISource(pinfold.node, client, pinfold.bus).look()
        assert pinfold.node.roster.containers[created.id].phase == "created"
        pinfold.node.inherited = watchful = Watchful(pinfold)
        await node.runtime.start_container(created.id)
        for _ in range(2):  # each time as a new connection
            await CRISource(pinfold.node, client, pinfold.bus).look()
        assert [freed for freed, _ in watchful.freed] == [created.id]

    play_looked(tmp_path, script)


def test_a_runtime_without_events_is_asked_again_and_again(tmp_path: Path) -> None:
    async def script(node: Node, pinfold: Pinfold) -> None:
        sandbox = await node.runtime.pods.run(guaranteed())
        await until(lambda: str(pinfold.manager.state.exclusive) == "1-2")
        await node.runtime.remove_pod(sandbox.id)
        await until(lambda: not pinfold.manager.state.exclusive)

    play_followed(tmp_path, script, replace(PATIENT, events=False))


def test_an_owner_that_is_created_first_is_pinned_before_it_runs(tmp_path: Path) -> None:
    async def script(node: Node, pinfold: Pinfold) -> None:
        sandbox = await node.runtime.run_pod(guaranteed())
        created = await node.runtime.create_container(sandbox.id, "app")
        await node.runtime.cri.until("UpdateContainerResources")
        await node.runtime.start_container(created.id)
        await until(lambda: pinfold.node.roster.containers[created.id].phase == "running")
        assert pinfold.cpus(created) == "1-2"
        assert pinfold.told("ran-unpinned") == []

    play_followed(tmp_path, script, replace(PATIENT, early=True))


def test_an_owner_without_room_runs_unpinned_until_enough_cpus_are_free(tmp_path: Path) -> None:
    async def script(node: Node, pinfold: Pinfold) -> None:
        first = await node.runtime.pods.run(guaranteed("first", milli=5000))
        await node.runtime.pods.run(guaranteed("second", milli=4000))
        await until(lambda: len(pinfold.node.unpinned) == 1)
        await pinfold.node.settle()
        assert len(pinfold.node.unpinned) == 1
        await node.runtime.remove_pod(first.id)
        await until(lambda: not pinfold.manager.state.exclusive)
        await pinfold.node.settle()
        assert pinfold.cpus(node.runtime.record.find("second", "app")) == "1-4"
        assert len(pinfold.node.unpinned) == 0
        assert pinfold.told("ran-unpinned")[-1].fields["pod"] == "second"

    play_followed(tmp_path, script)


@pytest.mark.parametrize("early", [False, True], ids=["seen when it runs", "seen when it is created"])
def test_a_refused_container_is_in_the_shared_pool_at_once(tmp_path: Path, *, early: bool) -> None:
    async def script(node: Node, pinfold: Pinfold) -> None:
        await node.runtime.pods.run(guaranteed("first", milli=5000))
        await until(lambda: str(pinfold.manager.state.exclusive) == "1-5")
        sandbox = await node.runtime.run_pod(guaranteed("second", milli=4000))
        second = await node.runtime.create_container(sandbox.id, "app")
        await until(lambda: second.id in pinfold.node.unpinned)
        await node.runtime.start_container(second.id)
        await until(lambda: pinfold.cpus(second) == "0,6-7")
        assert pinfold.told("drift") == []  # it did not wait for the periodic check

    play_followed(tmp_path, script, replace(PATIENT, early=early))


def test_an_owner_that_ends_while_it_waits_for_cpus_is_told_and_forgotten(tmp_path: Path) -> None:
    async def script(node: Node, pinfold: Pinfold) -> None:
        await node.runtime.pods.run(guaranteed(milli=8000))
        await until(lambda: len(pinfold.node.unpinned) == 1)
        waiting = node.runtime.record.find("db", "app")
        await node.runtime.stop_container(waiting.id)
        await until(lambda: pinfold.node.roster.containers[waiting.id].phase == "stopped")
        await pinfold.node.settle()
        assert len(pinfold.node.unpinned) == 0
        assert [entry.fields["container"] for entry in pinfold.told("ran-unpinned")] == ["app"]

    play_followed(tmp_path, script)


def test_an_owner_whose_pod_is_removed_while_it_waits_for_cpus_is_told_by_its_pods_name(tmp_path: Path) -> None:
    async def script(node: Node, pinfold: Pinfold) -> None:
        sandbox = await node.runtime.pods.run(guaranteed(milli=8000))
        await until(lambda: len(pinfold.node.unpinned) == 1)
        await node.runtime.remove_pod(sandbox.id)
        await until(lambda: not pinfold.node.roster.pods)
        await pinfold.node.settle()
        assert [entry.fields["pod"] for entry in pinfold.told("ran-unpinned")] == ["db"]

    play_followed(tmp_path, script)


def test_a_runtime_that_does_not_record_cpus_is_told_of_after_some_tries(tmp_path: Path) -> None:
    path = tmp_path / "cri.sock"

    async def script(node: Node) -> None:
        pinfold = Pinfold(node, "cri")
        await node.runtime.cri.listen(str(path))
        async with CRIClient(str(path)) as client:
            source = CRISource(pinfold.node, client, pinfold.bus)
            sandbox = await node.runtime.pods.run(guaranteed())
            await source.look()
            await node.runtime.remove_pod(sandbox.id)  # before the runtime is told
            await until(lambda: bool(pinfold.told("not-recorded")))
        assert node.runtime.cri.calls.count("UpdateContainerResources") == 5

    play(script)


def test_beside_nri_containers_that_it_did_not_tell_of_are_found(tmp_path: Path) -> None:
    path = tmp_path / "cri.sock"
    clock = Clock()

    async def script() -> None:
        node = Node()
        pinfold = Pinfold(node, "nri")
        await node.runtime.cri.listen(str(path))
        plugin = await node.plug(Answers(NRISource(pinfold.node, pinfold.bus)))
        await node.unplug(plugin)
        pinfold.node.linked("synchronized", "containerd 2.1.9")
        await node.runtime.pods.run(guaranteed())
        async with CRIClient(str(path)) as client:
            audit = asyncio.create_task(CRISource(pinfold.node, client, pinfold.bus).audit())
            await clock.leap(0)
            await clock.leap(6)
            await until(lambda: str(pinfold.manager.state.exclusive) == "1-2")
            audit.cancel()
            await asyncio.gather(audit, return_exceptions=True)
        await node.close()

    with asyncio.Runner(loop_factory=lambda: clock) as runner:
        runner.run(script())


@pytest.mark.parametrize(
    ("runtime", "is_used"), [("containerd 2.1.9", True), ("cri-o 1.30.1", False)], ids=["the same", "another runtime"]
)
def test_a_cri_socket_that_was_found_is_used_if_the_same_runtime_answers(
    tmp_path: Path, runtime: str, *, is_used: bool
) -> None:
    path = tmp_path / "cri.sock"
    clock = Clock()

    async def script() -> None:
        node = Node()
        pinfold = Pinfold(node, "nri")
        await node.runtime.cri.listen(str(path))
        await node.runtime.pods.run(guaranteed())
        await pinfold.node.resync([], [])
        async with CRIClient(str(path)) as client:
            audit = asyncio.create_task(CRISource(pinfold.node, client, pinfold.bus).audit(found=True))
            await clock.leap(0)
            pinfold.node.linked("synchronized", runtime)
            for count in (1, 2):
                await clock.leap(0.6)
                await node.runtime.cri.until("Version", count)
            if is_used:
                await until(lambda: str(pinfold.manager.state.exclusive) == "1-2")
            audit.cancel()
            await asyncio.gather(audit, return_exceptions=True)
        assert bool(pinfold.manager.state.exclusive) is is_used
        await node.close()

    with asyncio.Runner(loop_factory=lambda: clock) as runner:
        runner.run(script())


def test_a_pod_that_ends_while_a_launched_plugin_asks_what_runs_gives_its_cpus_back(tmp_path: Path) -> None:
    path = tmp_path / "cri.sock"
    clock = Clock()

    async def script() -> None:
        node = Node()
        pinfold = Pinfold(node, "nri")
        await node.runtime.cri.listen(str(path))
        sandbox = await node.runtime.pods.run(guaranteed())
        async with CRIClient(str(path)) as client:
            source = CRISource(pinfold.node, client, pinfold.bus, is_told_all=False)
            audit = asyncio.create_task(source.audit())
            await clock.leap(0)
            pinfold.node.linked("registered", "containerd 1.7.24")
            await clock.leap(0.6)
            await until(lambda: str(pinfold.manager.state.exclusive) == "1-2")
            await node.runtime.remove_pod(sandbox.id)  # NRI has reported its end before we knew the pod
            for count in (2, 3):
                await clock.leap(0.6)
                await node.runtime.cri.until("ListPodSandbox", count)
            await until(lambda: not pinfold.manager.state.exclusive)
            audit.cancel()
            await asyncio.gather(audit, return_exceptions=True)
        await node.close()

    with asyncio.Runner(loop_factory=lambda: clock) as runner:
        runner.run(script())
