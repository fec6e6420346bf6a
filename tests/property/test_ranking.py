"""The ranking of nodes skips full nodes by masks: it must choose as the plain way does, roll for roll."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from pinfold.planning.dice import Dice
from pinfold.planning.ranking import Ranking
from pinfold.planning.scheduling import (
    BEST_SCORE,
    ZONE_COST,
    Demand,
    Load,
    Room,
    Scheduler,
    has_room,
    score_zones,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Plain:
    """Looks at every node, one after the other, emptier ones first."""

    def __init__(self, scheduler: Scheduler, rooms: Sequence[Room], loads: Sequence[Load], dice: Dice) -> None:
        self.aware = scheduler is Scheduler.AWARE
        self.rooms, self.loads, self.dice = rooms, loads, dice
        self.failed: dict[Demand, set[int]] = {}
        self.hopeless: set[Demand] = set()

    def best(self, demand: Demand) -> int | None:
        if demand in self.hopeless:
            return None
        best: tuple[int, int, int] | None = None
        for room in dict.fromkeys(self.rooms):
            found = self.best_of(room, demand, 0 if best is None else best[0])
            if found is not None:
                best = found if best is None else max(best, found)
        if best is None:
            self.hopeless.add(demand)
        return None if best is None else best[2]

    def best_of(self, room: Room, demand: Demand, least: int) -> tuple[int, int, int] | None:
        most = BEST_SCORE - ZONE_COST if self.aware and demand.parts else 0
        share = -(-demand.scored * BEST_SCORE // room.allocatable)
        failed = self.failed.setdefault(demand, set())
        best = None
        for used, node in self.in_order(room):
            score = max(0, BEST_SCORE - used - share)
            if score + most < least:
                break
            if node in failed:
                continue
            more = self.look(room, self.loads[node], demand)
            if more is None:
                failed.add(node)
            elif best is None or score + more > best[0]:
                best = score + more, self.dice.roll(), node
                least = best[0] + 1
                if more == most:
                    break
        return best

    def look(self, room: Room, load: Load, demand: Demand) -> int | None:
        if not has_room(room, load, demand):
            return None
        return score_zones(room, load, demand) if self.aware and demand.parts else 0

    def in_order(self, room: Room) -> Iterator[tuple[int, int]]:
        numbers = [node for node, of in enumerate(self.rooms) if of == room]
        for used in sorted({self.loads[node].used(room) for node in numbers}):
            level = [node for node in numbers if self.loads[node].used(room) == used]
            turn = self.dice.roll() % len(level)
            yield from ((used, node) for node in level[turn:] + level[:turn])


ROOMS = (Room(16_000, 4), Room(16_000, 110, single=True), Room(64_000, 110, as_a_whole=True))
DEMANDS = st.builds(
    lambda parts, more: Demand(sum(parts) + more, sum(parts) + more, tuple(parts)),
    st.lists(st.sampled_from([1000, 2000, 5000, 8000]), max_size=2),
    st.sampled_from([0, 100, 1500]),
)


@given(
    st.sampled_from(Scheduler),
    st.lists(st.sampled_from(ROOMS), min_size=1, max_size=40),
    st.lists(DEMANDS, min_size=1, max_size=5),
    st.lists(st.integers(0, 4), max_size=120),
    st.integers(0, 2**32),
)
def test_the_ranking_chooses_as_the_plain_way_does(
    scheduler: Scheduler, rooms: list[Room], demands: list[Demand], arrivals: list[int], seed: int
) -> None:
    loads = [Load(zones=(room.allocatable // 2000,) * 2) for room in rooms]
    dice, same = Dice(seed), Dice(seed)
    ranking, plain = Ranking(scheduler, rooms, loads, dice), Plain(scheduler, rooms, loads, same)
    for arrival in arrivals:
        demand = demands[arrival % len(demands)]
        node = ranking.best(demand)
        assert node == plain.best(demand)
        if node is None:
            continue
        load = loads[node]
        zones = (max(load.zones[0] - sum(demand.parts) // 1000, 0), *load.zones[1:])
        loads[node] = load._replace(
            requested=load.requested + demand.request,
            scored=load.scored + demand.scored,
            pods=load.pods + 1,
            zones=zones,
        )
        ranking.filled(node)
    assert dice.roll() == same.roll()
