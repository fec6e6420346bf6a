"""Plans that start from a running daemon: a real one, with a machine and containers that are not there."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from socketserver import UnixStreamServer
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from pinfold.cli.main import main
from pinfold.core.cpuset import CPUSet
from pinfold.core.pods import Pod, PodUID
from pinfold.core.presets import preset
from pinfold.core.state import State
from pinfold.formats.checkpoint import format_checkpoint
from pinfold.formats.poddoc import pod_document
from pinfold.formats.topologyjson import format_topology_json
from tests.property.strategies import pinned

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

POD = """---
kind: Pod
metadata: {{name: {name}}}
spec:
  containers: [{{name: app, command: [sleep, "1"], resources: {{limits: {{cpu: "{cpus}", memory: 1Gi}}}}}}]
"""


@contextmanager
def daemon(directory: Path, *flags: str) -> Iterator[str]:
    """Run a daemon; yield its socket."""
    socket = str(directory / "s")
    command = [sys.executable, "-m", "pinfold", "serve", "--runtime", "simulated", "--preset", "epyc-7303-2s"]
    command += ["--socket", socket, "--state-dir", str(directory / "state"), *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            assert "ready" in process.stdout.readline()
            yield socket
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("live")
    pods = directory / "running.yaml"
    pods.write_text(POD.format(name="one", cpus=6) + POD.format(name="two", cpus=8))
    with daemon(directory) as path:
        assert main(["apply", "--socket", path, str(pods)]) == 0
        yield path


def live(socket: str, capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, str | None]:
    """Return the CPUs of each pod in a plan on the running node."""
    capsys.readouterr()
    assert main(["plan", "--live", "--socket", socket, "-o", "json", *args]) in {0, 1}
    data = json.loads(capsys.readouterr().out)
    return {row["pod"]: row["cpus"] for row in data["placements"]}


@pytest.fixture
def new(tmp_path: Path) -> str:
    path = tmp_path / "new.yaml"
    path.write_text(POD.format(name="new", cpus=4))
    return str(path)


def test_new_pods_come_beside_those_that_run(socket: str, capsys: pytest.CaptureFixture[str], new: str) -> None:
    assert live(socket, capsys, new) == {"one": "1-3,33-35", "two": "4-7,36-39", "new": "8-9,40-41"}


def test_a_pod_that_runs_is_left_out(socket: str, capsys: pytest.CaptureFixture[str], new: str) -> None:
    assert live(socket, capsys, new, "--without", "one") == {"two": "4-7,36-39", "new": "1-2,33-34"}


def test_a_pod_that_runs_gets_replicas(socket: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = live(socket, capsys, "--replicas", "two=3")
    assert set(found) == {"one", "two", "two-0", "two-1"}


def test_a_pod_that_runs_is_resized(socket: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert live(socket, capsys, "--resize", "two/app=2") == {"one": "1-3,33-35", "two": "4,36"}


def test_what_runs_is_planned_anew_on_another_machine(socket: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert live(socket, capsys, "--preset", "cores:8") == {"one": "1-6", "two": None}


def test_the_node_itself_is_not_touched(socket: str, capsys: pytest.CaptureFixture[str], new: str) -> None:
    before = live(socket, capsys)
    live(socket, capsys, new, "--without", "one", "--replicas", "two=5")
    assert live(socket, capsys) == before


def test_without_a_daemon_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--live", "--socket", str(tmp_path / "nobody")]) == 3
    assert "no daemon answers" in capsys.readouterr().err


@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("--policy-options=full-pcpus-only=true,prefer-align-cpus-by-uncorecache=true",),
        ("--topology-manager-policy=single-numa-node", "--reserved-cpus=0-3"),
    ],
)
def test_a_plan_is_what_the_daemon_then_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...]
) -> None:
    sizes = (6, 20, 9, 16, 3, 24, 2, 1)
    pods = tmp_path / "pods.yaml"
    pods.write_text("".join(POD.format(name=f"p{i}", cpus=cpus) for i, cpus in enumerate(sizes)))
    main(["plan", str(pods), "--preset", "epyc-7303-2s", "-o", "json", *flags])
    data = json.loads(capsys.readouterr().out)
    planned = {row["pod"]: row["cpus"] for row in data["placements"] if row["exclusive"]}
    assert 0 < len(planned) < len(sizes)
    with daemon(tmp_path, *flags) as socket:
        assert main(["apply", "--socket", socket, str(pods)]) == 4
        capsys.readouterr()
        main(["get", "containers", "--socket", socket, "-o", "json"])
        rows = json.loads(capsys.readouterr().out)
        main(["get", "pools", "--socket", socket, "-o", "json"])
        pools = json.loads(capsys.readouterr().out)
    assert {row["pod"]: row["cpus"] for row in rows} == planned
    assert pools == data["pools"]


@contextmanager
def answering(path: Path, answers: dict[str, object]) -> Iterator[str]:
    """Answer on a socket as a daemon of any kind would."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(answers[self.path.removeprefix("/v1/")]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

        def address_string(self) -> str:
            return ""

    with UnixStreamServer(str(path), Handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield str(path)
        finally:
            server.shutdown()
            thread.join()


def answers(**changes: object) -> dict[str, object]:
    """Return what a daemon says that has one pod, and whole cores as its option."""
    pod = Pod(PodUID("u"), "web", containers=(pinned(2),))
    cpus = CPUSet.of(1, 3)
    state = State(CPUSet.parse("0-7") - cpus, {pod.uid: {"app": cpus}})
    settings = {"policy_options": {"full-pcpus-only": "true"}, "topology_policy": "restricted", "feature_gates": {}}
    told = {"checkpoint": format_checkpoint("static", state), "pods": [pod_document(pod)], "settings": settings}
    return {
        "node": {"policy": "static", "pools": {"reserved": "0"}},
        "topology": json.loads(format_topology_json(preset("cores:4,threads:2"))),
        "state": told | changes,
    }


def test_the_daemons_settings_are_taken_and_flags_override_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], new: str
) -> None:
    with answering(tmp_path / "s", answers()) as path:
        assert main(["plan", "--live", "--socket", path, new, "-o", "json"]) == 0
        out, err = capsys.readouterr()
        assert not err
        node = json.loads(out)["node"]
        assert (node["options"], node["topology_policy"]) == ({"full-pcpus-only": "true"}, "restricted")
        args = ["plan", "--live", "--socket", path, new, "-o", "json"]
        main([*args, "--policy-options=strict-cpu-reservation=false", "--topology-manager-policy=none"])
        node = json.loads(capsys.readouterr().out)["node"]
        assert (node["options"], node["topology_policy"]) == ({"strict-cpu-reservation": "false"}, "none")


def test_a_daemon_that_does_not_tell_its_options_is_warned_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = answers()
    state = told["state"]
    assert isinstance(state, dict)
    del state["settings"]
    with answering(tmp_path / "s", told) as path:
        assert main(["plan", "--live", "--socket", path]) == 0
    assert "the daemon does not tell its options" in capsys.readouterr().err


@pytest.mark.parametrize(
    "changes",
    [
        {"pods": None},
        {"pods": [{"kind": "Pod"}]},
        {"pods": "web"},
        {"checkpoint": None},
        {"checkpoint": '{"policyName":"none","defaultCpuSet":"","checksum":0}'},
        {"settings": []},
        {"settings": {"policy_options": "nope"}},
    ],
)
def test_an_answer_that_makes_no_sense_is_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, object]
) -> None:
    with answering(tmp_path / "s", answers(**changes)) as path:
        assert main(["plan", "--live", "--socket", path]) == 2
    assert capsys.readouterr().err.count("\n") == 1
