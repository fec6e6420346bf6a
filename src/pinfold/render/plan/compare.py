"""Several plans of the same pods side by side: as a matrix for the terminal, and as data."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pinfold.core.explaining.alignment import Level
from pinfold.core.policies.options import OPTION_GATES
from pinfold.formats.kubelet.configwriter import format_kubelet_config
from pinfold.planning.compare import needed_gates
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
    printable,
)
from pinfold.render.machine.canvas import Canvas, wrap
from pinfold.render.plan.data import config_data, leftover_data, summary_data
from pinfold.render.plan.table import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pinfold.planning.compare import Compared
    from pinfold.planning.plan import Placement, Plan
    from pinfold.render.machine.canvas import Look

_MOST_ROWS: Final = 60
_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_BEST: Final = 10


def format_comparison(rows: Sequence[Compared], look: Look) -> str:
    """Return the result of each variant, then container by container where they differ."""
    parts = [_totals(rows, look), _matrix(rows, look)]
    return join_parts(parts, look)


def _totals(rows: Sequence[Compared], look: Look) -> Canvas:
    columns = (
        Column(""),
        Column("VARIANT", 16),
        Column("FIT", right=True),
        Column("REFUSED", right=True),
        Column("SPREAD", right=True),
        Column("LEFT", right=True),
        Column("MAX L3", right=True),
        Column("FRAG", right=True),
    )
    cells = [_total(_letter(i), row) for i, row in enumerate(rows)]
    canvas = format_columns(columns, cells, look)
    for i, row in enumerate(rows):
        if row.problem:
            canvas.append(wrap(f"{_letter(i)}: {printable(row.problem)}", look.width, indent=2), RED)
    return canvas


def _total(letter: str, row: Compared) -> Sequence[Cell]:
    plan, label = row.plan, row.variant.label
    if plan is None:
        return (Cell(letter), Cell(label), *(Cell("-") for _ in range(6)))
    refused, spread, left = len(plan.refused), len(plan.misaligned), plan.leftover
    return (
        Cell(letter, BOLD),
        Cell(label),
        Cell(str(len(plan.outcomes) - refused)),
        Cell(str(refused), RED if refused else ""),
        Cell(str(spread), YELLOW if spread else ""),
        Cell(str(len(left.cpus))),
        Cell(str(left.largest[Level.UNCORE])),
        Cell(f"{left.fragmentation:.0%}"),
    )


def _letter(number: int) -> str:
    return _LETTERS[number] if number < len(_LETTERS) else str(number + 1)


def _matrix(rows: Sequence[Compared], look: Look) -> Canvas:
    plans = [row.plan for row in rows if row.plan is not None]
    letters = [_letter(i) for i, row in enumerate(rows) if row.plan is not None]
    canvas = Canvas()
    if not plans or not plans[0].placements:
        return canvas
    lines = list(zip(*(plan.placements for plan in plans), strict=True))
    differing = [line for line in lines if len({_brief(placement).text for placement in line}) > 1]
    if not differing:
        canvas.append(wrap("All containers have the same result.", look.width), DIM)
        return canvas
    columns = [Column("CONTAINER", 12, cut=True), *(Column(letter, 7) for letter in letters)]
    shown = [[_name(line[0]), *map(_brief, line)] for line in differing[:_MOST_ROWS]]
    canvas = format_columns(columns, shown, look)
    for text in _below(len(lines), len(differing)):
        canvas.append(wrap(text, look.width, indent=2), DIM)
    return canvas


def _below(lines: int, differing: int) -> Iterator[str]:
    if differing > _MOST_ROWS:
        yield f"and {differing - _MOST_ROWS} more that differ; see -o json"
    if lines > differing:
        yield f"same result everywhere: {plural(lines - differing, 'container')}"


def _name(placement: Placement) -> Cell:
    return Cell(f"{placement.pod.name}/{placement.container.name}")


def _brief(placement: Placement) -> Cell:
    """Return the result of a container in short: the innermost group that holds it, or its spread."""
    if placement.refusal is not None:
        return Cell("refused", RED)
    if placement.alignment is None:
        return Cell("shared", DIM)
    crossed = placement.alignment.crossed
    if crossed:
        spread = [level.counted(len(placement.alignment.levels[level].ids)) for level in crossed]
        return Cell(f"spread: {', '.join(spread)}", YELLOW)
    for level, span in placement.alignment.levels.items():
        if len(span.ids) == 1:
            return Cell(level.counted(1), GREEN)
    return Cell(Level.SOCKET.counted(len(placement.alignment.socket.ids)), GREEN)


def format_recommendation(rows: Sequence[Compared], current: Compared, look: Look) -> str:
    """Return the best variant and why, with the next best; *rows* are ranked, *current* has the current settings."""
    best = rows[0]
    canvas = Canvas()
    for text, style in _verdict(rows, best, current):
        canvas.append(wrap(printable(text), look.width, indent=2), style)
    shown = list({row.score: row for row in reversed(rows)}.values())[::-1][:_BEST]
    if current not in shown:
        shown.append(current)
    return join_parts((canvas, _totals(shown, look), _snippet(best)), look)


def _snippet(best: Compared) -> Canvas:
    """Return the best settings for the file of a kubelet, or for `pinfold serve --config`."""
    canvas = Canvas()
    if best.plan is not None:
        config = best.variant.config
        canvas.append(["# the best settings, for /var/lib/kubelet/config.yaml or pinfold serve --config"], DIM)
        tried = {gate.name for gate in OPTION_GATES.values()}  # opened to try all options; most need none of them
        given = replace(config, gates={name: on for name, on in config.gates.items() if name not in tried})
        canvas.append(format_kubelet_config(given, best.plan.reserved, needed_gates(config)).splitlines())
    return canvas


def _verdict(rows: Sequence[Compared], best: Compared, current: Compared) -> Iterator[tuple[str, str]]:
    what = "every valid combination of CPU Manager options and Topology Manager policies"
    yield f"tried {len(rows)} settings: {what}; equal results are shown once", DIM
    if best.variant is current.variant:
        yield f"best: {best.variant.label} (the current settings)", BOLD
    else:
        yield f"best: {best.variant.label}", BOLD
        yield f"why: {_why(best, current)}", ""
        yield f"set: {_flags(best)}", ""
    if best.plan is not None and best.plan.refused:
        names = ", ".join(printable(outcome.pod.name) for outcome in best.plan.refused[:3])
        yield f"{plural(len(best.plan.refused), 'pod')} would still be refused ({names})", RED


def _why(best: Compared, current: Compared) -> str:
    """Return what is better than with the current settings, the most important first."""
    if best.plan is None or current.plan is None:
        return current.problem or "no other settings can start from this State"
    words = ("refused pods: {}", "spread containers: {}", "fragmentation of free CPUs: {}%")
    pairs = zip(words, best.score, current.score, strict=True)
    said = [
        f"{word.format(new)} instead of {word.partition(': ')[2].format(old)}" for word, new, old in pairs if new != old
    ]
    return "; ".join(said) or "as good as the current settings"


def _flags(best: Compared) -> str:
    config = best.variant.config
    options = ",".join(f"{name}={value}" for name, value in config.options.items())
    gates = ",".join(f"{name}=true" for name in needed_gates(config))
    flags = [
        f"--policy-options {options}" if options else "no --policy-options",
        f"--topology-manager-policy {config.topology_policy}" if config.topology_policy != "none" else "",
        f"--feature-gates {gates}" if gates else "",
    ]
    return " ".join(filter(None, flags))


def comparison_data(rows: Sequence[Compared]) -> dict[str, object]:
    """Return the comparison, ready for JSON."""
    return {"variants": [_variant_data(row) for row in rows]}


def _variant_data(row: Compared) -> dict[str, object]:
    if row.plan is None:
        return {"variant": row.variant.label, "problem": row.problem}
    return {
        "variant": row.variant.label,
        "problem": None,
        "node": config_data(row.plan),
        "feature_gates": list(needed_gates(row.variant.config)),
        "summary": summary_data(row.plan),
        "leftover": leftover_data(row.plan.leftover),
        "placements": _placements(row.plan),
    }


def _placements(plan: Plan) -> list[dict[str, object]]:
    return [
        {
            "pod": placement.pod.name,
            "container": placement.container.name,
            "cpus": None if placement.cpus is None else str(placement.cpus),
            "reason": None if placement.refusal is None else placement.refusal.reason,
            "spread": [] if placement.alignment is None else [str(level) for level in placement.alignment.crossed],
        }
        for placement in plan.placements
    ]
