"""CPUs of init containers that a pod may reuse, when a running container has got them meanwhile."""

from __future__ import annotations

from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import from_shape
from pinfold.core.pods.pod import Amounts, Container, ContainerRef, Pod, PodUID, Resources
from pinfold.core.state import State


def container(name: str, cpus: int) -> Container:
    amounts = Amounts(cpu=1000 * cpus, memory=1 << 30)
    return Container(name, Resources(amounts, amounts))


def test_cpus_that_a_container_has_grown_into_are_not_reused_by_a_pod_that_comes_again() -> None:
    node = Config("dynamic", {}, Reservation.of(CPUSet.of(0))).build(from_shape("cores:3,threads:2"))
    growing, again = Pod(PodUID("1"), "growing", containers=(container("app", 2),)), PodUID("2")
    state = node.admit(node.policy.start(State.new()), growing).state
    state = node.admit(state, Pod(again, "again", init=(container("i", 1),), containers=(container("c", 2),))).state
    for name in ("i", "c"):
        state = node.policy.release(state, ContainerRef(again, name)).state
    assert node.policy.resizing is not None
    state = node.policy.resizing.resize(state, ContainerRef(growing.uid, "app"), 3).state
    state = node.admit(state, Pod(again, "again", containers=(container("c", 1),))).state
    assert state.check(CPUSet.parse("0-5")) == []
    assert len(state.exclusive) == 4
