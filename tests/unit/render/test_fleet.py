from __future__ import annotations

import json

import pytest
import yaml

from pinfold.core.config import Config, Reservation
from pinfold.core.machine.presets import preset
from pinfold.core.pods.pod import Amounts, Container, Pod, PodUID, Resources
from pinfold.planning.fleet import Fleet, FleetScenario, plan_fleet
from pinfold.planning.scheduling import Scheduler
from pinfold.planning.shard import FleetWorkload
from pinfold.planning.sites import NodeType
from pinfold.render.fleet import FleetReport, format_json, format_table, format_yaml


def pod(cpus: int) -> Pod:
    amounts = Amounts(cpus * 1000, 1 << 30)
    return Pod(PodUID(""), "pod", containers=(Container("c", Resources(amounts, amounts)),))


def report(*schedulers: Scheduler, name: str = "small", workloads: int = 1) -> FleetReport:
    config = Config("static", reserved=Reservation(milli=2000), topology_policy="single-numa-node")
    wanted = [FleetWorkload(f"large-{n}", pod(9), 2) for n in range(workloads)]
    types = (NodeType(name, 3, preset("sockets:2,cores:8"), config),)
    fleet = Fleet(types, (*wanted, FleetWorkload("fits", pod(2), 4)))
    scenario = FleetScenario(schedulers or tuple(Scheduler))
    return FleetReport(fleet, scenario, plan_fleet(fleet, scenario))


def test_the_table_compares_the_schedulers() -> None:
    lines = format_table(report()).splitlines()
    assert lines[0] == "3 nodes, 42 CPUs; 6 pods, 6 containers; seed 0"
    cells = [" ".join(line.split()) for line in lines]
    assert "PODS BLIND AWARE" in cells
    assert "placed 4 4" in cells
    assert "refused in the end 2 0" in cells
    assert "unschedulable 0 2" in cells
    assert "small 3 CPUs requested 19.0 % 19.0 %" in cells
    assert "TopologyAffinityError 8 0" in cells
    assert "1 other workload: all placed at once" in cells


@pytest.mark.parametrize("name", ["n", "n" * 63, "ü" * 63])
def test_no_line_is_wider_than_80_columns(name: str) -> None:
    assert max(map(len, format_table(report(name=name)).splitlines())) == 80


def test_one_scheduler_has_one_column() -> None:
    assert "BLIND" not in format_table(report(Scheduler.AWARE))


def test_the_worst_workloads_are_shown_and_the_rest_counted() -> None:
    assert "and 5 more with refusals; -o json has all" in format_table(report(workloads=25))


def test_json_has_every_count() -> None:
    found = json.loads(format_json(report(Scheduler.BLIND)))
    assert (found["nodes"], found["pods"], found["containers"], found["seed"]) == (3, 6, 6, 0)
    (blind,) = found["schedulers"]
    assert {key: blind[key] for key in ("scheduler", "placed", "refused", "unschedulable", "refusals", "retried")} == {
        "scheduler": "blind",
        "placed": 4,
        "refused": 2,
        "unschedulable": 0,
        "refusals": 8,
        "retried": 6,
    }
    assert blind["node_types"] == [
        {
            "name": "small",
            "nodes": 3,
            "pods": 4,
            "allocatable_millicpus": 42_000,
            "requested_millicpus": 8000,
            "exclusive_cpus": 8,
            "refusals": {"TopologyAffinityError": 8},
        }
    ]
    assert blind["workloads"][0] == {
        "name": "large-0",
        "replicas": 2,
        "placed": 0,
        "refused": 2,
        "unschedulable": 0,
        "refusals": {"TopologyAffinityError": 8},
    }


def test_yaml_says_the_same_as_json() -> None:
    assert yaml.safe_load(format_yaml(report())) == json.loads(format_json(report()))
