from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import replace

import pytest

from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import preset
from pinfold.core.pods.pod import Amounts, Container, Pod, PodUID, Resources
from pinfold.planning.dice import Dice
from pinfold.planning.fleet import Fleet, FleetOutcome, FleetScenario, count_shards, plan_fleet
from pinfold.planning.ranking import Ranking
from pinfold.planning.scheduling import Demand, Load, Room, Scheduler, zones_needed
from pinfold.planning.shard import FleetWorkload, ShardTask, Visit, Waiting, run_shard
from pinfold.planning.sites import NodeType

GIB = 1 << 30
BLIND, AWARE = Scheduler.BLIND, Scheduler.AWARE
TWO_NODES = "sockets:2,cores:8"


def guaranteed(*milli: int) -> Pod:
    amounts = [Amounts(cpu, GIB) for cpu in milli]
    containers = tuple(Container(f"c{i}", Resources(own, own)) for i, own in enumerate(amounts))
    return Pod(PodUID(""), "pod", containers=containers)


def burstable(milli: int) -> Pod:
    return Pod(PodUID(""), "pod", containers=(Container("c", Resources(Amounts(milli))),))


def static(policy: str = "none", *options: str, reserved: int = 2, scope: str = "container") -> Config:
    given = dict.fromkeys(options, "true")
    cpus = CPUSet.from_cpus(range(reserved))
    return Config("static", given, Reservation.of(cpus), policy, topology_scope=scope)


def fleet_of(count: int, config: Config, *workloads: tuple[Pod, int], machine: str = TWO_NODES) -> Fleet:
    kind = NodeType("node", count, preset(machine), config)
    return Fleet((kind,), tuple(FleetWorkload(f"w{i}", pod, replicas) for i, (pod, replicas) in enumerate(workloads)))


def outcomes(fleet: Fleet, seed: int = 0, retries: int = 3) -> dict[Scheduler, FleetOutcome]:
    return {outcome.scheduler: outcome for outcome in plan_fleet(fleet, FleetScenario(seed=seed, retries=retries))}


def test_a_pod_that_fits_is_placed_under_both_schedulers() -> None:
    for outcome in outcomes(fleet_of(1, static("single-numa-node"), (guaranteed(2000), 1))).values():
        assert (outcome.placed, outcome.refused, outcome.unschedulable) == (1, 0, 0)
        assert outcome.is_complete
        assert outcome.types[0].usage == (2000, 2, 1)


def test_blind_is_refused_where_no_numa_node_has_enough_and_aware_does_not_try() -> None:
    # 16 CPUs on two NUMA nodes, two reserved: 14 are allocatable, but never 9 on one node.
    found = outcomes(fleet_of(3, static("single-numa-node"), (guaranteed(9000), 2)))
    assert (found[BLIND].refused, found[BLIND].unschedulable) == (2, 0)
    assert found[BLIND].types[0].refusals == {"TopologyAffinityError": 8}
    assert found[BLIND].workloads[0].refusals == {"TopologyAffinityError": 8}
    assert (found[AWARE].refused, found[AWARE].unschedulable, found[AWARE].refusals) == (0, 2, 0)
    assert not found[BLIND].is_complete
    assert not found[AWARE].is_complete


def test_aware_finds_the_node_with_a_free_numa_node_that_blind_misses() -> None:
    # After pods of 5 and 3 CPUs came in any order, many nodes have 5 free CPUs, but not on one NUMA node.
    fleet = fleet_of(40, static("single-numa-node"), (guaranteed(5000), 60), (guaranteed(3000), 40))
    found = outcomes(fleet)
    assert found[BLIND].refusals > 0
    assert found[AWARE].refusals == 0


def test_a_refused_pod_is_tried_again_as_often_as_asked() -> None:
    fleet = fleet_of(3, static("single-numa-node"), (guaranteed(9000), 1))
    for retries in (0, 1, 5):
        outcome = outcomes(fleet, retries=retries)[BLIND]
        assert (outcome.refusals, outcome.retries, outcome.refused) == (retries + 1, retries, 1)


