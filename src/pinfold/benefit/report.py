"""Results as text for a terminal, and as a page in Markdown. Pure."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.benefit.catalogue import PROBE, QUIET
from pinfold.benefit.figures import Ratio, histogram, percentile, ratio

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pinfold.benefit.catalogue import Figure, MeasuredProgram, PolicyFlags
    from pinfold.benefit.measure import Results, Run

FIRST_BIN: Final = 1_000
BINS: Final = 31
"""From 1 µs to 1 s."""
_BARS: Final = " ▁▂▃▄▅▆▇█"
_NS: Final = 1e6
_MOST: Final = 100


class Runs(NamedTuple):
    """The runs of one workload beside one kind of noise under one policy."""

    runs: Sequence[Run]

    def samples(self, of: str) -> list[int]:
        """Return all samples of a name, in order of size."""
        return sorted(sample for run in self.runs for sample in run.printed["samples"].get(of, ()))

    def pooled(self, figure: Figure) -> float | None:
        """Return a figure over all rounds."""
        if figure.percent is not None:
            return _of_samples(self.samples(figure.of), figure.percent)
        found = [value for run in self.runs if (value := _counted(run, figure.of)) is not None]
        return fmean(found) if found else None

    def by_round(self, figure: Figure) -> dict[int, float]:
        """Return a figure of each round that has enough samples for it."""
        found = {run.round: Runs([run]).pooled(figure) for run in self.runs}
        return {number: value for number, value in found.items() if value is not None}


def _of_samples(ordered: Sequence[int], percent: float) -> float | None:
    value = percentile(ordered, percent) if percent < _MOST else ordered[-1] if ordered else None
    return None if value is None else value / _NS


def _counted(run: Run, name: str) -> float | None:
    printed = run.printed
    found = printed["rates"].get(name, printed["counters"].get(name))
    return None if found is None else float(found)


def cell(results: Results, workload: str, neighbours: str, rules: str) -> Runs:
    """Return the runs that are wanted."""
    return Runs([run for run in results.runs if run[:3] == (workload, neighbours, rules)])


def effect(figure: Figure, before: Runs, after: Runs) -> Ratio | None:
    """Return how many times better *after* is, from the rounds that both have."""
    first, second = before.by_round(figure), after.by_round(figure)
    pairs = [(first[number], second[number]) for number in first if number in second]
    return ratio([(b, a) for a, b in pairs] if figure.large_is_good else pairs)


def number(value: float | None) -> str:
    """Return three digits of a figure.

    >>> [number(value) for value in (None, 0, 0.01234, 12.345, 12345.6)]
    ['—', '0', '0.0123', '12.3', '12,346']
    """
    if value is None:
        return "—"
    return f"{value:,.0f}" if value >= _MOST or not value else f"{value:.3g}"


def times(found: Ratio | None) -> str:
    """Return an effect as text."""
    return "—" if found is None else f"{number(found.value)} ({number(found.low)} to {number(found.high)})"


def short(results: Results) -> str:
    """Return the figure that `make run` ends with: before and after, in a few lines."""
    work, neighbours = results.plan.cells[0]
    shown = [each for each in work.figures if each.name in {"wake-up p50", "wake-up p99", "wake-up max", "stall max"}]
    cells = {rules.name: cell(results, work.name, neighbours.name, rules.name) for rules in results.plan.rules}
    lines = [
        f"A program that wakes every millisecond, beside {neighbours.name} on {results.cpus} CPUs (milliseconds late):"
    ]
    lines.append(f"  {'policy':<16}" + "".join(f"{each.name:>13}" for each in shown) + f"{'preempted/s':>13}")
    for name, runs in cells.items():
        lost = fmean(run.printed["counters"]["preemptions"] for run in runs.runs)
        values = "".join(f"{number(runs.pooled(each)):>13}" for each in shown)
        lines.append(f"  {name:<16}{values}{number(lost):>13}   {_bars(runs)}")
    p99 = next(each for each in shown if each.name == "wake-up p99")
    late = {name: runs.pooled(p99) or 0 for name, runs in cells.items()}
    lines.append(
        f"99 of 100 wake-ups: within {', '.join(f'{number(each)} ms ({name})' for name, each in late.items())}."
    )
    if min(list(late.values())[1:]) >= late["none"]:
        lines.append(
            "No gain this time: other programs of this host used that CPU too. Only the shield keeps them off it."
        )
    lines.append(
        "Each bar: the number of wake-ups with this delay, from 1 µs to 1 s. More: pinfold demo benefit --on NAME"
    )
    return "\n".join(lines)


def _bars(runs: Runs) -> str:
    counts = histogram(runs.samples("wake-up"), FIRST_BIN, BINS)
    most = max(counts) or 1
    # A bar shows one sample in ten thousand as well as all of them: its height goes with the number of digits.
    return "".join(_BARS[0 if not count else 1 + round(7 * count.bit_length() / most.bit_length())] for count in counts)


def page(results: Results, name: str, picture: str) -> str:
    """Return the report as Markdown; *picture* is the file beside it."""
    parts = [*_head(results, name, picture), *_findings(results), *_tables(results), *_foot(results)]
    return "\n".join([*parts, ""])


def _head(results: Results, name: str, picture: str) -> Iterator[str]:
    plan = results.plan
    yield f"# The benefit of exclusive CPUs on {name}\n"
    yield (
        f"{results.cpus} CPUs, {plan.rounds} rounds of {plan.seconds:g} s for each figure, the policies alternating in "
        "one run. Times are in milliseconds and over all rounds."
    )
    yield (
        "The last columns say how many times better a policy is than `none`: the mean over the rounds, and the range "
        "that contains the true value with 95 % confidence. A range that contains 1 shows no difference.\n"
    )
    yield from (f"- {each}." for each in results.conditions)
    yield from (f"- `{rules.name}`: {ready}." for rules, ready in zip(plan.rules, results.ready, strict=True))
    late = Runs([run for run in results.runs if run[:2] == (PROBE.name, QUIET.name)]).samples("wake-up")
    middle, high = _of_samples(late, 50), _of_samples(late, 99)
    yield (
        f"- The floor of the probe, without neighbours: wake-up p50 {number(middle)} ms, p99 {number(high)} ms. "
        "It cannot show less.\n"
    )
    yield f"![Histograms of the latency probe under each policy]({picture})"


def _findings(results: Results) -> Iterator[str]:
    """Yield what differs for certain, for each program and policy; and what shows no difference."""
    yield "\n## What this run shows\n"
    yield "Only figures whose range leaves out 1 are named; the range is in the tables below.\n"
    for work, neighbours in results.plan.cells:
        found = [_finding(results, work, neighbours.name, rules.name) for rules in results.plan.rules[1:]]
        yield f"- **{work.name.capitalize()}, {neighbours.words}**: {'; '.join(found)}."


def _finding(results: Results, work: MeasuredProgram, neighbours: str, rules: str) -> str:
    before, after = (cell(results, work.name, neighbours, name) for name in (results.plan.rules[0].name, rules))
    effects = {each.name: effect(each, before, after) for each in work.figures}
    certain = {name: found.value for name, found in effects.items() if found is not None and found.is_certain}
    better = [f"{name} {number(value)} times better" for name, value in certain.items() if value > 1]
    worse = [f"{name} {number(1 / value)} times worse" for name, value in certain.items() if value < 1]
    return f"`{rules}` " + (", ".join([*better, *worse]) or "shows no difference")


def _tables(results: Results) -> Iterator[str]:
    for work, neighbours in results.plan.cells:
        yield f"\n## {work.name.capitalize()}, {neighbours.words}\n"
        yield f"{work.says[0].upper()}{work.says[1:]}."
        many = ", for each CPU of the machine" if neighbours.per_cpu else ""
        yield f"Neighbours{many}: {neighbours.intensity}.\n"
        yield from _table(results, work, neighbours.name)


def _table(results: Results, work: MeasuredProgram, neighbours: str) -> Iterator[str]:
    rules: Sequence[PolicyFlags] = results.plan.rules
    cells = [cell(results, work.name, neighbours, each.name) for each in rules]
    effects = [f"{each.name} better by" for each in rules[1:]]
    yield "| | " + " | ".join([*(each.name for each in rules), *effects]) + " |"
    yield "|---" * (2 * len(rules)) + "|"
    for figure in work.figures:
        values = [number(each.pooled(figure)) for each in cells]
        found = [times(effect(figure, cells[0], each)) for each in cells[1:]]
        unit = "" if figure.unit == "ms" else f" ({figure.unit})"
        yield "| " + " | ".join([f"{figure.name}{unit}", *values, *found]) + " |"
    for name in ("preemptions", "waits", "migrations"):
        counted = [[value for run in each.runs if (value := _counted(run, name)) is not None] for each in cells]
        if all(counted):
            means = [number(fmean(each)) for each in counted]
            yield "| " + " | ".join([f"{name} (kernel)", *means, *([""] * len(effects))]) + " |"


def _foot(results: Results) -> Iterator[str]:
    if results.plan.missing:
        yield "\n## Not measured\n"
        yield from (f"- {name}: {why}." for name, why in results.plan.missing.items())
    yield "\n## How it was measured\n"
    yield (
        "Each policy has a daemon of its own. The program runs by `pinfold run --cpus 1`: under `none` that is a limit "
        "of one CPU in the shared pool, under the others a CPU of its own. The neighbours run in the shared pool, "
        "request all other CPUs of the machine, and have no limit. Servers have their load generator in the same "
        "container. Preemptions, waits and migrations are the kernel's counts (`ru_nivcsw`, `ru_nvcsw`, "
        "`se.nr_migrations`): for the probe in a second, for the others in a run."
    )
