"""`kubectl pinfold`, with a stand-in for kubectl that runs in its "pod" the real commands beside a real daemon."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.daemon import Daemon, container, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

PLUGIN = Path(__file__).resolve().parents[2] / "deploy/kubectl/kubectl-pinfold"
# Knows one node with a pod of pinfold, lists pods as kubectl does, and runs a command of the pod on this machine.
STAND_IN = f"""#!{sys.executable} -S
import os, sys
words = sys.argv[1:]
assert words[:2] == ["--namespace", "kube-system"], words
if words[2:4] == ["get", "pods"]:
    options = dict(zip(words[4::2], words[5::2], strict=True))
    assert options["--selector"] == "app.kubernetes.io/name=pinfold", words
    assert options["--output"] == "jsonpath={{.items[*].metadata.name}}", words
    where = options["--field-selector"]
    print("pinfold-x7k2p" if where == "spec.nodeName=node1,status.phase=Running" else "", end="")
    sys.exit(0)
assert words[2] == "exec", words
stdin = words[3] == "--stdin"
assert words[3 + stdin : 7 + stdin] == ["pinfold-x7k2p", "--container", "pinfold", "--"], words
program, *arguments = words[7 + stdin :]
assert program == "/usr/local/bin/pinfold", words
if not stdin:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.execv({sys.executable!r}, [{sys.executable!r}, "-m", "pinfold", *arguments])
"""


class Desk:
    """A user's machine: kubectl and its plugin."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self._bin = daemon.place.directory / "bin"
        self._bin.mkdir()
        (self._bin / "kubectl").write_text(STAND_IN)
        (self._bin / "kubectl").chmod(0o755)

    def ask(self, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
        environment = {**self.daemon.environment, "PATH": f"{self._bin}:/usr/bin:/bin"}
        return subprocess.run(
            [PLUGIN, *words], env=environment, input=text, capture_output=True, text=True, check=False
        )


@pytest.fixture
def desk() -> Iterator[Desk]:
    with Daemon("--runtime", "simulated", "--preset", "laptop-4", kind="affinity") as daemon:
        daemon.groups = []
        daemon.start()
        daemon.apply(pod("db", container(cpus=1)))
        yield Desk(daemon)


def test_map_get_and_explain_answer_as_on_the_node(desk: Desk) -> None:
    for words, on_the_node in (
        (("map", "node1"), ("top", "--once")),
        (("get", "node1", "cpus", "--output=json"), ("get", "cpus", "--output=json")),
        (("explain", "node1", "db/app"), ("explain", "db/app")),
    ):
        asked, expected = desk.ask(*words), desk.daemon.verb(*on_the_node)
        assert (asked.returncode, asked.stdout) == (0, expected.stdout), asked.stderr


def test_plan_sends_files_and_stdin_and_counts_what_runs_on_the_node(desk: Desk) -> None:
    files = {name: desk.daemon.place.directory / f"{name} pods.yaml" for name in ("web", "cache")}
    for name, file in files.items():
        file.write_text(pod(name, container(cpus=1)))
    asked = desk.ask("plan", "node1", str(files["web"]), "--output=json", "-", text=files["cache"].read_text())
    assert asked.returncode in {0, 1}, asked.stderr
    assert {"db", "web", "cache"} <= {name for name in ("db", "web", "cache") if f'"{name}"' in asked.stdout}
    assert json.loads(asked.stdout)


def test_the_exit_code_is_that_of_the_command_in_the_pod(desk: Desk) -> None:
    too_large = pod("large", container(cpus=64))
    assert desk.ask("plan", "node1", "-", text=too_large).returncode == 1


def test_verbs_that_change_a_node_are_refused(desk: Desk) -> None:
    for verb in ("leave", "hand-back", "delete", "run"):
        asked = desk.ask(verb, "node1")
        assert asked.returncode == 2
        assert "allowed are map, get, explain" in asked.stderr
    assert desk.daemon.is_alive


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["map"], 2, "no node"),
        (["map", "node2"], 3, "no pod of pinfold runs on node node2"),
        (["map", "node1,metadata.name=x"], 2, "is not the name of a node"),
        (["plan", "node1"], 2, "no pods"),
        (["plan", "node1", "/absent.yaml"], 1, "/absent.yaml"),
    ],
)
def test_a_wrong_call_says_what_is_missing(desk: Desk, words: list[str], code: int, said: str) -> None:
    asked = desk.ask(*words)
    assert asked.returncode == code
    assert said in asked.stderr
    assert not asked.stdout


def test_help_needs_no_cluster() -> None:
    done = subprocess.run([PLUGIN, "--help"], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True)
    assert "kubectl pinfold plan NODE FILE..." in done.stdout
