"""A Manager divides the cache in its usual order, and goes back if the kernel refuses."""

from __future__ import annotations

import time

import pytest

from pinfold.core.caching import CacheClass
from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import from_shape
from pinfold.core.state import State
from pinfold.manager.manager import Manager, Rules
from pinfold.manager.telling.bus import Bus
from pinfold.manager.telling.telling import Telling
from pinfold.node.resctrl.groups import Resctrl, ResctrlError
from pinfold.runtimes.caching import CachingApplier
from pinfold.runtimes.roster import Roster
from pinfold.runtimes.simulated.launcher import SimulatedApplier
from tests.now import now
from tests.property.strategies import pinned, pod_of
from tests.unit.manager.test_manager import MemoryStore
from tests.unit.node.resctrl.fake import FakeResctrl, Hardware

MACHINE = from_shape("cores:4,threads:2")
ADMITTER = Config("static", reserved=Reservation.of(CPUSet.of(0))).build(MACHINE)
TABLE = {"exclusive": CacheClass(0xF0), "shared": CacheClass(0xF)}
POD = pod_of(pinned(2))


class Stand:
    """A Manager on simulated containers and a resctrl tree in memory."""

    def __init__(self, hardware: Hardware) -> None:
        self.kernel = FakeResctrl(hardware)
        self.log: list[str] = []
        self.inner = SimulatedApplier()
        self.store = MemoryStore(self.log)
        applier = CachingApplier(self.inner, Resctrl(self.kernel, TABLE), TABLE)
        first = ADMITTER.policy.start(State.new())
        self.manager = Manager(Rules(ADMITTER, MACHINE, self.store), first, applier, Roster(), Telling(Bus(time.time)))
        now(self.manager.start())


def test_an_owner_has_its_group_when_it_is_admitted_and_not_after_its_release() -> None:
    stand = Stand(Hardware())
    now(stand.manager.admit(POD))
    assert stand.kernel.groups["pinfold-exclusive"].cpus == stand.manager.state.exclusive
    now(stand.manager.release([POD.ref(POD.containers[0])]))
    assert set(stand.kernel.groups) == {""}


def test_if_the_kernel_refuses_the_group_the_pod_has_no_cpus_and_the_state_is_the_last() -> None:
    stand = Stand(Hardware(num_closids=2))
    stand.kernel.make("another")
    first = stand.manager.state
    with pytest.raises(ResctrlError, match="Out of CLOSIDs"):
        now(stand.manager.admit(POD))
    assert stand.manager.state == stand.store.state == first
    assert stand.inner.shared == MACHINE.online


def test_a_group_that_another_program_changes_is_repaired() -> None:
    stand = Stand(Hardware())
    now(stand.manager.admit(POD))
    stand.kernel.write("pinfold-exclusive/cpus_list", "7\n")
    assert [str(found.cause) for found in stand.manager.reconcile()] == ["cache"]
    assert stand.kernel.groups["pinfold-exclusive"].cpus == stand.manager.state.exclusive
