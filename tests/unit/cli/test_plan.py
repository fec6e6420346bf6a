from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from io import StringIO
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from pinfold.cli.main import main
from pinfold.cli.output.progress import Bar, shown
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.pods.pod import PodUID
from pinfold.core.state import State
from pinfold.formats.kubelet.checkpoint import format_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[..., tuple[int, str, str]]

EXAMPLES = Path(__file__).parents[3] / "examples" / "pods"
TRADING, DATABASE = str(EXAMPLES / "trading.yaml"), str(EXAMPLES / "database.yaml")
EPYC = ("--preset", "epyc-7303-2s")
POD = """
kind: Pod
metadata: {{name: {name}}}
spec: {{containers: [{{name: app, resources: {{limits: {{cpu: "{cpus}", memory: 1Gi}}}}}}]}}
"""
KUBELET = """
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
cpuManagerPolicyOptions: {full-pcpus-only: "true"}
reservedSystemCPUs: "0,32"
topologyManagerPolicy: single-numa-node
"""


@pytest.fixture
def plan(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return what runs `pinfold plan`: exit code, stdout and stderr."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(*args: str | Path) -> tuple[int, str, str]:
        code = main(["plan", *map(str, args)])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def pods(directory: Path, **sizes: int) -> Path:
    path = directory / "pods.yaml"
    path.write_text("---".join(POD.format(name=name, cpus=cpus) for name, cpus in sizes.items()))
    return path


def placements(text: str) -> dict[str, str | None]:
    return {row["pod"]: row["cpus"] for row in json.loads(text)["placements"]}


def test_pods_that_fit_end_with_0(plan: Run) -> None:
    code, out, err = plan(DATABASE, *EPYC)
    assert (code, err) == (0, "")
    assert re.search(r"postgres/server +Guaranteed +2-9,34-41 +8 +0-2\* +0 +0", out)
    assert "5 pods: all fit" in out


def test_a_refused_pod_ends_with_1(plan: Run) -> None:
    code, out, _ = plan(TRADING, *EPYC)
    assert code == 1
    assert "10 pods: 9 fit, 1 refused" in out


def test_several_files_are_planned_in_order(plan: Run, tmp_path: Path) -> None:
    code, out, _ = plan(pods(tmp_path, first=2), DATABASE, *EPYC, "-o", "json")
    assert code == 0
    assert next(iter(placements(out).items())) == ("first", "1,33")


def test_files_may_come_after_options_too(plan: Run) -> None:
    assert plan(DATABASE, *EPYC, TRADING) == plan(*EPYC, DATABASE, TRADING)
    assert "unknown option --polcy" in plan(DATABASE, "--polcy", "static")[2]


def test_the_problems_of_all_files_are_listed(plan: Run, tmp_path: Path) -> None:
    names = [tmp_path / name for name in ("syntax.yaml", "missing.yaml", "empty.yaml")]
    names[0].write_text("a: b: c\n---\nd: *e\n")
    names[2].write_text("")
    code, out, err = plan(*map(str, names))
    assert (code, out) == (2, "")
    assert [line.rpartition("/")[2].partition(": ")[0] for line in err.splitlines()] == [
        "syntax.yaml",
        "syntax.yaml",
        "missing.yaml",
        "empty.yaml",
    ]


def test_pods_are_read_from_stdin() -> None:
    command = [sys.executable, "-m", "pinfold", "plan", "-", *EPYC]
    done = subprocess.run(command, input=POD.format(name="a", cpus=2), capture_output=True, text=True, check=True)
    assert "a/app" in done.stdout


def test_a_kubelet_configuration_is_taken_as_it_is(plan: Run, tmp_path: Path) -> None:
    (tmp_path / "kubelet.yaml").write_text(KUBELET)
    code, out, _ = plan(pods(tmp_path, a=3), *EPYC, "--config", tmp_path / "kubelet.yaml")
    assert code == 1
    assert "policy static · full-pcpus-only ·\ntopology manager single-numa-node (container scope)" in out
    assert "Would fit with 2 or 4 CPUs." in out.replace("\n ", "")


def test_flags_are_those_of_the_daemon_and_of_a_kubelet(plan: Run, tmp_path: Path) -> None:
    code, out, _ = plan(
        pods(tmp_path, a=2),
        *EPYC,
        "--reserved-cpus=0-3",
        "--cpu-manager-policy-options=strict-cpu-reservation=true",
        "--policy-options=prefer-align-cpus-by-uncorecache=true",
        "--topology-manager-policy=restricted",
        "-o",
        "json",
    )
    assert code == 0
    data = json.loads(out)
    assert data["pools"]["reserved"] == "0-3"
    assert data["node"]["options"] == {"strict-cpu-reservation": "true", "prefer-align-cpus-by-uncorecache": "true"}
    assert data["node"]["topology_policy"] == "restricted"


def test_yaml_svg_and_html_are_written(plan: Run) -> None:
    assert yaml.safe_load(plan(DATABASE, *EPYC, "-o", "yaml")[1])["summary"]["pods"] == 5
    assert plan(DATABASE, *EPYC, "-o", "svg")[1].startswith("<svg")
    page = plan(DATABASE, *EPYC, "-o", "html")[1]
    assert page.startswith("<!DOCTYPE html>")
    assert "<svg" in page


def test_as_a_kubelet_decides_it_warns_where_that_is_unsound(plan: Run) -> None:
    args = (TRADING, "--preset", "i7-12850hx", "--policy-options", "full-pcpus-only=true")
    _, out, err = plan(*args, "--as", "kubelet")
    assert "as a kubelet decides" in out
    assert "engine-0/engine: this kubelet's answer is unsound (average-size)" in err
    assert not plan(*args)[2]


def state_file(directory: Path) -> Path:
    cpus = CPUSet.parse("1-3,33-35")
    state = State(CPUSet.parse("0-63") - cpus, {PodUID("old-uid"): {"app": cpus}})
    path = directory / "cpu_manager_state"
    path.write_text(format_checkpoint("static", state))
    return path


def test_a_state_file_is_where_it_starts(plan: Run, tmp_path: Path) -> None:
    code, out, _ = plan(pods(tmp_path, a=2), *EPYC, "--state", state_file(tmp_path), "-o", "json")
    assert code == 0
    assert placements(out) == {"a": "4,36"}
    assert json.loads(out)["pools_before"]["exclusive"] == "1-3,33-35"


def test_names_in_a_state_file_cannot_speak_to_the_terminal_or_the_page(plan: Run, tmp_path: Path) -> None:
    hostile = PodUID("\x1b[31m<script>alert(1)</script>\N{RIGHT-TO-LEFT OVERRIDE}")
    cpus = CPUSet.parse("1-31")
    path = tmp_path / "cpu_manager_state"
    path.write_text(format_checkpoint("static", State(CPUSet.parse("0,32-63"), {hostile: {"app": cpus}})))
    args = (pods(tmp_path, big=40), *EPYC, "--state", path)
    code, table, _ = plan(*args)
    assert code == 1
    assert "x1b[31m<script>" in table
    assert all(sign.isprintable() or sign == "\n" for sign in table)
    page = plan(*args, "-o", "html")[1]
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert "\x1b" not in plan(*args, "-o", "svg")[1]


def test_a_pod_of_the_state_can_be_left_out(plan: Run, tmp_path: Path) -> None:
    args = (pods(tmp_path, a=2), *EPYC, "--state", state_file(tmp_path), "--without", "old-uid", "-o", "json")
    assert placements(plan(*args)[1]) == {"a": "1,33"}


def test_a_state_alone_can_be_looked_at(plan: Run, tmp_path: Path) -> None:
    code, out, _ = plan(*EPYC, "--state", state_file(tmp_path))
    assert code == 0
    assert "1-3,33-35" in out


def test_what_ifs_change_the_pods(plan: Run) -> None:
    whatif = ("--without", "logs", "--replicas", "web=4", "--resize", "postgres/server=8", "-o", "json")
    rows = json.loads(plan(DATABASE, *EPYC, *whatif)[1])["placements"]
    assert {row["pod"] for row in rows} == {"postgres", "web-0", "web-1", "web-2", "web-3"}
    assert next(row["wanted"] for row in rows if row["container"] == "server") == 8


def test_options_are_compared_side_by_side(plan: Run) -> None:
    code, out, _ = plan(TRADING, *EPYC, "--options", "", "--options", "full-pcpus-only,strict-cpu-reservation=true")
    assert code == 1
    assert re.search(r"A +no options +9 +1 ", out)
    assert re.search(r"B +full-pcpus-only, +5 +5 .*\n +strict-cpu-reservation\n", out)
    assert max(map(len, out.splitlines())) <= 80


def test_machines_are_compared_side_by_side(plan: Run) -> None:
    code, out, _ = plan(DATABASE, *EPYC, "--preset", "laptop-4", "-o", "json")
    assert code == 0  # one of them takes all pods
    assert [row["summary"]["refused"] for row in json.loads(out)["variants"]] == [0, 4]


def test_recommended_settings_open_only_the_gates_that_they_need(plan: Run) -> None:
    out = plan(TRADING, *EPYC, "--recommend")[1]
    assert '  prefer-align-cpus-by-uncorecache: "true"\n' in out
    assert "featureGates" not in out
    assert (
        "featureGates:\n  PodLevelResources: true"
        in plan(TRADING, *EPYC, "--recommend", "--feature-gates", "PodLevelResources=true")[1]
    )


def test_the_best_options_are_recommended(plan: Run) -> None:
    code, out, _ = plan(DATABASE, *EPYC, "--recommend")
    assert code == 0
    assert "best: prefer-align-cpus-by-uncorecache" in out
    assert "tried 98 settings" in out


def test_orders_are_tried_and_the_seed_decides(plan: Run) -> None:
    code, out, err = plan(TRADING, *EPYC, "--orders", "50")
    assert (code, err) == (1, "")
    assert "50 orders of 10 pods, seed 1" in out
    assert plan(TRADING, *EPYC, "--orders", "50")[1] == out
    assert plan(TRADING, *EPYC, "--orders", "50", "--seed", "2")[1] != out


def test_a_trace_is_lived_through_on_another_machine(plan: Run, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("time,event,pod,cpu,memory\n0,add,a,40,1Gi\n60,add,b,40,1Gi\n90,remove,a\n120,add,b2,20,1Gi\n")
    code, out, _ = plan("--trace", trace, *EPYC)
    assert code == 1
    assert re.search(r"1m00s +b +UnexpectedAdmissionError", out)
    assert plan("--trace", trace, "--preset", "epyc-9754")[0] == 0
    assert plan("--trace", trace, *EPYC, "-o", "html")[1].startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ((), "no pods: name files with pods"),
        (("/nope.yaml",), "/nope.yaml: No such file or directory"),
        ((DATABASE, DATABASE), 'pod "default/postgres" is in'),
        ((DATABASE, "--preset", "nope"), "--preset: unknown machine"),
        ((DATABASE, "--without", "nope"), '--without: no pod "nope"; there are logs, postgres, web-0'),
        ((DATABASE, "--replicas", "web"), "--replicas: expected POD=N with N from 0 to 10,000"),
        ((DATABASE, "--replicas", "web=99999999999999999999"), "--replicas: expected POD=N"),
        ((DATABASE, "--resize", "postgres=2"), "--resize: expected POD/CONTAINER=N"),
        ((DATABASE, "--resize", "postgres/nope=2"), '--resize: no container of pod "postgres" called "nope"'),
        ((DATABASE, "--resize", "postgres/server=0"), "--resize: expected POD/CONTAINER=N with N from 1"),
        ((DATABASE, "--options", "nope=true"), '--options "nope=true": unknown CPU Manager Policy option'),
        ((DATABASE, "--options", "=true"), "--options: expected NAME=VALUE"),
        ((DATABASE, "--options", "full-pcpus-only=perhaps"), "--options"),
        ((DATABASE, "--policy-options", "nope=true"), "--policy-options: unknown CPU Manager Policy option"),
        ((DATABASE, "--reserved-cpus", "0-99"), "--reserved-cpus: CPUs 64-99 are not online"),
        ((DATABASE, "--recommend", "--options", "", "--options", ""), "--recommend is about one node"),
        ((DATABASE, "--recommend", "--policy", "none"), "--recommend compares options of policy static"),
        ((DATABASE, "--orders", "3", "-o", "svg"), "-o svg shows one plan: it does not go with --orders"),
        ((DATABASE, "--options", "", "--options", "", "-o", "html"), "does not go with a comparison"),
        ((DATABASE, "--local-memory"), "--local-memory needs the memory of each NUMA node"),
        ((DATABASE, "--trace", DATABASE), "--trace has its own pods"),
        (("--trace", DATABASE), "line 1: no column"),
        ((DATABASE, "--state", DATABASE), "database.yaml: "),
        ((DATABASE, "--config", DATABASE), "database.yaml"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(plan: Run, args: tuple[str, ...], problem: str) -> None:
    code, out, err = plan(*args, *(EPYC if "--preset" not in args else ()))
    assert (code, out) == (2, "")
    assert problem in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "text", ["a: [", "kind: Pod\nmetadata: {name: A}\n", "\0", "\ud83d".encode("utf-8", "surrogatepass")]
)
def test_pods_that_cannot_be_read_are_told_with_their_file(plan: Run, tmp_path: Path, text: str | bytes) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    code, _, err = plan(path, *EPYC)
    assert code == 2
    assert f"{path}: " in err


def test_a_state_of_another_machine_is_told(plan: Run, tmp_path: Path) -> None:
    code, _, err = plan(DATABASE, "--preset", "laptop-4", "--state", state_file(tmp_path))
    assert code == 2
    assert "cpu_manager_state: reserved CPUs 2 are not in the shared pool" in err


def test_objects_without_pods_are_ignored_with_a_note(plan: Run, tmp_path: Path) -> None:
    path = tmp_path / "mixed.yaml"
    path.write_text(f"kind: Service\nmetadata: {{name: s}}\n---{POD.format(name='a', cpus=2)}")
    code, _, err = plan(path, *EPYC)
    assert code == 0
    assert "pinfold: warning: ignored:" in err


def test_in_a_pipe_there_is_no_colour_and_an_ascii_terminal_gets_ascii() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "80"}
    done = subprocess.run(
        [sys.executable, "-m", "pinfold", "plan", TRADING, *EPYC], capture_output=True, env=environment, check=False
    )
    assert done.returncode == 1
    assert done.stdout.isascii()
    assert b"\x1b" not in done.stdout
    assert not done.stderr


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_long_work_shows_a_bar_and_wipes_it() -> None:
    terminal, clock = Terminal(), count(0)
    assert list(shown(range(4), 4, "trying", terminal, lambda: next(clock))) == [0, 1, 2, 3]
    assert "trying [#######" in terminal.getvalue()
    assert "4/4 100% · 1.0/s · 0 s left" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_bar_never_leaves_its_line(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    terminal, clock = Terminal(), count(0)
    bar = Bar("placing pods", 337_000, terminal, lambda: next(clock))
    bar.show(17_950)
    drawn = terminal.getvalue().removeprefix("\r").removesuffix("\x1b[K")
    assert len(drawn) < width
    assert drawn.startswith("placing pods ")


def test_short_work_shows_nothing() -> None:
    terminal = Terminal()
    assert list(shown(range(4), 4, "trying", terminal, lambda: 0.0)) == [0, 1, 2, 3]
    assert not terminal.getvalue()


def test_without_a_terminal_there_is_no_bar() -> None:
    stream, clock = StringIO(), count(0)
    assert list(shown(range(4), 4, "trying", stream, lambda: next(clock))) == [0, 1, 2, 3]
    assert not stream.getvalue()


_SCATTERED = """\
apiVersion: v1
kind: Pod
metadata: {name: first}
spec: {containers: [{name: app, image: x, resources: {limits: {cpu: 4, memory: 1Gi}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: wide, annotations: {}}
spec: {containers: [{name: app, image: x, resources: {limits: {cpu: 5, memory: 1Gi}}}]}
"""


def test_repack_shows_which_containers_would_move_and_what_it_brings(plan: Run, tmp_path: Path) -> None:
    (tmp_path / "pods.yaml").write_text(_SCATTERED)
    node = (tmp_path / "pods.yaml", "--preset", "l3:2,cores:8", "--reserved-cpus", "0", "--repack")
    code, out, _ = plan(*node)
    assert code == 0
    assert "1. wide/app: CPUs 5-9 -> 8-12 (cost 1 NUMA node, 2 L3 -> 1 NUMA node, 1 L3)" in out
    _, text, _ = plan(*node, "-o", "json")
    assert [move["cpus"] for move in json.loads(text)["repack"]["moves"]] == ["8-12"]


def test_repack_leaves_pods_alone_that_are_not_movable(plan: Run, tmp_path: Path) -> None:
    (tmp_path / "pods.yaml").write_text(_SCATTERED.replace("{}}", '{pinfold.dev/movable: "false"}}'))
    _, out, _ = plan(tmp_path / "pods.yaml", "--preset", "l3:2,cores:8", "--reserved-cpus", "0", "--repack")
    assert "Repack: no move lowers the cost" in out


@pytest.mark.parametrize("more", [("--policy", "none"), ("--preset", "cores:4")], ids=["no policy", "two nodes"])
def test_repack_is_about_one_node_with_exclusive_cpus(plan: Run, tmp_path: Path, more: tuple[str, ...]) -> None:
    (tmp_path / "pods.yaml").write_text(_SCATTERED)
    code, _, problem = plan(tmp_path / "pods.yaml", "--preset", "l3:2,cores:8", "--repack", *more)
    assert code == 2
    assert "none can move" in problem or "one node" in problem


MISSED = """
kind: Pod
metadata: {name: kafka}
spec:
  initContainers: [{name: volume-permissions}]
  containers: [{name: kafka, resources: {limits: {cpu: 8, memory: 1Gi}}}]
"""


def test_missed_pinning_is_never_silent(plan: Run, tmp_path: Path) -> None:
    file = tmp_path / "kafka.yaml"
    file.write_text(MISSED)
    code, out, err = plan(file, *EPYC)
    assert code == 0
    assert "1 container asking for 1 CPU or more will share" in out
    assert "kafka/kafka asks for 8 whole CPUs but will share: init container volume-permissions has no limits" in err
    row = json.loads(plan(file, *EPYC, "-o", "json")[1])["missed"][0]
    assert (row["pod"], row["container"]) == ("kafka", "kafka")


def test_strict_makes_missed_pinning_an_error(plan: Run, tmp_path: Path) -> None:
    file = tmp_path / "kafka.yaml"
    file.write_text(MISSED)
    code, _, err = plan(file, *EPYC, "--strict")
    assert code == 1
    assert err.startswith("pinfold: error: kafka/kafka asks for 8 whole CPUs but will share: ")
    assert plan(DATABASE, *EPYC, "--strict")[0] == 0


def test_a_misspelt_field_is_named_with_what_was_meant(plan: Run, tmp_path: Path) -> None:
    file = tmp_path / "web.yaml"
    file.write_text("{kind: Pod, metadata: {name: web}, spec: {containers: [{name: app, resource: {}}]}}")
    _, _, err = plan(file, *EPYC)
    assert "spec.containers[0].resource: unknown and ignored; was resources meant?" in err
    assert plan(file, *EPYC, "--strict")[0] == 1
    kubelet = tmp_path / "kubelet.yaml"
    kubelet.write_text(KUBELET.replace("cpuManagerPolicy:", "cpuManagerPolcy:"))
    assert (
        "cpuManagerPolcy: unknown and ignored; was cpuManagerPolicy meant?" in plan(file, *EPYC, "--config", kubelet)[2]
    )
    kubelet.write_text(f"{KUBELET.split('cpuManagerPolicy', 1)[0]}cpuManagerPolcy: static\n")
    code, _, err = plan(DATABASE, *EPYC, "--config", kubelet, "--strict")
    assert code == 1
    assert "pinfold: error: " in next(line for line in err.splitlines() if "cpuManagerPolcy" in line)


def test_strict_is_an_error_where_the_policy_pins_nothing(plan: Run) -> None:
    code, _, err = plan(DATABASE, *EPYC, "--policy", "none", "--strict")
    assert code == 1
    assert "pinfold: error: policy none gives no container exclusive CPUs, but pods ask for them" in err
    assert plan(DATABASE, *EPYC, "--policy", "none")[0] == 0


def test_an_empty_file_is_a_mistake(plan: Run, tmp_path: Path) -> None:
    file = tmp_path / "empty.yaml"
    file.write_text("# nothing yet\n---\n")
    code, _, err = plan(file, *EPYC)
    assert code == 2
    assert err == f"pinfold: error: {file}: is empty; Kubernetes YAML or JSON with pods is expected\n"


def test_a_plan_says_which_hints_it_does_not_know(plan: Run, tmp_path: Path) -> None:
    file, kubelet = tmp_path / "gpu.yaml", tmp_path / "kubelet.yaml"
    limits = "{cpu: 2, memory: 1Gi, nvidia.com/gpu: 1, hugepages-2Mi: 4Mi}"
    file.write_text(
        f"{{kind: Pod, metadata: {{name: gpu}}, spec: {{containers: [{{name: a, resources: {{limits: {limits}}}}}]}}}}"
    )
    said = "a kubelet has NUMA hints for nvidia.com/gpu, hugepages-2Mi; this plan does not know them"
    assert said in plan(file, *EPYC, "--topology-manager-policy", "best-effort")[2]
    assert said not in plan(file, *EPYC)[2]
    kubelet.write_text(KUBELET + "memoryManagerPolicy: Static\n")
    assert "memoryManagerPolicy: a kubelet also has NUMA hints for memory" in plan(file, *EPYC, "--config", kubelet)[2]
