"""`pinfold fleet`: what thousands of nodes would do with these pods."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pinfold.cli.output.progress import Bar
from pinfold.cli.planning.fleetwork import workers
from pinfold.core.allocators.order import Fidelity
from pinfold.errors import PinfoldError, excerpt
from pinfold.formats.fleet.manifest import parse_fleet
from pinfold.formats.fleet.pods import MAX_REPLICAS, parse_workloads
from pinfold.planning.fleet import RETRIES, Fleet, FleetScenario, plan_fleet
from pinfold.planning.scheduling import Scheduler
from pinfold.render.fleet import FleetReport, format_json, format_table, format_yaml
from pinfold.settings.filetext import LARGE, read_file

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pinfold.planning.shard import ShardResult, ShardTask

INCOMPLETE: Final = 1

_MOST_JOBS: Final = 256
_MOST_SEED: Final = 2**64 - 1
_MOST_RETRIES: Final = 100
_MOST_NOTES: Final = 10
_BOTH: Final = "both"
_OUTPUTS: Final[Mapping[str, Callable[[FleetReport], str]]] = {
    "table": format_table,
    "json": format_json,
    "yaml": format_yaml,
}


class UnusableFleet(PinfoldError):  # noqa: N818 - the fact, as the others in this family
    """Files that are each valid, but do not make a fleet together."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold fleet`."""
    parser.epilog = "Exits with 1 if any pod was not placed. docs/how-to/fleet.md says what is modelled."
    parser.add_argument("fleet", metavar="FLEET", help="node types and counts (YAML or JSON)")
    parser.add_argument("pods", metavar="PODS", nargs="*", help="Pods, Deployments, Jobs … (YAML or JSON)")
    parser.add_argument("-o", "--output", choices=tuple(_OUTPUTS), default="table")
    parser.add_argument(
        "--scheduler",
        choices=(*Scheduler, _BOTH),
        default=_BOTH,
        help="blind: counts CPUs; aware: knows the free CPUs of each NUMA node; both (default): compares them",
    )
    parser.add_argument("--seed", type=_whole(0, _MOST_SEED), default=0, metavar="N", help="order of arrival, ties")
    parser.add_argument(
        "--retries",
        type=_whole(0, _MOST_RETRIES),
        default=RETRIES,
        metavar="N",
        help=f"how often a refused pod is replaced by its controller (default {RETRIES})",
    )
    parser.add_argument(
        "--as",
        dest="view",
        choices=tuple(map(str, Fidelity)),
        default=str(Fidelity.PINFOLD),
        help="who manages the CPUs of each node: pinfold (default), or a kubelet, mistakes included",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--jobs", type=_whole(1, _MOST_JOBS), metavar="N", help="processes to work with (default: one for each CPU)"
    )
    where.add_argument("--dask", metavar="ADDRESS", help="work on the Dask cluster at ADDRESS (tcp://HOST:8786)")


def run(args: argparse.Namespace) -> int:
    """Print the outcome for the fleet."""
    fleet, notes = read_fleet(args.fleet, args.pods, Fidelity(args.view))
    schedulers = tuple(Scheduler) if args.scheduler == _BOTH else (Scheduler(args.scheduler),)
    scenario = FleetScenario(schedulers, args.seed, args.retries)
    _say(notes)
    bar, done = Bar("placing pods", fleet.pods * len(schedulers)), list[int]()
    try:
        with workers(args.jobs or len(os.sched_getaffinity(0)), args.dask) as work:
            outcomes = plan_fleet(fleet, scenario, lambda tasks: _over(tasks, work(tasks), done, bar))
    finally:
        bar.clear()
    print(_OUTPUTS[args.output](FleetReport(fleet, scenario, outcomes)), end="", flush=True)
    return 0 if all(outcome.is_complete for outcome in outcomes) else INCOMPLETE


def read_fleet(name: str, pods: Sequence[str], fidelity: Fidelity = Fidelity.PINFOLD) -> tuple[Fleet, list[str]]:
    """Return the fleet in the files, and notes on what was left out; files that it names stand beside it."""
    beside = Path(name).parent
    found = parse_fleet(
        read_file(name, LARGE), lambda other: read_file(str(beside / other), LARGE), source=name, fidelity=fidelity
    )
    workloads, notes = list(found.workloads), list(found.notes)
    for other in pods:
        documents = parse_workloads(read_file(other, LARGE), source=other)
        workloads += documents.workloads
        notes += documents.ignored
    fleet = Fleet(found.types, tuple(workloads))
    if not fleet.pods:
        raise UnusableFleet(f"{', '.join([name, *pods])}: no pods; name a file of pods, or add workloads to {name}")
    if fleet.pods > MAX_REPLICAS:
        raise UnusableFleet(f"{', '.join([name, *pods])}: {fleet.pods:,} pods are more than {MAX_REPLICAS:,}")
    return fleet, notes


def _over(
    tasks: Sequence[ShardTask], results: Iterable[ShardResult], done: list[int], bar: Bar
) -> Iterator[ShardResult]:
    """Yield the results, add the pods that they place to *done*, and show how many these are."""
    for task, result in zip(tasks, results, strict=True):
        done.append(len(task.waiting) - len(result.left))
        bar.show(sum(done))
        yield result


def _say(notes: Sequence[str]) -> None:
    for note in notes[:_MOST_NOTES]:
        print(f"pinfold: note: {note}", file=sys.stderr)
    if len(notes) > _MOST_NOTES:
        print(f"pinfold: note: and {len(notes) - _MOST_NOTES} more", file=sys.stderr)


def _whole(least: int, most: int) -> Callable[[str], int]:
    """Return a parser of whole numbers within these bounds, for argparse."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) and least <= int(text) <= most):
            raise ValueError(excerpt(text))
        return int(text)

    read.__name__ = f"whole number from {least} to {most}"
    return read
