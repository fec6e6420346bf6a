from __future__ import annotations

from dataclasses import replace

import pytest

from pinfold.core.allocators.order import Fidelity
from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import preset
from pinfold.core.pods.pod import Amounts, Container, Pod, PodUID, QoS, Resources
from pinfold.core.policies.wholecores import SMTAlignmentError
from pinfold.core.state import State
from pinfold.core.trace import Defect
from pinfold.core.validation import OtherCPUs
from pinfold.planning.plan import Running, Walk, make_plan, start
from tests.property.strategies import guaranteed, pinned, pod_of

CACHES = preset("sockets:1,l3:2,cores:4,threads:2")  # 16 CPUs; caches 0-3,8-11 and 4-7,12-15
CONFIG = Config("static", reserved=Reservation.of(CPUSet.of(0, 8)))


def test_pods_come_in_order_and_the_next_sees_what_is_left() -> None:
    plan = make_plan([pod_of(pinned(2), uid="a"), pod_of(pinned(4), uid="b")], CACHES, CONFIG)
    assert [str(placement.cpus) for placement in plan.placements] == ["1,9", "2-3,10-11"]
    assert str(plan.after.shared) == "0,4-8,12-15"
    assert plan.before.shared == CACHES.online


def test_containers_without_whole_cpus_are_placed_in_the_shared_pool() -> None:
    mixed = pod_of(pinned(2, "big"), Container("small", guaranteed(500)))
    big, small = make_plan([mixed], CACHES, CONFIG).placements
    assert (big.wanted, small.wanted) == (2, 0)
    assert small.cpus is None
    assert small.alignment is None
    assert small.refusal is None


def test_a_refused_pod_leaves_its_first_containers_cpus_to_the_next() -> None:
    two = pod_of(pinned(4, "first"), pinned(20, "second"), uid="refused")
    plan = make_plan([two, pod_of(pinned(4), uid="next")], CACHES, CONFIG)
    first, second, after = plan.placements
    assert first.cpus is None
    assert (first.is_culprit, second.is_culprit) == (False, True)
    assert str(after.cpus) == "1-2,9-10"
    assert [outcome.pod.uid for outcome in plan.refused] == ["refused"]


def test_a_refused_pod_holds_its_first_containers_cpus_until_the_next_step() -> None:
    admitter = CONFIG.build(CACHES)
    walk = Walk(admitter, start(admitter, CACHES))
    walk.admit(pod_of(pinned(4, "first"), pinned(20, "second")))
    assert str(walk.state.exclusive) == "1-2,9-10"
    assert not walk.settle().exclusive


def test_a_pod_that_is_removed_gives_back_all_it_has() -> None:
    admitter = CONFIG.build(CACHES)
    first = start(admitter, CACHES)
    walk = Walk(admitter, first)
    walk.admit(pod_of(pinned(2, "a"), pinned(2, "b")))
    walk.remove(PodUID("p1"))
    walk.remove(PodUID("never-there"))
    assert walk.settle() == first


def test_what_is_there_already_is_kept() -> None:
    state = State(CACHES.online - CPUSet.of(1, 9), {PodUID("old"): {"app": CPUSet.of(1, 9)}})
    plan = make_plan([pod_of(pinned(2))], CACHES, CONFIG, Running(state))
    assert str(plan.placements[0].cpus) == "2,10"
    assert str(plan.before.exclusive) == "1,9"


def test_pods_that_run_are_placed_where_they_are_and_nothing_is_decided_about_them() -> None:
    old = pod_of(pinned(2), uid="old")
    state = State(CACHES.online - CPUSet.of(5, 9), {old.uid: {"app": CPUSet.of(5, 9)}})
    strict = Config("static", {"full-pcpus-only": "true"}, CONFIG.reserved)
    plan = make_plan([], CACHES, strict, Running(state, [old]))
    assert str(plan.placements[0].cpus) == "5,9"
    assert plan.placements[0].outcome.was_running
    assert not plan.placements[0].trace.steps


def test_pods_that_are_gone_make_room_first() -> None:
    state = State(CACHES.online - CPUSet.of(1, 9), {PodUID("old"): {"app": CPUSet.of(1, 9)}})
    plan = make_plan([pod_of(pinned(2))], CACHES, CONFIG, Running(state, gone=[PodUID("old")]))
    assert str(plan.placements[0].cpus) == "1,9"


def test_a_state_of_another_machine_is_refused() -> None:
    with pytest.raises(OtherCPUs):
        make_plan([], CACHES, CONFIG, Running(State(CPUSet.parse("0-63"))))


def test_policy_none_places_all_pods_in_the_shared_pool() -> None:
    plan = make_plan([pod_of(pinned(2))], CACHES, Config())
    assert plan.placements[0].cpus is None
    assert plan.placements[0].wanted == 0
    assert plan.after.shared == CACHES.online
    assert not plan.broken


