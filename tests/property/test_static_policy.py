"""Laws of the static policy, for any order of admitting, refusing, releasing and restarting."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pinfold.core.allocators.order import Fidelity, Machine
from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.core.machine.presets import from_shape
from pinfold.core.machine.topology import Topology
from pinfold.core.pods.pod import ContainerRef, PodUID, exclusive_cpus, exclusive_pod_cpus
from pinfold.core.policies.options import Options
from pinfold.core.policies.reserving import arrangement_of, reserve
from pinfold.core.policies.static import StaticPolicy
from pinfold.core.state import State
from pinfold.core.trace import Recorder
from pinfold.errors import AdmissionError
from pinfold.formats.kubelet.checkpoint import format_checkpoint, parse_checkpoint
from tests.property.strategies import (
    irregular_topologies,
    offline_topologies,
    pinned,
    pod_of,
    pods,
    regular_topologies,
    reserved_within,
    topologies,
    valid_options,
    whole_pods,
)

if TYPE_CHECKING:
    from pinfold.core.pods.pod import Container, Pod
    from pinfold.core.policies.base import Decision
    from pinfold.core.trace import Trace


def kept_apart(policy: StaticPolicy) -> CPUSet:
    return policy.reserved if policy.options.strict_cpu_reservation else EMPTY


def is_lasting(pod: Pod, container: Container) -> bool:
    return container not in pod.init or container.sidecar


def is_whole_cores(topology: Topology, cpus: CPUSet) -> bool:
    return topology.siblings(cpus) == cpus


@st.composite
def policies(draw: st.DrawFn, *, fidelity: Fidelity = Fidelity.PINFOLD) -> StaticPolicy:
    """Return the policy with any options that can be, on any machine, with any CPUs reserved."""
    topology = draw(topologies().filter(lambda machine: len(machine.cpus) > 1))
    options = draw(st.sampled_from(valid_options(topology)))
    machine = Machine(topology, fidelity)
    reserved = draw(reserved_within(topology))
    if draw(st.booleans()):
        reserved = reserve(machine, arrangement_of(options, machine), len(reserved))
    return StaticPolicy(machine, reserved, options, pod_level=draw(st.booleans()))


class NodeLife(RuleBasedStateMachine):
    """A node on which pods come and go, and whose manager restarts."""

    @initialize(policy=policies())
    def start(self, policy: StaticPolicy) -> None:
        self.policy = policy
        self.topology = policy.machine.topology
        self.first = self.state = policy.start(State.new())
        self.pods: dict[PodUID, Pod] = {}
        self.born = 0

    # What happens.

    @rule(data=st.data())
    def admit_container_by_container(self, data: st.DataObject) -> None:
        pod = data.draw(pods(self._next_uid()))
        self.pods[pod.uid] = pod
        for container in pod.all_containers:
            if not self._admit(pod, container, self._affinity(data)):
                break

    @rule(data=st.data())
    def admit_as_a_whole(self, data: st.DataObject) -> None:
        pod = data.draw(whole_pods(self._next_uid()))
        self.pods[pod.uid] = pod
        before, recorder = self.state, Recorder()
        try:
            decision = self.policy.admit_pod(self.state, pod, self._affinity(data), recorder)
        except AdmissionError as refusal:
            self._check_refusal(refusal, before, recorder.trace())
            return
        assert decision.refusal is None
        self._check_trace(recorder.trace())
        self.state = decision.state
        count = exclusive_pod_cpus(pod, pod_level=self.policy.pod_level)
        assert self.state.shared == before.shared - (decision.cpus or EMPTY)
        if not count:
            assert decision.state == before
            assert decision.cpus is None
            return
        assert decision.cpus == self.state.pods[pod.uid]
        assert len(self.state.pods[pod.uid]) == count
        self._check_parts(pod)
        assert self.policy.admit_pod(self.state, pod).state == self.state
        self._check_others_keep_theirs(before, pod.uid)

    @precondition(lambda self: self.state.assignments)
    @rule(data=st.data())
    def admit_again_what_runs(self, data: st.DataObject) -> None:
        pod = self.pods[data.draw(st.sampled_from(sorted(self.state.assignments)))]
        if pod.uid in self.state.pods:
            decision = self.policy.admit_pod(self.state, pod, self._affinity(data))
            assert decision.state == self.state
            assert decision.cpus == self.state.pods[pod.uid]
            return
        for container in pod.all_containers:
            held = self.state.cpus(pod.uid, container.name)
            if held is not None:
                decision = self.policy.admit(self.state, pod, container, self._affinity(data))
                assert decision.cpus == held
                assert decision.state.restarted() == self.state.restarted()
                self.state = decision.state

    @precondition(lambda self: self.state.assignments)
    @rule(data=st.data())
    def admit_a_pod_anew(self, data: st.DataObject) -> None:
        pod = self.pods[data.draw(st.sampled_from(sorted(self.state.assignments)))]
        for container in pod.all_containers if pod.uid not in self.state.pods else ():
            if self.state.cpus(pod.uid, container.name) is not None:
                self.state = self.policy.admit(self.state, pod, container).state
            elif not self._admit(pod, container, self._affinity(data)):
                break

    @precondition(lambda self: self.state.assignments)
    @rule(data=st.data())
    def release_a_container(self, data: st.DataObject) -> None:
        pod = data.draw(st.sampled_from(sorted(self.state.assignments)))
        self._release(ContainerRef(pod, data.draw(st.sampled_from(sorted(self.state.assignments[pod])))))

    @precondition(lambda self: self.state.assignments)
    @rule(data=st.data())
    def release_a_pod(self, data: st.DataObject) -> None:
        pod = data.draw(st.sampled_from(sorted(self.state.assignments)))
        for name in data.draw(st.permutations(sorted(self.state.assignments[pod]))):
            self._release(ContainerRef(pod, name))
        assert pod not in self.state.assignments
        assert pod not in self.state.pods

    @rule()
    def release_what_is_not_there(self) -> None:
        assert self.policy.release(self.state, ContainerRef(PodUID("nobody"), "app")).state == self.state

    @rule()
    def restart(self) -> None:
        found = self.state.restarted()
        gated = self.policy.pod_level
        file = format_checkpoint("static", found, pod_level=gated)
        assert parse_checkpoint(file, policy="static", pod_level=gated) == found
        self.state = self.policy.start(parse_checkpoint(file, policy="static", pod_level=gated))
        assert self.state == found

    # What always holds.

    @invariant()
    def state_is_sound(self) -> None:
        assert self.state.check(self.topology.online, kept_apart=kept_apart(self.policy)) == []

    @invariant()
    def reserved_cpus_are_never_exclusive(self) -> None:
        assert not self.state.exclusive & self.policy.reserved
        assert self.state.exclusive <= self.policy.allocatable

    @invariant()
    def containers_that_run_side_by_side_have_cpus_of_their_own(self) -> None:
        for uid, containers in self.state.assignments.items():
            pod = self.pods[uid]
            held = [
                containers[container.name].mask
                for container in pod.all_containers
                if container.name in containers
                and is_lasting(pod, container)
                and exclusive_cpus(pod, container, pod_level=self.policy.pod_level)
            ]
            assert sum(held).bit_count() == sum(mask.bit_count() for mask in held)

    @invariant()
    def full_pcpus_only_gives_whole_cores(self) -> None:
        policy = self.policy
        # The other half of a reserved core may be given near an affinity, as the reference does: see the tests below.
        if not policy.options.full_pcpus_only or (policy.machine.even and policy.reserved != policy.reserved_physical):
            return
        for uid, containers in self.state.assignments.items():
            for cpus in [self.state.pods[uid]] if uid in self.state.pods else containers.values():
                assert is_whole_cores(self.topology, cpus)

    def teardown(self) -> None:
        """Release everything: the first State comes back."""
        if not hasattr(self, "state"):
            return
        for pod, containers in self.state.assignments.items():
            for name in containers:
                self.state = self.policy.release(self.state, ContainerRef(pod, name)).state
        assert self.state.restarted() == self.first

    # How it is done.

    def _next_uid(self) -> str:
        self.born += 1
        return f"p{self.born}"

    def _affinity(self, data: st.DataObject) -> int | None:
        nodes = [node.id for node in self.topology.numa_nodes]
        masks = st.sets(st.sampled_from(nodes), min_size=1).map(lambda some: sum(1 << node for node in some))
        return data.draw(st.none() | masks)

    def _admit(self, pod: Pod, container: Container, affinity: int | None) -> bool:
        before, recorder = self.state, Recorder()
        count = self.policy.request(pod, container)
        try:
            decision = self.policy.admit(self.state, pod, container, affinity, recorder)
        except AdmissionError as refusal:
            assert count
            self._check_refusal(refusal, before, recorder.trace())
            return False
        assert self.policy.admit(self.state, pod, container, affinity) == decision, "recording changed the decision"
        self._check_trace(recorder.trace())
        taken = sum(step.took.mask for step in recorder.trace().steps)
        assert taken == (decision.cpus.mask if decision.cpus else 0)
        self._check_admitted(decision, before, pod, container)
        self.state = decision.state
        return True

    def _check_admitted(self, decision: Decision, before: State, pod: Pod, container: Container) -> None:
        count = self.policy.request(pod, container)
        if not count:
            assert decision.cpus is None
            assert decision.state == before
            return
        assert decision.cpus is not None
        assert len(decision.cpus) == count
        assert decision.cpus <= before.shared | before.reusable.get(pod.uid, EMPTY)
        assert decision.state.cpus(pod.uid, container.name) == decision.cpus
        assert decision.state.shared == before.shared - decision.cpus
        self.state = decision.state
        self._check_others_keep_theirs(before, pod.uid, container.name)

    def _check_others_keep_theirs(self, before: State, pod: PodUID, container: str | None = None) -> None:
        for uid, containers in before.assignments.items():
            for name, cpus in containers.items():
                if uid != pod or (container is not None and name != container):
                    assert self.state.cpus(uid, name) == cpus

    def _check_refusal(self, refusal: AdmissionError, before: State, trace: Trace) -> None:
        note(f"refused: {refusal}")
        assert self.state is before
        self._check_trace(trace)

    def _check_trace(self, trace: Trace) -> None:
        assert not trace.defects, "fidelity pinfold meets no defect"
        assert json.loads(json.dumps(trace.data()))["steps"] == [
            {"what": step.what, "took": str(step.took), "why": step.why} for step in trace.steps
        ]
        assert len(trace.text().splitlines()) == len(trace.steps)

    def _check_parts(self, pod: Pod) -> None:
        whole, parts = self.state.pods[pod.uid], self.state.assignments[pod.uid]
        assert set(parts) == {container.name for container in pod.all_containers}
        own = EMPTY
        for container in pod.all_containers:
            count = exclusive_cpus(pod, container, pod_level=True)
            assert parts[container.name], "a container of the pod would have no CPU"
            assert parts[container.name] <= whole
            if count:
                assert len(parts[container.name]) == count
                own |= parts[container.name] if is_lasting(pod, container) else EMPTY
        for container in pod.all_containers:
            if is_lasting(pod, container) and not exclusive_cpus(pod, container, pod_level=True):
                assert parts[container.name] == whole - own

    def _release(self, container: ContainerRef) -> None:
        before = self.state
        held = before.cpus(*container)
        decision = self.policy.release(before, container)
        assert decision.cpus == held
        self.state = decision.state
        assert self.state.cpus(*container) is None
        assert before.shared <= self.state.shared
        if container.pod not in before.pods:
            still_held = self.state.cpus_of_pod(container.pod)
            assert self.state.shared == before.shared | (held or EMPTY) - still_held
        self._check_others_keep_theirs(before, container.pod, container.name)


TestNodeLife = NodeLife.TestCase
TestNodeLife.settings = settings(stateful_step_count=15)


class Node:
    """A policy with its State; notes the reference's defects."""

    def __init__(self, policy: StaticPolicy) -> None:
        self.policy = policy
        self.state = policy.start(State.new())
        self.has_defect = False

    def admit(self, pod: Pod, affinity: int | None = None) -> str:
        """Admit *pod* and return what came of it, in words."""
        recorder = Recorder()
        try:
            if pod.resources is not None:
                decision = self.policy.admit_pod(self.state, pod, affinity, recorder)
                if decision.refusal is not None:
                    raise decision.refusal
                self.state = decision.state
            else:
                for container in pod.all_containers:
                    self.state = self.policy.admit(self.state, pod, container, affinity, recorder).state
        except AdmissionError as refusal:
            return f"{refusal.reason}: {refusal}"
        finally:
            self.has_defect |= bool(recorder.trace().defects)
        return "admitted"

    def release(self, pod: PodUID) -> None:
        for name in self.state.assignments.get(pod, ()):
            self.state = self.policy.release(self.state, ContainerRef(pod, name)).state


