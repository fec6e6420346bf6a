"""Intersects every mask of one set with every mask of another."""

from __future__ import annotations

import sys
from array import array
from functools import lru_cache
from operator import mul
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.machine.cpuset import cpus_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

# Pairs are intersected one by one, up to this many for each mask of the machine; counting then takes as long.
_FEW_PAIRS: Final = 6
# With more nodes, counting would take more memory than the lists.
_COUNTED_NODES: Final = 16
_FIELD: Final = "I"
_FIELD_BYTES: Final = array(_FIELD).itemsize
_FIELD_BITS: Final = 8 * _FIELD_BYTES


def meet(some: Collection[int], others: Collection[int], everything: int) -> set[int]:
    """Return the intersections of each of *some* with each of *others*."""
    nodes = everything.bit_count()
    if len(some) * len(others) <= _FEW_PAIRS << nodes or nodes > _COUNTED_NODES:
        return {mask & other for mask in some for other in others}
    return _meet_by_counting(some, {mask & everything for mask in others}, everything)


class _Table(NamedTuple):
    """All masks over some nodes, each with a field of its own in one large int."""

    masks: list[int]
    place: dict[int, int]
    steps: list[tuple[int, int]]
    """For each node: the distance from fields of masks without it to those with it, and the fields without it."""


def _meet_by_counting(some: Iterable[int], others: Iterable[int], everything: int) -> set[int]:
    """Return the same as `meet`, in a time that depends only on the number of nodes.

    A pair has at least the nodes of m in common if both masks have them. So: count the supersets of every m on both
    sides, multiply, and subtract the share of larger masks: the rest is the number of pairs with exactly m.
    """
    table = _table(everything)
    pairs = array(_FIELD, map(mul, _supersets(some, table), _supersets(others, table)))
    packed = int.from_bytes(pairs.tobytes(), sys.byteorder)
    for distance, without in table.steps:
        packed -= packed >> distance & without
    exactly = array(_FIELD, packed.to_bytes(_FIELD_BYTES * len(pairs), sys.byteorder))
    return {mask for mask, count in zip(table.masks, exactly, strict=True) if count}


def _supersets(masks: Iterable[int], table: _Table) -> array[int]:
    """Return for every mask of the table how many of *masks* hold it."""
    present = array(_FIELD, bytes(_FIELD_BYTES * len(table.masks)))
    for mask in masks:
        present[table.place[mask]] = 1
    packed = int.from_bytes(present.tobytes(), sys.byteorder)
    for distance, without in table.steps:
        packed += packed >> distance & without
    return array(_FIELD, packed.to_bytes(_FIELD_BYTES * len(present), sys.byteorder))


@lru_cache(maxsize=2)
def _table(everything: int) -> _Table:
    masks = [0]
    for node in cpus_of(everything):
        masks += [mask | 1 << node for mask in masks]
    steps = []
    for place in range(everything.bit_count()):
        distance = _FIELD_BITS << place
        without, width = (1 << distance) - 1, 2 * distance
        while width < _FIELD_BITS * len(masks):
            without |= without << width
            width *= 2
        steps.append((distance, without))
    return _Table(masks, {mask: at for at, mask in enumerate(masks)}, steps)
