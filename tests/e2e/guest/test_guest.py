"""Boots a virtual machine with cgroup v2 and many CPUs (tests/lab/guest), and runs a module of this folder in it.

The module runs as root and sees this machine's files read-only, with a layer in memory on top: nothing it writes stays.
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

from tests.lab import lab
from tests.needs import needs, needs_lab

MAIN = Path(__file__).parents[3]
BOOTS = 3
SETTING_UP = 600
"""Seconds that fetching the kernel may take."""


class Guest(NamedTuple):
    """A module of this folder with its options, and the machine on which it runs."""

    command: str
    machine: str
    """As in tests/lab/guest/boot.sh."""
    kernel: str = ""
    """The Debian suite whose kernel is booted; empty: this host's."""
    seconds: int = 900
    init: str = "shell"
    """What is process 1."""

    def __str__(self) -> str:
        return f"{self.command} on {self.machine} CPUs{self.kernel and f' with the kernel of {self.kernel}'}"


GUESTS = [
    Guest("groups", "16"),
    Guest("daemon", "32", kernel="trixie"),
    Guest("pods", "16"),
    Guest("dynamic", "16"),
    Guest("shield", "16"),
    Guest("partition", "16", kernel="trixie"),
    Guest("systemd", "16", seconds=600, init="systemd"),
    Guest("kills", "4"),
]
LONG = [
    Guest("groups", "32", kernel="trixie"),
    Guest("daemon --all", "16", seconds=3600),
    Guest("daemon --all", "32", kernel="trixie", seconds=3600),
    Guest("pods --figures", "16", seconds=1800),
    Guest("partition", "16"),
    Guest("walk", "16", init="systemd"),
    Guest("kills 1000", "4", seconds=6 * 3600),
    Guest("calls", "4", seconds=3600),
]

pytestmark = [
    pytest.mark.slow,
    needs_lab,
    needs("qemu (tools/packages installs it)", met=shutil.which("qemu-system-x86_64") is not None),
]


@pytest.mark.parametrize("guest", [*GUESTS, *(pytest.param(guest, marks=pytest.mark.long) for guest in LONG)], ids=str)
def test_the_module_succeeds_in_the_guest(guest: Guest, tmp_path: Path) -> None:
    for suite in ("trixie", "sid"):
        lab.provision(suite)  # the guest has no network
    package = unpacked_package(tmp_path) if guest.command == "walk" else tmp_path
    for _ in range(BOOTS):
        done = boot(guest, tmp_path, package)
        if "Kernel panic" not in done.stdout:
            break  # the emulator sometimes gets an instruction wrong that the kernel patches, mostly while booting
    print(done.stdout)  # noqa: T201 - pytest shows it when the test fails, or with -rP
    assert done.returncode == 0


def unpacked_package(directory: Path) -> Path:
    """Build the Debian package, and return where it is unpacked and compiled: that takes minutes in a guest."""
    subprocess.run([MAIN / "deploy/debian/build", directory], check=True, env={**os.environ, "PYTHON": sys.executable})
    (package,) = directory.glob("pinfold_*.deb")
    root = directory / "root"
    subprocess.run(["dpkg-deb", "--extract", package, root], check=True)
    subprocess.run(["/usr/bin/python3", "-m", "compileall", "-q", root / "usr/lib/pinfold"], check=True)
    return root


def boot(guest: Guest, directory: Path, package: Path) -> subprocess.CompletedProcess[str]:
    """Run the module in a guest to its end."""
    wrapper = directory / "guest.sh"
    wrapper.write_text(
        f"export PINFOLD_REQUIRE=all PYTHONPATH={shlex.quote(str(MAIN / 'src'))} PINFOLD_PACKAGE={package}\n"
        f"cd {shlex.quote(str(MAIN))}\n"
        f"exec {shlex.quote(sys.executable)} -m tests.e2e.guest.{guest.command}\n"
    )
    environment = {"TIMEOUT": str(guest.seconds), "INIT": guest.init} | (
        {"KERNEL_SUITE": guest.kernel} if guest.kernel else {}
    )
    return lab.call("guest/boot.sh", wrapper, guest.machine, seconds=guest.seconds + SETTING_UP, **environment)
