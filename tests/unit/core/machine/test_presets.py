from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pinfold.core.machine.cpuset import EMPTY
from pinfold.core.machine.presets import LEVELS, preset, preset_names
from pinfold.errors import ParseError

if TYPE_CHECKING:
    from pinfold.core.machine.topology import Group, Topology


class Size(NamedTuple):
    sockets: int
    numa: int
    l3: int
    cores: int
    cpus: int


# Written by hand from the makers' data sheets, not from the code.
MACHINES = {
    "altra-128": Size(sockets=1, numa=1, l3=16, cores=128, cpus=128),
    "epyc-7303-2s": Size(sockets=2, numa=2, l3=8, cores=32, cpus=64),
    "epyc-7303-2s-nosmt": Size(sockets=2, numa=2, l3=8, cores=32, cpus=32),
    "epyc-7702p": Size(sockets=1, numa=1, l3=16, cores=64, cpus=128),
    "epyc-7702p-nosmt": Size(sockets=1, numa=1, l3=16, cores=64, cpus=64),
    "epyc-9654-2s": Size(sockets=2, numa=2, l3=24, cores=192, cpus=384),
    "epyc-9654-2s-nosmt": Size(sockets=2, numa=2, l3=24, cores=192, cpus=192),
    "epyc-9654-2s-nps2": Size(sockets=2, numa=4, l3=24, cores=192, cpus=384),
    "epyc-9654-2s-nps2-nosmt": Size(sockets=2, numa=4, l3=24, cores=192, cpus=192),
    "epyc-9654-2s-nps4": Size(sockets=2, numa=8, l3=24, cores=192, cpus=384),
    "epyc-9654-2s-nps4-nosmt": Size(sockets=2, numa=8, l3=24, cores=192, cpus=192),
    "epyc-9754": Size(sockets=1, numa=1, l3=16, cores=128, cpus=256),
    "gb200": Size(sockets=2, numa=2, l3=2, cores=144, cpus=144),
    "graviton3": Size(sockets=1, numa=1, l3=1, cores=64, cpus=64),
    "i7-12850hx": Size(sockets=1, numa=1, l3=1, cores=16, cpus=24),
    "laptop-4": Size(sockets=1, numa=1, l3=1, cores=2, cpus=4),
    "xeon-2s-64": Size(sockets=2, numa=2, l3=2, cores=32, cpus=64),
    "xeon-8490h-2s": Size(sockets=2, numa=4, l3=2, cores=120, cpus=240),
    "xeon-8490h-2s-snc4": Size(sockets=2, numa=8, l3=2, cores=120, cpus=240),
}
every_preset = pytest.mark.parametrize("name", preset_names())
counts = st.integers(1, 3)
# A busy machine may take its time.
untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def size(machine: Topology) -> Size:
    groups = machine.sockets, machine.numa_nodes, machine.uncore_caches, machine.cores, machine.cpus
    return Size(*map(len, groups))


def inside(inner: tuple[Group, ...], outer: tuple[Group, ...]) -> list[int]:
    """Return how many inner groups lie in each outer one; each inner one must lie in one as a whole."""
    assert all(any(not group.mask & ~around.mask for around in outer) for group in inner)
    return [sum(not group.mask & ~around.mask for group in inner) for around in outer]


def assert_distances_are_sound(machine: Topology) -> None:
    distances = machine.distances
    nodes = {node.id for node in machine.numa_nodes} | {*machine.memory_only}
    assert distances.keys() == nodes
    assert all(row.keys() == nodes for row in distances.values())
    assert all(distances[node][node] == 10 for node in nodes)
    assert all(distances[a][b] == distances[b][a] > 10 for a in nodes for b in nodes if a != b)


# Built-in machines.


def test_every_preset_is_in_the_table() -> None:
    assert preset_names() == sorted(MACHINES)


@pytest.mark.parametrize("name", MACHINES)
def test_preset_has_what_its_name_promises(name: str) -> None:
    assert size(preset(name)) == MACHINES[name]


@every_preset
def test_preset_says_everything_of_every_cpu_and_warns_of_nothing(name: str) -> None:
    machine = preset(name)
    assert all(None not in row for row in machine.cpus)
    assert machine.warnings == ()
    assert (machine.offline, machine.isolated) == (EMPTY, EMPTY)
    assert [row.cpu for row in machine.cpus] == list(range(len(machine.cpus)))


@every_preset
def test_distances_of_a_preset_are_symmetric_with_10_on_the_diagonal(name: str) -> None:
    assert_distances_are_sound(preset(name))


@every_preset
def test_groups_of_a_preset_nest(name: str) -> None:
    machine = preset(name)
    assert len({*inside(machine.numa_nodes, machine.sockets)}) == 1
    assert len({*inside(machine.uncore_caches, machine.sockets)}) == 1
    assert sum(inside(machine.cores, machine.uncore_caches)) == len(machine.cores)
    assert sum(inside(machine.cores, machine.numa_nodes)) == len(machine.cores)


