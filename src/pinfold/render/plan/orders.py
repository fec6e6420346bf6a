"""Results over many orders: a table and a histogram for the terminal, and data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.render.columns import (
    BOLD,
    DIM,
    GREEN,
    RED,
    YELLOW,
    Cell,
    Column,
    format_columns,
    join_parts,
)
from pinfold.render.machine.canvas import Canvas, wrap
from pinfold.render.plan.table import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pinfold.core.pods.pod import Pod
    from pinfold.planning.orders import OrderTally
    from pinfold.render.machine.canvas import Look

_MOST_ROWS: Final = 40
_MOST_BARS: Final = 20
_LONGEST_BAR: Final = 40


def format_orders(tally: OrderTally, pods: Sequence[Pod], seed: int, look: Look) -> str:
    """Return how often each pod is refused or spread, the worst first, and how many are refused at once."""
    head = Canvas()
    head.append(wrap(f"{plural(tally.orders, 'order')} of {plural(len(pods), 'pod')}, seed {seed}", look.width), BOLD)
    parts = [head, _table(tally, pods, look), _histogram(tally, look)]
    return join_parts(parts, look)


def _table(tally: OrderTally, pods: Sequence[Pod], look: Look) -> Canvas:
    worst = sorted(range(len(pods)), key=lambda i: (-tally.refused[i], -tally.misaligned[i], i))
    shown = [i for i in worst if tally.refused[i] or tally.misaligned[i]]
    canvas = Canvas()
    if not shown:
        canvas.append(wrap("In every order, all pods fit and none is spread more than necessary.", look.width), GREEN)
        return canvas
    columns = (Column("POD", 12, cut=True), Column("REFUSED", right=True), Column("SPREAD", right=True), Column("", 8))
    width = min(_LONGEST_BAR, max(look.width - 50, 8))
    rows = [
        (
            Cell(pods[i].name),
            _share(tally.refused[i], tally.orders, RED),
            _share(tally.misaligned[i], tally.orders, YELLOW),
            Cell(_bar(tally.refused[i], tally.orders, width, look), RED),
        )
        for i in shown[:_MOST_ROWS]
    ]
    canvas = format_columns(columns, rows, look)
    for text in _below(len(shown), len(pods)):
        canvas.append(wrap(text, look.width, indent=2), DIM)
    return canvas


def _below(shown: int, pods: int) -> Iterator[str]:
    if shown > _MOST_ROWS:
        yield f"and {shown - _MOST_ROWS} more; see -o json"
    if pods > shown:
        yield f"{plural(pods - shown, 'pod')} always fit{'s' if pods - shown == 1 else ''}, never spread"


def _share(count: int, orders: int, style: str) -> Cell:
    return Cell(f"{count / max(orders, 1):.1%}", style if count else DIM)


def _histogram(tally: OrderTally, look: Look) -> Canvas:
    """Return bars for 0, 1, 2 … pods refused at once; the last bar sums up the rest."""
    last = max((i for i, count in enumerate(tally.histogram) if count), default=0)
    canvas = Canvas()
    if not last:
        return canvas
    counts = list(tally.histogram[: last + 1])
    labels = [str(i) for i in range(len(counts))]
    if len(counts) > _MOST_BARS:
        counts[_MOST_BARS - 1 :] = [sum(counts[_MOST_BARS - 1 :])]
        labels = [*labels[: _MOST_BARS - 1], f"{_MOST_BARS - 1}+"]
    width = min(_LONGEST_BAR, max(look.width - 34, 8))
    rows = [
        (Cell(label), Cell(f"{count:,}"), _share(count, tally.orders, ""), Cell(_bar(count, max(counts), width, look)))
        for label, count in zip(labels, counts, strict=True)
    ]
    columns = (Column("REFUSED AT ONCE"), Column("ORDERS", right=True), Column("", right=True), Column("", 8))
    return format_columns(columns, rows, look)


def _bar(count: int, most: int, width: int, look: Look) -> str:
    length = round(width * count / max(most, 1))
    return ("#" if look.ascii_only else "█") * (length or bool(count))


def orders_data(tally: OrderTally, pods: Sequence[Pod], seed: int) -> dict[str, object]:
    """Return the same, ready for JSON."""
    return {
        "orders": tally.orders,
        "seed": seed,
        "pods": [
            {
                "namespace": pod.namespace,
                "pod": pod.name,
                "refused": tally.refused[i],
                "misaligned": tally.misaligned[i],
            }
            for i, pod in enumerate(pods)
        ],
        "refused_at_once": list(tally.histogram),
    }
