"""CPUHints: the CPU Manager's own hints, described by a rule instead of listed.

There are up to 2^nodes - 1 of them, but one rule makes them all: a set of NUMA nodes is a hint if it has enough free
CPUs and holds every required node. So a hint with more nodes is a hint again, and questions such as
"which is the lowest hint of three nodes?" are answered from the nodes' free counts, without a list.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate, combinations, islice
from operator import or_
from typing import TYPE_CHECKING, NamedTuple

from pinfold.core.machine.cpuset import cpus_of
from pinfold.core.topologymanager.hint import UNSATISFIABLE, HintList
from pinfold.core.topologymanager.masks import MOST_MASKS, mask_of, mask_table, narrow_then_low

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pinfold.core.machine.topology import Topology
    from pinfold.core.topologymanager.hint import Hint, Hints
    from pinfold.core.topologymanager.masks import MaskTable


class SocketRule(NamedTuple):
    """align-by-socket: masks that touch exactly *spans* sockets are preferred too."""

    sockets: tuple[int, ...]
    """The sockets of each node, as a mask over the places of the machine's sockets."""
    spans: int

    def preferred_too(self, table: MaskTable) -> list[Hint]:
        """Return the hints of *table*, where those that touch so many sockets are preferred too."""
        touched = [0]
        for sockets in self.sockets:
            touched += [sockets | others for others in touched]
        every = zip(table.hints, table.preferred, table.in_order(touched), strict=True)
        return [preferred if sockets.bit_count() == self.spans else hint for hint, preferred, sockets in every]


# Not frozen, which would take half of the time that it takes to make one.
@dataclass(slots=True)
class CPUHints:
    """Hints for *need* CPUs, by size and then in the order of node ids, as the kubelet lists them.

    >>> hints = CPUHints(nodes=(0, 1, 8), free=(2, 6, 4), need=6, preferred_count=1)
    >>> print(*hints, sep=" ; ")
    NUMA 1, preferred ; NUMA 0-1 ; NUMA 0,8 ; NUMA 1,8 ; NUMA 0-1,8
    """

    nodes: tuple[int, ...]
    """The ids of all NUMA nodes with CPUs, ascending."""
    free: tuple[int, ...]
    """What each has: available CPUs plus reusable ones, where a CPU that is both counts twice as in the kubelet.

    A node that every hint must hold has more than the whole machine, and *need* has as much more (`with_required`).
    """
    need: int
    preferred_count: int
    """The fewest nodes that could hold the request if all their CPUs were free."""
    socket_rule: SocketRule | None = None

    @property
    def everything(self) -> int:
        """The mask of all nodes."""
        return mask_of(self.nodes)

    @property
    def listable(self) -> bool:
        """Whether there are few enough masks to go through all hints."""
        return 1 << len(self.nodes) <= MOST_MASKS

    @property
    def any_preferred(self) -> bool:
        """False: every hint names its nodes."""
        return False

    @property
    def narrowest(self) -> int:
        """The fewest nodes that a hint names; 0 if there is no hint."""
        return _fewest(self.free, self.need)

    @property
    def singles(self) -> int:
        """The nodes that are a preferred hint each by itself, as one mask."""
        return sum(1 << node for node in self.nodes if self.prefers(1 << node))

    def holds(self, mask: int) -> bool:
        """Whether exactly these nodes are a hint."""
        have = sum([free for node, free in zip(self.nodes, self.free, strict=True) if mask >> node & 1])
        return have >= self.need and not mask & ~self.everything

    def prefers(self, mask: int) -> bool:
        """Whether exactly these nodes are a preferred hint."""
        return (mask.bit_count() == self.preferred_count or self._aligned(mask)) and self.holds(mask)

    def leaves(self, mask: int, within: int) -> bool:
        """Whether some hint has exactly *mask* in common with the nodes *within*.

        The widest such hint is *mask* and all nodes outside of *within*; so only that one is checked.
        """
        return not mask & ~within and self.holds(mask | self.everything & ~within)

    def lowest(self, count: int, within: int) -> int:
        """Return the lowest mask of *count* nodes that some hint has in common with *within*; 0 if there is none.

        >>> hints = CPUHints(nodes=(0, 1, 2, 3), free=(1, 5, 2, 4), need=6, preferred_count=2)
        >>> f"{hints.lowest(2, within=0b1111):04b} {hints.lowest(1, within=0b1101):04b}"
        '0011 0001'
        """
        nodes, free = self._inside(within)
        outside = sum(self.free) - sum(free)  # These nodes are in the hint anyway.
        return _lowest(nodes, free, count, self.need - outside)

    def lowest_preferred(self) -> int:
        """Return the preferred hint with the fewest nodes, of these the lowest; 0 if none is preferred.

        Where the socket rule prefers wider masks too, and not all can be listed, sets of sockets are tried, MOST_MASKS
        at most. That is exact where all sockets have equally many nodes.
        """
        plain = _lowest(self.nodes, self.free, self.preferred_count, self.need)
        if self.socket_rule is None or self.narrowest == self.preferred_count:
            return plain
        if self.listable:
            masks = [mask for mask, preferred in self if preferred and mask is not None]
        else:
            areas = islice(_socket_sets(self.nodes, self.socket_rule), MOST_MASKS)
            masks = [mask for mask in (plain, *map(self._lowest_inside, areas)) if mask and self.prefers(mask)]
        return min(masks, key=narrow_then_low, default=0)

    def __bool__(self) -> bool:
        return sum(self.free) >= self.need

    def __iter__(self) -> Iterator[Hint]:
        """Return an iterator over all hints; raise a ValueError if the masks are too many (`listable`)."""
        table, need, sums = mask_table(self.nodes, self.preferred_count), self.need, [0]
        hints = table.hints if self.socket_rule is None else self.socket_rule.preferred_too(table)
        for free in self.free:
            sums += [free + others for others in sums]
        every = zip(hints, table.in_order(sums))  # noqa: B905 - strict costs 5 %
        return iter([hint for hint, have in every if have >= need])

    def _aligned(self, mask: int) -> bool:
        if self.socket_rule is None:
            return False
        touched = 0
        for node, sockets in zip(self.nodes, self.socket_rule.sockets, strict=True):
            if mask >> node & 1:
                touched |= sockets
        return touched.bit_count() == self.socket_rule.spans

    def _lowest_inside(self, area: int) -> int:
        """Return the hint with the fewest nodes, all of them in *area*; ties go to the lowest."""
        nodes, free = self._inside(area)
        return _lowest(nodes, free, _fewest(free, self.need), self.need)

    def _inside(self, area: int) -> tuple[list[int], list[int]]:
        """Return the nodes in *area*, and what each has."""
        places = [place for place, node in enumerate(self.nodes) if area >> node & 1]
        return [self.nodes[place] for place in places], [self.free[place] for place in places]


