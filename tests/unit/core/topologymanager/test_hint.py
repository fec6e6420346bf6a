from __future__ import annotations

import pytest

from pinfold.core.machine.presets import preset
from pinfold.core.machine.topology import Topology
from pinfold.core.topologymanager.cpu import CPUHints, SocketRule, cpu_hints, hints_for_assigned
from pinfold.core.topologymanager.hint import UNSATISFIABLE, Hint, HintList

FOUR_NODES = preset("sockets:2,numa:2,cores:4,threads:2")  # nodes of 8 CPUs: 0-3 with 16-19, and so on
ALL = FOUR_NODES.online.mask
GAPPED = Topology.from_rows((cpu, cpu, cpu // 8, {0: 0, 1: 1, 2: 8, 3: 9}[cpu // 4], 0) for cpu in range(16))


def shown(hints: object) -> list[str]:
    assert isinstance(hints, (HintList, CPUHints))
    return [str(hint) for hint in hints]


class TestHint:
    def test_nodes_are_listed_by_id(self) -> None:
        assert Hint.of(8, 0, 3).nodes == [0, 3, 8]

    def test_any_node_is_not_the_same_as_no_node(self) -> None:
        assert Hint(None, preferred=True).nodes is None
        assert Hint.of().nodes == []
        assert str(Hint.of(preferred=False)) == "NUMA none"


class TestHintList:
    def test_index_keeps_distinct_masks_and_the_preferred_ones(self) -> None:
        hints = HintList([Hint.of(0, 1), Hint.of(1, preferred=False), Hint.of(1), Hint.of(1), Hint.of(2)])

        assert hints.masks == {0b11, 0b10, 0b100}
        assert hints.preferred == {0b11, 0b10, 0b100}
        assert (hints.singles, hints.narrowest) == (0b110, 1)
        assert (hints.has_any, hints.any_preferred) == (False, False)

    def test_any_node_counts_apart_from_masks(self) -> None:
        hints = HintList([Hint(None, preferred=False), Hint.of(0, 1)])

        assert (hints.has_any, hints.any_preferred, hints.narrowest) == (True, False, 2)
        assert hints.masks == {0b11}

    def test_without_masks_the_narrowest_is_zero(self) -> None:
        assert HintList([Hint(None, preferred=True)]).narrowest == 0

    def test_empty_list_cannot_be_satisfied(self) -> None:
        assert not UNSATISFIABLE
        assert HintList([]) == UNSATISFIABLE

    def test_order_is_kept(self) -> None:
        hints = [Hint.of(1), Hint.of(0), Hint.of(1)]

        assert list(HintList(iter(hints))) == hints
        assert len(HintList(hints)) == 3


class TestCPUHints:
    def test_order_is_by_size_then_by_node_ids(self) -> None:
        hints = cpu_hints(GAPPED, GAPPED.online.mask, 0, need=5)

        assert shown(hints) == [
            "NUMA 0-1, preferred",
            "NUMA 0,8, preferred",
            "NUMA 0,9, preferred",
            "NUMA 1,8, preferred",
            "NUMA 1,9, preferred",
            "NUMA 8-9, preferred",
            "NUMA 0-1,8",
            "NUMA 0-1,9",
            "NUMA 0,8-9",
            "NUMA 1,8-9",
            "NUMA 0-1,8-9",
        ]

    def test_single_node_machine_has_one_hint(self) -> None:
        assert shown(cpu_hints(preset("laptop-4"), 0b1111, 0, need=2)) == ["NUMA 0, preferred"]

    def test_preferred_size_follows_from_all_cpus_not_from_the_free_ones(self) -> None:
        two_free_in_each = 0x3333

        hints = cpu_hints(FOUR_NODES, two_free_in_each, 0, need=8)

        assert shown(hints) == ["NUMA 0-3"]
        assert hints.preferred_count == 1
        assert hints.lowest_preferred() == 0

    def test_more_than_is_free_cannot_be_satisfied(self) -> None:
        hints = cpu_hints(FOUR_NODES, ALL, 0, need=33)

        assert not hints
        assert (shown(hints), hints.narrowest, hints.singles, hints.lowest_preferred()) == ([], 0, 0, 0)

    def test_nodes_of_reusable_cpus_are_in_every_hint(self) -> None:
        hints = cpu_hints(GAPPED, 0xFFFF, reusable=1 << 8, need=4)

        assert len(shown(hints)) == 8
        assert all(hint.affinity is not None and hint.affinity >> 8 & 1 for hint in hints)

    def test_reusable_cpus_that_are_also_available_count_twice(self) -> None:
        hints = cpu_hints(GAPPED, available=0b0111, reusable=0b0011, need=5)

        assert not cpu_hints(GAPPED, available=0b0111, reusable=0b0011, need=6)
        assert shown(hints)[0] == "NUMA 0"
        assert hints.preferred_count == 2

    def test_align_by_socket_also_prefers_masks_within_the_fewest_sockets(self) -> None:
        hints = cpu_hints(FOUR_NODES, ALL, 0, need=8, align_by_socket=True)

        assert [str(hint) for hint in hints if hint.preferred and len(hint.nodes or ()) == 2] == [
            "NUMA 0-1, preferred",
            "NUMA 2-3, preferred",
        ]

    def test_align_by_socket_does_nothing_where_nodes_span_sockets(self) -> None:
        one_node = Topology.from_rows((cpu, cpu, cpu // 4, 0, 0) for cpu in range(8))

        assert cpu_hints(one_node, 0xFF, 0, need=2, align_by_socket=True).socket_rule is None

    def test_widened_within_a_socket_when_no_smallest_mask_has_room(self) -> None:
        five_free_in_each = sum(0b1_0000_0000_0000_1111 << 4 * node for node in range(4))

        hints = cpu_hints(FOUR_NODES, five_free_in_each & ~0b1111, 0, need=8, align_by_socket=True)

        assert hints.lowest_preferred() == 0b1100

    @pytest.mark.parametrize("sockets", [2, 4], ids=["2-sockets", "4-sockets"])
    def test_sixty_four_nodes_are_answered_without_a_list(self, sockets: int) -> None:
        machine = preset(f"sockets:{sockets},numa:{64 // sockets},cores:4")
        three_free_in_each = 0x7777777777777777777777777777777777777777777777777777777777777777

        hints = cpu_hints(machine, three_free_in_each, 0, need=8, align_by_socket=True)

        assert hints.narrowest == 3
        assert hints.lowest_preferred() == 0b111
        assert hints.lowest(3, hints.everything & ~1) == 0b1110

    def test_more_than_sixteen_nodes_are_not_listed(self) -> None:
        machine = preset("sockets:1,numa:17,cores:2")
        hints = cpu_hints(machine, machine.online.mask, 0, need=4)

        assert not hints.listable
        with pytest.raises(ValueError, match="17 NUMA nodes have too many masks to be listed; at most 16"):
            iter(hints)

    def test_sixteen_nodes_are_listed(self) -> None:
        machine = preset("sockets:2,numa:8,cores:2")

        hints = list(cpu_hints(machine, machine.online.mask, 0, need=4))

        assert len(hints) == 2**16 - 1 - 16
        assert [str(hint) for hint in hints[:2]] == ["NUMA 0-1, preferred", "NUMA 0,2, preferred"]

    def test_sockets_are_tried_where_nodes_cannot_be_listed(self) -> None:
        free = (1,) * 6 + (2, 1, 2, 1, 1, 1) + (1,) * 6
        rule = SocketRule(tuple(1 << node // 6 for node in range(18)), spans=1)

        hints = CPUHints(tuple(range(18)), free, need=7, preferred_count=2, socket_rule=rule)

        assert hints.lowest_preferred() == sum(1 << node for node in (6, 7, 8, 9, 10))


class TestAssigned:
    def test_same_cpus_are_found_again(self) -> None:
        assert shown(hints_for_assigned(FOUR_NODES, 0b11 << 4, need=2)) == [
            "NUMA 1, preferred",
            "NUMA 0-1",
            "NUMA 1-2",
            "NUMA 1,3",
            "NUMA 0-2",
            "NUMA 0-1,3",
            "NUMA 1-3",
            "NUMA 0-3",
        ]

    def test_another_number_of_cpus_cannot_be_satisfied(self) -> None:
        assert hints_for_assigned(FOUR_NODES, 0b111, need=2) is UNSATISFIABLE

    def test_align_by_socket_counts_for_assigned_cpus_too(self) -> None:
        assert shown(hints_for_assigned(FOUR_NODES, 0b11, need=2, align_by_socket=True))[:2] == [
            "NUMA 0, preferred",
            "NUMA 0-1, preferred",
        ]
