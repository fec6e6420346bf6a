"""Where each box and each core of a Layout goes: nested grids of rectangles, in characters or pixels.

Knows nothing of what is drawn. All boxes of a level are laid out in grids with the same number of columns; the caller's
cost function chooses among the numbers of columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate, product
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pinfold.core.machine.layout import Box, Layout

# Tries all numbers of columns up to this one, above it only some: wider grids differ little.
_TRY_ALL: Final = 32


class Rect(NamedTuple):
    """A rectangle: its left upper corner and its size."""

    x: int
    y: int
    w: int
    h: int


class Size(NamedTuple):
    """A width and a height."""

    w: int
    h: int


class Frame(NamedTuple):
    """The margins of a box around its contents; *gap* is the space between boxes of the level."""

    left: int
    top: int
    right: int
    bottom: int
    gap: Size
    least: int = 0
    """The minimum width of a box, for its label."""


class Measures(NamedTuple):
    """The sizes to draw with: one frame for each level, and the cell that stands for a core."""

    frames: tuple[Frame, ...]
    cell: Size
    cell_gap: Size
    one_cell: bool = False
    """Whether an innermost box has one cell, instead of one for each core."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A box and its place; an innermost box has places for its cells."""

    box: Box
    depth: int
    rect: Rect
    boxes: tuple[Placed, ...] = ()
    cells: tuple[Rect, ...] = ()

    def all(self) -> Iterator[Placed]:
        """Return this box and all boxes in it, outer ones first."""
        yield self
        for inner in self.boxes:
            yield from inner.all()


@dataclass(frozen=True, slots=True)
class Picture:
    """All boxes in their places, and the size of the whole."""

    size: Size
    boxes: tuple[Placed, ...]

    def all(self) -> Iterator[Placed]:
        """Return all boxes, outer ones first."""
        for box in self.boxes:
            yield from box.all()


class Fit(NamedTuple):
    """The measures of a picture before it is made."""

    size: Size
    waste: float
    """The share of places left empty, added up over the levels."""
    cell_rows: int
    """The most rows of cells that a box has."""


def arrange(layout: Layout, measures: Measures, cost: Callable[[Fit], tuple[float, ...]]) -> Picture:
    """Return the picture of *layout* that costs least."""
    shapes = _Shapes(layout, measures)
    plans = product(*map(_columns, shapes.most))
    best = min(plans, key=lambda plan: cost(shapes.fit(plan)))
    return _Placing(measures, best).picture(layout)


