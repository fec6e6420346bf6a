from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pinfold.cli.fleet import read_fleet
from pinfold.cli.main import main
from pinfold.planning.fleet import plan_fleet

EXAMPLES = Path(__file__).parents[3] / "examples"
FLEET = """
nodes:
  - name: small
    count: 220
    machine: sockets:2,cores:8
    kubelet: {cpuManagerPolicy: static, topologyManagerPolicy: single-numa-node, reservedSystemCPUs: 0-1}
"""
LARGE = """{kind: Deployment, metadata: {name: large}, spec: {replicas: 3, template: {spec: {containers:
  [{name: app, resources: {limits: {cpu: 9, memory: 1Gi}}}]}}}}"""
SMALL = LARGE.replace("cpu: 9", "cpu: 2").replace("large", "small").replace("replicas: 3", "replicas: 500")


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "fleet.yaml").write_text(FLEET)
    (tmp_path / "pods.yaml").write_text(f"{LARGE}\n---\n{SMALL}")
    return [str(tmp_path / "fleet.yaml"), str(tmp_path / "pods.yaml")]


def fleet(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["fleet", *arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_pods_that_do_not_get_in_are_exit_code_1(capsys: pytest.CaptureFixture[str], files: list[str]) -> None:
    code, output, errors = fleet(capsys, *files, "--jobs", "1")
    assert (code, errors) == (1, "")
    assert "TopologyAffinityError" in output


def test_if_all_get_in_it_is_0(capsys: pytest.CaptureFixture[str], files: list[str]) -> None:
    Path(files[1]).write_text(SMALL)
    code, output, _ = fleet(capsys, *files, "--jobs", "1")
    assert code == 0
    assert output.endswith("1 workload: all placed at once\n")


def test_the_outcome_does_not_depend_on_the_number_of_processes(
    capsys: pytest.CaptureFixture[str], files: list[str]
) -> None:
    texts = [fleet(capsys, *files, "-o", "json", "--seed", "9", "--jobs", jobs) for jobs in ("1", "2", "3")]
    assert texts[0] == texts[1] == texts[2]
    assert json.loads(texts[0][1])["schedulers"][0]["shards"] == 2


def test_json_and_yaml_say_the_same(capsys: pytest.CaptureFixture[str], files: list[str]) -> None:
    _, as_json, _ = fleet(capsys, *files, "-o", "json", "--jobs", "1")
    _, as_yaml, _ = fleet(capsys, *files, "-o", "yaml", "--jobs", "1")
    assert json.loads(as_json) == yaml.safe_load(as_yaml)


@pytest.mark.parametrize("scheduler", ["blind", "aware"])
def test_one_scheduler_can_be_chosen(capsys: pytest.CaptureFixture[str], files: list[str], scheduler: str) -> None:
    _, output, _ = fleet(capsys, *files, "-o", "json", "--scheduler", scheduler, "--jobs", "1")
    assert [row["scheduler"] for row in json.loads(output)["schedulers"]] == [scheduler]


def test_retries_are_as_many_as_asked_for(capsys: pytest.CaptureFixture[str], files: list[str]) -> None:
    _, output, _ = fleet(capsys, *files, "-o", "json", "--scheduler", "blind", "--retries", "1", "--jobs", "1")
    (blind,) = json.loads(output)["schedulers"]
    assert (blind["refused"], blind["refusals"]) == (3, 6)


def test_files_that_the_fleet_names_stand_beside_it(capsys: pytest.CaptureFixture[str], files: list[str]) -> None:
    directory = Path(files[0]).parent
    (directory / "kubelet.yaml").write_text(
        "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\nmaxPods: 5\n"
    )
    (directory / "fleet.yaml").write_text(
        "nodes: [{name: a, count: 2, machine: laptop-4, kubeletFile: kubelet.yaml}]\n"
        "workloads: [{pods: one.yaml, replicas: 12}]\n"
    )
    (directory / "one.yaml").write_text("{kind: Pod, metadata: {name: p}, spec: {containers: [{name: c}]}}")
    code, output, _ = fleet(capsys, files[0], "-o", "json", "--scheduler", "blind", "--jobs", "1")
    assert (code, json.loads(output)["schedulers"][0]["placed"]) == (1, 10)


def test_what_is_left_out_is_noted(capsys: pytest.CaptureFixture[str], files: list[str]) -> None:
    Path(files[1]).write_text(SMALL + "".join(f"\n---\n{{kind: Service, metadata: {{name: s{n}}}}}" for n in range(12)))
    _, _, errors = fleet(capsys, *files, "--jobs", "1")
    assert errors.startswith(f"pinfold: note: {files[1]}: document 2: skipped Service s0: it contains no pods")
    assert errors.endswith("pinfold: note: and 2 more\n")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--seed", "-1"], '--seed: "-1" is not a whole number from 0 to'),
        (["--jobs", "0"], '--jobs: "0" is not a whole number from 1 to 256'),
        (["--retries", "x"], '--retries: "x" is not a whole number from 0 to 100'),
        (["--jobs", "2", "--dask", "tcp://a:1"], "not allowed with argument"),
        (["--scheduler", "fast"], '--scheduler: "fast" is unknown; allowed: blind, aware, both'),
    ],
)
def test_a_wrong_call_is_exit_code_2(
    capsys: pytest.CaptureFixture[str], files: list[str], arguments: list[str], problem: str
) -> None:
    code, _, errors = fleet(capsys, *files, *arguments)
    assert code == 2
    assert problem in errors


