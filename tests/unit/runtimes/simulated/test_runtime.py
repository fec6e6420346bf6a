"""The scripted runtime against real plugins: what it asks, in which order, and what becomes of the answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pinfold.errors import PinfoldError
from pinfold.formats.pods.runtime import Phase
from pinfold.node.cgroupfiles import CgroupError
from pinfold.proto import nri_pb2 as nri
from pinfold.runtimes.simulated.containers import WrongPhase
from pinfold.runtimes.simulated.nri.peer import PluginError
from pinfold.runtimes.simulated.record import Spec
from pinfold.runtimes.simulated.settings import RUNTIMES, RuntimeSettings
from tests.unit.runtimes.nrirecorder import Quiet, adjustment, update
from tests.unit.runtimes.simulated.scripts import Node, burstable, exactly, guaranteed, play


@pytest.mark.parametrize("name", ["containerd-2.1", "containerd-2.3"])
def test_life_of_a_pod_is_told_in_containerds_order(name: str) -> None:
    handler = Quiet()
    pod = replace(guaranteed(), init=(exactly("setup", 1000), replace(exactly("proxy", 1000), sidecar=True)))

    async def script(node: Node) -> None:
        await node.plug(handler)
        sandbox = await node.runtime.pods.run(pod)
        await node.runtime.remove_pod(sandbox.id)
        assert not node.runtime.record.sandboxes
        assert not node.runtime.record.containers

    play(script, RUNTIMES[name])
    assert handler.asked == [
        "synchronize",
        "run_pod db",
        "create db setup",
        "start db setup",
        "post_start db setup",
        "stop db setup",
        "create db proxy",
        "start db proxy",
        "post_start db proxy",
        "create db app",
        "start db app",
        "post_start db app",
        "stop db proxy",
        "stop db app",
        "stop_pod db",
        "remove db setup",
        "remove db proxy",
        "remove db app",
        "remove_pod db",
    ]


def test_messages_have_the_fields_that_containerd_fills() -> None:
    handler = Quiet()

    async def script(node: Node) -> None:
        await node.plug(handler)
        sandbox = await node.runtime.pods.run(guaranteed())
        container = node.runtime.record.find("db", "app")
        pod, created = handler.messages[1:3]
        assert isinstance(created, nri.Container)
        assert isinstance(pod, nri.PodSandbox)
        assert (pod.id, pod.uid, pod.namespace, pod.linux.cgroup_parent) == (
            sandbox.id,
            "u-db",
            "default",
            "/kubepods/podu-db",
        )
        assert pod.labels["io.cri-containerd.kind"] == "sandbox"
        assert (created.state, created.pid) == (nri.CONTAINER_UNKNOWN, 0)
        assert created.linux.cgroups_path == f"/kubepods/podu-db/{container.id}"
        assert created.labels["io.kubernetes.container.name"] == "app"
        assert created.annotations["io.kubernetes.cri.container-type"] == "container"
        cpu = created.linux.resources.cpu
        assert (cpu.shares.value, cpu.quota.value, cpu.period.value, cpu.cpus) == (2048, 200_000, 100_000, "")
        starting, started = handler.messages[4], handler.messages[6]
        assert isinstance(starting, nri.Container)
        assert isinstance(started, nri.Container)
        assert (starting.state, starting.pid) == (nri.CONTAINER_CREATED, container.pid)
        assert (started.state, started.pid) == (nri.CONTAINER_RUNNING, container.pid)

    play(script)


def test_adjustment_is_in_the_spec_and_the_cgroup_and_not_in_what_the_status_tells() -> None:
    handler = Quiet()
    handler.adjustment = adjustment("2-3")
    handler.adjustment.linux.resources.cpu.quota.value = -1

    async def script(node: Node) -> None:
        await node.plug(handler)
        sandbox = await node.runtime.run_pod(guaranteed())
        container = await node.runtime.create_container(sandbox.id, "app")
        assert (container.spec.cpus, container.spec.quota, container.spec.shares) == ("2-3", -1, 2048)
        assert (container.told.cpus, container.told.quota) == ("", 200_000)
        assert not node.groups.exists(node.group(container))
        await node.runtime.start_container(container.id)
        assert node.cpus(container) == "2-3"
        assert node.quota(node.group(container)) is None
        assert node.quota(node.group(container).parent) == 200_000

    play(script)


def test_updates_of_others_are_applied_before_the_new_container_exists() -> None:
    handler = Quiet()

    async def script(node: Node) -> None:
        await node.runtime.pods.run(burstable())
        web = node.runtime.record.find("web", "app")
        handler.updates = [update(web.id, "0-1"), update("unknown", "0"), update(web.id, "99")]
        await node.plug(handler)
        sandbox = await node.runtime.run_pod(guaranteed())
        await node.runtime.create_container(sandbox.id, "app")
        assert node.cpus(web) == "0-1"
        web = node.runtime.record.find("web", "app")
        assert (web.spec.cpus, web.told.cpus, web.spec.shares) == ("0-1", "0-1", 512)
        assert ["no such CPU" in str(error) for error in node.runtime.unapplied] == [True, True]

    play(script)


def test_refused_creation_leaves_no_container_and_the_plugin_stays() -> None:
    handler = Quiet()

    async def script(node: Node) -> None:
        await node.plug(handler)
        sandbox = await node.runtime.run_pod(guaranteed())
        handler.error = PinfoldError("wanted 4 CPUs, 2 free (0-1)")
        with pytest.raises(PluginError, match="wanted 4 CPUs, 2 free") as refusal:
            await node.runtime.create_container(sandbox.id, "app")
        assert (refusal.value.method, refusal.value.code) == ("CreateContainer", 9)
        assert node.runtime.nri.errors[0] is refusal.value
        assert not node.runtime.record.containers
        handler.error = None
        await node.runtime.create_container(sandbox.id, "app")

    play(script)
    assert handler.asked[2:] == ["create db app", "stop db app", "remove db app", "create db app"]


def test_refused_start_leaves_a_dead_container() -> None:
    handler = Quiet()

    async def script(node: Node) -> None:
        await node.plug(handler)
        sandbox = await node.runtime.run_pod(guaranteed())
        container = await node.runtime.create_container(sandbox.id, "app")
        handler.error = PinfoldError("not verified")
        with pytest.raises(PluginError, match="not verified"):
            await node.runtime.start_container(container.id)
        handler.error = None
        dead = node.runtime.record.container(container.id)
        assert (dead.phase, dead.pid, dead.exit_code) == (Phase.STOPPED, 0, 128)
        assert "not verified" in dead.why
        assert not node.groups.exists(node.group(container))
        with pytest.raises(WrongPhase, match="is stopped; only a created one can be started"):
            await node.runtime.start_container(container.id)
        assert (await node.runtime.create_container(sandbox.id, "app")).attempt == 1

    play(script)
    assert handler.asked[2:] == ["create db app", "start db app", "stop db app", "create db app"]


def test_refused_pod_is_stopped_and_removed() -> None:
    handler = Quiet()

    async def script(node: Node) -> None:
        await node.plug(handler)
        handler.error = PinfoldError("no")
        with pytest.raises(PluginError, match="no"):
            await node.runtime.run_pod(guaranteed())
        assert not node.runtime.record.sandboxes

    play(script)
    assert handler.asked[1:] == ["run_pod db", "stop_pod db", "remove_pod db"]


def test_error_after_the_fact_is_only_kept() -> None:
    handler = Quiet()

    async def script(node: Node) -> None:
        await node.plug(handler)
        sandbox = await node.runtime.run_pod(guaranteed())
        container = await node.runtime.create_container(sandbox.id, "app")
        await node.runtime.start_container(container.id)
        handler.error = PinfoldError("too late")
        await node.runtime.post_start(container.id)
        await node.runtime.remove_pod(sandbox.id)
        methods = [error.method for error in node.runtime.nri.errors if isinstance(error, PluginError)]
        assert methods == ["StateChange", "StopContainer", "StateChange", "StateChange", "StateChange"]

    play(script)


def test_update_asks_for_no_cpus_and_is_overruled_by_the_plugin() -> None:
    class Pinner(Quiet):
        def update(
            self, pod: nri.PodSandbox, container: nri.Container, wanted: nri.LinuxResources
        ) -> list[nri.ContainerUpdate]:
            self.note("update", pod, container)
            cpu = wanted.cpu
            self.asked.append(f"{cpu.shares.value} {cpu.quota.value} {cpu.period.value} {cpu.cpus or '-'}")
            changed = update(container.id, "2")
            changed.linux.resources.cpu.quota.value = -1
            return [changed]

    handler = Pinner()

    async def script(node: Node) -> None:
        await node.plug(handler)
        await node.runtime.pods.run(guaranteed())
        container = node.runtime.record.find("db", "app")
        await node.runtime.update_container(container.id, Spec(shares=4096, quota=400_000, period=100_000))
        await node.runtime.update_container(container.id, Spec(cpus="7"))
        found = node.runtime.record.container(container.id)
        assert (found.spec.shares, found.spec.quota, found.spec.cpus) == (4096, -1, "2")
        assert found.told == found.spec
        assert node.cpus(container) == "2"

    play(script)
    asked = [what for what in handler.asked if what[0].isdigit()]
    assert asked == ["4096 400000 100000 -", "0 0 0 7"]  # what CRI leaves out is told as 0


def test_refused_update_changes_nothing() -> None:
    handler = Quiet()

    async def script(node: Node) -> None:
        await node.plug(handler)
        await node.runtime.pods.run(guaranteed())
        before = node.runtime.record.find("db", "app")
        handler.error = PinfoldError("cannot be changed while it runs")
        with pytest.raises(PluginError, match="cannot be changed"):
            await node.runtime.update_container(before.id, Spec(shares=512))
        assert node.runtime.record.container(before.id) == before

    play(script)


def test_update_that_the_cgroup_refuses_changes_nothing() -> None:
    async def script(node: Node) -> None:
        await node.runtime.pods.run(guaranteed())
        before = node.runtime.record.find("db", "app")
        with pytest.raises(CgroupError, match="no such CPU"):
            await node.runtime.update_container(before.id, Spec(cpus="64"))
        assert node.runtime.record.container(before.id) == before

    play(script)


def test_update_while_a_container_is_being_started_reaches_its_spec_and_not_its_cgroup() -> None:
    async def script(node: Node) -> None:
        sandbox = await node.runtime.run_pod(burstable())
        container = await node.runtime.create_container(sandbox.id, "app")
        await node.runtime.update_container(container.id, Spec(cpus="0-3"))
        node.runtime.spawn_container(container.id)
        await node.runtime.update_container(container.id, Spec(cpus="4"))
        container = await node.runtime.start_container(container.id)
        assert (container.spec.cpus, node.cpus(container)) == ("4", "0-3")

    play(script)


def test_runtime_that_makes_cgroups_early_has_them_before_the_start() -> None:
    async def script(node: Node) -> None:
        sandbox = await node.runtime.run_pod(burstable())
        container = await node.runtime.create_container(sandbox.id, "app")
        assert node.groups.members(node.group(container)) == [container.pid]
        assert (await node.runtime.start_container(container.id)).pid == container.pid

    play(script, RuntimeSettings(early=True))


def test_cgroup_that_refuses_keeps_a_container_from_starting() -> None:
    handler = Quiet()
    handler.adjustment = adjustment("64")

    async def script(node: Node) -> None:
        await node.plug(handler)
        sandbox = await node.runtime.run_pod(guaranteed())
        container = await node.runtime.create_container(sandbox.id, "app")
        with pytest.raises(CgroupError, match="no such CPU"):
            await node.runtime.start_container(container.id)
        assert node.runtime.record.container(container.id).phase is Phase.STOPPED
        assert not node.groups.exists(node.group(container))
        await node.runtime.remove_container(container.id)

    play(script)
    assert handler.asked[2:] == ["create db app", "stop db app", "remove db app"]


def test_cgroup_that_refuses_early_keeps_a_container_from_being_created() -> None:
    handler = Quiet()
    handler.adjustment = adjustment("64")

    async def script(node: Node) -> None:
        await node.plug(handler)
        sandbox = await node.runtime.run_pod(guaranteed())
        with pytest.raises(CgroupError, match="no such CPU"):
            await node.runtime.create_container(sandbox.id, "app")
        assert not node.runtime.record.containers

    play(script, RuntimeSettings(early=True))


def test_stopped_pod_has_no_cgroup_and_stays_in_the_record() -> None:
    async def script(node: Node) -> None:
        sandbox = await node.runtime.pods.run(burstable())
        parent = node.group(sandbox).parent
        assert len(node.groups.below(parent)) == 2
        await node.runtime.stop_pod(sandbox.id)
        assert not node.groups.exists(parent)
        assert not node.runtime.record.sandbox(sandbox.id).ready
        assert node.runtime.record.find("web", "app").phase is Phase.STOPPED
        with pytest.raises(WrongPhase, match="is not ready, so it takes no container app"):
            await node.runtime.create_container(sandbox.id, "app")

    play(script)


def test_pod_whose_sandbox_died_keeps_its_cgroup_and_has_two_sandboxes() -> None:
    async def script(node: Node) -> None:
        dead = await node.runtime.pods.run(burstable())
        again = await node.runtime.pods.replace_sandbox(dead.id)
        assert (again.attempt, again.cgroup_parent) == (1, dead.cgroup_parent)
        assert [found.ready for found in node.runtime.record.sandboxes.values()] == [False, True]
        assert node.groups.below(node.group(again).parent) == [node.group(again)]
        await node.runtime.remove_pod(dead.id)
        assert node.groups.exists(node.group(again))

    play(script)


def test_resize_changes_the_pods_cgroup_without_asking_and_the_container_by_an_update() -> None:
    handler = Quiet()

    async def script(node: Node) -> None:
        await node.plug(handler)
        sandbox = await node.runtime.pods.run(guaranteed())
        await node.runtime.pods.resize(sandbox.id, guaranteed(milli=3000))
        container = node.runtime.record.find("db", "app")
        assert (container.spec.shares, container.spec.quota) == (3072, 300_000)
        assert node.quota(node.group(container)) == 300_000
        assert node.quota(node.group(container).parent) == 300_000
        await node.runtime.pods.resize(sandbox.id, guaranteed(milli=3000))

    play(script)
    assert [what for what in handler.asked if "update" in what] == ["update to  db app"]


def test_same_script_gives_the_same_record() -> None:
    found = []

    async def script(node: Node) -> None:
        await node.runtime.pods.run(guaranteed())
        await node.runtime.pods.run(burstable())
        found.append((node.runtime.record.sandboxes, node.runtime.record.containers))

    play(script)
    play(script)
    assert found[0] == found[1]
