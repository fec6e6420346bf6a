"""Wanted: from which NUMA nodes the containers that ask for local memory get it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import from_shape
from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.core.reconcile import Limit
from pinfold.core.state import State
from pinfold.core.topologymanager.others import WHOLE, Held, Holding
from pinfold.formats.pods.runtime import Phase, RuntimeContainer, RuntimePod
from pinfold.manager.manager import Manager, Rules
from pinfold.manager.telling.bus import Bus
from pinfold.manager.telling.telling import Telling
from pinfold.manager.wanting import Wanting, wanted_of
from pinfold.runtimes.roster import Roster
from pinfold.runtimes.simulated.launcher import SimulatedApplier
from tests.unit.manager.test_scripted_node import NoDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MACHINE = from_shape("sockets:4,cores:2")
"""NUMA nodes 0 to 3 with two CPUs each."""
ADMITTER = Config("static", reserved=Reservation.of(CPUSet.of(0))).build(MACHINE)
REF = ContainerRef(PodUID("u1"), "app")
LOCAL: Mapping[str, str] = {"pinfold.dev/local-memory": "true"}
NIC = Holding("example.com/nic", (0b1000,))


def blocks(*nodes: int, kind: str = "memory") -> Holding:
    """Return memory that a kubelet has put at these NUMA nodes."""
    return Holding(kind, (CPUSet.of(*nodes).mask,), together=True)


def roster_of(held: Held | None = None, annotations: Mapping[str, str] = LOCAL) -> Roster:
    roster = Roster()
    roster.know_pod(RuntimePod("s1", REF.pod, "db", "default", "/kubepods/podu1", annotations=annotations))
    roster.know(RuntimeContainer("c1", "s1", "app", Phase.RUNNING, shares=1024, quota=100_000, period=100_000))
    if held is not None:
        roster.held[REF.pod] = held
    return roster


def mems(roster: Roster, cpus: str = "2-3", memory: str | None = "0-3") -> str | None:
    """Return the NUMA nodes for a container on these CPUs where these nodes have memory; None: as they are."""
    own = CPUSet.parse(cpus)
    rules = Rules(ADMITTER, MACHINE, NoDisk(), None if memory is None else CPUSet.parse(memory))
    state = State(MACHINE.online - own, {REF.pod: {REF.name: own}})
    found = wanted_of(state, rules, roster).mems.get(REF)
    return None if found is None else str(found)


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (None, "1"),
        (Held({"app": (blocks(1),)}), "1"),
        (Held({"app": (blocks(0, 2),)}), "0-2"),
        (Held({"app": (blocks(1), blocks(3, kind="hugepages-2Mi"))}), "1,3"),
        (Held({"other": (blocks(3),)}), "1"),
        (Held({WHOLE: (blocks(3),)}), "1,3"),
        (Held({"app": (NIC,)}), "1"),
        (Held({"app": (blocks(1, 9),)}), "1"),
    ],
    ids=["unknown", "at its CPUs", "elsewhere", "hugepages", "another's", "the pod's", "a device", "no such node"],
)
@pytest.mark.parametrize("memory", ["0-3", None], ids=["nodes with memory known", "not known"])
def test_local_memory_has_the_nodes_of_the_cpus_and_of_what_the_kubelet_has_assigned(
    held: Held | None, expected: str, memory: str | None
) -> None:
    assert mems(roster_of(held), memory=memory) == expected


def test_nodes_without_memory_are_left_out() -> None:
    assert mems(roster_of(), "2-5", memory="0,2-3") == "2"
    assert mems(roster_of(Held({"app": (blocks(3),)})), "2-3", memory="0,3") == "3"


def test_memory_stays_as_it_is_where_no_node_of_the_cpus_has_any() -> None:
    assert mems(roster_of(), "2-3", memory="0,2-3") is None


def test_memory_of_a_pod_that_does_not_ask_stays_as_it_is() -> None:
    assert mems(roster_of(Held({"app": (blocks(3),)}), annotations={})) is None


@pytest.mark.parametrize(("memory", "expected"), [("0-3", []), ("2-3", [("db", "app", "1")])], ids=["has", "has not"])
def test_an_owner_far_from_all_memory_is_told_once(memory: str, expected: list[tuple[str, str, str]]) -> None:
    bus, roster = Bus(time.time), roster_of()
    rules = Rules(ADMITTER, MACHINE, NoDisk(), CPUSet.parse(memory))
    manager = Manager(rules, ADMITTER.policy.start(State.new()), SimulatedApplier(), roster, Telling(bus))
    pod = roster.of("s1").pod
    assert pod is not None

    async def admit() -> None:
        for _ in range(2):
            await manager.admit(pod)

    asyncio.run(admit())
    told = [entry.fields for entry in bus.after(0) if entry.what == "memory-not-local"]
    assert [(str(one["pod"]), one["container"], str(one["cpus"])) for one in told] == expected


STATE = State(MACHINE.online - CPUSet.parse("2-3"), {REF.pod: {REF.name: CPUSet.parse("2-3")}})
RULES = Rules(ADMITTER, MACHINE, NoDisk())


def test_what_is_wanted_is_worked_out_once_while_nothing_is_new() -> None:
    wanting = Wanting(roster_of(annotations={}))
    assert wanting.of(STATE, RULES) is wanting.of(STATE, RULES)


def test_a_report_a_state_other_rules_and_other_limits_are_new() -> None:
    roster = roster_of(annotations={})
    wanting = Wanting(roster)
    other = State(MACHINE.online)
    changes: list[Callable[[], object]] = [
        lambda: roster.know(RuntimeContainer("c2", "s1", "web", Phase.RUNNING, shares=2)),
        lambda: roster.forget("c2"),
        lambda: setattr(roster, "limits", lambda _container: Limit(request=100)),
        lambda: roster.know_pod(RuntimePod("s2", "u2", "web", "default", "/kubepods/podu2")),
        lambda: roster.forget_pod("s2"),
        lambda: roster.replace_all((), ()),
    ]
    for change in changes:
        before = wanting.of(STATE, RULES)
        change()
        assert wanting.of(STATE, RULES) is not before
        assert wanting.of(STATE, RULES) == wanted_of(STATE, RULES, roster)
    assert wanting.of(other, RULES) == wanted_of(other, RULES, roster)
    assert wanting.of(STATE, RULES).exclusive


def test_memory_that_the_kubelet_assigns_later_is_wanted_too() -> None:
    roster = roster_of()
    wanting = Wanting(roster)
    assert wanting.of(STATE, RULES).mems == {REF: CPUSet.of(1)}
    roster.held[REF.pod] = Held({"app": (blocks(3),)})
    assert wanting.of(STATE, RULES).mems == {REF: CPUSet.of(1, 3)}
