from __future__ import annotations

import pytest

from pinfold.core.admission import Admitter, Scope
from pinfold.core.allocators.order import Fidelity
from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import preset
from pinfold.core.machine.topology import Topology
from pinfold.core.policies.none import NonePolicy
from pinfold.core.policies.options import OPTIONS, Maturity, Options, parse_options
from pinfold.core.policies.static import StaticPolicy
from pinfold.core.state import State
from pinfold.core.topologymanager.manager import TopologyAffinityError
from pinfold.core.trace import Defect
from pinfold.errors import ConfigError
from tests.property.strategies import pinned, pod_of

LAPTOP = preset("laptop-4")
ONE = Reservation.of(CPUSet.of(0))
ALPHA = {"CPUManagerPolicyAlphaOptions": True}


def problems(config: Config, machine: Topology = LAPTOP) -> list[str]:
    """Return what the configuration is refused for."""
    with pytest.raises(ConfigError) as error:
        config.build(machine)
    assert str(error.value) == "; ".join(map(str, error.value.problems))
    return [problem.said for problem in error.value.problems]


def static(*options: str, **settings: object) -> Config:
    """Return the static policy with these options on, and other settings by name."""
    values = {"reserved": ONE, "gates": ALPHA, **settings}
    return Config("static", dict.fromkeys(options, "true"), **values)  # type: ignore[arg-type]  # fields by name


class TestPolicies:
    def test_without_any_setting_the_policy_is_none(self) -> None:
        admitter = Config().build(LAPTOP)
        assert isinstance(admitter.policy, NonePolicy)
        assert admitter.scope is Scope.CONTAINER

    def test_static_gets_its_options_and_reserved_cpus(self) -> None:
        policy = static("full-pcpus-only", "strict-cpu-reservation").build(LAPTOP).policy
        assert isinstance(policy, StaticPolicy)
        assert policy.options == Options(full_pcpus_only=True, strict_cpu_reservation=True)
        assert str(policy.reserved) == "0"
        assert not policy.pod_level

    def test_an_unknown_policy_is_named_with_the_known_ones(self) -> None:
        with pytest.raises(ConfigError) as error:
            Config("dynamic?").build(LAPTOP)
        (problem,) = error.value.problems
        assert problem.said == 'unknown policy: "dynamic?"'
        assert problem.advice == "known: none, static, dynamic"

    def test_none_takes_no_options(self) -> None:
        options = {"full-pcpus-only": "true", "align-by-socket": "false"}
        said = "None policy: received unsupported options=map[align-by-socket:false full-pcpus-only:true]"
        assert problems(Config(options=options)) == [said]

    def test_the_gate_for_pod_level_resources_reaches_the_policy(self) -> None:
        policy = static(gates={"PodLevelResourceManagers": True}).build(LAPTOP).policy
        assert isinstance(policy, StaticPolicy)
        assert policy.pod_level


class TestReservation:
    def test_nothing_said_is_explained(self) -> None:
        with pytest.raises(ConfigError) as error:
            Config("static").build(LAPTOP)
        (problem,) = error.value.problems
        assert problem.said == "[cpumanager] unable to determine reserved CPU resources for static policy"
        assert problem.advice.startswith("reserve at least one CPU: without one, the shared pool could become empty")
        assert "--reserved-cpus" in problem.advice

    @pytest.mark.parametrize("reserved", [Reservation(0), Reservation.of(CPUSet())])
    def test_zero_is_explained(self, reserved: Reservation) -> None:
        with pytest.raises(ConfigError) as error:
            Config("static", reserved=reserved).build(LAPTOP)
        (problem,) = error.value.problems
        assert problem.said == (
            "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero"
        )
        assert problem.advice.startswith("reserve at least one CPU")

    @pytest.mark.parametrize(("milli", "cpus"), [(1, "0"), (1000, "0"), (1001, "0,2"), (2000, "0,2")])
    def test_an_amount_is_rounded_up_to_whole_cpus(self, milli: int, cpus: str) -> None:
        policy = static(reserved=Reservation(milli)).build(LAPTOP).policy
        assert isinstance(policy, StaticPolicy)
        assert str(policy.reserved) == cpus

    def test_cpus_that_the_machine_does_not_have_are_refused(self) -> None:
        (said,) = problems(static(reserved=Reservation.of(CPUSet.of(0, 9))))
        assert said.endswith("unknown CPU ID: 9")

    def test_more_than_the_machine_has_is_refused(self) -> None:
        (said,) = problems(static(reserved=Reservation(5000)))
        assert said.startswith("[cpumanager] unable to reserve the required amount of CPUs")

    def test_all_cpus_may_be_reserved_unless_they_are_kept_apart(self) -> None:
        everything = Reservation.of(LAPTOP.online)
        assert static(reserved=everything).build(LAPTOP).policy.start(State.new()).shared == LAPTOP.online
        (said,) = problems(static("strict-cpu-reservation", reserved=everything))
        assert said == "strict-cpu-reservation with all CPUs reserved (0-3) leaves no CPU for the shared pool"
        exact = static("strict-cpu-reservation", reserved=everything, fidelity=Fidelity.KUBELET).build(LAPTOP)
        assert not exact.policy.start(State.new()).shared


