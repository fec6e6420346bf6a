"""The guest, as the scripts of this folder find it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import pytest

CGROUPS: Final = Path("/sys/fs/cgroup")


def prepare() -> None:
    """Check that cgroup v2 is here, and make a cpuset that stays."""
    if not (CGROUPS / "cgroup.controllers").exists():
        sys.exit("expected cgroup v2")
    # The first cpuset and the last patch the running kernel, which the emulator sometimes gets wrong (an int3 oops
    # after some hundred times). With one that stays, it happens once.
    (CGROUPS / "kept").mkdir()


def run_tests(*arguments: str) -> int:
    """Run pytest with *arguments* and return its exit code; what cgroup v2 has no part in is left out."""
    # The plug-ins alone take two seconds to import on a host, and twenty times as long here.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    chosen = ["-k", "not cgroup-v1 and not affinity and not simulated-v", "--basetemp", "/run/pinfold-pytest"]
    shown = ["-q", "-rs", "--color=no", "--durations=10", "-p", "no:cacheprovider"]
    return int(pytest.main([*shown, *chosen, *arguments]))
