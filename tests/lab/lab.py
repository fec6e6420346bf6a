"""Calls the lab's scripts, which unpack Debian packages, run containerd and boot guests."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from tests.needs import IN_GUEST

SCRIPTS: Final = Path(__file__).parent
_BUILD: Final = 5400.0
_PATIENCE: Final = 600.0 if not IN_GUEST else 3000.0


def call(script: str, *arguments: str | Path, seconds: float, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script of the lab to its end; what it prints, also as errors, is in `stdout`."""
    return subprocess.run(
        [SCRIPTS / script, *arguments],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )


def run(script: str, *arguments: str | Path, **environment: str) -> None:
    """Run a script of the lab that must succeed."""
    done = call(script, *arguments, seconds=_PATIENCE, **environment)
    assert done.returncode == 0, done.stdout


def provision(suite: str) -> None:
    """Unpack the packages of a Debian suite, unless they are there."""
    run("provision.sh", suite)


def build_kubernetes() -> None:
    """Build the programs of a Kubernetes cluster, unless they are there: that takes many minutes."""
    done = call("kubernetes.sh", seconds=_BUILD)
    assert done.returncode == 0, done.stdout
