"""A daemon on a machine with one fault after the other: it serves what it can, loses nothing, and recovers by itself.

While the fault lasts, pods come and go. What was answered then holds after it, also after a kill.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import pytest

from pinfold.errors import PinfoldError
from tests.e2e.daemon import ONLINE, Daemon, allowed, container, marked, needs_two_cpus, pod, wait_for
from tests.e2e.test_durable import ask
from tests.needs import needs_root
from tests.torture import faults
from tests.unit.node.test_statefile import tmpfs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    Fault = Callable[[Daemon], AbstractContextManager[None]]

pytestmark = [pytest.mark.slow, needs_two_cpus, needs_root]

SECONDS: Final = float(os.environ.get("TORTURE_FAULT", "1"))
"""How long a fault lasts at least."""
HEALTHY: Final = 0.1
AT_LAST: Final = 10.0
"""Seconds that one answer may take on a machine that is busy with other things. A loop that waits raises the median."""
RECOVERY: Final = 30.0


class Row(NamedTuple):
    """A fault, and what may differ with it."""

    fault: Fault
    saves: bool = True
    """Whether changes are taken: else each is refused, and nothing of it stays."""
    kind: str | None = None
    """How processes are kept on their CPUs; the best way if it is None."""


TABLE: Final = {
    "full disk": Row(faults.full),
    "no inodes": Row(faults.no_inodes),
    "read-only disk": Row(faults.read_only, saves=False),
    "input/output errors": Row(faults.input_output_errors, saves=False),
    "a second for each fsync": Row(faults.slow_fsync),
    "clock a day ahead": Row(faults.clock_ahead),
    "clock a day back": Row(faults.clock_back),
    "no file left": Row(faults.no_files),
    "no thread left": Row(faults.no_threads),
    "no thread left, affinity": Row(faults.no_threads, kind="affinity"),
    "frozen container": Row(faults.frozen_container),
    "daemon stopped for 1 s": Row(faults.stopped),
    "log that is not read": Row(faults.unread_log),
}


class Health(threading.Thread):
    """Asks for the health again and again, over connections of its own."""

    def __init__(self, daemon: Daemon) -> None:
        super().__init__()
        self._daemon = daemon
        self._over = threading.Event()
        self.times: list[float] = []
        self.statuses: set[int] = set()

    def run(self) -> None:
        while not self._over.wait(0.02):
            start = time.monotonic()
            self.statuses.add(ask(self._daemon, "healthz")[0])
            self.times.append(time.monotonic() - start)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    @property
    def middle(self) -> float:
        """The median of the seconds that an answer took."""
        return median(self.times)

    def __str__(self) -> str:
        soon = sum(took < HEALTHY for took in self.times) / len(self.times)
        middle, worst = (f"{1000 * seconds:.0f} ms" for seconds in (self.middle, max(self.times)))
        return f"health {middle} (median), {worst} (worst), {soon:.0%} within 100 ms"


@pytest.fixture
def daemon(name: str) -> Iterator[Daemon]:
    with Daemon("--log-size", "1", "--journal-size", "1", kind=TABLE[name].kind) as daemon:
        daemon.environment["FAULT"] = str(daemon.place.directory / "fault")
        daemon.command = [sys.executable, "-c", faults.PROGRAM]
        with tmpfs(daemon.state_dir, size="8m,nr_inodes=200") as directory:
            directory.chmod(0o700)
            try:
                yield daemon.start()
            finally:
                end_all(daemon, directory)


def end_all(daemon: Daemon, directory: Path) -> None:
    """Kill the daemon and all that it has started; return when the file system at *directory* can be unmounted."""
    daemon.kill()
    for pid in marked(daemon.place.mark):
        os.kill(pid, 9)
    wait_for(lambda: not marked(daemon.place.mark), "every process is gone")
    wait_for(lambda: not users_of(directory), "no process has a file there")


def users_of(directory: Path) -> list[Path]:
    """Return the open files below a directory, of all processes: one that was killed has them for a moment longer."""
    found = []
    for link in (*Path("/proc").glob("[0-9]*/fd/*"), *Path("/proc").glob("[0-9]*/cwd")):
        with suppress(OSError):
            found += [link] * link.readlink().is_relative_to(directory)
    return found


class Changes:
    """Pods that come and go, and what was answered."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self.answered: dict[str, bool] = {}
        """Whether a pod is there, for those of which the last request was answered."""
        self.refusals: list[str] = []
        self.done = 0

    def come(self, name: str, cpus: int = 0) -> None:
        """Apply a pod."""
        self._ask(name, lambda: self._daemon.apply(pod(name, container(cpus=cpus))), there=True)

    def go(self, name: str) -> None:
        """Delete a pod."""
        self._ask(name, lambda: self._daemon.delete(name), there=False)

    def _ask(self, name: str, change: Callable[[], object], *, there: bool) -> None:
        self.answered.pop(name, None)
        try:
            said = change()
        except PinfoldError as error:
            self.refusals.append(str(error))
            return
        if said and "refused" in said[0]:  # type: ignore[index]  # rows of an apply
            self.refusals.append(str(said))
            return
        self.answered[name] = there
        self.done += 1

    def hold(self) -> bool:
        """Return whether all that was answered is so."""
        there = {row["pod"] for row in self._daemon.containers()}
        return all((name in there) == is_there for name, is_there in self.answered.items())


def churn(daemon: Daemon, changes: Changes) -> None:
    """Let pods come and go while a fault lasts; what needs no change is answered all the time."""
    end, number = time.monotonic() + SECONDS, 0
    changes.go("old")
    while number < 2 or time.monotonic() < end:
        name = f"p{number % 2}"
        changes.come(name)
        assert daemon.find("owner") is not None
        changes.go(name)
        number += 1
    changes.come("new")


@pytest.mark.parametrize("name", TABLE)
def test_a_fault_of_the_machine_loses_nothing_and_passes(daemon: Daemon, name: str) -> None:
    row, changes = TABLE[name], Changes(daemon)
    changes.come("owner", cpus=1)
    changes.come("old")
    owner = daemon.running("owner")
    own = allowed(owner)
    daemon.running("old")
    with row.fault(daemon), Health(daemon) as health:
        churn(daemon, changes)
        assert allowed(owner) == own
        assert ask(daemon, "metrics")[0] == 200
        answered = changes.done - 2
        assert row.saves == bool(answered), changes.refusals
    begin = time.monotonic()
    wait_for(lambda: ask(daemon, "readyz")[0] == 200, "it is ready again", RECOVERY)
    recovered = time.monotonic() - begin
    see_that_it_works(daemon, changes, owner)
    figures = f"{answered} changes answered, {len(changes.refusals)} refused; ready again after {recovered:.2f} s"
    sys.stdout.write(f"\n{name}: {health}; {figures}\n")
    assert health.statuses == {200}
    assert health.middle < HEALTHY
    assert max(health.times) < AT_LAST


def see_that_it_works(daemon: Daemon, changes: Changes, owner: int) -> None:
    """Check that all is well: what was answered holds, also after a kill, and changes are taken again."""
    wait_for(changes.hold, "all that was answered is so")
    changes.come("after")
    assert changes.answered["after"]
    daemon.command = [sys.executable, "-m", "pinfold"]
    daemon.restart()
    assert changes.hold()
    assert daemon.running("owner") == owner
    wait_for(lambda: all(row["state"] == "running" for row in daemon.containers()), "all run")
    daemon.check()
    for one in {row["pod"] for row in daemon.containers()}:
        daemon.delete(one)
    daemon.idle()
    assert daemon.pools()["shared"] == ONLINE
