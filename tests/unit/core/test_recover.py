"""A State that does not fit any more, turned into one that does: laws, and the cases that made them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from pinfold.core.allocators.order import Machine
from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.core.machine.presets import from_shape
from pinfold.core.machine.topology import Topology
from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.core.policies.options import Options
from pinfold.core.policies.static import StaticPolicy
from pinfold.core.recover import recover as recovered
from pinfold.core.state import State
from tests.property import strategies
from tests.property.strategies import pinned, pod_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pinfold.core.policies.base import Kept, Policy

    Found = Mapping[PodUID, Mapping[str, CPUSet]]

A, B, C = PodUID("a"), PodUID("b"), PodUID("c")
FOUR = StaticPolicy(Machine(from_shape("cores:4")), CPUSet.of(0))


def flat(found: Found) -> dict[ContainerRef, CPUSet]:
    return {ContainerRef(pod, name): cpus for pod, containers in found.items() for name, cpus in containers.items()}


def recover(policy: Policy, found: Found) -> Kept:
    return policy.keep(State(EMPTY, found))


@st.composite
def policies(draw: st.DrawFn) -> StaticPolicy:
    """Static policies on small machines, strict or not."""
    topology: Topology = draw(strategies.topologies(12).filter(lambda found: len(found.online) > 1))
    strict = draw(st.booleans())
    reserved = draw(strategies.reserved_within(topology).filter(lambda cpus: cpus < topology.online))
    return StaticPolicy(Machine(topology), reserved, Options(strict_cpu_reservation=strict))


@st.composite
def assignments(draw: st.DrawFn, policy: StaticPolicy) -> Found:
    """Anything that may be found: CPUs that are reserved, that are not there, that two have, or none."""
    wide = policy.machine.topology.online.mask | 1 << 40
    cpus = strategies.cpus_within(wide).map(CPUSet)
    containers = st.dictionaries(st.sampled_from(["x", "y", "z"]), cpus, min_size=1, max_size=3)
    return draw(st.dictionaries(st.sampled_from([A, B, C]), containers, max_size=3))


@st.composite
def disjoint(draw: st.DrawFn, policy: StaticPolicy) -> Found:
    """Assignments as a daemon makes them: allocatable CPUs, each with one owner, and one CPU left to share."""
    found: dict[PodUID, dict[str, CPUSet]] = {}
    for cpu in policy.allocatable:
        pod = draw(st.none() | st.sampled_from([A, B, C]))
        if pod is not None:
            name = draw(st.sampled_from(["x", "y"]))
            mine = found.setdefault(pod, {})
            mine[name] = mine.get(name, EMPTY) | CPUSet.of(cpu)
    if policy.options.strict_cpu_reservation and sum(map(len, flat(found).values())) == len(policy.allocatable):
        found.popitem()
    return found


@given(st.data())
def test_what_is_recovered_is_sound_and_nothing_is_made_up(data: st.DataObject) -> None:
    policy = data.draw(policies())
    found = data.draw(assignments(policy))
    state, lost = recover(policy, found)
    assert state.check(policy.machine.topology.online, kept_apart=policy.kept_apart) == []
    kept = flat(state.assignments)
    assert kept | dict(lost) == flat(found)
    assert not kept.keys() & lost.keys()
    assert not state.exclusive & policy.reserved
    assert policy.start(state) == state


@given(st.data())
def test_everything_that_is_allowed_and_disjoint_is_kept(data: st.DataObject) -> None:
    policy = data.draw(policies())
    found = data.draw(disjoint(policy))
    state, lost = recover(policy, found)
    assert lost == {}
    assert flat(state.assignments) == flat(found)


@given(st.data())
def test_recovering_twice_changes_nothing(data: st.DataObject) -> None:
    policy = data.draw(policies())
    state, _ = recover(policy, data.draw(assignments(policy)))
    assert recover(policy, state.assignments) == (state, {})


def test_containers_of_one_pod_may_have_the_same_cpus() -> None:
    found = {A: {"init": CPUSet.parse("1-2"), "app": CPUSet.of(1)}}
    state, lost = recover(FOUR, found)
    assert (state.shared, lost) == (CPUSet.of(0, 3), {})
    assert flat(state.assignments) == flat(found)


def test_of_two_pods_with_the_same_cpu_the_first_keeps_it() -> None:
    state, lost = recover(FOUR, {A: {"app": CPUSet.of(1)}, B: {"app": CPUSet.parse("1-2")}})
    assert flat(state.assignments) == {ContainerRef(A, "app"): CPUSet.of(1)}
    assert lost == {ContainerRef(B, "app"): CPUSet.parse("1-2")}


def test_reserved_missing_and_no_cpus_are_lost() -> None:
    state, lost = recover(FOUR, {A: {"app": CPUSet.of(0)}, B: {"app": CPUSet.of(1, 9)}, C: {"app": EMPTY}})
    assert state.shared == CPUSet.parse("0-3")
    assert len(lost) == 3


def test_with_a_strict_reservation_the_last_shared_cpu_is_not_given_away() -> None:
    policy = StaticPolicy(FOUR.machine, CPUSet.of(0), Options(strict_cpu_reservation=True))
    state, lost = recover(policy, {A: {"app": CPUSet.parse("1-2")}, B: {"app": CPUSet.of(3)}})
    assert state.shared == CPUSet.of(3)
    assert list(lost) == [ContainerRef(B, "app")]


def test_under_policy_none_no_container_keeps_cpus() -> None:
    policy = Config("none", reserved=Reservation.of(CPUSet.of(0))).build(from_shape("cores:4")).policy
    state, lost = recover(policy, {A: {"app": CPUSet.of(1)}})
    assert state.assignments == {}
    assert lost == {ContainerRef(A, "app"): CPUSet.of(1)}


WITHOUT_CPU_5 = Topology.from_rows([(cpu, cpu, cpu // 4, cpu // 4, cpu // 4) for cpu in range(8) if cpu != 5])
SINGLE = Config("static", reserved=Reservation.of(CPUSet.of(0)), topology_policy="single-numa-node")


def test_a_container_of_one_node_is_not_spread_over_two_when_a_cpu_goes_offline() -> None:
    """A fresh admission refuses it too: 3 CPUs are left in node 1, and 3 in node 0."""
    pod = pod_of(pinned(4), uid="a")
    found = State(CPUSet.parse("0-3"), {pod.uid: {"app": CPUSet.parse("4-7")}})
    admitter = SINGLE.build(WITHOUT_CPU_5)
    state, lost, refusals, *_ = recovered(admitter, found, {pod.uid: pod})
    assert lost == {ContainerRef(pod.uid, "app"): CPUSet.parse("4-7")}
    assert refusals[pod.uid].reason == "TopologyAffinityError"
    assert (state.shared, state.assignments) == (CPUSet.parse("0-4,6-7"), {})


def test_a_container_that_lost_a_cpu_gets_others_within_one_node_where_they_are_free() -> None:
    pod = pod_of(pinned(3), uid="a")
    found = State(CPUSet.parse("0-3,7"), {pod.uid: {"app": CPUSet.parse("4-6")}})
    state, lost, refusals, *_ = recovered(SINGLE.build(WITHOUT_CPU_5), found, {pod.uid: pod})
    assert (len(lost), refusals) == (1, {})
    assert state.cpus(pod.uid, "app") == CPUSet.parse("1-3")


def test_containers_of_a_pod_that_is_not_known_share_when_they_lose_their_cpus() -> None:
    found = State(CPUSet.parse("0-3"), {A: {"app": CPUSet.parse("4-7")}})
    state, lost, refusals, *_ = recovered(SINGLE.build(WITHOUT_CPU_5), found, {})
    assert (state.assignments, len(lost), refusals) == ({}, 1, {})


def test_the_cpus_of_pods_as_a_whole_and_baselines_are_recovered() -> None:
    whole = State(
        CPUSet.of(0),
        {A: {"x": CPUSet.of(1), "y": CPUSet.of(2)}, B: {"app": CPUSet.of(3)}},
        pods={A: CPUSet.parse("1-2")},
        baselines={B: {"app": CPUSet.of(3)}, C: {"gone": CPUSet.of(1)}},
    )
    state, lost = FOUR.keep(whole)
    assert lost == {}
    assert (state.pods, state.baselines) == (whole.pods, {B: whole.baselines[B]})
    assert flat(state.assignments) == flat(whole.assignments)


def test_a_pod_that_was_assigned_as_a_whole_loses_all_or_nothing() -> None:
    found = State(EMPTY, {A: {"x": CPUSet.of(1), "y": CPUSet.of(9)}}, pods={A: CPUSet.of(1, 9)})
    state, lost = FOUR.keep(found)
    assert (state.pods, state.assignments) == ({}, {})
    assert lost == flat(found.assignments)
