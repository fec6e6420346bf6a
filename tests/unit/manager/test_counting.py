"""What a Manager does is counted from its events."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest

from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import from_shape
from pinfold.core.pods.pod import Container, Pod, PodUID
from pinfold.core.state import State
from pinfold.errors import PinfoldError, StateError
from pinfold.manager.admitting import Refusal
from pinfold.manager.manager import Manager, Rules
from pinfold.manager.telling.bus import Bus
from pinfold.manager.telling.telling import Telling
from pinfold.runtimes.roster import Roster
from pinfold.runtimes.simulated.launcher import SimulatedApplier
from pinfold.serve.metrics import table as rows
from pinfold.serve.metrics.counters import Counters
from tests.now import now
from tests.property.strategies import pinned, pod_of

if TYPE_CHECKING:
    from pinfold.core.reconcile import Wanted

MACHINE = from_shape("cores:4,threads:2")
ADMITTER = Config("static", reserved=Reservation.of(CPUSet.of(0))).build(MACHINE)
ONE = pod_of(pinned(1), uid="one")


class Store:
    """Keeps nothing, and can be full."""

    full = False

    async def save(self, state: State) -> None:
        if self.full:
            raise StateError(f"no room for {state.shared}")


class Applier(SimulatedApplier):
    """The simulated applier; `stuck` makes it pretend to have applied."""

    stuck = False

    def apply(self, want: Wanted) -> None:
        if not self.stuck:
            super().apply(want)


class Node:
    """A Manager whose clock goes on by a second whenever it is asked."""

    def __init__(self) -> None:
        self.store, self.applier, self.counters = Store(), Applier(), Counters(ADMITTER, now=0.0)
        ticks = count(1)
        bus = Bus(lambda: 0.0)
        bus.subscribe(self.counters.hear)
        state, telling = ADMITTER.policy.start(State.new()), Telling(bus, lambda: float(next(ticks)))
        rules = Rules(ADMITTER, MACHINE, self.store)
        self.manager = Manager(rules, state, self.applier, Roster(), telling)
        now(self.manager.start())


def test_admission_release_save_and_apply_are_counted() -> None:
    node = Node()
    now(node.manager.admit(ONE))
    now(node.manager.release([ONE.ref(ONE.containers[0])]))
    now(node.manager.admit(ONE))
    assert node.counters.tally.value(rows.ADMISSIONS) == 2
    assert node.counters.tally.value(rows.PINNING_REQUESTS) == 2
    assert node.counters.tally.value(rows.RELEASES) == 1
    assert node.counters.tally.value(rows.SAVES) == 4  # also that of the start
    assert node.counters.tally.value(rows.PINNING_ERRORS) == 0


def test_pod_of_the_shared_pool_that_comes_back_under_its_name_is_another_request() -> None:
    node = Node()
    idle = Pod(PodUID("run-idle"), "idle", containers=(Container("main"),))
    for _ in range(2):
        now(node.manager.admit(idle))
        now(node.manager.release([idle.ref(idle.containers[0])]))
    assert node.counters.tally.value(rows.ADMISSIONS) == 2


def test_what_cannot_be_saved_or_applied_is_counted_as_failed_and_raised() -> None:
    node = Node()
    node.store.full = True
    with pytest.raises(PinfoldError):
        now(node.manager.admit(ONE))
    node.store.full = False
    node.applier.stuck = True
    with pytest.raises(PinfoldError):
        now(node.manager.admit(ONE))
    assert node.counters.tally.value(rows.SAVE_FAILURES) == 1
    assert node.counters.tally.value(rows.PINNING_REQUESTS) == 2
    assert node.counters.tally.value(rows.PINNING_ERRORS) == 2


def test_refusal_is_counted() -> None:
    node = Node()
    with pytest.raises(Refusal):
        now(node.manager.admit(pod_of(pinned(99))))
    assert node.counters.tally.value(rows.REFUSALS, "UnexpectedAdmissionError") == 1


def test_repaired_drift_is_counted_and_so_is_the_time_since_the_last_look() -> None:
    node = Node()
    now(node.manager.admit(ONE))
    node.manager.reconcile()
    assert node.counters.tally.value(rows.OVERLAP) == 0
    node.applier.shared = MACHINE.online
    node.manager.reconcile()
    assert node.counters.tally.value(rows.DRIFT_REPAIRS, "pool") == 1
    assert node.counters.tally.value(rows.OVERLAP) == 1
    assert node.counters.drift_left == 0
