"""Laws of repacking: moves never overlap, never raise the cost, and end at the cheapest arrangement in reach."""

from __future__ import annotations

from contextlib import suppress
from itertools import combinations
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.core.allocators.order import Machine
from pinfold.core.machine.cpuset import CPUSet, cpus_of
from pinfold.core.machine.presets import from_shape
from pinfold.core.moving.baselines import baseline
from pinfold.core.moving.cost import Cost
from pinfold.core.moving.repack import Movable, Packer, RepackPlan
from pinfold.core.moving.repacking import Consent
from pinfold.core.moving.resizing import NotResized
from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.core.policies.options import Options
from pinfold.core.policies.static import StaticPolicy
from pinfold.core.state import State
from tests.property.strategies import regular_topologies, topologies
from tests.property.test_resizing import admitters, fill, sound

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pinfold.core.machine.topology import Topology


def ref(number: int) -> ContainerRef:
    return ContainerRef(PodUID(f"p{number}"), "app")


@st.composite
def nodes(
    draw: st.DrawFn, most: int = 10, containers: int = 3, largest: int = 3
) -> tuple[Topology, list[Movable], CPUSet]:
    """Return a machine with containers scattered over it, and its free CPUs; CPU 0 or the like stays shared."""
    topology = draw(st.one_of(regular_topologies(most), topologies(most)).filter(lambda machine: len(machine.cpus) > 3))
    cpus = draw(st.permutations(list(topology.online)))
    left = cpus[1:]
    movable = []
    for number in range(draw(st.integers(1, containers))):
        size = draw(st.integers(1, largest))
        own, left = left[:size], left[size:]
        if own:
            area = topology.online if draw(st.booleans()) else own_nodes(topology, CPUSet.from_cpus(own))
            movable.append(Movable(ref(number), CPUSet.from_cpus(own), area - CPUSet.of(cpus[0])))
    return topology, movable, CPUSet.from_cpus(left)


def own_nodes(topology: Topology, cpus: CPUSet) -> CPUSet:
    return CPUSet(sum(node.mask for node in topology.numa_nodes if node.cpus & cpus))


def check(packer: Packer, plan: RepackPlan, movable: Sequence[Movable], free: CPUSet) -> None:
    """Check every instant of a plan."""
    have = {one.container: one.cpus for one in movable}
    areas = {one.container: one.area | one.cpus for one in movable}
    cost = packer.meter.total(have.values())
    assert plan.before == cost
    moved = set()
    for move in plan.moves:
        assert move.container not in moved
        moved.add(move.container)
        assert move.before == have[move.container]
        assert len(move.after) == len(move.before)
        assert move.after - move.before <= free, "it moves onto free CPUs alone"
        assert move.after <= areas[move.container]
        free = (free | move.before) - move.after
        have[move.container] = move.after
        now = packer.meter.total(have.values())
        assert now <= cost, "no move raises the cost"
        cost = now
    assert plan.after == cost
    assert plan.after < plan.before or not plan.moves


@given(nodes(most=16, containers=8, largest=5), st.integers(0, 6), st.sampled_from(["any CPUs", "whole cores"]))
def test_a_plan_never_overlaps_never_raises_the_cost_and_keeps_its_budget(
    node: tuple[Topology, list[Movable], CPUSet], budget: int, kind: str
) -> None:
    topology, movable, free = node
    whole_cores = kind == "whole cores"
    packer = Packer(topology)
    if whole_cores:
        movable = [one._replace(whole_cores=True) for one in movable if topology.siblings(one.cpus) == one.cpus]
    plan = packer.plan(free, movable, budget)
    assert len(plan.moves) <= budget
    check(packer, plan, movable, free)
    assert plan == Packer(topology).plan(free, movable, budget)
    if whole_cores:
        assert all(topology.siblings(move.after) == move.after for move in plan.moves)


@given(nodes(most=8, containers=3, largest=3), st.integers(1, 2), st.sets(st.integers(0, 2)))
def test_no_cheaper_arrangement_is_within_the_budget(
    node: tuple[Topology, list[Movable], CPUSet], budget: int, aligned: set[int]
) -> None:
    topology, movable, free = node
    packer = Packer(topology)
    movable = [
        one._replace(most_caches=packer.meter.cost(one.cpus.mask).uncore_caches) if number in aligned else one
        for number, one in enumerate(movable)
    ]
    plan = packer.plan(free, movable, budget)
    best = min(reachable(packer, {one.container: one.cpus.mask for one in movable}, movable, free.mask, budget))
    assert plan.after == best


