"""What the daemon decides is what the kubelet decides, through the whole path: runtime, source, Node, Manager."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.topology import Topology
from pinfold.core.pods.pod import Amounts, Container, Pod, PodUID, Resources
from pinfold.core.state import State
from pinfold.errors import PinfoldError
from pinfold.formats.kubelet.checkpoint import format_checkpoint
from pinfold.manager.saving.store import FILE, StateStore
from tests.contract.stands import EIGHT, FIRST, PodStand
from tests.contract.test_lifecycle import owner, play
from tests.property.strategies import guaranteed, pinned

if TYPE_CHECKING:
    from pathlib import Path

    from tests.contract.stands import Stand

GATE = {"PodLevelResourceManagers": True}
SINGLE = Config("static", reserved=FIRST, topology_policy="single-numa-node")
POD_SCOPE = Config("static", reserved=FIRST, topology_policy="single-numa-node", topology_scope="pod", gates=GATE)
TWO_CONTAINERS = Pod(PodUID("u-both"), "both", containers=(pinned(1, "one"), pinned(3, "three")))
runtimes = pytest.mark.parametrize("nri", [True, False], ids=["nri", "cri"])


@runtimes
def test_with_scope_pod_a_pod_that_is_known_whole_gets_one_numa_node_for_all_its_containers(*, nri: bool) -> None:
    async def scenario(stand: Stand) -> None:
        await stand.run(TWO_CONTAINERS)
        found = {name: str(stand.cpus(TWO_CONTAINERS, name)) for name in ("one", "three")}
        assert found == {"one": "4", "three": "5-7"}

    play(PodStand(POD_SCOPE, EIGHT, nri=nri, whole=True), scenario)


def test_all_assignments_of_a_pod_that_is_known_whole_are_saved_when_its_first_container_comes() -> None:
    async def scenario(stand: Stand) -> None:
        assert isinstance(stand, PodStand)
        stand.known[TWO_CONTAINERS.uid] = TWO_CONTAINERS
        sandbox = await stand.runtime.run_pod(TWO_CONTAINERS)
        await stand.runtime.create_container(sandbox.id, "one")
        held = stand.daemon.state.assignments[TWO_CONTAINERS.uid]
        assert {name: str(cpus) for name, cpus in held.items()} == {"one": "4", "three": "5-7"}
        assert "only" not in stand.daemon.told("admitted")[0].fields

    play(PodStand(POD_SCOPE, EIGHT, nri=True, whole=True), scenario)


def test_with_scope_pod_a_pod_that_only_the_runtime_knows_is_decided_by_container_and_that_is_told() -> None:
    async def scenario(stand: Stand) -> None:
        with pytest.raises(PinfoldError, match="TopologyAffinityError"):
            await stand.run(TWO_CONTAINERS)
        (told,) = stand.daemon.told("admitted")
        assert told.fields["only"] == "one"

    play(PodStand(POD_SCOPE, EIGHT, nri=True), scenario)


def test_a_pod_that_is_known_whole_holds_no_cpus_if_one_of_its_containers_is_refused() -> None:
    async def scenario(stand: Stand) -> None:
        before = stand.daemon.state
        greedy = Pod(PodUID("u-greedy"), "greedy", containers=(pinned(3, "one"), pinned(6, "two")))
        with pytest.raises(PinfoldError, match="not enough cpus"):
            await stand.run(greedy)
        assert stand.daemon.state == before

    config = Config("static", reserved=FIRST)
    play(PodStand(config, EIGHT, nri=True, whole=True), scenario)


@pytest.mark.parametrize("scope", ["pod", "container"])
def test_every_container_of_a_pod_with_pod_level_resources_gets_its_part(scope: str) -> None:
    pod = Pod(
        PodUID("u-level"),
        "level",
        containers=(pinned(1, "one"), pinned(2, "two")),
        resources=guaranteed(3000),
    )

    async def scenario(stand: Stand) -> None:
        await stand.run(pod)
        state = stand.daemon.state
        assert {name: len(cpus) for name, cpus in state.assignments[pod.uid].items()} == {"one": 1, "two": 2}
        assert [stand.cpus(pod, name) for name in ("one", "two")] == [*state.assignments[pod.uid].values()]

    config = Config("static", reserved=FIRST, topology_policy="single-numa-node", topology_scope=scope, gates=GATE)
    play(PodStand(config, EIGHT, nri=True, whole=True), scenario)


def test_a_container_without_resources_in_a_pod_with_pod_level_ones_shares_the_pods_cpus() -> None:
    """The runtime tells the pod's shares and quota for it, so only the whole pod says that it is no owner."""
    pod = Pod(PodUID("u-level"), "level", containers=(pinned(1, "own"), Container("bare")), resources=guaranteed(3000))

    async def scenario(stand: Stand) -> None:
        await stand.run(pod)
        state = stand.daemon.state
        whole = state.pods[pod.uid]
        assert len(whole) == 3
        assert stand.cpus(pod, "bare") == whole - stand.cpus(pod, "own")

    play(PodStand(POD_SCOPE, EIGHT, nri=True, whole=True), scenario)


