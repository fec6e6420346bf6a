"""Boots a virtual machine with cgroup v2 and many CPUs, and runs a script of this folder in it, as root.

The guest sees this machine's files read-only under a layer of memory; nothing that it does stays.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e.containerd import provision

HERE = Path(__file__).parent
BOOT = HERE.parents[3] / "shared/reference/lab/guest/boot.sh"
QEMU = "qemu-system-x86_64"
_BOOTS = 3


class Guest(NamedTuple):
    """A script of this folder, and the machine that it runs on (see the lab's topologies.md)."""

    script: str
    topology: str
    suite: str = ""
    """The Debian suite whose kernel is booted; empty: this host's."""
    seconds: int = 600


GUESTS = [
    Guest("groups.py", "16"),
    Guest("groups.py", "32", suite="trixie"),
    Guest("daemon.py", "16", seconds=2400),
    Guest("daemon.py", "32", suite="trixie", seconds=1500),
    Guest("pods.py", "16", seconds=1500),
]


@pytest.mark.slow
@pytest.mark.parametrize("guest", GUESTS, ids=lambda guest: f"{guest.script}-{guest.topology}-{guest.suite or 'host'}")
def test_the_script_succeeds_in_the_guest(guest: Guest) -> None:
    if not BOOT.exists():
        pytest.skip(f"there is no {BOOT}")
    if guest.script == "pods.py":
        provision("trixie")  # the guest has no network
    lab = Path(os.environ.get("LAB") or Path.home() / ".cache/pinfold-lab")
    done = boot(lab, guest)
    for _ in range(_BOOTS - 1):
        if "Kernel panic" not in done.stdout:
            break
        done = boot(lab, guest)  # the emulator gets a patched instruction wrong now and then, mostly while it boots
    print(done.stdout)  # noqa: T201 - shown when it fails, or with -rP
    if done.returncode and shutil.which(QEMU) is None:
        pytest.skip(f"there is no {QEMU}, and it could not be installed")
    assert done.returncode == 0


def boot(lab: Path, guest: Guest) -> subprocess.CompletedProcess[str]:
    """Run the script in a guest to its end."""
    return subprocess.run(
        [BOOT, wrapper(lab, guest.script), guest.topology],
        env=os.environ | environment(lab, guest),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def environment(lab: Path, guest: Guest) -> dict[str, str]:
    """Return what boot.sh wants to know."""
    wanted = {"LAB": str(lab), "TIMEOUT": str(guest.seconds)}
    return wanted | ({"KERNEL_SUITE": guest.suite} if guest.suite else {})


def wrapper(lab: Path, script: str) -> Path:
    """Return a shell script that the guest can start, and that runs *script* with this interpreter."""
    lab.mkdir(parents=True, exist_ok=True)
    path = lab / f"{script}.sh"
    path.write_text(f"export PYTHONDONTWRITEBYTECODE=1\nexec {shlex.join([sys.executable, str(HERE / script)])}\n")
    return path
