"""Runs in the guest: the contract of groups on cgroup v2, and what one write of the shared pool takes there.

Runs on any host too: `python tests/e2e/guest_groups.py`.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

MAIN = Path(__file__).parents[2]
sys.path.insert(0, str(MAIN))

from pinfold.core.cpuset import CPUSet  # noqa: E402 - the path comes first
from pinfold.core.pods import ContainerRef, PodUID  # noqa: E402
from pinfold.core.reconcile import Limit  # noqa: E402
from pinfold.node.groups import Groups, choose  # noqa: E402

NAME = "pinfold-e2e"
ROUNDS = 50
SUITES = [
    "tests/contract/test_groups.py",
    "tests/contract/test_podgroups.py",
    "tests/contract/test_simulated_groups.py",
    "tests/contract/test_podapplier.py",
    "tests/unit/node/test_groups.py",
    "tests/unit/node/test_cgroupfiles.py",
]


def main() -> int:
    """Return the exit code of the suites."""
    everything = CPUSet.from_cpus(os.sched_getaffinity(0))
    groups = choose(name=NAME)
    print(f"{groups.kind} on {len(everything)} CPUs; weaker: {'; '.join(groups.weaker)}")  # noqa: T201
    in_guest = "SCRIPT" in os.environ
    if in_guest and groups.kind != "cgroup v2":
        return 1
    if in_guest:
        # The first cpuset and the last patch the running kernel, which the emulator gets wrong now and then (an int3
        # oops after some hundred times). With one that stays, it happens once.
        Path("/sys/fs/cgroup/kept").mkdir()
    groups.prepare(everything)
    for count in (0, 10, 100):
        whole, write = pool_write(groups, everything, count)
        print(f"{count} shared containers: set_shared {whole:.0f} µs, of which the write {write:.0f} µs")  # noqa: T201
    groups.remove_all()
    os.chdir(MAIN)
    # Every instruction is emulated in the guest: there, only what cannot be tried outside.
    base = (
        ["--basetemp", "/run/pinfold-pytest", "-k", "not cgroup-v1 and not affinity and not simulated-v"]
        if in_guest
        else []
    )
    return int(pytest.main([*SUITES, "-q", "--color=no", "--durations=5", "-p", "no:cacheprovider", *base]))


def pool_write(groups: Groups, everything: CPUSet, count: int) -> tuple[float, float]:
    """Return the median times of a change of the pool and of its system call alone, in microseconds."""
    refs = [ContainerRef(PodUID(f"pod-{i}"), "app") for i in range(count)]
    processes = []
    for ref in refs:
        groups.make(ref, None, Limit(100))
        processes.append(subprocess.Popen(["sleep", "1000"], preexec_fn=groups.joiner(ref)))  # noqa: PLW1509
    pools = [everything, everything - CPUSet.of(max(everything))] * (ROUNDS // 2)
    whole = [timed(partial(groups.set_shared, pool)) for pool in pools]
    file = os.open(pool_file(groups), os.O_WRONLY)
    alone = [timed(partial(os.write, file, str(pool).encode())) for pool in pools]
    os.close(file)
    for process in processes:
        process.kill()
        process.wait()
    for ref in refs:
        groups.remove(ref)
    return statistics.median(whole), statistics.median(alone)


def pool_file(groups: Groups) -> Path:
    """Return the file of the pool; of the two hierarchies of v1, cpuset has it."""
    return Path("/sys/fs/cgroup", "cpuset" if groups.kind == "cgroup v1" else "", NAME, "shared/cpuset.cpus")


def timed(action: Callable[[], object]) -> float:
    """Return how many microseconds it takes."""
    start = time.perf_counter()
    action()
    return (time.perf_counter() - start) * 1e6


if __name__ == "__main__":
    raise SystemExit(main())
