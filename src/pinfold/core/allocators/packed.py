"""Topology-aware best fit: whole sockets and NUMA nodes, whole uncore caches if asked, whole cores, single CPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.allocators.order import PACKED, fullest_first, lowest, note_averages
from pinfold.core.allocators.uncore import take_uncore
from pinfold.errors import AdmissionError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pinfold.core.allocators.order import Arrangement, Machine, Place
    from pinfold.core.trace import Recorder


class NotEnoughCPUs(AdmissionError):  # noqa: N818 - the fact, as users read it
    """Fewer CPUs are free than are needed; the text is the reference's."""

    def __init__(self, wanted: int, free: int) -> None:
        super().__init__(f"not enough cpus available to satisfy request: requested={wanted}, available={free}")
        self.wanted = wanted
        self.free = free


class Taking:
    """CPUs being taken: what is still free, how many are still needed, what has been taken."""

    __slots__ = ("free", "machine", "need", "recorder", "taken")

    def __init__(self, machine: Machine, free: int, need: int, recorder: Recorder | None = None) -> None:
        self.machine = machine
        self.free = free
        self.need = need
        self.taken = 0
        self.recorder = recorder

    def take(self, mask: int, what: str, why: str = "") -> None:
        """Take the CPUs of *mask*."""
        if self.recorder is not None:
            self.recorder.unavailable(mask & ~self.free)
            self.recorder.step(what, mask, why)
        self.taken |= mask
        self.free &= ~mask
        self.need -= mask.bit_count()

    def take_whole(self, places: Iterable[Place]) -> None:
        """Take each of *places* that is wholly free and not larger than what is needed."""
        free = self.free
        for place in places:
            if place.size <= self.need and place.is_whole(free):
                self.take(place.mask, f"took {place.name} whole", f"of {self.need} CPUs needed")


def take_packed(
    machine: Machine, available: int, count: int, arrangement: Arrangement = PACKED, recorder: Recorder | None = None
) -> int:
    """Return *count* CPUs of *available*: as close together as the groups allow, or spread over the cores."""
    if count < 1:
        return 0
    free = available & machine.online
    if count > free.bit_count():
        raise NotEnoughCPUs(count, available.bit_count())
    taking = Taking(machine, free, count, recorder)
    _take_levels(taking)
    if arrangement.uncore and taking.need > 0:
        take_uncore(taking)
    if not arrangement.spread and taking.need > 0:
        _take_cores(taking)
    if taking.need > 0:
        (_take_spread_cpus if arrangement.spread else _take_cpus)(taking)
    return taking.taken


def _take_levels(taking: Taking) -> None:
    """Take whole groups of the outer and then of the inner level (NUMA nodes, sockets)."""
    machine = taking.machine
    if taking.recorder is not None:
        note_averages(taking.recorder, machine.sockets, taking.free)
    if taking.need >= machine.smallest_outer:
        taking.take_whole(machine.sorted_outer(taking.free))
    if taking.need >= machine.smallest_inner:
        taking.take_whole(machine.sorted_inner(taking.free))


def _take_cores(taking: Taking) -> None:
    """Take whole cores, walking the sorted inner groups."""
    free = taking.free
    machine = taking.machine
    if taking.recorder is not None:
        note_averages(taking.recorder, machine.cores, free)
    if machine.even:
        if taking.need >= machine.cpus_per_core:
            _take_even_cores(taking)
        return
    average = any(core.whole != core.size for core in machine.cores)
    for inner in machine.sorted_inner(free):
        cores = fullest_first(inner.cores, free, within=inner.mask)
        if not average:
            # differs: where cores have sizes of their own, a larger one that fits comes first: no core is split
            # for a remainder that smaller ones could have filled.
            cores.sort(key=lambda core: -core.size)
        taking.take_whole(cores)
        if taking.need < 1:
            return


def _take_even_cores(taking: Taking) -> None:
    """Take whole cores of equal size: among them the lowest come first, and only what is needed is looked at."""
    free, size, need = taking.free, taking.machine.cpus_per_core, taking.need
    for inner in taking.machine.sorted_inner(free):
        mask = 0
        for core in inner.cores:
            wanted = core.mask
            if not wanted & ~free and not wanted & taking.taken:
                mask |= wanted
                need -= size
                if need < size:
                    break
        if mask:
            taking.take(mask, f"took whole cores in {inner.name}", f"of {taking.need} CPUs needed")
        if need < size:
            return


def _take_cpus(taking: Taking) -> None:
    """Take single CPUs: of the cores with the fewest free CPUs first, walking the sorted inner groups."""
    free = taking.free
    for inner in taking.machine.sorted_inner(free):
        mask = 0
        need = taking.need
        for core in fullest_first(inner.cores, free, within=inner.mask):
            cpus = core.mask & free
            size = cpus.bit_count()
            if size >= need:
                mask |= cpus if size == need else lowest(cpus, need)
                need = 0
                break
            mask |= cpus
            need -= size
        if mask:
            taking.take(mask, f"took single CPUs in {inner.name}", "of the cores with the fewest free CPUs")
        if need < 1:
            return


def _take_spread_cpus(taking: Taking) -> None:
    """Take single CPUs in the order of their numbers, socket by socket: the other thread of a core comes last."""
    free = taking.free
    for socket in taking.machine.sorted_sockets(free):
        cpus = socket.mask & free
        if cpus.bit_count() > taking.need:
            cpus = lowest(cpus, taking.need)
        taking.take(cpus, f"took CPUs in {socket.name}", "in the order of their numbers, spread over its cores")
        if taking.need < 1:
            return
