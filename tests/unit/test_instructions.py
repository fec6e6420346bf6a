"""Instruction counts: more than a tenth above the committed figure is a failure, less is not."""

from __future__ import annotations

import json

import pytest

from benchmarks.instructions import FIGURES, SCENARIOS, compare


@pytest.mark.parametrize(
    ("measured", "fails"), [(1099, False), (1101, True), (500, False)], ids=["a little more", "too many", "fewer"]
)
def test_only_a_tenth_more_fails(measured: int, fails: bool) -> None:  # noqa: FBT001 - a case of a table
    assert bool(compare({"a": measured}, {"a": 1000})) is fails


def test_a_scenario_without_a_figure_does_not_fail() -> None:
    assert not compare({"a": 10**9}, {})


def test_every_committed_figure_has_its_scenario() -> None:
    for figures in json.loads(FIGURES.read_text()).values():
        assert figures.keys() == SCENARIOS.keys()


def test_every_scenario_runs() -> None:
    for make in SCENARIOS.values():
        make()(1)
