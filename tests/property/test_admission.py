"""Laws of admission: what each Topology Manager policy promises about the CPUs of those it lets in."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from pinfold.core.admission import Admitter, Scope
from pinfold.core.allocators.order import Fidelity
from pinfold.core.config import Config, Reservation, check_machine
from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.core.machine.presets import from_shape
from pinfold.core.machine.topology import Topology
from pinfold.core.pods.pod import PodUID, exclusive_cpus
from pinfold.core.policies.options import OPTIONS, Options
from pinfold.core.policies.static import StaticPolicy
from pinfold.core.state import State
from pinfold.core.topologymanager.manager import TopologyAffinityError
from pinfold.core.topologymanager.options import TopologyPolicy
from pinfold.core.topologymanager.others import WHOLE, Held, Holding
from tests.parity.node import collect
from tests.property.strategies import (
    guaranteed,
    node_topologies,
    pinned,
    pod_of,
    pods,
    reserved_within,
    topologies,
    valid_options,
    whole_pods,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pinfold.core.admission import Admission
    from pinfold.core.pods.pod import Pod

GATES = {"CPUManagerPolicyAlphaOptions": True}
ALIGNING = ("best-effort", "restricted", "single-numa-node")


class Node(NamedTuple):
    """What lets pods in on a machine, and the State it is in."""

    topology: Topology
    options: Options
    admitter: Admitter
    state: State

    @property
    def policy(self) -> StaticPolicy:
        assert isinstance(self.admitter.policy, StaticPolicy)
        return self.admitter.policy

    def broken(self, state: State) -> list[str]:
        kept_apart = self.policy.reserved if self.options.strict_cpu_reservation else EMPTY
        return state.check(self.topology.online, kept_apart=kept_apart)


def config_of(
    options: Options, reserved: CPUSet, policy: str, scope: str = "container", *, pod_level: bool = False
) -> Config:
    given = {name: "true" for name, option in OPTIONS.items() if getattr(options, option.field)}
    gates = GATES | {"PodLevelResourceManagers": pod_level}
    return Config("static", given, Reservation.of(reserved), policy, topology_scope=scope, gates=gates)


@st.composite
def machines(draw: st.DrawFn) -> Topology:
    """Machines of several NUMA nodes mostly, some of them with memory alone."""
    topology = draw(st.one_of(node_topologies(), node_topologies(), topologies()))
    assume(len(topology.cpus) > 1)
    beyond = max(node.id for node in topology.numa_nodes) + 1
    return replace(topology, memory_only=(beyond,)) if draw(st.integers(0, 3)) == 0 else topology


@st.composite
def nodes(
    draw: st.DrawFn, policies: Iterable[str] = ALIGNING, *, scope: Scope | None = None, pod_level: bool = False
) -> Node:
    """Nodes on which some pods run already; the State is sound."""
    topology = draw(machines())
    policy = draw(st.sampled_from(list(policies)))
    fitting = [o for o in valid_options(topology) if not check_machine(o, policy, topology)]
    options = draw(st.sampled_from(fitting))
    chosen = draw(st.sampled_from(Scope)) if scope is None else scope
    config = config_of(options, draw(reserved_within(topology)), policy, chosen, pod_level=pod_level)
    admitter = config.build(topology)
    node = Node(topology, options, admitter, admitter.policy.start(State.new()))
    for number in range(draw(st.integers(0, 3))):
        node = node._replace(state=admitter.admit(node.state, draw(pods(f"before{number}"))).state)
    assert node.broken(node.state) == []
    return node


def nodes_of(topology: Topology, cpus: CPUSet) -> int:
    """Return the NUMA nodes that have some of *cpus*, as a mask."""
    return sum(1 << node.id for node in topology.numa_nodes if node.mask & cpus.mask)


def fewest_nodes_for(topology: Topology, count: int) -> int:
    """Return how many NUMA nodes it takes at least, were all their CPUs free."""
    held = used = 0
    for size in sorted((node.mask.bit_count() for node in topology.numa_nodes), reverse=True):
        if held >= count:
            break
        held += size
        used += 1
    return used


def given_cpus(admission: Admission) -> dict[str, CPUSet]:
    return {name: decision.cpus for name, decision in admission.decisions.items() if decision.cpus is not None}


@given(nodes(["single-numa-node"], scope=Scope.CONTAINER), pods("new"))
def test_single_numa_node_gives_every_container_cpus_of_one_node(node: Node, pod: Pod) -> None:
    admission = node.admitter.admit(node.state, pod)
    for name, cpus in given_cpus(admission).items():
        assert nodes_of(node.topology, cpus).bit_count() == 1
        affinity = admission.affinity[name].affinity
        assert affinity in {None, nodes_of(node.topology, cpus)}


@given(nodes(["single-numa-node"], scope=Scope.POD), pods("new"))
def test_single_numa_node_gives_a_whole_pod_cpus_of_one_node_in_pod_scope(node: Node, pod: Pod) -> None:
    admission = node.admitter.admit(node.state, pod)
    if admission.refusal is None and given_cpus(admission):
        assert nodes_of(node.topology, admission.state.cpus_of_pod(pod.uid)).bit_count() == 1


@given(nodes(["single-numa-node"], scope=Scope.CONTAINER), st.integers(1, 6))
def test_single_numa_node_refuses_exactly_what_no_single_node_has_free(node: Node, count: int) -> None:
    free = node.state.shared - node.policy.reserved
    if node.options.full_pcpus_only and not node.policy.machine.even:
        whole = (core for core in node.topology.cores if core.cpus <= free and len(core.cpus) <= count)
        free = CPUSet(sum(core.mask for core in whole))
    fits = any((numa.mask & free.mask).bit_count() >= count for numa in node.topology.numa_nodes)
    refusal = node.admitter.admit(node.state, pod_of(pinned(count), uid="new")).refusal
    assert isinstance(refusal, TopologyAffinityError) != fits


@given(nodes(["restricted"], scope=Scope.CONTAINER), pods("new"))
def test_restricted_uses_no_more_nodes_than_an_empty_machine_would_need(node: Node, pod: Pod) -> None:
    if node.options.align_by_socket:
        return
    admission = node.admitter.admit(node.state, pod)
    for cpus in given_cpus(admission).values():
        assert nodes_of(node.topology, cpus).bit_count() <= fewest_nodes_for(node.topology, len(cpus))


@given(nodes(), pods("new"))
def test_a_preferred_hint_holds_all_cpus_given_by_it(node: Node, pod: Pod) -> None:
    admission = node.admitter.admit(node.state, pod)
    for name, cpus in given_cpus(admission).items():
        hint = admission.affinity[name]
        if hint.preferred and hint.affinity is not None:
            machine = node.policy.machine
            by_socket = node.options.align_by_socket
            near = machine.sockets_of(hint.affinity) if by_socket else machine.numa_mask(hint.affinity)
            assert not cpus.mask & ~near


@given(nodes(scope=Scope.POD, pod_level=True), whole_pods("new"))
def test_a_preferred_hint_holds_the_cpus_of_a_pod_with_pod_level_resources(node: Node, pod: Pod) -> None:
    admission = node.admitter.admit(node.state, pod)
    assert node.broken(admission.state) == []
    hints = set(admission.affinity.values())
    assert len(hints) <= 1
    for hint in hints:
        if pod.uid in admission.state.pods and hint.preferred and hint.affinity is not None:
            machine, by_socket = node.policy.machine, node.options.align_by_socket
            near = machine.sockets_of(hint.affinity) if by_socket else machine.numa_mask(hint.affinity)
            assert not admission.state.pods[pod.uid].mask & ~near


@given(nodes(["single-numa-node"], scope=Scope.CONTAINER), st.integers(1, 4), st.data())
def test_cpus_follow_a_device_to_its_node(node: Node, count: int, data: st.DataObject) -> None:
    at = data.draw(st.sampled_from([numa.id for numa in node.topology.numa_nodes]))
    gpu = Held({"app": (Holding("gpu", (1 << at,)),)})
    admission = node.admitter.admit(node.state, pod_of(pinned(count), uid="new"), others=gpu)
    for cpus in given_cpus(admission).values():
        assert nodes_of(node.topology, cpus) == 1 << at


@given(nodes(), pods("new"))
def test_refusal_and_admission_leave_what_others_have(node: Node, pod: Pod) -> None:
    before = node.state
    admission = node.admitter.admit(before, pod)
    event("refused" if admission.refusal else "admitted")
    assert node.broken(admission.state) == []
    for uid, containers in before.assignments.items():
        assert admission.state.assignments[uid] == containers
    assert set(admission.state.assignments) - set(before.assignments) <= {pod.uid}
    assert admission.state.shared == before.shared - admission.state.cpus_of_pod(pod.uid)
    after = collect(node.admitter.policy, admission.state, set(before.assignments))
    assert after.restarted() == before.restarted()


@given(nodes(), pods("new"))
def test_a_refusal_names_the_container_and_comes_with_a_trace(node: Node, pod: Pod) -> None:
    admission = node.admitter.admit(node.state, pod)
    names = [container.name for container in pod.all_containers]
    if admission.refusal is None:
        assert list(admission.decisions) == names
        assert list(admission.affinity) == names
        assert admission.container is None
    elif admission.container is not None:
        assert list(admission.decisions) == names[: names.index(admission.container)]
    else:
        assert node.admitter.scope is Scope.POD
        assert admission.state == node.state
    traces = node.admitter.explain(node.state, pod)
    assert traces == node.admitter.explain(node.state, pod)
    assert not any(trace.defects for trace in traces.values())
    if admission.refusal is not None:
        last = traces[admission.container or WHOLE].steps[-1]
        assert (last.what, last.why) == (f"refused with {admission.refusal.reason}", str(admission.refusal))


@given(nodes(), st.data())
def test_collecting_removes_exactly_the_pods_that_are_not_active(node: Node, data: st.DataObject) -> None:
    known = sorted(node.state.assignments)
    active = set(data.draw(st.sets(st.sampled_from(known)))) if known else set()
    active |= {PodUID("without CPUs")}
    after = collect(node.admitter.policy, node.state, active)
    kept = {uid: containers for uid, containers in node.state.assignments.items() if uid in active}
    assert after.assignments == kept
    gone = [node.state.cpus_of_pod(uid).mask for uid in known if uid not in active]
    assert after.shared == node.state.shared | CPUSet(sum(gone))
    assert node.broken(after) == []
    assert collect(node.admitter.policy, after, active) == after


@given(nodes(), pods("new"))
def test_after_a_restart_every_pod_is_admitted_again_with_the_same_cpus(node: Node, pod: Pod) -> None:
    by_socket = node.options.align_by_socket and node.admitter.manager.policy is TopologyPolicy.RESTRICTED
    if by_socket:  # see the next test
        return
    admission = node.admitter.admit(node.state, pod)
    if admission.refusal is not None:
        return
    started = node.admitter.policy.start(admission.state.restarted())
    again = node.admitter.admit(started, pod)
    assert again.refusal is None
    assert again.state.restarted() == admission.state.restarted()
    assert given_cpus(again) == given_cpus(admission)


@pytest.mark.parametrize("fidelity", Fidelity)
def test_restricted_and_align_by_socket_may_refuse_a_running_pod_after_a_restart_as_the_reference_does(
    fidelity: Fidelity,
) -> None:
    topology = from_shape("sockets:2,numa:2,cores:4")
    config = config_of(Options(align_by_socket=True), CPUSet.of(0), "restricted")
    admitter = replace(config, fidelity=fidelity).build(topology)
    state = admitter.admit(admitter.policy.start(State.new()), pod_of(pinned(2), uid="before")).state
    pod = pod_of(pinned(7))
    admission = admitter.admit(state, pod)
    # Nodes 1 and 2 are the lowest pair; their sockets are the whole machine, and three nodes are used.
    assert (str(admission.affinity["app"]), str(admission.decisions["app"].cpus)) == ("NUMA 1-2, preferred", "3-9")
    again = admitter.admit(admitter.policy.start(admission.state.restarted()), pod)
    assert isinstance(again.refusal, TopologyAffinityError)


@given(nodes(), st.integers(1, 4), st.data())
def test_both_fidelities_let_in_the_same_until_the_reference_has_a_defect(
    node: Node, newcomers: int, data: st.DataObject
) -> None:
    manager = node.admitter.manager
    config = config_of(node.options, node.policy.reserved, manager.policy, node.admitter.scope)
    many = {**config.topology_options, "max-allowable-numa-nodes": "64"}
    exact = replace(config, fidelity=Fidelity.KUBELET, topology_options=many).build(node.topology)
    state = exact_state = node.admitter.policy.start(State.new())
    for number in range(newcomers):
        pod = data.draw(pods(f"new{number}"))
        expected = exact.admit(exact_state, pod)
        if any(trace.defects for trace in exact.explain(exact_state, pod).values()):
            return
        found = node.admitter.admit(state, pod)
        assert (found.state, found.affinity, str(found.refusal)) == (
            expected.state,
            expected.affinity,
            str(expected.refusal),
        )
        state, exact_state = found.state, expected.state


def verdict(node: Node, policy: str, count: int) -> type[Exception] | None:
    config = config_of(node.options, node.policy.reserved, policy)
    refusal = config.build(node.topology).admit(node.state, pod_of(pinned(count), uid="new")).refusal
    return None if refusal is None else type(refusal)


@given(nodes(["best-effort"]), st.integers(1, 8))
def test_best_effort_lets_in_and_refuses_as_no_topology_manager_does(node: Node, count: int) -> None:
    if node.options.full_pcpus_only and not node.policy.machine.even:
        return  # see the last test
    assert verdict(node, "best-effort", count) == verdict(node, "none", count)


@given(nodes(["single-numa-node"]), st.integers(1, 8))
def test_what_single_numa_node_lets_in_restricted_lets_in_and_what_that_lets_in_best_effort_does(
    node: Node, count: int
) -> None:
    strictest_first = [verdict(node, policy, count) is None for policy in reversed(ALIGNING)]
    assert strictest_first == sorted(strictest_first)


@given(nodes(["single-numa-node", "restricted"]), pods("new"))
def test_a_pod_without_cpus_of_its_own_is_always_let_in(node: Node, pod: Pod) -> None:
    sharing = replace(pod, resources=guaranteed(1500))
    assert not any(exclusive_cpus(sharing, container) for container in sharing.all_containers)
    admission = node.admitter.admit(node.state, sharing)
    assert admission.refusal is None
    assert admission.state == node.state


def test_single_numa_node_and_whole_cores_hold_together_where_cores_are_unequal() -> None:
    rows = [(0, 0, 0, 0, 0), (1, 1, 0, 0, 0), (2, 1, 0, 0, 0), (3, 3, 1, 1, 1), (4, 4, 1, 1, 1), (5, 4, 1, 1, 1)]
    topology = Topology.from_rows(rows)
    admitter = config_of(Options(full_pcpus_only=True), CPUSet.of(2), "single-numa-node").build(topology)
    pod = pod_of(pinned(2))
    state = admitter.admit(admitter.policy.start(State.new()), pod).state
    assert nodes_of(topology, state.exclusive).bit_count() <= 1
    assert admitter.admit(admitter.policy.start(state.restarted()), pod).refusal is None


@pytest.mark.parametrize("policy", ALIGNING)
def test_whole_cores_of_the_right_size_are_found_on_another_node_than_the_lowest(policy: str) -> None:
    rows = [(0, 0, 0, 0, 0), (1, 0, 0, 0, 0), (2, 2, 0, 0, 0), (3, 2, 0, 0, 0), (4, 4, 1, 1, 1)]
    admitter = config_of(Options(full_pcpus_only=True), CPUSet.of(0), policy).build(Topology.from_rows(rows))
    admission = admitter.admit(admitter.policy.start(State.new()), pod_of(pinned(1)))
    assert str(admission.state.exclusive) == "4"
