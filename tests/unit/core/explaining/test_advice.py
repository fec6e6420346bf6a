from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pinfold.core.config import Config, Reservation
from pinfold.core.explaining.advice import NO_ADVICE, Advice, advise, resized
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import preset
from pinfold.core.pods.pod import Amounts, Container, Pod, PodUID, Resources
from pinfold.core.state import State
from pinfold.planning.plan import Running, make_plan
from tests.property.strategies import pinned, pod_of

if TYPE_CHECKING:
    from pinfold.core.machine.topology import Topology

NODES = preset("sockets:2,numa:1,cores:4,threads:2")  # 16 CPUs; nodes 0-3,8-11 and 4-7,12-15
RESERVED = Reservation.of(CPUSet.of(0, 8))


def advice_for_last(
    *pods: Pod, machine: Topology = NODES, topology: str = "none", options: tuple[str, ...] = ()
) -> Advice:
    plan = make_plan(pods, machine, Config("static", dict.fromkeys(options, "true"), RESERVED, topology))
    return advise(plan.ruler, plan.outcomes[-1], plan.names)


def test_a_pod_that_fits_needs_no_advice() -> None:
    assert advice_for_last(pod_of(pinned(2))) == NO_ADVICE
    assert not str(NO_ADVICE)


def test_too_many_cpus_are_told_with_what_would_fit() -> None:
    assert str(advice_for_last(pod_of(pinned(20)))) == (
        "20 CPUs are not available: 14 of 16 can be exclusive (CPUs 1-7,9-15; CPUs 0,8 are reserved). "
        "Would fit with 14 CPUs."
    )


def test_what_would_fit_is_told_also_to_a_container_that_asks_for_far_too_much() -> None:
    assert advice_for_last(pod_of(pinned(1000))).sizes == (14,)


def test_cpus_of_finished_init_containers_can_be_given_again() -> None:
    pod = pod_of(pinned(15, "app"), init=[pinned(4, "setup")])
    assert advice_for_last(pod).room == "14 of 16 can be exclusive (CPUs 1-7,9-15; CPUs 0,8 are reserved)"


def test_a_container_that_would_make_room_by_ending_is_named() -> None:
    advice = advice_for_last(pod_of(pinned(4), uid="a"), pod_of(pinned(6), uid="b"), pod_of(pinned(10), uid="c"))
    assert (advice.move, advice.end, advice.sizes) == (None, "b/app", (4,))
    assert "Would fit if b/app ended, or with 4 CPUs." in str(advice)


SINGLE = Config("static", reserved=RESERVED, topology_policy="single-numa-node")


def test_a_container_that_could_move_is_named_rather_than_one_that_had_to_end() -> None:
    """The small one lies in the node that the large one needs, and there is room for it in the other."""
    state = State(NODES.online - CPUSet.of(4, 12), {PodUID("small"): {"app": CPUSet.of(4, 12)}})
    plan = make_plan([pod_of(pinned(8), uid="large")], NODES, SINGLE, Running(state))
    advice = advise(plan.ruler, plan.outcomes[0])
    assert (advice.move, advice.end) == ("small/app", "small/app")
    assert str(advice) == (
        "8 CPUs in 1 NUMA node are not available: NUMA 0 has 6 free, NUMA 1 has 6 free. "
        "Would fit if small/app moved to other CPUs, or with 6 CPUs."
    )


def test_a_container_that_can_move_nowhere_has_to_end() -> None:
    pods = [pod_of(pinned(cpus), uid=name) for name, cpus in (("a", 6), ("b", 2), ("c", 8))]
    plan = make_plan(pods, NODES, SINGLE)
    advice = advise(plan.ruler, plan.outcomes[-1], plan.names)
    assert (advice.move, advice.end) == (None, "b/app")
    assert str(advice).endswith("Would fit if b/app ended, or with 6 CPUs.")


def test_no_multiple_of_a_core_is_told_with_the_next_ones() -> None:
    assert str(advice_for_last(pod_of(pinned(3)), options=("full-pcpus-only",))) == (
        "3 CPUs cannot be whole cores: a core has 2 CPUs. Would fit with 2 or 4 CPUs."
    )


def test_the_container_that_is_refused_next_is_named() -> None:
    pod = pod_of(pinned(3, "handler"), pinned(1, "recorder"))
    advice = advice_for_last(pod, options=("full-pcpus-only",))
    assert (advice.sizes, advice.then) == ((2, 4), "recorder")
    assert "Would fit with 2 or 4 CPUs (then recorder is refused)." in str(advice)


