"""CPUHints: the CPU Manager's own hints, described by a rule instead of listed.

There are up to 2^nodes - 1 of them, but one rule makes them all: a set of NUMA nodes is a hint if it has enough free
CPUs and holds every required node. So a hint with more nodes is a hint again, and questions such as
"which is the lowest hint of three nodes?" are answered from the nodes' free counts, without a list.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate, chain, combinations, islice
from operator import or_
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.machine.cpuset import cpus_of
from pinfold.core.topologymanager.hint import UNSATISFIABLE, Hint
from pinfold.core.topologymanager.masks import LISTED_NODES, mask_of, narrow_then_low, ordered_masks, places_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pinfold.core.machine.topology import Topology
    from pinfold.core.topologymanager.hint import Hints

_SOCKET_SETS: Final = 512
"""The most sets of sockets that are tried on machines with more than LISTED_NODES nodes."""


class SocketRule(NamedTuple):
    """align-by-socket: masks that touch exactly *spans* sockets are preferred too."""

    sockets: tuple[int, ...]
    """The sockets of each node, as a mask over the places of the machine's sockets."""
    spans: int


@dataclass(frozen=True, slots=True)
class CPUHints:
    """Hints for *need* CPUs, by size and then in the order of node ids, as the kubelet lists them.

    >>> hints = CPUHints(nodes=(0, 1, 8), free=(2, 6, 4), need=6, preferred_count=1)
    >>> print(*hints, sep=" ; ")
    NUMA 1, preferred ; NUMA 0-1 ; NUMA 0,8 ; NUMA 1,8 ; NUMA 0-1,8
    """

    nodes: tuple[int, ...]
    """The ids of all NUMA nodes with CPUs, ascending."""
    free: tuple[int, ...]
    """Available plus reusable CPUs of each node; a CPU that is both counts twice, as in the kubelet."""
    need: int
    preferred_count: int
    """The fewest nodes that could hold the request if all their CPUs were free."""
    required: int = 0
    """Nodes that every hint must hold, because they have CPUs to reuse."""
    socket_rule: SocketRule | None = None

    @property
    def everything(self) -> int:
        """The mask of all nodes."""
        return mask_of(self.nodes)

    @property
    def slack(self) -> int:
        """How many of the free CPUs a hint may leave out; below 0 there is no hint."""
        return sum(self.free) - self.need

    @property
    def any_preferred(self) -> bool:
        """False: every hint names its nodes."""
        return False

    @property
    def narrowest(self) -> int:
        """The fewest nodes that a hint names; 0 if there is no hint."""
        if self.slack < 0:
            return 0
        must = self.required.bit_count()
        rest = [free for node, free in zip(self.nodes, self.free, strict=True) if not self.required >> node & 1]
        have = accumulate(sorted(rest, reverse=True), initial=self.free_in(self.required))
        return max(1, must + next(more for more, free in enumerate(have) if free >= self.need))

    @property
    def singles(self) -> int:
        """The nodes that are a preferred hint each by itself, as one mask."""
        return sum(1 << node for node in self.nodes if self.prefers(1 << node))

    def holds(self, mask: int) -> bool:
        """Whether exactly these nodes are a hint."""
        if self.required & ~mask or mask & ~self.everything or not mask:
            return False
        return self.free_in(mask) >= self.need

    def prefers(self, mask: int) -> bool:
        """Whether exactly these nodes are a preferred hint."""
        return (mask.bit_count() == self.preferred_count or self._aligned(mask)) and self.holds(mask)

    def free_in(self, mask: int) -> int:
        """Return how many CPUs these nodes have."""
        place, free, total = places_of(self.nodes), self.free, 0
        while mask:
            low = mask & -mask
            total += free[place[low]]
            mask ^= low
        return total

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
        slack = self.slack
        if slack < 0:
            return 0
        mask = self.required & within
        # Nodes outside of `within` are in the hint anyway; so of those inside, only `slack` CPUs may be missing.
        need = -slack
        below = []
        for node, free in zip(self.nodes, self.free, strict=True):
            if (within & ~mask) >> node & 1:
                need += free
                below.append((node, free))
        for room in range(count - mask.bit_count(), 0, -1):
            end = _shortest_prefix(below, room, need)
            if not end:
                return 0
            # Without the last node of the prefix there is no hint, so that node is in the mask.
            node, free = below[end - 1]
            mask |= 1 << node
            need -= free
            del below[end - 1 :]
        return mask if need <= 0 and mask.bit_count() == count else 0

    def lowest_preferred(self) -> int:
        """Return the preferred hint with the fewest nodes, of these the lowest; 0 if none is preferred.

        On machines of up to LISTED_NODES nodes all wider masks of the socket rule are checked. Beyond, whole sets of
        sockets are tried: exact where all sockets have equally many nodes, and no more than 512 sets.
        """
        if self.socket_rule is None or self.narrowest == self.preferred_count:
            return self.lowest(self.preferred_count, self.everything)
        if len(self.nodes) <= LISTED_NODES:
            masks = [mask for mask, preferred in self if preferred and mask is not None]
        else:
            areas = islice(_socket_sets(self.nodes, self.socket_rule), _SOCKET_SETS)
            plain = self.lowest(self.preferred_count, self.everything)
            masks = [mask for mask in chain((plain,), map(self._lowest_inside, areas)) if self.prefers(mask)]
        return min(masks, key=narrow_then_low, default=0)

    def __bool__(self) -> bool:
        return self.slack >= 0

    def __iter__(self) -> Iterator[Hint]:
        worth, need = self._worth() if self.required else (self.free, self.need)
        return iter(self._listed(worth, need)) if len(worth) <= LISTED_NODES else self._one_by_one(worth, need)

    def _listed(self, worth: Sequence[int], need: int) -> list[Hint]:
        masks = ordered_masks(self.nodes)
        sums = [0]
        for free in worth:
            sums += [free + others for others in sums]
        hints = self._flagged() if self.socket_rule else masks.flagged[self.preferred_count]
        return [hint for hint, have in zip(hints, masks.in_order(sums)) if have >= need]  # noqa: B905 - strict costs 5 %

    def _one_by_one(self, worth: Sequence[int], need: int) -> Iterator[Hint]:
        bits = [1 << node for node in self.nodes]
        for count in range(self.narrowest or len(bits) + 1, len(bits) + 1):
            for chosen, have in zip(combinations(bits, count), combinations(worth, count), strict=True):
                if sum(have) >= need:
                    mask = sum(chosen)
                    yield Hint(mask, count == self.preferred_count or self._aligned(mask))

    def _worth(self) -> tuple[list[int], int]:
        """Return the weight of each node and of a hint, so that one sum covers free CPUs and required nodes.

        A required node weighs more than all free CPUs together.
        """
        bonus = sum(self.free) + 1
        pairs = zip(self.nodes, self.free, strict=True)
        worth = [free + bonus if self.required >> node & 1 else free for node, free in pairs]
        return worth, self.need + bonus * self.required.bit_count()

    def _flagged(self) -> list[Hint]:
        """Return all masks as hints, with the socket rule's flags."""
        rule, masks, touched = self.socket_rule, ordered_masks(self.nodes), [0]
        if rule is None:
            return list(masks.flagged[self.preferred_count])
        for sockets in rule.sockets:
            touched += [sockets | others for others in touched]
        every = zip(masks.flagged[self.preferred_count], masks.in_order(touched), strict=True)
        return [Hint(mask, preferred or sockets.bit_count() == rule.spans) for (mask, preferred), sockets in every]

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
        if not self.holds(area):
            return 0
        free = tuple(free if area >> node & 1 else 0 for node, free in zip(self.nodes, self.free, strict=True))
        inside = CPUHints(self.nodes, free, self.need, self.preferred_count, self.required)
        return inside.lowest(inside.narrowest, area)


