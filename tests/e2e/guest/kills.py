"""Daemons killed at random instants on cgroup v2 with many CPUs: with processes of their own, and over NRI.

python -m tests.e2e.guest.kills [ROUNDS]
"""

from __future__ import annotations

import os
import sys

from tests.e2e.guest.machine import prepare, run_tests


def main(arguments: list[str]) -> int:
    """Return 0 if nothing was lost; every instruction is emulated, so there are few kills unless more are asked for."""
    os.environ["TORTURE_ROUNDS"] = arguments[0] if arguments else "1"
    prepare()
    return run_tests("-s", "-m", "not long", "tests/e2e/test_torture.py", "tests/torture/test_nri_kills.py")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
