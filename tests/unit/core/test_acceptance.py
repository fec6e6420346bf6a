"""What the reference's node e2e suite accepts, as far as decisions go: one named test for each line of it.

A container without CPUs of its own runs on the shared pool; so "sees" means `state.shared`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.core.machine.presets import preset
from pinfold.core.pods.pod import Amounts, Container, ContainerRef, Pod, PodUID, Resources
from pinfold.core.policies.static import StaticPolicy
from pinfold.core.policies.wholecores import SMTAlignmentError
from pinfold.core.state import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pinfold.core.machine.topology import Topology
    from pinfold.errors import AdmissionError

GIB = 1 << 30
GATES = {"CPUManagerPolicyAlphaOptions": True}
SMT, STRICT, UNCORE = "full-pcpus-only", "strict-cpu-reservation", "prefer-align-cpus-by-uncorecache"
NUMA, SOCKET = "distribute-cpus-across-numa", "align-by-socket"

DESKTOP = "sockets:1,cores:8,threads:2"  # siblings: 0,8 … 7,15
NO_SMT = "sockets:1,cores:8,threads:1"
CACHES = "sockets:1,l3:4,cores:4,threads:2"  # 32 CPUs; caches of 8: 0-3,16-19 … 12-15,28-31
SERVER = "sockets:2,numa:2,cores:4,threads:2"  # 32 CPUs; NUMA nodes of 8: 0-3,16-19 … 12-15,28-31


class Node:
    """A node under the static policy, asked as the e2e suite asks a kubelet."""

    def __init__(
        self, machine: str, *options: str, reserved: str | int = "0", topology: str = "none", pod_level: bool = False
    ) -> None:
        cpus = CPUSet.parse(reserved) if isinstance(reserved, str) else None
        reservation = Reservation(reserved) if isinstance(reserved, int) else Reservation.of(cpus or EMPTY)
        self.topology: Topology = preset(machine)
        self.admitter = Config(
            "static",
            dict.fromkeys(options, "true"),
            reservation,
            topology,
            gates=GATES | {"PodLevelResourceManagers": pod_level},
        ).build(self.topology)
        assert isinstance(self.admitter.policy, StaticPolicy)
        self.policy = self.admitter.policy
        self.kept_apart = self.policy.reserved if STRICT in options else EMPTY
        self.state = self.policy.start(State.new())
        self._check()

    @property
    def sees(self) -> str:
        """The CPUs of all containers without exclusive CPUs."""
        return str(self.state.shared)

    def admit(self, pod: Pod) -> Mapping[str, str]:
        """Let *pod* in and return the CPUs of its containers."""
        refusal = self.try_to_admit(pod)
        assert refusal is None, refusal
        return {name: str(cpus) for name, cpus in self.state.assignments.get(pod.uid, {}).items()}

    def try_to_admit(self, pod: Pod) -> AdmissionError | None:
        admission = self.admitter.admit(self.state, pod)
        self.state = admission.state
        self._check()
        return admission.refusal

    def remove(self, pod: Pod) -> None:
        for container in pod.all_containers:
            self.state = self.policy.release(self.state, pod.ref(container)).state
            self._check()

    def restart(self) -> None:
        self.state = self.policy.start(self.state.restarted())
        self._check()

    def cpus(self, pod: str = "p", container: str = "app") -> CPUSet:
        cpus = self.state.cpus(PodUID(pod), container)
        assert cpus is not None
        return cpus

    def _check(self) -> None:
        assert self.state.check(self.topology.online, kept_apart=self.kept_apart) == []
        assert not self.state.exclusive & self.policy.reserved


def exactly(cpus: float, name: str = "app", *, sidecar: bool = False) -> Container:
    """Return a container of a Guaranteed pod that asks for so many CPUs."""
    amounts = Amounts(int(cpus * 1000), GIB)
    return Container(name, Resources(amounts, amounts), sidecar)


def guaranteed(*cpus: float, uid: str = "p", init: Iterable[Container] = ()) -> Pod:
    """Return a Guaranteed pod with a container for each number: "app", or "app0", "app1" and so on."""
    names = ["app"] if len(cpus) == 1 else [f"app{i}" for i in range(len(cpus))]
    containers = tuple(exactly(count, name) for count, name in zip(cpus, names, strict=True))
    return Pod(PodUID(uid), uid, init=tuple(init), containers=containers)


def burstable(uid: str = "shared") -> Pod:
    return Pod(PodUID(uid), uid, containers=(Container("app", Resources(Amounts(2000, GIB))),))


def best_effort(uid: str = "shared") -> Pod:
    return Pod(PodUID(uid), uid, containers=(Container("app"),))


# Pods without CPUs of their own.


@pytest.mark.parametrize("pod", [burstable(), best_effort(), guaranteed(0.5), guaranteed(2.5)])
def test_non_guaranteed_pod_sees_all_online_cpus(pod: Pod) -> None:
    node = Node(DESKTOP, reserved=200)
    assert node.admit(pod) == {}
    assert node.sees == "0-15"


def test_non_guaranteed_pod_sees_all_online_cpus_with_a_reserved_set_too() -> None:
    node = Node(DESKTOP, reserved="0,8")
    assert node.admit(burstable()) == {}
    assert node.sees == "0-15"


def test_non_guaranteed_pod_sees_online_cpus_minus_exclusive_ones() -> None:
    node = Node(DESKTOP)
    node.admit(burstable())
    assert node.admit(guaranteed(2)) == {"app": "1,9"}
    assert node.sees == "0,2-8,10-15"


def test_non_guaranteed_pod_sees_all_online_cpus_again_once_the_exclusive_ones_are_free() -> None:
    node = Node(DESKTOP)
    pod = guaranteed(2)
    node.admit(pod)
    node.remove(pod)
    assert node.sees == "0-15"


def test_container_of_a_pod_of_mixed_requests_shares_while_the_other_has_its_own() -> None:
    node = Node(DESKTOP)
    assert node.admit(guaranteed(2, 1.5)) == {"app0": "1,9"}


def test_whole_cpus_without_guaranteed_class_are_shared() -> None:
    node = Node(DESKTOP)
    pod = Pod(PodUID("p"), "p", containers=(exactly(2), Container("other")))
    assert node.admit(pod) == {}


# Guaranteed pods.


def test_guaranteed_pod_with_one_cpu() -> None:
    node = Node(DESKTOP)
    assert node.admit(guaranteed(1)) == {"app": "8"}  # beside the reserved one: no whole core is split


def test_guaranteed_pod_with_an_even_number_of_cpus() -> None:
    node = Node(DESKTOP)
    assert node.admit(guaranteed(4)) == {"app": "1-2,9-10"}


def test_guaranteed_pod_with_an_odd_number_of_cpus() -> None:
    node = Node(DESKTOP)
    assert node.admit(guaranteed(3)) == {"app": "1,8-9"}


@pytest.mark.parametrize("machine", [DESKTOP, NO_SMT, SERVER, CACHES])
@pytest.mark.parametrize("first", [1, 3, 4])
def test_two_containers_of_one_pod_have_cpus_of_their_own(machine: str, first: int) -> None:
    node = Node(machine)
    node.admit(guaranteed(first, 2))
    one, other = node.cpus(container="app0"), node.cpus(container="app1")
    assert (len(one), len(other)) == (first, 2)
    assert one.isdisjoint(other)
    assert node.state.shared == node.topology.online - one - other


@pytest.mark.parametrize("machine", [DESKTOP, NO_SMT, SERVER, CACHES])
@pytest.mark.parametrize("first", [1, 3, 4])
def test_two_pods_have_cpus_of_their_own(machine: str, first: int) -> None:
    node = Node(machine)
    node.admit(guaranteed(first, uid="one"))
    node.admit(guaranteed(2, uid="other"))
    assert (len(node.cpus("one")), len(node.cpus("other"))) == (first, 2)
    assert node.cpus("one").isdisjoint(node.cpus("other"))


def test_many_pods_of_one_container_fill_the_node_and_the_next_is_refused() -> None:
    node = Node(DESKTOP)
    for number in range(15):
        node.admit(guaranteed(1, uid=f"p{number}"))
    assert node.sees == "0"
    refusal = node.try_to_admit(guaranteed(1, uid="one too many"))
    assert refusal is not None
    assert (refusal.reason, str(refusal)) == (
        "UnexpectedAdmissionError",
        "not enough cpus available to satisfy request: requested=1, available=0",
    )
    assert node.sees == "0"


def test_cpus_of_a_pod_that_is_gone_are_given_to_the_next() -> None:
    node = Node(DESKTOP)
    pods = [guaranteed(5, uid=f"p{number}") for number in range(3)]
    for pod in pods:
        node.admit(pod)
    before = node.cpus("p1")
    node.remove(pods[1])
    node.admit(guaranteed(5, uid="next"))
    assert node.cpus("next") == before


# strict-cpu-reservation.


def test_strict_reservation_without_a_reserved_set_keeps_the_chosen_cpus_apart() -> None:
    node = Node(DESKTOP, STRICT, reserved=200)
    node.admit(burstable())
    assert str(node.policy.reserved) == "0"
    assert node.sees == "1-15"


def test_strict_reservation_minus_reserved() -> None:
    node = Node(DESKTOP, STRICT, reserved="0,8")
    node.admit(burstable())
    assert node.sees == "1-7,9-15"


def test_strict_reservation_minus_reserved_and_exclusive() -> None:
    node = Node(DESKTOP, STRICT, reserved="0,8")
    node.admit(burstable())
    assert node.admit(guaranteed(2)) == {"app": "1,9"}
    assert node.sees == "2-7,10-15"


def test_strict_reservation_survives_a_restart() -> None:
    node = Node(DESKTOP, STRICT, reserved="0,8")
    node.admit(guaranteed(2))
    node.restart()
    assert node.sees == "2-7,10-15"


# full-pcpus-only.


def test_smt_alignment_rejects_a_non_multiple() -> None:
    node = Node(DESKTOP, SMT)
    refusal = node.try_to_admit(guaranteed(3))
    assert isinstance(refusal, SMTAlignmentError)
    assert refusal.reason == "SMTAlignmentError"
    assert refusal.message == "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"
    assert node.sees == "0-15"


@pytest.mark.parametrize("count", [2, 4, 6, 14])
def test_smt_alignment_admits_a_multiple(count: int) -> None:
    node = Node(DESKTOP, SMT)
    node.admit(guaranteed(count))
    assert node.topology.siblings(node.cpus()) == node.cpus()
    assert len(node.cpus()) == count


def test_smt_alignment_does_not_count_the_sibling_of_a_reserved_cpu() -> None:
    node = Node("sockets:1,cores:2,threads:2", SMT)
    refusal = node.try_to_admit(guaranteed(4))
    assert refusal is not None
    assert str(refusal) == (
        "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 2, requested CPUs = 4, "
        "CPUs per core = 2"
    )


def test_smt_alignment_is_no_matter_for_pods_without_cpus_of_their_own() -> None:
    node = Node(DESKTOP, SMT)
    assert node.admit(burstable()) == {}
    assert node.admit(guaranteed(1.5)) == {}


def test_smt_alignment_without_smt_admits_an_odd_number() -> None:
    node = Node(NO_SMT, SMT)
    assert node.admit(guaranteed(3)) == {"app": "1-3"}


def test_smt_counts_pre_allocated_after_restart() -> None:
    node = Node("sockets:1,cores:4,threads:2", SMT)
    node.admit(guaranteed(4, uid="before"))
    node.restart()
    refusal = node.try_to_admit(guaranteed(4, uid="after"))
    assert refusal is not None
    assert str(refusal) == (
        "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 2, requested CPUs = 4, "
        "CPUs per core = 2"
    )
    node.admit(guaranteed(2, uid="smaller"))


def test_smt_admits_again_after_a_restart_what_runs_already() -> None:
    node = Node("sockets:1,cores:4,threads:2", SMT)
    pod = guaranteed(6)
    before = node.admit(pod)
    node.restart()
    assert node.admit(pod) == before


# prefer-align-cpus-by-uncorecache.


def caches_of(node: Node, cpus: CPUSet) -> list[int]:
    return [cache.id for cache in node.topology.uncore_caches if cache.mask & cpus.mask]


def test_uncore_less_than_one_cache_lies_within_one() -> None:
    node = Node(CACHES, UNCORE, reserved="0,16")
    node.admit(guaranteed(6))
    assert caches_of(node, node.cpus()) == [0]


def test_uncore_exactly_one_cache_is_taken_whole() -> None:
    node = Node(CACHES, UNCORE, reserved="0,16")
    assert node.admit(guaranteed(8)) == {"app": "4-7,20-23"}  # the first cache has reserved CPUs


def test_uncore_more_than_one_cache_takes_whole_caches_and_part_of_one_more() -> None:
    node = Node(CACHES, UNCORE, reserved="0,16")
    node.admit(guaranteed(12))
    assert caches_of(node, node.cpus()) == [0, 1]
    assert node.cpus() >= CPUSet.parse("4-7,20-23")


def test_uncore_more_than_any_cache_has_free_is_admitted_all_the_same() -> None:
    node = Node(CACHES, UNCORE, reserved="0,16")
    for number in range(4):
        node.admit(guaranteed(5, uid=f"p{number}"))
    node.admit(guaranteed(4))
    assert len(caches_of(node, node.cpus())) > 1


@pytest.mark.parametrize("count", [1, 3, 5, 7])
def test_uncore_odd_count_is_admitted(count: int) -> None:
    node = Node(CACHES, UNCORE, reserved="0,16")
    node.admit(guaranteed(count))
    assert len(node.cpus()) == count
    assert len(caches_of(node, node.cpus())) == 1


def test_uncore_containers_of_a_pod_lie_each_within_a_cache() -> None:
    node = Node(CACHES, UNCORE, reserved="0,16")
    node.admit(guaranteed(6, 6, 6))
    assert [caches_of(node, node.cpus(container=f"app{i}")) for i in range(3)] == [[0], [1], [2]]


def test_uncore_disabled_packs_without_regard_to_caches() -> None:
    for options, caches in (((), [0, 1]), ((UNCORE,), [1])):
        node = Node(CACHES, *options, reserved="0,16")
        node.admit(guaranteed(4, uid="before"))
        node.admit(guaranteed(4))
        assert caches_of(node, node.cpus()) == caches


def test_uncore_cache_whose_lowest_core_is_half_reserved_is_passed_over_as_the_reference_does() -> None:
    node = Node(CACHES, UNCORE, reserved="0")
    node.admit(guaranteed(6))  # the lowest three cores of the first cache have but five CPUs free
    assert caches_of(node, node.cpus()) == [1]


def test_uncore_is_the_socket_where_no_cache_is_reported() -> None:
    node = Node("sockets:2,l3:0,cores:4,threads:2", UNCORE, reserved="0,8")
    node.admit(guaranteed(6))
    assert caches_of(node, node.cpus()) == [0]


# Options together.


def test_smt_and_strict() -> None:
    node = Node(DESKTOP, SMT, STRICT, reserved="0,8")
    assert isinstance(node.try_to_admit(guaranteed(1)), SMTAlignmentError)
    assert node.admit(guaranteed(2)) == {"app": "1,9"}
    assert node.sees == "2-7,10-15"


def test_smt_and_strict_with_half_a_core_reserved_share_its_other_half() -> None:
    node = Node(DESKTOP, SMT, STRICT)
    node.admit(guaranteed(14))
    assert node.sees == "8"


def test_smt_and_uncore() -> None:
    node = Node(CACHES, SMT, UNCORE, reserved="0,16")
    assert isinstance(node.try_to_admit(guaranteed(5, uid="odd")), SMTAlignmentError)
    node.admit(guaranteed(6))
    assert str(node.cpus()) == "1-3,17-19"
    node.admit(guaranteed(8, uid="next"))
    assert caches_of(node, node.cpus("next")) == [1]


def test_strict_and_uncore() -> None:
    node = Node(CACHES, STRICT, UNCORE, reserved="0,16")
    node.admit(guaranteed(8))
    assert str(node.cpus()) == "4-7,20-23"
    assert node.sees == "1-3,8-15,17-19,24-31"


def test_smt_and_distribute_across_numa() -> None:
    node = Node(SERVER, SMT, NUMA)
    assert isinstance(node.try_to_admit(guaranteed(9, uid="odd")), SMTAlignmentError)
    node.admit(guaranteed(12))
    parts = [(numa.mask & node.cpus().mask).bit_count() for numa in node.topology.numa_nodes]
    assert parts == [0, 6, 6, 0]
    assert node.topology.siblings(node.cpus()) == node.cpus()


def test_smt_and_distribute_across_numa_hand_out_the_rest_by_whole_cores() -> None:
    node = Node(SERVER, SMT, NUMA)
    node.admit(guaranteed(10))
    parts = [(numa.mask & node.cpus().mask).bit_count() for numa in node.topology.numa_nodes]
    assert sorted(part for part in parts if part) == [4, 6]


def test_distribute_across_numa_uses_one_node_where_one_is_enough() -> None:
    node = Node(SERVER, NUMA)
    node.admit(guaranteed(7))
    parts = [(numa.mask & node.cpus().mask).bit_count() for numa in node.topology.numa_nodes]
    assert sorted(parts) == [0, 0, 0, 7]


def test_align_by_socket_and_distribute_stay_within_one_socket() -> None:
    for options, sockets in ((NUMA,), 2), ((NUMA, SOCKET), 1):
        node = Node(SERVER, *options, reserved="0,8")
        node.admit(guaranteed(12))
        assert sum(1 for socket in node.topology.sockets if socket.mask & node.cpus().mask) == sockets


def test_align_by_socket_and_distribute_take_what_is_left_of_an_uneven_socket() -> None:
    node = Node(SERVER, NUMA, SOCKET)
    node.admit(guaranteed(14, uid="first"))
    node.admit(guaranteed(14, uid="second"))
    for uid in ("first", "second"):
        assert sum(1 for socket in node.topology.sockets if socket.mask & node.cpus(uid).mask) == 1


# Init containers, sidecars, restarts.


def test_init_containers_cpus_are_reused() -> None:
    node = Node(DESKTOP)
    cpus = node.admit(guaranteed(2, init=[exactly(4, "setup")]))
    assert cpus == {"setup": "1-2,9-10", "app": "1,9"}
    assert node.sees == "0,3-8,11-15"


def test_init_containers_use_the_same_cpus_one_after_the_other() -> None:
    node = Node(DESKTOP)
    cpus = node.admit(guaranteed(2, init=[exactly(2, "one"), exactly(2, "two")]))
    assert set(cpus.values()) == {"1,9"}


def test_cpus_of_a_larger_init_container_come_back_once_it_is_gone() -> None:
    node = Node(DESKTOP)
    node.admit(guaranteed(2, init=[exactly(4, "setup")]))
    node.state = node.policy.release(node.state, ContainerRef(PodUID("p"), "setup")).state
    assert str(node.cpus()) == "1,9"
    assert node.sees == "0,2-8,10-15"


def test_sidecars_cpus_are_not_reused() -> None:
    node = Node(DESKTOP)
    cpus = node.admit(guaranteed(2, init=[exactly(2, "proxy", sidecar=True)]))
    assert cpus == {"proxy": "1,9", "app": "2,10"}


def test_sidecar_reuses_an_init_containers_cpus_but_the_app_does_not_get_them_again() -> None:
    node = Node(DESKTOP)
    cpus = node.admit(guaranteed(2, init=[exactly(2, "setup"), exactly(2, "proxy", sidecar=True)]))
    assert cpus == {"setup": "1,9", "proxy": "1,9", "app": "2,10"}


@pytest.mark.parametrize("options", [(), (SMT,), (STRICT,), (UNCORE,), (NUMA,), (SMT, STRICT, UNCORE)])
@pytest.mark.parametrize("topology", ["none", "best-effort", "restricted", "single-numa-node"])
def test_affinity_is_kept_after_a_restart(options: tuple[str, ...], topology: str) -> None:
    node = Node(SERVER, *options, reserved="0,16", topology=topology)
    pods = [
        guaranteed(4, uid="plain"),
        guaranteed(2, uid="with init", init=[exactly(4, "setup"), exactly(2, "proxy", sidecar=True)]),
        guaranteed(2, 4, uid="two"),
    ]
    before = [node.admit(pod) for pod in pods]
    node.restart()
    assert [node.admit(pod) for pod in pods] == before


def test_nothing_is_given_twice_after_a_restart() -> None:
    node = Node(DESKTOP)
    node.admit(guaranteed(4, uid="before"))
    node.restart()
    node.admit(guaranteed(4, uid="after"))
    assert node.cpus("before").isdisjoint(node.cpus("after"))


# Pod-level resources.


def whole_pod(cpus: int, *containers: Container) -> Pod:
    amounts = Amounts(cpus * 1000, GIB)
    return Pod(PodUID("p"), "p", containers=containers, resources=Resources(amounts, amounts))


def test_pod_level_resources_give_no_cpus_while_their_gate_is_closed() -> None:
    node = Node(DESKTOP)
    assert node.admit(whole_pod(4, exactly(2), Container("other"))) == {}
    assert node.sees == "0-15"


def test_pod_level_resources_are_one_set_that_the_containers_divide_up() -> None:
    node = Node(DESKTOP, pod_level=True)
    pod = whole_pod(4, exactly(2), Container("other"))
    node.state = node.policy.admit_pod(node.state, pod).state
    assert str(node.state.pods[pod.uid]) == "1-2,9-10"
    assert (str(node.cpus()), str(node.cpus(container="other"))) == ("1,9", "2,10")
    assert node.sees == "0,3-8,11-15"
