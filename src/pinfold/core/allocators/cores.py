"""Picking cores and CPUs inside one group: by bit arithmetic where siblings have a regular distance, else one by one.

Both pickers answer the same three questions in the same way; a test compares them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pinfold.core.allocators.order import Area, Machine
    from pinfold.core.machine.topology import Group

# Up to so many CPUs are found one by one, at 50 ns each; bisection takes 1 µs for any number of them.
_SMALL: Final = 12


def stride_of(cores: Iterable[Group]) -> int | None:
    """Return the distance between sibling CPUs if it is the same all over the machine, else None.

    >>> from pinfold.core.machine.presets import preset
    >>> stride_of(preset("sockets:1,cores:4,threads:2").cores), stride_of(preset("i7-12850hx").cores)
    (4, None)
    """
    strides = set()
    for core in cores:
        mask = core.mask // (core.mask & -core.mask)
        stride = ((mask & (mask - 1)) & -(mask & (mask - 1))).bit_length() - 1
        expected = sum(1 << i * stride for i in range(mask.bit_count())) if stride > 0 else 1
        strides.add(max(stride, 0) if expected == mask else None)
    return strides.pop() if len(strides) == 1 else None


def lowest(mask: int, count: int) -> int:
    """Return the *count* lowest CPUs of *mask*, or all if it has not so many.

    >>> bin(lowest(0b11011, 3))
    '0b1011'
    """
    if mask.bit_count() <= count:
        return mask
    if count <= _SMALL:
        rest = mask
        for _ in range(count):
            rest &= rest - 1
        return mask ^ rest
    low, high = count, mask.bit_length()
    while low < high:
        middle = (low + high) // 2
        if (mask & (1 << middle) - 1).bit_count() < count:
            low = middle + 1
        else:
            high = middle
    return mask & (1 << low) - 1


class StridedCores:
    """For machines with equal cores and the same distance between all siblings."""

    def __init__(self, machine: Machine, stride: int) -> None:
        self._threads = machine.cpus_per_core
        self._shifts = tuple(stride * i for i in range(1, self._threads))
        self._listed = ListedCores(machine)

    def whole(self, place: Area, free: int, need: int) -> int:
        """Return whole cores, at most *need* CPUs: the lowest of equal ones."""
        firsts = free & place.first_threads
        for shift in self._shifts:
            firsts &= free >> shift
        firsts = lowest(firsts, need // self._threads)
        cpus = firsts
        for shift in self._shifts:
            cpus |= firsts << shift
        return cpus

    def single(self, place: Area, free: int, need: int) -> int:
        """Return at most *need* free CPUs: those of the cores with the fewest free CPUs first."""
        if not self._shifts:
            return lowest(free & place.mask, need)
        if len(self._shifts) > 1:
            return self._listed.single(place, free, need)
        (shift,) = self._shifts
        first, second = free & place.first_threads, free >> shift & place.first_threads
        halves = lowest(first ^ second, need)
        cpus = (halves | halves << shift) & free
        need -= halves.bit_count()
        if need <= 0:
            return cpus
        cores = lowest(first & second, -(-need // 2))
        cpus |= cores | cores << shift
        if need % 2 and cores.bit_count() * 2 > need:
            cpus ^= 1 << cores.bit_length() - 1 + shift  # the last core gives only its first CPU
        return cpus

    def lowest(self, place: Area, free: int, cores: int) -> int:
        """Return the free CPUs of the lowest cores that have any in *place*."""
        firsts = free
        for shift in self._shifts:
            firsts |= free >> shift
        firsts = lowest(firsts & place.first_threads, cores)
        cpus = firsts
        for shift in self._shifts:
            cpus |= firsts << shift
        return cpus & free


class ListedCores:
    """For all other machines: hybrid ones, offline siblings, scattered numbers."""

    def __init__(self, machine: Machine) -> None:
        average = any(core.whole != core.size for core in machine.cores.places)
        uneven = len({core.size for core in machine.cores.places}) > 1
        # differs: on a machine with cores of several sizes, take the largest that fits first, so that no core is split
        # for a remainder that a smaller core could fill.
        self._larger_first = uneven and not average

    def whole(self, place: Area, free: int, need: int) -> int:
        """Return whole cores, at most *need* CPUs: the lowest of equal ones."""
        cores = [core for core in place.cores.fullest_first(free) if core.mask & place.mask & free]
        if self._larger_first:
            cores.sort(key=lambda core: -core.size)
        cpus = 0
        for core in cores:
            if core.size <= need and core.is_whole(free):
                cpus |= core.mask
                need -= core.size
        return cpus

    def single(self, place: Area, free: int, need: int) -> int:
        """Return at most *need* free CPUs: those of the cores with the fewest free CPUs first."""
        cpus = 0
        for core in place.cores.fullest_first(free):
            mine = core.mask & free
            if mine & place.mask:
                mine = lowest(mine, need)
                cpus |= mine
                need -= mine.bit_count()
                if need < 1:
                    break
        return cpus

    def lowest(self, place: Area, free: int, cores: int) -> int:
        """Return the free CPUs of the lowest cores that have any in *place*."""
        mine = place.mask & free
        cpus = 0
        for core in place.cores.places:
            if core.mask & mine:
                cpus |= core.mask & free
                cores -= 1
                if cores < 1:
                    break
        return cpus
