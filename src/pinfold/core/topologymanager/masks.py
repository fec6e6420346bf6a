"""Masks over the NUMA nodes of a machine: all of them in order, and the tables that go with a set of node ids.

Cached between calls, as the nodes of a machine do not change.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from math import comb
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.machine.cpuset import cpus_of
from pinfold.core.topologymanager.hint import Hint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MOST_MASKS: Final = 1 << 16
"""The most masks that are gone through one by one: all of 16 NUMA nodes, twice what the kubelet allows by default.

Going through so many takes about 0.2 s, the first time. Where there are more, functions say what they do instead.
"""


def narrow_then_low(mask: int) -> tuple[int, int]:
    """Order masks by the number of nodes, then by value."""
    return mask.bit_count(), mask


def masks_of_size(nodes: int, count: int) -> Iterator[int] | None:
    """Return all masks of *count* of the *nodes*, in the order of node ids; None if they are more than MOST_MASKS."""
    if comb(nodes.bit_count(), count) > MOST_MASKS:
        return None
    return map(sum, combinations([1 << node for node in cpus_of(nodes)], count))


class MaskTable(NamedTuple):
    """All masks over some nodes, by size and then in the order of node ids."""

    hints: tuple[Hint, ...]
    """As hints: masks of one size are preferred, or none."""
    preferred: tuple[Hint, ...]
    """As hints that are all preferred."""
    in_order: Callable[[list[int]], Sequence[int]]
    """Puts a table over all masks (indexed by the nodes' places, so that the third node counts 4) into this order."""


@lru_cache(maxsize=16)
def mask_table(nodes: tuple[int, ...], preferred_count: int = 0) -> MaskTable:
    """Return all masks over *nodes*, preferred if they have so many; raise a ValueError beyond MOST_MASKS."""
    if preferred_count:
        table = mask_table(nodes)
        first = sum(comb(len(nodes), count) for count in range(1, preferred_count))
        end = first + comb(len(nodes), preferred_count)
        return table._replace(hints=table.hints[:first] + table.preferred[first:end] + table.hints[end:])
    if 1 << len(nodes) > MOST_MASKS:
        most = MOST_MASKS.bit_length() - 1
        raise ValueError(f"{len(nodes)} NUMA nodes have too many masks to be listed; at most {most} nodes can be")
    pairs = [(1 << node, 1 << place) for place, node in enumerate(nodes)]
    sets = [chosen for count in range(1, len(nodes) + 1) for chosen in combinations(pairs, count)]
    masks = [sum(bit for bit, _ in chosen) for chosen in sets]
    places = [sum(place for _, place in chosen) for chosen in sets]
    return MaskTable(
        tuple(Hint(mask, preferred=False) for mask in masks),
        tuple(Hint(mask, preferred=True) for mask in masks),
        itemgetter(*places) if len(places) > 1 else itemgetter(slice(1, None)),
    )


@lru_cache(maxsize=64)
def mask_of(nodes: tuple[int, ...]) -> int:
    """Return the mask of *nodes*."""
    return sum(1 << node for node in nodes)
