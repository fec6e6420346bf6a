"""CPUs that go offline and come back under exclusive containers of the policy `dynamic`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pinfold.core.config import Config
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.topology import Topology
from tests.contract.stands import EIGHT, FIRST, PodStand
from tests.contract.test_lifecycle import check, owner, play

if TYPE_CHECKING:
    from pinfold.core.pods.pod import Pod
    from tests.contract.stands import Stand

DYNAMIC = Config("dynamic", reserved=FIRST)
SINGLE = replace(DYNAMIC, topology_policy="single-numa-node")
runtimes = pytest.mark.parametrize("nri", [True, False], ids=["nri", "cri"])


async def online(stand: Stand, config: Config, *offline: int) -> None:
    """Let the machine have all CPUs but these."""
    left = Topology(tuple(row for row in EIGHT.cpus if row.cpu not in offline), offline=CPUSet.of(*offline))
    node = stand.daemon.node
    stand.machine = left
    await node.manager.reconfigure(stand.daemon.rules(config, left), node.due_pods)


def cpus(stand: Stand, pod: Pod) -> str:
    found = stand.daemon.state.cpus(pod.uid, "app")
    assert found == stand.cpus(pod, "app")
    return str(found)


@runtimes
def test_only_the_cpu_that_went_is_replaced_and_it_is_given_back(*, nri: bool) -> None:
    async def scenario(stand: Stand) -> None:
        one = owner("one", 2)
        await stand.run(one)
        assert cpus(stand, one) == "1-2"
        await online(stand, DYNAMIC, 2)
        assert cpus(stand, one) == "1,3"
        check(stand)
        await online(stand, DYNAMIC)
        assert cpus(stand, one) == "1-2"
        check(stand)
        assert stand.daemon.state.baselines == {}
        assert not stand.daemon.told("degraded")

    play(PodStand(DYNAMIC, EIGHT, nri=nri), scenario)


@runtimes
def test_a_container_of_one_numa_node_is_degraded_instead_of_spread_and_told(*, nri: bool) -> None:
    async def scenario(stand: Stand) -> None:
        four = owner("four", 4)
        await stand.run(four)
        assert cpus(stand, four) == "4-7"
        await online(stand, SINGLE, 5)
        assert cpus(stand, four) == "4,6-7"
        check(stand)
        (told,) = stand.daemon.told("degraded")
        assert (told.fields["pod"], told.fields["cpus"]) == ("four", "4,6-7")
        assert "Topology" in str(told.fields["why"])
        await online(stand, SINGLE)
        assert cpus(stand, four) == "4-7"
        check(stand)

    play(PodStand(SINGLE, EIGHT, nri=nri), scenario)


def test_a_container_moves_to_another_numa_node_if_that_has_all_its_cpus() -> None:
    async def scenario(stand: Stand) -> None:
        three = owner("three", 3)
        await stand.run(three)
        assert cpus(stand, three) == "1-3"
        await online(stand, SINGLE, 2)
        assert cpus(stand, three) == "4-6"
        check(stand)
        assert not stand.daemon.told("degraded")

    play(PodStand(SINGLE, EIGHT, nri=True), scenario)


def test_a_container_whose_cpus_all_went_is_admitted_like_any_other() -> None:
    async def scenario(stand: Stand) -> None:
        one = owner("one", 2)
        await stand.run(one)
        await online(stand, DYNAMIC, 1, 2)
        assert cpus(stand, one) == "3-4"
        check(stand)

    play(PodStand(DYNAMIC, EIGHT, nri=True), scenario)
