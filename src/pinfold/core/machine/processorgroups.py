"""Windows processor groups ↔ CPU numbers, as the kubelet counts them on Windows (KEP-3570, Windows CPU Discovery).

Windows names a CPU by its group (of up to 64) and its number in the group; everything else here knows one number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.machine.cpuset import MAX_CPU, CPUSet
from pinfold.errors import ParseError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

GROUP_SIZE: Final = 64
MAX_GROUP: Final = MAX_CPU // GROUP_SIZE
_FULL: Final = (1 << GROUP_SIZE) - 1


class Term(NamedTuple):
    """The terms of cAdvisor and of Windows for the same thing."""

    cadvisor: str
    windows: str


TERMS: Final[Mapping[str, Term]] = {
    "CPU": Term("thread", "logical processor"),
    "Core": Term("core", "core"),
    "Socket": Term("socket", "physical processor"),
    "NUMA node": Term("node", "NUMA node"),
}
"""Kubelet term → the others."""


class GroupAffinity(NamedTuple):
    """Some CPUs of one group: bit 0 of *mask* is the first of them (GROUP_AFFINITY of Windows)."""

    mask: int
    group: int


def cpu_of(group: int, number: int) -> int:
    """Return the CPU that Windows calls *number* of *group*.

    >>> cpu_of(group=1, number=2)
    66
    """
    _check_group(group)
    if not 0 <= number < GROUP_SIZE:
        raise ParseError(f"processor {number} of group {group}: a group has processors 0 to {GROUP_SIZE - 1}")
    return group * GROUP_SIZE + number


def group_of(cpu: int) -> tuple[int, int]:
    """Return the group of a CPU and its number there.

    >>> group_of(66)
    (1, 2)
    """
    if not 0 <= cpu <= MAX_CPU:
        raise ParseError(f"CPU number {cpu} is not within 0 to {MAX_CPU}")
    return divmod(cpu, GROUP_SIZE)


def cpus_of_groups(sizes: Sequence[int]) -> CPUSet:
    """Return all CPUs of a machine with groups of these sizes; the numbers between two small groups stay unused.

    >>> print(cpus_of_groups([35, 35]))  # the KEP says 64 to 99, one too many: the last of 35 from 64 on is 98
    0-34,64-98
    """
    for group, size in enumerate(sizes):
        if not 0 <= size <= GROUP_SIZE:
            raise ParseError(f"group {group} has {size} processors; a group has 0 to {GROUP_SIZE}")
    return cpus_of_affinities(GroupAffinity((1 << size) - 1, group) for group, size in enumerate(sizes))


def cpus_of_affinities(affinities: Iterable[GroupAffinity], sizes: Sequence[int] | None = None) -> CPUSet:
    """Return the CPUs of these masks; with *sizes*, only if the groups have them all.

    >>> print(cpus_of_affinities([GroupAffinity(0b111, 0), GroupAffinity(0b111, 1)]))
    0-2,64-66
    """
    mask = 0
    for affinity in affinities:
        _check_group(affinity.group)
        if not 0 <= affinity.mask <= _FULL:
            raise ParseError(f"mask {affinity.mask:#x} of group {affinity.group} has more than {GROUP_SIZE} bits")
        mask |= affinity.mask << affinity.group * GROUP_SIZE
    cpus = CPUSet(mask)
    _check_sizes(cpus, sizes)
    return cpus


def affinities_of(cpus: CPUSet, sizes: Sequence[int] | None = None) -> list[GroupAffinity]:
    """Return the masks of all groups that have some of *cpus*; with *sizes*, only if the groups have them all.

    >>> affinities_of(CPUSet.parse("1,98"), sizes=[35, 35])
    [GroupAffinity(mask=2, group=0), GroupAffinity(mask=17179869184, group=1)]
    >>> affinities_of(CPUSet.parse("40"), sizes=[35, 35])
    Traceback (most recent call last):
    pinfold.errors.ParseError: no processor group has CPUs 40; existing: 0-34,64-98
    """
    _check_sizes(cpus, sizes)
    groups = range(cpus.mask.bit_length() // GROUP_SIZE + 1)
    masks = ((cpus.mask >> group * GROUP_SIZE & _FULL, group) for group in groups)
    return [GroupAffinity(mask, group) for mask, group in masks if mask]


def _check_group(group: int) -> None:
    if not 0 <= group <= MAX_GROUP:
        raise ParseError(f"processor group {group} is not within 0 to {MAX_GROUP}")


def _check_sizes(cpus: CPUSet, sizes: Sequence[int] | None) -> None:
    if sizes is not None and (lost := cpus - cpus_of_groups(sizes)):
        raise ParseError(f"no processor group has CPUs {lost}; existing: {cpus_of_groups(sizes)}")
