from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pinfold.core.gosyntax import go_bool, go_int, go_quote
from pinfold.core.machine.presets import preset
from pinfold.core.machine.topology import Topology
from pinfold.core.topologymanager.cpu import cpu_hints
from pinfold.core.topologymanager.hint import UNSATISFIABLE, Hint, HintList
from pinfold.core.topologymanager.manager import TopologyAffinityError, TopologyManager
from pinfold.core.topologymanager.report import MergeReason
from pinfold.core.trace import Defect
from pinfold.errors import AdmissionError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

NO_PREFERENCE = Hint(None, preferred=True)
CLOSEST = {"prefer-closest-numa-nodes": "true"}


def manager(policy: str = "best-effort", nodes: int = 4, options: Mapping[str, str] | None = None) -> TopologyManager:
    distances = {one: {other: 10 + abs(one - other) for other in range(nodes)} for one in range(nodes)}
    return TopologyManager.create(policy, options or {}, range(nodes), distances)


def merged(*resources: HintList | None, policy: str = "best-effort", options: Mapping[str, str] | None = None) -> Hint:
    return manager(policy, options=options).merge([{"resource": hints} for hints in resources]).hint


def hints(*masks: str, preferred: bool = True) -> HintList:
    """Return hints such as "0" or "1-2", with a "?" after those that are not preferred."""
    return HintList(
        Hint.of(*map(int, mask.rstrip("?").split("-")), preferred=preferred and not mask.endswith("?"))
        for mask in masks
    )


class TestMerge:
    def test_nothing_to_merge_is_all_nodes_preferred(self) -> None:
        assert manager().merge([]) == (True, Hint(0b1111, preferred=True))
        assert manager().merge([{}, None, {"resource": None}]) == (True, Hint(0b1111, preferred=True))

    def test_equal_preferred_masks_beat_narrower_ones_that_are_not_preferred(self) -> None:
        assert merged(hints("0?", "0-1"), hints("0?", "0-1")) == Hint(0b11, preferred=True)

    def test_preferred_masks_that_differ_are_not_preferred_together(self) -> None:
        assert merged(hints("0"), hints("0-1")) == Hint(0b1, preferred=False)

    def test_fewer_nodes_then_lower_ones_win(self) -> None:
        assert merged(hints("2-3", "1-3", "0-3", "0-1-2")) == Hint(0b1001, preferred=True)

    def test_unsatisfiable_resource_leaves_the_choice_to_the_others_but_nothing_is_preferred(self) -> None:
        assert merged(UNSATISFIABLE, hints("1", "2")) == Hint(0b10, preferred=False)

    def test_any_node_does_not_narrow_the_others(self) -> None:
        anywhere = HintList([NO_PREFERENCE, Hint.of(3)])

        assert merged(anywhere, hints("1")) == Hint(0b10, preferred=True)
        assert merged(anywhere) == Hint(0b1000, preferred=True)

    def test_no_node_in_common_is_all_nodes_not_preferred(self) -> None:
        assert merged(hints("0"), hints("1")) == Hint(0b1111, preferred=False)

    def test_result_that_is_not_preferred_climbs_to_the_widest_of_the_narrowest(self) -> None:
        wide, narrow = hints("0-1?", "0-1-2?"), hints("0?", "0-1?", "0-1-2?", "0-1-2-3?")

        assert merged(wide, narrow) == Hint(0b11, preferred=False)

    def test_result_that_is_not_preferred_may_be_wider_only_if_nothing_narrower_is_common(self) -> None:
        assert merged(hints("0?", "2-3?"), hints("1?", "2-3?")) == Hint(0b1100, preferred=False)

    def test_fewer_nodes_than_the_goal_are_better_than_more_however_near_to_it(self) -> None:
        # The goal is three nodes; what the hints have in common is one node or four.
        one, other = hints("0-1-2?", "2-3-4-5?"), hints("2-3-4-5?", "6-7?")

        assert manager(nodes=8).merge([{"a": one, "b": other}]).hint == Hint.of(2, preferred=False)

    def test_any_node_keeps_what_the_others_have_in_common(self) -> None:
        anywhere = HintList([Hint(None, preferred=False), Hint.of(0, preferred=False)])

        assert merged(hints("1?", "2?"), anywhere) == Hint.of(1, preferred=False)

    def test_lowest_result_may_come_from_cpus_cut_to_the_later_of_two_masks(self) -> None:
        machine = preset("sockets:1,numa:5,cores:8")
        best = TopologyManager.for_machine("best-effort", {}, machine)
        # Only node 4 has free CPUs. It must stay in what is common with 0 and 4, but is beside the point for 1 and 2.
        cpus = cpu_hints(machine, 0xFF << 32, 0, need=8)

        assert best.merge([{"cpu": cpus}, {"a": hints("0-4?", "1-2?", "3?")}]).hint == Hint.of(1, preferred=False)

    def test_nodes_the_manager_does_not_know_are_cut_off(self) -> None:
        assert merged(hints("3-4"), hints("3-4")) == Hint(0b1000, preferred=True)
        assert merged(hints("3-4"), hints("3")) == Hint(0b1000, preferred=False)

    def test_closest_decides_between_equally_many_nodes_only(self) -> None:
        options = {"prefer-closest-numa-nodes": "true"}

        assert merged(hints("0-3", "1-2"), options=options) == Hint(0b0110, preferred=True)
        assert merged(hints("3", "0-1"), options=options) == Hint(0b1000, preferred=True)
        assert merged(hints("0-1", "2-3"), options=options) == Hint(0b0011, preferred=True)
        assert merged(hints("0-3?", "1-2?"), options=options) == Hint(0b0110, preferred=False)


