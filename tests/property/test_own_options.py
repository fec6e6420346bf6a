"""Laws of pinfold's own options, with every set of the reference's: what they promise holds, and hints can be kept."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pinfold.core.admission import Admitter
from pinfold.core.allocators.order import Machine
from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.core.machine.presets import from_shape
from pinfold.core.moving.repacking import Consent, pinned_by
from pinfold.core.moving.resizing import NotResized
from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.core.policies.caches import UncoreAlignmentError
from pinfold.core.policies.options import OPTION_GATES, OPTIONS, OWN, REFERENCE, Options, Values, parse_options
from pinfold.core.policies.placing import IsolatedCPUsError, SMTIsolationError
from pinfold.core.policies.pools import EmptySharedPoolError, MinSharedCPUsError
from pinfold.core.policies.static import StaticPolicy
from pinfold.core.recover import carry_over
from pinfold.core.state import State
from pinfold.core.topologymanager.cpu import CPUHints
from pinfold.core.topologymanager.manager import TopologyManager
from pinfold.core.trace import Recorder
from pinfold.errors import AdmissionError, ConfigError
from tests.property.promises import broken_promises, can_be_given, fewest_caches
from tests.property.strategies import (
    irregular_topologies,
    offline_topologies,
    pinned,
    pod_of,
    pods,
    regular_topologies,
    valid_options,
    whole_pods,
)

if TYPE_CHECKING:
    from pinfold.core.machine.topology import Topology
    from pinfold.core.pods.pod import Container, Pod

OPEN: Final = {gate.name: True for gate in OPTION_GATES.values()} | {"PodLevelResourceManagers": True}
ASKABLE: Final = [name for name, option in OWN.items() if option.values is Values.PER_POD]


@st.composite
def own_policies(draw: st.DrawFn, most: int = 12, machines: st.SearchStrategy[Topology] | None = None) -> StaticPolicy:
    """The policy with own options and any of the reference's, on any machine, of which any CPUs are isolated."""
    every = st.one_of(regular_topologies(most), irregular_topologies(most), offline_topologies(most))
    topology = draw(every if machines is None else machines)
    online = list(topology.online)
    assume(len(online) > 1)
    topology = replace(topology, isolated=CPUSet.from_cpus(draw(st.sets(st.sampled_from(online)))))
    reference = draw(st.sampled_from(valid_options(topology)))
    given = {name: "true" for name, option in OPTIONS.items() if getattr(reference, option.field)}
    for name in draw(st.sets(st.sampled_from(ASKABLE), max_size=3)):
        given[name] = draw(st.sampled_from(["true", "per-pod"]))
    given["min-shared-cpus"] = str(draw(st.integers(0, 4)))
    reserved = CPUSet.from_cpus(draw(st.sets(st.sampled_from(online), min_size=1, max_size=2)))
    config = Config(draw(st.sampled_from(["static", "dynamic"])), given, Reservation.of(reserved), gates=OPEN)
    try:
        policy = config.build_policy(topology)
    except ConfigError:
        assume(condition=False)
        raise
    assert isinstance(policy, StaticPolicy)
    return policy


@st.composite
def asking(draw: st.DrawFn, pod: Pod) -> Pod:
    """The pod with annotations that ask for some options."""
    chosen = draw(st.sets(st.sampled_from(ASKABLE), max_size=2))
    return replace(pod, annotations={f"pinfold.dev/{name}": "true" for name in chosen})


