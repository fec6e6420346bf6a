"""The shield on this host, seen from a PID namespace: it moves its own processes, and the machine's IRQs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.daemon import needs_cgroups, needs_two_cpus
from tests.lab import lab
from tests.needs import needs, needs_lab, needs_root

HOST, RUNTIME = (Path(__file__).with_name(f"{name}_scene.py") for name in ("shield", "shield_runtime"))


pytestmark = [
    pytest.mark.slow,
    needs_root,
    needs_cgroups,
    needs_two_cpus,
    needs("unshare", met=shutil.which("unshare") is not None),
]


def play(scene: Path, seconds: int) -> None:
    """Run the tests of a file in a PID namespace of their own."""
    apart = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(scene)]
    done = subprocess.run(
        [*apart, *tests], env=os.environ, capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_the_shield_moves_the_rest_of_a_host_and_undoes_it() -> None:
    play(HOST, 180)


@needs_lab
def test_a_container_runtime_that_the_shield_moves_starts_containers_on_the_right_cpus() -> None:
    for suite in ("trixie", "sid"):
        lab.provision(suite)
    play(RUNTIME, 600)