@given(policies(), st.data())
def test_both_fidelities_live_the_same_life_until_the_reference_has_a_defect(
    policy: StaticPolicy, data: st.DataObject
) -> None:
    exact = Machine(policy.machine.topology, Fidelity.KUBELET)
    sound, kubelet = (
        Node(StaticPolicy(machine, policy.reserved, policy.options, pod_level=policy.pod_level))
        for machine in (policy.machine, exact)
    )
    nodes = [node.id for node in policy.machine.topology.numa_nodes]
    masks = st.none() | st.sets(st.sampled_from(nodes), min_size=1).map(lambda some: sum(1 << node for node in some))
    for number in range(data.draw(st.integers(1, 6))):
        pod = data.draw(pods(f"p{number}") | whole_pods(f"p{number}"))
        affinity = data.draw(masks)
        said = kubelet.admit(pod, affinity)
        if kubelet.has_defect:
            return
        assert sound.admit(pod, affinity) == said
        if data.draw(st.booleans()):
            leaving = PodUID(f"p{data.draw(st.integers(0, number))}")
            kubelet.release(leaving)
            sound.release(leaving)
        assert sound.state == kubelet.state


@given(policies(), st.data())
def test_the_same_inputs_give_the_same_decision(policy: StaticPolicy, data: st.DataObject) -> None:
    twin = StaticPolicy(Machine(policy.machine.topology), policy.reserved, policy.options, pod_level=policy.pod_level)
    node, other = Node(policy), Node(twin)
    for number in range(3):
        pod = data.draw(pods(f"p{number}"))
        assert node.admit(pod) == other.admit(pod)
        assert node.state == other.state


