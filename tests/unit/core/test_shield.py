"""Where the rest of the host may run while CPUs are kept for containers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.core.shield import (
    ChangedPlace,
    HostPlace,
    KeptCPUs,
    PlaceKind,
    Shift,
    counted,
    kept_cpus,
    plan_shield,
    target,
)
from tests.unit.manager.test_manager import ADMITTER, FIRST, ONE

ONLINE = CPUSet.parse("0-7")
ROOM = KeptCPUs(CPUSet.parse("2-3"), ONLINE)
IRQ = HostPlace(PlaceKind.IRQ, "24", "eth0")
SLICE = HostPlace(PlaceKind.GROUP, "system.slice")

cpusets = st.integers(0, 255).map(CPUSet)
real = st.integers(1, 255).map(CPUSet)


def cpus(text: str) -> CPUSet:
    return CPUSet.parse(text)


@pytest.mark.parametrize(
    ("now", "then"),
    [("0-7", "0-1,4-7"), ("2-4", "4"), ("2", "0-1,4-7"), ("", "0-1,4-7")],
    ids=["everywhere", "partly kept", "only kept", "inherits"],
)
def test_a_place_on_kept_cpus_moves_to_the_rest_of_its_own(now: str, then: str) -> None:
    plan = plan_shield({IRQ: cpus(now)}, {}, ROOM)
    assert plan.shifts == (Shift(IRQ, cpus(now), cpus(then)),)
    assert plan.origins == {IRQ.key: ChangedPlace(cpus(now), cpus(then), cpus(now))}


def test_a_place_elsewhere_is_left_alone() -> None:
    assert plan_shield({IRQ: cpus("0-1")}, {}, ROOM) == ((), {})


def test_a_release_gives_back_what_was_there() -> None:
    origins = {SLICE.key: ChangedPlace(EMPTY, cpus("0-1,4-7"), EMPTY)}
    plan = plan_shield({SLICE: cpus("0-1,4-7")}, origins, KeptCPUs(EMPTY, ONLINE))
    assert plan.shifts == (Shift(SLICE, cpus("0-1,4-7"), EMPTY),)


def test_a_place_that_has_chosen_other_cpus_keeps_them() -> None:
    origins = {IRQ.key: ChangedPlace(ONLINE, cpus("0-1,4-7"), cpus("0-1,4-7"))}
    assert plan_shield({IRQ: cpus("5")}, origins, ROOM) == ((), {})


def test_a_change_undone_by_another_program_is_made_again() -> None:
    origins = {IRQ.key: ChangedPlace(ONLINE, cpus("0-1,4-7"), cpus("0-1,4-7"))}
    plan = plan_shield({IRQ: cpus("3")}, origins, ROOM)
    assert plan.shifts == (Shift(IRQ, cpus("3"), cpus("0-1,4-7"), again=True),)
    assert plan.origins[IRQ.key].before == ONLINE


def test_nothing_moves_if_no_cpu_would_remain_for_the_host() -> None:
    assert plan_shield({IRQ: ONLINE}, {}, KeptCPUs(ONLINE, ONLINE)).shifts == ()


def test_reserved_cpus_are_never_kept() -> None:
    state = ADMITTER.admit(FIRST, ONE).state
    assert kept_cpus(ADMITTER.policy, state) == state.exclusive
    assert not kept_cpus(ADMITTER.policy, state) & ADMITTER.policy.reserved


def test_places_are_counted_by_kind() -> None:
    places = [
        IRQ,
        SLICE,
        HostPlace(PlaceKind.PROCESS, "1:2"),
        HostPlace(PlaceKind.PROCESS, "3:4"),
        HostPlace(PlaceKind.NEW_IRQS, ""),
    ]
    assert counted(places) == "system.slice, 1 IRQ, new IRQs, 2 processes"
    assert str(IRQ) == "IRQ 24 (eth0)"


@given(now=cpusets, kept=cpusets)
def test_a_target_is_off_the_kept_cpus_and_never_empty(now: CPUSet, kept: CPUSet) -> None:
    room = KeptCPUs(kept, ONLINE)
    if room.rest:
        then = target(now, room)
        assert not (then or ONLINE) & kept
        assert then <= (now or ONLINE) or then == room.rest


@given(st.dictionaries(st.integers(0, 9), real), st.lists(cpusets, max_size=4))
def test_after_any_way_everything_is_where_it_was(start: dict[int, CPUSet], way: list[CPUSet]) -> None:
    places = {HostPlace(PlaceKind.IRQ, str(number)): where for number, where in start.items()}
    now, origins = dict(places), dict[str, ChangedPlace]()
    for kept in (*way, EMPTY):
        plan = plan_shield(now, origins, KeptCPUs(kept, ONLINE))
        now.update((shift.place, shift.then) for shift in plan.shifts)
        origins = dict(plan.origins)
        if ONLINE - kept:
            assert not any(where & kept for where in now.values())
    assert now == places
