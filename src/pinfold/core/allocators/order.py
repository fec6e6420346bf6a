"""Which group comes first: groups nested as the kubelet nests them, and sorted by free CPUs.

Also the one strategy in which the two fidelities differ: when a core or socket counts as whole.
"""

from __future__ import annotations

from bisect import bisect_left
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.allocators.cores import ListedCores, StridedCores, stride_of
from pinfold.core.machine.topology import Counts
from pinfold.core.trace import Defect

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pinfold.core.machine.topology import Group, Topology
    from pinfold.core.trace import Recorder


class Fidelity(StrEnum):
    """How closely to follow the kubelet where it is wrong."""

    PINFOLD = "pinfold"
    """Always sound: each group counts with its own size, and saved combinations stay as they were."""
    KUBELET = "kubelet"
    """Exact, defects included, for planning a kubelet's node."""


class Arrangement(NamedTuple):
    """How to spread the CPUs of one request, as the policy options say."""

    spread: bool = False
    """Over as many cores as possible (distribute-cpus-across-cores)."""
    uncore: bool = False
    """Within as few uncore caches as possible (prefer-align-cpus-by-uncorecache)."""
    group: int = 0
    """In equal parts from several NUMA nodes, in groups of this many CPUs (distribute-cpus-across-numa); 0: off."""
    align_by_socket: bool = False
    """Prefer NUMA nodes of one socket (align-by-socket); only matters in equal parts."""


PACKED: Final = Arrangement()


class Area:
    """A core, uncore cache, NUMA node or socket as allocators see it, with the groups inside it."""

    __slots__ = ("cores", "first_threads", "id", "inner", "mask", "name", "nested", "size", "whole")

    def __init__(self, group: Group, kind: str, whole: int) -> None:
        self.id: Final = group.id
        self.mask: Final = group.mask
        self.size: Final = group.mask.bit_count()
        self.whole: Final = whole
        """The number of free CPUs at which the group counts as wholly free."""
        self.name: Final = f"{kind} {group.id}"
        self.inner = NOTHING
        self.cores = NOTHING
        self.first_threads = 0
        """The lowest CPU of each core inside."""
        self.nested = True
        """Whether no core inside has CPUs outside of the group."""

    def is_whole(self, free: int) -> bool:
        """Whether the group counts as wholly free."""
        return (self.mask & free).bit_count() == self.whole


class Row:
    """Groups of one kind, in the order of their ids."""

    __slots__ = ("masks", "places")

    def __init__(self, places: Iterable[Area]) -> None:
        self.places: Final = tuple(places)
        self.masks: Final = tuple(place.mask for place in self.places)

    def inside(self, mask: int) -> Row:
        """Return the groups that have a CPU in *mask*."""
        return Row(place for place in self.places if place.mask & mask)

    def fullest_first(self, free: int) -> Sequence[Area]:
        """Return the groups with free CPUs, fewest free CPUs first; ties keep the order of ids."""
        places = self.places
        if len(places) == 2:  # noqa: PLR2004 - what most machines have, and worth its own way
            first, second = self.masks
            count, other = (first & free).bit_count(), (second & free).bit_count()
            if count > other:
                return (places[1], places[0]) if other else places[:1]
            return places if count else places[1:] if other else ()
        return self.counted(free)[0]

    def counted(self, free: int, least: int = 1) -> tuple[Sequence[Area], Sequence[int]]:
        """Return those with *least* free CPUs or more, in the same order, and how many each has."""
        places = self.places
        counts = [(mask & free).bit_count() for mask in self.masks]
        order = sorted(counts)
        if order != counts:
            places = tuple([places[i] for i in sorted(range(len(counts)), key=counts.__getitem__)])
        if order[0] >= least:
            return places, order
        first = bisect_left(order, least)
        return places[first:], order[first:]


NOTHING: Final = Row(())


