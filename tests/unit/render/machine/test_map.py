import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import preset
from pinfold.core.machine.topology import Topology
from pinfold.render.machine.canvas import Look
from pinfold.render.machine.map import format_map

NAMES = [
    "laptop-4",
    "i7-12850hx",
    "xeon-2s-64",
    "xeon-8490h-2s",
    "epyc-7303-2s",
    "epyc-9654-2s-nps4",
    "gb200",
    "altra-128",
    "graviton3",
    "sockets:2,numa:4,l3:8,cores:4,threads:2",
    "sockets:1,l3:0,cores:2",
    "sockets:2,numa:1,l3:1,cores:6,threads:8",
    "sockets:1,numa:1,l3:1,cores:256,threads:2",
]
WIDTHS = [40, 60, 80, 120, 200]
COUNT = st.integers(1, 4)
IDS = st.none() | st.integers(0, 3)


def drawn(text: str) -> list[int]:
    """Return the CPUs in the boxes of a map, in the order of their numbers."""
    boxes = text.split("\n\n")[1]
    without_labels = re.sub(r"(Socket|NUMA|L3)( \d+)?|\d+ cores?", "", boxes)
    return sorted(int(number) for number in re.findall(r"\d+", without_labels))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_map_keeps_to_its_width(name: str, width: int) -> None:
    lines = format_map(preset(name), Look(width=width)).splitlines()
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_every_cpu_is_drawn_once(name: str, width: int) -> None:
    topology = preset(name)
    assert drawn(format_map(topology, Look(width=width))) == list(topology.online)


@pytest.mark.parametrize("name", NAMES)
def test_map_is_at_most_three_screens(name: str) -> None:
    assert len(format_map(preset(name), Look(width=80)).splitlines()) <= 60


@settings(deadline=None)  # the largest takes a while on a busy machine
@given(st.tuples(COUNT, COUNT, COUNT, COUNT, COUNT), st.integers(40, 200))
def test_any_regular_machine_fits(counts: tuple[int, ...], width: int) -> None:
    topology = preset("sockets:{},numa:{},l3:{},cores:{},threads:{}".format(*counts))
    text = format_map(topology, Look(width=width))
    assert max(map(len, text.splitlines())) <= width
    if "CPUs" not in text.split("\n\n")[1]:
        assert drawn(text) == list(topology.online)


@settings(deadline=None)
@given(st.lists(st.tuples(IDS, IDS, IDS, IDS), min_size=1, max_size=30), st.integers(40, 120))
def test_any_odd_machine_shows_every_cpu(rows: list[tuple[int | None, ...]], width: int) -> None:
    topology = Topology.from_rows([(cpu, *row) for cpu, row in enumerate(rows)])
    text = format_map(topology, Look(width=width))
    assert drawn(text) == list(topology.online)
    assert max(map(len, text.splitlines())) <= width


def test_groups_become_headings_when_boxes_would_be_too_long() -> None:
    text = format_map(preset("sockets:2,numa:4,l3:8,cores:4,threads:2"), Look(width=80))
    lines = text.splitlines()
    assert lines[2].startswith("━━ Socket 0 ━━")
    assert lines[3].startswith("── NUMA 0 ──")
    assert lines[4].startswith("  L3 0    0/256   1/257   2/258   3/259  ")


def test_rows_become_lists_on_the_largest_machines() -> None:
    text = format_map(preset("sockets:4,numa:4,l3:16,cores:8,threads:2"), Look(width=80))
    assert "  L3 4   8 cores  CPUs 32-39,2080-2087\n" in text
    assert "the CPUs of one core" not in text


def test_long_lists_are_broken_at_commas() -> None:
    rows = [(2 * cpu, 2 * cpu, 0, 0, cpu % 2) for cpu in range(2000)]
    text = format_map(Topology.from_rows(rows), Look(width=60))
    assert max(map(len, text.splitlines())) <= 60
    _, boxes = text.split("\n\n", 1)
    assert drawn("\n\n" + boxes.replace("\n\n", "\n")) == [row[0] for row in rows]


def test_ascii_map_is_ascii() -> None:
    text = format_map(preset("epyc-7303-2s"), Look(ascii_only=True))
    assert text.isascii()
    assert "+- Socket 0, NUMA 0 ---" in text


def test_ascii_headings_are_ascii() -> None:
    text = format_map(preset("sockets:2,numa:4,l3:8,cores:4,threads:2"), Look(ascii_only=True))
    assert text.isascii()
    assert "\n== Socket 0 ===" in text


def test_colour_changes_nothing_but_colour() -> None:
    for name in NAMES:
        coloured = format_map(preset(name), Look(colour=True))
        assert re.sub("\x1b\\[[0-9;]*m", "", coloured) == format_map(preset(name))
        assert "\x1b" in coloured


def test_styles_colour_single_cpus() -> None:
    text = format_map(preset("cores:3"), Look(colour=True, styles={1: "35"}))
    assert "\x1b[35m1\x1b[0m" in text


def test_isolated_and_offline_cpus_can_be_told_without_colour() -> None:
    rows = preset("cores:4,threads:2").cpus[:-1]
    text = format_map(Topology(rows, offline=CPUSet.of(7), isolated=CPUSet.of(1, 5)))
    assert "1!/5!" in text
    assert "! Isolated: 1,5\n" in text
    assert "Offline: 7 (location unknown)\n" in text


def test_legend_is_left_out_when_there_is_nothing_to_explain() -> None:
    text = format_map(preset("graviton3"))
    assert text.endswith("╯\n")


def test_unknown_is_said() -> None:
    text = format_map(Topology.from_rows([(cpu, None, None, None, None) for cpu in range(2)]))
    assert text.splitlines() == [
        "sockets unknown · NUMA nodes unknown · L3 unknown · cores unknown · 2 CPUs",
        "",
        "╭─ Machine ─╮",
        "│ 0  1      │",
        "╰───────────╯",
        "",
        "CPUs with an unknown core are drawn as separate cores",
    ]


def test_memory_only_nodes_are_listed() -> None:
    assert "NUMA nodes without CPUs: 2-33\n" in format_map(preset("gb200"))


@pytest.mark.parametrize(
    ("name", "width", "part"),
    [
        ("epyc-7303-2s", 80, "NUMA distances: 10 to itself, 32 to any other\n"),
        ("xeon-8490h-2s", 80, "\n       0   1   2   3\n   0  10  12  32  32\n   1  12  10  32  32\n"),
        ("gb200", 200, "NUMA distances: 10 to itself, 40 to 160 to any other\n"),
    ],
    ids=["a sentence if it says all", "else a matrix", "a range if there are too many"],
)
def test_distances_are_shown_compactly(name: str, width: int, part: str) -> None:
    assert part in format_map(preset(name), Look(width=width))


def test_incomplete_distances_leave_holes_in_the_matrix() -> None:
    rows = [(cpu, cpu, 0, cpu, None) for cpu in range(2)]
    topology = Topology(Topology.from_rows(rows).cpus, distances={0: {0: 10, 1: 21}})
    assert "\n   0  10  21\n   1   -   -\n" in format_map(topology)


def test_one_node_has_no_distances() -> None:
    assert "distance" not in format_map(preset("altra-128"))


def test_summary_is_broken_between_its_parts_only() -> None:
    lines = format_map(preset("gb200"), Look(width=60)).splitlines()
    assert lines[:2] == ["2 sockets · 34 NUMA nodes (32 memory-only) · 2 L3 ·", "144 cores · 144 CPUs, no SMT"]


def test_machine_without_cpus_is_one_line() -> None:
    assert format_map(Topology(())).count("\n") == 1
