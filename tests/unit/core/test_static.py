from __future__ import annotations

import pytest

from pinfold.core.allocators.order import Arrangement, Fidelity, Machine
from pinfold.core.allocators.packed import NotEnoughCPUs
from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.core.machine.presets import preset
from pinfold.core.machine.topology import Topology
from pinfold.core.pods.pod import Container, ContainerRef, Pod, PodUID, Resources
from pinfold.core.policies.none import NonePolicy
from pinfold.core.policies.options import DEFAULT, Options
from pinfold.core.policies.podlevel import EmptyPodSharedPoolError
from pinfold.core.policies.pools import EmptySharedPoolError
from pinfold.core.policies.reserving import arrangement_of, reserve
from pinfold.core.policies.static import StaticPolicy
from pinfold.core.policies.wholecores import SMTAlignmentError, UnequalCoresError
from pinfold.core.state import State
from pinfold.core.topologymanager.hint import Hint
from pinfold.core.trace import Defect, Recorder
from pinfold.core.validation import EmptySharedPool
from pinfold.errors import AdmissionError, ConfigError
from tests.property.strategies import guaranteed, pinned, pod_of

DESKTOP = preset("sockets:1,cores:4,threads:2")  # siblings: 0,4 … 3,7
SERVER = preset("sockets:2,numa:2,cores:2,threads:1")  # NUMA nodes 0-1, 2-3 on socket 0; 4-5, 6-7 on socket 1
HYBRID = preset("i7-12850hx")  # 0-15: cores of two; 16-23: cores of one
SMT = Options(full_pcpus_only=True)
STRICT = Options(strict_cpu_reservation=True)
P1 = PodUID("p1")


class Node:
    """A policy and its State."""

    def __init__(
        self,
        topology: Topology = DESKTOP,
        options: Options = DEFAULT,
        reserved: str = "0",
        fidelity: Fidelity = Fidelity.PINFOLD,
    ) -> None:
        machine = Machine(topology, fidelity)
        self.policy = StaticPolicy(machine, CPUSet.parse(reserved), options, pod_level=True)
        self.state = self.policy.start(State.new())

    def admit(self, pod: Pod, affinity: int | None = None) -> dict[str, str]:
        for container in pod.all_containers:
            self.state = self.policy.admit(self.state, pod, container, affinity).state
        return self.held(pod.uid)

    def admit_whole(self, pod: Pod) -> dict[str, str]:
        self.state = self.policy.admit_pod(self.state, pod).state
        return self.held(pod.uid)

    def held(self, pod: PodUID = P1) -> dict[str, str]:
        return {name: str(cpus) for name, cpus in self.state.assignments.get(pod, {}).items()}

    def release(self, name: str, pod: PodUID = P1) -> None:
        self.state = self.policy.release(self.state, ContainerRef(pod, name)).state

    def reusable(self, pod: PodUID = P1) -> str:
        return str(self.state.reusable.get(pod, EMPTY))


