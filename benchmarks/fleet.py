"""Fleet: seconds and peak memory for 5,000 nodes and more than 200,000 containers under both schedulers.

    python -m benchmarks fleet [--jobs N,N…] [--seed N] [--json]

The fleet is examples/fleet.yaml with examples/fleet-pods.yaml, planned by `pinfold fleet` in a process of its own, with
start and reading of the files. Peak memory is that of the process and of the largest of its workers.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from benchmarks._targets import Target, verdict

EXAMPLES = Path(__file__).parents[1] / "examples"
FILES = (str(EXAMPLES / "fleet.yaml"), str(EXAMPLES / "fleet-pods.yaml"))
TARGET = 60.0


def all_cpus() -> int:
    """Return how many processes can work at the same time here."""
    return len(os.sched_getaffinity(0))


def measure(jobs: int, seed: int) -> dict[str, object]:
    """Return the figures of one plan."""
    command = [sys.executable, "-m", "pinfold", "fleet", *FILES, "-o", "json"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run([*command, "--jobs", str(jobs), "--seed", str(seed)], capture_output=True, check=False)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in {0, 1}:
        sys.exit(done.stderr.decode())
    found = json.loads(done.stdout)
    return {
        "name": f"fleet/nodes={found['nodes']}/jobs={jobs}",
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


def target(figure: dict[str, object]) -> Target:
    """Return what the seconds of one plan are meant to be."""
    return Target(f"{figure['name']}, seconds", float(str(figure["seconds"])), TARGET)


def main(arguments: list[str]) -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks fleet", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", default=str(all_cpus()), metavar="N,N…")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print machine-readable figures")
    wanted = parser.parse_args(arguments)
    figures = []
    for jobs in map(int, wanted.jobs.split(",")):
        figure = measure(jobs, wanted.seed)
        figures.append(figure)
        if not wanted.json:
            print(line(figure), flush=True)
    if wanted.json:
        print(json.dumps(figures, indent=1))
    return verdict(map(target, figures))
