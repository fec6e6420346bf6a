"""Scheduler partitions on cgroup v2 in a machine of its own.

python -m tests.e2e.guest.partition
"""

from __future__ import annotations

from tests.e2e.guest.machine import prepare, run_tests

if __name__ == "__main__":
    prepare()
    raise SystemExit(run_tests("tests/e2e/partition_scene.py"))
