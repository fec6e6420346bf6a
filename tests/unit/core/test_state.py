from __future__ import annotations

import pytest

from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.core.pods.pod import PodUID
from pinfold.core.state import State

ONLINE = CPUSet.parse("0-7")
P1, P2 = PodUID("p1"), PodUID("p2")
STATE = State(
    CPUSet.parse("0,5-7"),
    {P1: {"setup": CPUSet.parse("1-2"), "app": CPUSet.parse("1")}, P2: {"app": CPUSet.parse("3")}},
    {P2: CPUSet.parse("3-4")},
    reusable={P1: CPUSet.parse("2")},
)


def test_a_containers_cpus_are_found_by_pod_and_name() -> None:
    assert str(STATE.cpus(P1, "app")) == "1"
    assert STATE.cpus(P1, "other") is None
    assert STATE.cpus(PodUID("nobody"), "app") is None


def test_a_pods_cpus_are_those_of_all_its_containers() -> None:
    assert str(STATE.cpus_of_pod(P1)) == "1-2"
    assert STATE.cpus_of_pod(PodUID("nobody")) == EMPTY


def test_exclusive_cpus_are_those_of_containers_and_of_pods_as_a_whole() -> None:
    assert str(STATE.exclusive) == "1-4"
    assert State.new().exclusive == EMPTY


def test_a_restart_loses_what_can_be_reused_and_nothing_else() -> None:
    restarted = STATE.restarted()
    assert restarted == STATE._replace(reusable={})
    assert restarted.restarted() == restarted


def test_a_new_state_has_no_cpus_at_all() -> None:
    assert State.new() == State(EMPTY)
    assert not State.new().shared


def test_a_sound_state_breaks_nothing() -> None:
    assert STATE.check(ONLINE) == []
    assert State(ONLINE).check(ONLINE) == []


def test_reserved_cpus_that_are_kept_apart_need_not_be_shared() -> None:
    state = STATE._replace(shared=CPUSet.parse("5-7"))
    assert state.check(ONLINE, kept_apart=CPUSet.of(0)) == []


def test_containers_of_one_pod_may_share_cpus_because_init_containers_end() -> None:
    assert STATE.cpus_of_pod(P1) == STATE.cpus(P1, "setup")
    assert STATE.check(ONLINE) == []


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        pytest.param(State(EMPTY, {P1: {"app": ONLINE}}), ["the shared pool is empty"], id="nothing is left to share"),
        pytest.param(
            STATE._replace(shared=CPUSet.parse("0,3,5-7")),
            ["pod p2 has CPUs 3, which are also shared"],
            id="shared and exclusive",
        ),
        pytest.param(
            STATE._replace(shared=CPUSet.parse("0,4-7")),
            ["pod p2 has CPUs 4, which are also shared"],
            id="shared and of a pod as a whole",
        ),
        pytest.param(
            State(CPUSet.parse("0-6"), {P1: {"app": CPUSet.of(7)}, P2: {"app": CPUSet.of(7)}}),
            ["pods p2 and p1 both have CPUs 7"],
            id="two owners",
        ),
        pytest.param(
            STATE._replace(pods={P2: CPUSet.of(4)}),
            ["pod p2 has containers on 3, outside of its own CPUs"],
            id="outside of the pod's own",
        ),
        pytest.param(
            STATE._replace(shared=CPUSet.parse("0,5-8")), ["CPUs 8 are in use, but not online"], id="not online"
        ),
        pytest.param(
            STATE._replace(shared=CPUSet.parse("0,5-6")), ["CPUs 7 belong to no pool or container"], id="lost"
        ),
        pytest.param(
            State(CPUSet.parse("1-7,9"), {P1: {"app": CPUSet.of(1)}}),
            [
                "pod p1 has CPUs 1, which are also shared",
                "CPUs 9 are in use, but not online",
                "CPUs 0 belong to no pool or container",
            ],
            id="all of them are named",
        ),
    ],
)
def test_each_broken_invariant_is_named(broken: State, words: list[str]) -> None:
    assert broken.check(ONLINE) == words


def test_a_reserved_cpu_that_is_kept_apart_but_assigned_is_named() -> None:
    state = State(CPUSet.parse("2-7"), {P1: {"app": CPUSet.parse("0-1")}})
    assert state.check(ONLINE, kept_apart=CPUSet.of(0)) == ["pod p1 has CPUs 0, which are reserved"]


def test_a_reserved_cpu_that_is_kept_apart_but_shared_is_named() -> None:
    assert State(ONLINE).check(ONLINE, kept_apart=CPUSet.of(0)) != []
