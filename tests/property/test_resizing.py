"""Laws of resizing: a container grows next to what it has, and gives back its worst-placed CPUs first."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from pinfold.core.admission import Admitter, Scope
from pinfold.core.allocators.order import Machine
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import from_shape
from pinfold.core.moving.baselines import baseline
from pinfold.core.moving.resizing import NotResized
from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.core.policies.options import Options
from pinfold.core.policies.static import StaticPolicy
from pinfold.core.state import State
from pinfold.core.topologymanager.manager import TopologyManager
from pinfold.core.trace import Recorder
from tests.property.strategies import pinned, pod_of, regular_topologies, reserved_within, topologies, valid_options

if TYPE_CHECKING:
    from pinfold.core.machine.topology import Group, Topology

APP = ContainerRef(PodUID("p0"), "app")


@st.composite
def admitters(draw: st.DrawFn, *, dynamic: bool | None = None, most: int = 16) -> Admitter:
    """Admitters with any options, on any small machine."""
    topology = draw(topologies(most).filter(lambda machine: len(machine.cpus) > 1))
    options = draw(st.sampled_from(valid_options(topology)))
    chosen = draw(st.booleans()) if dynamic is None else dynamic
    policy = StaticPolicy(Machine(topology), draw(reserved_within(topology)), options, dynamic=chosen)
    alignment = draw(st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"]))
    if options.align_by_socket and alignment == "single-numa-node":
        alignment = "none"
    manager = TopologyManager.for_machine(alignment, {}, topology, any_machine=True)
    return Admitter(policy, manager, draw(st.sampled_from(Scope)))


def fill(admitter: Admitter, data: st.DataObject, pods: int = 3) -> State:
    """Return a State with some pods on it, of which the first is always there."""
    state = admitter.policy.start(State.new())
    for number in range(pods):
        pod = pod_of(pinned(data.draw(st.integers(1, 4))), uid=f"p{number}")
        state = admitter.admit(state, pod).state
    assume(state.cpus(*APP) is not None)
    return state


def sound(admitter: Admitter, state: State) -> None:
    """Check the laws of a State."""
    policy = admitter.policy
    assert isinstance(policy, StaticPolicy)
    topology = policy.machine.topology
    assert state.check(topology.online, kept_apart=policy.kept_apart) == []
    assert not state.exclusive & policy.reserved


def check_nearest(admitter: Admitter, state: State, refusal: NotResized) -> None:
    """Check that the container can have the size that a refusal names, and none between it and what was asked for."""
    assert refusal.nearest is not None
    assert len(admitter.resize(state, APP, refusal.nearest).cpus or ()) == refusal.nearest
    low, high = sorted((refusal.wanted, refusal.nearest))
    for count in range(low + 1, high):
        with pytest.raises(NotResized):
            admitter.resize(state, APP, count)


@given(st.data())
def test_a_resize_is_exact_keeps_the_baseline_and_touches_no_other(data: st.DataObject) -> None:
    admitter = data.draw(admitters())
    policy = admitter.policy
    assert isinstance(policy, StaticPolicy)
    topology = policy.machine.topology
    state = fill(admitter, data)
    first = state.cpus(*APP)
    assert first is not None
    lowest = len(first)
    for count in data.draw(st.lists(st.integers(0, len(topology.online) + 1), min_size=1, max_size=4)):
        before, recorder = state, Recorder()
        try:
            decision = admitter.resize(state, APP, count, recorder=recorder)
        except NotResized as refusal:
            check_nearest(admitter, state, refusal)
            continue
        state, cpus, held = decision.state, decision.cpus, before.cpus(*APP)
        assert cpus is not None
        assert held is not None
        assert admitter.resize(before, APP, count) == decision
        assert len(cpus) == count
        assert cpus <= held or held <= cpus
        sound(admitter, state)
        assert {ref: own for ref, own in state.flat() if ref != APP} == {
            ref: own for ref, own in before.flat() if ref != APP
        }
        lowest = min(lowest, count)
        assert len(baseline(state, APP)) == lowest
        assert baseline(state, APP) <= cpus & first
        if policy.name == "static":
            assert first <= cpus
        if policy.options.full_pcpus_only and topology.siblings(held) == held:
            assert topology.siblings(cpus) == cpus
    left = admitter.policy.release(state, APP).state
    assert APP.pod not in left.baselines


@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(st.data())
def test_only_dynamic_goes_below_the_baseline_and_down_to_one(data: st.DataObject) -> None:
    admitter = data.draw(admitters(dynamic=True))
    policy = admitter.policy
    assert isinstance(policy, StaticPolicy)
    assume(not policy.options.full_pcpus_only)
    state = fill(admitter, data)
    held = state.cpus(*APP)
    assert held is not None
    assume(len(held) > 1)
    assert len(admitter.resize(state, APP, 1).cpus or ()) == 1
    static = StaticPolicy(policy.machine, policy.reserved, policy.options)
    for count in range(1, len(held)):
        with pytest.raises(NotResized) as refused:
            admitter._replace(policy=static).resize(state, APP, count)
        assert (refused.value.reason, refused.value.nearest) == ("BelowBaselineError", len(held))


@given(st.data())
def test_no_other_cpus_are_nearer_than_those_it_grows_onto(data: st.DataObject) -> None:
    topology = data.draw(regular_topologies(12).filter(lambda machine: len(machine.cpus) > 3))
    policy = StaticPolicy(Machine(topology), CPUSet.of(0), Options(), dynamic=True)
    admitter = Admitter(policy, TopologyManager.for_machine("none", {}, topology))
    state = fill(admitter, data)
    held = state.cpus(*APP)
    free = state.shared - policy.reserved
    more = data.draw(st.integers(1, 3))
    assume(held is not None and len(free) >= more and state.shared - free)
    assert held is not None
    cpus = admitter.resize(state, APP, len(held) + more).cpus
    assert cpus is not None
    best = max(nearness(topology, held, some) for some in combinations(free, more))
    assert nearness(topology, held, tuple(cpus - held)) == best


def nearness(topology: Topology, held: CPUSet, more: tuple[int, ...]) -> tuple[int, ...]:
    """Return how many of *more* share a core, L3, NUMA node and socket with the CPUs *held*."""

    def near(groups: tuple[Group, ...]) -> int:
        return sum(bool(group.cpus & held) for cpu in more for group in groups if group.mask >> cpu & 1)

    return near(topology.cores), near(topology.uncore_caches), near(topology.numa_nodes), near(topology.sockets)


@given(st.data())
def test_no_other_cpus_were_worse_placed_than_those_it_gave_back(data: st.DataObject) -> None:
    topology = data.draw(regular_topologies(16).filter(lambda machine: len(machine.cpus) > 3))
    policy = StaticPolicy(Machine(topology), CPUSet.of(0), Options(), dynamic=True)
    admitter = Admitter(policy, TopologyManager.for_machine("none", {}, topology))
    own = data.draw(st.sets(st.sampled_from(list(topology.online - policy.reserved)), min_size=2))
    held = CPUSet.from_cpus(own)
    state = State(topology.online - held, {APP.pod: {APP.name: held}})
    cpus = admitter.resize(state, APP, len(held) - 1).cpus
    assert cpus is not None
    gone, left = next(iter(held - cpus)), set(held)
    for level in (topology.sockets, topology.numa_nodes, topology.uncore_caches, topology.cores):
        counts = {cpu: len(group.cpus & held) for group in level for cpu in group.cpus & held if cpu in left}
        assert counts[gone] == min(counts.values())
        left = {cpu for cpu in left if counts[cpu] == counts[gone]}


def test_what_cannot_be_met_changes_nothing_and_names_the_nearest_size() -> None:
    topology = from_shape("cores:4,threads:2")
    policy = StaticPolicy(Machine(topology), CPUSet.of(0, 4), Options(full_pcpus_only=True))
    admitter = Admitter(policy, TopologyManager.for_machine("none", {}, topology))
    state = admitter.admit(policy.start(State.new()), pod_of(pinned(2), uid="p0")).state
    with pytest.raises(NotResized, match="the nearest size that it can have is 4") as refused:
        admitter.resize(state, APP, 5)
    assert (refused.value.reason, refused.value.nearest) == ("SMTAlignmentError", 4)
