"""Rows in columns, as wide as the terminal: long lists broken over lines, long names cut.

Knows nothing of plans. A cell has a text and a style of ANSI numbers; lines of text may be between rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.render.machine.canvas import Canvas, Look, wrap

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_GAP: Final = 2
_INDENT: Final = 2
WIDEST: Final = 1 << 30
"""The width of a pipe or a file."""
BOLD, DIM, RED, GREEN, YELLOW = "1", "2", "31", "32", "33"


class Cell(NamedTuple):
    """A text in a column."""

    text: str
    style: str = ""


class Column(NamedTuple):
    """A column: its head, and its minimum width on a narrow terminal; 0: it never shrinks."""

    head: str
    least: int = 0
    right: bool = False
    cut: bool = False
    """Whether long text is cut; otherwise it continues in the next line."""


class Line(NamedTuple):
    """A text across all columns, indented, below the row it belongs to."""

    text: str
    style: str = ""


def format_columns(columns: Sequence[Column], rows: Iterable[Sequence[Cell] | Line], look: Look) -> Canvas:
    r"""Return the rows under their heads, no wider than the terminal if possible.

    >>> from pinfold.render.machine.canvas import Look
    >>> columns = [Column("POD", 5, cut=True), Column("CPUS", 6), Column("L3")]
    >>> rows = [[Cell("database"), Cell("1,3,5,7,9"), Cell("0")], Line("needs more")]
    >>> print("\n".join(format_columns(columns, rows, Look(width=17)).lines()))
    POD    CPUS    L3
    dat…e  1,3,5,  0
           7,9
      needs more
    """
    rows = [_printable_row(row) for row in rows]
    widths = _widths(columns, [row for row in rows if not isinstance(row, Line)], look.width)
    canvas = Canvas()
    _write(canvas, columns, widths, [Cell(column.head, DIM) for column in columns], look)
    for row in rows:
        if isinstance(row, Line):
            for text in wrap(" " * _INDENT + row.text, look.width, indent=_INDENT):
                canvas.write(0, canvas.height, text, row.style)
        else:
            _write(canvas, columns, widths, row, look)
    return canvas


def format_table(columns: Sequence[Column], rows: Iterable[Sequence[str]], width: int = WIDEST) -> str:
    """Return the rows under their heads without colour, if possible in *width*: of itself, one line for each row.

    >>> print(format_table([Column("CPU", right=True), Column("POOL")], [["7", "shared"], ["10", "reserved"]]))
    CPU  POOL
      7  shared
     10  reserved

    Columns without heads have no line of heads.
    """
    lines = format_columns(columns, ([Cell(text) for text in row] for row in rows), Look(width)).lines()
    return "\n".join(lines if any(column.head for column in columns) else lines[1:])


def join_parts(parts: Iterable[Canvas], look: Look) -> str:
    """Return the non-empty parts, with an empty line between them, in characters of the terminal."""
    text = "\n\n".join("\n".join(part.lines(colour=look.colour)) for part in parts if part.height)
    return text.encode("ascii", "replace").decode("ascii") if look.ascii_only else text


def named_cpus(cpus: str) -> str:
    """Return a list of CPUs with its noun.

    >>> named_cpus("1"), named_cpus("2-3")
    ('CPU 1', 'CPUs 2-3')
    """
    return f"CPU {cpus}" if cpus.isdigit() else f"CPUs {cpus}"


def printable(text: str) -> str:
    """Return *text* safe for a line of output: invisible and control characters are escaped."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _printable_row(row: Sequence[Cell] | Line) -> Sequence[Cell] | Line:
    if isinstance(row, Line):
        return row._replace(text=printable(row.text))
    return [cell._replace(text=printable(cell.text)) for cell in row]


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int) -> list[int]:
    widths = [
        max([len(column.head), *(len(row[i].text) for row in rows)], default=0) for i, column in enumerate(columns)
    ]
    over = sum(widths) + _GAP * (len(widths) - 1) - width
    while over > 0:
        # The column with the most spare width shrinks first.
        spare = [own - max(column.least, 1) if column.least else 0 for column, own in zip(columns, widths, strict=True)]
        widest = max(range(len(widths)), key=spare.__getitem__)
        if spare[widest] <= 0:
            break
        widths[widest] -= 1
        over -= 1
    return widths


def _write(canvas: Canvas, columns: Sequence[Column], widths: Sequence[int], row: Sequence[Cell], look: Look) -> None:
    x, y = 0, canvas.height
    for column, width, cell in zip(columns, widths, row, strict=True):
        lines = [_cut(cell.text, width, look)] if column.cut else wrap(cell.text, width)
        for i, text in enumerate(lines):
            canvas.write(x + (width - len(text) if column.right else 0), y + i, text, cell.style)
        x += width + _GAP


def _cut(text: str, width: int, look: Look) -> str:
    """Return *text* with its middle cut out: the ends of names are the most useful part."""
    if len(text) <= width:
        return text
    tail = width // 3
    return text[: width - 1 - tail] + look.signs.cut + text[len(text) - tail :]
