"""The benefit: statistics against known answers; the report and the picture say what the runs have found."""

from __future__ import annotations

import math
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from pinfold.benefit.catalogue import BATCH, NEIGHBOURS, PROBE, QUIET, REQUESTS, RULES
from pinfold.benefit.figures import histogram, percentile, ratio
from pinfold.benefit.host import conditions
from pinfold.benefit.measure import MeasuringPlan, Results, Run, full_plan
from pinfold.benefit.picture import picture
from pinfold.benefit.report import cell, effect, page, short
from pinfold.cli.main import main
from pinfold.core.machine.presets import preset

MS = 1_000_000


def run(rules: str, number: int, late: list[int], neighbours: str = NEIGHBOURS[0].name) -> Run:
    counters = {"preemptions": 10.0, "waits": 1000.0, "migrations": None}
    printed = {"samples": {"wake-up": late, "stall": late}, "rates": {}, "counters": counters, "cpus": "1"}
    return Run(PROBE.name, neighbours, rules, number, printed)


def results(*runs: Run) -> Results:
    plan = MeasuringPlan(RULES[:2], [(PROBE, NEIGHBOURS[0])], 2, 1.0, {"redis": "redis-server is not installed"})
    return Results(plan, [run("static", 0, [MS // 50] * 200, QUIET.name), *runs], ["policy none", "policy static"], 2)


MEASURED = results(
    run("none", 0, [MS // 20] * 180 + [4 * MS] * 20),
    run("none", 1, [MS // 20] * 180 + [5 * MS] * 20),
    run("static", 0, [MS // 20] * 200),
    run("static", 1, [MS // 25] * 200),
)


def test_a_percentile_needs_a_sample_beyond_it() -> None:
    assert percentile(range(1, 10_001), 99.99) == 9_999
    assert percentile(range(1, 10_000), 99.99) is None
    assert percentile([], 50) is None


def test_equal_rounds_have_a_ratio_without_spread() -> None:
    found = ratio([(4, 2), (8, 4), (2, 1)])
    assert found is not None
    assert found == pytest.approx((2, 2, 2))
    assert found.is_certain


def test_the_range_of_a_ratio_is_students() -> None:
    # By hand: logs of 2 and 4, their mean, and t for one degree of freedom times the standard error.
    logs = [math.log(2), math.log(4)]
    half = 12.706 * abs(logs[1] - logs[0]) / 2
    found = ratio([(2, 1), (4, 1)])
    assert found is not None
    assert found == pytest.approx(
        (math.exp(sum(logs) / 2), math.exp(sum(logs) / 2 - half), math.exp(sum(logs) / 2 + half))
    )
    assert not found.is_certain


@pytest.mark.parametrize("pairs", [[], [(1, 2)], [(0, 1), (1, 0)]], ids=["none", "one round", "nothing counted"])
def test_too_few_rounds_have_no_ratio(pairs: list[tuple[float, float]]) -> None:
    assert ratio(pairs) is None


def test_a_histogram_keeps_every_sample() -> None:
    samples = [1, 10**3, 10**6, 10**9, 10**12]
    counts = histogram(samples, 1_000, 31)
    assert sum(counts) == len(samples)
    assert [place for place, count in enumerate(counts) if count] == [0, 15, 30]


def test_the_short_figure_has_before_and_after() -> None:
    text = short(MEASURED)
    assert "99 of 100 wake-ups: within 5 ms (none), 0.05 ms (static)." in text
    assert "No gain" not in text


def test_the_short_figure_says_so_if_nothing_was_gained() -> None:
    text = short(results(*(run(rules, number, [MS] * 200) for rules in ("none", "static") for number in (0, 1))))
    assert "No gain this time" in text


def test_the_report_has_every_figure_with_its_confidence_and_what_was_left_out() -> None:
    text = page(MEASURED, "my-machine", "benefit-my-machine.svg")
    rows = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("| ")}
    assert all(figure.name in rows for figure in PROBE.figures)
    assert "| wake-up p99 | 5 | 0.05 | 100 (5.87 to 1,703) |" in text
    assert "| wake-up p99.99 | — | — | — |" in text
    assert "- redis: redis-server is not installed." in text
    assert len({line.count("|") for line in text.splitlines() if line.startswith("|")}) == 1


def test_the_batch_is_measured_alone_too_where_its_quota_is_what_it_comes_to() -> None:
    plan = full_plan(preset("epyc-9654-2s"), 2, 1.0)
    assert [(work.name, beside.name) for work, beside in plan.cells if beside is QUIET] == [(BATCH.name, QUIET.name)]
    alone = Run(BATCH.name, QUIET.name, "none", 0, {"samples": {"wake-up": [9 * MS] * 99}, "rates": {}, "counters": {}})
    both = MEASURED.plan._replace(cells=[*MEASURED.plan.cells, (BATCH, QUIET)])
    text = page(MEASURED._replace(plan=both, runs=[*MEASURED.runs, alone]), "my-machine", "x.svg")
    assert "## Batch under quota, alone" in text
    assert "Neighbours: none.\n" in text
    assert "without neighbours: wake-up p50 0.02 ms" in text  # the probe's alone


def test_the_report_names_only_what_differs_for_certain() -> None:
    text = page(MEASURED, "my-machine", "x.svg")
    line = next(line for line in text.splitlines() if line.startswith("- **Latency probe, beside busy loops**"))
    assert "`static` wake-up p99 100 times better" in line
    assert "p50" not in line  # its range contains 1
    same = results(*(run(rules, number, [MS] * 200) for rules in ("none", "static") for number in (0, 1)))
    assert "`static` shows no difference" in page(same, "my-machine", "x.svg")


def test_the_report_says_when_and_where_it_was_measured() -> None:
    found = conditions()
    text = page(MEASURED._replace(conditions=found), "my-machine", "x.svg")
    assert all(f"- {each}." in text for each in found)
    assert "UTC" in found[0]
    assert "Linux" in found[1]


def test_the_picture_shows_latency_against_load() -> None:
    def server(rules: str, ms: int) -> Run:
        samples = {f"at {load} % load": [ms * load * MS] * 200 for load in (30, 60, 80)}
        return Run(REQUESTS.name, "busy loops", rules, 0, {"samples": samples, "rates": {}, "counters": {}})

    both = MEASURED.plan._replace(cells=[*MEASURED.plan.cells, (REQUESTS, NEIGHBOURS[0])])
    runs = [*MEASURED.runs, server("none", 4), server("static", 1)]
    root = ET.fromstring(picture(MEASURED._replace(plan=both, runs=runs)))  # noqa: S314 - our own
    found = [each.attrib for each in root.iter() if each.tag.endswith("circle")]
    circles = [(float(each["cx"]), float(each["cy"])) for each in found]
    none, static = circles[:3], circles[3:]
    assert [x for x, _ in none] == [x for x, _ in static]
    assert all(high[1] < low[1] for high, low in zip(none, static, strict=True))
    assert none[0][1] > none[1][1] > none[2][1]


def test_more_is_better_where_a_rate_is_meant() -> None:
    rate = next(figure for figure in BATCH.figures if figure.large_is_good)

    def runs(rules: str, value: float) -> list[Run]:
        printed = {"samples": {}, "rates": {rate.of: value}, "counters": {}, "cpus": "1"}
        return [Run(BATCH.name, "x", rules, number, printed) for number in range(2)]

    both = Results(MEASURED.plan, [*runs("none", 10), *runs("static", 20)], [], 2)
    found = effect(rate, cell(both, BATCH.name, "x", "none"), cell(both, BATCH.name, "x", "static"))
    assert found is not None
    assert found.value == pytest.approx(2)


def test_the_picture_is_valid_light_and_dark_and_as_wide_as_a_phone() -> None:
    text = picture(MEASURED)
    root = ET.fromstring(text)  # noqa: S314 - our own
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    assert width <= 400
    assert "prefers-color-scheme:dark" in text
    lines = [element for element in root.iter() if element.attrib.get("class") == "line"]
    assert len(lines) == 2
    for line in lines:
        points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
        assert all(before[0] < after[0] for before, after in pairwise(points))
        assert all(0 <= x <= width and 0 <= y <= height for x, y in points)


def test_options_are_measured_where_the_machine_has_what_they_are_for() -> None:
    small, large = (full_plan(preset(name), 2, 1.0) for name in ("sockets:1,l3:1,cores:2,threads:1", "epyc-9654-2s"))
    names = {rules.name for rules in large.rules} - {rules.name for rules in small.rules}
    assert names == {rules.name for rules in RULES[3:]}
    assert "there is one NUMA node here" in small.missing.values()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--on", "../x"], "letters, digits"),
        (["--rounds", "1"], "2 to 1000"),
        (["--seconds", "0"], "0.1 to 600"),
        (["--seconds", "nan"], "0.1 to 600"),
    ],
    ids=["a path", "one round", "no time", "no number"],
)
def test_a_wrong_call_says_what_is_allowed(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "benefit", *arguments]) == 2
    assert said in capsys.readouterr().err
