"""Local memory at admission: what is left at the NUMA nodes decides where a container goes, and whether it gets in."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import TYPE_CHECKING

import pytest

from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import from_shape
from pinfold.core.pods.pod import Amounts, Container, Pod, PodUID, Resources
from pinfold.core.state import State
from pinfold.core.topologymanager.others import Held, Holding
from pinfold.formats.pods.runtime import RuntimePod
from pinfold.manager.admitting import Refusal
from pinfold.manager.localmemory import LocalMemory
from pinfold.manager.manager import Manager, Rules
from pinfold.manager.telling.bus import Bus
from pinfold.manager.telling.telling import Telling
from pinfold.planning.plan import make_plan
from pinfold.runtimes.roster import Roster
from pinfold.runtimes.simulated.launcher import SimulatedApplier
from tests.unit.manager.test_scripted_node import NoDisk

if TYPE_CHECKING:
    from collections.abc import Mapping

MACHINE = from_shape("sockets:2,cores:4")
"""NUMA nodes 0 and 1 with four CPUs each."""
GIB = 1 << 30
LOCAL: Mapping[str, str] = {"pinfold.dev/local-memory": "true"}


def config(policy: str, *, local: bool = False) -> Config:
    return Config("static", reserved=Reservation.of(CPUSet.of(0)), topology_policy=policy, local_memory=local)


def resources(pages: int = 0, nodes: int = 2) -> dict[int, dict[str, int]]:
    return {node: {"memory": 8 * GIB, "hugepages-1Gi": pages * GIB} for node in range(nodes)}


def make(name: str, gib: int, annotations: Mapping[str, str] = LOCAL, *, pages: int = 0) -> Pod:
    """Return a pod that asks for two CPUs, so much memory and so many hugepages."""
    amounts = Amounts(cpu=2000, memory=gib * GIB)
    container = Container("app", Resources(amounts, amounts), extras=(("hugepages-1Gi", pages * GIB),))
    return Pod(PodUID(f"u-{name}"), name, containers=(container,), annotations=annotations)


class Node:
    """A Manager on a machine with 8 GiB at each NUMA node, of which *available* can still be had."""

    def __init__(self, *available: int, policy: str = "none", pages: int = 0, local: bool = False) -> None:
        admitter = config(policy).build(MACHINE)
        self.roster, self.bus = Roster(local_memory=local), Bus(time.time)
        rules = Rules(admitter, MACHINE, NoDisk(), CPUSet.from_cpus(range(len(available))))
        start = admitter.policy.start(State.new())
        self.manager = Manager(rules, start, SimulatedApplier(), self.roster, Telling(self.bus))
        total = resources(pages, len(available))
        left = {node: {**total[node], "memory": gib * GIB} for node, gib in enumerate(available)}
        self.manager.memory = LocalMemory(self.roster, lambda: (total, left))

    def admit(self, name: str, gib: int, annotations: Mapping[str, str] = LOCAL, *, pages: int = 0) -> str:
        """Admit a pod that asks for two CPUs, so much memory and so many hugepages; return its CPUs."""
        pod = make(name, gib, annotations, pages=pages)
        self.roster.know_pod(RuntimePod(name, pod.uid, name, "default", "", annotations=annotations, spec=pod))
        asyncio.run(self.manager.admit(pod))
        return str(self.manager.state.cpus(pod.uid, "app"))


def test_cpus_are_where_the_memory_is_left_also_without_a_topology_policy() -> None:
    assert Node(8, 8).admit("db", 4) == "1-2"
    assert Node(2, 8).admit("db", 4) == "4-5"
    assert Node(8, 2).admit("db", 4) == "1-2"


def test_what_others_have_asked_for_counts_although_they_do_not_use_it_yet() -> None:
    node = Node(8, 8)
    assert node.admit("first", 6) == "1-2"
    assert node.admit("second", 6) == "4-5"
    with pytest.raises(Refusal, match=r"6,144 MiB of memory at NUMA 1 is not available: 2,048 MiB is left there"):
        node.admit("third", 6)
    assert len(node.manager.state.assignments) == 2


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "single-numa-node"])
def test_a_container_whose_memory_fits_at_no_node_is_refused(policy: str) -> None:
    node = Node(3, 3, policy=policy)
    with pytest.raises(Refusal):
        node.admit("db", 7)
    assert node.manager.state.assignments == {}


def test_hugepages_count_like_memory() -> None:
    node = Node(8, 8, pages=2)
    assert node.admit("first", 1, pages=2) == "1-2"
    assert node.admit("second", 1, pages=2) == "4-5"
    with pytest.raises(Refusal, match="hugepages-1Gi"):
        node.admit("third", 1, pages=1)


def test_a_pod_that_does_not_ask_for_local_memory_is_not_checked() -> None:
    assert Node(0, 0).admit("db", 4, annotations={}) == "1-2"


def test_where_the_kubelet_has_assigned_memory_pinfold_follows_it() -> None:
    node = Node(0, 0)
    node.roster.held[PodUID("u-db")] = Held({"app": (Holding("memory", (0b01,), together=True),)})
    assert node.admit("db", 4)


def test_a_container_that_has_its_cpus_keeps_them_when_memory_is_short() -> None:
    node = Node(8, 8)
    cpus = node.admit("db", 4)
    node.manager.memory = LocalMemory(node.roster, lambda: ({0: {"memory": GIB}, 1: {"memory": GIB}}, {}))
    assert node.admit("db", 4) == cpus


def test_what_a_pod_had_is_left_again_when_it_has_gone() -> None:
    node = Node(8, 8)
    for turn in range(4):
        assert node.admit(f"db-{turn}", 6) == "1-2"
        ref = next(iter(dict(node.manager.state.flat())))
        asyncio.run(node.manager.release([ref]))
        node.roster.forget_pod(f"db-{turn}")


def test_a_container_far_from_all_memory_is_not_refused_for_it() -> None:
    node = Node(8)  # NUMA node 1 has none
    assert [node.admit(f"db-{turn}", 1) for turn in range(3)] == ["1-2", "3-4", "5-6"]


# -- the planner decides by the same rule


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "single-numa-node"])
@pytest.mark.parametrize("asked", [(6, 6, 2), (3, 7, 4), (5, 4, 4), (7, 1, 2)], ids=str)
@pytest.mark.parametrize("by", ["annotation", "setting"])
def test_a_plan_refuses_what_a_daemon_refuses_and_has_the_same_cpus(
    policy: str, asked: tuple[int, ...], by: str
) -> None:
    annotations, local = (LOCAL, False) if by == "annotation" else ({}, True)
    node, decided = Node(8, 8, policy=policy, local=local), []
    for number, gib in enumerate(asked):
        try:
            decided.append(node.admit(f"db-{number}", gib, annotations))
        except Refusal as refusal:
            decided.append(refusal.reason)
    machine = dataclasses.replace(MACHINE, resources=resources())
    pods = [make(f"db-{number}", gib, annotations) for number, gib in enumerate(asked)]
    plan = make_plan(pods, machine, config(policy, local=local))
    assert [str(one.refusal.reason if one.refusal else one.cpus) for one in plan.placements] == decided


def test_a_plan_checks_hugepages_and_says_what_is_left() -> None:
    machine = dataclasses.replace(MACHINE, resources=resources(pages=2))
    plan = make_plan([make("a", 1, pages=2), make("b", 1, pages=1), make("c", 1, pages=2)], machine, config("none"))
    assert [str(one.cpus) for one in plan.placements[:2]] == ["1-2", "4-5"]
    assert "hugepages-1Gi" in str(plan.refused[0].refusal)


def test_a_plan_for_a_pod_without_local_memory_does_not_refuse_it_for_the_memory_of_a_node() -> None:
    machine = dataclasses.replace(MACHINE, resources=resources())
    pods = [make(name, 6, {"pinfold.dev/local-memory": "false"}) for name in "ab"]
    plan = make_plan([*pods, make("c", 3, {})], machine, config("none"))
    assert [str(one.cpus) for one in plan.placements] == ["1-2", "3-4", "5-6"]