def test_cpus_of_an_init_container_are_used_again_by_the_container_after_it() -> None:
    both = Amounts(1000, 1 << 20)
    pod = Pod(
        PodUID("u-init"),
        "init",
        init=(Container("setup", Resources(both, both)),),
        containers=(Container("app", Resources(both, both)),),
    )
    machine = Topology.from_rows([(cpu, cpu, 0, 0, 0) for cpu in range(2)])

    async def scenario(stand: Stand) -> None:
        await stand.run(pod)
        assert str(stand.cpus(pod, "app")) == "1"

    play(PodStand(Config("static", reserved=FIRST), machine, nri=True, whole=True), scenario)


@runtimes
def test_a_container_of_one_numa_node_is_not_spread_over_two_when_a_cpu_goes_offline(*, nri: bool) -> None:
    async def scenario(stand: Stand) -> None:
        pod = owner("four", 4)
        await stand.run(pod)
        assert str(stand.cpus(pod, "app")) == "4-7"
        left = Topology(tuple(row for row in EIGHT.cpus if row.cpu != 5), offline=CPUSet.of(5))
        node = stand.daemon.node
        await node.manager.reconfigure(stand.daemon.rules(SINGLE, left), node.due_pods)
        assert stand.daemon.state.assignments == {}
        assert stand.cpus(pod, "app") == left.online
        (told,) = stand.daemon.told("not-kept")
        assert (told.fields["pod"], told.fields["cpus"]) == ("four", "4-7")
        assert "Topology" in str(told.fields["why"])

    play(PodStand(SINGLE, EIGHT, nri=nri), scenario)


def test_a_damaged_fit_keeps_the_cpus_of_whole_pods_and_baselines(tmp_path: Path) -> None:
    """Other reserved CPUs than the file was written with: what still fits is kept, with all that belongs to it."""
    pod, other = PodUID("u-level"), PodUID("u-resized")
    saved = State(
        CPUSet.parse("0,5-7"),
        {pod: {"one": CPUSet.of(1), "two": CPUSet.of(2)}, other: {"app": CPUSet.parse("3-4")}},
        pods={pod: CPUSet.parse("1-2")},
        baselines={other: {"app": CPUSet.of(3)}},
    )
    (tmp_path / FILE).write_text(format_checkpoint("static", saved, pod_level=True, resize=True))
    gates = {**GATE, "InPlacePodVerticalScalingExclusiveCPUs": True}
    config = Config("static", {"strict-cpu-reservation": "true"}, Reservation.of(CPUSet.of(0)), gates=gates)
    loaded = StateStore(tmp_path, config.build(EIGHT).policy, gates).load({})
    assert loaded.problem is not None
    assert (loaded.state.pods, loaded.state.baselines[other]) == (saved.pods, saved.baselines[other])
    assert loaded.state.assignments == saved.assignments
    assert loaded.lost == {}