class TestRefusals:
    def test_too_few_cpus_say_how_many_are_free_and_are_unexpected_as_in_the_kubelet(self) -> None:
        with pytest.raises(NotEnoughCPUs) as refusal:
            Node().admit(pod_of(pinned(8)))
        assert str(refusal.value) == "not enough cpus available to satisfy request: requested=8, available=7"
        assert refusal.value.reason == "UnexpectedAdmissionError"
        assert refusal.value.message == f"Allocate failed due to {refusal.value}, which is unexpected"
        assert (refusal.value.wanted, refusal.value.free) == (8, 7)

    def test_split_cores_come_before_too_few_of_them(self) -> None:
        with pytest.raises(SMTAlignmentError, match=r"requested 9 cpus not multiple cpus per core = 2$"):
            Node(options=SMT).admit(pod_of(pinned(9)))

    def test_too_few_whole_cores_leave_out_those_with_a_reserved_cpu(self) -> None:
        with pytest.raises(SMTAlignmentError) as refusal:
            Node(options=SMT).admit(pod_of(pinned(8)))
        assert str(refusal.value) == (
            "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 6, requested CPUs = 8, "
            "CPUs per core = 2"
        )
        assert refusal.value.message == str(refusal.value)
        assert (refusal.value.wanted, refusal.value.per_core, refusal.value.free) == (8, 2, 6)

    def test_without_smt_whole_cores_take_the_place_of_too_few_cpus(self) -> None:
        with pytest.raises(
            SMTAlignmentError, match="available physical CPUs = 7, requested CPUs = 8, CPUs per core = 1"
        ):
            Node(SERVER, SMT).admit(pod_of(pinned(8)))

    def test_numbers_that_unequal_cores_cannot_make_up_are_told_apart(self) -> None:
        cores = Topology.from_rows([(0, 0, 0, 0, 0), *[(c, (c - 1) // 2 * 2 + 1, 0, 0, 0) for c in range(1, 7)]])
        with pytest.raises(UnequalCoresError) as refusal:
            Node(cores, SMT).admit(pod_of(pinned(3)))
        assert refusal.value.reason == "SMTAlignmentError"
        assert str(refusal.value) == (
            "SMT Alignment Error: requested 3 cpus cannot be made up of whole cores with 2 CPUs each"
        )
        assert (refusal.value.wanted, refusal.value.sizes) == (3, frozenset({2}))

    @pytest.mark.parametrize("count", [1, 2, 3, 7])
    def test_unequal_cores_make_up_odd_numbers_with_small_ones(self, count: int) -> None:
        node = Node(HYBRID, SMT)
        node.admit(pod_of(pinned(count)))
        cpus = node.state.exclusive
        assert len(cpus) == count
        assert HYBRID.siblings(cpus) == cpus

    def test_an_assigned_container_is_admitted_again_before_any_check(self) -> None:
        node = Node(options=SMT)
        node.admit(pod_of(pinned(6)))
        assert node.admit(pod_of(pinned(6))) == {"app": "1-3,5-7"}

    def test_a_refusal_changes_nothing(self) -> None:
        node = Node()
        before = node.state
        with pytest.raises(NotEnoughCPUs):
            node.admit(pod_of(pinned(8)))
        assert node.state is before

    def test_containers_before_the_refused_one_keep_theirs(self) -> None:
        node = Node()
        with pytest.raises(NotEnoughCPUs):
            node.admit(pod_of(pinned(4, "one"), pinned(4, "two")))
        assert node.held() == {"one": "1-2,5-6"}


class TestEmptySharedPool:
    def test_the_last_shared_cpu_is_not_given(self) -> None:
        node = Node(options=STRICT, reserved="0,4")
        with pytest.raises(EmptySharedPoolError) as refusal:
            node.admit(pod_of(pinned(6)))
        assert refusal.value.reason == "EmptySharedPoolError"
        assert str(refusal.value) == (
            "6 CPUs would empty the shared pool (CPUs 1-3,5-7): with strict-cpu-reservation the reserved CPUs are not "
            "part of it, and containers without exclusive CPUs would have nowhere to run"
        )
        assert (refusal.value.wanted, str(refusal.value.shared)) == (6, "1-3,5-7")
        node.admit(pod_of(pinned(5)))
        assert str(node.state.shared) == "7"

    def test_without_strict_reservation_the_reserved_cpus_are_always_left(self) -> None:
        node = Node(reserved="0,4")
        node.admit(pod_of(pinned(6)))
        assert str(node.state.shared) == "0,4"

    def test_the_kubelet_gives_it_reports_a_defect_and_does_not_start_again(self) -> None:
        node = Node(options=STRICT, reserved="0,4", fidelity=Fidelity.KUBELET)
        pod = pod_of(pinned(6))
        recorder = Recorder()
        decision = node.policy.admit(node.state, pod, pod.containers[0], recorder=recorder)
        assert decision.state.shared == EMPTY
        assert [defect for defect, _ in recorder.trace().defects] == [Defect.EMPTY_SHARED_POOL]
        with pytest.raises(EmptySharedPool) as error:
            node.policy.start(decision.state.restarted())
        assert error.value.reference == "default cpuset cannot be empty"


class TestReservation:
    def test_a_count_is_chosen_as_a_containers_cpus_would_be(self) -> None:
        assert str(reserve(Machine(DESKTOP), Arrangement(), 2)) == "0,4"
        assert str(reserve(Machine(DESKTOP), Arrangement(spread=True), 2)) == "0-1"
        assert str(reserve(Machine(SERVER), Arrangement(group=1), 3)) == "0-2"

    def test_listed_cpus_are_taken_as_they_are(self) -> None:
        assert str(reserve(Machine(DESKTOP), Arrangement(), 2, CPUSet.of(3, 5))) == "3,5"

    @pytest.mark.parametrize(
        ("count", "cpus", "said"),
        [
            pytest.param(3, "0-1", "(size of 0-1 did not equal 3)", id="list of another size"),
            pytest.param(9, None, "(size of  did not equal 9)", id="more than there are"),
            pytest.param(2, "0,8", "unknown CPU ID: 8", id="not of this machine"),
        ],
    )
    def test_a_reservation_that_cannot_be_is_refused(self, count: int, cpus: str | None, said: str) -> None:
        listed = None if cpus is None else CPUSet.parse(cpus)
        with pytest.raises(ConfigError) as error:
            reserve(Machine(DESKTOP), Arrangement(), count, listed)
        assert said in error.value.problems[0].said

    def test_siblings_of_reserved_cpus_can_be_given_but_are_no_whole_core(self) -> None:
        policy = Node().policy
        assert str(policy.reserved_physical) == "0,4"
        assert str(policy.allocatable) == "1-7"


class TestArrangement:
    @pytest.mark.parametrize(
        ("options", "arrangement"),
        [
            (DEFAULT, Arrangement()),
            (SMT, Arrangement()),
            (Options(distribute_cpus_across_cores=True), Arrangement(spread=True)),
            (Options(prefer_align_cpus_by_uncorecache=True), Arrangement(uncore=True)),
            (Options(distribute_cpus_across_numa=True), Arrangement(group=1)),
            (Options(distribute_cpus_across_numa=True, full_pcpus_only=True), Arrangement(group=2)),
            (Options(align_by_socket=True), Arrangement(align_by_socket=True)),
        ],
    )
    def test_options_say_how_cpus_are_to_lie(self, options: Options, arrangement: Arrangement) -> None:
        assert arrangement_of(options, Machine(DESKTOP)) == arrangement


class TestAffinity:
    def test_cpus_come_from_the_affinity_first_and_the_rest_from_anywhere(self) -> None:
        assert Node(SERVER).admit(pod_of(pinned(2)), affinity=0b1000) == {"app": "6-7"}
        assert Node(SERVER).admit(pod_of(pinned(3)), affinity=0b1000) == {"app": "4,6-7"}

    def test_align_by_socket_widens_the_affinity_to_whole_sockets(self) -> None:
        options = Options(align_by_socket=True)
        assert Node(SERVER, options).admit(pod_of(pinned(4)), affinity=0b1000) == {"app": "4-7"}

    def test_an_affinity_to_nodes_without_free_cpus_is_no_obstacle(self) -> None:
        node = Node(SERVER)
        node.admit(pod_of(pinned(2), uid="before"), affinity=0b1000)
        assert node.admit(pod_of(pinned(2)), affinity=0b1000) == {"app": "4-5"}

    def test_a_container_that_shares_has_no_hints(self) -> None:
        node = Node(SERVER)
        pod = Pod(P1, "p1", containers=(Container("app"),))
        assert node.policy.hints(node.state, pod, pod.containers[0]) is None
        assert node.policy.pod_hints(node.state, pod) is None

    def test_hints_are_the_nodes_with_enough_free_cpus(self) -> None:
        node = Node(SERVER)
        pod = pod_of(pinned(2))
        hints = node.policy.hints(node.state, pod, pod.containers[0])
        assert hints is not None
        assert [hint for hint in hints if hint.preferred] == [Hint.of(1), Hint.of(2), Hint.of(3)]

    def test_hints_of_an_assigned_container_lead_back_to_its_cpus(self) -> None:
        node = Node(SERVER)
        pod = pod_of(pinned(2))
        node.admit(pod, affinity=0b0100)
        for hints in (node.policy.hints(node.state, pod, pod.containers[0]), node.policy.pod_hints(node.state, pod)):
            assert hints is not None
            assert [hint for hint in hints if hint.preferred] == [Hint.of(2)]

    def test_a_container_that_has_another_number_of_cpus_than_it_asks_for_cannot_be_satisfied(self) -> None:
        node = Node(SERVER)
        node.admit(pod_of(pinned(2)))
        grown = pod_of(pinned(3))
        for hints in (
            node.policy.hints(node.state, grown, grown.containers[0]),
            node.policy.pod_hints(node.state, grown),
        ):
            assert hints is not None
            assert list(hints) == []


class TestReuse:
    POD = pod_of(pinned(2, "app"), init=[pinned(4, "setup")])

    def test_what_an_init_container_had_is_used_again_and_the_rest_is_remembered(self) -> None:
        node = Node()
        assert node.admit(self.POD) == {"setup": "1-2,5-6", "app": "1,5"}
        assert node.reusable() == "2,6"

    def test_removal_frees_what_no_other_container_of_the_pod_holds(self) -> None:
        node = Node()
        node.admit(self.POD)
        node.release("setup")
        assert str(node.state.shared) == "0,2-4,6-7"
        assert node.reusable() == "2,6"

    def test_another_pods_cpus_end_the_reuse(self) -> None:
        node = Node()
        node.admit(self.POD)
        node.admit(pod_of(pinned(1), uid="other"))
        assert node.reusable() == ""

    def test_pods_without_cpus_of_their_own_do_not_end_it(self) -> None:
        node = Node()
        node.admit(self.POD)
        node.admit(Pod(PodUID("shared"), "shared", containers=(Container("app"),)))
        assert node.reusable() == "2,6"

    def test_after_a_restart_the_init_containers_cpus_are_found_again(self) -> None:
        node = Node()
        node.admit(self.POD)
        node.state = node.policy.start(node.state.restarted())
        assert node.reusable() == ""
        node.admit(self.POD)
        assert node.reusable() == "2,6"


class TestRelease:
    def test_releasing_twice_or_an_unknown_container_changes_nothing(self) -> None:
        node = Node()
        node.admit(pod_of(pinned(2)))
        node.release("app")
        after = node.state
        node.release("app")
        node.release("app", PodUID("nobody"))
        assert node.state is after

    def test_the_decision_says_which_cpus_came_back(self) -> None:
        node = Node()
        node.admit(pod_of(pinned(2)))
        assert str(node.policy.release(node.state, ContainerRef(P1, "app")).cpus) == "1,5"


def whole(cpus: int, *containers: Container, init: tuple[Container, ...] = ()) -> Pod:
    return Pod(P1, "p1", init=init, containers=containers, resources=guaranteed(1000 * cpus))


def sharing(name: str, *, sidecar: bool = False) -> Container:
    return Container(name, Resources(), sidecar)


class TestPodLevel:
    def test_a_pods_cpus_are_divided_up(self) -> None:
        node = Node()
        init = (pinned(2, "proxy", sidecar=True), pinned(4, "setup"), sharing("check"))
        pod = whole(6, pinned(2, "app"), sharing("log"), sharing("metrics"), init=init)
        assert node.admit_whole(pod) == {
            "proxy": "1,5",
            "setup": "2-3,6-7",
            "check": "2-3,6-7",
            "app": "2,6",
            "log": "3,7",
            "metrics": "3,7",
        }
        assert str(node.state.pods[P1]) == "1-3,5-7"
        assert node.state.check(DESKTOP.online) == []

    def test_the_cpus_come_back_with_the_last_container(self) -> None:
        node = Node()
        node.admit_whole(whole(4, pinned(2, "one"), pinned(2, "two")))
        node.release("one")
        assert str(node.state.shared) == "0,3-4,7"
        node.release("two")
        assert node.state == State(DESKTOP.online)

    def test_containers_that_share_must_have_something_to_share(self) -> None:
        with pytest.raises(EmptyPodSharedPoolError) as refusal:
            Node().admit_whole(whole(2, pinned(2, "app"), sharing("log")))
        assert refusal.value.reason == "EmptyPodSharedPoolError"
        assert refusal.value.message == (
            "pod rejected, sum of exclusive container cpu requests equals pod budget, leaving no cpus for shared "
            "containers"
        )

    def test_init_containers_that_share_must_have_something_to_share(self) -> None:
        init = (pinned(2, "proxy", sidecar=True), sharing("check"))
        with pytest.raises(EmptyPodSharedPoolError) as refusal:
            Node().admit_whole(whole(2, pinned(1, "app"), init=init))
        assert str(refusal.value) == "pod rejected, pod has shared init containers but no cpus available for them"

    def test_a_refused_pod_keeps_nothing(self) -> None:
        node = Node()
        recorder = Recorder()
        with pytest.raises(NotEnoughCPUs):
            node.policy.admit_pod(node.state, whole(2, pinned(1, "one"), pinned(2, "two")), recorder=recorder)
        assert recorder.trace().defects == ()

    def test_the_kubelet_leaves_the_cpus_with_a_refused_pod(self) -> None:
        node = Node(fidelity=Fidelity.KUBELET)
        recorder = Recorder()
        pod = whole(2, pinned(1, "one"), pinned(2, "two"))
        decision = node.policy.admit_pod(node.state, pod, recorder=recorder)
        assert isinstance(decision.refusal, NotEnoughCPUs)
        assert str(decision.state.pods[P1]) == "1,5"
        assert [defect for defect, _ in recorder.trace().defects] == [Defect.REFUSED_POD_KEEPS_CPUS]

    @pytest.mark.parametrize(
        ("fidelity", "defects"),
        [(Fidelity.PINFOLD, []), (Fidelity.KUBELET, [Defect.POD_NOT_RESTARTABLE])],
    )
    def test_a_pod_is_recognised_after_a_restart_which_the_kubelet_does_not(
        self, fidelity: Fidelity, defects: list[Defect]
    ) -> None:
        node = Node(fidelity=fidelity)
        pod = whole(4, pinned(2, "app"), sharing("log"))
        node.admit_whole(pod)
        state = node.policy.start(node.state.restarted())
        recorder = Recorder()
        decision = node.policy.admit_pod(state, pod, recorder=recorder)
        assert decision.state == state
        assert [defect for defect, _ in recorder.trace().defects] == defects

    def test_full_pcpus_only_holds_for_the_pod_as_a_whole(self) -> None:
        with pytest.raises(SMTAlignmentError):
            Node(options=SMT).admit_whole(whole(3, sharing("app")))
        assert Node(options=SMT).admit_whole(whole(4, pinned(1, "app"), sharing("log")))["app"] == "1"

    def test_a_pod_of_no_whole_number_of_cpus_shares(self) -> None:
        node = Node()
        pod = Pod(P1, "p1", containers=(sharing("app"),), resources=guaranteed(1500))
        assert node.admit_whole(pod) == {}


class TestNone:
    def test_no_container_gets_cpus_and_nothing_is_kept(self) -> None:
        policy = NonePolicy()
        pod = pod_of(pinned(2))
        state = policy.start(State.new())
        assert policy.admit(state, pod, pod.containers[0], 0b1).state == state
        assert policy.admit_pod(state, pod).state == state
        assert policy.release(state, ContainerRef(P1, "app")).state == state
        assert policy.hints(state, pod, pod.containers[0]) is None
        assert policy.pod_hints(state, pod) is None


def test_an_admission_error_of_no_special_reason_is_unexpected() -> None:
    assert AdmissionError("no").message == "Allocate failed due to no, which is unexpected"
