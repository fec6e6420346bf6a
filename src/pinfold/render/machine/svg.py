"""Topology → a picture in SVG: nested boxes socket, NUMA node, uncore cache, core and CPU, with a title and a legend.

Knows nothing of files. The picture is ASCII text with its style inside: no script, no requests, light or dark as the
viewer prefers. It is 16:9 for every machine.
"""

from __future__ import annotations

import re
from html import escape
from math import ceil, sqrt
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.machine.layout import GroupKind, layout
from pinfold.core.machine.summary import remarks, summary
from pinfold.render.machine.arrange import Fit, Frame, Measures, Rect, Size, arrange
from pinfold.render.machine.canvas import wrap
from pinfold.render.machine.svgstyle import OWNER_COLOURS, style

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pinfold.core.machine.layout import Layout
    from pinfold.core.machine.topology import Topology
    from pinfold.render.machine.arrange import Picture

_ASPECT: Final = 16 / 9
_LEAST_WIDTH: Final = 480
_MOST_SCALE: Final = 1.25
_CPU_HEIGHT: Final = 20
_PAD: Final = 3
_LEGEND_WIDTH: Final = 52
# More lines than this would leave the boxes no room on the page.
_LEGEND_LINES: Final = 8
_SAMPLES: Final = ("isolated", "offline")
_HATCH: Final = 5
_NUMBERS: Final = re.compile(r"([0-9]{1,9})")
RESERVED: Final = "(reserved)"
"""The owner of reserved CPUs, which are hatched instead of coloured."""
_CLASSES: Final[Mapping[GroupKind, str]] = {
    GroupKind.SOCKET: "socket",
    GroupKind.NUMA: "numa",
    GroupKind.UNCORE: "uncore",
}


def format_svg(topology: Topology, title: str = "", owners: Mapping[int, str] | None = None) -> str:
    """Return the picture of *topology*; *owners* names the owner of each CPU, and each owner has one colour.

    >>> from pinfold.core.machine.presets import preset
    >>> format_svg(preset("laptop-4"), title="R&D").splitlines()[1]
    '<title>R&amp;D: 1 socket &#183; 1 NUMA node &#183; 1 L3 &#183; 2 cores &#183; 4 CPUs, SMT2</title>'
    """
    page = "".join(f"{line}\n" for line in _page(topology, title, owners or {}))
    return page.encode("ascii", "xmlcharrefreplace").decode("ascii")


def _page(topology: Topology, title: str, owners: Mapping[int, str]) -> Iterator[str]:
    boxes = _Boxes.of(topology, owners)
    legend = _legend(topology, boxes.colours)
    line = summary(topology)
    text = max(0.6 * len(line), 1.1 * len(title), *(sum(item.width for item in items) for items in legend), 0)
    sheet = _Sheet.around(boxes.picture.size, text, len(legend))
    w, h = sheet.size
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="img">'
    yield f"<title>{_escape(f'{title}: {line}' if title else line)}</title>"
    yield f"<style>\n{style(owners=len(boxes.colours))}</style>"
    yield f'<rect class="bg" width="{w}" height="{h}"/>'
    yield from sheet.heading(title, line)
    yield f'<g transform="translate({sheet.left} {sheet.top}) scale({sheet.scale})">'
    yield from boxes.groups()
    yield '<g class="cpus">'
    yield from boxes.cores()
    yield "</g>\n</g>"
    yield from sheet.footing(legend)
    yield "</svg>"


class _Item(NamedTuple):
    """A line of the legend: the class of its sample, if it has one, and its text."""

    css: str
    text: str

    @property
    def width(self) -> float:
        """Its width in em, with room to the next."""
        return 0.6 * len(self.text) + (4 if self.css else 1.5)


