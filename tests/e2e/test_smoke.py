"""The daemon on this machine's real kernel, the short way: pinned, moved off, released, found again after kill -9."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pinfold.cli.asking.client import Client
from pinfold.core.machine.cpuset import CPUSet
from tests.needs import needs

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = needs("two CPUs", met=(os.cpu_count() or 1) >= 2)

SHARED_WORKER = """
apiVersion: v1
kind: Pod
metadata: {name: worker}
spec:
  containers:
    - name: c
      command: [sleep, "600"]
"""
ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / ".venv" / "bin" / "pinfold"
PINFOLD = [sys.executable, "-m", "pinfold"]
STATUS = "grep Cpus_allowed_list /proc/self/status; exit 7"


class Host:
    """A daemon in a directory and cgroup subtree of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.client = Client(directory / "s.sock")
        self.environment = {**os.environ, "PINFOLD_SOCKET": str(directory / "s.sock")}
        self.name = f"pinfold-smoke-{uuid.uuid4().hex[:8]}"

    def start(self) -> subprocess.Popen[str]:
        places = ["--state-dir", str(self.directory / "state"), "--socket", str(self.directory / "s.sock")]
        log = (self.directory / "log").open("a")
        daemon = subprocess.Popen(
            [*PINFOLD, "serve", *places, "--group-name", self.name, "--end-workloads"],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        log.close()
        assert daemon.stdout is not None
        assert "ready" in daemon.stdout.readline(), (self.directory / "log").read_text()
        return daemon

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PINFOLD, "run", *arguments], env=self.environment, capture_output=True, text=True, check=False
        )

    def container(self, pod: str) -> dict[str, object]:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            for row in self.client.get("/v1/containers"):
                if row["pod"] == pod and row["state"] == "running":
                    return dict(row)
            time.sleep(0.05)
        raise AssertionError((self.directory / "log").read_text())

    def pools(self) -> dict[str, CPUSet]:
        return {name: CPUSet.parse(cpus) for name, cpus in self.client.get("/v1/node")["pools"].items()}


@pytest.fixture
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    directory = tmp_path_factory.mktemp("h")
    yield Host(directory)
    shutil.rmtree(directory, ignore_errors=True)


def stop(daemon: subprocess.Popen[str]) -> None:
    daemon.send_signal(signal.SIGTERM)
    with daemon:
        assert daemon.wait(60) == 0


def test_a_command_runs_on_its_own_cpu_and_gives_it_back(host: Host) -> None:
    daemon = host.start()
    host.client.post("/v1/pods", {"files": [{"text": SHARED_WORKER, "source": "worker.yaml"}]})
    everything = host.pools()["shared"]
    done = host.run("--cpus", "1", "--", "sh", "-c", STATUS)
    assert done.returncode == 7, done.stderr
    own = CPUSet.parse(done.stdout.partition(":")[2])
    assert len(own) == 1
    assert own <= everything - host.pools()["reserved"]
    assert host.pools()["shared"] == everything
    stop(daemon)


def test_others_are_off_an_exclusive_cpu_while_it_is_taken(host: Host) -> None:
    daemon = host.start()
    host.client.post("/v1/pods", {"files": [{"text": SHARED_WORKER, "source": "worker.yaml"}]})
    owner = subprocess.Popen([*PINFOLD, "run", "--name", "owner", "--", "sleep", "600"], env=host.environment)
    own = CPUSet.parse(str(host.container("owner")["allowed"]))
    assert own == CPUSet.parse(str(host.container("owner")["cpus"]))
    assert not CPUSet.parse(str(host.container("worker")["allowed"])) & own
    owner.send_signal(signal.SIGTERM)
    assert owner.wait(20) == 128 + signal.SIGTERM
    stop(daemon)


def test_a_killed_daemon_is_followed_by_one_that_finds_everything_again(host: Host) -> None:
    daemon = host.start()
    owner = subprocess.Popen([*PINFOLD, "run", "--name", "owner", "--", "sleep", "600"], env=host.environment)
    before = host.container("owner")
    with daemon:
        daemon.kill()
    daemon = host.start()
    after = host.container("owner")
    assert (after["pid"], after["cpus"], after["allowed"]) == (before["pid"], before["cpus"], before["allowed"])
    stop(daemon)
    assert owner.wait(20) == 128 + signal.SIGTERM


def test_more_cpus_than_there_are_are_refused_and_nothing_changes(host: Host) -> None:
    daemon = host.start()
    before = host.pools()
    done = host.run("--cpus", "999", "--", "true")
    assert done.returncode == 4
    assert "requested=999" in done.stderr
    assert host.pools() == before
    stop(daemon)


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory whose name leaves room for a socket in it."""
    with tempfile.TemporaryDirectory(prefix="pf-") as directory:
        yield Path(directory)


@needs("the virtual environment that make sets up", met=PROGRAM.exists())
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_the_demonstration_leaves_nothing_behind_however_it_is_ended(short: Path, number: signal.Signals) -> None:
    name = f"pinfold-smoke-{uuid.uuid4().hex[:8]}"
    environment = {**os.environ, "TMPDIR": str(short)}
    demo = subprocess.Popen(
        [sys.executable, ROOT / "tools" / "demo", "--group-name", name, "--listen", "127.0.0.1:0"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    with demo:
        assert demo.stdout is not None
        assert any(line.startswith("Ctrl-C ends it") for line in demo.stdout)
        demo.send_signal(number)
        assert demo.wait(60) == 0
    assert list(short.iterdir()) == []
    assert not [pid for pid in Path("/proc").glob("[0-9]*") if bytes(short) in environment_of(pid)]


def environment_of(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""
