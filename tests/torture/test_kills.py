"""A real daemon killed at each call by which it changes the disk or the kernel: the next one finds everything again."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.daemon import (
    ONLINE,
    RESERVED,
    Daemon,
    allowed,
    best_kind,
    container,
    needs_two_cpus,
    pod,
    process_of,
    wait_for,
)
from tests.e2e.nursery import fast_starts
from tests.e2e.test_torture import log_shown
from tests.torture.killing import MOST, killed_at

if TYPE_CHECKING:
    from collections.abc import Callable
    from subprocess import Popen

    Change = Callable[[Daemon, Popen[str]], None]

pytestmark = [needs_two_cpus, pytest.mark.slow, pytest.mark.long]


def adopt(daemon: Daemon, process: Popen[str]) -> None:
    daemon.client.post("/v1/adopt", {"name": "x", "milli": 1000, "pid": process.pid})


def adopt_to_share(daemon: Daemon, process: Popen[str]) -> None:
    daemon.client.post("/v1/adopt", {"name": "x", "milli": 0, "shared": True, "pid": process.pid})


def apply(daemon: Daemon, _process: Popen[str]) -> None:
    daemon.apply(pod("x", container(cpus=1)))


def apply_to_share(daemon: Daemon, _process: Popen[str]) -> None:
    daemon.apply(pod("x", container(cpus=0)))


def apply_and_delete(daemon: Daemon, _process: Popen[str]) -> None:
    daemon.apply(pod("x", container(cpus=1)))
    daemon.delete("x")


@pytest.mark.parametrize("kind", sorted({best_kind(), "affinity"}))
@pytest.mark.parametrize("change", [adopt, adopt_to_share, apply, apply_to_share, apply_and_delete])
def test_a_daemon_killed_at_any_call_of_a_change_leaves_all_or_nothing_of_it(kind: str, change: Change) -> None:
    see_all_or_nothing(kind, change, starting=False)


@pytest.mark.parametrize("kind", sorted({best_kind(), "affinity"}))
@pytest.mark.parametrize("change", [apply, apply_to_share])
def test_a_daemon_killed_at_any_call_of_a_process_that_it_starts_runs_it_once_or_never(
    kind: str, change: Change
) -> None:
    see_all_or_nothing(kind, change, starting=True)


def see_all_or_nothing(kind: str, change: Change, *, starting: bool) -> None:
    """Kill daemons at one call after the other of a change, and check what the next one finds."""
    with Daemon(kind=kind) as daemon, fast_starts(daemon), log_shown(daemon), process_of("sleep", "1000") as process:
        for number in range(1, MOST):
            killed = killed_at(daemon, number, lambda: change(daemon, process), starting=starting)
            daemon.start()
            wait_for(lambda: all(row["state"] == "running" for row in daemon.containers()), "all run")
            daemon.check()
            known = [row["pid"] for row in daemon.containers()]
            assert known or allowed(process.pid) == {str(ONLINE)}
            assert sorted(known) == sorted({*daemon.place.processes(), *known})
            if killed.acknowledged:
                assert bool(known) == (change is not apply_and_delete)
            if known:
                daemon.delete("x")
            daemon.idle()
            daemon.kill()
            if killed.survived:
                whose = "of the process that is started" if starting else "of the daemon"
                sys.stdout.write(f"\n{kind}, {change.__name__}: killed at each of {number - 1} calls {whose}\n")
                return
        pytest.fail(f"the change has made more than {MOST} calls")


@pytest.mark.parametrize("kind", sorted({best_kind(), "affinity"}))
def test_a_killed_daemon_that_had_fewer_cpus_leaves_its_containers_all_of_theirs(kind: str) -> None:
    """The daemon itself is moved by the shield of another one, by systemd's CPUAffinity, or by taskset."""
    with Daemon(kind=kind) as daemon:
        daemon.start()
        for thread in Path(f"/proc/{daemon.pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), RESERVED)
        daemon.apply(pod("worker"))
        pid = daemon.running("worker")
        assert allowed(pid) == {str(ONLINE)}
        daemon.apply(pod("owner", container(cpus=len(ONLINE - RESERVED))))
        daemon.running("owner")
        assert allowed(pid) == {str(RESERVED)}
        daemon.restart()
        daemon.delete("owner")
        wait_for(lambda: allowed(pid) == {str(ONLINE)}, "the worker has the whole pool again")
        daemon.check()
        daemon.delete("worker")
        daemon.idle()
