"""Runs in the guest: the daemon on cgroup v2 with many CPUs, SMT, four NUMA nodes and an L3 for each.

First the promise, measured; then the daemon's suites, as far as they cannot be tried outside. Runs on any host too:
`python tests/e2e/guest/daemon.py`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

MAIN = Path(__file__).parents[3]
sys.path.insert(0, str(MAIN))

from benchmarks import overlap  # noqa: E402 - the path comes first
from pinfold.node.groups import choose  # noqa: E402

SUITES = [
    "tests/e2e/test_daemon.py",
    "tests/e2e/test_numa.py",
    "tests/e2e/test_hotplug.py",
    "tests/contract/test_runtimes.py",
]
# Every instruction is emulated in the guest: there, only what depends on the kernel.
CHOSEN = (
    "cgroup-v2 or exclusive_cores or cannot_happen or later_keeps_off or mixed_pod or adopt_moves or their_limit or "
    "outlive or ended_while or let_onto or behind_its_back or moved_out or killed_at_any or nothing_is_left or numa or "
    "hotplug"
)


# What depends on how many CPUs there are.
CHOSEN_OF_MANY = "exclusive_cores or cannot_happen or outlive or numa or hotplug"
MANY = 16


def main() -> int:
    """Return 0 if there was no overlap and the suites pass."""
    in_guest = "SCRIPT" in os.environ
    kind = choose(name="pinfold-e2e").kind
    if in_guest and kind != "cgroup v2":
        print(f"expected cgroup v2, found {kind}")  # noqa: T201
        return 1
    if in_guest:
        Path("/sys/fs/cgroup/kept").mkdir()  # see groups.py
    os.chdir(MAIN)
    few = len(os.sched_getaffinity(0)) <= MANY
    if overlap.main(["--rounds", "5", "--shared", "10,100,500" if few else "10,100"]):
        return 1
    wanted = f"({CHOSEN if few else CHOSEN_OF_MANY}) and not cgroup-v1 and not affinity"
    chosen = ["--basetemp", "/run/pinfold-pytest", "-k", wanted]
    return int(pytest.main([*SUITES, "-q", "--color=no", "--durations=5", "-p", "no:cacheprovider", *chosen]))


if __name__ == "__main__":
    raise SystemExit(main())
