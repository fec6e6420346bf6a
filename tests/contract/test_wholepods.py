"""Pods that the kubelet knows are asked for when their first container comes, and decided whole, all or nothing."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pinfold.core.config import Config
from pinfold.core.machine.topology import Topology
from pinfold.core.pods.pod import Container, Pod, PodUID
from pinfold.errors import PinfoldError
from pinfold.kubernetes.pods.podsapi import PodsAPI as Feed
from pinfold.kubernetes.pods.watched import WatchedPods
from tests.contract.stands import EIGHT, FIRST, PodStand
from tests.contract.test_lifecycle import play, sharer
from tests.property.strategies import guaranteed, pinned
from tests.support.podsapi import PodsAPI

if TYPE_CHECKING:
    from pathlib import Path

    from tests.contract.stands import Stand

TWO = Topology.from_rows([(cpu, cpu, 0, 0, 0) for cpu in range(2)])
STATIC = Config("static", reserved=FIRST)
INIT_AND_MAIN = Pod(PodUID("u-init"), "init", init=(pinned(1, "setup"),), containers=(pinned(1, "main"),))
runtimes = pytest.mark.parametrize("nri", [True, False], ids=["nri", "cri"])


class KubeletStand(PodStand):
    """A node whose kubelet has the Pods API; it knows a pod as soon as it has seen it, as the real one does."""

    def __init__(self, path: Path, *, nri: bool, machine: Topology = TWO) -> None:
        self.kubelet = PodsAPI()
        self._path = path / "pods-api.sock"
        self._serving = self.kubelet.serving(self._path)
        self.feed = Feed(self._path)
        super().__init__(STATIC, machine, nri=nri, sources=[WatchedPods(self.feed)])

    async def open(self) -> None:
        await self._serving.__aenter__()
        await super().open()

    async def run(self, pod: Pod) -> None:
        self.kubelet.put(pod)
        await super().run(pod)

    async def close(self) -> None:
        await super().close()
        self.feed._channel.close()  # noqa: SLF001 - a daemon keeps it open until it ends
        await self._serving.__aexit__(None, None, None)


@runtimes
def test_init_1_and_main_1_start_on_one_assignable_cpu(tmp_path: Path, *, nri: bool) -> None:
    async def scenario(stand: Stand) -> None:
        await stand.run(INIT_AND_MAIN)
        assert str(stand.cpus(INIT_AND_MAIN, "main")) == "1"
        assert stand.daemon.told("pod-in-parts") == []

    play(KubeletStand(tmp_path, nri=nri), scenario)


@runtimes
def test_a_container_without_resources_in_a_pod_with_pod_level_ones_stays_shared(tmp_path: Path, *, nri: bool) -> None:
    """The runtime reports the shares and quota of the whole pod for it, so it looks like an owner of whole CPUs."""
    bare = Pod(PodUID("u-level"), "level", containers=(Container("bare"),), resources=guaranteed(1000))

    async def scenario(stand: Stand) -> None:
        await stand.run(bare)
        assert stand.daemon.state.assignments == {}
        assert stand.cpus(bare, "bare") == TWO.online

    play(KubeletStand(tmp_path, nri=nri), scenario)


def test_a_pod_is_known_whole_at_its_first_container_however_soon_that_comes(tmp_path: Path) -> None:
    """A source that is read every two seconds knew every second pod too late, and refused its main container."""

    async def scenario(stand: Stand) -> None:
        for number in range(10):
            pod = replace(INIT_AND_MAIN, uid=PodUID(f"u-{number}"), name=f"init-{number}")
            await stand.run(pod)
            await stand.end(pod)
        assert stand.daemon.told("refused") == []

    play(KubeletStand(tmp_path, nri=True), scenario)


def test_a_pod_holds_no_cpus_half_started_while_another_waits_for_them(tmp_path: Path) -> None:
    async def scenario(stand: Stand) -> None:
        greedy = Pod(PodUID("u-greedy"), "greedy", containers=(pinned(1, "one"), pinned(1, "two")))
        with pytest.raises(PinfoldError, match="not enough cpus"):
            await stand.run(greedy)
        assert stand.daemon.state.assignments == {}
        await stand.run(INIT_AND_MAIN)

    play(KubeletStand(tmp_path, nri=True), scenario)


def test_pods_that_run_when_pinfold_comes_back_are_asked_for_again(tmp_path: Path) -> None:
    async def scenario(stand: Stand) -> None:
        assert isinstance(stand, KubeletStand)
        await stand.run(INIT_AND_MAIN)
        await stand.kill_daemon()
        await PodStand.open(stand)
        roster = stand.daemon.node.roster
        (pod_id,) = roster.find_pods(INIT_AND_MAIN.uid)
        assert roster.of(pod_id).whole

    play(KubeletStand(tmp_path, nri=True), scenario)


def test_pods_that_ended_while_pinfold_was_away_are_not_asked_for(tmp_path: Path) -> None:
    """A runtime lists sandboxes of deleted pods for a minute; no source knows those pods any more."""

    async def scenario(stand: Stand) -> None:
        assert isinstance(stand, KubeletStand)
        await stand.run(INIT_AND_MAIN)
        await stand.kill_daemon()
        await stand.runtime.stop_pod(stand._sandboxes[INIT_AND_MAIN.uid])  # noqa: SLF001 - past the daemon
        stand.kubelet.remove(INIT_AND_MAIN.uid)
        await PodStand.open(stand)
        assert stand.daemon.told("pod-in-parts") == []

    play(KubeletStand(tmp_path, nri=True), scenario)


def test_a_source_that_hangs_costs_its_time_once_and_the_pod_is_decided_in_parts_with_an_event(tmp_path: Path) -> None:
    async def scenario(stand: Stand) -> None:
        assert isinstance(stand, KubeletStand)
        stand.kubelet.hangs = True
        stand.daemon.whole._within = 0.2  # noqa: SLF001 - a second is long for a test
        pod = Pod(PodUID("u-one"), "one", containers=(pinned(1, "app"),))
        begun = time.monotonic()
        await stand.run(pod)
        assert time.monotonic() - begun < 5  # the kubelet hangs for longer
        assert str(stand.cpus(pod, "app")) == "1"
        (told,) = stand.daemon.told("pod-in-parts")
        assert told.fields["pod"] == "one"

    play(KubeletStand(tmp_path, nri=True), scenario)


def test_pods_that_cannot_have_exclusive_cpus_are_not_asked_for(tmp_path: Path) -> None:
    async def scenario(stand: Stand) -> None:
        assert isinstance(stand, KubeletStand)
        both = sharer("shared").containers[0]
        await stand.run(Pod(PodUID("u-b"), "b", containers=(both, Container("none"))))
        assert stand.kubelet.asked == []

    play(KubeletStand(tmp_path, nri=True, machine=EIGHT), scenario)
