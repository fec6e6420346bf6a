"""Who comes first: the machine's groups nested as the reference nests them, and sorted by free CPUs.

Also the one strategy in which the two fidelities differ: when a core or socket counts as whole.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.trace import Defect

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pinfold.core.topology import Group, Topology
    from pinfold.core.trace import Recorder


class Fidelity(StrEnum):
    """How closely to follow the reference where it is wrong."""

    PINFOLD = "pinfold"
    """Always sound: every group is judged by its own size, every combination is remembered as it was."""
    KUBELET = "kubelet"
    """Exact, defects included, for planning a kubelet's node."""


class Arrangement(NamedTuple):
    """How the CPUs of one request are to lie, as the policy options ask for it."""

    spread: bool = False
    """Over as many cores as possible (distribute-cpus-across-cores)."""
    uncore: bool = False
    """Within as few uncore caches as possible (prefer-align-cpus-by-uncorecache)."""
    group: int = 0
    """In equal parts from several NUMA nodes, in groups of so many CPUs (distribute-cpus-across-numa); 0: not."""
    align_by_socket: bool = False
    """Several NUMA nodes rather of one socket (align-by-socket); only matters in equal parts."""


PACKED: Final = Arrangement()


class Place:
    """A group of CPUs as allocators see it, with the groups inside it."""

    __slots__ = ("cores", "id", "inner", "mask", "name", "nested", "size", "whole")

    def __init__(self, group: Group, kind: str, whole: int) -> None:
        self.id: Final = group.id
        self.mask: Final = group.mask
        self.size: Final = group.mask.bit_count()
        self.whole: Final = whole
        """The number of free CPUs at which the reference takes the group for wholly free."""
        self.name: Final = f"{kind} {group.id}"
        self.inner: tuple[Place, ...] = ()
        self.cores: tuple[Place, ...] = ()
        self.nested = True
        """Whether no core of the group reaches out of it."""

    def is_whole(self, free: int) -> bool:
        """Whether the group counts as wholly free."""
        return (self.mask & free).bit_count() == self.whole


class Machine:
    """A Topology prepared for allocators: groups nested and ordered by id, sizes as the fidelity judges them."""

    def __init__(self, topology: Topology, fidelity: Fidelity = Fidelity.PINFOLD) -> None:
        self.topology: Final = topology
        self.fidelity: Final = fidelity
        self.online: Final = topology.online.mask
        cpus = len(topology.cpus)
        average = fidelity is Fidelity.KUBELET
        self.cpus_per_core: Final = cpus // len(topology.cores) if average else topology.threads_per_core
        self.cpus_per_uncore: Final = cpus // len(topology.uncore_caches)
        cores = _places(topology.cores, "core", self.cpus_per_core if average else 0)
        sockets = _places(topology.sockets, "socket", cpus // len(topology.sockets) if average else 0)
        self.numa_nodes: Final = _places(topology.numa_nodes, "NUMA node")
        self.uncore_caches: Final = _places(topology.uncore_caches, "uncore cache")
        self.cores: Final = cores
        self.sockets: Final = sockets
        # The level that has fewer groups is the outer one; each list of the inner one is sorted within it.
        self.numa_first: Final = len(sockets) >= len(self.numa_nodes)
        self.outer, self.inner = (self.numa_nodes, sockets) if self.numa_first else (sockets, self.numa_nodes)
        self.even: Final = all(core.size == core.whole == self.cpus_per_core for core in cores)
        """Whether all cores have the same number of CPUs."""
        for place in self.outer:
            place.inner = _inside(self.inner, place.mask)
        for place in (*self.inner, *self.uncore_caches):
            place.cores = _inside(cores, place.mask)
            place.nested = all(core.mask & ~place.mask == 0 for core in place.cores)
        self.caches_in: Final = {node.id: _inside(self.uncore_caches, node.mask) for node in self.numa_nodes}
        self.smallest_outer: Final = min(place.size for place in self.outer)
        self.smallest_inner: Final = min(place.size for place in self.inner)

    def numa_mask(self, nodes: int) -> int:
        """Return the CPUs of the NUMA nodes in the mask *nodes*."""
        return sum(node.mask for node in self.numa_nodes if nodes >> node.id & 1)

    def sockets_of(self, nodes: int) -> int:
        """Return all CPUs of the sockets that the NUMA nodes in the mask *nodes* have a part in."""
        cpus = self.numa_mask(nodes)
        return sum(socket.mask for socket in self.sockets if socket.mask & cpus)

    def sorted_outer(self, free: int) -> list[Place]:
        """Return the outer groups with free CPUs, the fullest first."""
        return fullest_first(self.outer, free)

    def sorted_inner(self, free: int) -> list[Place]:
        """Return the inner groups with free CPUs, the fullest first within each of the sorted outer groups."""
        return [
            place
            for outer in fullest_first(self.outer, free)
            for place in fullest_first(outer.inner, free, within=outer.mask)
        ]

    def sorted_numa_nodes(self, free: int) -> list[Place]:
        """Return the NUMA nodes with free CPUs, as the reference sorts them."""
        return self.sorted_outer(free) if self.numa_first else self.sorted_inner(free)

    def sorted_sockets(self, free: int) -> list[Place]:
        """Return the sockets with free CPUs, as the reference sorts them."""
        return self.sorted_inner(free) if self.numa_first else self.sorted_outer(free)


def fullest_first(places: Sequence[Place], free: int, within: int = -1) -> list[Place]:
    """Return those with a free CPU in *within*, fewest free CPUs first; ties keep the order of ids."""
    found = [place for place in places if place.mask & free & within]
    if len(found) > 1:
        found.sort(key=lambda place: (place.mask & free).bit_count())
    return found


def lowest(mask: int, count: int) -> int:
    """Return the *count* lowest CPUs of *mask*.

    >>> bin(lowest(0b11011, 3))
    '0b1011'
    """
    rest = mask
    for _ in range(count):
        rest &= rest - 1
    return mask ^ rest


def note_core_size(recorder: Recorder, machine: Machine) -> None:
    """Tell the recorder when the average size stands for cores that are not equal."""
    if machine.cpus_per_core != machine.topology.threads_per_core:
        what = f"all cores count as having {machine.cpus_per_core} CPUs, the largest has"
        recorder.defect(Defect.AVERAGE_SIZE, f"{what} {machine.topology.threads_per_core}")


def note_averages(recorder: Recorder, places: Iterable[Place], free: int) -> None:
    """Tell the recorder which of *places* the average size misjudges."""
    for place in places:
        if place.whole != place.size and place.mask & free and place.is_whole(free) != (not place.mask & ~free):
            said = "whole" if place.is_whole(free) else "not whole"
            recorder.defect(
                Defect.AVERAGE_SIZE,
                f"{place.name} counts as {said}: {(place.mask & free).bit_count()} of its {place.size} CPUs are free, "
                f"the average {place.name.partition(' ')[0]} has {place.whole}",
            )


def _places(groups: Iterable[Group], kind: str, whole: int = 0) -> tuple[Place, ...]:
    return tuple(Place(group, kind, whole or group.mask.bit_count()) for group in groups)


def _inside(places: Iterable[Place], mask: int) -> tuple[Place, ...]:
    return tuple(place for place in places if place.mask & mask)