@pytest.mark.parametrize(
    ("fleet_text", "pods", "problem"),
    [
        (FLEET, "", "pods.yaml: is empty; Kubernetes YAML or JSON with pods is expected"),
        (FLEET, "{kind: Service, metadata: {name: web}}", "no pods; name a file of pods, or add workloads to"),
        (FLEET, SMALL.replace("500", "4500000") + "\n---\n" + LARGE.replace("3", "4500000"), "9,000,000 pods are more"),
        (FLEET, "kind: [", "pods.yaml: document 1: line 1"),
        ("nodes: [{name: a}]", SMALL, "fleet.yaml: nodes[0].count: missing"),
        ("nodes: [{name: a, count: 1, machineFile: gone}]", SMALL, "gone: No such file or directory"),
    ],
)
def test_each_problem_of_unusable_files_is_one_line_with_the_place(
    capsys: pytest.CaptureFixture[str], files: list[str], fleet_text: str, pods: str, problem: str
) -> None:
    Path(files[0]).write_text(fleet_text)
    Path(files[1]).write_text(pods)
    code, _, errors = fleet(capsys, *files)
    assert (code, errors.count("pinfold: error: ")) == (2, errors.count("\n"))
    assert problem in errors


def test_a_file_that_is_not_there_or_not_text_is_named(
    capsys: pytest.CaptureFixture[str], files: list[str], tmp_path: Path
) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name, problem in (("none", "No such file or directory"), ("binary", "is not text"), ("", "Is a directory")):
        code, _, errors = fleet(capsys, files[0], str(tmp_path / name))
        assert code == 2
        assert errors.startswith(f"pinfold: error: {tmp_path / name}: {problem}")


def test_a_kubelets_limits_are_checked_when_asked_for(capsys: pytest.CaptureFixture[str], files: list[str]) -> None:
    many = FLEET.replace("sockets:2,cores:8", "sockets:2,numa:8,cores:2").replace("220", "1")
    Path(files[0]).write_text(many)
    assert fleet(capsys, *files, "--jobs", "1")[0] == 1
    code, _, errors = fleet(capsys, *files, "--as", "kubelet")
    assert code == 2
    assert 'node type "small": unsupported on machines with more than 8 NUMA Nodes' in errors


def test_without_dask_the_error_says_what_to_install(files: list[str]) -> None:
    script = "import sys; sys.modules['distributed'] = None; from pinfold.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", script, "fleet", *files, "--dask", "tcp://127.0.0.1:8786"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "pinfold: error: --dask needs the package distributed: pip install 'pinfold[dask]'\n"


def test_the_example_is_a_fleet_of_the_size_it_says() -> None:
    found, notes = read_fleet(str(EXAMPLES / "fleet.yaml"), [str(EXAMPLES / "fleet-pods.yaml")])
    assert (found.nodes, found.pods, found.containers, notes) == (5000, 168_500, 228_500, [])


def test_the_example_made_small_places_most_pods() -> None:
    found, _ = read_fleet(str(EXAMPLES / "fleet.yaml"), [str(EXAMPLES / "fleet-pods.yaml")])
    few = found._replace(workloads=tuple(each._replace(replicas=each.replicas // 1000) for each in found.workloads))
    assert all(outcome.placed == few.pods for outcome in plan_fleet(few))
