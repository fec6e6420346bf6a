"""Changes at once, in any order, with disks and kernels that refuse: the disk always has what was answered."""

from __future__ import annotations

import asyncio
import time
from itertools import chain, repeat
from typing import TYPE_CHECKING, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import from_shape
from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.core.reconcile import drift
from pinfold.core.state import State
from pinfold.errors import PinfoldError, StateError
from pinfold.manager.manager import Manager, Rules
from pinfold.manager.telling.bus import Bus
from pinfold.manager.telling.telling import Telling
from pinfold.runtimes.base import ApplyError
from pinfold.runtimes.roster import Roster
from pinfold.runtimes.simulated.launcher import SimulatedApplier
from tests.property.strategies import pinned, pod_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pinfold.core.reconcile import Wanted

MACHINE = from_shape("cores:6,threads:2")
ADMITTER = Config("static", reserved=Reservation.of(CPUSet.of(0))).build(MACHINE)
FIRST = ADMITTER.policy.start(State.new())
UIDS = [f"p{number}" for number in range(8)]


class Write(NamedTuple):
    """What one write to the disk does."""

    turns: int = 0
    """How many turns of the loop it takes."""
    fails: bool = False


class Ask(NamedTuple):
    """What a client asks for: a pod with so many CPUs; 0: its end."""

    uid: str
    cpus: int
    after: int
    """It comes after so many turns of the loop."""
    patience: int | None = None
    """It goes away after so many more; None: never."""


class Story(NamedTuple):
    """Clients, and what disk and kernel do to them."""

    asks: Sequence[Ask]
    writes: Sequence[Write] = ()
    poison: frozenset[str] = frozenset()
    """The pods whose groups the kernel refuses to make."""


ASKS = st.builds(Ask, st.sampled_from(UIDS), st.integers(0, 4), st.integers(0, 12), st.none() | st.integers(0, 8))
STORIES = st.builds(
    Story,
    st.lists(ASKS, max_size=12),
    st.lists(st.builds(Write, st.integers(0, 5), st.booleans()), max_size=8),
    st.frozensets(st.sampled_from(UIDS), max_size=2),
)


class Disk:
    """Takes its time; may refuse. It can be read at any instant, as after a crash."""

    def __init__(self) -> None:
        self.state = FIRST
        self.saves = 0
        self.writes: Iterator[Write] = repeat(Write())

    async def save(self, state: State) -> None:
        write = next(self.writes)
        for _ in range(write.turns):
            await asyncio.sleep(0)
        if write.fails:
            raise StateError("the disk is full")
        self.saves += 1
        self.state = state


class Kernel(SimulatedApplier):
    """Refuses the groups of some pods, and sees that all it is asked for is durable."""

    def __init__(self, disk: Disk, poison: frozenset[str]) -> None:
        super().__init__()
        self._disk = disk
        self._poison = poison
        self._seen: dict[ContainerRef, CPUSet] = {}

    def apply(self, want: Wanted) -> None:
        new = {ref: cpus for ref, cpus in want.exclusive.items() if self._seen.get(ref) != cpus}
        assert all(self._disk.state.cpus(*ref) == cpus for ref, cpus in new.items())
        if any(ref.pod in self._poison for ref in want.exclusive):
            raise ApplyError("the kernel says no")
        self._seen = dict(want.exclusive)
        super().apply(want)


class Life:
    """A Manager whose clients come as a story says; `held` is what they were answered."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.disk = Disk()
        self.kernel = Kernel(self.disk, story.poison)
        self.manager = Manager(
            Rules(ADMITTER, MACHINE, self.disk), FIRST, self.kernel, Roster(), Telling(Bus(time.time))
        )
        self.held: dict[ContainerRef, CPUSet | None] = {}
        self.answers: list[tuple[Ask, CPUSet | str | None]] = []

    async def run(self) -> None:
        await self.manager.start()
        self.disk.writes = chain(self.story.writes, repeat(Write()))
        await asyncio.gather(*map(self.client, self.story.asks))

    async def client(self, ask: Ask) -> None:
        for _ in range(ask.after):
            await asyncio.sleep(0)
        task = asyncio.create_task(self._ask(ask))
        if ask.patience is not None:
            for _ in range(ask.patience):
                await asyncio.sleep(0)
            task.cancel()
        await asyncio.gather(task, return_exceptions=ask.patience is not None)

    async def _ask(self, ask: Ask) -> None:
        ref = ContainerRef(PodUID(ask.uid), "app")
        # From now on the old answer may be overtaken.
        self.held.pop(ref, None)
        cpus: CPUSet | None = None
        try:
            if ask.cpus:
                admission = await self.manager.admit(pod_of(pinned(ask.cpus), uid=ask.uid))
                cpus = admission.state.cpus(*ref)
            else:
                await self.manager.release([ref])
        except PinfoldError as error:
            self.answers.append((ask, type(error).__name__))
            return
        self.answers.append((ask, cpus))
        self.held.pop(ref, None)
        if sum(other.uid == ask.uid for other in self.story.asks) == 1:
            self.held[ref] = cpus
        self.check()

    def check(self) -> None:
        """Check that the disk has every answered change, also while others are under way."""
        for ref, cpus in self.held.items():
            assert self.disk.state.cpus(*ref) == cpus
        assert self.disk.state.check(MACHINE.online) == []


@given(STORIES)
def test_what_was_answered_is_on_the_disk_at_any_instant(story: Story) -> None:
    life = Life(story)
    asyncio.run(life.run())
    life.check()
    state = life.manager.state
    assert state.check(MACHINE.online) == []
    assert not {*state.assignments} & story.poison
    assert life.manager.saves.unsaved or life.disk.state == state or any(ask.patience is not None for ask in story.asks)
    assert list(drift(life.manager.wanted, life.kernel.observe())) == []


def test_a_client_is_answered_after_two_before_it_went_away_while_the_disk_was_slow() -> None:
    asks = [Ask("p0", 1, 0, patience=4), Ask("p1", 1, 0, patience=3), Ask("p2", 1, after=8)]
    life = Life(Story(asks, [Write(5)] * 3))
    asyncio.run(asyncio.wait_for(life.run(), 5))
    assert [ask.uid for ask, _ in life.answers] == ["p2"]


@given(st.lists(ASKS.map(lambda ask: ask._replace(after=0, patience=None)), max_size=12), st.integers(1, 5))
def test_changes_at_once_are_answered_as_one_after_the_other(asks: list[Ask], turns: int) -> None:
    together = Life(Story(asks, [Write(turns)] * 3))
    asyncio.run(together.run())
    alone = Life(Story(asks))

    async def in_order() -> None:
        await alone.manager.start()
        for ask in asks:
            await alone.client(ask)

    asyncio.run(in_order())
    assert together.answers == alone.answers
    assert together.manager.state == alone.manager.state
    assert together.disk.saves <= min(alone.disk.saves, 3)
