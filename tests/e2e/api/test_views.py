"""What a daemon shows over TCP agrees with the disk, with the kernel, and with its other answers."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

import pinfold
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.layout import layout_data
from pinfold.formats.machine.topologyjson import parse_topology_json
from tests.e2e.api.client import MACHINE
from tests.e2e.daemon import allowed, container, pod

if TYPE_CHECKING:
    from tests.e2e.api.client import Web
    from tests.e2e.daemon import Daemon


def test_pools_are_those_of_get_and_of_the_state_file(node: Daemon, seen: Web) -> None:
    pools = seen.get("pools")
    own = {"offline": pools["offline"], "isolated": pools["isolated"]}
    assert json.loads(node.say("get", "pools", "-o", "json").stdout) | own == pools
    state = node.state()
    assert (CPUSet.parse(pools["shared"]), CPUSet.parse(pools["exclusive"])) == (state.shared, state.exclusive)
    assert CPUSet.parse(pools["assignable"]) == state.shared - CPUSet.parse(pools["reserved"])
    assert state.check(CPUSet.parse(pools["online"])) == []


def test_containers_are_those_of_the_control_socket_and_of_get(node: Daemon, seen: Web) -> None:
    rows = seen.get("containers")
    told = node.measured()
    assert [row | {"exclusivity": None} for row in rows] == [row | {"exclusivity": None} for row in told]
    shown = json.loads(node.say("get", "-o", "json").stdout)
    assert [(row["pod"], row["cpus"] if row["exclusive"] else "shared", row["pid"]) for row in rows] == [
        (row["pod"], row["cpus"], row["pid"]) for row in shown
    ]
    assert {(row["pod"], row["container"], row["exclusive"]) for row in rows} == {
        ("web", "app", True),
        ("db", "sql", False),
    }


def test_exclusive_cpus_are_those_of_the_state_file_and_of_the_kernel(node: Daemon, seen: Web) -> None:
    state, uids = node.state(), {row["name"]: row["uid"] for row in seen.get("pods")}
    for row in seen.get("containers"):
        assert (row["cpus"] == str(state.cpus(uids[row["pod"]], row["container"]))) is row["exclusive"]
        assert row["cpus"] == row["allowed"]
        assert allowed(row["pid"]) in (set(), {row["cpus"]})  # nothing, where nothing really runs


def test_own_cpus_come_with_their_alignment_and_all_come_with_a_reason(seen: Web) -> None:
    rows = {row["pod"]: row for row in seen.get("containers")}
    fewest = dict.fromkeys(("cores", "uncore_caches", "numa_nodes", "sockets"), 1)
    assert rows["web"]["alignment"] == fewest | {"fewest": fewest}
    assert rows["db"]["alignment"] is None
    assert "took " in rows["web"]["why"]
    assert "not Guaranteed" in rows["db"]["why"]


def test_topology_is_that_of_the_command_line_and_of_the_control_socket(node: Daemon, seen: Web) -> None:
    topology = seen.get("topology")
    assert topology == node.client.get("/v1/topology")
    if "simulated" in node.options:
        assert topology == json.loads(node.say("topology", "--preset", MACHINE, "-o", "json").stdout)


def test_layout_is_of_the_topology(seen: Web) -> None:
    topology = parse_topology_json(json.dumps(seen.get("topology")))
    assert seen.get("layout") == layout_data(topology)


def test_pods_are_those_of_the_control_socket_and_of_get(node: Daemon, seen: Web) -> None:
    pods = seen.get("pods")
    assert pods == node.client.get("/v1/pods")
    shown = json.loads(node.say("get", "pods", "-o", "json").stdout)
    assert [(row["name"], row["qos"], row["kind"]) for row in pods] == [
        (row["pod"], row["qos"], row["kind"]) for row in shown
    ]
    assert {row["name"]: row["containers"] for row in pods} == {"web": ["app"], "db": ["sql"]}


def test_config_is_that_of_the_control_socket_and_of_the_running_daemon(node: Daemon, seen: Web) -> None:
    config = seen.get("config")
    assert config == node.client.get("/v1/config")
    about = node.client.get("/v1/node")
    assert {name: config[name] for name in config.keys() & about.keys()} == {
        name: about[name] for name in config.keys() & about.keys()
    }
    assert (config["version"], config["policy"], config["pid"]) == (pinfold.__version__, "static", node.pid)
    assert config["link"]["state"] == "connected"


def test_what_pods_run_is_not_shown(node: Daemon, seen: Web) -> None:
    secret = "hunter2"  # noqa: S105 - one that must not be found
    host_pod = pod("secretive", container("sleep 1000", more=f"env: [{{name: PASSWORD, value: {secret}}}]"))
    node.apply(host_pod)
    said = json.dumps([seen.get(what) for what in ("history", "containers", "pods", "config")])
    assert "secretive" in said
    assert secret not in said
    assert "sleep 1000" not in said
    node.delete("secretive")


def test_unknown_names_and_wrong_questions_get_a_reason(seen: Web) -> None:
    cases = {
        "nothing": 404,
        "explain?container=nobody/app": 404,
        "explain?container=a/b/c/d": 400,
        "explain": 400,
        "history?since=yesterday": 400,
        "history?limit=0": 400,
        "history?limit=10001": 400,
        "history?cpu=-1": 400,
        "history?what=%3Cimg%3E": 400,
        "at?time=nan": 400,
        "at?time=inf": 400,
        "at?time=%FF": 400,
    }
    answers = {what: seen.ask(f"/api/v1/{what}") for what in cases}
    assert {what: answer.status for what, answer in answers.items()} == cases
    for answer in answers.values():
        assert answer.data.keys() == {"reason", "message"}
        assert len(answer.body) < 500
    for path in (
        "/api",
        "/api/v1",
        "/api/v1/pools/x",
        "/v1/node",
        "/v1/pods",
        "/static/nothing",
        "/static/..%2Fapi.py",
    ):
        assert seen.ask(path).status == 404, path


def test_metrics_are_of_the_same_state_in_both_formats(node: Daemon, seen: Web) -> None:
    plain = seen.ask("/metrics")
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    openmetrics = seen.ask("/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")
    pools = {name: len(CPUSet.parse(text)) for name, text in seen.get("pools").items()}
    both = (parse_text(plain.body.decode()), parse_openmetrics(openmetrics.body.decode()))  # type: ignore[no-untyped-call] # has no types
    for families in both:
        samples = {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}
        assert {name: samples["pinfold_pool_cpus", name] for name in pools} == pools
        assert samples["kubelet_cpu_manager_exclusive_cpu_allocation_count",] == len(node.state().exclusive)
        assert samples["kubelet_cpu_manager_pinning_errors_total",] == 1
        assert samples["pinfold_overlap_seconds_total",] == 0
        assert samples["pinfold_refusals_total", "UnexpectedAdmissionError"] == 1


def test_the_page_may_run_only_its_own_scripts(seen: Web) -> None:
    page = seen.ask("/")
    assert page.status == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    names = re.findall(r'(?:src|href)="/?(static/[^"]+)"', page.body.decode())
    assert names
    assert {seen.ask(f"/{name}").status for name in names} == {200}


def test_every_answer_is_as_it_is_for_all_who_look(seen: Web) -> None:
    for path in ("/", "/metrics", "/healthz", "/readyz", "/openapi.json", "/api/v1/pools", "/nothing"):
        whole, head = seen.ask(path), seen.ask(path, method="HEAD")
        assert (head.status, head.body) == (whole.status, b"")
        assert whole.headers["cache-control"] == "no-store"
        assert whole.headers["x-content-type-options"] == "nosniff"
        assert not {name for name in whole.headers if name.startswith("access-control")}
    assert [seen.ask(path).body for path in ("/healthz", "/readyz")] == [b"ok\n", b"ok\n"]
