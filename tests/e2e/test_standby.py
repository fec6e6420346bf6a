"""A daemon that stands by, and takes over when the one before it ends in any way."""

from __future__ import annotations

import signal
import socket
import subprocess
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import pytest

from tests.e2e.daemon import PATIENCE, SPARE, Daemon, needs_two_cpus, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = needs_two_cpus


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def answer(port: int, path: str) -> tuple[int, str]:
    """Return the status and the text of an answer; 0 if there is none."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE) as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def following(daemon: Daemon, port: int) -> Iterator[subprocess.Popen[str]]:
    """Start a daemon and a process beside it, and another daemon that stands by."""
    daemon.start()
    daemon.run("owner", "sleep", "1000", options=["--cpus", str(SPARE)])
    next_one = [*daemon.arguments, "--stand-by", "--listen", f"127.0.0.1:{port}"]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "text": True}
    with daemon.log.open("a") as log, subprocess.Popen(next_one, env=daemon.environment, stderr=log, **pipes) as found:  # type: ignore[call-overload]  # texts
        try:
            assert "standing by" in found.stdout.readline()
            yield found
        finally:
            found.kill()


def test_it_answers_probes_and_changes_nothing_until_its_turn(
    daemon: Daemon, following: subprocess.Popen[str], port: int
) -> None:
    wait_for(lambda: answer(port, "/readyz") == (200, "standing by\n"), "it is ready to take over")
    assert answer(port, "/healthz")[0] == 200
    assert answer(port, "/metrics")[0] == 503
    assert daemon.client.get("/v1/config")["pid"] == daemon.pid
    assert daemon.events("warning", "fight", "drift") == []
    following.send_signal(signal.SIGTERM)
    assert following.wait(PATIENCE) == 0
    daemon.check()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["told to stop", "killed"])
def test_it_takes_over_when_the_one_before_it_has_ended(
    daemon: Daemon, following: subprocess.Popen[str], port: int, number: signal.Signals
) -> None:
    pid, cpus = daemon.running("owner"), daemon.state().exclusive
    daemon.kill(number)
    assert following.stdout is not None
    assert following.stdout.readline().startswith("pinfold: ready")
    assert daemon.client.get("/v1/config")["pid"] == following.pid
    assert (daemon.running("owner"), daemon.state().exclusive) == (pid, cpus)
    daemon.check()
    wait_for(lambda: answer(port, "/readyz") == (200, "ok\n"), "it serves")


def test_without_a_daemon_before_it_it_starts_as_any_other(daemon: Daemon) -> None:
    daemon.start("--stand-by")
    daemon.check()
