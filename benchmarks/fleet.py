"""Fleet: seconds and peak memory for 5,000 and for 100,000 nodes under both schedulers, and what more workers bring.

    python -m benchmarks fleet [--times N,N…] [--jobs N,N…] [--dask [--rounds N]] [--seed N] [--json]

The fleet is examples/fleet.yaml with examples/fleet-pods.yaml, every count *times* as large, planned by `pinfold fleet`
in a process of its own, with start and reading of the files. Peak memory is that of the largest process. `--dask` plans
the first fleet on Dask clusters of one worker and of two, in turns, each a process of one thread, and prints the
speed-up and how busy the machine was.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from benchmarks._targets import Target, verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = Path(__file__).parents[1] / "examples"
FILES = (EXAMPLES / "fleet.yaml", EXAMPLES / "fleet-pods.yaml")
TARGETS = {1: 60.0, 20: 120.0}
"""The seconds a plan may take, by how many times the example."""
MOST_MIB = 2048.0
_LOOK = 2.0
_QUIET = 0.1
_COUNTS = ("count", "replicas", "parallelism")


def all_cpus() -> int:
    """Return how many processes can work at the same time here."""
    return len(os.sched_getaffinity(0))


def multiplied(value: Any, times: int) -> Any:  # noqa: ANN401 - a document
    """Return a document with every count *times* as large."""
    if isinstance(value, dict):
        return {
            key: each * times if key in _COUNTS and isinstance(each, int) else multiplied(each, times)
            for key, each in value.items()
        }
    return [multiplied(each, times) for each in value] if isinstance(value, list) else value


@contextmanager
def files(times: int) -> Iterator[list[str]]:
    """Provide the files of the example, every count *times* as large."""
    with tempfile.TemporaryDirectory() as directory:
        written = [Path(directory, file.name) for file in FILES]
        for file, path in zip(FILES, written, strict=True):
            documents = [multiplied(each, times) for each in yaml.safe_load_all(file.read_text())]
            path.write_text(yaml.safe_dump_all(documents))
        yield list(map(str, written))


def measure(jobs: int, seed: int, times: int = 1, dask: str | None = None) -> dict[str, object]:
    """Return the figures of one plan."""
    where = ["--jobs", str(jobs)] if dask is None else ["--dask", dask]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with files(times) as names:
        command = [sys.executable, "-m", "pinfold", "fleet", *names, "-o", "json", *where, "--seed", str(seed)]
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, check=False)
        seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in {0, 1}:
        sys.exit(done.stderr.decode())
    found = json.loads(done.stdout)
    return {
        "name": f"fleet/nodes={found['nodes']}/{'jobs' if dask is None else 'dask'}={jobs}",
        "times": times,
        "jobs": jobs,
        "nodes": found["nodes"],
        "containers": found["containers"],
        "seconds": seconds,
        "cpu_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "largest_process_mib": after.ru_maxrss / 1024,
        "placed": {row["scheduler"]: row["placed"] for row in found["schedulers"]},
        "refused": {row["scheduler"]: row["refused"] for row in found["schedulers"]},
    }


def line(figure: dict[str, object]) -> str:
    """Return the figures of one plan as a line of text."""
    return (
        f"{figure['nodes']:,} nodes, {figure['containers']:,} containers, 2 schedulers, {figure['jobs']} processes: "
        f"{figure['seconds']:.1f} s, {figure['cpu_seconds']:.1f} s of CPU, "
        f"largest process {figure['largest_process_mib']:.0f} MiB"
    )


def targets(figure: dict[str, object]) -> list[Target]:
    """Return what the seconds and the memory of one plan are meant to be."""
    name, times, jobs = figure["name"], int(str(figure["times"])), int(str(figure["jobs"]))
    memory = float(str(figure["largest_process_mib"])) * (jobs + 1)
    least = [Target(f"{name}, MiB at most", memory, MOST_MIB)]
    if times in TARGETS and jobs >= all_cpus():
        least.append(Target(f"{name}, seconds", float(str(figure["seconds"])), TARGETS[times]))
    return least


def others() -> float:
    """Return the share of this machine's CPU time that is used now, before anything is measured: by other programs."""

    def times() -> tuple[int, int]:
        used = [int(value) for value in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
        return sum(used), used[3] + used[4]  # of the latter it was idle

    total, idle = times()
    time.sleep(_LOOK)
    total_now, idle_now = times()
    return 1 - (idle_now - idle) / (total_now - total)


def on_dask(seed: int, times: int, rounds: int) -> dict[int, list[float]]:
    """Return the seconds on Dask clusters of one worker and of two, in turns; both are started before."""
    cluster = import_module("distributed").LocalCluster
    seconds: dict[int, list[float]] = {1: [], 2: []}
    with ExitStack() as stack:
        options = {"threads_per_worker": 1, "processes": True, "dashboard_address": None}
        there = {workers: stack.enter_context(cluster(n_workers=workers, **options)) for workers in seconds}
        for workers in [*seconds] * (rounds + 1):
            figure = measure(workers, seed, times, there[workers].scheduler_address)
            seconds[workers].append(float(str(figure["seconds"])))
    return {workers: took[1:] for workers, took in seconds.items()}  # in the first round workers import pinfold


def dask_line(seconds: dict[int, list[float]], busy: float) -> str:
    """Return in words how much faster two workers are."""
    one, two = map(statistics.median, seconds.values())
    each = ", ".join(f"{alone / both:.2f}" for alone, both in zip(*seconds.values(), strict=True))
    said = f"Dask: {one:.1f} s on one worker, {two:.1f} s on two, {one / two:.2f} times as fast (in turns: {each})"
    told = f"{said}; {all_cpus()} CPUs here, of which other programs used {busy:.0%} before"
    return f"{told}: measure again on a quiet machine" if busy > _QUIET else told


def main(arguments: list[str]) -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks fleet", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--times", default=",".join(map(str, TARGETS)), metavar="N,N…")
    parser.add_argument("--jobs", default=str(all_cpus()), metavar="N,N…")
    parser.add_argument("--dask", action="store_true", help="compare Dask clusters of one worker and of two")
    parser.add_argument("--rounds", type=int, default=3, help="of both clusters")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print machine-readable figures")
    wanted = parser.parse_args(arguments)
    each = [(times, jobs) for times in map(int, wanted.times.split(",")) for jobs in map(int, wanted.jobs.split(","))]
    figures = []
    for times, jobs in each:
        figures.append(measure(jobs, wanted.seed, times))
        if not wanted.json:
            print(line(figures[-1]), flush=True)
    if wanted.dask:
        busy, seconds = others(), on_dask(wanted.seed, each[0][0], wanted.rounds)
        print(dask_line(seconds, busy), file=sys.stderr if wanted.json else sys.stdout)
    if wanted.json:
        print(json.dumps(figures, indent=1))
    return verdict(target for figure in figures for target in targets(figure))
