import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.devices import Device, DeviceKind
from pinfold.core.machine.layout import GroupKind, layout, layout_data
from pinfold.core.machine.presets import preset, preset_names
from pinfold.core.machine.summary import remarks, summary
from pinfold.core.machine.topology import Facts, Topology
from pinfold.render.machine.map import format_map
from pinfold.render.machine.svg import format_svg

S, N, U = GroupKind.SOCKET, GroupKind.NUMA, GroupKind.UNCORE
IDS = st.none() | st.integers(0, 3)
ROWS = st.lists(st.tuples(IDS, IDS, IDS, IDS), min_size=1, max_size=24)


def machine(rows: list[tuple[int | None, ...]]) -> Topology:
    return Topology.from_rows([(cpu, *row) for cpu, row in enumerate(rows)])


@pytest.mark.parametrize(
    ("name", "levels"),
    [
        pytest.param("laptop-4", ((S, N, U),), id="one of everything is one box"),
        pytest.param("epyc-7303-2s", ((S, N), (U,)), id="one NUMA node for each socket is the socket's box"),
        pytest.param("epyc-9654-2s-nps4", ((S,), (N,), (U,)), id="all kinds apart"),
        pytest.param("xeon-8490h-2s", ((S, U), (N,)), id="a cache that spans NUMA nodes is outside"),
        pytest.param("sockets:1,l3:0,cores:2", ((S, N),), id="no cache, no box"),
    ],
)
def test_nesting_follows_the_machine(name: str, levels: tuple[tuple[GroupKind, ...], ...]) -> None:
    assert layout(preset(name)).levels == levels


