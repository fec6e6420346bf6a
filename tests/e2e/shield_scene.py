"""The shield on a real host: real processes, IRQs and workqueues, and in a guest kernel threads too.

It moves every process that it sees, so `test_shield.py` runs this file in a PID namespace of its own; in a guest it
runs as it is.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.shield import PlaceKind
from pinfold.node.shield.host import Host
from tests.e2e.daemon import ONLINE, RESERVED, SPARE, Daemon, pod, wait_for
from tests.needs import IN_GUEST

if TYPE_CHECKING:
    from collections.abc import Iterator

REST, ALL = str(RESERVED), str(ONLINE)


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with Daemon() as daemon:
        yield daemon
        daemon.kill()
        said = daemon.verb("shield", "off", "--state-dir", str(daemon.state_dir))  # a failed test leaves nothing moved
        assert said.returncode == 0, said.stderr


@contextmanager
def bystander() -> Iterator[int]:
    """Run a process that is no container's, and return it."""
    process = subprocess.Popen(["sleep", "1000"])
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def where() -> dict[str, set[str]]:
    """Return the CPUs of everything on the host that can be moved, by kind; what refuses to move is left out."""
    found: dict[str, set[str]] = {}
    for place, cpus in Host(Path("/")).read().items():
        if place.kind is not PlaceKind.IRQ:
            found.setdefault(place.kind, set()).add(str(cpus))
    return found


def of(pid: int) -> str:
    return str(CPUSet.from_cpus(os.sched_getaffinity(pid)))


def own_all(daemon: Daemon, name: str = "owner") -> subprocess.Popen[str]:
    """Give all CPUs that can be exclusive to one process."""
    return daemon.run(name, "sleep", "1000", options=["--cpus", str(SPARE)])


def test_the_host_leaves_an_owners_cpus_and_comes_back(daemon: Daemon) -> None:
    before = where()
    daemon.start("--shield", "true")
    with bystander() as pid:
        run = own_all(daemon)
        assert of(pid) == REST
        assert of(daemon.running("owner")) == str(ONLINE - RESERVED)
        assert where()[PlaceKind.WORKQUEUES] == {REST}
        assert where()[PlaceKind.NEW_IRQS] == {REST}
        assert Path("/proc/irq/default_smp_affinity").read_text().strip("0\n,") in {"1", ""}
        if IN_GUEST:
            assert where()[PlaceKind.KERNEL_THREAD] == {REST}
        with bystander() as child:  # inherits what its parent was given
            assert of(child) == REST
            run.terminate()
            wait_for(lambda: of(pid) == ALL, "the bystander has all CPUs again")
            wait_for(lambda: of(child) == ALL, "its sibling too")
        gone = daemon.state_dir / "shield.json"  # the last step: after every place is back
        wait_for(lambda: not gone.exists(), "the shield's record is gone")
        assert where()[PlaceKind.WORKQUEUES] == before[PlaceKind.WORKQUEUES]


@pytest.mark.parametrize("how", ["off", "start", "leave", "exit"])
def test_everything_comes_back_after(daemon: Daemon, how: str) -> None:
    before = where()
    daemon.start("--shield", "true")
    with bystander() as pid:
        own_all(daemon)
        assert of(pid) == REST
        if how == "exit":
            assert daemon.kill(signal.SIGTERM) == 0
        else:
            daemon.kill()
            assert of(pid) == REST
        if how == "off":
            said = daemon.verb("shield", "off", "--state-dir", str(daemon.state_dir))
            assert said.stdout.startswith("shield off: "), said
        elif how == "leave":
            assert daemon.verb("leave", "--state-dir", str(daemon.state_dir)).returncode == 0
        elif how == "start":
            daemon.start()  # without the shield
        assert of(pid) == ALL
        assert where()[PlaceKind.WORKQUEUES] == before[PlaceKind.WORKQUEUES]
        assert where()[PlaceKind.NEW_IRQS] == before[PlaceKind.NEW_IRQS]


def test_a_start_with_the_shield_goes_on_with_it(daemon: Daemon) -> None:
    daemon.start("--shield", "true")
    with bystander() as pid:
        own_all(daemon)
        daemon.kill()
        daemon.start("--shield", "true")
        assert of(pid) == REST
        daemon.delete("owner")
        wait_for(lambda: of(pid) == ALL, "the bystander has all CPUs again")


@pytest.mark.parametrize("killed", [False, True], ids=["", "with a kill"])
def test_shared_containers_of_that_time_have_the_whole_pool_afterwards(daemon: Daemon, *, killed: bool) -> None:
    daemon.start("--shield", "true")
    with bystander() as adopted:
        own_all(daemon)
        daemon.apply(pod("started"))
        daemon.run("run", "sleep", "1000", options=["--qos", "besteffort"])  # by a shell that was moved
        assert daemon.say("adopt", str(adopted), "--name", "adopted", "--qos", "besteffort").returncode == 0
        pids = [daemon.running(name) for name in ("started", "run", "adopted")]
        assert [of(pid) for pid in pids] == [REST] * 3
        if killed:
            owner = daemon.running("owner")
            daemon.kill()
            os.kill(owner, signal.SIGKILL)
            daemon.start()
        else:
            daemon.delete("owner")
        wait_for(lambda: [of(pid) for pid in pids] == [ALL] * 3, "all have the whole pool", within=5)
        os.sched_setaffinity(pids[0], RESERVED)
        daemon.restart("--shield", "true")
        assert of(pids[0]) == REST, "what it has chosen itself is left alone"


def test_the_score_shows_who_else_ran(daemon: Daemon) -> None:
    daemon.start("--shield", "false")
    own_all(daemon)
    time.sleep(1.1)  # processes arrive for a second before the first reading

    def foreign() -> float:
        [found] = [row for row in daemon.measured() if row["pod"] == "owner"]
        return float(found["exclusivity"]["foreign"])

    start = foreign()
    own = (ONLINE - RESERVED).lowest
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as burning:
        os.sched_setaffinity(burning.pid, {own})
        wait_for(lambda: foreign() > start + 0.3, "what it burns is counted as foreign")
        assert daemon.say("shield", "on").returncode == 0
        assert str(RESERVED) == of(burning.pid)
        burning.kill()
    shown = daemon.say("get", "containers", "-o", "wide").stdout
    assert "FOREIGN" in shown
    assert "THROTTLED" in shown


def test_the_verb_shows_what_would_move_and_switches(daemon: Daemon) -> None:
    daemon.start()
    with bystander() as pid:
        own_all(daemon)
        assert of(pid) == ALL
        shown = daemon.say("shield", "on", "--dry-run").stdout
        assert f"process {pid} (sleep)" in shown
        assert of(pid) == ALL
        assert daemon.say("shield", "on").stdout.startswith(f"shield on: the host is kept off CPUs {ONLINE - RESERVED}")
        assert of(pid) == REST
        assert daemon.say("shield", "off").stdout.startswith("shield off: the host uses all CPUs")
        assert of(pid) == ALL
