from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.core.machine.processorgroups import (
    MAX_GROUP,
    TERMS,
    GroupAffinity,
    affinities_of,
    cpu_of,
    cpus_of_affinities,
    cpus_of_groups,
    group_of,
)
from pinfold.errors import ParseError

FULL = 2**64 - 1


@pytest.mark.parametrize(
    ("group", "number", "cpu"), [(0, 0, 0), (0, 63, 63), (1, 0, 64), (1, 34, 98), (MAX_GROUP, 63, 65535)]
)
def test_cpu_is_64_times_the_group_plus_the_number(group: int, number: int, cpu: int) -> None:
    assert cpu_of(group, number) == cpu
    assert group_of(cpu) == (group, number)


def test_same_mask_in_two_groups_is_different_cpus() -> None:
    assert cpus_of_affinities([GroupAffinity(0b111, 0), GroupAffinity(0b111, 1)]) == CPUSet.parse("0-2,64-66")


def test_masks_of_one_group_add_up() -> None:
    assert cpus_of_affinities([GroupAffinity(1, 2), GroupAffinity(8, 2)]) == CPUSet.of(128, 131)


def test_groups_without_cpus_are_left_out() -> None:
    assert affinities_of(CPUSet.of(0, 63, 129)) == [GroupAffinity(1 | 1 << 63, 0), GroupAffinity(2, 2)]
    assert affinities_of(EMPTY) == []


def test_full_group_has_64_cpus() -> None:
    assert affinities_of(CPUSet.parse("64-127"), sizes=[64, 64]) == [GroupAffinity(FULL, 1)]


def test_small_groups_leave_numbers_unused() -> None:
    assert cpus_of_groups([35, 35]) == CPUSet.parse("0-34,64-98")
    assert cpus_of_groups([0, 2]) == CPUSet.parse("64-65")


@given(st.lists(st.integers(0, 64), max_size=9), st.data())
def test_the_cpus_of_any_machine_come_back(sizes: list[int], data: st.DataObject) -> None:
    machine = cpus_of_groups(sizes)
    cpus = CPUSet.from_cpus(data.draw(st.sets(st.sampled_from(list(machine))))) if machine else EMPTY
    assert cpus_of_affinities(affinities_of(cpus, sizes), sizes) == cpus
    assert len(machine) == sum(sizes)


@pytest.mark.parametrize("cpu", [35, 63, 99, 128])
def test_cpu_outside_of_the_groups_is_refused_both_ways(cpu: int) -> None:
    group, number = group_of(cpu)
    with pytest.raises(ParseError, match=f"no processor group has CPUs {cpu}; existing: 0-34,64-98"):
        affinities_of(CPUSet.of(cpu), sizes=[35, 35])
    with pytest.raises(ParseError, match=f"no processor group has CPUs {cpu}; existing: 0-34,64-98"):
        cpus_of_affinities([GroupAffinity(1 << number, group)], sizes=[35, 35])


@pytest.mark.parametrize(("group", "number"), [(-1, 0), (MAX_GROUP + 1, 0), (0, -1), (0, 64)])
def test_numbers_outside_of_a_group_are_refused(group: int, number: int) -> None:
    with pytest.raises(ParseError):
        cpu_of(group, number)


@pytest.mark.parametrize("cpu", [-1, 65536])
def test_cpu_that_cannot_be_is_in_no_group(cpu: int) -> None:
    with pytest.raises(ParseError):
        group_of(cpu)


@pytest.mark.parametrize(("mask", "group"), [(-1, 0), (FULL + 1, 0), (1, -1), (1, MAX_GROUP + 1), (1, 10**9)])
def test_masks_that_cannot_be_are_refused(mask: int, group: int) -> None:
    with pytest.raises(ParseError):
        cpus_of_affinities([GroupAffinity(mask, group)])


@pytest.mark.parametrize("sizes", [[65], [-1], [1] * (MAX_GROUP + 2)])
def test_sizes_that_cannot_be_are_refused(sizes: list[int]) -> None:
    with pytest.raises(ParseError):
        cpus_of_groups(sizes)


def test_every_word_of_the_kubelet_has_one_of_windows() -> None:
    assert {term: words.windows for term, words in TERMS.items()} == {
        "CPU": "logical processor",
        "Core": "core",
        "Socket": "physical processor",
        "NUMA node": "NUMA node",
    }