class Node:
    """A policy with its State, checked at every step."""

    def __init__(self, policy: StaticPolicy) -> None:
        self.policy = policy
        self.topology = policy.machine.topology
        self.first = self.state = policy.start(State.new())
        self.options: dict[ContainerRef, Options] = {}

    def admit(self, pod: Pod, affinity: int | None = None) -> None:
        """Admit the pod, container by container or as a whole, until one is refused."""
        try:
            if pod.resources is not None:
                self._admit_whole(pod, affinity)
            else:
                for container in pod.all_containers:
                    self._admit(pod, container, affinity)
        except AdmissionError:
            pass
        self.check()

    def _admit(self, pod: Pod, container: Container, affinity: int | None) -> None:
        before, recorder = self.state, Recorder()
        decision = self.policy.admit(before, pod, container, affinity, recorder)
        assert self.policy.admit(before, pod, container, affinity) == decision, "recording changed the decision"
        if decision.cpus is None:
            return
        self.state = decision.state
        assert len(decision.cpus) == self.policy.request(pod, container)
        assert decision.cpus <= before.shared | before.reusable.get(pod.uid, EMPTY)
        assert sum(step.took.mask for step in recorder.trace().steps) == decision.cpus.mask
        self.check_options(pod, ContainerRef(pod.uid, container.name), decision.cpus, before, affinity)

    def _admit_whole(self, pod: Pod, affinity: int | None) -> None:
        before = self.state
        decision = self.policy.admit_pod(before, pod, affinity)
        self.state = decision.state
        if decision.cpus is not None:
            self.check_options(pod, ContainerRef(pod.uid, ""), decision.cpus, before, affinity)

    def check_options(self, pod: Pod, ref: ContainerRef, cpus: CPUSet, before: State, affinity: int | None) -> None:
        """Check that CPUs that were just given keep what the options promise."""
        options = self.options[ref] = self.policy.options.for_pod(pod.annotations)
        isolated = self.topology.isolated
        reusable = before.reusable.get(pod.uid, EMPTY)
        if options.require_isolated_cpus:
            assert cpus <= isolated
        elif not options.prefer_isolated_cpus and self.policy.pools.isolated:
            assert not cpus & isolated
        if options.full_pcpus_only and not options.isolate_smt_siblings and self.policy.options.offers(*OWN):
            assert self.topology.siblings(cpus) == cpus
        if options.require_align_cpus_by_uncorecache:
            room = can_be_given(self.policy, options, self.topology.online)
            used = [cache for cache in self.topology.uncore_caches if cache.cpus & cpus]
            assert len(used) <= fewest_caches(self.topology, room, len(cpus))
        pool, left = self.policy.pools.shared(before), self.policy.pools.shared(self.state)
        assert left == pool or len(left) >= options.min_shared_cpus
        by_place = options.require_align_cpus_by_uncorecache or affinity is not None or reusable
        if options.prefer_isolated_cpus and not by_place:
            enough = len(can_be_given(self.policy, options, before.shared & isolated)) >= len(cpus)
            assert cpus <= isolated or not enough

    def release(self, ref: ContainerRef) -> None:
        """Take the CPUs of a container back."""
        self.state = self.policy.release(self.state, ref).state
        self.options.pop(ref, None)
        self.check()

    def check(self) -> None:
        """Check what holds in every State."""
        pools, state = self.policy.pools, self.state
        idle = pools.idle(state)
        assert state.check(self.topology.online, kept_apart=self.policy.kept_apart, idle=idle) == []
        assert pools.shared(state)
        assert not pools.shared(state) & pools.isolated
        assert not state.exclusive & self.policy.reserved
        assert not idle & (state.exclusive | state.shared)
        assert self.policy.start(state.restarted()) == state.restarted()
        kept = self.policy.keep(state.restarted())
        assert (kept.state, kept.lost) == (state.restarted(), {})
        for ref, options in self.options.items():
            cpus = state.cpus(*ref) if ref.name else state.pods.get(ref.pod)
            if options.isolate_smt_siblings and cpus is not None:
                assert len({core.id for core in self.topology.cores if core.cpus & cpus}) == len(cpus)
                assert self.topology.siblings(cpus) - cpus <= idle


@given(own_policies(), st.data())
def test_every_promise_holds_while_pods_come_and_go(policy: StaticPolicy, data: st.DataObject) -> None:
    node = Node(policy)
    nodes = [place.id for place in node.topology.numa_nodes]
    masks = st.none() | st.sets(st.sampled_from(nodes), min_size=1).map(
        lambda some: sum(1 << number for number in some)
    )
    for number in range(data.draw(st.integers(1, 6))):
        pod = data.draw(pods(f"p{number}") | whole_pods(f"p{number}"))
        node.admit(data.draw(asking(pod)), data.draw(masks))
        held = [ref for ref, _ in node.state.flat()]
        leaves = data.draw(st.booleans())
        if held and leaves:
            node.release(data.draw(st.sampled_from(held)))
    for ref, _ in list(node.state.flat()):
        node.release(ref)
    assert node.state.restarted() == node.first


