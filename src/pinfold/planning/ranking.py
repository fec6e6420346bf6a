"""The nodes of a shard in the order in which a scheduler prefers them, and the best of them for a demand.

What a scheduler compares is in `scheduling`. Knows nothing of CPU numbers.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from itertools import chain
from typing import TYPE_CHECKING, Final

from pinfold.planning.scheduling import BEST_SCORE, ZONE_COST, Scheduler, score_zones

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pinfold.planning.dice import Dice
    from pinfold.planning.scheduling import Demand, Load, Room

_REMEMBERED: Final = 10_000


class _Order:
    """The nodes of a type by use, emptier ones first."""

    __slots__ = ("levels", "room", "uses")

    def __init__(self, room: Room) -> None:
        self.room = room
        self.levels: dict[int, tuple[list[int], int]] = {}
        """For each use the nodes in order of number, and the same as a mask."""
        self.uses: list[int] = []

    def add(self, used: int, node: int) -> None:
        level = self.levels.get(used)
        if level is None:
            self.levels[used] = [node], 1 << node
            insort(self.uses, used)
        else:
            insort(level[0], node)
            self.levels[used] = level[0], level[1] | 1 << node

    def remove(self, used: int, node: int) -> None:
        nodes, mask = self.levels[used]
        if len(nodes) == 1:
            del self.levels[used]
            self.uses.remove(used)
        else:
            del nodes[bisect_left(nodes, node)]
            self.levels[used] = nodes, mask ^ 1 << node


class _Search:
    """The search for a demand among the nodes of a type, and what it has found out about them."""

    __slots__ = ("demand", "failed", "highest", "most", "order", "scores")

    def __init__(self, order: _Order, demand: Demand, *, aware: bool) -> None:
        allocatable = order.room.allocatable
        self.order = order
        self.demand = demand
        self.highest = BEST_SCORE + (-demand.scored * BEST_SCORE // allocatable if allocatable else -BEST_SCORE)
        """The score by use of an empty node."""
        self.most = BEST_SCORE - ZONE_COST if aware and demand.parts else 0
        """What the NUMA nodes can add to a score; 0: they are not looked at."""
        self.failed = 0
        """The nodes that could not take the demand, as a mask."""
        self.scores: dict[tuple[int, ...], int | None] = {}
        """What `score_zones` has said of nodes with these zones."""

    def look(self, load: Load) -> int | None:
        """Return what the node's NUMA nodes add to its score, None if it cannot take the demand."""
        room = self.order.room
        if load.requested + self.demand.request > room.allocatable or load.pods >= room.most_pods:
            return None
        if not self.most:
            return 0
        scores = self.scores
        if load.zones not in scores:
            if len(scores) >= _REMEMBERED:
                scores.clear()
            scores[load.zones] = score_zones(room, load, self.demand)
        return scores[load.zones]

    def others(self, turn: int, mask: int) -> Iterator[int]:
        """Yield the nodes of a mask that have not failed: upwards from *turn*, then those below it."""
        mask &= ~self.failed
        yield from _numbers(mask >> turn + 1, turn + 1)
        yield from _numbers(mask & (1 << turn) - 1)


class Ranking:
    """The nodes of a shard ordered by use, and the best of them for a demand.

    Nodes only fill up: a node that could not take a demand is not tried again for it. Ties are broken at random, for
    each pod.
    """

    def __init__(self, scheduler: Scheduler, rooms: Sequence[Room], loads: Sequence[Load], dice: Dice) -> None:
        self._aware = scheduler is Scheduler.AWARE
        self._loads = loads
        self._roll = dice.roll
        self._used = [load.used(room) for room, load in zip(rooms, loads, strict=True)]
        orders = {room: _Order(room) for room in rooms}
        self._order_of = [orders[room] for room in rooms]
        for node, used in enumerate(self._used):
            self._order_of[node].add(used, node)
        self._orders = tuple(orders.values())
        self._searches: dict[Demand, tuple[_Search, ...]] = {}
        """For each demand those among the nodes of each type; none once no node can take it."""

    def best(self, demand: Demand) -> int | None:
        """Return the best node for the demand; None if no node can take it."""
        searches = self._searches.get(demand)
        if searches is None:
            searches = tuple([_Search(order, demand, aware=self._aware) for order in self._orders])
            self._searches[demand] = searches
        best: tuple[int, int, int] | None = None
        for search in searches:
            found = self._best_of(search, 0 if best is None else best[0])
            if found is not None and (best is None or found > best):
                best = found
        if best is None:
            self._searches[demand] = ()
            return None
        return best[2]

    def _best_of(self, search: _Search, least: int) -> tuple[int, int, int] | None:
        """Return the best node of a type: its score if that is at least *least*, a number for ties, and the node."""
        roll, loads, levels, most, highest = self._roll, self._loads, search.order.levels, search.most, search.highest
        best = None
        for used in search.order.uses:
            nodes, mask = levels[used]
            turn = nodes[roll() % len(nodes)]
            score = highest - used if highest > used else 0
            if score + most < least:
                break
            # Most often the first node will do, and the others are not listed.
            first = () if search.failed >> turn & 1 else (turn,)
            for node in chain(first, search.others(turn, mask)):
                more = search.look(loads[node])
                if more is None:
                    search.failed |= 1 << node
                elif best is None or score + more > best[0]:
                    best = score + more, roll(), node
                    if more == most:
                        return best
                    least = best[0] + 1
        return best

    def filled(self, node: int) -> None:
        """Move the node to its new place after a pod was placed on it."""
        order = self._order_of[node]
        used = self._loads[node].used(order.room)
        if used != self._used[node]:
            order.remove(self._used[node], node)
            order.add(used, node)
            self._used[node] = used


def _numbers(mask: int, first: int = 0) -> Iterator[int]:
    """Yield the numbers in a mask whose lowest bit stands for *first*.

    >>> list(_numbers(0b101101, first=10))
    [10, 12, 13, 15]
    """
    while mask:
        lowest = (mask & -mask).bit_length() - 1
        yield first + lowest
        mask ^= 1 << lowest
