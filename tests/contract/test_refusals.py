"""A refused container fails its pod at the API server, from inside the refused call; each pod is reported once."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pinfold.core.config import Config
from pinfold.core.machine.presets import from_shape
from pinfold.core.pods.pod import Container, Pod, PodUID
from pinfold.errors import PinfoldError
from pinfold.kubernetes.pods.apiserver import APIServer as Feed
from pinfold.kubernetes.pods.watched import WatchedPods
from pinfold.kubernetes.refusals import Refusals
from pinfold.runtimes.simulated.nri.peer import PluginError
from pinfold.serve.metrics import table as rows
from pinfold.serve.metrics.counters import Counters
from tests.contract.stands import EIGHT, FIRST, HostStand, PodStand
from tests.property.strategies import guaranteed, pinned
from tests.support.apiserver import APIServer
from tests.support.cluster import account, api_pod, certificate

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

GREEDY = Pod(PodUID("u-greedy"), "greedy", containers=(pinned(8, "app"),), owner="ReplicaSet/greedy")
WORDS = (
    "Allocate failed due to not enough cpus available to satisfy request: requested=8, available=7, which is unexpected"
)


async def run_on(server: APIServer, stand: PodStand) -> str:
    """Run the greedy pod, which is refused; return what the kubelet hears."""
    await server.put(api_pod(GREEDY, owner=GREEDY.owner))
    await stand.open()
    try:
        with pytest.raises(PinfoldError) as caught:
            await stand.run(GREEDY)
        async with asyncio.timeout(10):
            while not server.events:  # noqa: ASYNC110 - the stand-in has no event for it
                await asyncio.sleep(0.01)
    finally:
        await stand.close()
    return str(caught.value)


def stand_of(server: APIServer, directory: Path, cert: Path, *, nri: bool) -> PodStand:
    service = account(directory / "account", server, trusted=cert)
    stand = PodStand(Config("static", reserved=FIRST), EIGHT, nri=nri, sources=[WatchedPods(Feed(service))])
    stand.on_refusal = Refusals(service, lambda _event: None).fail
    return stand


@pytest.mark.parametrize("nri", [True, False], ids=["nri", "cri"])
def test_a_refused_pod_is_failed_with_the_kubelets_reason_and_message(tmp_path: Path, *, nri: bool) -> None:
    async def run() -> None:
        cert = certificate(tmp_path)
        async with APIServer().serving(cert) as server:
            said = await run_on(server, stand_of(server, tmp_path, cert, nri=nri))
            assert "not enough cpus" in said
            status = server.pods["default", "greedy"]["status"]
            expected = {"reason": "UnexpectedAdmissionError", "message": f"Pod was rejected: {WORDS}"}
            assert status == {"phase": "Failed", **expected}

    asyncio.run(run())


# -- a kubelet tries again every few seconds: each pod is reported once for each reason


class Kubelet:
    """Starts pods as a kubelet does: the sandbox once, then all containers that do not run, again and again."""

    def __init__(self, stand: PodStand) -> None:
        self.stand = stand
        self.counters = Counters(stand.daemon.manager.rules.admitter, now=0.0)
        stand.daemon.bus.subscribe(self.counters.hear)
        self._sandboxes: dict[str, str] = {}

    async def sync(self, pod: Pod, times: int = 1) -> bool:
        """Try to start what does not run; return whether all containers run now."""
        self.stand.known[pod.uid] = pod
        record, runs = self.stand.runtime.record, False
        if pod.uid not in self._sandboxes:
            self._sandboxes[pod.uid] = (await self.stand.runtime.run_pod(pod)).id
        sandbox = self._sandboxes[pod.uid]
        for _ in range(times):
            here = {one.name for one in record.containers_of(sandbox) if one.phase == "running"}
            missing = [one.name for one in pod.all_containers if one.name not in here]
            for name in missing:
                with suppress(PluginError):
                    await self.stand.runtime.pods.run_container(sandbox, name)
                    missing = [other for other in missing if other != name]
            runs = not missing
        return runs

    async def restart(self, pod: Pod, name: str) -> None:
        """Let a container end; the next sync starts it again."""
        await self.stand.runtime.stop_container(self.stand.runtime.record.find(pod.name, name).id)

    async def lose_sandbox(self, pod: Pod) -> None:
        """Let a pod's sandbox die; the next sync makes another one."""
        await self.stand.runtime.stop_sandbox(self._sandboxes.pop(pod.uid))

    async def delete(self, pod: Pod) -> None:
        await self.stand.runtime.remove_pod(self._sandboxes.pop(pod.uid))

    def told(self) -> list[tuple[object, object]]:
        """Return the refusals that were reported: pod and reason."""
        return [(one.fields["pod"], one.fields["reason"]) for one in self.stand.daemon.told("refused")]

    def counted(self) -> float:
        """Return how many refused pods were counted."""
        return sum(float(getattr(sample, "value", 0)) for sample in self.counters.tally.samples(rows.REFUSALS))


