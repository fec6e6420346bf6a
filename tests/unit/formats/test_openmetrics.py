"""Both text formats, read back by the parsers of prometheus_client, which know more of the rules than we do."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

from pinfold.formats.openmetrics import (
    OPENMETRICS,
    TEXT,
    Distribution,
    Family,
    MetricKind,
    Sample,
    choose,
    format_openmetrics,
    format_prometheus,
)

if TYPE_CHECKING:
    from prometheus_client import Metric

PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)

FAMILIES = [
    Family("saves_total", MetricKind.COUNTER, "how often", [Sample((), 7)]),
    Family(
        "kubelet_aligned_count",
        MetricKind.COUNTER,
        "not named as OpenMetrics wants it",
        [Sample((("scope", "pod"),), 2)],
    ),
    Family(
        "pool_cpus", MetricKind.GAUGE, "by pool", [Sample((("pool", "shared"),), 3), Sample((("pool", "own"),), 0.5)]
    ),
    Family("took_ms", MetricKind.HISTOGRAM, "time", [Distribution((), (0.05, 1.0), (1, 2, 3), 12.5)]),
]
# Neither format has a way to write half of a surrogate pair, nor do real names hold one.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def read_openmetrics(text: str) -> list[Metric]:
    return list(parse_openmetrics(text))  # type: ignore[no-untyped-call]  # the library says no more


def series(text: str, *, openmetrics: bool) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = read_openmetrics(text) if openmetrics else parse_prometheus(text)
    return {
        # This parser, not the format, gives counters the ending that they lack.
        (sample.name.replace("_count_total", "_count"), tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_prometheus_text_is_written_as_the_format_wants_it() -> None:
    assert format_prometheus(FAMILIES).splitlines() == [
        "# HELP saves_total how often",
        "# TYPE saves_total counter",
        "saves_total 7",
        "# HELP kubelet_aligned_count not named as OpenMetrics wants it",
        "# TYPE kubelet_aligned_count counter",
        'kubelet_aligned_count{scope="pod"} 2',
        "# HELP pool_cpus by pool",
        "# TYPE pool_cpus gauge",
        'pool_cpus{pool="shared"} 3',
        'pool_cpus{pool="own"} 0.5',
        "# HELP took_ms time",
        "# TYPE took_ms histogram",
        'took_ms_bucket{le="0.05"} 1',
        'took_ms_bucket{le="1.0"} 3',
        'took_ms_bucket{le="+Inf"} 6',
        "took_ms_sum 12.5",
        "took_ms_count 6",
    ]


def test_series_have_the_same_names_and_values_in_both_formats() -> None:
    text, open_text = format_prometheus(FAMILIES), format_openmetrics(FAMILIES)
    assert series(text, openmetrics=False) == series(open_text, openmetrics=True)
    assert [line for line in text.splitlines() if line[0] != "#"] == [
        line for line in open_text.splitlines() if line[0] != "#"
    ]


def test_openmetrics_ends_and_has_families_without_the_ending_of_counters() -> None:
    text = format_openmetrics(FAMILIES)
    assert text.endswith("\n# EOF\n")
    kinds = {family.name: family.type for family in read_openmetrics(text)}
    assert kinds == {
        "saves": "counter",
        "kubelet_aligned_count": "unknown",
        "pool_cpus": "gauge",
        "took_ms": "histogram",
    }


def test_nothing_to_tell_is_still_a_document() -> None:
    assert format_prometheus([]) == ""
    assert format_openmetrics([]) == "# EOF\n"


@given(TEXTS, TEXTS)
def test_label_values_and_help_come_back_as_they_were(value: str, text: str) -> None:
    labels = (("pod", value),)
    family = Family("x", MetricKind.GAUGE, f"help {text}", [Sample(labels, 1), Sample((*labels, ("le", value)), 2)])
    for formatted, openmetrics in ((format_prometheus([family]), False), (format_openmetrics([family]), True)):
        expected = {("x", labels): 1.0, ("x", tuple(sorted((*labels, ("le", value))))): 2.0}
        assert series(formatted, openmetrics=openmetrics) == expected
    (read,) = read_openmetrics(format_openmetrics([family]))
    assert read.documentation == f"help {text}"


@given(TEXTS)
def test_no_value_can_begin_a_line_of_its_own(value: str) -> None:
    family = Family("x", MetricKind.GAUGE, value, [Sample((("pod", value),), 1)])
    assert format_prometheus([family]).count("\n") == 3
    assert format_openmetrics([family]).count("\n") == 4


@given(st.floats())
def test_numbers_come_back_as_they_were(value: float) -> None:
    family = Family("x", MetricKind.GAUGE, "x", [Sample((), value)])
    for formatted, openmetrics in ((format_prometheus([family]), False), (format_openmetrics([family]), True)):
        (found,) = series(formatted, openmetrics=openmetrics).values()
        assert found == value or (math.isnan(found) and math.isnan(value))


@given(
    st.lists(st.floats(1e-6, 1e6), unique=True, max_size=8)
    .map(sorted)
    .flatmap(
        lambda bounds: st.tuples(
            st.just(bounds), st.lists(st.integers(0, 99), min_size=len(bounds) + 1, max_size=len(bounds) + 1)
        )
    )
)
def test_buckets_add_up(of: tuple[list[float], list[int]]) -> None:
    bounds, counts = of
    family = Family("x", MetricKind.HISTOGRAM, "x", [Distribution((("a", "b"),), bounds, counts, float(sum(counts)))])
    for formatted, openmetrics in ((format_prometheus([family]), False), (format_openmetrics([family]), True)):
        found = series(formatted, openmetrics=openmetrics)
        buckets = [value for (name, _), value in found.items() if name == "x_bucket"]
        assert buckets == [sum(counts[: at + 1]) for at in range(len(counts))]
        assert found["x_count", (("a", "b"),)] == buckets[-1]


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (PROMETHEUS_2, OPENMETRICS),
        (PROMETHEUS_3, OPENMETRICS),
        ("application/openmetrics-text", OPENMETRICS),
        ('application/openmetrics-text; version="1.0.0"', OPENMETRICS),
        ("application/openmetrics-text;version=2.0.0,text/plain", TEXT),
        ("application/openmetrics-text;q=0.2,text/plain;q=0.9", TEXT),
        ("application/openmetrics-text;q=0", TEXT),
        ("application/openmetrics-text;q=nan", TEXT),
        ("application/openmetrics-text;q=much", TEXT),
        ("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily", TEXT),
        ("text/html,application/xhtml+xml,*/*;q=0.8", TEXT),
        ("*/*", TEXT),
        ("", TEXT),
        (",;=,;;==", TEXT),
        ("x," * 5000, TEXT),
    ],
)
def test_a_scraper_gets_openmetrics_only_if_it_asks_for_it(accept: str, kind: str) -> None:
    assert choose(accept)[0] == kind


@given(st.text(max_size=200))
def test_any_accept_header_gets_an_answer(accept: str) -> None:
    kind, formatted = choose(accept)
    assert kind in {TEXT, OPENMETRICS}
    assert formatted([]) in {"", "# EOF\n"}