@given(regular_topologies(12).filter(lambda machine: len(machine.cpus) > 1), st.data())
def test_any_options_can_follow_any_others_and_running_containers_keep_their_cpus_where_possible(
    topology: Topology, data: st.DataObject
) -> None:
    before = Node(data.draw(own_policies(machines=st.just(topology))))
    every = [data.draw(asking(pod_of(pinned(data.draw(st.integers(1, 3))), uid=f"p{n}"))) for n in range(4)]
    for pod in every:
        before.admit(pod)
    policy = data.draw(own_policies(machines=st.just(topology)))
    after = Node(policy)
    admitter = Admitter(policy, TopologyManager.for_machine("none", {}, topology))
    recovered = carry_over(admitter, before.state.restarted(), {pod.uid: pod for pod in every})
    after.state = recovered.state
    after.check()
    for ref, cpus in before.state.flat():
        assert after.state.cpus(*ref) == cpus or ref in recovered.lost or ref in recovered.changed


@st.composite
def fragmented_nodes(draw: st.DrawFn) -> Node:
    """Nodes with several uncore caches, of which another pod has any CPUs."""
    shapes = [
        "sockets:1,l3:3,cores:4,threads:1",
        "sockets:2,l3:3,cores:3,threads:1",
        "sockets:2,l3:2,cores:2,threads:2",
    ]
    node = Node(draw(own_policies(10) | own_policies(machines=st.sampled_from(shapes).map(from_shape))))
    free = sorted(node.policy.pools.shared(node.state) - node.policy.reserved)[1:]
    others = CPUSet.from_cpus(draw(st.sets(st.sampled_from(free)))) if free else EMPTY
    node.state = State(node.state.shared - others, {PodUID("other"): {"app": others}})
    return node


def is_possible(policy: StaticPolicy, options: Options, free: CPUSet, count: int) -> bool:
    """Whether *count* of the free CPUs can be given, found by trying all sets of caches."""
    usable = can_be_given(policy, options, free)
    if not options.require_align_cpus_by_uncorecache:
        return len(usable) >= count
    topology = policy.machine.topology
    room = can_be_given(policy, options, topology.online)
    chosen = combinations(
        [cache.cpus & usable for cache in topology.uncore_caches], fewest_caches(topology, room, count)
    )
    return any(sum(map(len, some)) >= count for some in chosen)


@given(fragmented_nodes(), st.integers(1, 7), st.data())
def test_hints_are_exactly_the_numa_nodes_on_which_the_request_fits(
    node: Node, count: int, data: st.DataObject
) -> None:
    policy, state = node.policy, node.state
    pod = data.draw(asking(pod_of(pinned(count), uid="new")))
    options = policy.options.for_pod(pod.annotations)
    machine = policy.machine
    whole = options.full_pcpus_only and not options.isolate_smt_siblings
    assume(policy.options.offers(*OWN) and not (whole and (count % machine.cpus_per_core or not machine.even)))
    hints = policy.hints(state, pod, pod.containers[0])
    assert hints is not None
    assert not isinstance(hints, CPUHints) or hints.listable
    given = {hint.affinity for hint in hints}
    scarce = _is_scarce(node, options, count)
    for size in range(1, len(node.topology.numa_nodes) + 1):
        for some in combinations(node.topology.numa_nodes, size):
            mask = sum(1 << place.id for place in some)
            free = state.shared & CPUSet(sum(place.mask for place in some))
            fits = is_possible(policy, options, free & node.topology.isolated if scarce else free, count)
            assert (mask in given) == fits
            if fits:
                _check_it_can_be_kept(node, pod, mask)


def _is_scarce(node: Node, options: Options, count: int) -> bool:
    """Whether the shared pool cannot give the CPUs, and isolated ones can."""
    size = node.topology.threads_per_core if options.isolate_smt_siblings else 1
    most = len(node.policy.pools.shared(node.state)) - max(1, options.min_shared_cpus)
    isolated = can_be_given(node.policy, options, node.state.shared & node.topology.isolated)
    return bool(node.policy.pools.isolated) and count * size > most and len(isolated) >= count


def _check_it_can_be_kept(node: Node, pod: Pod, mask: int) -> None:
    try:
        decision = node.policy.admit(node.state, pod, pod.containers[0], mask)
    except (EmptySharedPoolError, MinSharedCPUsError):
        return  # A number, not a place: hints do not know it.
    assert decision.cpus is not None
    assert not decision.cpus.mask & ~node.policy.near(mask)
    after = Node(node.policy)
    after.state = decision.state
    after.check_options(pod, pod.ref(pod.containers[0]), decision.cpus, node.state, mask)