# full-pcpus-only and partly reserved cores.


@given(
    regular_topologies().filter(lambda machine: len(machine.cores) > 1),
    st.sampled_from([Options(full_pcpus_only=True, prefer_align_cpus_by_uncorecache=by) for by in (False, True)]),
    st.lists(st.integers(1, 6), min_size=1, max_size=5),
    st.data(),
)
def test_full_pcpus_only_without_affinity_leaves_partly_reserved_cores_alone(
    topology: Topology, options: Options, requests: list[int], data: st.DataObject
) -> None:
    policy = StaticPolicy(Machine(topology), data.draw(reserved_within(topology)), options)
    node = Node(policy)
    for number, count in enumerate(requests):
        node.admit(pod_of(pinned(count), uid=f"p{number}"))
        assert is_whole_cores(topology, node.state.exclusive)
        assert not node.state.exclusive & policy.reserved_physical


@pytest.mark.parametrize("fidelity", Fidelity)
def test_full_pcpus_only_near_an_affinity_gives_the_other_halves_of_reserved_cores_as_the_reference_does(
    fidelity: Fidelity,
) -> None:
    topology = from_shape("sockets:2,cores:3,threads:2")
    node = Node(StaticPolicy(Machine(topology, fidelity), CPUSet.of(0, 1), Options(full_pcpus_only=True)))
    assert node.admit(pod_of(pinned(4)), affinity=0b01) == "admitted"
    assert str(node.state.exclusive) == "2,6-8"
    assert not node.has_defect


