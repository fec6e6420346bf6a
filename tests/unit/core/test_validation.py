"""Whether a State fits the machine, in the words of the kubelet."""

from __future__ import annotations

import pytest

from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.core.pods.pod import PodUID
from pinfold.core.state import State
from pinfold.core.validation import (
    AssignmentShared,
    EmptySharedPool,
    OtherCPUs,
    ReservedNotShared,
    ReservedShared,
    StateMismatch,
    validate,
)

ONLINE = CPUSet.parse("0-7")
RESERVED = CPUSet.parse("0,4")
POD = PodUID("p1")


def state_of(shared: str, *, assigned: str = "", pod: str = "") -> State:
    assignments = {POD: {"c0": CPUSet.parse(assigned)}} if assigned else {}
    return State(CPUSet.parse(shared), assignments, {POD: CPUSet.parse(pod)} if pod else {})


def refusal(state: State, *, strict: bool = False) -> StateMismatch:
    with pytest.raises(StateMismatch) as caught:
        validate(state, online=ONLINE, reserved=RESERVED, strict=strict)
    return caught.value


def test_the_first_state_shares_every_cpu() -> None:
    assert validate(State(EMPTY), online=ONLINE, reserved=RESERVED).shared == ONLINE


def test_the_first_state_keeps_strictly_reserved_cpus_apart() -> None:
    first = validate(State(EMPTY), online=ONLINE, reserved=RESERVED, strict=True)
    assert first.shared == CPUSet.parse("1-3,5-7")
    assert first.check(ONLINE, kept_apart=RESERVED) == []


@pytest.mark.parametrize(
    ("state", "strict"),
    [
        (state_of("0-7"), False),
        (state_of("0,2-7", assigned="1"), False),
        (state_of("1-3,5-7"), True),
        (state_of("1-3", assigned="5-7"), True),
        (state_of("0,4-7", assigned="1", pod="1-3"), False),
    ],
)
def test_a_state_that_fits_is_kept_as_it_is(state: State, *, strict: bool) -> None:
    assert validate(state, online=ONLINE, reserved=RESERVED, strict=strict) is state


@pytest.mark.parametrize(
    "state", [state_of("", assigned="0-7"), state_of("", pod="0-7"), State(EMPTY, {POD: {}})], ids=str
)
def test_assignments_without_a_shared_pool_are_refused(state: State) -> None:
    error = refusal(state)
    assert isinstance(error, EmptySharedPool)
    assert error.reference == "default cpuset cannot be empty"


def test_reserved_cpus_must_be_shared() -> None:
    error = refusal(state_of("4-7", assigned="0-3"))
    assert isinstance(error, ReservedNotShared)
    assert error.reference == 'not all reserved cpus: "0,4" are present in defaultCpuSet: "4-7"'
    assert str(error).startswith("reserved CPUs 0 are not in the shared pool 4-7;")


def test_strictly_reserved_cpus_must_not_be_shared() -> None:
    error = refusal(state_of("4-7", assigned="1-3"), strict=True)
    assert isinstance(error, ReservedShared)
    assert error.reference == 'some of strictly reserved cpus: "4" are present in defaultCpuSet: "4-7"'
    assert str(error).startswith("strictly reserved CPUs 4 are in the shared pool 4-7;")


def test_an_assignment_must_not_be_shared() -> None:
    error = refusal(state_of("0-7", assigned="6-9"))
    assert isinstance(error, AssignmentShared)
    assert error.reference == 'pod: p1, container: c0 cpuset: "6-9" overlaps with default cpuset "0-7"'
    assert str(error).startswith("container c0 of pod p1 has CPUs 6-9, but 6-7 are also in the shared pool;")


def test_a_state_of_more_cpus_than_the_machine_has_is_refused() -> None:
    error = refusal(state_of("0,4-9", assigned="1-3"))
    assert isinstance(error, OtherCPUs)
    assert error.reference == 'current set of available CPUs "0-7" doesn\'t match with CPUs in state "0-9"'
    assert str(error).startswith("CPUs 8-9 of the State are not available;")


def test_a_state_of_fewer_cpus_than_the_machine_has_is_refused() -> None:
    error = refusal(state_of("1-2", assigned="5-6"), strict=True)
    assert isinstance(error, OtherCPUs)
    assert error.reference == 'current set of available CPUs "1-3,5-7" doesn\'t match with CPUs in state "1-2,5-6"'
    assert str(error).startswith("CPUs 3,7 of the machine are not in the State;")


def test_a_strictly_reserved_cpu_that_is_assigned_counts_as_not_available() -> None:
    error = refusal(state_of("1-2", assigned="0"), strict=True)
    assert str(error).startswith(
        "CPUs 0 of the State are not available and CPUs 3,5-7 of the machine are not in the State;"
    )


def test_what_is_wrong_with_reserved_cpus_is_said_before_what_is_wrong_with_others() -> None:
    assert isinstance(refusal(state_of("1-9", assigned="1")), ReservedNotShared)
