"""Daemons killed at random instants on cgroup v2: with processes of their own, and over NRI.

python -m tests.e2e.guest.kills [ROUNDS [TESTS]]
"""

from __future__ import annotations

import os
import sys

from tests.e2e.guest.machine import prepare, run_tests

TESTS = ("tests/e2e/test_torture.py", "tests/torture/test_nri_kills.py")


def main(arguments: list[str]) -> int:
    """Return 0 if nothing was lost."""
    rounds, *tests = arguments or ["10"]
    os.environ["TORTURE_ROUNDS"] = rounds
    prepare()
    return run_tests("-s", "-m", "not long", *(tests or TESTS))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
