"""Distances between NUMA nodes as lines of text: one sentence if that is enough, else a matrix, if it fits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_MATRIX_UP_TO: Final = 8
_WIDE_MATRIX_UP_TO: Final = 16


def format_distances(distances: Mapping[int, Mapping[int, int]], width: int) -> list[str]:
    r"""Return the *distances* in lines of at most *width*; nothing for less than two nodes.

    >>> format_distances({0: {0: 10, 1: 32}, 1: {0: 32, 1: 10}}, 80)
    ['NUMA distances: 10 to itself, 32 to any other']
    >>> print(*format_distances({0: {0: 10, 1: 32}, 1: {0: 21, 1: 10}}, 80), sep="\n")
    NUMA distances
           0   1
       0  10  32
       1  21  10
    """
    nodes = sorted(distances.keys() | {node for row in distances.values() for node in row})
    if len(nodes) < 2:  # noqa: PLR2004 - a distance needs two
        return []
    own = {distances[a][a] for a in distances if a in distances[a]}
    other = {d for a, row in distances.items() for b, d in row.items() if a != b}
    complete = all(len(distances.get(node, ())) == len(nodes) for node in nodes)
    digits = max(len(str(number)) for number in {*nodes, *own, *other}) + 2
    fits = digits * (len(nodes) + 1) <= width and len(nodes) <= _WIDE_MATRIX_UP_TO
    if (len(own) == len(other) == 1 and complete) or not (fits or len(nodes) <= _MATRIX_UP_TO):
        return [f"NUMA distances: {_span(own)} to itself, {_span(other)} to any other"]
    head = " " * digits + "".join(f"{node:>{digits}}" for node in nodes)
    return ["NUMA distances", head, *(_row(a, distances.get(a, {}), nodes, digits) for a in nodes)]


def _row(node: int, row: Mapping[int, int], nodes: list[int], digits: int) -> str:
    return f"{node:>{digits}}" + "".join(f"{row.get(other, '-'):>{digits}}" for other in nodes)


def _span(numbers: set[int]) -> str:
    low, high = min(numbers, default=0), max(numbers, default=0)
    return str(low) if low == high else f"{low} to {high}"
