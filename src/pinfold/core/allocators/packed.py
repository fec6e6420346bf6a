"""Topology-aware best fit: whole sockets and NUMA nodes, whole uncore caches if asked, whole cores, single CPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.allocators.cores import lowest
from pinfold.core.allocators.order import PACKED, note_averages, note_repeats
from pinfold.core.allocators.uncore import take_uncore
from pinfold.errors import AdmissionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pinfold.core.allocators.order import Area, Arrangement, Machine
    from pinfold.core.trace import Recorder


class NotEnoughCPUs(AdmissionError):  # noqa: N818 - the fact, as users read it
    """Fewer CPUs are free than requested; the text is the kubelet's."""

    def __init__(self, wanted: int, free: int) -> None:
        super().__init__(f"not enough cpus available to satisfy request: requested={wanted}, available={free}")
        self.wanted = wanted
        self.free = free


class Taking:
    """CPUs being taken: those still free, how many are still needed, those already taken."""

    __slots__ = ("free", "machine", "need", "recorder", "taken")

    def __init__(self, machine: Machine, free: int, need: int, recorder: Recorder | None = None) -> None:
        self.machine = machine
        self.free = free
        self.need = need
        self.taken = 0
        self.recorder = recorder

    def take(self, mask: int, what: str, place: Area, why: str = "") -> None:
        """Take the CPUs of *mask*."""
        if self.recorder is not None:
            self.recorder.unavailable(mask & ~self.free)
            needed = "1 CPU was needed" if self.need == 1 else f"{self.need} CPUs were needed"
            self.recorder.step(f"took {what} {place.name}", mask, why or needed)
        self.taken |= mask
        self.free &= ~mask
        self.need -= mask.bit_count()

    def take_whole(self, places: Iterable[Area]) -> None:
        """Take each of *places* that is wholly free and not larger than the rest of the request."""
        free = self.free
        for place in places:
            if place.size <= self.need and place.is_whole(free):
                self.take(place.mask, "all of", place)
                if self.need < 1:
                    return


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
    if taking.need > 0:
        if arrangement.spread:
            _take_spread_cpus(taking)
        else:
            take_cores_and_cpus(taking, machine.sorted_inner(taking.free))
    return taking.taken


def take_packed_in(machine: Machine, node: Area, free: int, count: int, recorder: Recorder | None = None) -> int:
    """Return *count* free CPUs of one NUMA node, as take_packed does when only those are available."""
    free &= node.mask
    if count >= machine.smallest_inner or (machine.numa_first and not machine.one_to_one):
        return take_packed(machine, free, count, PACKED, recorder)
    if machine.numa_first:
        node = node.inner.places[0]  # the socket with the same CPUs
    if recorder is None:
        cpus = machine.pick.whole(node, free, count)
        rest = count - cpus.bit_count()
        return cpus | machine.pick.single(node, free & ~cpus, rest) if rest else cpus
    taking = Taking(machine, free, count, recorder)
    note_averages(recorder, machine.sockets, free)
    take_cores_and_cpus(taking, (node,))
    return taking.taken


def _take_levels(taking: Taking) -> None:
    """Take whole groups of the outer and then of the inner level (NUMA nodes, sockets)."""
    machine = taking.machine
    if taking.recorder is not None:
        note_averages(taking.recorder, machine.sockets, taking.free)
        note_repeats(taking.recorder, machine.sorted_inner(taking.free))
    if taking.need >= machine.smallest_outer:
        taking.take_whole(machine.sorted_outer(taking.free))
    if taking.need >= machine.smallest_inner:
        taking.take_whole(machine.sorted_inner(taking.free))


def take_cores_and_cpus(taking: Taking, inner: Sequence[Area]) -> None:
    """Take whole cores of the sorted inner groups, then single CPUs of the cores with the fewest free ones."""
    pick = taking.machine.pick
    if taking.recorder is not None:
        note_averages(taking.recorder, taking.machine.cores, taking.free)
    free = taking.free
    for place in inner:
        cpus = pick.whole(place, free, taking.need)
        if cpus:
            taking.take(cpus, "whole cores in", place)
            if taking.need < 1:
                return
    free = taking.free
    # Taking cores has changed which group is the fullest, so sort again if there are several.
    for place in taking.machine.sorted_inner(free) if len(inner) > 1 else inner:
        cpus = pick.single(place, free, taking.need)
        if cpus:
            taking.take(cpus, "single CPUs in", place, "of the cores with the fewest free CPUs")
            if taking.need < 1:
                return


def _take_spread_cpus(taking: Taking) -> None:
    """Take single CPUs in the order of their numbers, socket by socket: the other thread of a core comes last."""
    free = taking.free
    for socket in taking.machine.sorted_sockets(free):
        cpus = lowest(socket.mask & free, taking.need)
        taking.take(cpus, "CPUs in", socket, "in the order of their numbers, spread over its cores")
        if taking.need < 1:
            return