def test_numa_node_that_spans_sockets_is_outside_of_them() -> None:
    rows = [(c, c, c // 2, c // 4, c // 2) for c in range(8)]
    assert layout(Topology.from_rows(rows)).levels == ((N,), (S, U))


def test_cache_that_spans_sockets_is_outside_of_them() -> None:
    rows = [(c, c, c // 4, None, 0) for c in range(8)]
    assert layout(Topology.from_rows(rows)).levels == ((U,), (S,))


def test_groups_that_cross_are_drawn_in_parts_and_say_so() -> None:
    rows = [(c, c, c // 4, (c + 2) // 4, None) for c in range(8)]
    labels = [box.label for outer in layout(Topology.from_rows(rows)).boxes for box in outer.boxes]
    assert labels == ["NUMA 0", "NUMA 1 (part)", "NUMA 1 (part)", "NUMA 2"]


def test_cpus_of_unknown_group_come_last_in_a_box_that_says_unknown() -> None:
    rows = [(0, 0, 0, 0, None), (1, 1, 0, 0, 5), (2, 2, 0, 0, 5)]
    (outer,) = layout(Topology.from_rows(rows)).boxes
    assert [box.label for box in outer.boxes] == ["L3 5", "L3 unknown"]


def test_machine_that_says_nothing_is_one_box() -> None:
    (box,) = layout(Topology.from_rows([(c, None, None, None, None) for c in range(4)])).boxes
    assert (box.label, box.cores) == ("Machine", ((0,), (1,), (2,), (3,)))


def test_without_merge_every_kind_has_its_own_level() -> None:
    assert layout(preset("laptop-4"), merge=False).levels == ((S,), (N,), (U,))


@settings(deadline=None)
@given(ROWS)
def test_every_cpu_is_in_exactly_one_innermost_box(rows: list[tuple[int | None, ...]]) -> None:
    topology = machine(rows)
    cpus = [c for box in layout(topology).boxes for leaf in box.leaves() for core in leaf.cores for c in core]
    assert sorted(cpus) == list(topology.online)


@settings(deadline=None)
@given(ROWS)
def test_a_box_holds_what_its_boxes_hold(rows: list[tuple[int | None, ...]]) -> None:
    for box in layout(machine(rows)).boxes:
        inner = sorted(c for leaf in box.leaves() for core in leaf.cores for c in core)
        assert inner == sorted(c for core in box.cores for c in core)


@settings(deadline=None)
@given(ROWS)
def test_a_box_without_part_in_its_label_holds_the_whole_group(rows: list[tuple[int | None, ...]]) -> None:
    topology = machine(rows)
    groups = {S: topology.sockets, N: topology.numa_nodes, U: topology.uncore_caches}
    plan = layout(topology)
    for depth in range(len(plan.levels)):
        for box in plan.at(depth):
            cpus = CPUSet.from_cpus(c for core in box.cores for c in core)
            for name in box.names:
                if name.id is not None:
                    (group,) = (group for group in groups[name.kind] if group.id == name.id)
                    assert (group.cpus == cpus) == name.whole


@pytest.mark.parametrize(
    ("topology", "line"),
    [
        (preset("sockets:1,cores:1,threads:1"), "1 socket · 1 NUMA node · 1 L3 · 1 core · 1 CPU, no SMT"),
        (preset("i7-12850hx"), "1 socket · 1 NUMA node · 1 L3 · 16 cores · 24 CPUs, SMT1-2"),
        (preset("gb200"), "2 sockets · 34 NUMA nodes (32 memory-only) · 2 L3 · 144 cores · 144 CPUs, no SMT"),
        (preset("sockets:1,l3:0,cores:2"), "1 socket · 1 NUMA node · L3 unknown · 2 cores · 2 CPUs, no SMT"),
        (
            Topology.from_rows([(0, None, None, None, None)]),
            "sockets unknown · NUMA nodes unknown · L3 unknown · cores unknown · 1 CPU",
        ),
        (
            Topology.from_rows([(0, 0, 0, 0, 0), (1, 1, 0, 0, None)]),
            "1 socket · 1 NUMA node · 1 L3 + unknown · 2 cores · 2 CPUs, no SMT",
        ),
        (
            Topology(preset("cores:2").cpus, offline=CPUSet.of(2, 3), isolated=CPUSet.of(1)),
            "1 socket · 1 NUMA node · 1 L3 · 2 cores · 2 CPUs, no SMT, 2 offline, 1 isolated",
        ),
    ],
    ids=["singular", "hybrid", "memory-only nodes", "no cache", "nothing known", "partly known", "offline, isolated"],
)
def test_summary_says_what_there_is(topology: Topology, line: str) -> None:
    assert summary(topology) == line


@pytest.mark.parametrize("name", preset_names())
def test_presets_have_no_part_boxes(name: str) -> None:
    plan = layout(preset(name))
    assert all(n.whole for depth in range(len(plan.levels)) for box in plan.at(depth) for n in box.names)


def test_remarks_name_what_boxes_do_not_show() -> None:
    topology = Topology(
        (*Topology.from_rows([(0, 0, 0, 0, 0), (1, None, 0, 0, 0)]).cpus,),
        offline=CPUSet.of(2),
        isolated=CPUSet.of(1),
        memory_only=(1, 2, 3, 2_000_000_000),
    )
    assert [remark.about for remark in remarks(topology)] == ["isolated", "offline", "memory", "cores"]
    assert remarks(topology)[2].text == "NUMA nodes without CPUs: 1-3,2000000000"


def test_ordinary_machine_needs_no_remarks() -> None:
    assert remarks(preset("epyc-7303-2s")) == []


@given(ROWS)
def test_data_for_a_picture_has_every_cpu_once_in_an_innermost_box(rows: list[tuple[int | None, ...]]) -> None:
    def cpus(box: dict[str, Any]) -> list[int]:
        return [cpu for inner in box["boxes"] for cpu in cpus(inner)] + [cpu for core in box["cores"] for cpu in core]

    data: dict[str, Any] = layout_data(machine(rows))
    assert sorted(cpu for box in data["boxes"] for cpu in cpus(box)) == [*range(len(rows))]
    assert json.loads(json.dumps(data)) == data


def test_data_for_a_picture_tells_what_is_in_no_box() -> None:
    data = layout_data(Topology.from_groups(Facts(online=1, offline=6, numa_nodes={0: 1, 4: 0})))
    assert (data["offline"], data["memory_only"]) == ("1-2", [4])


def test_map_picture_and_page_say_at_which_numa_node_devices_are() -> None:
    devices = (Device("eth0", DeviceKind.NETWORK, 1), Device("nvme0", DeviceKind.NVME, None))
    topology = replace(preset("sockets:2,cores:2"), devices=devices)
    said = ["NUMA 1: eth0", "unknown NUMA node: nvme0"]
    assert layout_data(topology)["devices"] == said
    for text in (format_map(topology), format_svg(topology)):
        assert f"Devices: {'; '.join(said)}" in text
