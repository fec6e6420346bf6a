"""Scoring: what others have used of an owner's CPUs since it got them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pinfold.core.exclusivity import Reading, score
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.core.reconcile import Wanted
from pinfold.manager.scoring import Scoring
from pinfold.node.exclusivity import CPUCounters, Meter
from pinfold.runtimes.simulated.launcher import SimulatedApplier

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

APP, OTHER = (ContainerRef(PodUID("u1"), name) for name in ("app", "other"))
ONE, TWO = CPUSet.of(1), CPUSet.of(2)


class Counting(Meter):
    """Counts one more second, and 10 more of the rest, at each reading."""

    def __init__(self) -> None:
        super().__init__()
        self.readings = 0
        self.counted: list[CPUSet] = []

    def count(self, cpus: CPUSet) -> CPUCounters:
        self.counted.append(cpus)
        return CPUCounters(0.0, {}, {})

    def read(self, cpus: CPUSet, counters: CPUCounters, groups: Sequence[Path], pids: Sequence[int]) -> Reading:  # noqa: ARG002 - it counts
        self.readings += 1
        return Reading(self.readings, self.readings * 10**9, self.readings * 10, 0)


def test_counters_count_from_the_assignment_and_only_when_asked() -> None:
    async def play() -> None:
        meter = Counting()
        scoring = Scoring(meter, SimulatedApplier())
        scoring.show(Wanted(CPUSet.of(0), {APP: ONE}))
        assert meter.readings == 0
        assert [found.foreign for found in scoring.scores()] == [1.0]
        assert [found.seconds for found in scoring.scores()] == [2.0]
        scoring.show(Wanted(CPUSet.of(0), {APP: ONE, OTHER: TWO}))
        assert [(found.container, found.interrupts) for found in scoring.scores()] == [(APP, 40), (OTHER, 20)]

    asyncio.run(play())


def test_other_cpus_begin_anew_and_a_release_ends_the_count() -> None:
    async def play() -> None:
        scoring = Scoring(Counting(), SimulatedApplier())
        scoring.show(Wanted(CPUSet.of(0), {APP: ONE}))
        scoring.scores()
        scoring.show(Wanted(CPUSet.of(0), {APP: TWO}))
        assert [(found.cpus, found.seconds) for found in scoring.scores()] == [(TWO, 1.0)]
        scoring.show(Wanted(CPUSet.of(0), {}))
        assert scoring.scores() == []

    asyncio.run(play())


def test_no_figure_is_negative_when_processes_have_taken_their_counters_along() -> None:
    first, now = Reading(5.0, 10, 10, 10**9, 5, 5), Reading(4.0, 5, 5, 0, 0, 0)
    assert set(score(APP, ONE, first, now).data().values()) == {0}


def test_the_counters_of_all_cpus_are_read_once_for_all_owners() -> None:
    async def play() -> None:
        meter = Counting()
        scoring = Scoring(meter, SimulatedApplier())
        scoring.show(Wanted(CPUSet.of(0), {APP: ONE, OTHER: TWO}))
        scoring.scores()
        assert meter.counted == [ONE | TWO, ONE | TWO], "once when they begin to count, and once now"
        scoring.show(Wanted(CPUSet.of(0, 1, 2), {}))
        assert scoring.scores() == []
        assert len(meter.counted) == 2

    asyncio.run(play())
