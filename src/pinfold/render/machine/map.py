"""Topology → a map for the terminal: sockets, NUMA nodes, uncore caches, cores and CPUs, in boxes or in rows.

Knows nothing of the terminal itself: callers pass its width, colours and characters. A core is written
as its CPUs with a slash, `0/32`. As long as the map stays short, every group is a box; on larger machines groups become
headings and the innermost ones a row each; on the largest the rows are lists of CPUs.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.layout import GroupKind, layout
from pinfold.core.machine.summary import remarks, summary
from pinfold.formats.machine.distances import format_distances
from pinfold.render.machine.arrange import Fit, Frame, Measures, Picture, Placed, Rect, Size, arrange
from pinfold.render.machine.canvas import Canvas, Look, flow, wrap

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pinfold.core.machine.layout import Box, Layout
    from pinfold.core.machine.topology import Topology

# How many lines a map may have in boxes, and in rows of cores; a screen has some 50.
_BOXES_UP_TO: Final = 40
_ROWS_UP_TO: Final = 120
# A longer label than this is a heading, not the start of a row.
_LABEL_UP_TO: Final = 12

COLOURS: Final[Mapping[GroupKind, str]] = {GroupKind.SOCKET: "34", GroupKind.NUMA: "32", GroupKind.UNCORE: "36"}
"""Calm colours of the groups, as numbers of ANSI escape sequences."""
_BOLD, _DIM, _YELLOW = "1", "2", "33"


def format_map(topology: Topology, look: Look | None = None) -> str:
    """Return the map of *topology*: a summary line, the groups, and remarks.

    >>> from pinfold.core.machine.presets import preset
    >>> print(format_map(preset("sockets:1,numa:1,l3:2,cores:2,threads:2")), end="")
    1 socket · 1 NUMA node · 2 L3 · 4 cores · 8 CPUs, SMT2
    <BLANKLINE>
    ╭─ Socket 0 · NUMA 0 ───────╮
    │ ╭─ L3 0 ───╮ ╭─ L3 1 ───╮ │
    │ │ 0/4  1/5 │ │ 2/6  3/7 │ │
    │ ╰──────────╯ ╰──────────╯ │
    ╰───────────────────────────╯
    <BLANKLINE>
    0/4: the CPUs of one core
    """
    look = look or Look()
    drawing = _drawing(layout(topology), topology, look)
    head, boxes, below = Canvas(), Canvas(), Canvas()
    head.append(flow(look.signs.plain(summary(topology)), look.signs.dot, look.width), _BOLD)
    _Painter(boxes, drawing, topology, look).paint()
    for text in [*_key(drawing, topology, look), *format_distances(topology.distances, look.width)]:
        below.append(wrap(text, look.width, indent=2), _DIM)
    parts = [canvas.lines(colour=look.colour) for canvas in (head, boxes, below) if canvas.height]
    return "\n".join("".join(f"{line}\n" for line in lines) for lines in parts)


def draw_groups(topology: Topology, look: Look, height: int | None = None) -> Canvas | None:
    """Return the groups of *topology*, with the number of each CPU; None if that needs more than *height* lines."""
    drawing = _drawing(layout(topology), topology, look, height or _ROWS_UP_TO)
    if height is not None and (drawing.lists or not drawing.fits(look.width, height)):
        return None
    canvas = Canvas()
    _Painter(canvas, drawing, topology, look).paint()
    return canvas


class _Shape(Enum):
    """How a group is drawn."""

    BOX = "a box with its label in the upper side"
    RULE = "a heading above its content"
    LABEL = "its label at the start of a row"


class _Drawing(NamedTuple):
    """A map before it is drawn: the style of each level, all places, and the text of each cell."""

    shapes: Sequence[_Shape]
    picture: Picture
    lists: Mapping[Box, Sequence[str]]
    """The lines of each innermost group that is not drawn core by core."""

    def fits(self, width: int, height: int) -> bool:
        return self.picture.size.w <= width and self.picture.size.h <= height


def _drawing(machine: Layout, topology: Topology, look: Look, height: int = _ROWS_UP_TO) -> _Drawing:
    """Return the most detailed drawing that fits the width and stays short."""
    core = Size(
        max((len(_core_text(core, topology, look)) for box in machine.boxes for core in box.cores), default=1), 1
    )
    boxes = [_Shape.BOX] * len(machine.levels)
    drawing = _arranged(machine, boxes, Measures(_frames(machine, boxes, look), core, Size(2, 0)), look)
    if drawing.fits(look.width, min(_BOXES_UP_TO, height)):
        return drawing
    rows = _row_shapes(machine, look)
    frames = _frames(machine, rows, look)
    drawing = _arranged(machine, rows, Measures(frames, core, Size(1, 0)), look)
    if drawing.fits(look.width, _ROWS_UP_TO):
        return drawing
    room = look.width - sum(frame.left + frame.right for frame in frames)
    lists = {leaf: wrap(_list_text(leaf), room) for box in machine.boxes for leaf in box.leaves()}
    width = max((len(line) for lines in lists.values() for line in lines), default=1)
    cell = Size(width, max(map(len, lists.values()), default=1))
    return _arranged(machine, rows, Measures(frames, cell, Size(1, 0), one_cell=True), look)._replace(lists=lists)


def _arranged(machine: Layout, shapes: Sequence[_Shape], measures: Measures, look: Look) -> _Drawing:
    def cost(fit: Fit) -> tuple[float, ...]:
        # Short is good, full rows are better; a row that starts with its label should stay in one line.
        fold = 0.35 * (fit.cell_rows - 1) if _Shape.LABEL in shapes else 0
        return (max(fit.size.w, look.width), fit.size.h * (1 + 2 * fit.waste) * (1 + fold), fit.size.w)

    return _Drawing(shapes, arrange(machine, measures, cost), {})


def _row_shapes(machine: Layout, look: Look) -> list[_Shape]:
    innermost = machine.at(len(machine.levels) - 1)
    short = all(len(look.signs.plain(box.label)) <= _LABEL_UP_TO for box in innermost)
    return [_Shape.RULE] * (len(machine.levels) - 1) + [_Shape.LABEL if short else _Shape.RULE]


def _frames(machine: Layout, shapes: Sequence[_Shape], look: Look) -> tuple[Frame, ...]:
    frames = []
    for depth, shape in enumerate(shapes):
        label = max((len(look.signs.plain(box.label)) for box in machine.at(depth)), default=0)
        if shape is _Shape.BOX:
            frames.append(Frame(2, 1, 2, 1, gap=Size(1, 0), least=label + 6))
        elif shape is _Shape.RULE:
            last_rule = _Shape.RULE not in shapes[depth + 1 :]
            least = min(label + 6, look.width)
            frames.append(Frame(2 if last_rule else 0, 1, 0, 0, gap=Size(2, 0), least=least))
        else:
            frames.append(Frame(label + 1, 0, 0, 0, gap=Size(3, 0)))
    return tuple(frames)


def _core_text(core: Sequence[int], topology: Topology, look: Look) -> str:
    return "/".join(f"{cpu}{'!' * (cpu in topology.isolated)}{look.marks.get(cpu, '')}" for cpu in core)


def _list_text(box: Box) -> str:
    number = len(box.cores)
    cpus = CPUSet.from_cpus(cpu for core in box.cores for cpu in core)
    return f"{number} {'core' if number == 1 else 'cores'}  CPUs {cpus}"


def _key(drawing: _Drawing, topology: Topology, look: Look) -> list[str]:
    """Return the legend of the map, if it needs one."""
    lines = []
    pair = next((core for core in topology.cores if core.mask.bit_count() > 1), None)
    if pair and not drawing.lists:
        lines.append(f"{_core_text(list(pair.cpus), topology, look)}: the CPUs of one core")
    for remark in remarks(topology):
        marked = remark.about == "isolated" and not drawing.lists
        lines.append(f"! {remark.text}" if marked else remark.text)
    return lines


class _Painter(NamedTuple):
    """Draws a map on a canvas."""

    canvas: Canvas
    drawing: _Drawing
    topology: Topology
    look: Look

    def paint(self) -> None:
        for placed in self.drawing.picture.all():
            self._group(placed)
            if self.drawing.lists:
                self._list(placed)
            elif placed.cells:
                for core, at in zip(placed.box.cores, placed.cells, strict=True):
                    self._core(core, at)

    def _group(self, placed: Placed) -> None:
        label = self.look.signs.plain(placed.box.label)
        style = COLOURS[placed.box.kind]
        match self.drawing.shapes[placed.depth]:
            case _Shape.BOX:
                self.canvas.box(placed.rect, label, self.look.signs, style)
            case _Shape.RULE:
                self.canvas.rule(placed.rect, label, placed.depth, self.look.signs, style)
            case _Shape.LABEL:
                self.canvas.write(placed.rect.x, placed.rect.y, label, style)

    def _list(self, placed: Placed) -> None:
        for at in placed.cells:
            for line, text in enumerate(self.drawing.lists[placed.box]):
                self.canvas.write(at.x, at.y + line, text)

    def _core(self, core: Sequence[int], at: Rect) -> None:
        x = at.x + at.w - len(_core_text(core, self.topology, self.look))
        for i, cpu in enumerate(core):
            if i:
                self.canvas.write(x, at.y, "/", _DIM)
                x += 1
            text = _core_text([cpu], self.topology, self.look)
            own = _YELLOW if cpu in self.topology.isolated else ""
            self.canvas.write(x, at.y, text, self.look.styles.get(cpu, own))
            x += len(text)
