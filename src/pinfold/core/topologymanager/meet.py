"""Intersects every mask of one set with every mask of another."""

from __future__ import annotations

from operator import add, mul, sub
from typing import TYPE_CHECKING

from pinfold.core.machine.cpuset import cpus_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable


def meet(some: Collection[int], others: Collection[int], everything: int) -> set[int]:
    """Return what each of *some* has in common with each of *others*.

    Pairs of masks are met one by one, unless counting them is faster: three tables over all masks of the machine, in
    each of which half of the masks are changed for every node, by a step that takes as long as four pairs.
    """
    nodes = everything.bit_count()
    if len(some) * len(others) <= 6 * nodes << nodes:
        return {mask & other for mask in some for other in others}
    return _meet_by_counting(some, {mask & everything for mask in others}, everything)


def _meet_by_counting(some: Iterable[int], others: Iterable[int], everything: int) -> set[int]:
    """Return the same as `meet`, in a time that depends only on the number of nodes.

    A pair has at least the nodes of m in common if both masks have them. So: count the supersets of every m on both
    sides, multiply, and subtract the share of larger masks: the rest is the number of pairs with exactly m.
    """
    masks = [0]
    for node in cpus_of(everything):
        masks += [mask | 1 << node for mask in masks]
    tables = [_with_larger(add, [mask in family for mask in masks]) for family in ({*some}, {*others})]
    pairs = _with_larger(sub, list(map(mul, *tables)))
    return {mask for mask, count in zip(masks, pairs, strict=True) if count}


def _with_larger(combine: Callable[[int, int], int], table: list[int]) -> list[int]:
    """Return the table over all masks, each combined with what stands for the same mask and one more node, for each."""
    half = 1
    while half < len(table):
        for start in range(0, len(table), 2 * half):
            middle = start + half
            table[start:middle] = map(combine, table[start:middle], table[middle : middle + half])
        half *= 2
    return table
