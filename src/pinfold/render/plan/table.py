"""A Plan as a table for the terminal: every container with its CPUs and their spread, or why it was refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.core.explaining.advice import advise
from pinfold.core.explaining.alignment import Level
from pinfold.core.machine.summary import summary
from pinfold.core.pods.quantity import Quantity
from pinfold.core.snapshot import pool_cpus
from pinfold.render.columns import (
    BOLD,
    DIM,
    GREEN,
    RED,
    YELLOW,
    Cell,
    Column,
    Line,
    format_columns,
    join_parts,
    printable,
)
from pinfold.render.machine.canvas import Canvas, Look, flow, wrap

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pinfold.core.explaining.alignment import Span
    from pinfold.planning.plan import Placement, Plan

_COLUMNS: Final = (
    Column("CONTAINER", 12, cut=True),
    Column("QOS", 5, cut=True),
    Column("CPUS", 9),
    Column("CORES"),
    Column("L3", 3),
    Column("NUMA", 4),
    Column("SOCKET", 6),
)
_NARROW: Final = 60
"""On a terminal with fewer columns, some columns of the table are left out."""
_LEFT_OUT: Final = ("QOS", "CORES")
_POOLS: Final = ("shared", "reserved", "assignable", "exclusive", "idle")
_MOST_ADVICE: Final = 10
_MOST_OWNERS: Final = 8
_SPREAD: Final = "*"


def format_plan(plan: Plan, look: Look | None = None, title: str = "") -> str:
    """Return the table: the node, its containers, the pools before and after, and the result.

    >>> from pinfold.core.config import Config, Reservation
    >>> from pinfold.core.machine.cpuset import CPUSet
    >>> from pinfold.planning.plan import make_plan
    >>> from pinfold.core.machine.presets import preset
    >>> print(format_plan(make_plan([], preset("cores:2"), Config("static", reserved=Reservation.of(CPUSet.of(0))))))
    1 socket · 1 NUMA node · 1 L3 · 2 cores · 2 CPUs, no SMT
    policy static · no options · topology manager none
    <BLANKLINE>
    POOL        BEFORE  AFTER  CPUS
    shared      0-1     0-1       2
    reserved    0       0         1
    assignable  1       1         1
    exclusive   -       -         0
    <BLANKLINE>
    0 pods: all fit
    """
    look = look or Look()
    parts = [_head(plan, look, title), _containers(plan, look), _pools(plan, look), _sum(plan, look)]
    return join_parts(parts, look)


def _head(plan: Plan, look: Look, title: str) -> Canvas:
    canvas = Canvas()
    line = look.signs.plain(summary(plan.topology))
    canvas.append(flow(f"{printable(title)}: {line}" if title else line, look.signs.dot, look.width), BOLD)
    canvas.append(flow(look.signs.plain(describe(plan)), look.signs.dot, look.width), DIM)
    return canvas


def describe(plan: Plan) -> str:
    """Return the settings of the plan, in one line."""
    config = plan.config
    options = ", ".join(name for name, value in sorted(config.options.items()) if value.lower() in {"true", "1", "t"})
    scope = f" ({config.topology_scope} scope)" if config.topology_policy != "none" else ""
    parts = [f"policy {config.policy}", options or "no options", f"topology manager {config.topology_policy}{scope}"]
    if config.fidelity != "pinfold":
        parts.append("as a kubelet decides")
    return " · ".join(parts)


def _containers(plan: Plan, look: Look) -> Canvas:
    if not plan.placements:
        return Canvas()
    shown = [at for at, column in enumerate(_COLUMNS) if look.width >= _NARROW or column.head not in _LEFT_OUT]
    rows = (row if isinstance(row, Line) else [row[at] for at in shown] for row in _rows(plan))
    return format_columns([_COLUMNS[at] for at in shown], rows, look)


def _rows(plan: Plan) -> Iterator[Sequence[Cell] | Line]:
    advised = 0
    for placement in plan.placements:
        yield _row(placement)
        # A pod that is refused as a whole is explained once, below its last container.
        last = placement.container == placement.pod.all_containers[-1]
        refusal = placement.refusal
        if refusal is not None and placement.is_culprit and (placement.outcome.admission.container or last):
            advised += 1
            if advised <= _MOST_ADVICE and (text := str(advise(plan.ruler, placement.outcome, plan.names))):
                yield Line(text, RED)
            yield Line(f"[{refusal.reason}: {refusal}]", DIM)


def _row(placement: Placement) -> Sequence[Cell]:
    style = DIM if placement.outcome.was_running else ""
    name = Cell(f"{placement.pod.name}/{placement.container.name}", style)
    qos = Cell(placement.pod.qos, DIM)
    if placement.refusal is not None:
        text = "refused" if placement.is_culprit else "pod refused"
        return (name, qos, Cell(text, RED), *_nowhere())
    if placement.cpus is None or placement.alignment is None:
        return (name, qos, Cell("shared", DIM), *_nowhere())
    spans = placement.alignment.levels.items()
    return (name, qos, Cell(str(placement.cpus), GREEN), *(_span(level, span) for level, span in spans))


def _nowhere() -> Iterator[Cell]:
    return (Cell("") for _ in Level)


def _span(level: Level, span: Span) -> Cell:
    text = str(len(span.ids)) if level is Level.CORE else format_ids(span.ids)
    return Cell(text) if span.is_aligned else Cell(f"{text}{_SPREAD}", YELLOW)


def format_ids(ids: Sequence[int]) -> str:
    """Return ids of groups as a list with ranges; not by mask, because ids can be huge.

    >>> format_ids((0, 1, 2, 9))
    '0-2,9'
    """
    runs: list[list[int]] = []
    for number in ids:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _pools(plan: Plan, look: Look) -> Canvas:
    policy = plan.admitter.policy
    before, after = (pool_cpus(policy, state, plan.topology) for state in (plan.before, plan.after))
    rows = [
        (Cell(name), Cell(str(before[name]) or "-"), Cell(str(after[name]) or "-"), Cell(str(len(after[name]))))
        for name in _POOLS
        if name != "idle" or after[name]
    ]
    return format_columns(
        (Column("POOL"), Column("BEFORE", 10), Column("AFTER", 10), Column("CPUS", right=True)), rows, look
    )


def _sum(plan: Plan, look: Look) -> Canvas:
    canvas = Canvas()
    refused = len(plan.refused)
    for text, style in (
        (f"{plural(len(plan.outcomes), 'pod')}: {verdict(plan)}", RED if refused else GREEN),
        (_spread_text(plan), YELLOW),
        (_missed_text(plan), YELLOW),
        (_left_text(plan), DIM),
        *((text, DIM) for text in _resource_texts(plan)),
    ):
        if text:
            canvas.append(wrap(text, look.width, indent=2), style)
    return canvas


def verdict(plan: Plan) -> str:
    """Return how many pods fit."""
    refused, running = len(plan.refused), sum(outcome.was_running for outcome in plan.outcomes)
    fit = len(plan.outcomes) - refused - running
    if not refused and not running:
        return "all fit"
    return ", ".join([*([f"{running:,} already running"] if running else []), f"{fit:,} fit", f"{refused:,} refused"])


def _spread_text(plan: Plan) -> str:
    spread = len(plan.misaligned)
    if not spread:
        return ""
    return f"{_SPREAD} {plural(spread, 'container')} spread over more groups than necessary"


def _missed_text(plan: Plan) -> str:
    missed = len(plan.missed)
    return f"{plural(missed, 'container')} asking for 1 CPU or more will share" if missed else ""


def _left_text(plan: Plan) -> str:
    left = plan.leftover
    if not plan.outcomes or not left.cpus or plan.config.policy == "none":
        return ""
    pieces = ", ".join(f"{left.largest[level]} in one {level.noun}" for level in (Level.UNCORE, Level.NUMA))
    return f"{plural(len(left.cpus), 'CPU')} can still be given: at most {pieces}; {left.fragmentation:.0%} fragmented"


def _resource_texts(plan: Plan) -> Iterator[str]:
    """Yield a line for each other resource: which containers have it where, and what is left."""
    for name, left in plan.stock.left.items():
        given = [one for one in plan.stock.given if one.resource == name]
        if not given:
            continue
        owners = ", ".join(
            f"{plan.names.get(ref.pod, ref.pod)}/{ref.name} {_by_node(name, amounts)}"
            for ref, _, amounts in given[:_MOST_OWNERS]
        )
        more = f" and {len(given) - _MOST_OWNERS:,} more" if len(given) > _MOST_OWNERS else ""
        yield f"{name}: {owners}{more}; left {_by_node(name, left)}"


def _by_node(name: str, amounts: Mapping[int, int]) -> str:
    shown = {node: format_amount(name, amount) for node, amount in sorted(amounts.items())}
    return " + ".join(f"{amount} at NUMA {node}" for node, amount in shown.items())


def format_amount(name: str, amount: int) -> str:
    """Return an amount of a resource: bytes of memory and hugepages in units, devices as they are.

    >>> format_amount("memory", 3 << 30), format_amount("nvidia.com/gpu", 2000)
    ('3Gi', '2000')
    """
    return str(amount) if "/" in name else Quantity.from_milli(amount * 1000).format(binary=True)


def unsound(plan: Plan) -> list[str]:
    """Return what is wrong with a kubelet's answers: broken invariants, then each container and kind of defect once."""
    found: dict[tuple[str, str], list[str]] = {}
    for who, defect, what in plan.defects:
        found.setdefault((who, defect), []).append(what)
    lines = [f"this kubelet would leave an unsound State: {law}" for law in plan.broken]
    for (who, kind), (first, *more) in found.items():
        others = f" (and {len(more)} more)" if more else ""
        lines.append(f"{who}: this kubelet's answer is unsound ({kind}): {first}{others}")
    return lines


def plural(number: int, one: str) -> str:
    """Return a number of things.

    >>> plural(1, "pod"), plural(0, "pod")
    ('1 pod', '0 pods')
    """
    return f"{number:,} {one}{'' if number == 1 else 's'}"