def reachable(
    packer: Packer, have: dict[ContainerRef, int], movable: Sequence[Movable], free: int, budget: int
) -> Iterator[Cost]:
    """Yield the cost of every arrangement that so many moves can reach, none of which raises the cost."""
    total = packer.meter.total(map(CPUSet, have.values()))
    yield total
    if not budget:
        return
    for one in movable:
        own = have[one.container]
        for some in combinations(cpus_of(free & one.area.mask | own), own.bit_count()):
            cpus = sum(1 << cpu for cpu in some)
            cost, most = packer.meter.cost(cpus), one.most_caches
            if cpus != own and cost <= packer.meter.cost(own) and (most is None or cost.uncore_caches <= most):
                yield from reachable(packer, {**have, one.container: cpus}, movable, (free | own) & ~cpus, budget - 1)


@given(nodes(most=16, containers=5, largest=5))
def test_repacking_ends(node: tuple[Topology, list[Movable], CPUSet]) -> None:
    topology, movable, free = node
    packer = Packer(topology)
    costs = [packer.meter.total(one.cpus for one in movable)]
    while (plan := packer.plan(free, movable, budget=2)).moves:
        after = {move.container: move.after for move in plan.moves}
        for move in plan.moves:
            free = (free | move.before) - move.after
        movable = [one._replace(cpus=after.get(one.container, one.cpus)) for one in movable]
        costs.append(plan.after)
        assert costs[-1] < costs[-2]


def test_two_moves_that_help_only_together_are_found() -> None:
    # Three L3 of 4 CPUs: CPU 2 would bring the scattered container together, and the small one can go to CPU 8 instead.
    topology = from_shape("l3:3,cores:4")
    scattered = Movable(ref(0), CPUSet.parse("0-1,4"), topology.online)
    small = Movable(ref(1), CPUSet.parse("2"), topology.online)
    free = CPUSet.parse("8")
    packer = Packer(topology)
    assert not packer.plan(free, [scattered, small], budget=1).moves
    plan = packer.plan(free, [scattered, small], budget=2)
    assert [(move.container, str(move.after)) for move in plan.moves] == [(ref(1), "8"), (ref(0), "0-2")]
    assert "makes room for the next move" in str(plan.moves[0])
    assert plan.after < plan.before


@pytest.mark.parametrize(
    ("worse", "better"),
    [
        (Cost(2, 2, 0, 42), Cost(1, 4, 4, 0)),
        (Cost(1, 2, 0, 0), Cost(1, 1, 2, 0)),
        (Cost(1, 1, 1, 0), Cost(1, 1, 0, 0)),
        (Cost(2, 2, 0, 64), Cost(2, 2, 0, 44)),
    ],
    ids=["NUMA nodes", "then caches", "then split cores", "then distance"],
)
def test_the_first_difference_decides(worse: Cost, better: Cost) -> None:
    assert better < worse


@given(st.data())
def test_every_state_on_the_way_is_sound_and_baselines_keep_their_size(data: st.DataObject) -> None:
    admitter = data.draw(admitters(dynamic=True))
    policy = admitter.policy
    assert policy.repacking is not None
    state = fill(admitter, data, pods=5)
    for container in data.draw(st.lists(st.sampled_from([own for own, _ in state.flat()]), max_size=3)):
        with suppress(NotResized):
            state = admitter.resize(state, container, data.draw(st.integers(1, 6))).state
    for container in data.draw(st.lists(st.sampled_from([own for own, _ in state.flat()]), max_size=2)):
        state = policy.release(state, container).state
    may_move = {
        container: Consent(data.draw(st.booleans())) for container, _ in state.flat() if data.draw(st.booleans())
    }
    plan = policy.repacking.plan(state, may_move, budget=4)
    for move in plan.moves:
        before, state = state, policy.repacking.moved(state, move)
        sound(admitter, state)
        assert move.container in may_move
        for container, cpus in state.flat():
            assert cpus == (move.after if container == move.container else before.cpus(*container))
            base = state.baselines.get(container.pod, {}).get(container.name)
            assert base is None or (base <= cpus and len(base) == len(baseline(before, container)))


def test_a_container_stays_on_its_numa_nodes_unless_its_memory_follows() -> None:
    topology = from_shape("sockets:2,cores:4")
    policy = StaticPolicy(Machine(topology), CPUSet.of(0), Options(), dynamic=True)
    # Container 0 is in the way of container 1 on node 0. There is room for it on node 1 alone.
    own = {PodUID("p0"): {"app": CPUSet.of(3)}, PodUID("p1"): {"app": CPUSet.of(1, 2, 4)}}
    state = State(CPUSet.of(0, 7), {**own, PodUID("others"): {"app": CPUSet.of(5, 6)}})
    assert policy.repacking is not None
    assert not policy.repacking.plan(state, {ref(0): Consent(), ref(1): Consent()}, budget=2).moves
    plan = policy.repacking.plan(state, {ref(0): Consent(memory_follows=True), ref(1): Consent()}, budget=2)
    assert [str(move.after) for move in plan.moves] == ["7", "1-3"]


def test_static_moves_no_container() -> None:
    assert StaticPolicy(Machine(from_shape("cores:4")), CPUSet.of(0)).repacking is None