@pytest.mark.parametrize(
    ("name", "caches", "cores"),
    [
        ("epyc-7303-2s", 4, 4),
        ("epyc-7702p", 16, 4),
        ("epyc-9754", 16, 8),
        ("epyc-9654-2s", 12, 8),
        ("epyc-9654-2s-nps2", 6, 8),
        ("epyc-9654-2s-nps4", 3, 8),
        ("altra-128", 16, 8),
        ("graviton3", 1, 64),
    ],
)
def test_numa_node_holds_so_many_caches_and_each_of_them_so_many_cores(name: str, caches: int, cores: int) -> None:
    machine = preset(name)
    assert {*inside(machine.uncore_caches, machine.numa_nodes)} == {caches}
    assert {*inside(machine.cores, machine.uncore_caches)} == {cores}


@pytest.mark.parametrize(("name", "nodes", "cores"), [("xeon-8490h-2s", 2, 30), ("xeon-8490h-2s-snc4", 4, 15)])
def test_sub_numa_clusters_share_the_cache_of_their_socket(name: str, nodes: int, cores: int) -> None:
    machine = preset(name)
    assert inside(machine.numa_nodes, machine.uncore_caches) == [nodes, nodes]
    assert {*inside(machine.cores, machine.numa_nodes)} == {cores}


@pytest.mark.parametrize("name", [name for name in MACHINES if f"{name}-nosmt" in MACHINES])
def test_machine_without_smt_is_the_same_with_the_first_cpu_of_every_core(name: str) -> None:
    with_smt, without = preset(name), preset(f"{name}-nosmt")
    assert {core.cpus.lowest for core in with_smt.cores} == {*without.online}
    assert without.cpus == with_smt.cpus[: len(without.cpus)]
    assert (with_smt.threads_per_core, without.threads_per_core) == (2, 1)


def test_hybrid_machine_has_8_cores_of_two_adjacent_cpus_and_then_8_of_one() -> None:
    cores = [str(core.cpus) for core in preset("i7-12850hx").cores]
    assert cores == [*(f"{cpu}-{cpu + 1}" for cpu in range(0, 16, 2)), *map(str, range(16, 24))]


def test_gb200_has_34_numa_nodes_of_which_2_have_cpus() -> None:
    machine = preset("gb200")
    assert [str(node.cpus) for node in machine.numa_nodes] == ["0-71", "72-143"]
    assert machine.memory_only == tuple(range(2, 34))
    assert len(machine.distances) == 34


def test_memory_of_a_gpu_of_gb200_is_nearer_to_its_own_socket() -> None:
    distances = preset("gb200").distances
    assert all(distances[0][node] < distances[1][node] for node in range(2, 18))
    assert all(distances[1][node] < distances[0][node] for node in range(18, 34))


@pytest.mark.parametrize("name", ["laptop-4", "gb200", "i7-12850hx", "sockets:2,cores:2"])
def test_presets_asked_for_twice_are_equal(name: str) -> None:
    assert preset(name) == preset(name)


# Shapes.


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("cores:4", Size(sockets=1, numa=1, l3=1, cores=4, cpus=4)),
        ("threads:4", Size(sockets=1, numa=1, l3=1, cores=1, cpus=4)),
        ("sockets:3", Size(sockets=3, numa=3, l3=3, cores=3, cpus=3)),
        ("numa:3", Size(sockets=1, numa=3, l3=3, cores=3, cpus=3)),
        ("l3:3", Size(sockets=1, numa=1, l3=3, cores=3, cpus=3)),
        ("sockets:2,l3:4,cores:4", Size(sockets=2, numa=2, l3=8, cores=32, cpus=32)),
        ("sockets:2,numa:2,cores:4", Size(sockets=2, numa=4, l3=4, cores=16, cpus=16)),
        ("sockets:2,cores:4,threads:8", Size(sockets=2, numa=2, l3=2, cores=8, cpus=64)),
        ("sockets:2,numa:2,l3:3,cores:1", Size(sockets=2, numa=4, l3=12, cores=12, cpus=12)),
        ("sockets:2,l3:3,numa:2,cores:1", Size(sockets=2, numa=12, l3=6, cores=12, cpus=12)),
        ("sockets:00002", Size(sockets=2, numa=2, l3=2, cores=2, cpus=2)),
    ],
)
def test_what_a_shape_leaves_out_is_there_once(shape: str, expected: Size) -> None:
    assert size(preset(shape)) == expected


@untimed
@given(sockets=counts, numa=counts, l3=counts, cores=counts, threads=counts)
def test_numa_named_before_l3_is_around_it(sockets: int, numa: int, l3: int, cores: int, threads: int) -> None:
    machine = preset(f"sockets:{sockets},numa:{numa},l3:{l3},cores:{cores},threads:{threads}")
    assert inside(machine.numa_nodes, machine.sockets) == [numa] * sockets
    assert inside(machine.uncore_caches, machine.numa_nodes) == [l3] * sockets * numa
    assert inside(machine.cores, machine.uncore_caches) == [cores] * sockets * numa * l3
    assert {len(core.cpus) for core in machine.cores} == {threads}
    assert_distances_are_sound(machine)