def _legend(topology: Topology, colours: Mapping[str, str]) -> list[list[_Item]]:
    """Return the lines of the legend: owners side by side, then a line or more for each remark."""
    lines: list[list[_Item]] = []
    for owner, css in colours.items():
        item = _Item(css, owner)
        if not lines or sum(other.width for other in lines[-1]) + item.width > _LEGEND_WIDTH:
            lines.append([])
        lines[-1].append(item)
    if len(lines) > _LEGEND_LINES:
        more = sum(len(line) for line in lines[_LEGEND_LINES - 1 :])
        lines[_LEGEND_LINES - 1 :] = [[_Item("", f"and {more} more owners")]]
    for remark in remarks(topology):
        first, *rest = wrap(remark.text, int(_LEGEND_WIDTH / 0.6))
        lines.append([_Item(remark.about if remark.about in _SAMPLES else "", first)])
        lines += [[_Item("", line)] for line in rest]
    return lines


class _Sheet(NamedTuple):
    """The page: its size, the unit of its letters, and where the boxes go."""

    size: Size
    em: float
    left: float
    top: float
    scale: float
    start: float
    """Where text starts, in em."""

    @classmethod
    def around(cls, boxes: Size, text: float, legend: int) -> _Sheet:
        """Return the smallest 16:9 page for *boxes* with a heading above, *legend* lines below and *text* em wide."""
        width, scale = _LEAST_WIDTH * 0.98, 0.0
        while scale < 1:
            width *= 1.02
            em = max(width / 80, 8)
            head, foot = 5.6 * em, (2 + 1.6 * legend) * em
            room = Size(int(width - 4 * em), int(width / _ASPECT - head - foot))
            scale = min(room.w / max(boxes.w, 1), room.h / max(boxes.h, 1), _MOST_SCALE)
        left, top = (width - boxes.w * scale) / 2, head + (room.h - boxes.h * scale) / 2
        size = Size(round(width), round(width / _ASPECT))
        # Text starts at the left side of the boxes, if it fits there.
        start = max(min(left / em, width / em - 2 - text), 2)
        return cls(size, round(em, 2), round(left, 1), round(top, 1), round(scale, 3), round(start, 2))

    def heading(self, title: str, line: str) -> Iterator[str]:
        """Return the lines above the boxes."""
        x = self.start
        if title:
            yield self._text(title, x, 3.1, 1.8, "title")
            yield self._text(line, x, 4.8, 1.1, "soft")
        else:
            yield self._text(line, x, 3.8, 1.4, "title")

    def footing(self, legend: Sequence[Sequence[_Item]]) -> Iterator[str]:
        """Return the lines below the boxes."""
        for line, items in enumerate(legend):
            x, y = self.start, self.size.h / self.em - 1.6 * (len(legend) - line) + 0.2
            for item in items:
                if item.css:
                    sample = Rect(*(round(n * self.em) for n in (x, y - 0.95, 1.8, 1.2)))
                    yield _rect(sample, item.css, 3)
                    if item.text == RESERVED:
                        yield _hatch(sample)
                yield self._text(item.text, x + 2.5 if item.css else x, y, 1, "soft")
                x += item.width

    def _text(self, text: str, x: float, y: float, size: float, css: str) -> str:
        return _text(text, x * self.em, y * self.em, f'class="{css}" font-size="{size * self.em:.1f}"')


class _Boxes(NamedTuple):
    """The boxes of a machine, in units of their own."""

    topology: Topology
    owners: Mapping[int, str]
    picture: Picture
    levels: int

    @classmethod
    def of(cls, topology: Topology, owners: Mapping[int, str]) -> _Boxes:
        """Return the boxes of *topology*, arranged to fill a page."""
        machine = layout(topology, merge=False)
        return cls(topology, owners, _arranged(machine, _core_size(topology)), len(machine.levels))

    @property
    def colours(self) -> dict[str, str]:
        """The class of each owner."""
        owners = set(self.owners.values())
        hatched = {RESERVED: "reserved"} if RESERVED in owners else {}
        return hatched | {
            owner: f"owner{i % OWNER_COLOURS}" for i, owner in enumerate(sorted(owners - {RESERVED}, key=_counted))
        }

    def groups(self) -> Iterator[str]:
        """Return the boxes of all groups, outer ones first, with their labels."""
        for placed in self.picture.all():
            outer = self.levels - placed.depth
            yield _rect(placed.rect, _CLASSES[placed.box.kind], 4 + 2 * outer)
            yield _text(placed.box.label, placed.rect.x + 7 + outer, placed.rect.y + 16, 'class="label" font-size="12"')

    def cores(self) -> Iterator[str]:
        """Return the boxes of all cores with their CPUs."""
        smt = self.topology.threads_per_core > 1
        colours = self.colours
        for placed in self.picture.all():
            for core, at in zip(placed.box.cores, placed.cells, strict=False):
                if smt:
                    yield _rect(at, "core", 5)
                for cpu, place in zip(core, _cpu_places(at, len(core), _PAD if smt else 0), strict=True):
                    yield _rect(place, self._css(cpu, colours), 3)
                    if self.owners.get(cpu) == RESERVED:
                        yield _hatch(place)
                    yield _text(str(cpu), place.x + place.w / 2, place.y + place.h / 2 + 4)

    def _css(self, cpu: int, colours: Mapping[str, str]) -> str:
        isolated = " isolated" if cpu in self.topology.isolated else ""
        return colours[self.owners[cpu]] + isolated if cpu in self.owners else f"cpu{isolated}"