@given(
    (irregular_topologies() | offline_topologies()).filter(lambda machine: len(machine.cores) > 1),
    st.integers(1, 8),
    st.data(),
)
def test_on_unequal_cores_a_number_is_refused_exactly_where_no_free_whole_cores_make_it_up(
    topology: Topology, count: int, data: st.DataObject
) -> None:
    machine = Machine(topology)
    if machine.even:
        return
    policy = StaticPolicy(machine, data.draw(reserved_within(topology)), Options(full_pcpus_only=True))
    sizes = [len(core.cpus) for core in topology.cores if core.cpus.isdisjoint(policy.reserved)]
    reachable = {0}
    for size in sizes:
        reachable |= {total + size for total in reachable}
    assert (Node(policy).admit(pod_of(pinned(count))) == "admitted") == (count in reachable)


# Found by the laws above.


def test_a_sidecar_that_was_released_gets_no_cpus_of_the_pods_other_containers_when_it_comes_back() -> None:
    topology = from_shape("sockets:2,cores:4,threads:2")
    options = Options(distribute_cpus_across_numa=True)
    node = Node(StaticPolicy(Machine(topology), CPUSet.of(0), options))
    init = [pinned(3, "setup"), pinned(1, "proxy", sidecar=True)]
    pod = pod_of(pinned(1, "one"), pinned(2, "two"), init=init)
    node.admit(pod)
    node.state = node.policy.release(node.state, ContainerRef(pod.uid, "proxy")).state
    assert node.admit(pod) == "admitted"
    lasting = [node.state.cpus(pod.uid, name) or EMPTY for name in ("proxy", "one", "two")]
    assert len(lasting[0] | lasting[1] | lasting[2]) == 4