def two_types(replicas: int) -> Fleet:
    machine = preset("sockets:2,cores:8,threads:2")
    whole = NodeType("whole", 1, machine, static("none", "full-pcpus-only"))
    any_ = NodeType("any", 1, machine, static())
    return Fleet((whole, any_), (FleetWorkload("odd", guaranteed(1000), replicas),))


def test_a_pod_that_one_node_type_refuses_can_be_saved_on_another() -> None:
    found = [outcomes(two_types(1), retries=20, seed=seed)[BLIND] for seed in range(8)]
    assert [outcome.placed for outcome in found] == [1] * 8
    assert {outcome.saved for outcome in found} == {0, 1}
    assert all(outcome.types[0].refusals.get("SMTAlignmentError", 0) == outcome.refusals for outcome in found)


def test_replacements_run_into_the_emptiest_node_again_and_again() -> None:
    outcome = outcomes(two_types(5))[BLIND]
    assert outcome.refused == 5 - outcome.placed > 0
    assert outcome.types[0].usage.pods == 0


def test_what_no_node_has_is_unschedulable_and_never_refused() -> None:
    for outcome in outcomes(fleet_of(3, static(), (guaranteed(15_000), 4))).values():
        assert (outcome.unschedulable, outcome.refusals) == (4, 0)


def test_reserved_cpus_are_not_allocatable() -> None:
    kind = NodeType("node", 1, preset(TWO_NODES), Config("static", reserved=Reservation(milli=1500)))
    assert kind.allocatable == 14_500


def test_a_node_takes_no_more_pods_than_its_kubelet_allows() -> None:
    fleet = fleet_of(2, static(), (burstable(1), 30))
    few = fleet._replace(types=(replace(fleet.types[0], most_pods=10),))
    assert outcomes(few)[BLIND].unschedulable == 10


def test_policy_none_refuses_no_pod() -> None:
    fleet = fleet_of(2, Config(), (guaranteed(8000), 4))
    for outcome in outcomes(fleet).values():
        assert (outcome.placed, outcome.types[0].usage.exclusive) == (4, 0)


def test_pods_spread_over_the_emptiest_nodes() -> None:
    visits = visits_of(fleet_of(10, static(), (guaranteed(1000), 10)))
    assert sorted(visit.node for visit in visits) == list(range(10))


def test_containers_without_a_request_count_when_nodes_are_compared() -> None:
    idle = Pod(PodUID(""), "pod", containers=(Container("c"),))
    visits = visits_of(fleet_of(10, static(), (idle, 100)))
    assert max(Counter(visit.node for visit in visits).values()) < 30


def test_ties_are_broken_by_the_seed() -> None:
    fleet = fleet_of(50, static(), (guaranteed(1000), 20))
    nodes = [[visit.node for visit in visits_of(fleet, seed)] for seed in (1, 1, 2)]
    assert nodes[0] == nodes[1] != nodes[2]


def visits_of(fleet: Fleet, seed: int = 0, scheduler: Scheduler = BLIND) -> list[Visit]:
    """Return all visits to the nodes of a fleet that is one shard."""
    visits: list[Visit] = []
    waiting = [Waiting(n) for n, workload in enumerate(fleet.workloads) for _ in range(workload.replicas)]
    pods = tuple(workload.pod for workload in fleet.workloads)
    nodes = tuple(n for n, kind in enumerate(fleet.types) for _ in range(kind.count))
    run_shard(ShardTask(fleet.types, pods, scheduler, nodes, waiting, (seed,)), visits.append)
    return visits


def test_a_pod_that_its_shard_has_no_room_for_goes_to_another_shard() -> None:
    # One large node among 300 small ones: it is in one of two shards, but all large pods get there.
    small = NodeType("small", 299, preset("laptop-4"), static(reserved=1))
    large = NodeType("large", 1, preset("epyc-9654-2s"), static())
    fleet = Fleet((small, large), (FleetWorkload("big", guaranteed(30_000), 12),))
    outcome = outcomes(fleet)[BLIND]
    assert outcome.shards == 2
    assert (outcome.placed, outcome.types[1].usage.pods) == (12, 12)


