"""Groups of resctrl, on a tree in memory that enforces the kernel's rules."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.core.caching import CacheClass, CacheUsage
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.errors import ConfigError
from pinfold.node.resctrl.groups import Resctrl, ResctrlError
from tests.unit.node.resctrl.fake import FakeResctrl, Hardware

GOLD, SILVER = CacheClass(0xF00, 50), CacheClass(0x0F0)
TABLE = {"gold": GOLD, "silver": SILVER, "shared": CacheClass(0x00F, 20)}
WEB, DB, LOG = (ContainerRef(PodUID("u1"), name) for name in ("web", "d/b", "log"))


def cpus(text: str) -> CPUSet:
    return CPUSet.parse(text)


def test_a_class_has_a_group_with_its_ways_its_bandwidth_and_the_cpus_of_its_containers() -> None:
    kernel = FakeResctrl()
    Resctrl(kernel, TABLE).apply({"gold": {WEB: cpus("2-3"), DB: cpus("8")}})
    group = kernel.groups["pinfold-gold"]
    assert group.limits == {"L3": {0: 0xF00, 1: 0xF00}, "MB": {0: 50, 1: 50}}
    assert group.cpus == cpus("2-3,8")
    assert group.monitors == {"u1=web": cpus("2-3"), "u1=d%2Fb": cpus("8")}
    assert kernel.groups[""].cpus == cpus("0-1,4-7,9-15")


def test_everything_else_has_the_shared_class() -> None:
    kernel = FakeResctrl()
    Resctrl(kernel, TABLE).apply({})
    assert kernel.groups[""].limits == {"L3": {0: 0xF, 1: 0xF}, "MB": {0: 20, 1: 20}}


def test_a_group_goes_with_its_last_container() -> None:
    kernel = FakeResctrl()
    resctrl = Resctrl(kernel, TABLE)
    resctrl.apply({"gold": {WEB: cpus("2-3"), DB: cpus("8")}, "silver": {LOG: cpus("9")}})
    resctrl.apply({"gold": {DB: cpus("8")}})
    assert set(kernel.groups) == {"", "pinfold-gold"}
    assert kernel.groups["pinfold-gold"].monitors == {"u1=d%2Fb": cpus("8")}
    resctrl.apply({})
    assert kernel.groups[""].cpus == kernel.hardware.cpus


def test_what_is_as_it_should_be_is_not_written_again() -> None:
    kernel = FakeResctrl()
    resctrl = Resctrl(kernel, TABLE)
    resctrl.apply({"gold": {WEB: cpus("2-3")}})
    kernel.writes = 0
    resctrl.apply({"gold": {WEB: cpus("2-3")}})
    assert kernel.writes == 0


def test_with_cdp_code_and_data_have_the_same_ways() -> None:
    kernel = FakeResctrl(Hardware(cdp=True, num_closids=8))
    Resctrl(kernel, TABLE).apply({"gold": {WEB: cpus("2")}})
    limits = kernel.groups["pinfold-gold"].limits
    assert limits["L3CODE"] == limits["L3DATA"] == {0: 0xF00, 1: 0xF00}


def test_bandwidth_is_rounded_up_as_the_kernel_does() -> None:
    kernel = FakeResctrl()
    Resctrl(kernel, {"gold": CacheClass(None, 42)}).apply({"gold": {WEB: cpus("2")}})
    assert kernel.groups["pinfold-gold"].limits == {"L3": {0: 0xFFF, 1: 0xFFF}, "MB": {0: 50, 1: 50}}


@pytest.mark.parametrize(
    ("hardware", "row", "problem"),
    [
        (Hardware(), CacheClass(0xF0F), "ways 0xf0f must be 2 or more adjacent bits of 0xfff"),
        (Hardware(), CacheClass(0x1000), "ways 0x1000 must be"),
        (Hardware(), CacheClass(0x1), "ways 0x1 must be"),
        (Hardware(), CacheClass(0), "ways 0x0 must be"),
        (Hardware(), CacheClass(None, 5), "memory bandwidth 5 must be 10 to 100 percent"),
        (Hardware(bandwidth=False), CacheClass(0xF, 50), "memory bandwidth 50 must be absent"),
    ],
)
def test_a_table_that_the_hardware_cannot_do_is_refused(hardware: Hardware, row: CacheClass, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"cache class gold: {re.escape(problem)}"):
        Resctrl(FakeResctrl(hardware), {"gold": row})


def test_more_classes_than_groups_are_refused() -> None:
    many = {f"c{number}": CacheClass() for number in range(4)}
    with pytest.raises(ConfigError, match="4 cache classes are too many: the hardware has 4 groups"):
        Resctrl(FakeResctrl(), many)


def test_without_a_mount_a_table_is_refused() -> None:
    with pytest.raises(ConfigError, match="resctrl is not mounted"):
        Resctrl(FakeResctrl(mounted=False), TABLE)


def test_groups_that_others_have_taken_are_missed_with_the_kernels_words() -> None:
    kernel = FakeResctrl(Hardware(num_closids=3))
    resctrl = Resctrl(kernel, TABLE)
    kernel.make("another")
    resctrl.apply({"gold": {WEB: cpus("2")}})
    with pytest.raises(ResctrlError, match="pinfold-silver: Out of CLOSIDs"):
        resctrl.apply({"gold": {WEB: cpus("2")}, "silver": {DB: cpus("3")}})


def test_cpus_that_are_not_online_are_refused_with_the_kernels_words() -> None:
    with pytest.raises(ResctrlError, match="Can only assign online CPUs"):
        Resctrl(FakeResctrl(), TABLE).apply({"gold": {WEB: cpus("99")}})


def test_a_change_by_another_program_is_found_and_repaired() -> None:
    kernel = FakeResctrl()
    resctrl = Resctrl(kernel, TABLE)
    members = {"gold": {WEB: cpus("2-3")}}
    resctrl.apply(members)
    kernel.write("pinfold-gold/schemata", "L3:0=3\n")
    assert list(resctrl.wrong(members)) == [WEB]
    kernel.write("pinfold-gold/cpus_list", "2\n")
    resctrl.apply(members)
    assert resctrl.wrong(members) == {}


def test_leaving_removes_our_groups_alone_and_gives_the_cache_back() -> None:
    kernel = FakeResctrl()
    kernel.make("another")
    resctrl = Resctrl(kernel, TABLE)
    resctrl.apply({"gold": {WEB: cpus("2-3")}})
    resctrl.leave()
    assert set(kernel.groups) == {"", "another"}
    assert kernel.groups[""].limits == {"L3": {0: 0xFFF, 1: 0xFFF}, "MB": {0: 100, 1: 100}}


def test_usage_is_summed_over_the_caches() -> None:
    kernel = FakeResctrl()
    resctrl = Resctrl(kernel, TABLE)
    resctrl.apply({"gold": {DB: cpus("2-3")}})
    assert resctrl.usage() == [CacheUsage(DB, 8192, 2000)]
    del kernel.counts["mbm_total_bytes"]
    assert resctrl.usage() == [CacheUsage(DB, 8192, None)]


def test_hardware_that_counts_nothing_still_limits() -> None:
    kernel = FakeResctrl(Hardware(monitors=False))
    resctrl = Resctrl(kernel, TABLE)
    resctrl.apply({"gold": {WEB: cpus("2")}})
    assert kernel.groups["pinfold-gold"].monitors == {}
    assert resctrl.usage() == []


@st.composite
def memberships(draw: st.DrawFn) -> dict[str, dict[ContainerRef, CPUSet]]:
    """Classes with containers, whose CPUs do not overlap."""
    free = draw(st.permutations(range(16)))
    found: dict[str, dict[ContainerRef, CPUSet]] = {}
    for number in range(draw(st.integers(0, 5))):
        name = draw(st.sampled_from(["gold", "silver"]))
        ref = ContainerRef(PodUID(f"u{number}"), "app")
        found.setdefault(name, {})[ref] = CPUSet.from_cpus(free[number * 3 : number * 3 + draw(st.integers(1, 3))])
    return found


@given(st.lists(memberships(), min_size=1, max_size=5))
def test_any_containers_can_follow_any_others(lives: list[dict[str, dict[ContainerRef, CPUSet]]]) -> None:
    kernel = FakeResctrl()
    resctrl = Resctrl(kernel, TABLE)
    for members in lives:
        resctrl.apply(members)
        assert resctrl.wrong(members) == {}
        held = [group.cpus for group in kernel.groups.values()]
        assert sum(map(len, held)) == len(kernel.hardware.cpus)
        assert {name for name in kernel.groups if name} == {f"pinfold-{name}" for name in members}
