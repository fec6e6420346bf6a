from __future__ import annotations

import pytest

from pinfold.core.allocators.order import Fidelity
from pinfold.core.machine.presets import preset
from pinfold.errors import ParseError
from pinfold.formats.fields import DocumentError
from pinfold.formats.fleet.manifest import FleetFile, parse_fleet
from pinfold.formats.kubelet.config import VERSION
from pinfold.formats.machine.topologyjson import format_topology_json

NODE = "name: a, count: 2, machine: laptop-4"
STATIC = "{cpuManagerPolicy: static, reservedSystemCPUs: '0', maxPods: 20}"
POD = "{kind: Pod, metadata: {name: web}, spec: {containers: [{name: app}]}}"
FILES = {
    "kubelet.yaml": f"kind: KubeletConfiguration\napiVersion: {VERSION}\nkubeReserved: {{cpu: 500m}}\n",
    "machine.json": format_topology_json(preset("xeon-2s-64")),
    "pods.yaml": POD,
    "bad-pods.yaml": POD.replace("app", "App"),
    "bad.yaml": "a: [",
}


def read(name: str) -> str:
    if name not in FILES:
        raise ParseError("No such file or directory", where=name)
    return FILES[name]


def parse(text: str) -> FleetFile:
    return parse_fleet(text, read, source="fleet.yaml")


def test_a_node_type_with_a_preset_and_settings_inline() -> None:
    (kind,) = parse(f"nodes: [{{{NODE}, kubelet: {STATIC}}}]").types
    assert (kind.name, kind.count, kind.most_pods, kind.allocatable) == ("a", 2, 20, 3000)
    assert kind.config.policy == "static"
    assert kind.topology == preset("laptop-4")


def test_machine_and_settings_from_files() -> None:
    (kind,) = parse("nodes: [{name: a, count: 1, machineFile: machine.json, kubeletFile: kubelet.yaml}]").types
    assert kind.topology == preset("xeon-2s-64")
    assert (kind.allocatable, kind.most_pods) == (63_500, 110)


def test_a_node_type_without_settings_has_the_kubelets_defaults() -> None:
    (kind,) = parse(f"nodes: [{{{NODE}}}]").types
    assert (kind.config.policy, kind.most_pods, kind.allocatable) == ("none", 110, 4000)


def test_workloads_come_from_files_with_so_many_replicas_each() -> None:
    (workload,) = parse(f"nodes: [{{{NODE}}}]\nworkloads: [{{pods: pods.yaml, replicas: 700}}]").workloads
    assert (workload.name, workload.replicas) == ("web", 700)


def test_kind_fleet_may_be_said() -> None:
    assert parse(f"kind: Fleet\nnodes: [{{{NODE}}}]").types


def test_the_fidelity_is_that_of_every_node() -> None:
    found = parse_fleet(f"nodes: [{{{NODE}}}]", read, fidelity=Fidelity.KUBELET)
    assert found.types[0].config.fidelity is Fidelity.KUBELET