@untimed
@given(sockets=counts, numa=counts, l3=counts, cores=counts, threads=counts)
def test_l3_named_before_numa_is_around_it(sockets: int, numa: int, l3: int, cores: int, threads: int) -> None:
    machine = preset(f"sockets:{sockets},l3:{l3},numa:{numa},cores:{cores},threads:{threads}")
    assert inside(machine.uncore_caches, machine.sockets) == [l3] * sockets
    assert inside(machine.numa_nodes, machine.uncore_caches) == [numa] * sockets * l3
    assert inside(machine.cores, machine.numa_nodes) == [cores] * sockets * numa * l3
    assert {len(core.cpus) for core in machine.cores} == {threads}
    assert_distances_are_sound(machine)


def test_one_thread_of_every_core_is_numbered_before_the_other_threads() -> None:
    assert [str(core.cpus) for core in preset("sockets:2,cores:2,threads:3").cores] == [
        "0,4,8",
        "1,5,9",
        "2,6,10",
        "3,7,11",
    ]


def test_ids_count_from_0_in_the_order_of_the_cpus() -> None:
    machine = preset("sockets:2,numa:2,l3:2,cores:1")
    assert [row[2:] for row in machine.cpus] == [(c // 4, c // 2, c) for c in range(8)]


def test_shape_without_l3_says_nothing_of_caches() -> None:
    machine = preset("sockets:2,l3:0,cores:2")
    assert {row.uncore for row in machine.cpus} == {None}
    assert size(machine) == Size(sockets=2, numa=2, l3=2, cores=4, cpus=4)


def test_numa_nodes_of_one_socket_are_nearer_than_those_of_another() -> None:
    assert preset("sockets:2,numa:2").distances[0] == {0: 10, 1: 12, 2: 32, 3: 32}


EXPECTED = f"expected LEVEL:COUNT with each level once, of {', '.join(LEVELS)}"
ORDER = f"levels go from the outside in: {', '.join(LEVELS)} (numa and l3 either way)"


@pytest.mark.parametrize(
    ("shape", "at", "problem"),
    [
        (":", 0, EXPECTED),
        ("sockets:", 0, EXPECTED),
        (":2", 0, EXPECTED),
        ("sockets:x", 0, EXPECTED),
        ("sockets:-1", 0, EXPECTED),
        ("sockets:1.5", 0, EXPECTED),
        ("sockets:٣", 0, EXPECTED),
        ("sockets:2\n", 0, EXPECTED),
        ("sockets:100000", 0, EXPECTED),
        ("Sockets:2", 0, EXPECTED),
        (" sockets:2", 0, EXPECTED),
        ("sockets:2:3", 0, EXPECTED),
        ("sockets:2,", 10, EXPECTED),
        ("sockets:2,,cores:2", 10, EXPECTED),
        ("sockets:2, cores:2", 10, EXPECTED),
        ("sockets:2,boxes:3", 10, EXPECTED),
        ("cores:2,cores:2", 8, EXPECTED),
        ("sockets:2,threads", 10, EXPECTED),
        ("sockets:0", 0, "a machine has at least one of sockets"),
        ("sockets:1,numa:0", 10, "a machine has at least one of numa"),
        ("sockets:1,threads:00", 10, "a machine has at least one of threads"),
        ("cores:2,sockets:2", 0, ORDER),
        ("threads:2,cores:2", 0, ORDER),
        ("numa:2,sockets:2", 0, ORDER),
        ("sockets:2,cores:2,numa:2", 0, ORDER),
        ("cores:2,l3:2", 0, ORDER),
        ("sockets:2,cores:65535", 0, "131,070 CPUs are more than 65,536"),
        ("sockets:65536,cores:2", 0, "131,072 CPUs are more than 65,536"),
        ("sockets:99999,numa:99999,l3:99999,cores:99999", 0, f"{99999**4:,} CPUs are more than 65,536"),
    ],
)
def test_what_is_no_shape_is_refused_at_its_column(shape: str, at: int, problem: str) -> None:
    with pytest.raises(ParseError) as caught:
        preset(shape)
    assert (caught.value.problem, caught.value.at, caught.value.text) == (problem, at, shape)


@pytest.mark.parametrize("name", ["epyc-9645-2s", "EPYC-9654-2S", "epyc9654", "epyc-9654-2s "])
def test_name_that_is_nearly_right_is_answered_with_the_right_one(name: str) -> None:
    with pytest.raises(ParseError, match=r"unknown machine .*; try .*epyc-9654"):
        preset(name)


@pytest.mark.parametrize("name", ["", "x", "\0", "\n", "\ud800", "9" * 1_000_000], ids=lambda name: ascii(name[:10]))
def test_name_that_is_nothing_is_refused_in_one_short_line(name: str) -> None:
    with pytest.raises(ParseError) as caught:
        preset(name)
    assert "unknown machine" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300