def _arranged(machine: Layout, cell: Size) -> Picture:
    frames = []
    for depth in range(len(machine.levels)):
        outer = len(machine.levels) - depth
        pad = 5 + outer
        label = max((len(box.label) for box in machine.at(depth)), default=0) * 8 + 2 * pad
        frames.append(Frame(pad, 23, pad, pad, Size(pad, pad), least=label))

    def cost(fit: Fit) -> tuple[float, ...]:
        # The smaller the page, the larger its letters; the boxes get the page without its heading, so wider than 16:9.
        return (max(fit.size.w, 2.05 * fit.size.h) * (1 + 2 * fit.waste),)

    return arrange(machine, Measures(tuple(frames), cell, Size(4, 4)), cost)


def _core_size(topology: Topology) -> Size:
    width = 8 + 8 * len(str(max(topology.online, default=0)))
    threads = max(topology.threads_per_core, 1)
    if threads == 1:
        return Size(width, _CPU_HEIGHT)
    across = _across(threads)
    return Size(across * (width + _PAD) + _PAD, -(-threads // across) * (_CPU_HEIGHT + _PAD) + _PAD)


def _across(threads: int) -> int:
    """Return how many CPUs of a core are drawn side by side.

    >>> [_across(threads) for threads in (1, 2, 3, 4, 8)]
    [1, 2, 3, 2, 4]
    """
    return next(columns for columns in range(ceil(sqrt(threads)), threads + 1) if threads % columns == 0)


def _cpu_places(core: Rect, threads: int, pad: int) -> list[Rect]:
    """Return places that fill *core*, side by side and below each other."""
    across = _across(threads)
    w = (core.w - pad) // across - pad
    h = (core.h - pad) // (threads // across) - pad
    return [
        Rect(core.x + pad + i % across * (w + pad), core.y + pad + i // across * (h + pad), w, h)
        for i in range(threads)
    ]


def _rect(at: Rect, css: str, radius: int) -> str:
    return f'<rect class="{css}" x="{at.x}" y="{at.y}" width="{at.w}" height="{at.h}" rx="{radius}"/>'


def _hatch(at: Rect) -> str:
    """Return slanted lines within a rectangle."""
    ends = range(_HATCH, at.w + at.h, _HATCH)
    lines = (
        f"M{at.x + max(0, d - at.h)} {at.y + min(d, at.h)}L{at.x + min(d, at.w)} {at.y + max(0, d - at.w)}"
        for d in ends
    )
    return f'<path class="hatch" d="{"".join(lines)}"/>'


def _text(text: str, x: float, y: float, attributes: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}"{attributes and " " + attributes}>{_escape(text)}</text>'


def _escape(text: str) -> str:
    """Return *text* escaped for XML, without characters that XML forbids."""
    return escape("".join(sign if sign.isprintable() else "?" for sign in text))


def _counted(name: str) -> list[tuple[int, str]]:
    """Return what puts names in the order in which people count.

    >>> sorted(["db-10/c", "db-2/c", "db-1/c"], key=_counted)
    ['db-1/c', 'db-2/c', 'db-10/c']
    """
    parts = _NUMBERS.split(name)
    return [(int(part) if number % 2 else 0, part) for number, part in enumerate(parts)]
