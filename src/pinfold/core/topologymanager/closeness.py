"""Closeness: which of two equally large sets of NUMA nodes is closer together (prefer-closest-numa-nodes)."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING

from pinfold.core.machine.cpuset import cpus_of
from pinfold.core.topologymanager.masks import MOST_MASKS, masks_of_size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_HERE, _FAR = 10, 255  # for unknown distances; the kernel's own values for local and unreachable


class Closeness:
    """The distances between the NUMA nodes, by node id.

    differs: the kubelet looks distances up by position, and crashes where node ids have gaps (Defect.SPARSE_NODE_IDS).

    >>> closeness = Closeness({0: {0: 10, 1: 12, 8: 30}, 1: {0: 12, 1: 10, 8: 20}, 8: {0: 30, 1: 20, 8: 10}})
    >>> sorted([0b1_0000_0001, 0b1_0000_0010, 0b11], key=closeness.rank) == [0b11, 0b1_0000_0010, 0b1_0000_0001]
    True
    """

    __slots__ = ("_nearest", "_ordered", "_rows", "spread")

    def __init__(self, distances: Mapping[int, Mapping[int, int]]) -> None:
        self._rows = distances
        self.spread: Callable[[int], int] = lru_cache(maxsize=MOST_MASKS)(self._sum_of_distances)
        """The sum of the distances from each node of a mask to each, itself included.

        The kubelet compares averages, but only for equally many nodes; then sums give the same order, without rounding.
        """
        self._ordered = lru_cache(maxsize=16)(self._in_order)
        self._nearest = lru_cache(maxsize=16)(self._neighbourhoods)

    def rank(self, mask: int) -> tuple[int, int, int]:
        """Order masks by the number of nodes, then by closeness, then by value."""
        return mask.bit_count(), self.spread(mask), mask

    def pick(self, nodes: int, count: int, accepts: Callable[[int], bool], *, otherwise: int) -> int:
        """Return the closest mask of *count* of the *nodes* that is accepted.

        Where there are more than MOST_MASKS to look at, the best is picked from: each node with those nearest to it,
        and *otherwise*, which must be an accepted mask.
        """
        ordered = self._ordered(nodes, count)
        if ordered is not None:
            return next(filter(accepts, ordered), otherwise)
        return min((otherwise, *filter(accepts, self._nearest(nodes, count))), key=self.rank)

    def _in_order(self, nodes: int, count: int) -> list[int] | None:
        masks = masks_of_size(nodes, count)
        return None if masks is None else sorted(masks, key=self.rank)

    def _neighbourhoods(self, nodes: int, count: int) -> set[int]:
        every = cpus_of(nodes)
        near = [sorted(every, key=partial(self._there_and_back, node))[:count] for node in every]
        return {sum(1 << node for node in together) for together in near}

    def _there_and_back(self, one: int, other: int) -> tuple[int, int]:
        """Order *other* nodes by their distance to *one*; *one* itself comes first."""
        return (self._distance(one, other) + self._distance(other, one) if one != other else 0), other

    def _sum_of_distances(self, mask: int) -> int:
        nodes = cpus_of(mask)
        return sum(self._distance(one, other) for one in nodes for other in nodes)

    def _distance(self, one: int, other: int) -> int:
        return self._rows.get(one, {}).get(other, _HERE if one == other else _FAR)
