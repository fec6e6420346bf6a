"""Devices and memory that the kubelet has chosen are hints: CPUs land at their NUMA nodes, or the pod is refused."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pinfold.core.config import Config
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.topology import Topology
from pinfold.core.pods.pod import Pod, PodUID
from pinfold.errors import PinfoldError
from pinfold.kubernetes.podresources import PodResources
from pinfold.manager.nearby import NodeHints
from pinfold.node.machine.devices import Devices
from tests.contract.stands import EIGHT, FIRST, PodStand
from tests.contract.test_lifecycle import play
from tests.property.strategies import pinned
from tests.support.devices import usual_devices
from tests.support.podresources import RECORDED, PodResourcesAPI

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pinfold.core.events import Event
    from tests.contract.stands import Stand

runtimes = pytest.mark.parametrize("nri", [True, False], ids=["nri", "cri"])
APP = Pod(PodUID("u-app"), "app", containers=(pinned(2, "main"),))


class DeviceStand(PodStand):
    """A node whose kubelet has the PodResources API."""

    def __init__(self, path: Path, policy: str = "single-numa-node", *, nri: bool = True) -> None:
        self.kubelet = PodResourcesAPI()
        self.path = path / "kubelet.sock"
        self.within = 1.0
        self._tree = path / "root"
        self._sources_of_hints: list[PodResources] = []
        self._serving = AsyncExitStack()
        super().__init__(Config("static", reserved=FIRST, topology_policy=policy), EIGHT, nri=nri)
        self.hints = self._hints

    def _hints(self, tell: Callable[[Event], object]) -> NodeHints:
        source = PodResources(self.path, tell, within=self.within)
        self._sources_of_hints.append(source)
        return NodeHints(source, Devices(self._tree), tell)

    async def open(self) -> None:
        if not self.path.exists():
            await self._serving.enter_async_context(self.kubelet.serving(self.path))
        await super().open()

    async def close(self) -> None:
        await super().close()
        for source in self._sources_of_hints:
            source.close()
        await self._serving.aclose()


@runtimes
@pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
def test_cpus_are_at_the_node_of_the_device_that_the_kubelet_has_chosen(
    tmp_path: Path, policy: str, *, nri: bool
) -> None:
    async def scenario(_stand: Stand) -> None:
        stand.kubelet.give("app", "main", "example.com/nic", 1)
        await stand.run(APP)
        assert str(stand.cpus(APP, "main")) == "4-5"

    play(stand := DeviceStand(tmp_path, policy, nri=nri), scenario)


def test_the_recorded_answer_is_read_and_each_container_has_its_own_devices(tmp_path: Path) -> None:
    pod = Pod(PodUID("u-device"), "device", containers=(pinned(1, "main"), pinned(1, "other")))

    async def scenario(_stand: Stand) -> None:
        stand.kubelet.put(RECORDED)
        stand.kubelet.give("device", "other", "example.com/gpu", 1)
        await stand.run(pod)
        assert [str(stand.cpus(pod, name)) for name in ("main", "other")] == ["1", "4"]
        assert stand.kubelet.asked == 1
        assert [*stand.daemon.node.roster.held[pod.uid].of("main", 0b11)] == ["example.com/nic", "memory"]

    play(stand := DeviceStand(tmp_path), scenario)


@pytest.mark.parametrize("policy", ["restricted", "single-numa-node"])
def test_a_device_far_from_free_cpus_is_refused_with_the_kubelets_words_and_advice(tmp_path: Path, policy: str) -> None:
    full = Pod(PodUID("u-full"), "full", containers=(pinned(3, "main"),))

    async def scenario(_stand: Stand) -> None:
        stand.kubelet.give("full", "main", "example.com/nic", 1)
        stand.kubelet.give("app", "main", "example.com/nic", 1)
        await stand.run(full)
        with pytest.raises(PinfoldError) as refused:
            await stand.run(APP)
        said = str(refused.value)
        assert "TopologyAffinityError: Resources cannot be allocated with Topology locality" in said
        assert "2 CPUs at NUMA 1, where example.com/nic is, are not available: NUMA 0 has 3 free" in said
        assert stand.daemon.state.cpus(APP.uid, "main") is None

    play(stand := DeviceStand(tmp_path, policy), scenario)


def test_with_best_effort_the_same_pod_gets_cpus_elsewhere(tmp_path: Path) -> None:
    full = Pod(PodUID("u-full"), "full", containers=(pinned(4, "main"),))

    async def scenario(_stand: Stand) -> None:
        for name in ("full", "app"):
            stand.kubelet.give(name, "main", "example.com/nic", 1)
        await stand.run(full)
        await stand.run(APP)
        assert str(stand.cpus(APP, "main")) == "1-2"

    play(stand := DeviceStand(tmp_path, "best-effort"), scenario)


@pytest.mark.parametrize("kind", ["memory", "hugepages-1Gi"])
def test_cpus_are_at_the_node_of_memory_blocks_and_hugepages(tmp_path: Path, kind: str) -> None:
    async def scenario(_stand: Stand) -> None:
        stand.kubelet.give("app", "main", kind, 1, memory=True)
        await stand.run(APP)
        assert str(stand.cpus(APP, "main")) == "4-5"

    play(stand := DeviceStand(tmp_path), scenario)


def test_after_a_reload_and_a_hotplug_the_same_hints_count(tmp_path: Path) -> None:
    left = Topology.from_rows(row for row in EIGHT.cpus if row.cpu != 4)

    async def scenario(_stand: Stand) -> None:
        stand.kubelet.give("app", "main", "example.com/nic", 1)
        await stand.run(APP)
        stand.kubelet.pods.clear()
        node = stand.daemon.node
        await node.manager.reconfigure(stand.daemon.rules(stand.config, left), node.due_pods)
        assert str(stand.daemon.state.cpus(APP.uid, "main")) == "5-6"
        assert stand.kubelet.asked == 1

    play(stand := DeviceStand(tmp_path), scenario)


def test_a_daemon_that_starts_again_asks_again(tmp_path: Path) -> None:
    async def scenario(_stand: Stand) -> None:
        stand.kubelet.give("app", "main", "example.com/nic", 1)
        await stand.run(APP)
        await stand.kill_daemon()
        await stand.open()
        assert stand.daemon.node.roster.held[APP.uid]
        assert str(stand.cpus(APP, "main")) == "4-5"
        await stand.end(APP)
        assert stand.daemon.node.roster.held == {}

    play(stand := DeviceStand(tmp_path), scenario)


def test_a_kubelet_that_hangs_or_talks_nonsense_is_reported_once_and_blocks_no_pod(tmp_path: Path) -> None:
    pods = [replace(APP, uid=PodUID(f"u-{name}"), name=name, containers=(pinned(1, "main"),)) for name in "abc"]

    async def scenario(_stand: Stand) -> None:
        stand.kubelet.hangs = True
        for pod in pods[:2]:
            await stand.run(pod)
        stand.kubelet.hangs, stand.kubelet.garbage = False, b"\xff\xff"
        await stand.run(pods[2])
        assert [str(stand.cpus(pod, "main")) for pod in pods] == ["1", "2", "3"]
        said = [str(entry.data()["why"]) for entry in stand.daemon.told("hints-not-read")]
        assert len(said) == 2
        assert "no answer in 0.05 s" in said[0]
        assert "2 bytes that are not a list of the PodResources API" in said[1]

    stand = DeviceStand(tmp_path)
    stand.within = 0.05
    play(stand, scenario)


def test_shared_pods_are_not_asked_for(tmp_path: Path) -> None:
    shared = Pod(
        PodUID("u-s"), "shared", containers=(replace(pinned(1, "main"), resources=APP.containers[0].resources),)
    )
    shared = replace(
        shared, containers=(replace(shared.containers[0], resources=type(shared.containers[0].resources)()),)
    )

    async def scenario(_stand: Stand) -> None:
        await stand.run(shared)
        assert stand.kubelet.asked == 0

    play(stand := DeviceStand(tmp_path), scenario)


def test_a_pod_that_names_a_device_of_its_node_is_near_it_also_without_a_topology_policy(tmp_path: Path) -> None:
    usual_devices(tmp_path / "root")
    near = replace(APP, annotations={"pinfold.dev/near": "eth1"})
    wrong = replace(APP, uid=PodUID("u-w"), name="wrong", annotations={"pinfold.dev/near": "eth7"})

    async def scenario(_stand: Stand) -> None:
        await stand.run(near)
        assert stand.cpus(near, "main") == CPUSet.of(4, 5)
        await stand.run(wrong)
        (warned,) = stand.daemon.told("warning")
        assert 'there is no device "eth7"; did you mean eth' in str(warned.data()["text"])

    play(stand := DeviceStand(tmp_path, "none"), scenario)
