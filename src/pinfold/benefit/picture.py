"""The picture of the probe's latency: one histogram for each kind of noise, all policies in it. Pure."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Final

from pinfold.benefit.catalogue import PROBE, REQUESTS
from pinfold.benefit.figures import BINS_PER_DECADE, histogram
from pinfold.benefit.report import BINS, FIRST_BIN, cell, number

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pinfold.benefit.measure import Results

# As wide as a phone, so that the text keeps its size there.
_WIDTH: Final = 390
_LEFT: Final = 16
_PLOT: Final = _WIDTH - 2 * _LEFT
_HEIGHT: Final = 96
_PANEL: Final = _HEIGHT + 74
_TOP: Final = 66
_ROW: Final = 20
# Colours that most colour-blind readers can tell apart; for light, then for dark.
_COLOURS: Final = (("#c2410c", "#fb923c"), ("#1d6fb8", "#60a5fa"), ("#15803d", "#4ade80"), ("#7e3fb5", "#c084fc"))
_STYLE: Final = """\
text{font-family:ui-sans-serif,system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;font-size:13px}
.title{font-size:16px;font-weight:600}.label{font-weight:600}.mid{text-anchor:middle}.end{text-anchor:end}
.line{fill:none;stroke-width:2}.area{opacity:.22}
.bg{fill:#fff}text{fill:#1f2933}.soft{fill:#5b6875}.axis{stroke:#c9d2dc}
"""
_DARK: Final = ".bg{fill:#0e1318}text{fill:#e4e9ee}.soft{fill:#9aa7b4}.axis{stroke:#37424e}"
_ABOUT: Final = "How late a program wakes up, beside noisy neighbours, under each policy"
_TICKS: Final = ("1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s")


def picture(results: Results) -> str:
    """Return the SVG."""
    noises = [neighbours.name for work, neighbours in results.plan.cells if work is PROBE]
    names = [rules.name for rules in results.plan.rules]
    top = _TOP + _ROW * len(names)
    load = any(work is REQUESTS for work, _ in results.plan.cells)
    height = top + _PANEL * (len(noises) + load) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{_ABOUT}">',
        f"<style>{_STYLE}{_colours()}</style>",
        f'<rect class="bg" width="{_WIDTH}" height="{height}"/>',
        f'<text class="title" x="{_LEFT}" y="28">How late a program wakes up</text>',
        f'<text class="soft" x="{_LEFT}" y="48">Wake-ups by lateness; logarithmic scales.</text>',
        *_legend(names),
    ]
    for place, noise in enumerate(noises):
        parts += _panel(results, noise, names, top + _PANEL * place)
    if load:
        parts += _load_panel(results, names, top + _PANEL * len(noises))
    return "\n".join([*parts, "</svg>", ""])


def _colours() -> str:
    def rules(dark: int) -> str:
        return "".join(
            f".p{place} .line{{stroke:{pair[dark]}}}"
            f".p{place} .area,.p{place} rect,.p{place} circle{{fill:{pair[dark]}}}"
            for place, pair in enumerate(_COLOURS)
        )

    return f"{rules(0)}@media (prefers-color-scheme:dark){{{_DARK}{rules(1)}}}"


def _legend(names: Sequence[str]) -> Iterator[str]:
    for place, name in enumerate(names):
        y = _TOP + _ROW * place
        yield (
            f'<g class="p{place % len(_COLOURS)}"><rect x="{_LEFT}" y="{y - 10}" width="22" height="10"/></g>'
            f'<text x="{_LEFT + 30}" y="{y}">policy {escape(name)}</text>'
        )


def _panel(results: Results, noise: str, names: Sequence[str], y: float) -> Iterator[str]:
    cells = [cell(results, PROBE.name, noise, name) for name in names]
    p99 = next(figure for figure in PROBE.figures if figure.name == "wake-up p99")
    counted = [histogram(each.samples("wake-up"), FIRST_BIN, BINS) for each in cells]
    most = math.log10(1 + max((max(counts) for counts in counted), default=1)) or 1.0
    figures = " · ".join(number(each.pooled(p99)) for each in cells)
    yield f'<text class="label" x="{_LEFT}" y="{y + 18}">{escape(noise.capitalize())}</text>'
    yield f'<text class="soft end" x="{_WIDTH - _LEFT}" y="{y + 18}">p99 {figures} ms</text>'
    base = y + 30 + _HEIGHT
    yield f'<path class="axis" d="M{_LEFT} {base}H{_WIDTH - _LEFT}"/>'
    step = _PLOT / (BINS - 1)
    for place, text in enumerate(_TICKS):
        x = _LEFT + step * BINS_PER_DECADE * place
        anchor = "" if not place else " end" if place == len(_TICKS) - 1 else " mid"
        yield f'<text class="soft{anchor}" x="{x:.0f}" y="{base + 18}">{text}</text>'
    for place, counts in enumerate(counted):
        points = [(_LEFT + step * i, base - _HEIGHT * math.log10(1 + count) / most) for i, count in enumerate(counts)]
        line = " ".join(f"{x:.1f},{height:.1f}" for x, height in points)
        yield (
            f'<g class="p{place % len(_COLOURS)}"><polygon class="area" points="{_LEFT},{base} {line} '
            f'{_WIDTH - _LEFT},{base}"/><polyline class="line" points="{line}"/></g>'
        )


def _load_panel(results: Results, names: Sequence[str], y: float) -> Iterator[str]:
    """Yield the request server: its p99 at each load, on a logarithmic scale."""
    noise = next(neighbours.name for work, neighbours in results.plan.cells if work is REQUESTS)
    shown = [figure for figure in REQUESTS.figures if figure.name.endswith("p99")]
    cells = [cell(results, REQUESTS.name, noise, name) for name in names]
    values = [[each.pooled(figure) or 0.0 for figure in shown] for each in cells]
    known = [value for row in values for value in row if value > 0] or [1.0]
    low, high = math.floor(math.log10(min(known))), math.ceil(math.log10(max(known)) + 1e-9)
    base = y + 30 + _HEIGHT
    yield f'<text class="label" x="{_LEFT}" y="{y + 18}">Request server: p99 by load</text>'
    yield f'<text class="soft end" x="{_WIDTH - _LEFT}" y="{y + 18}">{10.0**low:g} to {10.0**high:g} ms</text>'
    yield f'<path class="axis" d="M{_LEFT} {base}H{_WIDTH - _LEFT}"/>'
    step = _PLOT / len(shown)
    middles = [_LEFT + step * (place + 0.5) for place in range(len(shown))]
    for x, figure in zip(middles, shown, strict=True):
        yield f'<text class="soft mid" x="{x:.0f}" y="{base + 18}">{escape(figure.of)}</text>'
    for place, row in enumerate(values):
        points = [
            (x, base - _HEIGHT * (math.log10(value) - low) / max(high - low, 1))
            for x, value in zip(middles, row, strict=True)
            if value > 0
        ]
        line = " ".join(f"{x:.1f},{height:.1f}" for x, height in points)
        yield f'<g class="p{place % len(_COLOURS)}"><polyline class="line" points="{line}"/>'
        yield from (f'<circle cx="{x:.1f}" cy="{height:.1f}" r="4"/>' for x, height in points)
        yield "</g>"
