"""Resources that containers have already: their hints, and CPUs that follow them."""

from __future__ import annotations

import pytest

from pinfold.core.admission import Admitter, Asked, Scope
from pinfold.core.config import Config, Reservation
from pinfold.core.explaining.advice import advise
from pinfold.core.explaining.alignment import Ruler
from pinfold.core.explaining.outcome import Outcome
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import preset
from pinfold.core.state import State
from pinfold.core.topologymanager.hint import Hint
from pinfold.core.topologymanager.others import NO_OTHERS, WHOLE, Held, Holding, covering
from tests.property.strategies import pinned, pod_of

MACHINE = preset("sockets:2,numa:1,cores:4,threads:2")  # nodes 0-3,8-11 and 4-7,12-15
NODES = 0b11
NIC = Held({"app": (Holding("nic", (0b10,)),)})


def admitter_of(policy: str, scope: str = "container") -> Admitter:
    config = Config("static", reserved=Reservation.of(CPUSet.of(0, 8)), topology_policy=policy, topology_scope=scope)
    return config.build(MACHINE)


def cpus_of(policy: str, held: Held, *counts: int, scope: str = "container") -> list[str]:
    admitter = admitter_of(policy, scope)
    state = admitter.policy.start(State.new())
    pod = pod_of(*(pinned(count, name) for count, name in zip(counts, ("app", "log"), strict=False)))
    admission = admitter.admit(state, pod, others=held)
    assert admission.refusal is None
    return [str(decision.cpus) for decision in admission.decisions.values()]


def test_devices_on_two_nodes_want_both() -> None:
    assert [*covering([0b01, 0b10], NODES)] == [Hint.of(0, 1)]


def test_a_device_at_two_nodes_is_near_each_of_them() -> None:
    assert [*covering([0b11], NODES)] == [Hint.of(0), Hint.of(1), Hint.of(0, 1, preferred=False)]


def test_on_a_very_large_machine_only_the_nodes_of_the_devices_and_all_nodes_are_named() -> None:
    everything = (1 << 20) - 1
    assert [*covering([0b1, 0b100], everything)] == [Hint(0b101, preferred=True), Hint(everything, preferred=False)]


def test_memory_is_one_hint_and_unknown_nodes_are_none() -> None:
    held = Held({"app": (Holding("memory", (0b11,), together=True), Holding("usb", (0,)), Holding("far", (0b100,)))})
    assert [*(held.of("app", NODES)["memory"] or ())] == [Hint.of(0, 1)]
    assert held.of("app", NODES)["usb"] is None
    assert held.of("app", NODES)["far"] is None
    assert held.of("log", NODES) == {}


def test_the_pod_has_what_all_its_containers_have() -> None:
    held = Held({"app": (Holding("nic", (0b01,)),), "log": (Holding("nic", (0b10,)),)})
    assert [*(held.of(WHOLE, NODES)["nic"] or ())] == [Hint.of(0, 1)]
    assert not NO_OTHERS
    assert held


@pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
def test_cpus_follow_a_device_and_only_those_of_its_container(policy: str) -> None:
    assert cpus_of(policy, NIC, 2, 2) == ["4,12", "1,9"]


@pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
def test_with_scope_pod_all_containers_follow(policy: str) -> None:
    assert cpus_of(policy, NIC, 2, 2, scope=Scope.POD) == ["4,12", "5,13"]


def test_without_a_topology_policy_only_a_device_that_a_user_has_named_counts() -> None:
    assert cpus_of("none", NIC, 2) == ["1,9"]
    assert cpus_of("none", Held(NIC.by_container, is_asked=True), 2) == ["4,12"]


def test_a_refusal_names_the_device_and_what_would_fit() -> None:
    admitter = admitter_of("single-numa-node")
    busy = CPUSet.parse("4-6,12-14")
    state = State(MACHINE.online - busy, {pod_of(uid="x").uid: {"app": busy}})
    pod = pod_of(pinned(4))
    admission = admitter.admit(state, pod, others=NIC)
    assert (admission.refusal and admission.refusal.reason) == "TopologyAffinityError"
    advice = advise(Ruler(MACHINE, MACHINE.online), Outcome(pod, state, admission, admitter, others=NIC))
    assert str(advice) == (
        "4 CPUs at NUMA 1, where nic is, are not available: NUMA 0 has 6 free, NUMA 1 has 2 free. "
        "Would fit if x/app moved to other CPUs, or with 2 CPUs."
    )


def test_devices_that_are_apart_are_told() -> None:
    held = Held({"app": (Holding("nic", (0b01,)), Holding("gpu", (0b10,)))})
    admitter = admitter_of("restricted")
    state, pod = admitter.policy.start(State.new()), pod_of(pinned(4))
    outcome = Outcome(pod, state, admitter.admit(state, pod, others=held), admitter, others=held)
    advice = advise(Ruler(MACHINE, MACHINE.online), outcome)
    assert str(advice) == "nic is at NUMA 0 and gpu is at NUMA 1. No single change is enough."


def test_a_resize_stays_at_the_device() -> None:
    config = Config("dynamic", reserved=Reservation.of(CPUSet.of(0, 8)), topology_policy="restricted")
    admitter, pod = config.build(MACHINE), pod_of(pinned(2))
    state = admitter.admit(admitter.policy.start(State.new()), pod, others=NIC).state
    grown = admitter.resize(state, pod.ref(pod.containers[0]), 4, asked=Asked(NIC))
    assert str(grown.cpus) == "4-5,12-13"


def test_the_steps_name_what_each_resource_gave() -> None:
    admitter = admitter_of("restricted")
    steps = admitter.explain(admitter.policy.start(State.new()), pod_of(pinned(2)), others=NIC)["app"].steps
    assert "nic gave NUMA 1, preferred" in [step.what for step in steps]
