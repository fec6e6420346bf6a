"""Boots a virtual machine with cgroup v2 and many CPUs, and runs a script of this folder in it, as root.

The guest sees this machine's files read-only under a layer of memory; nothing that it does stays.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.lab import lab
from tests.needs import needs, needs_lab

if TYPE_CHECKING:
    import subprocess

HERE = Path(__file__).parent
_BOOTS = 3


class Guest(NamedTuple):
    """A script of this folder, and the machine that it runs on (see tests/lab/guest/boot.sh)."""

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
@needs_lab
@needs("qemu (tools/packages installs it)", met=shutil.which("qemu-system-x86_64") is not None)
@pytest.mark.parametrize("guest", GUESTS, ids=lambda guest: f"{guest.script}-{guest.topology}-{guest.suite or 'host'}")
def test_the_script_succeeds_in_the_guest(guest: Guest, tmp_path: Path) -> None:
    lab.provision("trixie")  # the guest has no network
    for _ in range(_BOOTS):
        done = boot(guest, tmp_path)
        if "Kernel panic" not in done.stdout:
            break  # the emulator sometimes gets an instruction wrong that the kernel patches, mostly while booting
    print(done.stdout)  # noqa: T201 - pytest shows it when the test fails, or with -rP
    assert done.returncode == 0


def boot(guest: Guest, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run the script in a guest to its end."""
    wrapper = directory / "guest.sh"
    command = shlex.join([sys.executable, str(HERE / guest.script)])
    wrapper.write_text(f"export PYTHONDONTWRITEBYTECODE=1\nexec {command}\n")
    environment = {"TIMEOUT": str(guest.seconds)} | ({"KERNEL_SUITE": guest.suite} if guest.suite else {})
    return lab.call("guest/boot.sh", wrapper, guest.topology, seconds=guest.seconds + 600, **environment)
