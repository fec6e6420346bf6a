"""The planner on the recorded cases: with fidelity kubelet it says exactly what the reference did."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

from pinfold.core.admission import Admitter, Scope
from pinfold.core.allocators.order import Fidelity
from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.core.pods.pod import PodUID
from pinfold.core.state import State
from pinfold.core.topologymanager.manager import TopologyManager
from pinfold.errors import ConfigError
from pinfold.planning.plan import Walk, make_plan
from tests.parity.admit import devices_of
from tests.parity.cases import pod_from_vector
from tests.parity.node import Case, Machines, Node, read_cases, state_data
from tests.parity.replay import files_in
from tests.parity.test_vectors import SETS, every_set

if TYPE_CHECKING:
    from collections.abc import Iterator


def cases(which: str, family: str) -> tuple[Machines, Iterator[Case]]:
    directory = SETS[which]
    machines = Machines(json.loads((directory / "topologies.json").read_text()))
    return machines, read_cases(files_in(directory)[family])


def distances(case: Case) -> dict[int, dict[int, int]]:
    return {node["id"]: dict(enumerate(node["distances"])) for node in case["tm"]["nodes"]}


def take(walk: Walk, step: Case) -> Case:
    """Take a step of the family `admit` with the planner, and return what can be seen."""
    if step["op"] != "admit":
        if step["op"] == "remove_pod":
            walk.remove(PodUID(step["pod_uid"]))
        return state_data(walk.settle())
    outcome = walk.admit(pod_from_vector(step["pod"]), devices_of(step))
    found: Case = {"admit": outcome.refusal is None, **state_data(walk.state)}
    if outcome.refusal is not None:
        found |= {"reason": outcome.refusal.reason, "message": outcome.refusal.message}
    return found


@every_set
def test_pods_that_come_and_go_fare_as_in_the_reference(which: str) -> None:
    machines, found = cases(which, "admit")
    steps = 0
    for case in found:
        tm = case["tm"]
        try:
            node = Node(case, machines.prepared(case["topology"], Fidelity.KUBELET))
            nodes = [numa["id"] for numa in tm["nodes"]]
            manager = TopologyManager.create(tm["policy"], tm["options"], nodes, distances(case))
        except ConfigError:
            continue
        walk = Walk(Admitter(node.policy, manager, Scope(tm["scope"])), node.policy.start(State(EMPTY)))
        for number, step in enumerate(case["steps"]):
            seen = take(walk, step)
            expected = {name: value for name, value in step["expect"].items() if name != "affinity"}
            assert seen == expected, f"{case['id']}, step {number}"
            steps += 1
    assert steps > 100


def config_of(case: Case) -> Config:
    given = case["reserved"]
    cpus = CPUSet.parse(given["cpus"]) if "cpus" in given else None
    count = given.get("count", 0 if cpus is None else len(cpus))
    return Config(
        "static",
        case["options"],
        Reservation(count * 1000, cpus),
        case["tm"]["policy"],
        case["tm"]["options"],
        case["tm"]["scope"],
        case.get("gates", {}),
        Fidelity.KUBELET,
    )


@every_set
def test_a_plan_of_pods_that_only_come_is_what_the_reference_did(which: str) -> None:
    machines, found = cases(which, "admit")
    plans = 0
    for case in found:
        steps = list(takewhile(lambda step: step["op"] == "admit" and not step.get("device_hints"), case["steps"]))
        pods = [pod_from_vector(step["pod"]) for step in steps]
        if case["start"]["error"] or not pods or len({pod.uid for pod in pods}) < len(pods):
            continue
        topology = replace(machines.topologies[case["topology"]], distances=distances(case))
        plan = make_plan(pods, topology, config_of(case))
        assert [outcome.refusal is None for outcome in plan.outcomes] == [step["expect"]["admit"] for step in steps]
        for outcome, step in zip(plan.outcomes, steps, strict=True):
            assert state_data(outcome.admission.state) == {
                name: step["expect"][name] for name in ("assignments", "default")
            }, case["id"]
        plans += 1
    assert plans > 20


@every_set
def test_a_policy_alone_is_planned_as_the_reference_decided(which: str) -> None:
    """The family `static` has no Topology Manager; its cases count up to a step that only a policy can take."""
    machines, found = cases(which, "static")
    admitted = 0
    for case in found:
        try:
            node = Node(case, machines.prepared(case["topology"], Fidelity.KUBELET))
        except ConfigError:
            continue
        manager = TopologyManager.create("none", {}, [], {})
        walk = Walk(Admitter(node.policy, manager), node.policy.start(State(EMPTY)))
        for step in takewhile(lambda step: step["op"] == "admit" and not step.get("affinity"), case["steps"]):
            outcome = walk.admit(pod_from_vector(step["pod"]))
            expected = step["expect"]
            assert state_data(walk.state) == {name: expected[name] for name in ("assignments", "default")}, case["id"]
            assert (outcome.refusal is None) == (expected["error"] is None), case["id"]
            admitted += 1
            if outcome.refusal is not None:
                break  # the recorded trace goes on without collecting what the refused pod has left
    assert admitted > 100
