"""NRISource against a scripted runtime: updates, pods that vanish, and runtimes that do not go on."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.cpuset import CPUSet
from pinfold.manager.sources.nri import NRISource
from pinfold.node.podgroups.settings import CPUS, Quota
from pinfold.runtimes.nri.answers import Answers
from pinfold.runtimes.simulated.record import Spec
from tests.unit.manager.sources.test_supervisor import Clock, Host, on_a_clock
from tests.unit.manager.test_scripted_node import Pinfold
from tests.unit.runtimes.simulated.scripts import Node, burstable, exactly, guaranteed, play

if TYPE_CHECKING:
    from pathlib import Path


def test_an_update_cannot_move_an_owner() -> None:
    async def script(node: Node) -> None:
        pinfold = Pinfold(node, "nri")
        await node.plug(Answers(NRISource(pinfold.node, pinfold.bus)))
        await node.runtime.pods.run(guaranteed())
        db = node.runtime.record.find("db", "app")
        await node.runtime.update_container(db.id, Spec(cpus="0-7", quota=50_000))
        assert pinfold.cpus(db) == "1-2"
        assert node.quota(node.group(db)) is None

    play(script)


@pytest.mark.parametrize("asked", [Spec(cpus="1-2"), Spec(shares=4096)], ids=["CPUs of an owner", "no CPUs"])
def test_an_update_of_a_sharing_container_keeps_it_in_the_shared_pool(asked: Spec) -> None:
    async def script(node: Node) -> None:
        pinfold = Pinfold(node, "nri")
        await node.plug(Answers(NRISource(pinfold.node, pinfold.bus)))
        await node.runtime.pods.run(burstable())
        await node.runtime.pods.run(guaranteed())
        web = node.runtime.record.find("web", "app")
        await node.runtime.update_container(web.id, asked)
        assert pinfold.cpus(web) == "0,3-7"

    play(script)


def test_where_a_kubelet_manages_cpus_nothing_is_changed() -> None:
    async def script(node: Node) -> None:
        pinfold = Pinfold(node, "nri", read_only=True)
        await node.plug(Answers(NRISource(pinfold.node, pinfold.bus)))
        sandbox = await node.runtime.pods.run(guaranteed())
        db = node.runtime.record.find("db", "app")
        await node.runtime.update_container(db.id, Spec(cpus="5"))
        assert pinfold.cpus(db) == "5"
        assert not pinfold.manager.state.exclusive
        assert db.id in pinfold.node.roster.containers
        await node.runtime.remove_pod(sandbox.id)
        assert not pinfold.node.roster.pods

    play(script)


def test_memory_of_an_owner_that_asks_for_it_is_near_its_cpus() -> None:
    async def script(node: Node) -> None:
        pinfold = Pinfold(node, "nri")
        await node.plug(Answers(NRISource(pinfold.node, pinfold.bus)))
        await node.runtime.pods.run(replace(guaranteed(), annotations={"pinfold.dev/local-memory": "true"}))
        assert node.runtime.record.find("db", "app").spec.mems == "0"

    play(script)


def test_a_pod_that_ends_untold_gives_its_cpus_back_when_that_is_noticed() -> None:
    async def script(node: Node) -> None:
        pinfold = Pinfold(node, "nri")
        plugin = await node.plug(Answers(NRISource(pinfold.node, pinfold.bus)))
        sandbox = await node.runtime.pods.run(guaranteed())
        await pinfold.node.settle()
        await node.unplug(plugin)
        await node.runtime.remove_pod(sandbox.id)
        assert str(pinfold.manager.state.exclusive) == "1-2"
        await pinfold.node.settle()
        assert not pinfold.manager.state.exclusive
        assert [entry.fields["pod"] for entry in pinfold.told("vanished")] == ["db"]

    play(script)


def test_of_many_pods_each_period_looks_at_the_owners_and_at_a_hundred_others() -> None:
    async def script(node: Node) -> None:
        pinfold = Pinfold(node, "nri")
        plugin = await node.plug(Answers(NRISource(pinfold.node, pinfold.bus)))
        shared = [await node.runtime.pods.run(burstable(f"web-{number}")) for number in range(250)]
        owner = await node.runtime.pods.run(guaranteed())
        for _ in range(3):
            await pinfold.node.settle()
        await node.unplug(plugin)
        for sandbox in (*shared, owner):
            await node.runtime.remove_pod(sandbox.id)
        left = []
        for _ in range(3):
            await pinfold.node.settle()
            left.append(len(pinfold.node.roster.pods))
        assert not pinfold.manager.state.exclusive
        assert left == [150, 100, 0]  # the others have moved up

    play(script)


def test_a_pod_that_is_gone_is_forgotten_with_its_containers() -> None:
    async def script(node: Node) -> None:
        pinfold = Pinfold(node, "nri")
        await node.plug(Answers(NRISource(pinfold.node, pinfold.bus)))
        sandboxes = [await node.runtime.pods.run(pod) for pod in (guaranteed(), burstable())]
        assert len(pinfold.node.since) == 2
        for sandbox in sandboxes:
            await pinfold.node.gone(sandbox.id)
        assert not pinfold.node.since
        assert not pinfold.manager.telling.names.shown()

    play(script)


def test_a_pod_whose_containers_were_removed_before_it_is_forgotten() -> None:
    async def script(node: Node) -> None:
        pinfold = Pinfold(node, "nri")
        await node.plug(Answers(NRISource(pinfold.node, pinfold.bus)))
        sandbox = await node.runtime.pods.run(burstable("job"))
        await node.runtime.remove_container(node.runtime.record.find("job", "app").id)
        await node.runtime.remove_pod(sandbox.id)
        await pinfold.node.settle()
        pinfold.bus.flush()
        assert not pinfold.manager.telling.names.shown()
        assert [entry.fields["pod"] for entry in pinfold.told("gone")] == ["job"]

    play(script)


def test_cpus_of_a_pod_that_ended_untold_are_taken_back_when_another_needs_them() -> None:
    async def script(node: Node) -> None:
        pinfold = Pinfold(node, "nri")
        await node.plug(Answers(NRISource(pinfold.node, pinfold.bus)))
        sandbox = await node.runtime.pods.run(guaranteed(milli=7000))
        await pinfold.node.settle()
        for ended in (node.runtime.record.find("db", "app"), sandbox):
            for pid in node.groups.members(node.group(ended)):
                node.groups.end(pid)
            node.groups.remove(node.group(ended))
        await node.runtime.pods.run(guaranteed("next", milli=7000))
        assert pinfold.cpus(node.runtime.record.find("next", "app")) == "1-7"
        assert [entry.fields["pod"] for entry in pinfold.told("vanished")] == ["db"]

    play(script)


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_runtime_that_registers_us_and_does_not_go_on_is_told(tmp_path: Path, *, goes_on: bool) -> None:
    async def scenario(host: Host, clock: Clock) -> None:
        source = NRISource(host.here, host.bus)
        source.linked("registered", "containerd 1.7.0")
        if goes_on:
            source.linked("synchronized", "containerd 1.7.0")
        await clock.leap(11)
        assert ("runtime-hangs" in host.told()) is not goes_on

    on_a_clock(tmp_path, scenario)


def test_cpus_of_an_owner_whose_end_is_not_reported_are_shared_again_within_a_second() -> None:
    clock = Clock()

    async def script() -> None:
        node = Node()
        pinfold = Pinfold(node, "nri")
        source = NRISource(pinfold.node, pinfold.bus)
        plugin = await node.plug(Answers(source))
        looking = asyncio.create_task(source.look_for_ends())
        sandbox = await node.runtime.pods.run(guaranteed())
        await clock.leap(0.5)
        await node.unplug(plugin)
        await node.runtime.remove_pod(sandbox.id)
        await clock.leap(0.5)
        assert not pinfold.manager.state.exclusive
        assert [entry.fields["pod"] for entry in pinfold.told("vanished")] == ["db"]
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        await node.close()

    with asyncio.Runner(loop_factory=lambda: clock) as runner:
        runner.run(script())


def test_owners_are_looked_at_seldom_while_ends_are_heard_of_and_soon_after_the_runtime_has_hung_up() -> None:
    clock = Clock()

    async def script() -> None:
        node = Node()
        pinfold = Pinfold(node, "nri")
        source = NRISource(pinfold.node, pinfold.bus)
        source.is_watched = lambda: True
        plugin = await node.plug(Answers(source))
        source.linked("synchronized", "containerd 2.1.9")
        sandbox = await node.runtime.pods.run(guaranteed())
        await pinfold.node.sweeping.sweep_owners()
        looking = asyncio.create_task(source.look_for_ends())
        await clock.leap(0.1)
        await node.unplug(plugin)
        await node.runtime.remove_pod(sandbox.id)
        await clock.leap(30)
        assert pinfold.manager.state.exclusive
        source.linked("closed", "closed by the runtime")
        for _ in range(2):
            await clock.leap(0.5)
        assert not pinfold.manager.state.exclusive
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        await node.close()

    with asyncio.Runner(loop_factory=lambda: clock) as runner:
        runner.run(script())


@pytest.mark.parametrize("nested", [False, True], ids=["cgroup v2", "cgroup v1"])
@pytest.mark.parametrize(("milli", "cpus"), [(2000, "3-4"), (1500, "0,3-7")], ids=["owner", "sharing"])
def test_a_container_whose_answer_the_runtime_did_not_wait_for_is_corrected_before_it_connects_again(
    milli: int, cpus: str, *, nested: bool
) -> None:
    clock = Clock()

    async def script() -> None:
        node = Node(nested=nested)
        pinfold = Pinfold(node, "nri")
        source = NRISource(pinfold.node, pinfold.bus)
        plugin = await node.plug(Answers(source))
        source.linked("synchronized", "containerd 2.1.9")
        await node.runtime.pods.run(guaranteed("first"))
        looking = asyncio.create_task(source.look_for_ends())
        sandbox = await node.runtime.run_pod(guaranteed(milli=milli))
        created = await node.runtime.create_container(sandbox.id, "app")
        await node.unplug(plugin)
        source.linked("closed", "closed by the runtime")
        await node.runtime.start_container(created.id)
        node.groups.set_own(node.group(created).parent, CPUS, CPUSet.parse("0-7"))
        node.groups.set_own(node.group(created), CPUS, CPUSet.parse("0-7"))  # the runtime has no CPUs for it
        await clock.leap(0.5)
        assert pinfold.cpus(created) == cpus
        for _ in range(2):
            await node.unplug(await node.plug(Answers(source)))
            assert [entry.fields["pod"] for entry in pinfold.told("ran-unpinned")] == ["db"] * (milli == 2000)
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        await node.close()

    with asyncio.Runner(loop_factory=lambda: clock) as runner:
        runner.run(script())


def test_a_quota_that_is_lifted_before_an_owner_runs_is_no_lost_update() -> None:
    async def script(node: Node) -> None:
        pinfold = Pinfold(node, "nri")
        await node.plug(Answers(NRISource(pinfold.node, pinfold.bus)))
        sandbox = await node.runtime.run_pod(guaranteed())
        created = await node.runtime.create_container(sandbox.id, "app")
        node.runtime.spawn_container(created.id)
        pod = node.group(created).parent
        node.groups.set_quota(pod, Quota(200_000))  # as a kubelet does
        await node.runtime.start_container(created.id)
        assert node.quota(pod) is None
        assert pinfold.told("lost-update") == []

    play(script)


@pytest.mark.parametrize("nested", [False, True], ids=["cgroup v2", "cgroup v1"])
def test_sharing_containers_beside_an_owner_are_no_lost_updates_and_no_drift(*, nested: bool) -> None:
    async def script(node: Node) -> None:
        pinfold = Pinfold(node, "nri")
        await node.plug(Answers(NRISource(pinfold.node, pinfold.bus)))
        names = [f"helper-{number}" for number in range(3)]
        owner = guaranteed().containers[0]
        pod = replace(guaranteed(), containers=(owner, *(exactly(name, 500) for name in names)))
        sandbox = await node.runtime.run_pod(pod)
        await node.runtime.pods.run_container(sandbox.id, "app")
        for name in names:
            created = await node.runtime.create_container(sandbox.id, name)
            node.runtime.spawn_container(created.id)  # it copies the CPUs of its pod, the owner's too
            assert pinfold.manager.reconcile() == []
            await node.runtime.start_container(created.id)
            await node.runtime.post_start(created.id)
            assert pinfold.cpus(created) == "0,3-7"
        await node.runtime.pods.run(burstable())
        assert pinfold.manager.reconcile() == []
        assert (pinfold.told("lost-update"), pinfold.told("drift")) == ([], [])

    play(script, nested=nested)