def test_misspelt_settings_are_noted() -> None:
    found = parse(f"nodes: [{{{NODE}, kubelet: {{cpuManagerPolicyy: static}}}}]")
    assert found.notes == (
        "fleet.yaml: nodes[0].kubelet: cpuManagerPolicyy: unknown and ignored; was cpuManagerPolicy meant?",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "fleet.yaml: missing; a mapping with nodes is expected"),
        ("a: 1\n---\nb: 2", "fleet.yaml: 2 documents; a fleet file has one"),
        ("nodes: []", "fleet.yaml: nodes: missing; a list of node types is expected"),
        ("{}", "fleet.yaml: nodes: missing; a list of node types is expected"),
        ("kind: []\nnodes: []", "fleet.yaml: kind: a list where Fleet is expected"),
        ("nodes: 7", "fleet.yaml: nodes: 7 where a list is expected"),
        ("nodes: [x]", 'fleet.yaml: nodes[0]: "x" where a node type is expected'),
        (f"kind: Pod\nnodes: [{{{NODE}}}]", 'fleet.yaml: kind: "Pod" where Fleet is expected'),
        (f"nodes: [{{{NODE}}}]\npods: x", "fleet.yaml: pods: unknown; allowed: kind, nodes, workloads"),
        (f"nodes: [{{{NODE}, cout: 3}}]", "fleet.yaml: nodes[0].cout: unknown; allowed: name, count, machine"),
        ("nodes: [{name: a, count: 0, machine: laptop-4}]", "fleet.yaml: nodes[0].count: 0 is not within 1 and"),
        ("nodes: [{name: a, count: -1, machine: laptop-4}]", "fleet.yaml: nodes[0].count: -1 where a whole number"),
        ("nodes: [{name: a, machine: laptop-4}]", "fleet.yaml: nodes[0].count: missing; a whole number, 1 or more"),
        ("nodes: [{name: a, count: 900000, machine: laptop-4}]", "fleet.yaml: nodes: more than 100,000 nodes in all"),
        ("nodes: [{name: '', count: 1, machine: laptop-4}]", 'fleet.yaml: nodes[0].name: "" is not a valid name'),
        ("nodes: [{count: 1, machine: laptop-4}]", "fleet.yaml: nodes[0].name: missing; a name is expected"),
        (f"nodes: [{{{NODE}}}, {{{NODE}}}]", 'fleet.yaml: nodes[1].name: "a" is a duplicate'),
        (
            "nodes: [{name: a, count: 1}]",
            "fleet.yaml: nodes[0]: machine (a built-in machine or a shape) or machineFile",
        ),
        (
            "nodes: [{name: a, count: 1, machine: laptop}]",
            "fleet.yaml: nodes[0].machine: unknown machine",
        ),
        ("nodes: [{name: a, count: 1, machineFile: x}]", "fleet.yaml: nodes[0].machineFile: x: No such file"),
        (f"nodes: [{{{NODE}, kubelet: static}}]", 'fleet.yaml: nodes[0].kubelet: "static" where a Kubelet'),
        (
            f"nodes: [{{{NODE}, kubelet: {{cpuManagerPolicy: fast}}}}]",
            "fleet.yaml: nodes[0].kubelet: cpuManagerPolicy: ",
        ),
        (f"nodes: [{{{NODE}, kubelet: {{maxPods: many}}}}]", 'fleet.yaml: nodes[0].kubelet: maxPods: "many" where'),
        (f"nodes: [{{{NODE}, kubeletFile: bad.yaml}}]", "bad.yaml: document 1: line 1"),
        (f"nodes: [{{{NODE}, kubeletFile: none.yaml}}]", "none.yaml: No such file or directory"),
        (
            f"nodes: [{{{NODE}, kubelet: {{}}, kubeletFile: kubelet.yaml}}]",
            "fleet.yaml: nodes[0]: kubelet or kubeletFile",
        ),
        (
            f"nodes: [{{{NODE}, kubelet: {{cpuManagerPolicy: static}}}}]",
            'fleet.yaml: nodes[0]: node type "a": [cpumanager] unable to determine reserved CPU resources',
        ),
        (f"nodes: [{{{NODE}}}]\nworkloads: [3]", "fleet.yaml: workloads[0]: 3 where a mapping with pods and replicas"),
        (f"nodes: [{{{NODE}}}]\nworkloads: [{{replicas: 1}}]", "fleet.yaml: workloads[0].pods: missing; a file name"),
        (f"nodes: [{{{NODE}}}]\nworkloads: [{{pods: x.yaml}}]", "x.yaml: No such file or directory"),
        (
            f"nodes: [{{{NODE}}}]\nworkloads: [{{pods: bad-pods.yaml}}]",
            'bad-pods.yaml: document 1: spec.containers[0].name: "App" is not a valid name',
        ),
    ],
)
def test_what_is_wrong_is_said_with_file_field_and_value(text: str, message: str) -> None:
    with pytest.raises(ParseError) as raised:
        parse(text)
    assert str(raised.value).startswith(message)


def test_all_problems_are_found_at_once() -> None:
    with pytest.raises(DocumentError) as raised:
        parse("nodes: [{name: 1, count: x, machine: y}, {name: b, count: 2, machine: z}]")
    assert len(raised.value.problems) == 4
