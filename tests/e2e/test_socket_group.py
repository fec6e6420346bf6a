"""The daemon of root and users who are not root: members of the socket's group, others, and daemons of their own."""

from __future__ import annotations

import grp
import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.e2e.daemon import (
    ONLINE,
    Daemon,
    User,
    best_kind,
    container,
    needs_cgroups,
    needs_two_cpus,
    pod,
    process_of,
    wait_for,
)
from tests.e2e.test_unprivileged import nobody
from tests.needs import lacking, needs_root

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [needs_root, needs_two_cpus]
GROUP = "games"  # a group that Debian has, and that no daemon uses


def number_of(group: str) -> int:
    """Return the number of a group."""
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        lacking(f"a group {group}")


class Member:
    """A user who is not root, with one further group."""

    def __init__(self, daemon: Daemon, user: User, group: int | None) -> None:
        self._daemon = daemon
        self._user = user
        self.popen = {**user.popen, "extra_groups": [] if group is None else [group]}

    @property
    def environment(self) -> dict[str, str]:
        return {**self._daemon.environment, **self._user.environment}

    def verb(self, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        command = [self._user.python, "-m", "pinfold", *arguments]
        return subprocess.run(
            command,
            env=self.environment,
            input=text,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            **self.popen,
        )


@pytest.fixture
def user() -> User:
    found = nobody()
    if found is None:
        lacking("an interpreter and a checkout that every user can read")
    return found


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with Daemon("--socket-group", GROUP) as daemon:
        daemon.start()
        yield daemon


def test_members_read_and_run_adopt_and_delete_processes_of_their_own(daemon: Daemon, user: User) -> None:
    member = Member(daemon, user, number_of(GROUP))
    assert member.verb("get", "pools").returncode == 0
    done = member.verb("run", "--cpus", "1", "--", "sh", "-c", "id -u; grep Cpus_allowed_list /proc/self/status")
    assert done.returncode == 0, done.stderr
    uid, _, cpus = done.stdout.split()
    assert (uid, len(cpus)) == (str(user.uid), 1)
    with process_of("sleep", "1000", env=member.environment, **member.popen) as process:
        done = member.verb("adopt", str(process.pid), "--name", "mine")
        assert done.returncode == 0, done.stderr
        done = member.verb("delete", "mine")
        assert done.returncode == 0, done.stderr
    daemon.idle()


def test_members_may_not_apply_nor_end_what_others_run(daemon: Daemon, user: User) -> None:
    member = Member(daemon, user, number_of(GROUP))
    daemon.apply(pod("of-root"))
    daemon.running("of-root")
    daemon.run("run-of-root", "sleep", "1000")
    for arguments in (
        ["apply", "-"],
        ["delete", "of-root"],
        ["delete", "run-of-root"],
        ["delete", "missing"],
        ["leave"],
        ["repack"],
        ["resize", "run-of-root", "--cpus", "1"],
    ):
        done = member.verb(*arguments, text=pod("evil", container("id")))
        assert done.returncode != 0, arguments
        assert "may read, and run, adopt and delete processes of their own; ask root for this" in done.stderr, arguments
    with process_of("sleep", "1000") as process:
        assert "belongs to user 0" in member.verb("adopt", str(process.pid)).stderr
    assert {row["pod"] for row in daemon.containers()} == {"of-root", "run-of-root"}
    assert daemon.is_alive


def test_a_reservation_of_another_user_cannot_be_taken(daemon: Daemon, user: User) -> None:
    member = Member(daemon, user, number_of(GROUP))
    reserved = daemon.client.post("/v1/run", {"name": "wanted", "milli": 1000})
    script = (
        "import json, os, sys; from pathlib import Path; from pinfold.cli.asking.client import Client\n"
        "Client(Path(sys.argv[1])).post(f'/v1/run/{sys.argv[2]}/attach', {'pid': os.getpid()})"
    )
    command = [user.python, "-c", script, str(daemon.socket), reserved["uid"]]
    done = subprocess.run(command, env=member.environment, capture_output=True, text=True, check=False, **member.popen)
    assert "ask root for this" in done.stderr
    daemon.delete("wanted")


def test_who_is_not_a_member_is_told_which_group_to_join(daemon: Daemon, user: User) -> None:
    done = Member(daemon, user, None).verb("get", "pools")
    assert done.returncode == 3
    assert done.stderr == (f"pinfold: error: {daemon.socket}: permission denied; ask root or join group {GROUP}\n")


def test_without_a_group_the_socket_is_roots_alone(user: User) -> None:
    with Daemon() as daemon:
        daemon.start()
        done = Member(daemon, user, number_of(GROUP)).verb("get", "pools")
    assert done.returncode == 3
    assert "permission denied; ask root: the daemon serves others only if it is started with --socket-" in done.stderr


def test_a_group_that_does_not_exist_is_refused_with_the_command_that_makes_it() -> None:
    with Daemon("--socket-group", "no-such-group") as daemon:
        done = daemon.try_to_start()
    assert done.returncode == 2
    assert 'there is no group "no-such-group" on this host; make it: groupadd --system no-such-group' in done.stderr


@needs_cgroups
def test_a_user_who_finds_groups_of_root_falls_back_to_affinity_and_is_told_why(user: User) -> None:
    with Daemon() as roots:
        roots.start()
        roots.apply(pod("worker"))
        roots.running("worker")
        with Daemon("--reserved-cpus", str(ONLINE.lowest), kind="auto", user=user) as own:
            own.groups = ["--groups", "auto", "--group-name", roots.place.name]
            own.start()
            assert "affinity" in own.ready
            kind = best_kind().replace("-", " ")
            wait_for(lambda: "affinity is used because" in own.said(), "the log says so")
            (said,) = (line for line in own.said().splitlines() if "affinity is used because" in line)
            assert f"{kind} cannot be used" in said
            assert "not permitted; it belongs to another user" in said


@needs_cgroups
def test_a_daemon_that_ends_with_nothing_left_removes_its_empty_groups() -> None:
    with Daemon() as daemon:
        daemon.start()
        assert daemon.verb("run", "--", "true").returncode == 0
        daemon.idle()
        assert daemon.place.groups()
        assert daemon.kill(signal.SIGTERM) == 0
        assert daemon.place.groups() == set()
        assert not (daemon.state_dir / "claim.json").exists()
        daemon.start()
        daemon.apply(pod("worker"))
        daemon.running("worker")
        daemon.kill(signal.SIGTERM)
        assert daemon.place.groups()
        json.loads((daemon.state_dir / "claim.json").read_text())
        os.kill(daemon.place.processes()[0], signal.SIGKILL)