@given(fragmented_nodes(), st.integers(1, 7), st.data())
def test_what_is_refused_does_not_fit(node: Node, count: int, data: st.DataObject) -> None:
    policy, state = node.policy, node.state
    pod = data.draw(asking(pod_of(pinned(count), uid="new")))
    options = policy.options.for_pod(pod.annotations)
    try:
        policy.admit(state, pod, pod.containers[0])
    except (UncoreAlignmentError, IsolatedCPUsError, SMTIsolationError) as refusal:
        free = state.shared & node.topology.isolated if _is_scarce(node, options, count) else state.shared
        assert not is_possible(policy, options, free, count)
        nearest = getattr(refusal, "nearest", None)
        if nearest is not None:
            assert is_possible(policy, options, free, nearest)
    except AdmissionError:
        pass


@given(
    st.sampled_from(["sockets:1,l3:2,cores:3", "sockets:2,numa:2,cores:2", "sockets:2,l3:2,cores:2"]),
    st.sampled_from([options for options in valid_options() if not options.full_pcpus_only]),
    st.lists(st.integers(1, 4), min_size=1, max_size=6),
    st.none() | st.sampled_from([0b01, 0b10]),
)
def test_isolate_smt_siblings_gives_the_cpus_of_the_same_machine_without_smt(
    shape: str, options: Options, requests: list[int], affinity: int | None
) -> None:
    with_smt, without = from_shape(f"{shape},threads:2"), from_shape(f"{shape},threads:1")
    reserved = CPUSet.of(0)
    isolating = StaticPolicy(
        Machine(with_smt), with_smt.siblings(reserved), options._replace(isolate_smt_siblings=True)
    )
    plain = StaticPolicy(Machine(without), reserved, options)
    one, other = isolating.start(State.new()), plain.start(State.new())
    for number, count in enumerate(requests):
        pod = pod_of(pinned(count), uid=f"p{number}")
        try:
            decision = plain.admit(other, pod, pod.containers[0], affinity)
        except AdmissionError:
            return
        emulated = isolating.admit(one, pod, pod.containers[0], affinity)
        assert emulated.cpus == decision.cpus
        one, other = emulated.state, decision.state


@pytest.mark.parametrize("own", [some for size in (1, 2) for some in combinations(OWN, size)], ids=" and ".join)
def test_every_combination_with_the_references_options_is_correct_or_refused_with_a_reason(
    own: tuple[str, ...],
) -> None:
    topology = replace(from_shape("sockets:2,l3:2,cores:3,threads:2"), isolated=CPUSet.parse("3-11,15-23"))
    for size in range(len(REFERENCE) + 1):
        for some in combinations(REFERENCE, size):
            given = dict.fromkeys((*some, *own), "1")
            problems = parse_options(given, OPEN)[1]
            assert all(problem.advice for problem in problems)
            if not problems:
                _check_a_few_pods(Config("dynamic", given, Reservation.of(CPUSet.of(0, 12)), gates=OPEN), topology)


def _check_a_few_pods(config: Config, topology: Topology) -> None:
    policy = config.build_policy(topology)
    assert isinstance(policy, StaticPolicy)
    node = Node(policy)
    for number, count in enumerate((1, 4, 2, 3, 6, 2)):
        node.admit(pod_of(pinned(count), uid=f"p{number}"), number % 3 or None)
    assert node.state.assignments
    _check_sizes_and_moves(node)


def _check_sizes_and_moves(node: Node) -> None:
    """Check that running containers grow, shrink and move, or not with a reason, and what holds then."""
    policy = node.policy
    admitter = Admitter(policy, TopologyManager.for_machine("none", {}, node.topology))
    assert policy.repacking is not None
    for number, (ref, _) in enumerate(list(node.state.flat())):
        for count in (number % 4 + 2, 2, number % 3 + 1):
            with suppress(NotResized):  # with a reason, and nothing has changed
                node.state = admitter.resize(node.state, ref, count).state
            node.check()
            assert broken_promises(policy, node.state, ref, node.options[ref]) == []
    node.release(next(node.state.flat())[0])
    plan = policy.repacking.plan(node.state, dict.fromkeys(node.options, Consent(memory_follows=True)), 4)
    assert not plan.moves or not pinned_by(policy.options)
    for move in plan.moves:
        node.state = policy.repacking.moved(node.state, move)
        node.check()
        assert broken_promises(policy, node.state, move.container, node.options[move.container]) == []