class TestPolicies:
    @pytest.mark.parametrize("policy", ["none", "best-effort"])
    def test_lenient_policies_admit_what_is_not_preferred(self, policy: str) -> None:
        assert manager(policy).merge([{"resource": hints("0?")}]).admit

    @pytest.mark.parametrize("policy", ["restricted", "single-numa-node"])
    def test_strict_policies_refuse_what_is_not_preferred(self, policy: str) -> None:
        assert not manager(policy).merge([{"resource": hints("0?")}]).admit

    def test_none_has_no_opinion(self) -> None:
        assert manager("none").merge([{"resource": hints("0")}]) == (True, Hint(None, preferred=False))

    def test_restricted_admits_several_nodes_if_they_are_preferred(self) -> None:
        assert manager("restricted").merge([{"resource": hints("0-1")}]) == (True, Hint(0b11, preferred=True))

    def test_single_numa_node_takes_the_lowest_node_that_all_prefer(self) -> None:
        assert merged(hints("1", "2", "3"), hints("2", "3", "0-1"), policy="single-numa-node") == Hint.of(2)

    def test_single_numa_node_refuses_two_nodes(self) -> None:
        single = manager("single-numa-node")

        assert single.merge([{"resource": hints("0-1")}]) == (False, Hint(None, preferred=False))
        assert single.merge([{"resource": UNSATISFIABLE}]) == (False, Hint(None, preferred=False))

    def test_single_numa_node_is_any_node_if_no_provider_has_a_preference(self) -> None:
        assert merged(None, policy="single-numa-node") == NO_PREFERENCE
        assert merged(HintList([NO_PREFERENCE, Hint.of(2)]), policy="single-numa-node") == Hint.of(2)

    def test_single_numa_node_is_any_node_on_a_machine_of_one(self) -> None:
        assert manager("single-numa-node", nodes=1).merge([{"resource": hints("0")}]) == (True, NO_PREFERENCE)

    def test_refusal_says_what_the_kubelet_says(self) -> None:
        refusal: AdmissionError = TopologyAffinityError(Hint.of(0, preferred=False))

        assert refusal.reason == "TopologyAffinityError"
        assert str(refusal) == "Resources cannot be allocated with Topology locality"