def test_whole_cores_that_are_not_there_are_counted() -> None:
    advice = advice_for_last(pod_of(pinned(8), uid="a"), pod_of(pinned(8), uid="b"), options=("full-pcpus-only",))
    assert advice.need == "8 CPUs on whole cores are not available"
    assert advice.room == "cores that are wholly free have 6"


def test_the_last_shared_cpu_is_left() -> None:
    machine = preset("cores:4")
    config = Config("static", {"strict-cpu-reservation": "true"}, Reservation.of(CPUSet.of(0)))
    plan = make_plan([pod_of(pinned(3))], machine, config)
    advice = str(advise(plan.ruler, plan.outcomes[0]))
    assert advice == (
        "3 CPUs are not available, because one CPU must stay shared: "
        "3 of 4 can be exclusive (CPUs 1-3; CPU 0 is reserved). Would fit with 2 CPUs."
    )


def test_a_refusal_begins_with_plain_words_and_names_the_reserved_cpus() -> None:
    plan = make_plan([pod_of(pinned(2))], preset("cores:2"), Config("static", reserved=Reservation.of(CPUSet.of(0))))
    assert str(advise(plan.ruler, plan.outcomes[0])) == (
        "2 CPUs are not available: 1 of 2 can be exclusive (CPU 1; CPU 0 is reserved). Would fit with 1 CPU."
    )


def test_a_refusal_with_no_free_cpu_says_none() -> None:
    config = Config("static", reserved=Reservation.of(CPUSet.of(0)))
    plan = make_plan([pod_of(pinned(1), uid="a"), pod_of(pinned(1), uid="b")], preset("cores:2"), config)
    assert str(advise(plan.ruler, plan.outcomes[1], plan.names)) == (
        "1 CPU is not available: none of 2 can be exclusive (CPU 1 is taken; CPU 0 is reserved). "
        "Would fit if a/app ended."
    )


def test_without_time_some_changes_are_tried_all_the_same() -> None:
    config = Config("static", reserved=Reservation.of(CPUSet.of(0)))
    plan = make_plan([pod_of(pinned(5))], preset("cores:2"), config)
    assert advise(plan.ruler, plan.outcomes[0], has_time=lambda: False).sizes == (1,)


def test_advice_is_cut_only_if_a_change_was_not_tried() -> None:
    config = Config("static", reserved=Reservation.of(CPUSet.of(0)))
    plan = make_plan([pod_of(pinned(1), uid="a"), pod_of(pinned(9), uid="b")], preset("cores:2"), config)
    assert str(advise(plan.ruler, plan.outcomes[1], has_time=lambda: False)).endswith(" No single change is enough.")
    pods = [pod_of(pinned(1), uid=f"p{number:02}") for number in range(14)]
    full = make_plan([*pods, pod_of(pinned(2), uid="q")], NODES, Config("static", reserved=RESERVED))
    assert advise(full.ruler, full.outcomes[-1], has_time=lambda: False).is_cut


def test_where_nothing_helps_it_says_so() -> None:
    pods = [pod_of(pinned(7), uid="a"), pod_of(pinned(7), uid="b"), pod_of(pinned(14), uid="c")]
    assert str(advice_for_last(*pods)).endswith(" No single change is enough.")


def test_a_pod_scope_refusal_is_about_the_container_that_wants_most() -> None:
    config = Config("static", reserved=RESERVED, topology_policy="single-numa-node", topology_scope="pod")
    plan = make_plan([pod_of(pinned(2, "small"), pinned(8, "large"))], NODES, config)
    advice = advise(plan.ruler, plan.outcomes[0])
    assert advice.need == "8 CPUs in 1 NUMA node are not available"
    assert advice.sizes == (6,)


@pytest.mark.parametrize("cpus", [1, 7])
def test_resizing_keeps_everything_but_the_cpus(cpus: int) -> None:
    pod = Pod(
        PodUID("u"), "n", containers=(Container("a", Resources(Amounts(500, 1), Amounts(2000, 1))), Container("b"))
    )
    new = resized(pod, "a", cpus)
    assert new.containers[0].resources == Resources(Amounts(cpus * 1000, 1), Amounts(cpus * 1000, 1))
    assert new.containers[1] == pod.containers[1]
    assert (new.uid, new.name) == (pod.uid, pod.name)