class _Shapes:
    """The distinct shapes of boxes: how many cells, or which shapes are in it. Regular machines have few."""

    def __init__(self, layout: Layout, measures: Measures) -> None:
        self.measures = measures
        self.most = _most(layout, measures)
        self.index: dict[tuple[int, tuple[int, ...] | int], int] = {}
        self.root = self._add(0, tuple(self._shape(box, 1) for box in layout.boxes))

    def _shape(self, box: Box, depth: int) -> int:
        if box.boxes:
            return self._add(depth, tuple(self._shape(inner, depth + 1) for inner in box.boxes))
        return self._add(depth, _cells(box, self.measures))

    def _add(self, depth: int, inside: tuple[int, ...] | int) -> int:
        return self.index.setdefault((depth, inside), len(self.index))

    def fit(self, plan: Sequence[int]) -> Fit:
        """Return the measures of the picture with these numbers of columns, outermost boxes first, cells last."""
        rows = [-(-most // columns) for most, columns in zip(self.most, plan, strict=True)]
        waste = sum(1 - most / (n * columns) for most, n, columns in zip(self.most, rows, plan, strict=True))
        return Fit(self._size(plan), waste, rows[-1])

    def _size(self, plan: Sequence[int]) -> Size:
        sizes: list[Size] = []
        cell, cell_gap, frames = self.measures.cell, self.measures.cell_gap, self.measures.frames
        for depth, inside in self.index:
            if isinstance(inside, int):
                tracks = _even_tracks(cell, inside, plan[depth])
                size = tracks.size(cell_gap)
            else:
                tracks = _tracks([sizes[shape] for shape in inside], plan[depth])
                size = tracks.size(frames[depth].gap)
            sizes.append(_framed(size, self.measures, depth))
        return sizes[self.root]


class _Placing(NamedTuple):
    """Places boxes for known numbers of columns; inner ones first, then moved into the outer."""

    measures: Measures
    plan: Sequence[int]

    def picture(self, layout: Layout) -> Picture:
        return Picture(*self._side_by_side(layout.boxes, 0))

    def _side_by_side(self, boxes: Sequence[Box], depth: int) -> tuple[Size, tuple[Placed, ...]]:
        placed = [self._box(box, depth) for box in boxes]
        tracks = _tracks([Size(box.rect.w, box.rect.h) for box in placed], self.plan[depth])
        gap = self.measures.frames[depth].gap
        pairs = zip(placed, tracks.places(len(placed), gap), strict=True)
        return tracks.size(gap), tuple(replace(_moved(box, at.x, at.y), rect=at) for box, at in pairs)

    def _box(self, box: Box, depth: int) -> Placed:
        frame, gap = self.measures.frames[depth], self.measures.cell_gap
        boxes: tuple[Placed, ...] = ()
        cells: list[Rect] = []
        if box.boxes:
            inner, boxes = self._side_by_side(box.boxes, depth + 1)
        else:
            number = _cells(box, self.measures)
            tracks = _even_tracks(self.measures.cell, number, self.plan[depth + 1])
            inner, cells = tracks.size(gap), tracks.places(number, gap)
        whole = Rect(-frame.left, -frame.top, *_framed(inner, self.measures, depth + 1))
        return _moved(Placed(box, depth, whole, boxes, tuple(cells)), frame.left, frame.top)


def _moved(placed: Placed, x: int, y: int) -> Placed:
    def move(rect: Rect) -> Rect:
        return rect._replace(x=rect.x + x, y=rect.y + y)

    boxes = tuple(_moved(box, x, y) for box in placed.boxes)
    return replace(placed, rect=move(placed.rect), boxes=boxes, cells=tuple(map(move, placed.cells)))


class _Tracks(NamedTuple):
    """A grid: how wide its columns are and how high its rows."""

    widths: list[int]
    heights: list[int]

    def size(self, gap: Size) -> Size:
        w, h = (sum(tracks) + room * max(len(tracks) - 1, 0) for tracks, room in zip(self, gap, strict=True))
        return Size(w, h)

    def places(self, number: int, gap: Size) -> list[Rect]:
        """Return the first *number* places, row by row."""
        xs = list(accumulate((width + gap.w for width in self.widths), initial=0))
        ys = list(accumulate((height + gap.h for height in self.heights), initial=0))
        at = (divmod(i, len(self.widths)) for i in range(number))
        return [Rect(xs[column], ys[row], self.widths[column], self.heights[row]) for row, column in at]


def _tracks(sizes: Sequence[Size], columns: int) -> _Tracks:
    """Return the grid of *sizes*, row by row: a column is as wide as its widest, a row as high as its highest."""
    widths, heights = [size.w for size in sizes], [size.h for size in sizes]
    return _Tracks(
        [max(widths[i::columns]) for i in range(min(columns, len(sizes)))],
        [max(heights[i : i + columns]) for i in range(0, len(sizes), columns)],
    )


def _even_tracks(size: Size, number: int, columns: int) -> _Tracks:
    """Return the grid of *number* times the same size."""
    return _Tracks([size.w] * min(columns, number), [size.h] * -(-number // columns))


def _framed(inner: Size, measures: Measures, depth: int) -> Size:
    """Return the size of a box around *inner*; depth 0 is the whole picture, which has no frame."""
    if depth == 0:
        return inner
    frame = measures.frames[depth - 1]
    return Size(max(inner.w + frame.left + frame.right, frame.least), inner.h + frame.top + frame.bottom)


def _cells(box: Box, measures: Measures) -> int:
    return 1 if measures.one_cell else len(box.cores)


def _most(layout: Layout, measures: Measures) -> list[int]:
    """Return the largest number of boxes in a box, for each level, and of cells."""
    boxes = [max((len(box.boxes) for box in layout.at(depth)), default=1) for depth in range(len(layout.levels) - 1)]
    leaves = layout.at(len(layout.levels) - 1)
    return [max(len(layout.boxes), 1), *boxes, max((_cells(box, measures) for box in leaves), default=1)]


def _columns(most: int) -> list[int]:
    """Return the numbers of columns worth trying for *most* boxes: those that fill their rows evenly.

    >>> _columns(12)
    [1, 2, 3, 4, 6, 12]
    """
    even = sorted({-(-most // rows) for rows in range(1, most + 1)})
    small = [columns for columns in even if columns <= _TRY_ALL]
    wide = [columns for columns in even if columns > _TRY_ALL]
    return small + wide[:: max(len(wide) // 8, 1)]