def play(stand: PodStand, scenario: Callable[[Kubelet], Coroutine[None, None, None]]) -> None:
    async def played() -> None:
        await stand.open()
        try:
            await scenario(Kubelet(stand))
        finally:
            await stand.close()

    asyncio.run(asyncio.wait_for(played(), 60))


def node(*, cpus: int = 8, whole: bool = True, least: int = 0) -> PodStand:
    """Return a node of which CPU 0 is reserved; *least* CPUs must stay shared."""
    options = {"min-shared-cpus": str(least)} if least else {}
    gates = {"CPUManagerPolicyAlphaOptions": True} if least else {}
    config = Config("static", reserved=FIRST, options=options, gates=gates)
    return PodStand(config, from_shape(f"cores:{cpus}"), nri=True, whole=whole)


def owner(name: str, *containers: Container) -> Pod:
    return Pod(PodUID(f"u-{name}"), name, containers=containers)


def phase_of(server: APIServer, pod: Pod) -> str:
    status = server.pods["default", pod.name]["status"]
    assert isinstance(status, dict)
    return str(status["phase"])


async def made_by_controller(server: APIServer, number: int) -> Pod:
    pod = replace(owner(f"big-{number}", pinned(1, "app")), owner="ReplicaSet/big")
    await server.put(api_pod(pod, owner=pod.owner))
    return pod


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "in parts"])
def test_a_pod_that_waits_is_reported_and_counted_once_while_others_come_and_go(*, whole: bool) -> None:
    async def scenario(kubelet: Kubelet) -> None:
        big = owner("big", pinned(7, "app"))
        others = [owner(f"other-{number}", pinned(1, "app")) for number in range(3)]
        await kubelet.sync(others[0])
        for other in others[1:]:  # the number of free CPUs is another one each time
            assert not await kubelet.sync(big, times=3)
            await kubelet.sync(other)
        for other in others[1:]:
            await kubelet.delete(other)
            assert not await kubelet.sync(big, times=3)
        assert kubelet.told() == [("big", "UnexpectedAdmissionError")]
        assert kubelet.counted() == 1
        await kubelet.delete(others[0])
        assert await kubelet.sync(big)

    play(node(whole=whole), scenario)


def test_two_containers_of_a_pod_that_are_refused_in_turn_are_reported_once() -> None:
    async def scenario(kubelet: Kubelet) -> None:
        both = owner("both", pinned(8, "one"), pinned(9, "two"))
        assert not await kubelet.sync(both, times=3)
        assert len(kubelet.told()) == 1
        assert kubelet.counted() == 1

    play(node(whole=False), scenario)


def test_a_sibling_that_is_restarted_does_not_have_a_refusal_reported_again() -> None:
    async def scenario(kubelet: Kubelet) -> None:
        pod = owner("pod", Container("side", guaranteed(500)), pinned(8, "main"))
        for _ in range(3):
            assert not await kubelet.sync(pod)
            await kubelet.restart(pod, "side")
        assert len(kubelet.told()) == 1
        assert kubelet.counted() == 1

    play(node(whole=False), scenario)


def test_a_refused_pod_with_another_sandbox_is_still_the_same_pod() -> None:
    async def scenario(kubelet: Kubelet) -> None:
        big = owner("big", pinned(8, "app"))
        for _ in range(3):
            assert not await kubelet.sync(big, times=2)
            await kubelet.lose_sandbox(big)
        assert len(kubelet.told()) == 1
        assert kubelet.counted() == 1

    play(node(), scenario)


