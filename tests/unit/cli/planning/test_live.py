"""Plans that start from a running daemon: a real one, with a machine and containers that are not there."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from pinfold.cli.main import main
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import preset
from pinfold.core.pods.pod import Pod, PodUID
from pinfold.core.state import State
from pinfold.formats.kubelet.checkpoint import format_checkpoint
from pinfold.formats.machine.topologyjson import format_topology_json
from pinfold.formats.pods.document import pod_document
from tests.property.strategies import pinned
from tests.unit.cli.answering import answering

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


@pytest.mark.parametrize("elsewhere", [(), ("--preset", "epyc-7303-2s")])
def test_a_pod_that_runs_does_not_come_a_second_time(
    socket: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, elsewhere: tuple[str, ...]
) -> None:
    again = tmp_path / "again.yaml"
    again.write_text(POD.format(name="new", cpus=1) + POD.format(name="one", cpus=2))
    assert main(["plan", "--live", "--socket", socket, str(again), *elsewhere]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert f'{again}: pod "default/one" runs already; ' in told
    assert told.endswith("add --without default/one\n")


def test_a_pod_with_the_uid_of_one_that_runs_does_not_come_either(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(POD.format(name="other", cpus=1).replace("name: other", "name: other, uid: u"))
    with answering(tmp_path / "s", answers()) as path:
        assert main(["plan", "--live", "--socket", path, str(other)]) == 2
        assert 'pod "default/other" runs already as "default/web"' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "elsewhere"), [("one", ()), ("default/one", ()), ("one", ("--preset", "epyc-7303-2s"))]
)
def test_a_pod_comes_in_the_place_of_one_that_is_left_out(
    socket: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, elsewhere: tuple[str, ...]
) -> None:
    again = tmp_path / "again.yaml"
    again.write_text(POD.format(name="one", cpus=2))
    found = live(socket, capsys, str(again), "--without", name, *elsewhere)
    assert list(found) == ["two", "one"]
    assert found["one"] == ("1,33" if not elsewhere else "5,37")


def test_a_pod_of_a_file_is_left_out_if_no_running_pod_has_its_name(
    socket: str, capsys: pytest.CaptureFixture[str], new: str
) -> None:
    assert list(live(socket, capsys, new, "--without", "new")) == ["one", "two"]
    assert main(["plan", "--live", "--socket", socket, new, "--without", "nobody"]) == 2
    assert 'no pod "nobody"; there are new, one, two' in capsys.readouterr().err


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


def test_it_decides_as_the_daemon_does_unless_told_otherwise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "kubelet.yaml"
    config.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        "cpuManagerPolicy: static\nreservedSystemCPUs: '0'\n"
    )
    with daemon(tmp_path, "--as", "kubelet") as socket:
        args = ["plan", "--live", "--socket", socket, "-o", "json"]

        def fidelity(*more: str) -> str:
            assert main([*args, *more]) == 0
            return str(json.loads(capsys.readouterr().out)["node"]["fidelity"])

        assert fidelity() == fidelity("--preset", "cores:8") == fidelity("--config", str(config)) == "kubelet"
        assert fidelity("--as", "pinfold") == "pinfold"


def test_reserved_amounts_are_taken_instead_of_the_daemons_reserved_cpus(
    socket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for flag in ("--kube-reserved", "--system-reserved"):
        assert main(["plan", "--live", "--socket", socket, "-o", "json", flag, "cpu=2"]) == 0
        out, err = capsys.readouterr()
        assert not err
        assert json.loads(out)["pools"]["reserved"] == "0,32"


def test_a_pod_that_cannot_keep_its_cpus_under_other_settings_comes_again(
    socket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["plan", "--live", "--socket", socket, "-o", "json", "--kube-reserved", "cpu=8"]
    assert main(args) == 0
    out, err = capsys.readouterr()
    data = json.loads(out)
    assert data["pools"]["reserved"] == "0-3,32-35"
    assert {row["pod"]: (row["cpus"], row["running"]) for row in data["placements"]} == {
        "one": ("8-10,40-42", False),
        "two": ("4-7,36-39", True),
    }
    assert err == (
        'pinfold: warning: pod "default/one" cannot keep its CPUs under these settings; '
        "it comes again, before all others\n"
    )
    assert main([*args, "--without", "one"]) == 0
    assert not capsys.readouterr().err


def test_a_daemon_that_does_not_tell_its_options_is_warned_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = answers()
    state = told["state"]
    assert isinstance(state, dict)
    del state["settings"]
    with answering(tmp_path / "s", told) as path:
        assert main(["plan", "--live", "--socket", path]) == 0
    assert "the daemon does not report its options" in capsys.readouterr().err


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
