"""The daemon on cgroup v2 with many CPUs, SMT, four NUMA nodes and an L3 for each.

    python -m tests.e2e.guest.daemon [--all]

Measures that no other thread runs on exclusive CPUs. Then runs the tests that are marked `guest`; with --all, every
test of their files.
"""

from __future__ import annotations

import sys
from typing import Final

from benchmarks import overlap
from tests.e2e.guest.machine import prepare, run_tests

SUITES: Final = (
    "tests/e2e/test_daemon.py",
    "tests/e2e/test_numa.py",
    "tests/e2e/test_hotplug.py",
    "tests/e2e/test_dynamic.py",
    "tests/contract/test_runtimes.py",
)

ALSO: Final = ("tests/e2e/test_drift.py", "tests/e2e/test_leaving.py")
"""With --all alone: they take minutes here."""


def main(arguments: list[str]) -> int:
    """Return 0 if there was no overlap and the tests pass."""
    everything = "--all" in arguments
    prepare()
    overlapped = overlap.main(["--rounds", "5", "--shared", "10,100,500" if everything else "100"])
    return overlapped or run_tests(*SUITES, *(ALSO if everything else ["-m", "guest"]))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
