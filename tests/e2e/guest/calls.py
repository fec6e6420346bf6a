"""Daemons killed at each of their calls on cgroup v2: with processes of their own, and over NRI."""

from __future__ import annotations

import sys

from tests.e2e.guest.machine import prepare, run_tests

TESTS = ("tests/torture/test_kills.py", "tests/torture/test_nri_kills.py")


def main(tests: list[str]) -> int:
    """Return 0 if nothing was lost."""
    prepare()
    return run_tests("-s", "-m", "long", *(tests or TESTS))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
