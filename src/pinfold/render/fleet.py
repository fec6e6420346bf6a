"""The outcome of a fleet → a table of 80 columns, JSON or YAML."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

import yaml

from pinfold.formats.fields import bare

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pinfold.planning.fleet import Fleet, FleetOutcome, FleetScenario, TypeOutcome, WorkloadOutcome

_NAME: Final = 19
_WHAT: Final = 24
_COUNT: Final = 9
_VALUE: Final = 10
_MOST_WORKLOADS: Final = 20


class FleetReport(NamedTuple):
    """The fleet, and its outcomes."""

    fleet: Fleet
    scenario: FleetScenario
    outcomes: tuple[FleetOutcome, ...]


def format_json(report: FleetReport) -> str:
    """Return the report as JSON."""
    return json.dumps(report_document(report), indent=2) + "\n"


def format_yaml(report: FleetReport) -> str:
    """Return the report as YAML."""
    text: str = yaml.safe_dump(report_document(report), sort_keys=False, allow_unicode=True)
    return text


def report_document(report: FleetReport) -> dict[str, object]:
    """Return the report as a JSON-ready document."""
    fleet, scenario, outcomes = report
    return {
        "seed": scenario.seed,
        "retries": scenario.retries,
        "nodes": fleet.nodes,
        "pods": fleet.pods,
        "containers": fleet.containers,
        "schedulers": [_outcome(outcome) for outcome in outcomes],
    }


def _outcome(outcome: FleetOutcome) -> dict[str, object]:
    return {
        "scheduler": str(outcome.scheduler),
        "shards": outcome.shards,
        "placed": outcome.placed,
        "refused": outcome.refused,
        "unschedulable": outcome.unschedulable,
        "refusals": outcome.refusals,
        "retried": outcome.retries,
        "placed_after_refusal": outcome.saved,
        "node_types": [_type(kind) for kind in outcome.types],
        "workloads": [_workload(workload) for workload in outcome.workloads],
    }


def _type(kind: TypeOutcome) -> dict[str, object]:
    return {
        "name": kind.name,
        "nodes": kind.nodes,
        "pods": kind.usage.pods,
        "allocatable_millicpus": kind.allocatable,
        "requested_millicpus": kind.usage.requested,
        "exclusive_cpus": kind.usage.exclusive,
        "refusals": dict(kind.refusals),
    }


def _workload(workload: WorkloadOutcome) -> dict[str, object]:
    return {**workload._asdict(), "refusals": dict(workload.refusals)}


def format_table(report: FleetReport) -> str:
    """Return the report as text: sums, refusals by node type, and workloads with refusals."""
    fleet, scenario, outcomes = report
    cpus = sum(kind.allocatable * kind.count for kind in fleet.types) // 1000
    what = f"{fleet.nodes:,} nodes, {cpus:,} CPUs; {fleet.pods:,} pods, {fleet.containers:,} containers"
    lines = [
        f"{what}; seed {scenario.seed}",
        "",
        *_sums(outcomes),
        "",
        *_types(outcomes),
        "",
        *_workloads(outcomes),
    ]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _sums(outcomes: Sequence[FleetOutcome]) -> Iterator[str]:
    yield _row("PODS", "", "", _heads(outcomes))
    yield _row("placed", "", "", [f"{outcome.placed:,}" for outcome in outcomes])
    yield _row("", "", "after a refusal", [f"{outcome.saved:,}" for outcome in outcomes])
    yield _row("refused", "", "in the end", [f"{outcome.refused:,}" for outcome in outcomes])
    yield _row("", "", "times, replaced pods too", [f"{outcome.refusals:,}" for outcome in outcomes])
    yield _row("unschedulable", "", "", [f"{outcome.unschedulable:,}" for outcome in outcomes])


def _types(outcomes: Sequence[FleetOutcome]) -> Iterator[str]:
    yield _row("NODE TYPE", "NODES", "", _heads(outcomes))
    for kinds in zip(*(outcome.types for outcome in outcomes), strict=True):
        requested = [_percent(kind.usage.requested, kind.allocatable) for kind in kinds]
        exclusive = [_percent(kind.usage.exclusive * 1000, kind.allocatable) for kind in kinds]
        yield _row(kinds[0].name, f"{kinds[0].nodes:,}", "CPUs requested", requested)
        yield _row("", "", "CPUs exclusive", exclusive)
        yield from _reasons([kind.refusals for kind in kinds])


def _workloads(outcomes: Sequence[FleetOutcome]) -> Iterator[str]:
    """Yield rows for the workloads with the most refused pods, and the number of rows left out."""
    rows = list(zip(*(outcome.workloads for outcome in outcomes), strict=True))
    troubled = [row for row in rows if any(_trouble(workload) > (0, 0) for workload in row)]
    shown = sorted(troubled, key=lambda row: max(map(_trouble, row)), reverse=True)[:_MOST_WORKLOADS]
    if shown:
        yield _row("WORKLOAD", "REPLICAS", "", _heads(outcomes))
    for row in shown:
        yield _row(row[0].name, f"{row[0].replicas:,}", "placed", [f"{workload.placed:,}" for workload in row])
        yield _row("", "", "refused", [f"{workload.refused:,}" for workload in row])
        yield _row("", "", "unschedulable", [f"{workload.unschedulable:,}" for workload in row])
        yield from _reasons([workload.refusals for workload in row])
    if more := len(troubled) - len(shown):
        yield f"and {more:,} more with refusals; -o json has all"
    if fine := len(rows) - len(troubled):
        yield f"{fine:,} {'other ' if shown else ''}workload{'s' if fine > 1 else ''}: all placed at once"


def _trouble(workload: WorkloadOutcome) -> tuple[int, int]:
    return workload.refused + workload.unschedulable, sum(workload.refusals.values())


def _reasons(refusals: Sequence[Mapping[str, int]]) -> Iterator[str]:
    for reason in sorted({reason for each in refusals for reason in each}):
        yield _row("", "", reason, [f"{each.get(reason, 0):,}" for each in refusals])


def _heads(outcomes: Iterable[FleetOutcome]) -> list[str]:
    return [str(outcome.scheduler).upper() for outcome in outcomes]


def _row(name: str, count: str, what: str, values: Iterable[str]) -> str:
    shown = bare(name)
    shown = shown if len(shown) <= _NAME else f"{shown[: _NAME - 1]}…"
    cells = "  ".join(value.rjust(_VALUE) for value in values)
    return f"{shown:<{_NAME}}  {count:>{_COUNT}}  {what:<{_WHAT}}  {cells}"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"
