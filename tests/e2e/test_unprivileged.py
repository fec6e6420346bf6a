"""The daemon of a user who may do nothing special: it works by affinity, and says what is weaker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import h11
import pytest
import yaml

import pinfold
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.state import State
from pinfold.errors import PinfoldError
from tests.e2e.daemon import (
    ONLINE,
    RESERVED,
    SPARE,
    Daemon,
    User,
    allowed,
    best_kind,
    container,
    is_alive,
    needs_cgroups,
    needs_two_cpus,
    pod,
    process_of,
    wait_for,
)
from tests.needs import lacking, needs_root

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [needs_two_cpus]

NOBODY = 65534


@cache
def nobody() -> User | None:
    """Return a user who can do nothing special but can run the program; None if there is none."""
    if os.geteuid() != 0:
        return User(sys.executable)
    path = os.pathsep.join({str(Path(module.__file__ or "").parents[1]) for module in (pinfold, h11, yaml)})
    for python in (sys.executable, f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}", "/usr/bin/python3"):
        user = User(python, NOBODY, path)
        try:
            subprocess.run(
                [python, "-c", "import pinfold.cli.serve"],
                env={**os.environ, **user.environment},
                check=True,
                capture_output=True,
                timeout=30,
                **user.popen,
            )
        except (OSError, subprocess.SubprocessError):
            continue
        return user
    return None


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    """A daemon of an unprivileged user, not started yet."""
    user = nobody()
    if user is None:
        lacking("an interpreter and a checkout that every user can read")
    with Daemon(kind="auto", user=user) as daemon:
        yield daemon


def test_it_takes_affinity_by_itself_and_says_what_is_weaker(daemon: Daemon) -> None:
    daemon.start()
    assert "affinity" in daemon.ready
    weaker = daemon.client.get("/v1/node")["weaker"]
    listed = daemon.verb("get", "node").stdout
    for words in (
        "may run on exclusive CPUs",
        "can change its own affinity",
        "CPU limits",
        "other users are not moved",
    ):
        assert any(words in reason for reason in weaker)
        assert words in listed
    (line,) = [line for line in daemon.said().splitlines() if "event=weaker" in line and "count=" in line]
    assert 'promise="affinity is used because' in line
    assert f'count={len(weaker)} list="pinfold get node"' in line


def test_all_others_leave_exclusive_cpus_before_their_owner_starts(daemon: Daemon) -> None:
    daemon.start()
    daemon.apply(pod("worker"), pod("other"))
    workers = [daemon.running(name) for name in ("worker", "other")]
    look = f"grep -h Cpus_allowed_list /proc/self/status {' '.join(f'/proc/{pid}/task/*/status' for pid in workers)}"
    result = daemon.verb("run", "--cpus", str(SPARE), "--", "sh", "-c", look)
    own, *others = (CPUSet.parse(line.split()[1]) for line in result.stdout.splitlines())
    assert len(own) == SPARE
    assert others == [ONLINE - own] * 2
    wait_for(lambda: allowed(workers[0]) == {str(ONLINE)}, "they may return")
    daemon.check()
    for name in ("worker", "other"):
        daemon.delete(name)
    daemon.idle()


def test_children_are_where_their_parents_are(daemon: Daemon) -> None:
    daemon.start()
    daemon.apply(pod("family", container("sleep 1000 & sleep 1000 & exec sleep 1000", cpus=1)))
    daemon.running("family")
    family = wait_for(lambda: len(found := daemon.place.processes()) == 3 and found, "all are there")
    assert [allowed(pid) for pid in family] == [{str(daemon.state().exclusive)}] * 3
    daemon.delete("family")
    daemon.idle()


def test_a_process_that_changes_its_affinity_is_put_back(daemon: Daemon) -> None:
    daemon.start("--cpu-manager-reconcile-period", "200ms")
    daemon.apply(pod("worker"), pod("owner", container(cpus=SPARE)))
    daemon.running("owner")
    pid = daemon.running("worker")
    os.sched_setaffinity(pid, ONLINE)
    wait_for(lambda: allowed(pid) == {str(RESERVED)}, "it is put back", within=10)
    assert daemon.events("drift")
    daemon.check()


def test_workloads_outlive_the_daemon(daemon: Daemon) -> None:
    daemon.start()
    run = daemon.run("owner", "sleep", "1000", options=["--cpus", str(SPARE)])
    daemon.apply(pod("worker"))
    pids = [daemon.running(name) for name in ("owner", "worker")]
    daemon.restart()
    assert [daemon.running(name) for name in ("owner", "worker")] == pids
    daemon.check()
    run.terminate()
    assert run.wait(20) == 128 + signal.SIGTERM
    wait_for(lambda: daemon.pools()["shared"] == ONLINE, "its CPUs are shared again")
    assert allowed(pids[1]) == {str(ONLINE)}
    daemon.delete("worker")
    daemon.idle()


def test_with_end_workloads_nothing_is_left_behind(daemon: Daemon) -> None:
    daemon.start("--end-workloads")
    daemon.apply(pod("worker", container("sleep 1000 & exec sleep 1000")))
    daemon.run("owner", "sleep", "1000")
    daemon.running("worker")
    assert daemon.kill(signal.SIGTERM) == 0
    assert daemon.place.processes() == []
    assert daemon.state() == State(ONLINE)


def test_state_and_socket_are_in_the_users_own_directories(daemon: Daemon) -> None:
    home = daemon.place.directory
    daemon.where = []
    daemon.state_dir, daemon.socket = home / "state/pinfold", home / "run/pinfold/pinfold.sock"
    del daemon.environment["PINFOLD_SOCKET"]
    daemon.environment |= {"XDG_STATE_HOME": str(home / "state"), "XDG_RUNTIME_DIR": str(home / "run")}
    daemon.start()
    assert daemon.state() == State(ONLINE)
    assert daemon.verb("run", "--", "true").returncode == 0
    assert daemon.verb("get", "pools").returncode == 0
    daemon.idle()


def test_without_home_and_xdg_directories_it_says_what_to_name(daemon: Daemon) -> None:
    daemon.where = []
    for name in ("PINFOLD_SOCKET", "HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        daemon.environment.pop(name, None)
    result = daemon.try_to_start()
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 2  # the state directory, and the socket
    assert "--state-dir" in result.stderr
    assert "--socket" in result.stderr


@needs_root
@needs_cgroups
def test_a_kind_that_this_user_may_not_use_is_refused_with_the_reason(daemon: Daemon) -> None:
    result = daemon.try_to_start("--groups", best_kind())
    assert result.returncode == 2
    (error,) = (line for line in result.stderr.splitlines() if "event=" not in line)
    assert "not permitted" in error


@needs_root
def test_a_directory_of_another_user_is_refused(daemon: Daemon) -> None:
    result = daemon.try_to_start("--state-dir", "/root/pinfold")
    assert result.returncode == 2
    assert "the state directory /root/pinfold cannot be made: Permission denied" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@needs_root
def test_processes_of_other_users_cannot_be_adopted(daemon: Daemon) -> None:
    daemon.start()
    with process_of("sleep", "1000") as process:
        before = allowed(process.pid)
        result = daemon.verb("adopt", str(process.pid))
        assert result.returncode == 2
        assert "belongs to user 0" in result.stderr
        assert daemon.pools()["shared"] == ONLINE
        # Root may ask for anything, but the daemon cannot do it.
        with pytest.raises(PinfoldError, match=r"not permitted|belongs to another user"):
            daemon.client.post("/v1/adopt", {"pid": process.pid, "name": "x", "milli": 1000})
        assert is_alive(process.pid)
        assert allowed(process.pid) == before
    daemon.idle()


@needs_root
def test_processes_of_the_same_user_can_be_adopted(daemon: Daemon) -> None:
    daemon.start()
    with process_of("sleep", "1000", env=daemon.place.environment, **daemon.user.popen) as process:
        assert daemon.verb("adopt", str(process.pid), "--name", "mine").returncode == 0
        daemon.check()
        assert allowed(process.pid) == {str(daemon.state().exclusive)}
    daemon.idle()