class TestOptions:
    @pytest.mark.parametrize(
        ("name", "advice"),
        [("full-pcpus", "did you mean full-pcpus-only?"), ("xyzzy", f"known: {', '.join(OPTIONS)}")],
    )
    def test_an_unknown_option_is_named_with_the_nearest_or_all_known_ones(self, name: str, advice: str) -> None:
        with pytest.raises(ConfigError) as error:
            static(name).build(LAPTOP)
        (problem,) = error.value.problems
        assert problem.said == f'unknown CPU Manager Policy option: "{name}"'
        assert problem.advice == advice

    def test_a_value_that_is_neither_true_nor_false_is_refused_in_the_words_of_go(self) -> None:
        config = Config("static", {"full-pcpus-only": "yes"}, ONE)
        said = 'bad value for option "full-pcpus-only": strconv.ParseBool: parsing "yes": invalid syntax'
        assert problems(config) == [said]

    @pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
    def test_all_that_go_takes_for_true_is_true(self, text: str) -> None:
        assert parse_options({"full-pcpus-only": text}, {}) == (Options(full_pcpus_only=True), [])

    @pytest.mark.parametrize("name", [name for name, option in OPTIONS.items() if option.maturity is Maturity.ALPHA])
    @pytest.mark.parametrize("text", ["true", "false"])
    def test_an_alpha_option_is_refused_even_as_false_while_its_gate_is_closed(self, name: str, text: str) -> None:
        (said,) = problems(Config("static", {name: text}, ONE))
        assert said == f'CPU Manager Policy Alpha-level Options not enabled, but option "{name}" provided'

    def test_beta_options_need_no_gate_but_can_be_shut_off(self) -> None:
        assert static("distribute-cpus-across-numa", gates={}).build(LAPTOP)
        (said,) = problems(static("distribute-cpus-across-numa", gates={"CPUManagerPolicyBetaOptions": False}))
        assert said.startswith("CPU Manager Policy Beta-level Options not enabled")

    @pytest.mark.parametrize(
        ("one", "other"),
        [(option.name, conflict) for option in OPTIONS.values() for conflict in option.conflicts],
    )
    def test_options_that_exclude_each_other_are_refused(self, one: str, other: str) -> None:
        said = f"static policy options {one} and {other} can not be used at the same time"
        assert problems(static(one, other)) == [said]

    def test_align_by_socket_needs_no_more_sockets_than_numa_nodes(self) -> None:
        rows = [(c, c, c // 2, 0, 0) for c in range(4)]
        (said,) = problems(static("align-by-socket"), Topology.from_rows(rows))
        assert said == (
            "Align by socket is not compatible with hardware where number of sockets are more than number of NUMA"
        )

    def test_align_by_socket_and_single_numa_node_exclude_each_other_in_the_references_spelling(self) -> None:
        (said,) = problems(static("align-by-socket", topology_policy="single-numa-node"))
        assert said.startswith("Topolgy manager single-numa-node policy is incompatible with CPUManager")


class TestAllProblems:
    def test_all_are_reported_together_with_the_references_first(self) -> None:
        config = Config(
            "static",
            {"full-pcpus-only": "maybe", "align-by-socket": "true", "fast": "true"},
            Reservation(0),
            topology_policy="strict",
            topology_options={"max-allowable-numa-nodes": "4"},
            topology_scope="node",
        )
        assert problems(config) == [
            "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero",
            'bad value for option "full-pcpus-only": strconv.ParseBool: parsing "maybe": invalid syntax',
            'CPU Manager Policy Alpha-level Options not enabled, but option "align-by-socket" provided',
            'unknown CPU Manager Policy option: "fast"',
            'the minimum value of "max-allowable-numa-nodes" should not be less than 8',
            'unknown policy: "strict"',
            'unknown scope: "node"',
        ]

    def test_a_wrong_reservation_and_wrong_options_are_both_named(self) -> None:
        config = static("distribute-cpus-across-cores", "full-pcpus-only", reserved=Reservation.of(CPUSet.of(7)))
        first, second = problems(config)
        assert first == (
            "static policy options full-pcpus-only and distribute-cpus-across-cores can not be used at the same time"
        )
        assert second.endswith("unknown CPU ID: 7")

    def test_an_unknown_scope_is_named_with_the_known_ones(self) -> None:
        with pytest.raises(ConfigError) as error:
            Config(topology_scope="node").build(LAPTOP)
        assert error.value.problems == (('unknown scope: "node"', "known: container, pod"),)


class TestManyNUMANodes:
    def nodes_used(self, machine: Topology, cpus: CPUSet) -> list[int]:
        return [node.id for node in machine.numa_nodes if node.mask & cpus.mask]

    def admit(self, admitter: Admitter, state: State, count: int, uid: str = "p1") -> State:
        admission = admitter.admit(state, pod_of(pinned(count), uid=uid))
        assert admission.refusal is None
        return admission.state

    @pytest.mark.parametrize("machine", ["gb200", "sockets:8,numa:8,cores:4"])
    @pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
    def test_the_kubelet_refuses_more_than_eight_which_pinfold_does_not(self, machine: str, policy: str) -> None:
        topology = preset(machine)
        (said,) = problems(static(topology_policy=policy, fidelity=Fidelity.KUBELET), topology)
        assert said == "unsupported on machines with more than 8 NUMA Nodes"
        assert static(topology_policy=policy).build(topology)

    @pytest.mark.parametrize("scope", Scope)
    def test_restricted_on_two_sockets_with_the_memory_nodes_of_their_gpus(self, scope: Scope) -> None:
        machine = preset("gb200")
        admitter = static(topology_policy="restricted", topology_scope=scope).build(machine)
        state = admitter.policy.start(State.new())
        state = self.admit(admitter, state, 72, "whole socket")
        assert self.nodes_used(machine, state.exclusive) == [1]
        state = self.admit(admitter, state, 71, "the rest of the other")
        assert state.exclusive == machine.online - CPUSet.of(0)

    def test_restricted_on_64_nodes(self) -> None:
        machine = preset("sockets:8,numa:8,cores:4")
        admitter = static(topology_policy="restricted").build(machine)
        state = admitter.policy.start(State.new())
        state = self.admit(admitter, state, 4)
        assert self.nodes_used(machine, state.cpus_of_pod(pod_of().uid)) == [1]
        state = self.admit(admitter, state, 40, "ten nodes")
        assert len(self.nodes_used(machine, state.exclusive)) == 11
        state = self.admit(admitter, state, 208, "52 nodes")
        assert state.check(machine.online) == []
        refusal = admitter.admit(state, pod_of(pinned(5), uid="two nodes")).refusal
        assert isinstance(refusal, TopologyAffinityError)

    def test_restricted_on_64_nodes_aligned_by_socket(self) -> None:
        machine = preset("sockets:8,numa:8,cores:4")
        admitter = static("align-by-socket", topology_policy="restricted").build(machine)
        state = self.admit(admitter, admitter.policy.start(State.new()), 20)
        assert [socket.id for socket in machine.sockets if socket.mask & state.exclusive.mask] == [0]

    def test_node_ids_with_gaps_are_a_defect_only_where_the_kubelet_looks_distances_up(self) -> None:
        rows = [(0, 0, 0, 0, 0), (1, 1, 0, 8, 0)]
        distances = {0: {0: 10, 8: 20}, 8: {0: 20, 8: 10}}
        machine = Topology(Topology.from_rows(rows).cpus, distances=distances)
        closest = {"prefer-closest-numa-nodes": "true"}
        config = static(topology_policy="restricted", topology_options=closest, fidelity=Fidelity.KUBELET)
        assert [defect for defect, _ in config.build(machine).manager.defects] == [Defect.SPARSE_NODE_IDS]
