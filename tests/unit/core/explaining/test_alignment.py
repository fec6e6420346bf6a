from __future__ import annotations

import pytest

from pinfold.core.explaining.alignment import Level, Ruler
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import preset
from pinfold.core.machine.topology import Topology

CACHES = preset("sockets:2,numa:1,l3:2,cores:4,threads:2")  # 32 CPUs; caches of 8: 0-3,16-19 … 12-15,28-31


def test_cpus_of_one_core_stay_within_every_group_around_it() -> None:
    alignment = Ruler(CACHES).measure(CPUSet.parse("5,21"))
    assert alignment.is_aligned
    assert [span.ids for span in alignment] == [(5,), (1,), (0,), (0,)]


@pytest.mark.parametrize(
    ("cpus", "crossed"),
    [
        ("0-1", (Level.CORE,)),
        ("3-4,19-20", (Level.UNCORE,)),
        ("7-8,23-24", (Level.UNCORE, Level.NUMA, Level.SOCKET)),
        ("0-7,16-23", ()),
        ("4-11,20-27", (Level.NUMA, Level.SOCKET)),
    ],
)
def test_needless_groups_are_named(cpus: str, crossed: tuple[Level, ...]) -> None:
    assert Ruler(CACHES).measure(CPUSet.parse(cpus)).crossed == crossed


def test_what_no_single_group_can_hold_is_not_spread_needlessly() -> None:
    assert Ruler(CACHES).measure(CPUSet.parse("0-4,16-19")).uncore.is_aligned


def test_reserved_cpus_are_no_room() -> None:
    seven = CPUSet.parse("1-4,17-19")
    assert not Ruler(preset("l3:2,cores:4,threads:2")).measure(CPUSet.parse("1-4,9-11")).uncore.is_aligned
    only_seven_a_cache = CACHES.online - CPUSet.of(0, 4, 8, 12)
    eight = seven | CPUSet.of(20)
    assert Ruler(CACHES, only_seven_a_cache).measure(eight).uncore.is_aligned


def test_no_cpus_touch_nothing() -> None:
    alignment = Ruler(CACHES).measure(CPUSet())
    assert alignment.is_aligned
    assert all(not span.ids for span in alignment)


def test_more_than_there_is_needs_every_group() -> None:
    assert Ruler(CACHES).fewest(Level.UNCORE, 1000) == 4


def test_an_empty_node_is_not_fragmented() -> None:
    left = Ruler(CACHES).leftover(CACHES.online)
    assert left.fragmentation == 0
    assert left.largest == {Level.CORE: 2, Level.UNCORE: 8, Level.NUMA: 16, Level.SOCKET: 16}


def test_a_full_node_is_not_fragmented() -> None:
    assert Ruler(CACHES).leftover(CPUSet()).fragmentation == 0


def test_half_a_core_breaks_its_core_its_cache_and_its_node() -> None:
    left = Ruler(CACHES).leftover(CACHES.online - CPUSet.of(0))
    assert left.broken == {
        Level.CORE: pytest.approx(1 / 31),
        Level.UNCORE: pytest.approx(7 / 31),
        Level.NUMA: pytest.approx(15 / 31),
        Level.SOCKET: pytest.approx(15 / 31),
    }


def test_reserved_cpus_break_nothing() -> None:
    free = CACHES.online - CPUSet.of(0, 16)
    assert Ruler(CACHES, free).leftover(free).fragmentation == 0


def test_cores_of_several_sizes_are_counted_by_their_own() -> None:
    hybrid = Topology.from_rows([(0, 0, 0, 0, 0), (1, 0, 0, 0, 0), (2, 2, 0, 0, 0), (3, 3, 0, 0, 0)])
    assert Ruler(hybrid).measure(CPUSet.of(2, 3)).crossed == (Level.CORE,)
    assert Ruler(hybrid).measure(CPUSet.of(0, 1, 2)).is_aligned