class TestLargeMachines:
    @pytest.mark.parametrize("options", [{}, CLOSEST], ids=["plain", "closest"])
    @pytest.mark.parametrize("shape", ["sockets:2,numa:17,cores:8", "sockets:4,numa:16,cores:8"])
    def test_cpus_and_two_devices_agree_on_a_node(self, shape: str, options: Mapping[str, str]) -> None:
        machine = preset(shape)
        restricted = TopologyManager.for_machine("restricted", options, machine, any_machine=True)
        cpus = cpu_hints(machine, machine.online.mask, 0, need=8)

        found = restricted.merge([{"cpu": cpus}, {"a": hints("9", "31", "33")}, {"b": hints("31", "33")}])

        assert found == (True, Hint.of(31))

    @pytest.mark.parametrize("options", [{}, CLOSEST], ids=["plain", "closest"])
    def test_cpus_of_several_nodes_are_cut_to_a_device(self, options: Mapping[str, str]) -> None:
        machine = preset("sockets:4,numa:16,cores:8")
        best = TopologyManager.for_machine("best-effort", options, machine, any_machine=True)
        cpus = cpu_hints(machine, machine.online.mask, 0, need=80)

        assert best.merge([{"cpu": cpus}, {"a": hints("60-61-62-63?", "50-51")}]).hint == Hint(
            0b1111 << 60, preferred=False
        )

    def test_far_too_many_masks_to_look_at_still_gives_a_close_one(self) -> None:
        machine = preset("sockets:4,numa:16,cores:8")
        # A node of socket 0 is full, so that ten nodes from the lowest on would cross into socket 1.
        free = machine.online.mask & ~sum(node.mask for node in machine.numa_nodes[:8])
        best = TopologyManager.for_machine("best-effort", CLOSEST, machine, any_machine=True)

        hint = best.merge([{"cpu": cpu_hints(machine, free, 0, need=80)}]).hint

        assert hint.preferred
        assert hint.affinity is not None
        assert {node // 16 for node in hint.nodes or ()} in ({1}, {2}, {3})

    def test_memory_only_nodes_belong_to_all_nodes(self) -> None:
        machine = preset("gb200")
        best = TopologyManager.for_machine("best-effort", {}, machine, any_machine=True)
        cpus = cpu_hints(machine, machine.online.mask, 0, need=100)

        assert best.merge([]).hint == Hint((1 << 34) - 1, preferred=True)
        assert best.merge([{"cpu": cpus}, {"gpu": hints("1-20")}]).hint == Hint(0b10, preferred=False)

    def test_second_description_over_many_nodes_is_refused_not_listed(self) -> None:
        machine = preset("sockets:2,numa:17,cores:2")
        best = TopologyManager.for_machine("best-effort", {}, machine, any_machine=True)
        cpus = cpu_hints(machine, machine.online.mask, 0, need=2)

        with pytest.raises(ValueError, match="34 NUMA nodes"):
            best.merge([{"cpu": cpus}, {"more": cpus}])

    def test_node_ids_with_gaps_are_looked_up_by_id(self) -> None:
        machine = Topology(
            Topology.from_rows((cpu, cpu, 0, node, 0) for cpu, node in enumerate((0, 1, 8, 9))).cpus,
            distances={
                0: {0: 10, 1: 30, 8: 30, 9: 30},
                1: {0: 30, 1: 10, 8: 30, 9: 30},
                8: {0: 30, 1: 30, 8: 10, 9: 12},
                9: {0: 30, 1: 30, 8: 12, 9: 10},
            },
        )
        best = TopologyManager.for_machine("best-effort", CLOSEST, machine)

        assert best.merge([{"cpu": cpu_hints(machine, 0b1111, 0, need=2)}]).hint == Hint.of(8, 9)
        assert best.defects == (
            (Defect.SPARSE_NODE_IDS, "distances are looked up at node ids 8-9, on a machine of 4 NUMA nodes"),
        )

    def test_defect_is_named_only_where_the_kubelet_would_hit_it(self) -> None:
        def defects(policy: str, options: Mapping[str, str], nodes: tuple[int, ...]) -> object:
            return TopologyManager.create(policy, options, nodes, {node: {node: 10} for node in nodes}).defects

        assert defects("restricted", CLOSEST, (0, 8))
        assert defects("restricted", CLOSEST, (0, 1)) == ()
        assert defects("restricted", {}, (0, 8)) == ()
        assert defects("single-numa-node", CLOSEST, (0, 8)) == ()


class TestSettings:
    def test_all_problems_are_named_with_the_kubelets_first(self) -> None:
        options = {"prefer-closest-numa-nodes": "on", "max-allowable-numa-nodes": "7", "nope": "true"}

        with pytest.raises(ConfigError) as caught:
            TopologyManager.create("Restricted", options, range(9), {})

        assert [problem.said for problem in caught.value.problems] == [
            'bad value for option "prefer-closest-numa-nodes": strconv.ParseBool: parsing "on": invalid syntax',
            'the minimum value of "max-allowable-numa-nodes" should not be less than 8',
            'unknown Topology Manager Policy option: "nope"',
            "unsupported on machines with more than 8 NUMA Nodes",
            'unknown policy: "Restricted"',
        ]

    def test_none_looks_at_no_option(self) -> None:
        assert TopologyManager.create("none", {"nope": "true"}, range(12), {}).merge([]).admit

    def test_more_nodes_are_allowed_when_raised_or_on_any_machine(self) -> None:
        raised = {"max-allowable-numa-nodes": "12"}

        assert TopologyManager.create("restricted", raised, range(12), {}).everything == 0xFFF
        assert TopologyManager.create("restricted", {}, range(12), {}, any_machine=True).everything == 0xFFF
        with pytest.raises(ConfigError, match="unsupported on machines with more than 12 NUMA Nodes; this one has 13"):
            TopologyManager.create("restricted", raised, range(13), {})

    def test_closest_needs_distances_except_on_any_machine(self) -> None:
        with pytest.raises(ConfigError, match="error getting NUMA distances from cadvisor"):
            TopologyManager.create("restricted", CLOSEST, range(2), {0: {0: 10, 1: 20}})

        lenient = TopologyManager.create("restricted", CLOSEST, range(3), {1: {2: 20}, 2: {1: 20}}, any_machine=True)
        assert lenient.merge([{"a": hints("0-1", "0-2", "1-2")}]).hint == Hint.of(1, 2)

    @pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
    def test_go_takes_these_as_true(self, text: str) -> None:
        assert go_bool(text)

    @pytest.mark.parametrize("text", ["0", "f", "F", "FALSE", "false", "False"])
    def test_go_takes_these_as_false(self, text: str) -> None:
        assert not go_bool(text)

    @pytest.mark.parametrize(
        ("text", "number"), [("8", 8), ("+08", 8), ("-1", -1), ("000", 0), ("-9223372036854775808", -(1 << 63))]
    )
    def test_go_reads_integers(self, text: str, number: int) -> None:
        assert go_int(text) == number

    @pytest.mark.parametrize("text", ["", "8.0", "0x10", " 8", "1_0", "٨", "8\n"])
    def test_go_reads_nothing_else(self, text: str) -> None:
        with pytest.raises(ValueError, match="invalid syntax"):
            go_int(text)

    @pytest.mark.parametrize("text", ["9223372036854775808", "-9223372036854775809", "9" * 5000])
    def test_go_integers_have_64_bits(self, text: str) -> None:
        with pytest.raises(ValueError, match="value out of range"):
            go_int(text)

    def test_go_quotes_what_cannot_be_printed(self) -> None:
        assert go_quote('a"\\\t\x01\x7f\u200b\U000e0001é') == r'"a\"\\\t\x01\x7f\u200b\U000e0001é"'


class TestReport:
    def test_agreement_names_each_ones_hint_and_what_was_passed_over(self) -> None:
        report = manager("restricted").explain([{"cpu": hints("1", "2", "3")}, {"gpu": hints("2", "3")}, {"nic": None}])

        assert (report.admit, report.hint, report.reason) == (True, Hint.of(2), MergeReason.AGREED)
        assert [(name, hint) for name, hint, _ in report.contributions] == [
            ("cpu", Hint.of(2)),
            ("gpu", Hint.of(2)),
            ("nic", NO_PREFERENCE),
        ]
        assert report.passed_over == (Hint.of(3),)

    def test_disagreement_names_who_prefers_what(self) -> None:
        machine = preset("sockets:2,numa:2,cores:4")
        restricted = TopologyManager.for_machine("restricted", {}, machine)
        cpus = cpu_hints(machine, 0xFF, 0, need=4)

        report = restricted.explain([{"cpu": cpus}, {"gpu": hints("3", "1-3?")}])

        assert (report.admit, report.reason, report.at_fault) == (False, MergeReason.DISAGREED, ("cpu", "gpu"))
        assert report.hint == Hint(0b0010, preferred=False)
        assert [hint for _, hint, _ in report.contributions] == [Hint.of(1), Hint.of(1, 3, preferred=False)]
        assert [preferred for _, _, preferred in report.contributions] == [(Hint.of(0), Hint.of(1)), (Hint.of(3),)]

    def test_resource_that_cannot_be_had_is_at_fault(self) -> None:
        report = manager("restricted").explain([{"cpu": UNSATISFIABLE, "gpu": hints("0?")}])

        assert (report.reason, report.at_fault) == (MergeReason.UNSATISFIABLE, ("cpu",))

    def test_resource_that_prefers_nothing_is_at_fault(self) -> None:
        restricted = manager("restricted").explain([{"cpu": hints("0", "1")}, {"gpu": hints("0?")}])
        single = manager("single-numa-node").explain([{"cpu": hints("0", "1")}, {"gpu": hints("0-1")}])

        assert (restricted.reason, restricted.at_fault) == (MergeReason.NONE_PREFERRED, ("gpu",))
        assert (single.reason, single.at_fault) == (MergeReason.NONE_PREFERRED, ("gpu",))
        assert [hint for _, hint, _ in single.contributions] == [None, None]
        assert single.passed_over == ()

    def test_nothing_to_merge_and_policy_none_say_so(self) -> None:
        assert manager().explain([{}]).reason is MergeReason.NO_PREFERENCE
        assert manager("none").explain([{"cpu": hints("0")}]).reason is MergeReason.NOT_ASKED

    @pytest.mark.parametrize("policy", ["restricted", "single-numa-node"])
    def test_large_machines_are_explained_without_a_list(self, policy: str) -> None:
        machine = preset("sockets:4,numa:16,cores:8")
        strict = TopologyManager.for_machine(policy, {}, machine, any_machine=True)
        cpus = cpu_hints(machine, machine.online.mask, 0, need=8)

        report = strict.explain([{"cpu": cpus}])
        refusal = strict.explain([{"cpu": cpus}, {"gpu": hints("3-4")}])

        assert (report.hint, report.contributions[0].hint) == (Hint.of(0), Hint.of(0))
        assert report.contributions[0].preferred == (Hint.of(0),)
        assert not refusal.admit
        assert refusal.hint.affinity == (None if policy == "single-numa-node" else 0b11000)
