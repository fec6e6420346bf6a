"""What should be, out of a State, and what is not so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.core.reconcile import Drift, Observed, Wanted, describe, drift, wanted
from pinfold.core.state import State

WEB, DB = ContainerRef(PodUID("web"), "app"), ContainerRef(PodUID("db"), "app")
STATE = State(CPUSet.parse("0-1"), {WEB.pod: {WEB.name: CPUSet.of(2)}})

cpus = st.integers(0, 255).map(CPUSet)
refs = st.builds(ContainerRef, st.sampled_from(["p1", "p2"]).map(PodUID), st.sampled_from(["a", "b", "c"]))
wants = st.builds(Wanted, cpus, st.dictionaries(refs, cpus))


def test_the_shared_pool_and_every_assignment_are_wanted() -> None:
    want = wanted(STATE, STATE.shared)
    assert want == Wanted(CPUSet.parse("0-1"), {WEB: CPUSet.of(2)})
    assert (want.cpus_of(WEB), want.cpus_of(DB)) == (CPUSet.of(2), CPUSet.parse("0-1"))


def test_a_state_without_assignments_wants_the_shared_pool_alone() -> None:
    assert wanted(State(CPUSet.of(0)), CPUSet.of(0)) == Wanted(CPUSet.of(0), {})


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        (Observed(CPUSet.parse("0-1"), {WEB: CPUSet.of(2), DB: CPUSet.parse("0-1")}), []),
        (Observed(None, {}), []),
        (Observed(CPUSet.parse("0-2"), {}), ["the shared pool has CPUs 0-2 instead of 0-1"]),
        (Observed(None, {WEB: CPUSet.parse("0-3")}), ["has CPUs 0-3 instead of 2"]),
        (Observed(None, {DB: CPUSet.of(2)}), ["has CPUs 2 instead of 0-1"]),
        (Observed(None, {WEB: EMPTY}), ["has CPUs none instead of 2"]),
        (
            Observed(CPUSet.of(0), {WEB: CPUSet.of(3)}),
            ["the shared pool has CPUs 0 instead of 0-1", "has CPUs 3 instead of 2"],
        ),
    ],
    ids=["all right", "nothing to see", "pool", "exclusive", "shared container", "no CPU", "pool first"],
)
def test_every_difference_is_named(observed: Observed, expected: list[str]) -> None:
    found = list(drift(wanted(STATE, STATE.shared), observed))
    assert len(found) == len(expected)
    for difference, end in zip(found, expected, strict=True):
        assert difference.said({}).endswith(end)
        assert difference.container is None or difference.container.name in difference.said({})


def test_of_two_containers_with_one_name_it_is_said_whose_has_drifted() -> None:
    names = {WEB.pod: "default/web", DB.pod: "default/db"}
    said = describe([Drift(ref, CPUSet.of(1), CPUSet.of(2)) for ref in (WEB, DB)], names)
    assert ["of pod default/web has" in said, "of pod default/db has" in said] == [True, True]


@given(wants)
def test_what_is_as_wanted_has_not_drifted(want: Wanted) -> None:
    assert list(drift(want, Observed(want.shared, want.exclusive))) == []


@given(wants, st.dictionaries(refs, cpus), st.none() | cpus)
def test_setting_what_has_drifted_right_leaves_no_drift(
    want: Wanted, containers: dict[ContainerRef, CPUSet], shared: CPUSet | None
) -> None:
    observed = Observed(shared, containers)
    repaired = dict(containers)
    for container, right, found, *_ in drift(want, observed):
        if container is None:
            assert found == shared
            shared = right
        else:
            assert found == containers[container] != right
            repaired[container] = right
    assert list(drift(want, Observed(shared, repaired))) == []
