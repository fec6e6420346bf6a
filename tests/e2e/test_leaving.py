"""Leaving a plain host: with a daemon, after one was killed, and at its end."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

import pytest

from tests.e2e.daemon import (
    ONLINE,
    RESERVED,
    SPARE,
    Daemon,
    allowed,
    container,
    needs_two_cpus,
    pod,
    process_of,
    wait_for,
)
from tests.e2e.test_daemon import KINDS, MAKE_THREADS, threads, where

if TYPE_CHECKING:
    from collections.abc import Iterator
    from subprocess import CompletedProcess, Popen

pytestmark = [pytest.mark.slow, needs_two_cpus]


@pytest.fixture(params=KINDS)
def daemon(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    with Daemon(kind=request.param) as daemon:
        yield daemon


def leave(daemon: Daemon) -> CompletedProcess[str]:
    """Leave by the command line, with or without a daemon."""
    return daemon.verb("leave", "--socket", str(daemon.socket), "--state-dir", str(daemon.state_dir))


def two_workloads(daemon: Daemon) -> tuple[list[int], Popen[str]]:
    """Start one that shares and an owner; return their processes, and the client of the second."""
    daemon.apply(pod("worker", container("sleep 1000", name="app")))
    run = daemon.run("owner", "sleep", "1000", options=["--cpus", str(SPARE)])
    pids = [daemon.running(name) for name in ("worker", "owner")]
    assert [allowed(pid) for pid in pids] == [{str(RESERVED)}, {str(ONLINE - RESERVED)}]
    return pids, run


@pytest.mark.guest
@pytest.mark.parametrize("is_killed", [False, True], ids=["running", "killed"])
def test_leave_gives_every_process_all_cpus_back_with_and_without_a_daemon(daemon: Daemon, *, is_killed: bool) -> None:
    daemon.start()
    pids, run = two_workloads(daemon)
    if is_killed:
        daemon.kill()
    said = leave(daemon)
    assert (said.returncode, said.stdout) == (0, f"every group has CPUs {ONLINE} again\n"), said.stderr
    wait_for(lambda: not daemon.is_alive, "it ends")
    assert daemon.kill() in {0, None}
    assert [allowed(pid) for pid in pids] == [{str(ONLINE)}] * 2
    assert not any("exclusive/" in group for group in daemon.place.groups())
    assert leave(daemon).stdout == "no group to give back: no daemon has changed any\n"
    daemon.start()  # owners that still run get their CPUs back
    assert [allowed(pid) for pid in pids] == [{str(RESERVED)}, {str(ONLINE - RESERVED)}]
    run.terminate()
    run.wait()
    daemon.delete("worker")
    daemon.idle()


@pytest.mark.guest
def test_an_exit_with_on_exit_widen_leaves_no_group_narrow_and_no_empty_group(daemon: Daemon) -> None:
    daemon.start("--on-exit", "widen")
    pids, run = two_workloads(daemon)
    assert daemon.kill(signal.SIGTERM) == 0
    assert [allowed(pid) for pid in pids] == [{str(ONLINE)}] * 2
    run.terminate()
    run.wait()
    daemon.start("--on-exit", "widen")
    daemon.delete("worker")
    daemon.idle()
    assert daemon.kill(signal.SIGTERM) == 0
    assert daemon.place.groups() == set()


@pytest.mark.parametrize("is_killed", [False, True], ids=["running", "killed"])
def test_an_adopted_process_is_where_it_was_after_leaving(daemon: Daemon, *, is_killed: bool) -> None:
    daemon.start()
    with process_of(sys.executable, "-ISc", f"{MAKE_THREADS}\ntime.sleep(1000)") as process:
        wait_for(lambda: threads(process.pid) == 5, "all threads are there")
        before = where(process.pid)
        assert daemon.verb("adopt", str(process.pid), "--name", "mine").returncode == 0
        if is_killed:
            daemon.kill()
        assert leave(daemon).returncode == 0
        wait_for(lambda: not daemon.is_alive, "it ends")
        daemon.kill()
        assert process.poll() is None
        assert where(process.pid) == before
        daemon.start()
        assert daemon.containers() == []
    daemon.idle()


def test_without_a_claim_nothing_is_changed(daemon: Daemon) -> None:
    daemon.state_dir.mkdir(mode=0o700)
    assert leave(daemon).stdout == "no group to give back: no daemon has changed any\n"
    assert daemon.place.groups() == set()
