"""When a figure that misses its target is a failure."""

from __future__ import annotations

import math

import pytest

from benchmarks._targets import Target, verdict


@pytest.mark.parametrize(
    ("value", "target", "at_least", "worse"),
    [
        pytest.param(7.5, 5, False, 1.5, id="too large"),
        pytest.param(4, 5, False, 0.8, id="small enough"),
        pytest.param(5_000, 10_000, True, 2.0, id="too small"),
        pytest.param(20_000, 10_000, True, 0.5, id="large enough"),
        pytest.param(0, 10_000, True, math.inf, id="nothing where much is wanted"),
        pytest.param(0, 0, False, 0.0, id="none where none is allowed"),
        pytest.param(1, 0, False, math.inf, id="one where none is allowed"),
    ],
)
def test_how_much_worse_than_its_target_a_figure_is(
    value: float, target: float, worse: float, *, at_least: bool
) -> None:
    assert Target("figure", value, target, at_least=at_least).worse == worse


@pytest.mark.parametrize(("value", "code"), [(4.0, 0), (10.0, 0), (10.1, 1)], ids=["met", "twice", "more than twice"])
def test_a_target_missed_by_more_than_a_factor_of_two_is_a_failure(value: float, code: int) -> None:
    assert verdict([Target("other", 1, target=5), Target("p99 in ms", value, target=5)]) == code


def test_missed_targets_are_told_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    verdict([Target("other", 1, target=5), Target("p99 in ms", 7.5, target=5)])
    assert capsys.readouterr() == (
        "",
        "1 of 2 targets met\n  p99 in ms: 7.5, target at most 5, missed by a factor of 1.50\n",
    )
