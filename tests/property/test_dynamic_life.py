"""The life of a Manager under the policy dynamic: as any other, and containers grow, shrink and move while they run.

`make torture` takes more steps.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from pinfold.core.moving.repacking import Pace
from pinfold.core.pods.pod import Container, Pod, PodUID
from pinfold.errors import PinfoldError
from pinfold.formats.pods.runtime import RuntimePod
from pinfold.manager.moving.notifier import Notifier
from pinfold.manager.moving.repacker import Repacker
from pinfold.manager.node import Node
from pinfold.manager.telling.bus import Bus
from pinfold.node.notices import Notices
from tests.now import now
from tests.property.strategies import guaranteed, regular_topologies
from tests.property.test_manager_life import (  # noqa: F401 - the fixture is for all tests here
    EXAMPLES,
    MEMORY,
    STEPS,
    UIDS,
    Killed,
    ManagerLife,
    Mortal,
    show_how_many,
)

if TYPE_CHECKING:
    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.machine.topology import Topology
    from pinfold.core.pods.pod import ContainerRef

PACE: Final = Pace(moves=2, dwell=90.0, grace=0.0)
MINUTE: Final = 60.0


class Silent(Notifier):
    """Containers that are ready at once; the daemon may be killed when they are."""

    life: Mortal

    async def announce(self, ref: ContainerRef, cpus: CPUSet, grace: float) -> None:  # noqa: ARG002 - as it has them
        self.life.call()


class DynamicLife(ManagerLife):
    """A Manager that moves containers at a pace."""

    policy = "dynamic"

    @initialize(machine=regular_topologies(24), strict=st.booleans())
    def begin(self, machine: Topology, *, strict: bool) -> None:
        """Begin on a machine with room to move in."""
        super().begin(machine, strict=strict)

    @rule(uid=st.sampled_from(UIDS), cpus=st.integers(1, 5))
    def come(self, uid: str, cpus: int) -> None:
        """Let a pod in whose one container has CPUs of its own."""
        self.admit(Pod(PodUID(uid), uid, containers=(Container("app", guaranteed(1000 * cpus)),)), None)

    def start(self) -> None:
        """Start a daemon; it does not know which moves the one before has made."""
        super().start()
        self.clock = 0.0
        self.moves: list[tuple[float, ContainerRef]] = []
        bus = Bus(time.time)
        node = Node(self.manager, self.roster, bus)
        notifier = Silent(self.manager, Notices(MEMORY / "none"), bus)
        notifier.life = self.life
        self.repacker = Repacker(node, notifier, PACE, lambda: self.clock)

    def tell_roster(self) -> None:
        """Let the Roster know the pods that are here, as a source does."""
        for uid in [uid for uid in self.roster.pods if uid not in self.pods]:
            self.roster.forget_pod(uid)
        for uid, pod in self.pods.items():
            if uid not in self.roster.pods:
                self.roster.know_pod(RuntimePod(uid, uid, pod.name, spec=pod))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), count=st.integers(1, 6), kill=st.none() | st.integers(0, 6))
    def resize(self, data: st.DataObject, count: int, kill: int | None) -> None:
        ref = data.draw(st.sampled_from(sorted(self.held)))
        before = dict(self.manager.state.flat())
        self.tell_roster()
        self.life.left = kill
        try:
            got = now(self.repacker.resize(ref, count))
            assert (len(got), self.manager.state.cpus(*ref)) == (count, got)
        except PinfoldError as refusal:
            note(str(refusal))
            assert dict(self.manager.state.flat()) == before
        except Killed:
            self.start_when_possible()
        self.life.left = None
        self.see_others(before, {ref})

    @rule(seconds=st.sampled_from([0.0, 1.0, 30.0, 60.0, 100.0]), kill=st.none() | st.integers(0, 12))
    def repack(self, seconds: float, kill: int | None) -> None:
        """Move what may move after some time."""
        self.clock += seconds
        self.tell_roster()
        before = dict(self.manager.state.flat())
        self.life.left = kill
        try:
            made = now(self.repacker.repack())
        except PinfoldError as error:
            note(str(error))
            made = []
        except Killed:
            self.life.left = None
            sizes = {ref: len(cpus) for ref, cpus in before.items()}
            self.start_when_possible()
            assert {ref: len(cpus) for ref, cpus in self.manager.state.flat()} == sizes
            self.changed()
            return
        self.life.left = None
        self.moves += [(self.clock, move.container) for move in made]
        self.see_others(before, {move.container for move in made})
        self.see_the_pace()

    def see_others(self, before: dict[ContainerRef, CPUSet], but: set[ContainerRef]) -> None:
        """See that only these containers may have other CPUs than before."""
        after = dict(self.manager.state.flat())
        assert {ref: cpus for ref, cpus in after.items() if ref not in but} == {
            ref: cpus for ref, cpus in before.items() if ref not in but
        }
        self.changed()

    def see_the_pace(self) -> None:
        """See that no minute has more moves than are allowed, and that every container has stayed long enough."""
        for at, ref in self.moves:
            assert sum(0 <= other - at < MINUTE for other, _ in self.moves) <= PACE.moves
            assert all(at == other or abs(at - other) >= PACE.dwell for other, one in self.moves if one == ref)


TestDynamicLife = DynamicLife.TestCase
TestDynamicLife.settings = settings(max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None)