def test_a_trace_has_only_the_cpus_that_were_taken_in_the_end() -> None:
    rows = [(0, 0, 0, 0, 0), (1, 1, 0, 0, 0), (2, 2, 1, 1, 1), (3, 2, 1, 1, 1), (4, 4, 1, 1, 1), (5, 4, 1, 1, 1)]
    policy = StaticPolicy(Machine(Topology.from_rows(rows)), CPUSet.of(0), Options(full_pcpus_only=True))
    state = policy.start(State.new())
    pod = pod_of(pinned(4))
    recorder = Recorder()
    decision = policy.admit(state, pod, pod.containers[0], 0b01, recorder)
    assert str(decision.cpus) == "2-5"
    assert sum(step.took.mask for step in recorder.trace().steps) == 0b111100


@pytest.mark.parametrize(
    ("rows", "count"),
    [
        pytest.param(
            [(0, 0, 0, 0, 0), (4, 0, 0, 0, 0), (1, 1, 0, 0, 0), *[(c, c % 4, 1, 1, 1) for c in (2, 3, 6, 7)]],
            2,
            id="a server with one thread offline",
        ),
        pytest.param(
            [(0, 0, 0, 0, 0), *[(c, 1, 0, 0, 0) for c in (1, 2, 3)], *[(c, c // 2 * 2, 0, 0, 0) for c in range(4, 8)]],
            4,
            id="cores of three and of two",
        ),
    ],
)
def test_full_pcpus_only_finds_whole_cores_where_there_are_any(rows: list[tuple[int, ...]], count: int) -> None:
    topology = Topology.from_rows(rows)
    reserved = topology.siblings(CPUSet.of(0))
    policy = StaticPolicy(Machine(topology), reserved, Options(full_pcpus_only=True))
    pod = pod_of(pinned(count))
    cpus = policy.admit(policy.start(State.new()), pod, pod.containers[0]).cpus
    assert cpus is not None
    assert is_whole_cores(topology, cpus)


@pytest.mark.parametrize("fidelity", Fidelity)
@given(st.data())
def test_the_short_way_to_one_numa_node_takes_the_cpus_that_an_explained_decision_takes(
    fidelity: Fidelity, data: st.DataObject
) -> None:
    policy = data.draw(policies(fidelity=fidelity))
    machine = policy.machine
    available = data.draw(st.integers(0, machine.online)) & machine.online
    node = data.draw(st.sampled_from(machine.numa_nodes.places))
    count = data.draw(st.integers(1, max(available.bit_count(), 1)))

    def taken(recorder: Recorder | None) -> int | str:
        try:
            return policy._take_near(available, count, 1 << node.id, recorder)  # noqa: SLF001 - the two ways of it
        except AdmissionError as refusal:
            return str(refusal)

    assert taken(None) == taken(Recorder())
