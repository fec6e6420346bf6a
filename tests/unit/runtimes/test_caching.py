"""An Applier with cache classes: CPUs first, then resctrl; what another program changes is a fault of its container."""

from __future__ import annotations

import asyncio

import pytest

from pinfold.core.caching import CacheClass
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.core.reconcile import Cause, Wanted, drift
from pinfold.node.resctrl.groups import Resctrl, ResctrlError
from pinfold.runtimes.base import ApplyError
from pinfold.runtimes.caching import CachingApplier
from pinfold.runtimes.simulated.launcher import SimulatedApplier
from tests.unit.node.resctrl.fake import FakeResctrl, Hardware

APP, OTHER = (ContainerRef(PodUID("u1"), name) for name in ("app", "other"))
TABLE = {"exclusive": CacheClass(0xF0), "gold": CacheClass(0xF00)}
WANT = Wanted(CPUSet.parse("0-1,4-15"), {APP: CPUSet.parse("2-3")})


class Stand:
    """A simulated Applier with cache classes."""

    def __init__(self, hardware: Hardware | None = None) -> None:
        self.kernel = FakeResctrl(hardware)
        self.inner = SimulatedApplier()
        self.watches = False
        self.applier = CachingApplier(self.inner, Resctrl(self.kernel, TABLE), TABLE, lambda: self.watches)

    @property
    def groups(self) -> dict[str, str]:
        return {name: str(group.cpus) for name, group in self.kernel.groups.items() if name}


def test_an_exclusive_container_has_the_class_exclusive() -> None:
    stand = Stand()
    stand.applier.apply(WANT)
    assert stand.groups == {"pinfold-exclusive": "2-3"}
    assert stand.inner.containers[APP] == CPUSet.parse("2-3")


def test_a_pod_can_ask_for_another_class() -> None:
    stand = Stand()
    stand.applier.apply(WANT._replace(cache_classes={APP: "gold"}))
    assert stand.groups == {"pinfold-gold": "2-3"}


def test_a_pod_that_asks_for_the_shared_class_stays_with_the_rest() -> None:
    stand = Stand()
    stand.applier.apply(WANT._replace(cache_classes={APP: "shared"}))
    assert stand.groups == {}


def test_a_class_that_is_not_in_the_table_changes_nothing() -> None:
    stand = Stand()
    with pytest.raises(
        ApplyError, match="cache class iron is not known; these are in --cache-classes: exclusive, gold"
    ):
        stand.applier.apply(WANT._replace(cache_classes={APP: "iron"}))
    assert not stand.inner.applied


def test_the_group_goes_when_its_container_is_gone() -> None:
    stand = Stand()
    stand.applier.apply(WANT)
    stand.applier.apply(Wanted(CPUSet.parse("0-15"), {}))
    assert stand.groups == {}


def test_what_another_program_changes_is_drift_until_it_is_applied_again() -> None:
    stand = Stand()
    stand.applier.apply(WANT)
    stand.kernel.write("pinfold-exclusive/schemata", "L3:0=3\n")
    (found,) = drift(WANT, stand.applier.observe(closely=True))
    assert (found.container, found.cause) == (APP, Cause.CACHE)
    assert "pinfold-exclusive/schemata is not" in str(found)
    stand.applier.apply(WANT)
    assert list(drift(WANT, stand.applier.observe(closely=True))) == []


def test_a_refusal_of_the_kernel_is_raised() -> None:
    stand = Stand(Hardware(num_closids=3))
    stand.kernel.make("another")
    stand.kernel.make("third")
    with pytest.raises(ResctrlError, match="Out of CLOSIDs"):
        stand.applier.apply(WANT)


def test_while_it_only_watches_resctrl_is_left_alone() -> None:
    stand = Stand()
    stand.watches = True
    stand.applier.apply(WANT)
    asyncio.run(stand.applier.leave(CPUSet.parse("0-15")))
    assert stand.kernel.writes == 0
    assert stand.groups == {}


def test_leaving_removes_the_groups() -> None:
    stand = Stand()
    stand.applier.apply(WANT)
    asyncio.run(stand.applier.leave(CPUSet.parse("0-15")))
    assert stand.groups == {}


def test_all_that_is_not_about_caches_is_the_runtimes_own() -> None:
    stand = Stand()
    stand.applier.apply(WANT)
    seen = [
        (one.name, one.kind, one.weaker, one.mend(APP, WANT), one.is_clear(WANT), one.allowed(APP))
        for one in (stand.applier, stand.inner)
    ]
    assert seen[0] == seen[1]
    assert stand.applier.vacate(APP) == []
    assert APP not in stand.inner.containers
