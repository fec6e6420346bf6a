"""Canvas: text on a grid of characters, in colours and characters that the terminal can show.

Knows nothing of what is drawn; every character is one column wide.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pinfold.render.machine.arrange import Rect


class Signs(NamedTuple):
    """The characters to draw with."""

    corners: str
    """Left upper, right upper, left lower, right lower."""
    across: str
    down: str
    rules: str
    """The line of a heading, by its depth."""
    dot: str
    cut: str

    def plain(self, text: str) -> str:
        """Return *text* with these characters only."""
        return text.replace(" · ", self.dot)


UNICODE: Final = Signs(corners="╭╮╰╯", across="─", down="│", rules="━─┄", dot=" · ", cut="…")
ASCII: Final = Signs(corners="++++", across="-", down="|", rules="=-.", dot=", ", cut="~")


class Look(NamedTuple):
    """How to draw: columns to use, whether in colour, whether the terminal shows ASCII only."""

    width: int = 80
    colour: bool = False
    ascii_only: bool = False
    styles: Mapping[int, str] = {}
    """ANSI numbers for single CPUs, such as "32" or "1;35", to show their owner."""
    marks: Mapping[int, str] = {}
    """Text behind the numbers of single CPUs, for the same where there are no colours."""

    @property
    def signs(self) -> Signs:
        """The characters to draw with."""
        return ASCII if self.ascii_only else UNICODE


class Canvas:
    r"""A grid of characters that grows to the right and downwards as it is written on.

    >>> from pinfold.render.machine.arrange import Rect
    >>> canvas = Canvas()
    >>> canvas.box(Rect(0, 0, 12, 3), "L3 0", UNICODE, "36")
    >>> canvas.write(2, 1, "0/4  1/5")
    >>> print(*canvas.lines(), sep="\n")
    ╭─ L3 0 ───╮
    │ 0/4  1/5 │
    ╰──────────╯
    """

    def __init__(self) -> None:
        self._rows: list[list[tuple[str, str]]] = []

    def write(self, x: int, y: int, text: str, style: str = "") -> None:
        """Write *text* at column *x* of line *y*; *style* is ANSI numbers, such as "1;34"."""
        self._rows += [[] for _ in range(y + 1 - len(self._rows))]
        row = self._rows[y]
        row += [(" ", "")] * (x + len(text) - len(row))
        row[x : x + len(text)] = [(sign, style) for sign in text]

    def append(self, lines: Iterable[str], style: str = "") -> None:
        """Write *lines* below the last line."""
        for line in lines:
            self.write(0, self.height, line, style)

    def box(self, at: Rect, label: str, signs: Signs, style: str = "") -> None:
        """Draw a box with *label* in its upper side."""
        left, right, low_left, low_right = list(signs.corners)
        self.write(at.x, at.y, left + _titled(label, at.w - 2, signs.across, signs.cut) + right, style)
        for line in range(at.y + 1, at.y + at.h - 1):
            self.write(at.x, line, signs.down, style)
            self.write(at.x + at.w - 1, line, signs.down, style)
        self.write(at.x, at.y + at.h - 1, low_left + signs.across * (at.w - 2) + low_right, style)

    def rule(self, at: Rect, label: str, depth: int, signs: Signs, style: str = "") -> None:
        """Draw a heading: *label* in a line."""
        across = signs.rules[depth]
        self.write(at.x, at.y, across + _titled(label, at.w - 1, across, signs.cut), style)

    @property
    def height(self) -> int:
        """How many lines there are."""
        return len(self._rows)

    def lines(self, *, colour: bool = False) -> list[str]:
        """Return the lines, without trailing blanks."""
        return [_line(row, colour=colour) for row in self._rows]


def flow(text: str, separator: str, width: int) -> list[str]:
    """Return *text* in lines of at most *width*, broken after separators only.

    >>> flow("1 socket, 1 NUMA node, 2 cores", ", ", 24)
    ['1 socket, 1 NUMA node,', '2 cores']
    """
    end = separator.rstrip()
    *parts, last = text.split(separator)
    lines: list[str] = []
    for part in [*(f"{part}{end}" for part in parts), last]:
        if lines and len(f"{lines[-1]} {part}") <= width:
            lines[-1] += f" {part}"
        else:
            lines.append(part)
    return lines


def wrap(text: str, width: int, indent: int = 0) -> list[str]:
    """Return *text* in lines of at most *width*, broken after commas and spaces, the later ones indented.

    >>> wrap("Offline: 1,3,5,7,9", 12, indent=2)
    ['Offline: 1,', '  3,5,7,9']
    """
    lines: list[str] = []
    while len(text) > width:
        cut = max(text.rfind(",", 0, width), text.rfind(" ", 0, width)) + 1
        if cut <= indent:
            cut = width
        lines.append(text[:cut].rstrip())
        text = " " * indent + text[cut:].lstrip()
    return [*lines, text]


def _titled(label: str, width: int, across: str, cut: str) -> str:
    """Return a line of *width* with *label* near its start."""
    room = max(width - 4, 1)
    shown = label if len(label) <= room else label[: room - 1] + cut
    return f"{across} {shown} ".ljust(width, across)


def _line(row: list[tuple[str, str]], *, colour: bool) -> str:
    if not colour:
        return "".join(sign for sign, _ in row).rstrip()
    parts = []
    for style, run in groupby(row, key=lambda pair: pair[1]):
        text = "".join(sign for sign, _ in run)
        parts.append(f"\x1b[{style}m{text}\x1b[0m" if style and text.strip() else text)
    return "".join(parts).rstrip()
