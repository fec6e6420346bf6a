"""The contract of groups on cgroup v2, and how long one write of the shared pool takes there."""

from __future__ import annotations

import os
import signal
import statistics
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.core.reconcile import Limit
from pinfold.node.processgroups.groups import ProcessGroups, choose
from pinfold.node.starting.starter import Starter
from tests.contract.workload import started
from tests.e2e.guest.machine import CGROUPS, prepare, run_tests

if TYPE_CHECKING:
    from collections.abc import Callable

NAME: Final = "pinfold-e2e"
ROUNDS: Final = 50
SHARED: Final = 100
"""How many containers share while the pool is written."""
SUITES: Final = (
    "tests/contract/test_groups.py",
    "tests/contract/test_podgroups.py",
    "tests/contract/test_simulated_groups.py",
    "tests/contract/test_podapplier.py",
    "tests/contract/test_leaving.py",
    "tests/unit/node/processgroups/test_groups.py",
    "tests/unit/node/test_cgroupfiles.py",
)


def main() -> int:
    """Return the exit code of the suites."""
    prepare()
    everything = CPUSet.from_cpus(os.sched_getaffinity(0))
    groups = choose("cgroup-v2", name=NAME)
    groups.prepare(everything)
    whole, write = pool_write(groups, everything)
    print(f"{SHARED} shared containers: set_shared {whole:.0f} µs, of which the write {write:.0f} µs")  # noqa: T201
    groups.remove_empty()
    return run_tests(*SUITES)


def pool_write(groups: ProcessGroups, everything: CPUSet) -> tuple[float, float]:
    """Return the median times of a change of the pool and of its system call alone, in microseconds."""
    refs = [ContainerRef(PodUID(f"pod-{i}"), "app") for i in range(SHARED)]
    processes = []
    starter = Starter()
    for ref in refs:
        groups.make_shared(ref, Limit(100))
        processes.append(started(starter, ["sleep", "1000"], groups, ref))
    pools = [everything, everything - CPUSet.of(max(everything))] * (ROUNDS // 2)
    whole = [timed(partial(groups.set_shared, pool)) for pool in pools]
    file = os.open(CGROUPS / NAME / "shared/cpuset.cpus", os.O_WRONLY)
    alone = [timed(partial(os.write, file, str(pool).encode())) for pool in pools]
    os.close(file)
    for process in processes:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    for ref in refs:
        groups.remove(ref)
    return statistics.median(whole), statistics.median(alone)


def timed(action: Callable[[], object]) -> float:
    """Return how many microseconds an action takes."""
    start = time.perf_counter()
    action()
    return (time.perf_counter() - start) * 1e6


if __name__ == "__main__":
    raise SystemExit(main())
