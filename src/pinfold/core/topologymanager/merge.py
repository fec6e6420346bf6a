"""Merging hints: the best set of NUMA nodes that all resources can agree on.

The kubelet tries all combinations of one hint per resource, and keeps the best common mask. This module finds the
same mask without trying them all:

- A preferred result needs equal masks, all preferred; so it is in the intersection of the sets of preferred masks.
- Otherwise only the common masks count, not which hints led to them. For lists they are met pair by pair, each once.
  CPUHints come last, for each common mask of the others: such a hint with more nodes is a hint again, so every number
  of nodes from the narrowest hint's on is possible.

Knows nothing of policies and admission. Where two resources have CPUHints, the second is listed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pinfold.core.topologymanager.cpu import CPUHints
from pinfold.core.topologymanager.hint import Hint, HintList
from pinfold.core.topologymanager.masks import narrow_then_low
from pinfold.core.topologymanager.meet import meet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from pinfold.core.topologymanager.closeness import Closeness
    from pinfold.core.topologymanager.hint import Hints

    Providers = Iterable[Mapping[str, Hints | None] | None]


class GatheredHints(NamedTuple):
    """The hints to merge, without resources that have no preference."""

    lists: list[HintList]
    cpus: CPUHints | None
    satisfiable: bool
    """Whether every resource has a hint at all; if not, nothing is preferred."""


def gather(providers: Providers) -> GatheredHints:
    """Return the hints of all providers. No map, an empty one, or None for a resource means no preference."""
    lists: list[HintList] = []
    cpus: CPUHints | None = None
    satisfiable = True
    for provider in providers:
        for hints in provider.values() if provider else ():
            if hints is None:
                continue
            if not hints:
                satisfiable = False
            elif isinstance(hints, HintList):
                lists.append(hints)
            elif isinstance(hints, CPUHints) and cpus is None:
                cpus = hints
            else:
                lists.append(HintList(hints))
    return GatheredHints(lists, cpus, satisfiable)


def merge_hints(resources: GatheredHints, everything: int, closeness: Closeness | None = None) -> Hint:
    """Return the best hint that all *resources* share, on a machine with the nodes *everything*.

    >>> cpus = HintList([Hint.of(0), Hint.of(1), Hint.of(0, 1, preferred=False)])
    >>> print(merge_hints(gather([{"cpu": cpus}, {"gpu": HintList([Hint.of(1)])}]), everything=0b11))
    NUMA 1, preferred
    """
    if resources.satisfiable:
        mask = best_preferred(resources, everything, closeness)
        if mask:
            return Hint(mask, preferred=True)
    # If no node is common to all, the kubelet answers with all nodes.
    return Hint(best_common(resources, everything, closeness) or everything, preferred=False)


def merge_single(providers: Providers, everything: int) -> Hint:
    """Return the lowest single node that every resource prefers; any node if none has a preference.

    >>> print(merge_single([{"cpu": HintList([Hint.of(1)])}, {"gpu": HintList([Hint.of(0)])}], everything=0b11))
    any NUMA
    """
    common, offered, picky = everything, 0, False
    for provider in providers:
        for hints in provider.values() if provider else ():
            if hints is None:
                continue
            if hints.any_preferred:
                offered |= hints.singles
            else:
                picky = True
                common &= hints.singles
    if not picky:
        common = offered & everything
    lowest = common & -common
    # On a machine with one node the result is all nodes, and the kubelet answers with any node.
    return Hint(None if lowest in {0, everything} else lowest, preferred=bool(lowest) or not picky)


def best_preferred(resources: GatheredHints, everything: int, closeness: Closeness | None) -> int:
    """Return the best mask that all resources prefer; 0 if there is none."""
    cpus = resources.cpus
    picky = [hints.preferred for hints in resources.lists if not hints.any_preferred]
    if cpus is not None and not picky:
        return _best_preferred_of_cpus(cpus, closeness)
    rank = ranking(closeness)
    masks = preferred_masks(resources.lists, everything)
    if cpus is not None:
        return next(filter(cpus.prefers, sorted(masks, key=rank)), 0)
    return min((mask & everything for mask in masks if mask & everything), key=rank, default=0)


def preferred_masks(lists: Sequence[HintList], everything: int) -> AbstractSet[int]:
    """Return all masks that the listed resources agree on as preferred."""
    picky = [hints.preferred for hints in lists if not hints.any_preferred]
    if picky:
        return frozenset.intersection(*picky)
    return {everything}.union(*(hints.preferred for hints in lists))


def best_common(resources: GatheredHints, everything: int, closeness: Closeness | None) -> int:
    """Return the best mask that the resources have in common, preferred or not; 0 if there is none."""
    goal = count_goal(resources)
    masks = common_masks(resources.lists, everything)
    if resources.cpus is not None:
        return _best_of_cpus(resources.cpus, masks, goal, closeness)
    if not masks:
        return 0
    count = min({mask.bit_count() for mask in masks}, key=lambda count: (count > goal, abs(goal - count)))
    return min((mask for mask in masks if mask.bit_count() == count), key=ranking(closeness))


def count_goal(resources: GatheredHints) -> int:
    """Return the number of nodes that is best for a result which is not preferred.

    It is the largest of the resources' narrowest hints. Fewer nodes are too few for some resource, so more are
    better; above that number, fewer are better.
    """
    goal = max((hints.narrowest for hints in resources.lists), default=0)
    return goal if resources.cpus is None else max(goal, resources.cpus.narrowest)


def common_masks(lists: Iterable[HintList], everything: int) -> set[int]:
    """Return every intersection of *everything* with one hint from each list; never the empty mask."""
    common = {everything}
    for hints in sorted(lists, key=lambda hints: len(hints.masks)):
        if hints.masks:
            met = meet(common, hints.masks, everything)
            common = met | common if hints.has_any else met
            common.discard(0)
    return common


def _best_preferred_of_cpus(cpus: CPUHints, closeness: Closeness | None) -> int:
    lowest = cpus.lowest_preferred()
    if closeness is None or not lowest:
        return lowest
    return closeness.pick(cpus.everything, lowest.bit_count(), cpus.prefers, otherwise=lowest)


def _best_of_cpus(cpus: CPUHints, masks: Iterable[int], goal: int, closeness: Closeness | None) -> int:
    """Return the best intersection of a hint of *cpus* with one of *masks*.

    The narrowest hint of *cpus* has at most *goal* nodes, and so has its intersection with a mask. Nodes of the mask
    can be added to it one by one: up to the goal, or to the whole mask.
    """
    areas = {mask & cpus.everything for mask in masks}
    count = min(goal, max((area.bit_count() for area in areas), default=0))
    if not count:
        return 0
    wide = [area for area in areas if area.bit_count() >= count]
    lowest = _lowest_of_areas(cpus, wide, count)
    if closeness is None:
        return lowest
    return closeness.pick(
        cpus.everything, count, lambda mask: any(cpus.leaves(mask, area) for area in wide), otherwise=lowest
    )


def _lowest_of_areas(cpus: CPUHints, areas: Iterable[int], count: int) -> int:
    best = 0
    # No mask of an area is lower than its lowest nodes, so the search stops at the first area where these are too high.
    for least, area in sorted((_low_nodes(area, count), area) for area in areas):
        if best and least >= best:
            break
        mask = cpus.lowest(count, area)
        best = min(mask, best) if best else mask
    return best


def _low_nodes(mask: int, count: int) -> int:
    """Return the lowest *count* nodes of *mask*."""
    rest = mask
    for _ in range(count):
        rest &= rest - 1
    return mask ^ rest


def ranking(closeness: Closeness | None) -> Callable[[int], tuple[int, ...]]:
    """Return the key that puts the better of two masks first, where both are preferred or have as many nodes."""
    return narrow_then_low if closeness is None else closeness.rank
