"""Devices, memory and hugepages in a plan: hints, what containers take, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import preset
from pinfold.core.pods.pod import Container, Pod
from pinfold.core.state import State
from pinfold.core.stock import NO_STOCK, Stock
from pinfold.core.topologymanager.hint import UNSATISFIABLE, Hint
from pinfold.planning.plan import Plan, Running, make_plan
from pinfold.render.plan.data import plan_facts
from pinfold.render.plan.table import format_plan
from tests.property.strategies import pinned, pod_of

GPU = "nvidia.com/gpu"
MACHINE = replace(
    preset("sockets:2,cores:8"), resources={0: {GPU: 1}, 1: {GPU: 3, "hugepages-1Gi": 4 << 30}}
)  # nodes 0-7, 8-15


def asking(uid: str, count: int = 2, **extras: int) -> Pod:
    named = tuple((name.replace("__", "-"), amount) for name, amount in extras.items())
    return pod_of(replace(pinned(count), extras=named), uid=uid)


def gpus(uid: str, number: int = 1) -> Pod:
    return pod_of(replace(pinned(2), extras=((GPU, number),)), uid=uid)


def plan_of(*pods: Pod, policy: str = "single-numa-node", running: Running | None = None) -> Plan:
    config = Config("static", reserved=Reservation.of(CPUSet.of(0)), topology_policy=policy)
    return make_plan(pods, MACHINE, config, running or Running())


def cpus(plan: Plan) -> list[str]:
    return [str(one.cpus) for one in plan.placements]


@pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
def test_cpus_follow_the_gpus_that_are_left(policy: str) -> None:
    plan = plan_of(gpus("a"), gpus("b"), pod_of(pinned(2), uid="c"), policy=policy)
    assert cpus(plan) == ["1-2", "8-9", "3-4"]
    assert plan.stock.left[GPU] == {0: 0, 1: 2}
    assert "nvidia.com/gpu: a/app 1 at NUMA 0, b/app 1 at NUMA 1; left 0 at NUMA 0 + 2 at NUMA 1" in " ".join(
        format_plan(plan).split()
    )
    facts = plan_facts(plan)["resources"]
    assert isinstance(facts, dict)
    assert facts["given"][1] == {"pod": "b", "container": "app", "resource": GPU, "numa": {1: 1}}


def test_two_gpus_are_taken_where_one_node_has_both() -> None:
    assert cpus(plan_of(gpus("a", 2))) == ["8-9"]


def test_hugepages_of_one_node_draw_a_guaranteed_pod_there() -> None:
    assert cpus(plan_of(asking("a", hugepages__1Gi=1 << 30))) == ["8-9"]


@pytest.mark.parametrize("policy", ["none", "best-effort", "single-numa-node"])
def test_more_than_the_node_has_is_refused_with_the_kubelets_words(policy: str) -> None:
    plan = plan_of(gpus("a", 3), gpus("b", 2), policy=policy)
    (refused,) = plan.refused
    assert refused.pod.uid == "b"
    assert (refused.refusal and refused.refusal.reason) == "UnexpectedAdmissionError"
    assert "unavailable for nvidia.com/gpu. Requested: 2, Available: 1" in str(refused.refusal)
    assert "2 nvidia.com/gpu are not available: the node has 1 left." in " ".join(format_plan(plan).split())
    assert plan.stock.left[GPU] == ({0: 0, 1: 1} if policy == "none" else {0: 1, 1: 0})


def test_gpus_on_two_nodes_are_refused_by_single_numa_node() -> None:
    plan = plan_of(gpus("a", 2), gpus("b", 2))
    assert [outcome.pod.uid for outcome in plan.refused] == ["b"]
    assert str(plan.refused[0].refusal) == "Resources cannot be allocated with Topology locality"


def test_the_gpus_of_running_pods_are_gone_and_come_back_with_them() -> None:
    held = State(MACHINE.online - CPUSet.of(8, 9), {gpus("old").uid: {"app": CPUSet.of(8, 9)}})
    plan = plan_of(gpus("a", 3), running=Running(held, [gpus("old")]))
    assert plan.refused
    stock = Stock.of(MACHINE.resources).take(gpus("old").ref(gpus("old").containers[0]), {GPU: 2}, 0b10)
    assert stock.left[GPU] == {0: 1, 1: 1}
    assert stock.without(gpus("old").uid).left[GPU] == {0: 1, 1: 3}


def test_init_containers_hand_theirs_on_and_shared_pods_count_for_devices_only() -> None:
    setup = replace(pinned(2, "setup"), extras=((GPU, 3),))
    main = replace(pinned(2, "main"), extras=((GPU, 3),))
    assert not plan_of(pod_of(main, init=[setup], uid="a")).refused
    stock = Stock.of({0: {GPU: 1, "memory": 10, "hugepages-1Gi": 10}})
    shared = Container("app", extras=((GPU, 1), ("hugepages-1Gi", 5), ("other/thing", 1)))
    assert stock.needs(pod_of(shared), shared) == {GPU: 1}
    assert not NO_STOCK.hints(pod_of(shared))


def test_hints_of_a_large_machine_are_few() -> None:
    stock = Stock.of({node: {GPU: 2} for node in range(20)})
    everything = (1 << 20) - 1
    assert len([*stock.hint(GPU, 2, everything)]) == 21
    assert [*stock.hint(GPU, 40, everything)] == [Hint(everything, preferred=True)]
    assert stock.hint(GPU, 41, everything) is UNSATISFIABLE
