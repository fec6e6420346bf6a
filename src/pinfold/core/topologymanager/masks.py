"""Masks over the NUMA nodes of a machine: all of them in order, and the tables that go with a set of node ids.

Cached between calls, as the nodes of a machine do not change.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.topologymanager.hint import Hint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LISTED_NODES: Final = 12
"""Up to this many nodes, all masks are kept in order (4,095 of them); beyond, they are made one by one."""


def narrow_then_low(mask: int) -> tuple[int, int]:
    """Order masks by the number of nodes, then by value."""
    return mask.bit_count(), mask


class OrderedMasks(NamedTuple):
    """All masks over some nodes, by size and then in the order of node ids."""

    flagged: tuple[tuple[Hint, ...], ...]
    """The masks as hints, by the preferred number of nodes: flagged[2] prefers pairs."""
    in_order: Callable[[list[int]], Sequence[int]]
    """Puts a table over all masks (indexed by the nodes' places, so that the third node counts 4) into this order."""


@lru_cache(maxsize=8)
def ordered_masks(nodes: tuple[int, ...]) -> OrderedMasks:
    """Return all masks over *nodes*, at most LISTED_NODES of them."""
    pairs = [(1 << node, 1 << place) for place, node in enumerate(nodes)]
    sets = [chosen for count in range(1, len(nodes) + 1) for chosen in combinations(pairs, count)]
    plain = [Hint(sum(bit for bit, _ in chosen), preferred=False) for chosen in sets]
    preferred = [Hint(hint.affinity, preferred=True) for hint in plain]
    flagged = [
        tuple(yes if len(chosen) == count else no for chosen, yes, no in zip(sets, preferred, plain, strict=True))
        for count in range(len(nodes) + 1)
    ]
    places = [sum(place for _, place in chosen) for chosen in sets]
    return OrderedMasks(tuple(flagged), itemgetter(*places) if len(places) > 1 else itemgetter(slice(1, None)))


@lru_cache(maxsize=64)
def mask_of(nodes: tuple[int, ...]) -> int:
    """Return the mask of *nodes*."""
    return sum(1 << node for node in nodes)


@lru_cache(maxsize=64)
def places_of(nodes: tuple[int, ...]) -> Mapping[int, int]:
    """Return the place of each node, found by the mask of that node alone."""
    return {1 << node: place for place, node in enumerate(nodes)}
