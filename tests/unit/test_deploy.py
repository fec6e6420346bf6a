"""The dashboard and the alert rules name only what exists; Prometheus's own tool checks the rest."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import preset
from pinfold.core.moving import resizing, running
from pinfold.core.snapshot import Snapshot
from pinfold.core.state import State
from pinfold.errors import AdmissionError
from pinfold.serve.metrics.counters import Counters
from pinfold.serve.metrics.metrics import Metrics
from pinfold.serve.metrics.table import OURS, REASONS, TABLE, names
from tests.needs import lacking

if TYPE_CHECKING:
    from collections.abc import Iterator

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
RULES = DEPLOY / "prometheus/alerts.yaml"
RULE_TESTS = DEPLOY / "prometheus/alerts.test.yaml"
DASHBOARD = DEPLOY / "grafana/pinfold.json"
CACHE = Path.home() / ".cache/pinfold-lab/promtool"

_SERIES = re.compile(r"\b((?:kubelet|pinfold)_[a-z0-9_]+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'([a-z_]+)\s*=~?\s*"([^"]*)"')
_BY = re.compile(r"\b(?:by|ignoring|on)\s*\(([^)]*)\)")
# What Prometheus adds to every series, and to those of a histogram.
_ADDED = {"instance", "job", "le"}


def panels() -> list[dict[str, Any]]:
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


def alerts() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def expressions() -> list[str]:
    queries = [target["expr"] for panel in panels() for target in panel["targets"]]
    variables = [variable["query"] for variable in json.loads(DASHBOARD.read_text())["templating"]["list"]]
    asked = [query["query"] for query in variables if isinstance(query, dict)]
    return [*queries, *asked, *(rule["expr"] for rule in alerts())]


def labels_of(series: str) -> dict[str, tuple[str, ...]]:
    for metric in TABLE:
        if series in {f"{metric.full_name()}{end}" for end in metric.series}:
            return {label.name: label.values for label in metric.labels}
    raise AssertionError(series)


@pytest.mark.parametrize("expression", expressions())
def test_every_series_and_label_that_is_named_exists(expression: str) -> None:
    found = _SERIES.findall(expression)
    assert found
    known: set[str] = set(_ADDED)
    for series, matchers in found:
        assert series in names()
        labels = labels_of(series)
        known |= labels.keys()
        for label, value in _MATCHER.findall(matchers):
            assert label in labels.keys() | _ADDED
            assert label in _ADDED or set(value.split("|")) <= set(labels[label])
    for group in _BY.findall(expression):
        assert {label.strip() for label in group.split(",")} <= known


def test_dashboard_shows_what_operators_ask_for() -> None:
    shown = {
        series for panel in panels() for target in panel["targets"] for series, _ in _SERIES.findall(target["expr"])
    }
    assert {
        "pinfold_pool_cpus",
        "kubelet_cpu_manager_allocation_per_numa",
        "pinfold_refusals_total",
        "pinfold_drift_repairs_total",
        "pinfold_decision_duration_seconds_bucket",
        "pinfold_apply_duration_seconds_bucket",
    } <= shown
    (overlap,) = [panel for panel in panels() if panel["title"] == "Overlap"]
    assert overlap["type"] == "stat"
    steps = overlap["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert [step["color"] for step in steps] == ["green", "red"]
    assert 0 < steps[1]["value"] < 0.001


def test_panels_stand_beside_each_other_and_have_ids_of_their_own() -> None:
    everything = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in everything}) == len(everything)
    taken: set[tuple[int, int]] = set()
    for panel in everything:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken
        taken |= cells


def test_dashboard_asks_no_other_data_source() -> None:
    for panel in panels():
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == panel["datasource"]["uid"] == "${datasource}"


def test_alerts_are_there_for_everything_that_breaks_a_promise() -> None:
    assert {rule["alert"] for rule in alerts()} >= {
        "PinfoldOverlap",
        "PinfoldRefusals",
        "PinfoldDriftRepeated",
        "PinfoldUnpinned",
        "PinfoldStateNotSaved",
        "PinfoldRuntimeDisconnected",
        "PinfoldPoolAlmostEmpty",
        "PinfoldTwoManagers",
    }
    for rule in alerts():
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert set(rule["annotations"]) == {"summary", "description"}
        assert OURS in rule["expr"]


def test_reasons_of_refusals_are_those_that_the_core_has() -> None:
    pods = [kind for kind in _kinds(AdmissionError) if kind.__module__ not in {resizing.__name__, running.__name__}]
    assert {kind.reason for kind in pods} == set(REASONS[:-1])


def _kinds(kind: type[AdmissionError]) -> Iterator[type[AdmissionError]]:
    yield kind
    for one in kind.__subclasses__():
        yield from _kinds(one)


# -- with Prometheus's own tool


def promtool() -> str:
    """Return the tool: the system's, or that of Debian's package, unpacked once and not installed."""
    if found := shutil.which("promtool"):
        return found
    tool = CACHE / "usr/bin/promtool"
    if not tool.exists():
        _unpack("prometheus", CACHE)
    if not tool.exists():
        lacking("promtool, of Debian's package prometheus")
    return str(tool)


def _unpack(package: str, directory: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        return
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        try:
            subprocess.run(["apt-get", "download", package], cwd=work, check=True, capture_output=True, timeout=120)
            for archive in Path(work).glob("*.deb"):
                subprocess.run(["dpkg", "-x", archive, directory], check=True, capture_output=True, timeout=120)
        except (subprocess.SubprocessError, OSError):
            return


def run_promtool(*arguments: str | Path, stdin: bytes = b"") -> str:
    done = subprocess.run([promtool(), *arguments], input=stdin, capture_output=True, check=False, timeout=120)
    output = (done.stdout + done.stderr).decode()
    assert done.returncode in {0, 3}, output  # 3: only advice on names
    return output


@pytest.mark.slow
def test_promtool_accepts_the_alert_rules() -> None:
    assert "SUCCESS" in run_promtool("check", "rules", RULES)


@pytest.mark.slow
def test_promtool_accepts_the_queries_of_the_dashboard(tmp_path: Path) -> None:
    asked = [target["expr"] for panel in panels() for target in panel["targets"]]
    filled = [expr.replace("$__rate_interval", "5m").replace("$instance", ".*") for expr in asked]
    rules = [{"record": f"query:{number}", "expr": expr} for number, expr in enumerate(filled)]
    path = tmp_path / "queries.yaml"
    path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(rules)} rules found" in run_promtool("check", "rules", path)


@pytest.mark.slow
def test_alerts_fire_when_they_should_and_not_before() -> None:
    assert "SUCCESS" in run_promtool("test", "rules", RULE_TESTS)


@pytest.mark.slow
def test_promtool_reads_a_scrape_and_finds_fault_only_with_names_that_the_kubelet_chose() -> None:
    machine = preset("epyc-9654-2s")
    admitter = Config("static", reserved=Reservation.of(CPUSet.of(0))).build(machine)
    node = Snapshot(machine, admitter.policy, admitter.policy.start(State.new()))
    body = Metrics(lambda: node, Counters(admitter, now=0.0)).scrape()[1]
    complaints = [line for line in run_promtool("check", "metrics", stdin=body).splitlines() if line]
    assert [line for line in complaints if not line.startswith("kubelet_")] == []
