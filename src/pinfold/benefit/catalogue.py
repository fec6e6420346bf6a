"""What is measured: policies, neighbours with their intensity, workloads with their figures. One row each.

A row that this machine cannot do says why (`missing`).
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.benefit.programs import neighbours as noise
from pinfold.benefit.programs.postgres import program

if TYPE_CHECKING:
    from collections.abc import Callable

    from pinfold.core.machine.topology import Topology


class PolicyFlags(NamedTuple):
    """A policy with its options, as flags of `pinfold serve`."""

    name: str
    flags: tuple[str, ...]
    missing: Callable[[Topology], str] = lambda _: ""
    """Why this machine cannot show it; empty if it can."""


class Neighbours(NamedTuple):
    """A kind of noise, and how much of it."""

    name: str
    kind: str
    per_cpu: int
    intensity: str
    """What each CPU of the machine has to bear."""

    @property
    def words(self) -> str:
        """Where a program runs that is measured, for a heading."""
        return f"beside {self.name}" if self.per_cpu else "alone"


class Figure(NamedTuple):
    """One figure of a workload: a percentile of samples, or a rate that the program has counted."""

    name: str
    of: str
    """The samples, the rate or the counter that it comes from."""
    percent: float | None = None
    """Of the samples; 100 is the maximum."""
    unit: str = "ms"
    large_is_good: bool = False


class MeasuredProgram(NamedTuple):
    """A program that is measured in a container with one CPU of its own, or with a limit of one."""

    name: str
    module: str
    says: str
    figures: tuple[Figure, ...]
    missing: Callable[[], str] = lambda: ""
    """Why this machine cannot run it; empty if it can."""
    longer: float = 1.0
    """How many times longer than the others it runs."""


def percentiles(of: str, *percents: float) -> tuple[Figure, ...]:
    """Return figures of the same samples."""
    return tuple(Figure(f"{of} {'max' if each == 100 else f'p{each:g}'}", of, each) for each in percents)  # noqa: PLR2004 - percent


def _lacks(*names: str, package: str) -> str:
    missing = [name for name in names if not (shutil.which(name) or program(name))]
    return f"{missing[0]} is not installed (Debian package {package})" if missing else ""


def _shield(_: Topology) -> str:
    return "" if os.geteuid() == 0 else "the shield needs root"


_NONE, _STATIC = ("--policy", "none"), ("--policy", "static")


def _option(name: str, missing: Callable[[Topology], str]) -> PolicyFlags:
    return PolicyFlags(f"static, {name}", (*_STATIC, "--policy-options", f"{name}=true"), missing)


RULES: Final = (
    PolicyFlags("none", _NONE),
    PolicyFlags("static", _STATIC),
    PolicyFlags("static, shield", (*_STATIC, "--shield"), _shield),
    _option("full-pcpus-only", lambda machine: "" if machine.threads_per_core > 1 else "no core here has two threads"),
    _option(
        "prefer-align-cpus-by-uncorecache",
        lambda machine: "" if len(machine.uncore_caches) > 1 else "there is one L3 cache here",
    ),
    _option(
        "distribute-cpus-across-numa",
        lambda machine: "" if len(machine.numa_nodes) > 1 else "there is one NUMA node here",
    ),
)

NEIGHBOURS: Final = (
    Neighbours("busy loops", "cpu", 2, "2 processes that count without pause"),
    Neighbours("fork storm", "forks", 2, f"2 processes that each start up to {noise.FORKS} processes a second"),
    Neighbours("memory bandwidth", "bandwidth", 1, f"1 process that copies {noise.BANDWIDTH >> 20} MiB blocks"),
    Neighbours("cache thrashing", "cache", 1, f"1 process that reads each line of {noise.CACHE >> 20} MiB"),
    Neighbours("timers", "timers", 8, f"8 processes that each wake up {noise.TIMERS} times a second"),
)

QUIET: Final = Neighbours("no neighbours", "", 0, "none")

PROBE: Final = MeasuredProgram(
    "latency probe",
    "probe",
    "wakes every millisecond and spins for 0.8 of it: how late it wakes, how long it stands still",
    (*percentiles("wake-up", 50, 99, 99.9, 99.99, 100), *percentiles("stall", 50, 99, 99.9, 99.99, 100)),
    longer=1.4,  # 5 rounds then have more than 10,000 wake-ups, as p99.99 needs
)
REQUESTS: Final = MeasuredProgram(
    "request server",
    "requests",
    "a queue of requests that need 1 ms each, at 30, 60 and 80 % load: from arrival to answer",
    (
        *percentiles("at 30 % load", 50, 99),
        *percentiles("at 60 % load", 50, 99),
        *percentiles("at 80 % load", 50, 99),
    ),
    longer=2.0,  # one part for each load
)
BATCH: Final = MeasuredProgram(
    "batch under quota",
    "batch",
    "two busy processes with a limit of one CPU; an exclusive container has no quota",
    (
        Figure("pieces", "pieces", unit="/s", large_is_good=True),
        *percentiles("piece", 50, 99, 100),
        Figure("throttled", "throttled_seconds", unit="s/s"),
    ),
)
WORKLOADS: Final = (
    PROBE,
    REQUESTS,
    BATCH,
    MeasuredProgram(
        "memory-bound kernel",
        "memory",
        "copies 64 MiB again and again",
        (Figure("copied", "GB/s", unit="GB/s", large_is_good=True), *percentiles("copy", 50, 100)),
    ),
    MeasuredProgram(
        "redis",
        "redis",
        "redis-server with redis-benchmark in the same container: GET, 20 clients",
        (
            Figure("requests", "requests/s", unit="/s", large_is_good=True),
            *(Figure(name, f"{name} ms") for name in ("p50", "p99", "max")),
        ),
        lambda: _lacks("redis-server", "redis-benchmark", package="redis-server"),
    ),
    MeasuredProgram(
        "postgres",
        "postgres",
        "PostgreSQL with pgbench in the same container: simple updates, 4 clients, no fsync",
        (
            Figure("transactions", "transactions/s", unit="/s", large_is_good=True),
            *percentiles("transaction", 50, 99, 99.9, 100),
        ),
        lambda: _lacks("postgres", "initdb", "pgbench", package="postgresql"),
    ),
)
