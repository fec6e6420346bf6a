"""A real daemon killed at each call by which it changes the disk or the kernel: the next one finds everything again."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pinfold.errors import PinfoldError
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

if TYPE_CHECKING:
    from collections.abc import Callable
    from subprocess import Popen

pytestmark = [needs_two_cpus, pytest.mark.slow, pytest.mark.long]

MOST = 60
"""More calls than any of these changes makes."""
# Once the file $COUNT is there, the daemon is killed before the call of this number that changes something.
PROGRAM = """
import os, sys
left = None
def counted(name):
    real = getattr(os, name)
    def call(*arguments, **options):
        global left
        if left is None and os.path.exists(os.environ["COUNT"]):
            left = int(open(os.environ["COUNT"]).read())
        if left is not None:
            left -= 1
            if left == 0:
                os._kill(os.getpid(), 9)
        return real(*arguments, **options)
    return call
os._kill = os.kill
for name in ("rename", "fsync", "mkdir", "rmdir", "sched_setaffinity", "kill", "pidfd_open", "ftruncate"):
    setattr(os, name, counted(name))
from pinfold.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def adopt(daemon: Daemon, process: Popen[str]) -> None:
    daemon.client.post("/v1/adopt", {"name": "x", "milli": 1000, "pid": process.pid})


def apply(daemon: Daemon, _process: Popen[str]) -> None:
    daemon.apply(pod("x", container(cpus=1)))


def apply_and_delete(daemon: Daemon, _process: Popen[str]) -> None:
    daemon.apply(pod("x", container(cpus=1)))
    daemon.delete("x")


def killed_at(daemon: Daemon, number: int, change: Callable[[], None]) -> bool:
    """Make a change with a daemon that is killed at a call; return whether the change was acknowledged."""
    count = daemon.place.directory / "count"
    daemon.environment["COUNT"] = str(count)
    daemon.command = [sys.executable, "-c", PROGRAM]
    daemon.start()
    count.write_text(str(number))
    done = False
    with suppress(PinfoldError):
        change()
        done = True
    count.unlink()
    daemon.kill()
    daemon.command = [sys.executable, "-m", "pinfold"]
    return done


@pytest.mark.parametrize("kind", sorted({best_kind(), "affinity"}))
@pytest.mark.parametrize("change", [adopt, apply, apply_and_delete])
def test_a_daemon_killed_at_any_call_of_a_change_leaves_all_or_nothing_of_it(
    kind: str, change: Callable[[Daemon, Popen[str]], None]
) -> None:
    with Daemon(kind=kind) as daemon, process_of("sleep", "1000") as process:
        for number in range(1, MOST):
            acknowledged = killed_at(daemon, number, lambda: change(daemon, process))
            daemon.start()
            wait_for(lambda: all(row["state"] == "running" for row in daemon.containers()), "all run")
            daemon.check()
            known = [row["pid"] for row in daemon.containers()]
            assert known or allowed(process.pid) == {str(ONLINE)}
            assert sorted(known) == sorted({*daemon.place.processes(), *known})
            if acknowledged:
                assert bool(known) == (change is not apply_and_delete)
            if known:
                daemon.delete("x")
            daemon.idle()
            daemon.kill()
            if acknowledged:
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