def test_a_pod_that_no_shard_can_place_is_unschedulable() -> None:
    outcome = outcomes(fleet_of(300, static(reserved=1), (guaranteed(3000), 400), machine="laptop-4"))[BLIND]
    assert (outcome.placed, outcome.unschedulable) == (300, 100)


def test_work_is_given_out_as_tasks_that_can_be_sent_elsewhere() -> None:
    fleet = fleet_of(300, static("restricted"), (guaranteed(3000), 900), (burstable(500), 900))
    sent = plan_fleet(
        fleet,
        work=lambda tasks: [run_shard(pickle.loads(pickle.dumps(task))) for task in reversed(tasks)][::-1],  # noqa: S301 - our own bytes
    )
    assert sent == plan_fleet(fleet)


def test_init_containers_lend_their_cpus_to_the_others() -> None:
    pod = replace(guaranteed(4000), init=(Container("setup", guaranteed(4000).containers[0].resources),))
    outcome = outcomes(fleet_of(1, static(), (pod, 3)))[BLIND]
    assert outcome.types[0].usage == (12_000, 12, 3)


def test_an_init_container_needs_a_numa_node_before_the_others_and_not_beside_them() -> None:
    # Only the second NUMA node has 8 free CPUs, which one uses after the other.
    fits = replace(guaranteed(8000), init=(Container("setup", guaranteed(8000).containers[0].resources),))
    assert outcomes(fleet_of(1, static("single-numa-node"), (fits, 1)))[AWARE].placed == 1
    too_large = replace(guaranteed(1000), init=(Container("setup", guaranteed(9000).containers[0].resources),))
    assert outcomes(fleet_of(1, static("single-numa-node"), (too_large, 1)))[AWARE].unschedulable == 1


def test_pod_scope_asks_for_the_pod_as_a_whole() -> None:
    # 5 + 5 fit on the two NUMA nodes one by one, and on none of them together.
    pods = (guaranteed(5000, 5000), 1)
    each = outcomes(fleet_of(1, static("single-numa-node"), pods))[AWARE]
    whole = outcomes(fleet_of(1, static("single-numa-node", scope="pod"), pods))[AWARE]
    assert (each.placed, whole.unschedulable) == (1, 1)


@pytest.mark.parametrize(
    ("zones", "parts", "count"),
    [((8, 8), (8000,), 1), ((8, 8), (9000,), 2), ((8, 8), (8000, 8000), 1), ((8, 8), (8000, 8001), 0), ((4,), (), 0)],
)
def test_zones_needed(zones: tuple[int, ...], parts: tuple[int, ...], count: int) -> None:
    assert zones_needed(zones, parts) == count


def test_aware_prefers_fewer_numa_nodes_to_an_emptier_node() -> None:
    room = Room(16_000, 110)
    loads = [Load(1000, 1000, zones=(4, 4)), Load(2000, 2000, zones=(7, 1))]
    demand = Demand(6000, 6000, (6000,))
    assert Ranking(BLIND, [room] * 2, loads, Dice(0)).best(demand) == 0
    assert Ranking(AWARE, [room] * 2, loads, Dice(0)).best(demand) == 1


def test_larger_nodes_are_compared_by_their_share_in_use() -> None:
    rooms = [Room(16_000, 110), Room(64_000, 110)]
    ranking = Ranking(BLIND, rooms, [Load(4000, 4000), Load(20_000, 20_000)], Dice(0))
    assert ranking.best(Demand(4000, 4000)) == 1
    assert ranking.best(Demand(100, 100)) == 0


def test_shards_do_not_get_smaller_than_the_scheduler_looks_at() -> None:
    for nodes in (1, 99, 100, 199, 250, 4999, 100_000):
        assert count_shards(nodes) == 1 or nodes // count_shards(nodes) >= 100