def cpu_hints(
    topology: Topology, available: int, reusable: int, need: int, *, align_by_socket: bool = False
) -> CPUHints:
    """Return the hints for *need* CPUs out of the masks *available* and *reusable*.

    >>> from pinfold.core.machine.presets import preset
    >>> print(*cpu_hints(preset("sockets:2,cores:4,threads:2"), available=0xFFFE, reusable=0, need=8), sep=" ; ")
    NUMA 1, preferred ; NUMA 0-1
    """
    nodes, masks, together = topology.numa_columns
    count = min(bisect_left(together, need) + 1, len(nodes))
    free = tuple([(available & mask).bit_count() for mask in masks])
    if reusable:
        reused = [(reusable & mask).bit_count() for mask in masks]
        free, need = with_required([sum(both) for both in zip(free, reused, strict=True)], need, reused)
    return CPUHints(nodes, free, need, count, _socket_rule(topology, count) if align_by_socket else None)


def listed_hints(
    topology: Topology, holds: Callable[[int], bool], count: int, *, align_by_socket: bool = False
) -> HintList:
    """Return the hints as a list: the masks of which *holds* is true, preferred if they have *count* nodes.

    It raises a ValueError if the masks are too many (`mask_table`).
    """
    table = mask_table(topology.numa_columns[0], count)
    rule = _socket_rule(topology, count) if align_by_socket else None
    hints = table.hints if rule is None else rule.preferred_too(table)
    return HintList(hint for hint in hints if hint.affinity is not None and holds(hint.affinity))


def with_required(free: Sequence[int], need: int, required: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """Return what nodes have and what is needed, so that it takes every node whose place in *required* is not 0.

    >>> with_required([2, 6, 4], need=5, required=[1, 0, 0])
    ((15, 6, 4), 18)
    """
    more = sum(free) + 1
    have = tuple([count + more if must else count for count, must in zip(free, required, strict=True)])
    return have, need + more * (len(required) - required.count(0))


def hints_for_assigned(topology: Topology, cpus: int, need: int, *, align_by_socket: bool = False) -> Hints:
    """Return the hints for a container or pod that already has the CPUs *cpus*, as after a restart.

    They are the hints it would get if nothing else were free, so that it gets the same CPUs again. If the number of
    CPUs differs from what it needs, there are no hints.
    """
    if cpus.bit_count() != need:
        return UNSATISFIABLE
    return cpu_hints(topology, cpus, 0, need, align_by_socket=align_by_socket)


def _socket_rule(topology: Topology, count: int) -> SocketRule | None:
    groups = topology.sockets
    nodes_per_socket = len(topology.numa_nodes) // len(groups)
    if not nodes_per_socket:
        return None
    sockets = [
        sum(1 << place for place, socket in enumerate(groups) if socket.mask & node.mask)
        for node in topology.numa_nodes
    ]
    return SocketRule(tuple(sockets), -(-count // nodes_per_socket))


def _socket_sets(nodes: Sequence[int], rule: SocketRule) -> Iterator[int]:
    """Yield the nodes of every set of as many sockets as *rule* spans."""
    for chosen in combinations(cpus_of(reduce(or_, rule.sockets)), rule.spans):
        area = sum(1 << socket for socket in chosen)
        yield sum(1 << node for node, own in zip(nodes, rule.sockets, strict=True) if not own & ~area)


def _fewest(free: Sequence[int], need: int) -> int:
    """Return how many nodes it takes to have *need* CPUs; 0 if all are not enough."""
    have = list(accumulate(sorted(free, reverse=True)))
    return bisect_left(have, need) + 1 if have and have[-1] >= need else 0


def _lowest(nodes: Sequence[int], free: Sequence[int], count: int, need: int) -> int:
    """Return the lowest mask of *count* nodes that have *need* CPUs; 0 if there is none."""
    mask = 0
    for room in range(count, 0, -1):
        end = _shortest_prefix(free, room, need)
        if not end:
            return 0
        # Without the last node of the prefix there is no hint, so that node is in the mask.
        last = end - 1
        mask |= 1 << nodes[last]
        need -= free[last]
        free = free[:last]
    return mask


def _shortest_prefix(free: Sequence[int], count: int, need: int) -> int:
    """Return how many first nodes are needed so that the best *count* of them have *need* CPUs; 0 if too few."""
    best: list[int] = []
    have = 0
    for length, own in enumerate(free, 1):
        have += own
        insort(best, own)
        if length > count:
            have -= best.pop(0)
        if length >= count and have >= need:
            return length
    return 0
