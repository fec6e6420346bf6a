"""The shield on this host, seen from a PID namespace: it moves its own processes, and the machine's IRQs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.daemon import needs_cgroups, needs_two_cpus
from tests.needs import needs, needs_root

SCENE = Path(__file__).with_name("shield_scene.py")


@pytest.mark.slow
@needs_root
@needs_cgroups
@needs_two_cpus
@needs("unshare", met=shutil.which("unshare") is not None)
def test_the_shield_moves_the_rest_of_a_host_and_undoes_it() -> None:
    apart = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(SCENE)]
    done = subprocess.run([*apart, *tests], env=os.environ, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