def cpu_hints(
    topology: Topology, available: int, reusable: int, need: int, *, align_by_socket: bool = False
) -> CPUHints:
    """Return the hints for *need* CPUs out of the masks *available* and *reusable*.

    >>> from pinfold.core.machine.presets import preset
    >>> print(*cpu_hints(preset("sockets:2,cores:4,threads:2"), available=0xFFFE, reusable=0, need=8), sep=" ; ")
    NUMA 1, preferred ; NUMA 0-1
    """
    nodes, masks, together = topology.numa_columns
    free = tuple([(available & mask).bit_count() for mask in masks])
    required = 0
    if reusable:
        more = [(reusable & mask).bit_count() for mask in masks]
        required = sum(1 << node for node, reused in zip(nodes, more, strict=True) if reused)
        free = tuple(map(sum, zip(free, more, strict=True)))
    count = min(bisect_left(together, need) + 1, len(nodes))
    rule = _socket_rule(topology, count) if align_by_socket else None
    return CPUHints(nodes, free, need, count, required, rule)


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


def _shortest_prefix(nodes: Sequence[tuple[int, int]], count: int, need: int) -> int:
    """Return how many first nodes are needed so that the best *count* of them have *need* CPUs; 0 if too few."""
    best: list[int] = []
    have = 0
    for length, (_, free) in enumerate(nodes, 1):
        have += free
        insort(best, free)
        if length > count:
            have -= best.pop(0)
        if length >= count and have >= need:
            return length
    return 0
