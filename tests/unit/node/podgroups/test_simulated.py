"""Simulated groups: the kernel's rules one by one, and laws that hold under the rules of v1 and of v2 alike.

That the kernel really does the same is shown in tests/contract/test_simulated_groups.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.node.cgroupfiles import CgroupError
from pinfold.node.podgroups.paths import GroupPathError
from pinfold.node.podgroups.settings import CPUS, MEMS, Quota
from pinfold.node.podgroups.simulated import Simulated

if TYPE_CHECKING:
    from collections.abc import Callable

ALL = CPUSet.parse("0-7")
LOW, HIGH = CPUSet.parse("0-3"), CPUSet.parse("4-7")
NAMES = ("a", "a/x", "a/y", "b", "b/z")


@pytest.fixture(params=[False, True], ids=["v2", "v1"])
def driver(request: pytest.FixtureRequest) -> Simulated:
    return Simulated(ALL, nested=request.param)


def test_on_v2_the_groups_above_cut_and_a_group_without_cpus_follows() -> None:
    driver = Simulated(ALL)
    parent, child = driver.root / "a", driver.make(driver.root / "a/x")
    for above, own, effective in ((LOW, EMPTY, LOW), (LOW, ALL, LOW), (LOW, HIGH, LOW), (ALL, HIGH, HIGH)):
        driver.set_own(parent, CPUS, above)
        driver.set_own(child, CPUS, own)
        assert driver.effective(child, CPUS) == effective
        assert driver.own(child, CPUS) == own


def test_on_v1_a_group_must_be_within_the_one_above() -> None:
    driver = Simulated(ALL, nested=True)
    parent, child = driver.root / "a", driver.make(driver.root / "a/x")
    with pytest.raises(CgroupError, match=r"a/cpuset\.cpus: 0-3 → EBUSY: a group below has CPUs that would be taken"):
        driver.set_own(parent, CPUS, LOW)
    driver.set_own(child, CPUS, LOW)
    driver.set_own(parent, CPUS, LOW)
    with pytest.raises(CgroupError, match=r"a/x/cpuset\.cpus: 4-7 → EACCES: the group above does not have all"):
        driver.set_own(child, CPUS, HIGH)
    assert (driver.own(parent, CPUS), driver.own(child, CPUS)) == (LOW, LOW)


def test_on_v1_a_new_group_has_what_the_one_above_has_and_needs_it_to_take_a_process() -> None:
    driver = Simulated(ALL, nested=True)
    driver.set_own(driver.make(driver.root / "a"), CPUS, LOW)
    group = driver.make(driver.root / "a/x")
    assert (driver.own(group, CPUS), driver.own(group, MEMS)) == (LOW, CPUSet.of(0))
    driver.set_own(group, CPUS, EMPTY)
    with pytest.raises(CgroupError, match="ENOSPC: the group has no CPUs or no NUMA nodes yet"):
        driver.put(7, group)


def test_a_group_with_processes_keeps_its_cpus(driver: Simulated) -> None:
    group = driver.make(driver.root / "a")
    driver.set_own(group, CPUS, LOW)
    driver.put(7, driver.make(driver.root / "a/x"))
    driver.set_own(driver.root / "a/x", CPUS, LOW)
    for path in (driver.root / "a/x", group) if not driver.nested else (driver.root / "a/x",):
        with pytest.raises(CgroupError, match=r"\(nothing\) → ENOSPC: the group has processes"):
            driver.set_own(path, CPUS, EMPTY)


def test_a_cpu_that_does_not_exist_is_refused(driver: Simulated) -> None:
    with pytest.raises(CgroupError, match=r"8 → ERANGE: no such CPU"):
        driver.set_own(driver.make(driver.root / "a"), CPUS, CPUSet.of(8))


def test_the_top_group_cannot_be_set(driver: Simulated) -> None:
    with pytest.raises(CgroupError, match="EACCES"):
        driver.set_own(driver.root, CPUS, LOW)


@pytest.mark.parametrize(
    "ask",
    [
        lambda driver, group: driver.own(group, CPUS),
        lambda driver, group: driver.effective(group, CPUS),
        lambda driver, group: driver.set_own(group, CPUS, LOW),
        lambda driver, group: driver.quota(group),
        lambda driver, group: driver.members(group),
        lambda driver, group: driver.put(7, group),
    ],
    ids=["own", "effective", "set_own", "quota", "members", "put"],
)
def test_a_group_that_does_not_exist_is_an_error(driver: Simulated, ask: Callable[[Simulated, Path], object]) -> None:
    with pytest.raises(CgroupError, match="ENOENT: there is no such group"):
        ask(driver, driver.root / "gone")
    assert (driver.below(driver.root / "gone"), driver.exists(driver.root / "gone")) == ([], False)
    assert driver.set_quota(driver.root / "gone", Quota(None)) == ()
    driver.remove(driver.root / "gone")


def test_a_group_outside_of_the_hierarchy_cannot_be_made(driver: Simulated) -> None:
    with pytest.raises(GroupPathError, match="is not below /simulated"):
        driver.make(Path("/etc"))


def test_a_group_with_processes_or_groups_below_cannot_be_removed(driver: Simulated) -> None:
    inner = driver.make(driver.root / "a/x")
    driver.put(7, inner)
    for group in (inner.parent, inner):
        with pytest.raises(CgroupError, match="EBUSY: it has processes or groups below it"):
            driver.remove(group)
    driver.end(7)
    for group in (inner, inner.parent):
        driver.remove(group)
    assert driver.below(driver.root) == []


def test_a_process_is_in_one_group(driver: Simulated) -> None:
    first, second = driver.make(driver.root / "a"), driver.make(driver.root / "b")
    driver.put(7, first)
    driver.put(8, first)
    driver.put(7, second)
    assert (driver.members(first), driver.members(second), driver.group_of(7)) == ([8], [7], second)
    driver.put(7, driver.root)
    driver.end(8)
    assert (driver.group_of(7), driver.group_of(8)) == (None, None)


def test_lifting_a_quota_keeps_its_period(driver: Simulated) -> None:
    group = driver.make(driver.root / "a")
    driver.set_quota(group, Quota(25_000, 50_000))
    (setting,) = driver.set_quota(group, Quota(None))
    assert (setting.before, setting.value, setting.properties) == ("25000 50000", "max 50000", ("CPUQuota=",))
    assert driver.quota(group) == Quota(None, 50_000)


def test_systemd_knows_of_cpusets_on_v2_only(driver: Simulated) -> None:
    setting = driver.set_own(driver.make(driver.root / "a"), CPUS, LOW)
    assert setting.properties == (() if driver.nested else ("AllowedCPUs=0-3",))


def look(driver: Simulated) -> dict[Path, tuple[CPUSet, CPUSet, list[int]]]:
    found = {}
    groups = [driver.root]
    for group in groups:
        groups += driver.below(group)
        found[group] = (driver.own(group, CPUS), driver.effective(group, CPUS), driver.members(group))
    return found


def check(driver: Simulated) -> None:
    for group, (own, effective, pids) in look(driver).items():
        assert effective or not pids
        if group != driver.root:
            above = driver.effective(group.parent, CPUS)
            assert effective <= above
            assert effective == (own if driver.nested else own & above or above)


def act(driver: Simulated, what: str, group: Path, cpus: CPUSet, pid: int) -> None:
    match what:
        case "set":
            driver.set_own(group, CPUS, cpus)
        case "make":
            driver.make(group)
        case "put":
            driver.put(pid, group)
        case "end":
            driver.end(pid)
        case _:
            driver.remove(group)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["set", "set", "set", "make", "put", "end", "remove"]),
        st.sampled_from(NAMES),
        st.sets(st.sampled_from([0, 1, 2])).map(CPUSet.from_cpus),
        st.sampled_from([1, 2]),
    ),
    max_size=30,
)


@given(st.booleans(), STEPS)
def test_no_process_is_without_cpus_or_outside_of_the_groups_above_and_a_refusal_changes_nothing(
    nested: bool,  # noqa: FBT001 - drawn
    steps: list[tuple[str, str, CPUSet, int]],
) -> None:
    driver = Simulated(CPUSet.parse("0-2"), nested=nested)
    for what, name, cpus, pid in steps:
        before = look(driver)
        try:
            act(driver, what, driver.root / name, cpus, pid)
        except CgroupError:
            assert look(driver) == before
        check(driver)
