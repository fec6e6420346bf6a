"""Fights: what is undone again and again is found by periodic looks, and by quick ones in between."""

from __future__ import annotations

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.core.reconcile import Drift
from pinfold.manager.repairing.fights import FIGHT, Fights

DRIFT = Drift(ContainerRef(PodUID("u"), "app"), CPUSet.of(1), CPUSet.of(1, 2))


def test_a_difference_that_every_quick_look_repairs_is_a_fight_although_periodic_looks_find_nothing() -> None:
    fights = Fights()
    begun = []
    for _ in range(FIGHT):
        begun.append(fights.judge([DRIFT], quick=True).begun)
        assert fights.judge([], quick=False).begun == ()
    assert begun == [()] * (FIGHT - 1) + [(DRIFT,)]
    assert not fights.judge([DRIFT], quick=True).repair


def test_a_quick_look_that_finds_nothing_ends_no_fight_and_two_periodic_ones_do() -> None:
    fights = Fights()
    for _ in range(FIGHT):
        fights.judge([DRIFT], quick=True)
    fights.judge([], quick=True)
    assert not fights.judge([DRIFT], quick=True).repair
    fights.judge([])
    fights.judge([])
    assert fights.judge([DRIFT], quick=True).repair