def test_a_pod_is_reported_once_for_each_reason_however_these_take_turns() -> None:
    async def scenario(kubelet: Kubelet) -> None:
        big, other = owner("big", pinned(5, "app")), owner("other", pinned(3, "app"))
        for _ in range(2):
            assert not await kubelet.sync(big, times=2)  # 7 are free, and 4 must stay shared
            await kubelet.sync(other)
            assert not await kubelet.sync(big, times=2)  # 4 are free
            await kubelet.delete(other)
        assert kubelet.told() == [("big", "MinSharedCPUsError"), ("big", "UnexpectedAdmissionError")]
        assert kubelet.counted() == 1

    play(node(least=4), scenario)


def test_a_pod_that_had_its_cpus_and_lost_them_with_its_sandbox_is_reported_again() -> None:
    async def scenario(kubelet: Kubelet) -> None:
        has, waits = owner("first", pinned(4, "app")), owner("second", pinned(4, "app"))
        await kubelet.sync(has)
        for _ in range(3):
            assert not await kubelet.sync(waits, times=2)
            await kubelet.lose_sandbox(has)
            assert await kubelet.sync(waits)
            has, waits = waits, has
        assert [pod for pod, _ in kubelet.told()] == ["second", "first", "second"]

    play(node(), scenario)


def test_the_pod_that_waits_for_the_only_cpu_is_reported_once() -> None:
    """The scene of a real cluster on two CPUs, in which one pod was reported twice."""

    async def scenario(kubelet: Kubelet) -> None:
        first, second = owner("first", pinned(1, "app")), owner("second", pinned(1, "app"))
        assert await kubelet.sync(first)
        assert not await kubelet.sync(second, times=3)
        await kubelet.delete(first)
        assert await kubelet.sync(second)
        assert [pod for pod, _ in kubelet.told()] == ["second"]

    play(node(cpus=2), scenario)


def test_the_pods_of_a_deployment_are_reported_once_each_by_pinfold_and_at_the_api_server(tmp_path: Path) -> None:
    """The scene of a real cluster on two CPUs: the kubelet tries again every 12 s, and each failed pod is replaced."""
    now = 1_794_816_445.0

    async def scenario(server: APIServer, cert: Path) -> None:
        nonlocal now
        stand = node(cpus=2, least=2)
        service = account(tmp_path / "account", server, trusted=cert)
        stand.on_refusal = Refusals(service, lambda _event: None, lambda: now).fail
        await stand.open()
        try:
            kubelet = Kubelet(stand)
            phases: list[str] = []
            for number in range(4):
                pod = await made_by_controller(server, number)
                while phases[-1:] != ["Failed"]:
                    assert not await kubelet.sync(pod)
                    phases.append(phase_of(server, pod))
                    now += 12
                phases.append("replaced")
                await kubelet.delete(pod)
                now -= 11
            assert phases.count("Pending") == 1 + 2 + 4
            named = ["big-0", "big-1", "big-2", "big-3"]
            assert [one for one, _ in kubelet.told()] == named
            about = {"apiVersion": "v1", "kind": "Pod", "namespace": "default"}
            pods = [{**about, "name": one, "uid": f"u-{one}"} for one in named]
            assert [event["involvedObject"] for event in server.events] == pods
        finally:
            await stand.close()

    async def played() -> None:
        cert = certificate(tmp_path)
        async with APIServer().serving(cert) as server:
            await scenario(server, cert)

    asyncio.run(asyncio.wait_for(played(), 60))


def test_a_plain_pod_that_is_submitted_again_under_its_name_is_another_pod() -> None:
    async def scenario() -> None:
        stand = HostStand(Config("static", reserved=FIRST), EIGHT, real=False)
        await stand.open()
        try:
            for _ in range(2):
                with pytest.raises(PinfoldError, match="not enough cpus"):
                    await stand.run(owner("greedy", replace(pinned(8), command=("sleep", "1"))))
            assert len(stand.daemon.told("refused")) == 2
        finally:
            await stand.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))
