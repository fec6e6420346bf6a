"""Laws of the planner: it decides nothing by itself, its State is sound, and what it says would help does help."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from pinfold.core.allocators.order import Fidelity
from pinfold.core.config import Config, Reservation
from pinfold.core.explaining.advice import advise, resized
from pinfold.core.explaining.alignment import Level, Ruler
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.pods.pod import PodUID
from pinfold.errors import ConfigError
from pinfold.planning.compare import combinations
from pinfold.planning.orders import sample, tally
from pinfold.planning.plan import Running, Walk, make_plan, start
from pinfold.planning.replay import Event, replay
from tests.parity.node import collect
from tests.property.strategies import cpus_within, pods, reserved_within, topologies, valid_options

if TYPE_CHECKING:
    from pinfold.core.machine.topology import Topology
    from pinfold.core.pods.pod import Pod
    from pinfold.planning.plan import Plan

GATES = {"CPUManagerPolicyAlphaOptions": True, "CPUManagerPolicyBetaOptions": True}


@st.composite
def nodes(draw: st.DrawFn) -> tuple[Topology, Config]:
    """Machines with a configuration that they can be started with."""
    topology = draw(topologies(12).filter(lambda machine: len(machine.online) > 1))
    chosen = draw(st.sampled_from(valid_options(topology)))
    options = {name.replace("_", "-"): "true" for name, value in chosen._asdict().items() if value}
    policy = draw(st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"]))
    if chosen.align_by_socket and policy == "single-numa-node":
        policy = "restricted"
    scope = draw(st.sampled_from(["container", "pod"]))
    reserved = Reservation.of(draw(reserved_within(topology)))
    return topology, Config("static", options, reserved, policy, topology_scope=scope, gates=GATES)


@st.composite
def pod_lists(draw: st.DrawFn, most: int = 5) -> list[Pod]:
    return [draw(pods(f"p{i}")) for i in range(draw(st.integers(0, most)))]


@given(nodes(), pod_lists())
def test_a_plan_is_what_the_admitter_decides_pod_by_pod(node: tuple[Topology, Config], coming: list[Pod]) -> None:
    topology, config = node
    plan = make_plan(coming, topology, config)
    admitter = config.build(topology)
    state = start(admitter, topology)
    active: set[PodUID] = set()
    for pod, outcome in zip(coming, plan.outcomes, strict=True):
        state = collect(admitter.policy, state, active)
        admission = admitter.admit(state, pod)
        state = admission.state
        assert outcome.admission.state == state
        assert str(outcome.refusal) == str(admission.refusal)
        if admission.refusal is None:
            active.add(pod.uid)
    final = collect(admitter.policy, state, active)
    assert (plan.after.shared, plan.after.assignments) == (final.shared, final.assignments)


@given(nodes(), pod_lists())
def test_the_state_after_a_plan_is_sound(node: tuple[Topology, Config], coming: list[Pod]) -> None:
    plan = make_plan(coming, *node)
    assert not plan.broken
    assert not plan.after.exclusive & plan.reserved
    assert not plan.defects


@given(nodes(), pod_lists(3), pod_lists(3))
def test_a_plan_goes_on_where_another_ended(node: tuple[Topology, Config], first: list[Pod], second: list[Pod]) -> None:
    later = [replace(pod, uid=PodUID(f"later-{pod.uid}")) for pod in second]
    whole = make_plan([*first, *later], *node)
    before = make_plan(first, *node)
    after = make_plan(later, *node, Running(before.after.restarted()))
    assert [placement.cpus for placement in whole.placements] == [
        placement.cpus for placement in (*before.placements, *after.placements)
    ]


@given(nodes(), pod_lists())
def test_who_comes_and_goes_leaves_nothing_behind(node: tuple[Topology, Config], coming: list[Pod]) -> None:
    topology, config = node
    admitter = config.build(topology)
    first = start(admitter, topology)
    walk = Walk(admitter, first)
    for pod in coming:
        walk.admit(pod)
    for pod in coming:
        walk.remove(pod.uid)
    assert (walk.settle().shared, dict(walk.state.assignments)) == (first.shared, {})


@given(nodes(), pod_lists())
def test_advice_helps(node: tuple[Topology, Config], coming: list[Pod]) -> None:
    plan = make_plan(coming, *node)
    for outcome in plan.refused:
        advice = advise(plan.ruler, outcome)
        assert advice.need
        if (name := outcome.admission.container) is not None:
            for size in advice.sizes:
                again = plan.admitter.admit(outcome.before, resized(outcome.pod, name, size))
                assert (again.refusal is None) == (advice.then is None)
                assert again.container == advice.then
        for who in filter(None, (advice.move, advice.end)):
            uid, _, container = who.partition("/")
            walk = Walk(plan.admitter, outcome.before)
            assert container in outcome.before.assignments[PodUID(uid)]
            walk.remove(PodUID(uid))  # the whole pod, so at least as much is free
            assert walk.admit(outcome.pod).refusal is None or len(outcome.before.assignments[PodUID(uid)]) > 1


@given(nodes(), pod_lists(3), st.integers(0, 1 << 64))
def test_orders_are_the_same_for_the_same_seed(node: tuple[Topology, Config], coming: list[Pod], seed: int) -> None:
    plan = make_plan((), *node)
    runs = [sample(plan.admitter, plan.ruler, plan.before, coming, seed) for _ in range(2)]
    first, second = ([next(run) for _ in range(5)] for run in runs)
    assert first == second
    found = tally(first, len(coming))
    assert sum(found.histogram) == 5
    assert all(refused + spread <= 5 for refused, spread in zip(found.refused, found.misaligned, strict=True))


@given(nodes(), pod_lists())
def test_a_trace_of_arrivals_is_a_plan(node: tuple[Topology, Config], coming: list[Pod]) -> None:
    found = replay([Event(time, pod) for time, pod in enumerate(coming)], *node)
    plan: Plan = make_plan(coming, *node)
    assert [placement.cpus for placement in found.plan.placements] == [placement.cpus for placement in plan.placements]
    assert found.plan.after == plan.after
    assert [moment.refused for moment in found.moments][-1:] == ([len(plan.refused)] if coming else [])


@given(topologies(), st.data())
def test_cpus_span_what_holds_them_and_never_fewer_than_could(topology: Topology, data: st.DataObject) -> None:
    cpus = CPUSet(data.draw(cpus_within(topology.online.mask)))
    groups = {
        Level.CORE: topology.cores,
        Level.UNCORE: topology.uncore_caches,
        Level.NUMA: topology.numa_nodes,
        Level.SOCKET: topology.sockets,
    }
    for level, span in Ruler(topology).measure(cpus).levels.items():
        held = sum(group.mask for group in groups[level] if group.id in span.ids)
        assert not cpus.mask & ~held
        if cpus:
            assert 1 <= span.fewest <= len(span.ids)


@given(topologies(), st.data())
def test_leftovers_are_broken_by_a_share(topology: Topology, data: st.DataObject) -> None:
    free = CPUSet(data.draw(cpus_within(topology.online.mask)))
    left = Ruler(topology).leftover(free)
    assert all(0 <= share <= 1 for share in left.broken.values())
    assert all(most <= len(free) for most in left.largest.values())
    assert Ruler(topology).leftover(topology.online).fragmentation == 0


@settings(max_examples=20)  # each tries up to a hundred configurations
@given(nodes())
def test_every_combination_that_is_tried_can_be_started(node: tuple[Topology, Config]) -> None:
    topology, config = node
    found = combinations(config, topology)
    assert found[0].config is config
    assert len({variant.label for variant in found}) == len(found)
    for variant in found:
        variant.config.build(topology)


@given(nodes(), pod_lists())
def test_both_fidelities_agree_where_the_kubelet_reports_no_defect(
    node: tuple[Topology, Config], coming: list[Pod]
) -> None:
    topology, config = node
    try:
        exact = make_plan(coming, topology, replace(config, fidelity=Fidelity.KUBELET))
    except ConfigError:  # more NUMA nodes than a kubelet takes
        return
    if not exact.defects and not exact.broken:
        sound = make_plan(coming, topology, config)
        assert [placement.cpus for placement in sound.placements] == [placement.cpus for placement in exact.placements]
