"""A line plot as SVG: both scales logarithmic, readable on a phone, in light and dark. Pure."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_WIDTH: Final = 390
_HEIGHT: Final = 200
_LEFT, _RIGHT, _ROW = 58, 18, 20
_COLOURS: Final = (("#1d6fb8", "#60a5fa"), ("#c2410c", "#fb923c"), ("#15803d", "#4ade80"), ("#7e3fb5", "#c084fc"))
_STYLE: Final = """\
text{font-family:ui-sans-serif,system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;font-size:13px}
.title{font-size:15px;font-weight:600}.mid{text-anchor:middle}.end{text-anchor:end}.line{fill:none;stroke-width:2}
.bg{fill:#fff}text{fill:#1f2933}.soft{fill:#5b6875}.axis{stroke:#dde3ea}
"""
_DARK: Final = ".bg{fill:#0e1318}text{fill:#e4e9ee}.soft{fill:#9aa7b4}.axis{stroke:#2a333d}"
_UNITS: Final = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


class Series(NamedTuple):
    """A line: its name, and points of (x, nanoseconds)."""

    name: str
    points: Sequence[tuple[float, float]]


def duration(nanoseconds: float) -> str:
    """Return a time with its unit.

    >>> [duration(value) for value in (1, 3_400, 25e6, 3.5e9)]
    ['1 ns', '3.4 µs', '25 ms', '3.5 s']
    """
    size, unit = next(((size, unit) for size, unit in _UNITS if nanoseconds >= size), _UNITS[-1])
    value = nanoseconds / size
    return f"{value:.0f} {unit}" if value >= 10 or value == int(value) else f"{value:.1f} {unit}"  # noqa: PLR2004 - digits


def plot(title: str, below: str, lines: Sequence[Series]) -> str:
    """Return the SVG; *below* says what the numbers on the horizontal scale are."""
    top = 48 + _ROW * len(lines)
    base = top + _HEIGHT
    height = base + 46
    xs = sorted({x for line in lines for x, _ in line.points})
    ys = [y for line in lines for _, y in line.points]
    low, high = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)) + 1e-9)
    first, last = math.log2(xs[0]), math.log2(xs[-1])

    def across(x: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (math.log2(x) - first) / max(last - first, 1e-9)

    def down(y: float) -> float:
        return base - _HEIGHT * (math.log10(y) - low) / max(high - low, 1)

    about = f'role="img" aria-label="{escape(title)}"'
    middle = (_LEFT + _WIDTH - _RIGHT) // 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" {about}>',
        f"<style>{_STYLE}{_colours()}</style>",
        f'<rect class="bg" width="{_WIDTH}" height="{height}"/>',
        f'<text class="title" x="{_RIGHT}" y="24">{escape(title)}</text>',
    ]
    for power in range(low, high + 1):
        y = down(10.0**power)
        parts.append(f'<path class="axis" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>')
        parts.append(f'<text class="soft end" x="{_LEFT - 6}" y="{y + 4:.1f}">{duration(10.0**power)}</text>')
    parts += (f'<text class="soft mid" x="{across(x):.1f}" y="{base + 18}">{x:g}</text>' for x in xs)
    parts.append(f'<text class="soft mid" x="{middle}" y="{base + 36}">{escape(below)}</text>')
    for place, line in enumerate(lines):
        parts += _line(place, line, [(across(x), down(y)) for x, y in line.points])
    return "\n".join([*parts, "</svg>", ""])


def _line(place: int, line: Series, points: Sequence[tuple[float, float]]) -> Iterator[str]:
    y = 48 + _ROW * place
    text = " ".join(f"{x:.1f},{height:.1f}" for x, height in points)
    yield f'<text x="{_RIGHT + 30}" y="{y}">{escape(line.name)}</text>'
    yield f'<g class="p{place % len(_COLOURS)}"><rect x="{_RIGHT}" y="{y - 10}" width="22" height="10"/>'
    yield f'<polyline class="line" points="{text}"/>'
    yield from (f'<circle cx="{x:.1f}" cy="{height:.1f}" r="3.5"/>' for x, height in points)
    yield "</g>"


def _colours() -> str:
    def rules(dark: int) -> str:
        return "".join(
            f".p{place} .line{{stroke:{pair[dark]}}}.p{place} rect,.p{place} circle{{fill:{pair[dark]}}}"
            for place, pair in enumerate(_COLOURS)
        )

    return f"{rules(0)}@media (prefers-color-scheme:dark){{{_DARK}{rules(1)}}}"
