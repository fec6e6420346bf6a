"""pinfold's own options: isolated siblings, strict cache alignment, a minimum of shared CPUs, isolated CPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from pinfold.core.admission import Asked
from pinfold.core.allocators.order import Fidelity
from pinfold.core.config import Config, Reservation
from pinfold.core.explaining.advice import advise
from pinfold.core.explaining.alignment import Ruler
from pinfold.core.explaining.outcome import Outcome
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import from_shape
from pinfold.core.machine.topology import Topology
from pinfold.core.moving.repacking import Consent
from pinfold.core.moving.resizing import NotResized
from pinfold.core.pods.pod import ContainerRef, Pod, PodUID
from pinfold.core.policies.caches import UncoreAlignmentError
from pinfold.core.policies.options import OPTION_GATES, OWN
from pinfold.core.policies.placing import IsolatedCPUsError, SMTIsolationError
from pinfold.core.policies.pools import MinSharedCPUsError
from pinfold.core.policies.wholecores import SMTAlignmentError
from pinfold.core.recover import carry_over
from pinfold.core.state import State
from pinfold.errors import AdmissionError, ConfigError
from pinfold.planning.plan import make_plan
from pinfold.planning.repacked import repacked
from tests.property.strategies import pinned, pod_of

if TYPE_CHECKING:
    from pinfold.core.admission import Admitter

OPEN: Final = {gate.name: True for gate in OPTION_GATES.values()}
SIXTEEN_CORES: Final = from_shape("sockets:1,cores:16,threads:2")
THREE_CACHES: Final = from_shape("sockets:1,l3:3,cores:4,threads:1")
TWO_SOCKETS: Final = from_shape("sockets:2,cores:4,threads:2")


def config(reserved: str, *, topology_policy: str = "none", **options: str) -> Config:
    """Return the static policy with these options and reserved CPUs."""
    given = {name.replace("_", "-"): value for name, value in options.items()}
    return Config("static", given, Reservation.of(CPUSet.parse(reserved)), topology_policy=topology_policy, gates=OPEN)


class Node:
    """A node with its State."""

    def __init__(self, topology: Topology, settings: Config) -> None:
        self.topology = topology
        self.admitter: Admitter = settings.build(topology)
        self.policy = self.admitter.policy
        self.state = self.policy.start(State.new())

    def admit(self, cpus: int, uid: str = "p1", **asked: str) -> str:
        """Admit a pod with one container, or raise its refusal; return its CPUs."""
        outcome = self.ask(asking(pod_of(pinned(cpus), uid=uid), **asked))
        if outcome.refusal is not None:
            raise outcome.refusal
        self.state = outcome.admission.state
        return str(self.state.cpus(PodUID(uid), "app"))

    def ask(self, pod: Pod) -> Outcome:
        return Outcome(pod, self.state, self.admitter.admit(self.state, pod), self.admitter)

    def taken(self, cpus: str) -> None:
        """Give CPUs to another pod."""
        others = CPUSet.parse(cpus)
        self.state = State(self.state.shared - others, {PodUID("other"): {"app": others}})

    def advice(self, cpus: int, uid: str = "p1") -> str:
        """Return what would help a pod that is refused."""
        return str(advise(Ruler(self.topology, self.policy.allocatable), self.ask(pod_of(pinned(cpus), uid=uid))))

    @property
    def shared(self) -> str:
        return str(self.policy.pools.shared(self.state))

    @property
    def idle(self) -> str:
        return str(self.policy.pools.idle(self.state))


def asking(pod: Pod, **asked: str) -> Pod:
    return replace(pod, annotations={f"pinfold.dev/{name.replace('_', '-')}": value for name, value in asked.items()})


class TestIsolateSMTSiblings:
    @pytest.mark.parametrize("requested", [1, 3, 5])
    def test_resource_accounting_of_n_cpus_is_n_cores_and_their_idle_siblings(self, requested: int) -> None:
        node = Node(SIXTEEN_CORES, config("0,16", isolate_smt_siblings="true"))
        before = len(node.state.shared)
        physical = len(node.topology.siblings(CPUSet.parse(node.admit(requested)))) // 2
        unallocatable = len(CPUSet.parse(node.idle))
        assert (physical, unallocatable) == (requested, requested)
        assert before - len(node.state.shared) == requested + unallocatable

    def test_the_resource_accounting_table_of_the_smt_document_is_what_full_pcpus_only_asks_for(self) -> None:
        # Requested 5, physical 3, unallocatable 1, total 6.
        node = Node(SIXTEEN_CORES, config("0,16", full_pcpus_only="true"))
        with pytest.raises(SMTAlignmentError, match="requested 5 cpus not multiple cpus per core = 2"):
            node.admit(5)
        assert "Would fit with 4 or 6 CPUs." in node.advice(5)
        cpus = CPUSet.parse(node.admit(5 + 1))
        assert len({core.id for core in node.topology.cores if core.cpus & cpus}) == 3

    def test_siblings_are_idle_until_the_container_ends(self) -> None:
        node = Node(SIXTEEN_CORES, config("0,16", isolate_smt_siblings="true"))
        first = node.state
        assert node.admit(2) == "1-2"
        assert (node.idle, node.shared) == ("17-18", "0,3-16,19-31")
        assert node.policy.release(node.state, ContainerRef(PodUID("p1"), "app")).state == first

    def test_a_core_with_a_reserved_sibling_is_not_used(self) -> None:
        node = Node(from_shape("sockets:1,cores:3,threads:2"), config("3", isolate_smt_siblings="true"))
        assert node.admit(2) == "1-2"
        with pytest.raises(SMTIsolationError, match="1 CPUs need 1 whole cores, 0 are wholly free"):
            node.admit(1, "p2")

    def test_with_per_pod_only_pods_that_ask_for_it_are_isolated(self) -> None:
        node = Node(SIXTEEN_CORES, config("0,16", isolate_smt_siblings="per-pod"))
        assert node.admit(2) == "1,17"
        assert node.admit(2, "p2", isolate_smt_siblings="true") == "2-3"
        assert node.idle == "18-19"
        assert node.admit(2, "p3") == "4,20"

    def test_a_pod_cannot_ask_for_it_where_the_node_does_not_offer_it(self) -> None:
        node = Node(SIXTEEN_CORES, config("0,16"))
        assert node.admit(2, isolate_smt_siblings="true") == "1,17"
        pod = asking(pod_of(pinned(2), uid="p2"), isolate_smt_siblings="true")
        trace = node.admitter.explain(node.state, pod)["app"].text()
        assert "ignored the annotation pinfold.dev/isolate-smt-siblings (the node does not offer the option)" in trace

    def test_with_full_pcpus_only_an_isolated_container_needs_no_multiple_of_the_threads(self) -> None:
        node = Node(SIXTEEN_CORES, config("0,16", isolate_smt_siblings="per-pod", full_pcpus_only="true"))
        assert node.admit(3, isolate_smt_siblings="true") == "1-3"
        with pytest.raises(SMTAlignmentError):
            node.admit(3, "p2")

    def test_after_the_option_is_turned_off_idle_siblings_are_shared_again(self) -> None:
        node = Node(SIXTEEN_CORES, config("0,16", isolate_smt_siblings="true"))
        node.admit(2)
        recovered = carry_over(config("0,16").build(SIXTEEN_CORES), node.state, {})
        assert recovered.lost == {}
        assert str(recovered.state.shared) == "0,3-31"

    def test_a_sibling_that_comes_online_beside_an_isolated_container_is_idle(self) -> None:
        rows = [row for row in from_shape("sockets:1,cores:4,threads:2").cpus if row.cpu != 5]
        settings = config("0,4", isolate_smt_siblings="true")
        node = Node(Topology(tuple(rows)), settings)
        assert node.admit(2) == "1-2"
        later = from_shape("sockets:1,cores:4,threads:2")
        recovered = carry_over(settings.build(later), node.state, {})
        assert recovered.lost == {}
        assert str(settings.build(later).policy.pools.idle(recovered.state)) == "5-6"

    def test_hints_count_the_cores_of_a_numa_node(self) -> None:
        node = Node(TWO_SOCKETS, config("0,8", topology_policy="single-numa-node", isolate_smt_siblings="true"))
        assert node.admit(4) == "4-7"
        with pytest.raises(AdmissionError, match="Topology"):
            node.admit(4, "p2")


class TestRequireAlignCPUsByUncoreCache:
    def test_it_finds_the_fewest_caches_where_the_reference_would_use_more(self) -> None:
        prefer, require = (
            Node(THREE_CACHES, config("0", **{option: "true"}))
            for option in ("prefer_align_cpus_by_uncorecache", "require_align_cpus_by_uncorecache")
        )
        for node in (prefer, require):
            node.taken("1-2,4,8")
        assert prefer.admit(5) == "3,5-7,9"
        assert require.admit(5) == "5-7,9-10"

    def test_a_refusal_names_the_nearest_size_that_fits(self) -> None:
        node = Node(THREE_CACHES, config("0", require_align_cpus_by_uncorecache="true"))
        node.taken("3,4,8")
        said = "4 CPUs must be within 1 uncore cache, but no cache has more than 3 free CPUs"
        with pytest.raises(UncoreAlignmentError, match=f"{said}; the nearest size that fits is 3"):
            node.admit(4)
        assert node.advice(4).startswith(
            "4 CPUs in 1 L3 are not available: L3 1 has 3 free, L3 2 has 3 free. Would fit"
        )
        assert "with 3 or 5 CPUs" in node.advice(4)

    def test_two_caches_are_within_one_socket_if_possible(self) -> None:
        topology = from_shape("sockets:2,l3:3,cores:4,threads:1")
        node = Node(topology, config("0", require_align_cpus_by_uncorecache="true"))
        node.taken("1-2,4,8,12,16,20")
        cpus = CPUSet.parse(node.admit(6))
        assert sum(bool(socket.cpus & cpus) for socket in topology.sockets) == 1

    def test_hints_leave_out_numa_nodes_whose_caches_are_fragmented(self) -> None:
        topology = from_shape("sockets:2,l3:2,cores:4,threads:1")
        settings = config("0", topology_policy="single-numa-node", require_align_cpus_by_uncorecache="true")
        node = Node(topology, settings)
        node.taken("3,7")
        assert node.admit(4) == "8-11"


class TestMinSharedCPUs:
    def test_64_cpus_with_6_reserved_and_4_shared_leave_54_to_be_exclusive(self) -> None:
        topology = from_shape("sockets:1,cores:32,threads:2")
        settings = config("0,32,1,33,16,48", strict_cpu_reservation="true", min_shared_cpus="4")
        node = Node(topology, settings)
        assert len(node.policy.pools.offered) == 54
        node.admit(54)
        assert len(CPUSet.parse(node.shared)) == 4
        with pytest.raises(MinSharedCPUsError, match="min-shared-cpus keeps 4 of them, so at most 0 can be taken"):
            node.admit(1, "p2")

    def test_without_the_option_58_can_be_exclusive_as_in_the_kubelet(self) -> None:
        topology = from_shape("sockets:1,cores:32,threads:2")
        assert len(Node(topology, config("0,32,1,33,16,48")).policy.pools.offered) == 58

    def test_reserved_cpus_count_if_they_are_shared(self) -> None:
        node = Node(from_shape("sockets:1,cores:8,threads:1"), config("0-1", min_shared_cpus="3"))
        assert len(node.policy.pools.offered) == 5
        assert "because 3 CPUs must stay shared" in node.advice(6)
        node.admit(5)

    def test_idle_siblings_are_not_shared(self) -> None:
        node = Node(SIXTEEN_CORES, config("0,16", min_shared_cpus="24", isolate_smt_siblings="true"))
        assert len(node.policy.pools.offered) == 4
        node.admit(4)
        with pytest.raises(MinSharedCPUsError):
            node.admit(1, "p2")

    def test_more_than_the_machine_has_is_refused_at_the_start(self) -> None:
        with pytest.raises(ConfigError, match="min-shared-cpus is 33, but only 32 CPUs can be shared"):
            config("0", min_shared_cpus="33").build(SIXTEEN_CORES)

    @pytest.mark.parametrize("value", ["-1", "many", "per-pod"])
    def test_a_value_that_is_no_number_is_refused(self, value: str) -> None:
        with pytest.raises(ConfigError, match="allowed: a whole number"):
            config("0", min_shared_cpus=value).build(SIXTEEN_CORES)


class TestIsolatedCPUs:
    ISOLATED: Final = replace(TWO_SOCKETS, isolated=CPUSet.parse("2-5,10-13"))

    def test_shared_containers_never_run_on_isolated_cpus(self) -> None:
        node = Node(self.ISOLATED, config("0,8", prefer_isolated_cpus="true"))
        assert node.shared == "0-1,6-9,14-15"

    def test_isolated_cpus_come_first_and_are_not_mixed_with_others(self) -> None:
        node = Node(self.ISOLATED, config("0,8", prefer_isolated_cpus="true"))
        assert CPUSet.parse(node.admit(6)) <= self.ISOLATED.isolated
        assert node.admit(4, "p2") == "1,6,9,14"

    def test_both_are_mixed_only_if_neither_is_enough(self) -> None:
        node = Node(self.ISOLATED, config("0,8", prefer_isolated_cpus="true"))
        assert node.admit(10) == "1,4-7,9,12-15"

    def test_required_ones_are_never_replaced_by_others(self) -> None:
        node = Node(self.ISOLATED, config("0,8", require_isolated_cpus="true"))
        assert str(node.policy.allocatable) == "2-5,10-13"
        node.admit(6)
        with pytest.raises(IsolatedCPUsError, match=r"3 CPUs wanted, 2 isolated ones free \("):
            node.admit(3, "p2")
        assert node.advice(3, "p2").startswith("3 isolated CPUs are not available: 2 of 16 can be exclusive (")

    def test_with_per_pod_other_pods_leave_isolated_cpus_alone(self) -> None:
        node = Node(self.ISOLATED, config("0,8", require_isolated_cpus="per-pod"))
        assert node.admit(4) == "1,6,9,14"
        assert CPUSet.parse(node.admit(2, "p2", require_isolated_cpus="true")) <= self.ISOLATED.isolated

    def test_a_cpu_cannot_be_reserved_and_isolated_unless_it_is_reserved_strictly(self) -> None:
        with pytest.raises(ConfigError, match="CPUs 2 are reserved and isolated"):
            config("2", prefer_isolated_cpus="true").build(self.ISOLATED)
        config("2", prefer_isolated_cpus="true", strict_cpu_reservation="true").build(self.ISOLATED)

    def test_reserved_cpus_that_are_only_counted_are_not_isolated(self) -> None:
        isolated = replace(TWO_SOCKETS, isolated=CPUSet.parse("0-3,8-11"))
        settings = replace(config("0", require_isolated_cpus="true"), reserved=Reservation(milli=2000))
        assert str(settings.build(isolated).policy.reserved) == "4,12"

    def test_the_shared_pool_must_not_be_empty_from_the_start(self) -> None:
        isolated = replace(TWO_SOCKETS, isolated=CPUSet.parse("1-15"))
        with pytest.raises(ConfigError, match="leaves no CPU for the shared pool"):
            config("0", prefer_isolated_cpus="true", strict_cpu_reservation="true").build(isolated)

    def test_where_the_shared_pool_cannot_give_them_hints_name_isolated_cpus_alone(self) -> None:
        settings = config("0,8", topology_policy="restricted", prefer_isolated_cpus="true", min_shared_cpus="6")
        node = Node(replace(TWO_SOCKETS, isolated=CPUSet.parse("4-7,12-15")), settings)
        assert node.admit(4) == "4-5,12-13"

    def test_a_container_that_leaves_no_shared_cpu_loses_its_cpus_when_the_option_is_turned_on(self) -> None:
        topology = replace(from_shape("sockets:1,cores:4,threads:1"), isolated=CPUSet.of(3))
        admitter = config("0", prefer_isolated_cpus="true", strict_cpu_reservation="true").build(topology)
        found = State(CPUSet.of(3), {PodUID("p1"): {"a": CPUSet.of(1)}, PodUID("p2"): {"b": CPUSet.of(2)}})
        recovered = carry_over(admitter, found, {})
        assert list(recovered.lost) == [ContainerRef(PodUID("p2"), "b")]
        assert str(admitter.policy.pools.shared(recovered.state)) == "2"


class TestDynamic:
    """Running containers grow, shrink and move, and the options hold."""

    def node(self, topology: Topology, reserved: str, **options: str) -> Node:
        return Node(topology, replace(config(reserved, **options), policy="dynamic"))

    def resize(self, node: Node, count: int, uid: str = "p1", **asked: str) -> str:
        """Resize the container of a pod, or raise; return its CPUs."""
        ref, annotations = ContainerRef(PodUID(uid), "app"), asking(pod_of(pinned(1)), **asked).annotations
        node.state = node.admitter.resize(node.state, ref, count, asked=Asked(annotations=annotations)).state
        idle = node.policy.pools.idle(node.state)
        assert node.state.check(node.topology.online, idle=idle) == []
        return str(node.state.cpus(*ref))

    def repack(self, node: Node, **asked: str) -> dict[str, str]:
        """Make the moves of a repack, and return where each pod has gone."""
        repacking, annotations = node.policy.repacking, asking(pod_of(pinned(1)), **asked).annotations
        assert repacking is not None
        plan = repacking.plan(node.state, {ref: Consent(annotations=annotations) for ref, _ in node.state.flat()}, 4)
        for move in plan.moves:
            assert repacking.is_possible(node.state, move)
            node.state = repacking.moved(node.state, move)
            idle = node.policy.pools.idle(node.state)
            assert node.state.check(node.topology.online, idle=idle) == []
        return {move.container.pod: str(move.after) for move in plan.moves}

    def test_with_idle_siblings_a_container_grows_by_whole_cores_and_gives_them_back(self) -> None:
        node = self.node(SIXTEEN_CORES, "0,16", isolate_smt_siblings="true")
        assert node.admit(2) == "1-2"
        assert self.resize(node, 4) == "1-4"
        assert str(node.policy.pools.idle(node.state)) == "17-20"
        assert self.resize(node, 1) == "1"
        assert str(node.policy.pools.idle(node.state)) == "17"
        with pytest.raises(NotResized, match=r"16 CPUs need 16 whole cores, 14 are.*it can have is 15"):
            self.resize(node, 17)

    def test_idle_siblings_move_with_their_container(self) -> None:
        node = self.node(from_shape("l3:2,cores:4,threads:2"), "0,8", isolate_smt_siblings="per-pod")
        node.admit(2, "first")
        assert node.admit(3, "wide", isolate_smt_siblings="true") == "2-4"
        node.state = node.policy.release(node.state, ContainerRef(PodUID("first"), "app")).state
        assert self.repack(node, isolate_smt_siblings="true") == {"wide": "1-3"}
        assert str(node.policy.pools.idle(node.state)) == "9-11"

    def test_strict_alignment_holds_for_every_size(self) -> None:
        node = self.node(THREE_CACHES, "0", require_align_cpus_by_uncorecache="true")
        assert node.admit(3, "other") == "1-3"
        assert node.admit(3) == "4-6"
        assert self.resize(node, 4) == "4-7"
        assert self.resize(node, 6) == "4-9"
        assert self.resize(node, 3) == "4-6"
        node.state = node.policy.release(node.state, ContainerRef(PodUID("other"), "app")).state
        node.admit(1, "third")
        with pytest.raises(NotResized, match="4 CPUs must be within 1 uncore cache, which they cannot with") as refused:
            self.resize(node, 4)
        assert (refused.value.reason, refused.value.nearest) == ("UncoreAlignmentError", 3)
        assert self.resize(node, 5) == "1-2,4-6", "5 CPUs may use 2 caches"

    def test_require_isolated_cpus_grows_onto_isolated_cpus_alone(self) -> None:
        topology = replace(from_shape("cores:8"), isolated=CPUSet.parse("3-6"))
        node = self.node(topology, "0", require_isolated_cpus="true")
        assert node.admit(2) == "3-4"
        assert self.resize(node, 4) == "3-6"
        with pytest.raises(NotResized, match="require-isolated-cpus: 1 CPUs wanted, 0 isolated ones free"):
            self.resize(node, 5)

    def test_a_preference_for_isolated_cpus_gives_back_the_others_first(self) -> None:
        topology = replace(from_shape("cores:8"), isolated=CPUSet.parse("5-6"))
        node = self.node(topology, "0", prefer_isolated_cpus="true")
        assert node.admit(1) == "5"
        assert self.resize(node, 4) == "1-2,5-6"
        node.state = node.state._replace(baselines={})
        assert self.resize(node, 2) == "5-6"

    def test_cpus_from_before_the_option_are_neither_resized_nor_moved(self) -> None:
        node = self.node(from_shape("l3:2,cores:4,threads:2"), "0,8")
        node.admit(3)
        later = self.node(node.topology, "0,8", isolate_smt_siblings="true")
        later.state = node.state
        with pytest.raises(NotResized, match="without the option isolate-smt-siblings; restart the container"):
            self.resize(later, 4)
        assert self.repack(later) == {}

    @pytest.mark.parametrize("name", ["distribute-cpus-across-numa", "distribute-cpus-across-cores"])
    def test_a_plan_for_a_repack_names_the_option_that_spreads_cpus(self, name: str) -> None:
        plan = make_plan([], TWO_SOCKETS, config("0,8", **{name.replace("-", "_"): "true"}))
        with pytest.raises(ConfigError, match=f"no container can move: the option {name} spreads CPUs"):
            repacked(plan)

    def test_growth_leaves_the_shared_cpus_of_min_shared_cpus(self) -> None:
        settings = replace(config("0,16", min_shared_cpus="24"), policy="dynamic")
        node = Node(SIXTEEN_CORES, settings)
        node.admit(7)
        ref = ContainerRef(PodUID("p1"), "app")
        node.state = node.admitter.resize(node.state, ref, 8).state
        with pytest.raises(NotResized, match="min-shared-cpus keeps 24 of them"):
            node.admitter.resize(node.state, ref, 9)


def test_a_kubelet_knows_none_of_them() -> None:
    for name in OWN:
        planned = replace(config("0", **{name.replace("-", "_"): "1"}), fidelity=Fidelity.KUBELET)
        said = f'unknown CPU Manager Policy option: "{name}"; pinfold\'s own, which a kubelet does not know'
        with pytest.raises(ConfigError, match=said):
            planned.build(SIXTEEN_CORES)


def test_they_are_alpha_and_need_the_gate() -> None:
    for name in OWN:
        settings = replace(config("0", **{name.replace("-", "_"): "1"}), gates={})
        with pytest.raises(ConfigError, match="--feature-gates CPUManagerPolicyAlphaOptions=true"):
            settings.build(SIXTEEN_CORES)
