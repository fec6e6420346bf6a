"""The measurement: every workload under every policy beside every kind of noise, in alternating rounds."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pinfold.benefit.catalogue import BATCH, NEIGHBOURS, PROBE, QUIET, RULES, WORKLOADS
from pinfold.benefit.host import BenefitError, conditions, daemons, measured, noise, prepared
from pinfold.benefit.programs.requests import SERVICE, turns_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pinfold.benefit.catalogue import MeasuredProgram, Neighbours, PolicyFlags
    from pinfold.benefit.host import Daemon
    from pinfold.core.machine.topology import Topology

_FEWEST_CPUS: Final = 2


class MeasuringPlan(NamedTuple):
    """The programs to measure, and those that cannot be measured here."""

    rules: Sequence[PolicyFlags]
    cells: Sequence[tuple[MeasuredProgram, Neighbours]]
    rounds: int
    seconds: float
    missing: Mapping[str, str]
    """The programs that are left out, each with the reason."""


class Run(NamedTuple):
    """One run of one workload: what its program has printed."""

    workload: str
    neighbours: str
    rules: str
    round: int
    printed: Mapping[str, Any]


class Results(NamedTuple):
    """All runs, and where they were made."""

    plan: MeasuringPlan
    runs: Sequence[Run]
    ready: Sequence[str]
    """What each daemon said when it was ready."""
    cpus: int
    conditions: Sequence[str] = ()
    """When it was measured, and on what kind of machine."""


def short_plan(machine: Topology) -> MeasuringPlan:
    """Return a plan of a few seconds: the probe beside busy loops, under none, static and, for root, the shield."""
    chosen = [rules for rules in RULES[:3] if not rules.missing(machine)]
    return MeasuringPlan(chosen, [(PROBE, NEIGHBOURS[0])], 2, 0.6, {})


def full_plan(machine: Topology, rounds: int, seconds: float) -> MeasuringPlan:
    """Return a plan of everything this machine can show: the probe beside all noise, the others beside busy loops.

    The batch alone too: busy neighbours leave it so little that it seldom comes to its quota.
    """
    why = {rules.name: rules.missing(machine) for rules in RULES} | {work.name: work.missing() for work in WORKLOADS}
    chosen = [rules for rules in RULES if not why[rules.name]]
    cells = [(PROBE, neighbours) for neighbours in NEIGHBOURS]
    cells += [(work, NEIGHBOURS[0]) for work in WORKLOADS if work is not PROBE and not why[work.name]]
    cells.append((BATCH, QUIET))
    return MeasuringPlan(chosen, cells, rounds, seconds, {name: reason for name, reason in why.items() if reason})


def measure(plan: MeasuringPlan, tell: Callable[[str], object]) -> Results:
    """Run the plan; *tell* gets a line before each round."""
    cpus = len(os.sched_getaffinity(0))
    if cpus < _FEWEST_CPUS:
        raise BenefitError("this host has 1 CPU; an exclusive CPU beside a shared pool needs 2")
    with tempfile.TemporaryDirectory(prefix="pinfold-benefit-") as name:
        directory = Path(name)
        directory.chmod(0o755)  # PostgreSQL runs as another user below it
        found = conditions()
        arguments = _arguments(directory, plan)
        with daemons(directory, plan.rules) as running:
            runs = list(_floor(running, plan.seconds))
            for number in range(plan.rounds):
                tell(f"round {number + 1} of {plan.rounds}")
                runs += _round(running, plan, number, arguments, cpus)
            return Results(plan, runs, [daemon.ready for daemon in running], cpus, found)


def _arguments(directory: Path, plan: MeasuringPlan) -> dict[str, list[str]]:
    """Return what each program is started with, after its name."""
    found: dict[str, list[str]] = {}
    for work, _ in plan.cells:
        if work.module not in found:
            found[work.module] = [str(plan.seconds * work.longer)]
            if work.module == "requests":
                found[work.module].append(str(turns_of(SERVICE)))
            if work.module == "postgres":
                found[work.module].append(prepared(directory, work.module))
    return found


def _floor(running: Sequence[Daemon], seconds: float) -> Iterator[Run]:
    """Yield what the probe finds without any neighbour: the least that it can show here."""
    last = running[-1]
    yield Run(PROBE.name, QUIET.name, last.rules.name, 0, measured(last, (PROBE.module, str(seconds))))


def _round(
    running: Sequence[Daemon], plan: MeasuringPlan, number: int, arguments: Mapping[str, list[str]], cpus: int
) -> Iterator[Run]:
    """Yield one run of each workload under each policy; every other round has the policies in reverse."""
    order = running if number % 2 == 0 else running[::-1]
    for work, neighbours in plan.cells:
        for daemon in order:
            with noise(daemon, neighbours, cpus):
                printed = measured(daemon, (work.module, *arguments[work.module]))
            yield Run(work.name, neighbours.name, daemon.rules.name, number, printed)