def test_a_placement_tells_the_steps_that_led_to_it() -> None:
    placement = make_plan([pod_of(pinned(2))], CACHES, CONFIG).placements[0]
    assert "CPUs 1,9" in placement.trace.text()


def test_a_refusal_tells_its_steps_too() -> None:
    config = Config("static", {"full-pcpus-only": "true"}, CONFIG.reserved)
    placement = make_plan([pod_of(pinned(3))], CACHES, config).placements[0]
    assert isinstance(placement.refusal, SMTAlignmentError)
    assert "SMTAlignmentError" in placement.trace.text()


def test_a_pod_that_is_refused_as_a_whole_has_no_single_culprit() -> None:
    config = Config("static", reserved=CONFIG.reserved, topology_policy="single-numa-node", topology_scope="pod")
    machine = preset("sockets:2,cores:4,threads:2")
    plan = make_plan([pod_of(pinned(5, "a"), pinned(5, "b"))], machine, config)
    assert [placement.is_culprit for placement in plan.placements] == [True, True]


def test_cpus_of_pods_with_resources_of_their_own_are_found() -> None:
    gates = {"PodLevelResourceManagers": True}
    config = Config(
        "static", reserved=CONFIG.reserved, topology_policy="best-effort", topology_scope="pod", gates=gates
    )
    whole = Pod(PodUID("w"), "w", containers=(pinned(2, "a"), Container("b")), resources=guaranteed(4000))
    a, b = make_plan([whole], CACHES, config).placements
    assert a.cpus is not None
    assert b.cpus is not None
    assert (len(a.cpus), len(b.cpus)) == (2, 2)


def test_spread_containers_are_listed() -> None:
    plan = make_plan([pod_of(pinned(4), uid="a"), pod_of(pinned(4), uid="b")], CACHES, CONFIG)
    assert [placement.pod.uid for placement in plan.misaligned] == ["b"]


def test_only_a_kubelets_plan_has_defects() -> None:
    hybrid = preset("i7-12850hx")
    config = Config("static", {"full-pcpus-only": "true"}, Reservation.of(CPUSet.of(0, 1)))
    pods = [pod_of(pinned(3))]
    exact = Config(config.policy, config.options, config.reserved, fidelity=Fidelity.KUBELET)
    assert not make_plan(pods, hybrid, config).defects
    who, defect, _ = make_plan(pods, hybrid, exact).defects[0]
    assert (who, defect) == ("p1/app", Defect.AVERAGE_SIZE)


def test_a_kubelet_that_empties_the_shared_pool_is_caught() -> None:
    strict = Config(
        "static", {"strict-cpu-reservation": "true"}, Reservation.of(CPUSet.of(0)), fidelity=Fidelity.KUBELET
    )
    plan = make_plan([pod_of(pinned(3))], preset("cores:4"), strict)
    assert any(defect is Defect.EMPTY_SHARED_POOL for _, defect, _ in plan.defects)
    assert "the shared pool is empty" in plan.broken


def test_the_qos_class_of_a_placement_is_its_pods() -> None:
    burstable = Pod(PodUID("b"), "b", containers=(Container("c", Resources(Amounts(cpu=2000))),))
    assert make_plan([burstable], CACHES, CONFIG).placements[0].pod.qos is QoS.BURSTABLE


def test_a_kubelet_that_gives_a_cpu_to_two_pods_is_caught_by_their_names() -> None:
    sizes = {"a": 1, "b": 7, "c": 2}
    pods = [replace(pod_of(pinned(cpus), uid=f"uid-{name}"), name=name) for name, cpus in sizes.items()]
    exact = Config("static", reserved=Reservation.of(CPUSet.of(16)), fidelity=Fidelity.KUBELET)
    plan = make_plan(pods, preset("i7-12850hx"), exact)
    assert plan.broken == ("pods c and b both have CPUs 0",)
    assert ("c/app", Defect.UNAVAILABLE_CPUS, "CPUs 0 were taken though they were not free") in plan.defects


def test_defects_in_what_a_kubelet_reserves_are_told() -> None:
    exact = Config("static", reserved=Reservation(milli=3000), fidelity=Fidelity.KUBELET)
    assert make_plan([], preset("i7-12850hx"), exact).defects[0][:2] == ("reserved CPUs", Defect.AVERAGE_SIZE)


@pytest.mark.parametrize("fidelity", Fidelity)
def test_only_a_kubelet_keeps_the_cpus_of_a_pod_that_it_has_refused(fidelity: Fidelity) -> None:
    config = Config(
        "static",
        reserved=CONFIG.reserved,
        topology_policy="best-effort",
        topology_scope="pod",
        gates={"PodLevelResourceManagers": True},
        fidelity=fidelity,
    )
    whole = Pod(PodUID("w"), "w", containers=(pinned(3, "a"), pinned(3, "b")), resources=guaranteed(4000))
    plan = make_plan([whole], CACHES, config)
    assert plan.refused
    assert len(plan.before.shared - plan.after.shared) == (4 if fidelity is Fidelity.KUBELET else 0)
