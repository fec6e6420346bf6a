"""A daemon to measure, in a directory and a cgroup subtree of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self
from urllib.request import urlopen

from pinfold.cli.asking.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable

WITHIN: Final = 120.0
_SCHEDULED: Final = 2
"""The kernel's number for the clock of the CPU time that a process was given."""
PAGE: Final = re.compile(r"page (http://(\S+):(\d+)/)")


class Daemon:
    """A daemon that was started with *arguments*; *program*: by other words than `python -m pinfold`."""

    def __init__(
        self,
        directory: Path,
        *arguments: str,
        program: tuple[str, ...] = ("-m", "pinfold"),
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        self.state = directory / "state"
        self.log = directory / "log"
        self.path = directory / "s.sock"
        command = [sys.executable, *program, "serve", "--state-dir", str(self.state), "--socket", str(self.path)]
        command += ["--listen", "127.0.0.1:0", "--end-workloads", "--group-name", f"pinfold-bench-{os.getpid()}"]
        command += ["--other-daemons", "warn"]
        self._command = [*command, *arguments]
        self.client = Client(self.path)
        self.start(meanwhile=meanwhile)

    def start(self, *more: str, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Start it, with *more* arguments; return when it is ready. *meanwhile* is called while it starts."""
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*self._command, *more], stdout=subprocess.PIPE, stderr=log, text=True, env=environment()
            )
        assert self.process.stdout is not None  # noqa: S101 - asked for above
        meanwhile()
        found = PAGE.search(self.process.stdout.readline())
        if found is None:
            sys.exit(self.log.read_text())
        self.page, self.host, self.port = found[1], found[2], int(found[3])

    def kill(self) -> None:
        """Kill it; what it has started goes on."""
        self.process.kill()
        self.process.wait(WITHIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def metrics(self) -> dict[str, float]:
        """Return its metrics that have no labels."""
        with urlopen(f"{self.page}metrics", timeout=WITHIN) as answer:  # noqa: S310 - an address of our daemon
            lines = answer.read().decode().splitlines()
        return {name: float(value) for name, value in (line.split() for line in lines if line.count(" ") == 1)}

    def rss(self) -> float:
        """Return its resident memory in MB."""
        return resident(self.process.pid)

    def loop_times(self) -> tuple[float, float]:
        """Return the seconds that the main thread, the event loop's, has been on a CPU, and ready but on none."""
        used, waited, _ = Path(f"/proc/{self.process.pid}/schedstat").read_text().split()
        return int(used) / 1e9, int(waited) / 1e9

    def cpu(self) -> float:
        """Return the seconds of CPU time of all its threads, also of those that have ended."""
        return time.clock_gettime(~self.process.pid << 3 | _SCHEDULED)

    def stop(self) -> None:
        """End the daemon and everything it has started."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(WITHIN)


def environment() -> dict[str, str]:
    """Return the environment of an installed program, whose modules are compiled."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def resident(pid: int) -> float:
    """Return the MB (10^6 bytes) that a process has in memory."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) * 1024 / 1e6
