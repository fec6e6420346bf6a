"""Laws of the way from one distribution of CPUs to another."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.core.reconcile import Wanted, steps

REFS = [ContainerRef(PodUID(f"p{number}"), "app") for number in range(4)]
MACHINE = CPUSet.parse("0-7")


@st.composite
def distributions(draw: st.DrawFn) -> Wanted:
    """Return the CPUs 0-7, each given to the pool or to one of four containers; the pool has at least one."""
    owners = draw(st.lists(st.sampled_from([None, None, *REFS]), min_size=8, max_size=8))
    owners[draw(st.integers(0, 7))] = None
    of = {ref: CPUSet.from_cpus(cpu for cpu, owner in enumerate(owners) if owner == ref) for ref in [None, *REFS]}
    return Wanted(of[None], {ref: of[ref] for ref in REFS if of[ref]})


def walk(now: Wanted, want: Wanted) -> list[dict[ContainerRef | None, CPUSet]]:
    """Return who has what after every step; those that are not wanted any more have left before the first."""
    have: dict[ContainerRef | None, CPUSet] = {None: now.shared}
    have.update((ref, cpus) for ref, cpus in now.exclusive.items() if ref in want.exclusive)
    seen = []
    for step in steps(now, want):
        have[step.container] = step.cpus
        seen.append(dict(have))
    return seen or [have]


def overlap(have: dict[ContainerRef | None, CPUSet]) -> CPUSet:
    seen = twice = EMPTY
    for cpus in have.values():
        twice |= seen & cpus
        seen |= cpus
    return twice


@given(distributions(), distributions())
def test_the_way_ends_where_it_should(now: Wanted, want: Wanted) -> None:
    assert walk(now, want)[-1] == dict([(None, want.shared), *want.exclusive.items()])


@given(distributions(), distributions())
def test_no_container_is_ever_without_a_cpu_and_none_gets_one_that_is_not_wanted(now: Wanted, want: Wanted) -> None:
    target = dict([(None, want.shared), *want.exclusive.items()])
    for step in steps(now, want):
        assert step.cpus
        assert step.cpus <= target[step.container]


@given(distributions(), distributions())
def test_two_have_a_cpu_in_common_only_after_a_step_that_says_so(now: Wanted, want: Wanted) -> None:
    clash = EMPTY
    for step, have in zip(steps(now, want), walk(now, want), strict=False):
        clash |= step.clash
        assert overlap(have) <= clash


@given(distributions())
def test_where_nothing_is_to_be_done_nothing_is(now: Wanted) -> None:
    assert steps(now, now) == []


@given(distributions(), distributions())
def test_a_pool_that_keeps_a_cpu_never_clashes_when_containers_come_and_go(now: Wanted, want: Wanted) -> None:
    same = {ref: cpus for ref, cpus in want.exclusive.items() if now.exclusive.get(ref, cpus) == cpus}
    kept = Wanted(MACHINE - CPUSet.from_cpus(cpu for cpus in same.values() for cpu in cpus), same)
    if kept.shared & now.shared and all(ref in same for ref in now.exclusive):
        assert not any(step.clash for step in steps(now, kept))
