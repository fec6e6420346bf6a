"""Laws of a fleet: no CPU is given twice, no pod is lost, and the number of workers makes no difference."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import EMPTY
from pinfold.core.pods.pod import PodUID
from pinfold.core.policies.static import StaticPolicy
from pinfold.core.state import State
from pinfold.planning.fleet import Fleet, FleetScenario, plan_fleet
from pinfold.planning.scheduling import Scheduler
from pinfold.planning.shard import FleetWorkload, ShardTask, Visit, Waiting, run_shard
from pinfold.planning.sites import _LATEST, NodeType
from tests.property.strategies import pods, reserved_within, topologies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pinfold.planning.shard import ShardResult

POLICIES = ("none", "best-effort", "restricted", "single-numa-node")


@st.composite
def node_types(draw: st.DrawFn, name: str) -> NodeType:
    topology = draw(topologies().filter(lambda topology: len(topology.cpus) > 1))
    config = Config(
        draw(st.sampled_from(["static", "static", "static", "none"])),
        reserved=Reservation.of(draw(reserved_within(topology))),
        topology_policy=draw(st.sampled_from(POLICIES)),
        topology_scope=draw(st.sampled_from(["container", "pod"])),
    )
    if config.policy == "static" and draw(st.booleans()):
        config = replace(config, options={"full-pcpus-only": "true"})
    return NodeType(name, draw(st.integers(1, 4)), topology, config, draw(st.sampled_from([2, 110])))


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    types = tuple(draw(node_types(f"t{n}")) for n in range(draw(st.integers(1, 3))))
    workloads = tuple(
        FleetWorkload(f"w{n}", draw(pods(f"w{n}")), draw(st.integers(0, 12))) for n in range(draw(st.integers(1, 4)))
    )
    return Fleet(types, workloads)


def task_of(fleet: Fleet, scheduler: Scheduler, seed: int) -> ShardTask:
    waiting = [Waiting(n) for n, workload in enumerate(fleet.workloads) for _ in range(workload.replicas)]
    pods_of = tuple(workload.pod for workload in fleet.workloads)
    nodes = tuple(n for n, kind in enumerate(fleet.types) for _ in range(kind.count))
    return ShardTask(fleet.types, pods_of, scheduler, nodes, waiting, (seed,))


@given(fleets(), st.sampled_from(Scheduler), st.integers(0, 5))
def test_every_node_is_in_a_sound_state_with_nothing_given_twice(fleet: Fleet, scheduler: Scheduler, seed: int) -> None:
    """Each node's pods are admitted once more, with a whole State: it is sound, and the same CPUs are left."""
    visits: list[Visit] = []
    task = task_of(fleet, scheduler, seed)
    result = run_shard(task, visits.append)
    for node, number in enumerate(task.nodes):
        kind = fleet.types[number]
        admitter = kind.config.build(kind.topology)
        state = admitter.policy.start(State.new())
        for count, visit in enumerate(visit for visit in visits if visit.node == node):
            assert visit.before == state.shared.mask
            pod = replace(fleet.workloads[visit.waiting.workload].pod, uid=PodUID(f"u{count}"))
            admission = admitter.admit(state, pod)
            assert (admission.refusal and admission.refusal.reason) == visit.reason
            if admission.refusal is None:
                state = admission.state
            assert visit.after == state.shared.mask
            if isinstance(admitter.policy, StaticPolicy):
                assert state.check(kind.topology.online, kept_apart=EMPTY) == []
        assert result.loads[node].shared == state.shared.mask


@given(fleets(), st.sampled_from(Scheduler), st.integers(0, 5))
def test_every_pod_is_placed_once_or_refused_or_left(fleet: Fleet, scheduler: Scheduler, seed: int) -> None:
    visits: list[Visit] = []
    task = task_of(fleet, scheduler, seed)
    result = run_shard(task, visits.append)
    placed: Counter[int] = Counter()
    for (_, number, _), count in result.placed.items():
        placed[number] += count
    left = Counter(waiting.workload for waiting in result.left)
    for number, workload in enumerate(fleet.workloads):
        assert placed[number] + result.refused.get(number, 0) + left[number] == workload.replicas
    admitted = [visit for visit in visits if visit.reason is None]
    assert len(admitted) == sum(placed.values()) == sum(load.pods for load in result.loads)
    assert len(visits) - len(admitted) == sum(result.refusals.values())


@given(fleets(), st.sampled_from(Scheduler))
def test_no_node_takes_more_than_it_has(fleet: Fleet, scheduler: Scheduler) -> None:
    task = task_of(fleet, scheduler, 0)
    for number, load in zip(task.nodes, run_shard(task).loads, strict=True):
        kind = fleet.types[number]
        assert load.requested <= kind.allocatable
        assert load.pods <= kind.most_pods


@given(fleets(), st.sampled_from(Scheduler), st.integers(0, 5))
def test_answers_kept_from_other_shards_change_nothing(fleet: Fleet, scheduler: Scheduler, seed: int) -> None:
    """`run_shard` decides once for all nodes in the same State: the same as a Ground that has decided nothing yet."""
    task = task_of(fleet, scheduler, seed)
    for other in Scheduler:
        run_shard(task_of(fleet, other, seed + 1))
    kept: list[Visit] = []
    after_others = run_shard(task, kept.append)
    _LATEST.clear()
    fresh: list[Visit] = []
    assert run_shard(task, fresh.append) == after_others
    assert kept == fresh


@given(fleets(), st.integers(0, 3))
def test_counts_add_up(fleet: Fleet, seed: int) -> None:
    for outcome in plan_fleet(fleet, FleetScenario(seed=seed)):
        assert outcome.placed + outcome.refused + outcome.unschedulable == fleet.pods
        assert outcome.placed == sum(kind.usage.pods for kind in outcome.types)
        by_type = sum((Counter(kind.refusals) for kind in outcome.types), Counter[str]())
        by_workload = sum((Counter(workload.refusals) for workload in outcome.workloads), Counter[str]())
        assert by_type == by_workload
        assert outcome.refusals == by_type.total() >= outcome.refused * 4 + outcome.saved
        assert outcome.saved <= outcome.placed


@given(fleets())
@settings(max_examples=10)
def test_the_same_seed_gives_the_same_outcome_in_every_order_of_work(fleet: Fleet) -> None:
    large = fleet._replace(types=tuple(replace(kind, count=kind.count + 120) for kind in fleet.types))

    def backwards(tasks: Sequence[ShardTask]) -> list[ShardResult]:
        return [run_shard(task) for task in reversed(tasks)][::-1]

    scenario = FleetScenario(seed=3)
    assert plan_fleet(large, scenario) == plan_fleet(large, scenario, backwards)