class Machine:
    """A Topology prepared for allocators: groups nested and ordered by id, sizes as the fidelity counts them."""

    def __init__(self, topology: Topology, fidelity: Fidelity = Fidelity.PINFOLD) -> None:
        self.topology: Final = topology
        self.fidelity: Final = fidelity
        self.online: Final = topology.online.mask
        self.size: Final = len(topology.cpus)
        average = fidelity is Fidelity.KUBELET
        self.exact: Final = average
        """Whether to follow the kubelet where it is wrong."""
        own = Counts(len(topology.cpus), len(topology.cores), len(topology.sockets))
        cpus, cores, sockets = topology.counts if average else own
        self.cpus_per_core: Final = cpus // cores if average else topology.threads_per_core
        self.cpus_per_uncore: Final = cpus // len(topology.uncore_caches)
        self.cores: Final = _row(topology.cores, "core", self.cpus_per_core if average else 0)
        self.sockets: Final = _row(topology.sockets, "socket", cpus // sockets if average else 0)
        self.numa_nodes: Final = _row(topology.numa_nodes, "NUMA node")
        self.uncore_caches: Final = _row(topology.uncore_caches, "uncore cache")
        self._numa_masks: Final = {1 << node.id: node.mask for node in topology.numa_nodes}
        # The level with fewer groups is the outer one; the inner groups are sorted within each outer group.
        self.numa_first: Final = sockets >= len(topology.numa_nodes)
        levels = (self.numa_nodes, self.sockets) if self.numa_first else (self.sockets, self.numa_nodes)
        self.outer, self.inner = levels
        self._nest()
        self.caches_in: Final = {node.id: self.uncore_caches.inside(node.mask) for node in self.numa_nodes.places}
        self.caches_nested: Final = all(cache.nested for cache in self.uncore_caches.places)
        self.smallest_cache: Final = min(cache.size for cache in self.uncore_caches.places)
        self.smallest_outer: Final = min(place.size for place in self.outer.places)
        self.smallest_inner: Final = min(place.size for place in self.inner.places)
        self._tidy: Final = all(
            not inner.mask & ~outer.mask for outer in self.outer.places for inner in outer.inner.places
        )
        caches = [cache for row in self.caches_in.values() for cache in row.places]
        # Where no group crosses another, none is listed twice.
        self._keeps_repeats: Final = average or (self._tidy and len(caches) == len(self.uncore_caches.places))
        self.even: Final = all(core.size == core.whole == self.cpus_per_core for core in self.cores.places)
        """Whether all cores have the same number of CPUs."""
        self.one_to_one: Final = self._tidy and all(len(outer.inner.places) == 1 for outer in self.outer.places)
        """Whether each outer group is an inner one too."""
        nested = all(place.nested for place in (*self.inner.places, *self.uncore_caches.places))
        stride = stride_of(topology.cores) if self.even and nested else None
        self.pick: Final = ListedCores(self) if stride is None else StridedCores(self, stride)

    def _nest(self) -> None:
        """Tell each outer group its inner ones, and each inner group and cache its cores."""
        for place in self.outer.places:
            place.inner = self.inner.inside(place.mask)
        for place in (*self.inner.places, *self.uncore_caches.places):
            place.cores = self.cores.inside(place.mask)
            place.nested = all(not core.mask & ~place.mask for core in place.cores.places)
            place.first_threads = sum(core.mask & -core.mask for core in place.cores.places)

    def numa_mask(self, nodes: int) -> int:
        """Return the CPUs of the NUMA nodes in the mask *nodes*."""
        cpus, mask_of = 0, self._numa_masks
        while nodes:
            lowest = nodes & -nodes
            cpus |= mask_of.get(lowest, 0)
            nodes ^= lowest
        return cpus

    def sockets_of(self, nodes: int) -> int:
        """Return all CPUs of the sockets that the NUMA nodes in the mask *nodes* belong to."""
        cpus = self.numa_mask(nodes)
        return sum([mask for mask in self.sockets.masks if mask & cpus])

    def sorted_outer(self, free: int) -> Sequence[Area]:
        """Return the outer groups with free CPUs, the fullest first."""
        return self.outer.fullest_first(free)

    def sorted_inner(self, free: int) -> Sequence[Area]:
        """Return the inner groups with free CPUs, the fullest first within each of the sorted outer groups."""
        if self.one_to_one:
            return [outer.inner.places[0] for outer in self.outer.fullest_first(free)]
        if self._tidy:
            return self._counted_inner(free)[0]
        return self.once(
            place
            for outer in self.outer.fullest_first(free)
            for place in outer.inner.fullest_first(free)
            if place.mask & outer.mask & free
        )

    def _counted_inner(self, free: int) -> tuple[list[Area], list[int]]:
        """Return the inner groups as `sorted_inner` where none crosses another, and how many free CPUs each has."""
        places: list[Area] = []
        counts: list[int] = []
        for outer in self.outer.fullest_first(free):
            inner, have = outer.inner.counted(free)
            places += inner
            counts += have
        return places, counts

    def once(self, places: Iterable[Area]) -> list[Area]:
        """Return *places* without repetitions; the kubelet keeps them."""
        return list(places if self._keeps_repeats else dict.fromkeys(places))

    def sorted_numa_nodes(self, free: int) -> Sequence[Area]:
        """Return the NUMA nodes with free CPUs, as the kubelet sorts them."""
        return self.sorted_outer(free) if self.numa_first else self.sorted_inner(free)

    def counted_numa_nodes(self, free: int) -> tuple[Sequence[Area], Sequence[int]]:
        """Return the NUMA nodes as `sorted_numa_nodes`, and how many free CPUs each has."""
        if self._tidy and not self.numa_first:
            return self._counted_inner(free)
        nodes = self.sorted_numa_nodes(free)
        return nodes, [(node.mask & free).bit_count() for node in nodes]

    def sorted_sockets(self, free: int) -> Sequence[Area]:
        """Return the sockets with free CPUs, as the kubelet sorts them."""
        return self.sorted_inner(free) if self.numa_first else self.sorted_outer(free)


def note_core_size(recorder: Recorder, machine: Machine) -> None:
    """Record the defect if the average size is used for cores of different sizes."""
    if machine.cpus_per_core != machine.topology.threads_per_core:
        what = f"all cores count as having {machine.cpus_per_core} CPUs, the largest has"
        recorder.defect(Defect.AVERAGE_SIZE, f"{what} {machine.topology.threads_per_core}")


def note_repeats(recorder: Recorder, places: Sequence[Area]) -> None:
    """Record the defect if a group is in a list twice."""
    twice = {place.name for place in places if sum(place is other for other in places) > 1}
    if twice:
        recorder.defect(Defect.COUNTED_TWICE, f"{', '.join(sorted(twice))} crosses other groups, and counts twice")


def note_averages(recorder: Recorder, row: Row, free: int) -> None:
    """Record the defect for each group that the average size misjudges."""
    for place in row.places:
        if place.whole != place.size and place.mask & free and place.is_whole(free) != (not place.mask & ~free):
            said = "whole" if place.is_whole(free) else "not whole"
            recorder.defect(
                Defect.AVERAGE_SIZE,
                f"{place.name} counts as {said}: {(place.mask & free).bit_count()} of its {place.size} CPUs are free, "
                f"the average {place.name.partition(' ')[0]} has {place.whole}",
            )


def _row(groups: Iterable[Group], kind: str, whole: int = 0) -> Row:
    return Row(Area(group, kind, whole or group.mask.bit_count()) for group in groups)
