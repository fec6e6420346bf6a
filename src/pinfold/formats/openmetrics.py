r"""Metrics as text: the Prometheus format 0.0.4 and OpenMetrics 1.0.

A series has the same name in both, so that a scraper may use either. OpenMetrics wants counters to end in `_total`;
kubelet counters that do not keep their name, with type unknown.
"""

from __future__ import annotations

import math
from enum import StrEnum
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_TOTAL: Final = "_total"
_VERSIONS: Final = {"", "0.0.1", "1.0.0"}
_MOST_OFFERS: Final = 32
_KEPT: Final = 1024
_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})

Labels = tuple[tuple[str, str], ...]


class MetricKind(StrEnum):
    """The type of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Sample(NamedTuple):
    """One number."""

    labels: Labels
    value: float


class Distribution(NamedTuple):
    """The count of each bucket, from the bound before to its own; the last is above all bounds."""

    labels: Labels
    bounds: Sequence[float]
    counts: Sequence[int]
    sum: float


class Family(NamedTuple):
    """All series of one name."""

    name: str
    kind: MetricKind
    help: str
    samples: Sequence[Sample | Distribution]


def format_prometheus(families: Iterable[Family]) -> str:
    r"""Return the metrics in the Prometheus text format.

    >>> print(format_prometheus([Family("cpus", MetricKind.GAUGE, "by pool", [Sample((("pool", 'a"b'),), 3)])]), end="")
    # HELP cpus by pool
    # TYPE cpus gauge
    cpus{pool="a\"b"} 3
    """
    lines: list[str] = []
    for family in families:
        lines.append(_head(family.name, family.kind, family.help))
        lines.extend(_series(family))
    return "\n".join([*lines, ""])


def format_openmetrics(families: Iterable[Family]) -> str:
    """Return the metrics in the OpenMetrics text format.

    >>> print(format_openmetrics([Family("saves_total", MetricKind.COUNTER, "how often", [Sample((), 3)])]), end="")
    # TYPE saves counter
    # HELP saves how often
    saves_total 3
    # EOF
    """
    lines: list[str] = []
    for family in families:
        lines.append(_openmetrics_head(family.name, family.kind, family.help))
        lines.extend(_series(family))
    return "\n".join([*lines, "# EOF", ""])


# Only the numbers change between scrapes, so the rest is built once.


@lru_cache(_KEPT)
def _head(name: str, kind: MetricKind, text: str) -> str:
    return f"# HELP {name} {text.translate(_HELP_ESCAPES)}\n# TYPE {name} {kind}"


@lru_cache(_KEPT)
def _openmetrics_head(name: str, kind: MetricKind, text: str) -> str:
    shown = str(kind)
    if kind is MetricKind.COUNTER:
        shown = shown if name.endswith(_TOTAL) else "unknown"
        name = name.removesuffix(_TOTAL)
    return f"# TYPE {name} {shown}\n# HELP {name} {text.translate(_ESCAPES)}"


def _series(family: Family) -> Iterator[str]:
    for sample in family.samples:
        if isinstance(sample, Sample):
            yield f"{_named(family.name, sample.labels)} {number(sample.value)}"
        else:
            yield from _buckets(family.name, sample)


def _buckets(name: str, distribution: Distribution) -> Iterator[str]:
    totals = list(accumulate(distribution.counts))
    buckets = _bucket_names(name, distribution.labels, tuple(distribution.bounds))
    for bucket, total in zip(buckets, totals, strict=True):
        yield f"{bucket} {total}"
    yield f"{_named(f'{name}_sum', distribution.labels)} {number(distribution.sum)}"
    yield f"{_named(f'{name}_count', distribution.labels)} {totals[-1]}"


@lru_cache(_KEPT)
def _bucket_names(name: str, labels: Labels, bounds: tuple[float, ...]) -> list[str]:
    return [_named(f"{name}_bucket", (*labels, ("le", number(float(bound))))) for bound in (*bounds, math.inf)]


@lru_cache(_KEPT)
def _named(name: str, labels: Labels) -> str:
    if not labels:
        return name
    pairs = [f'{label}="{value.translate(_ESCAPES)}"' for label, value in labels]
    return f"{name}{{{','.join(pairs)}}}"


def number(value: float) -> str:
    """Return a number as both formats write it.

    >>> number(3), number(0.25), number(float("inf")), number(float("nan"))
    ('3', '0.25', '+Inf', 'NaN')
    """
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def choose(accept: str) -> tuple[str, Callable[[Iterable[Family]], str]]:
    """Return the content type for an Accept header, and its formatter; Prometheus text by default.

    >>> choose("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1")[0]
    'application/openmetrics-text; version=1.0.0; charset=utf-8'
    >>> choose("text/html, */*;q=0.8")[0]
    'text/plain; version=0.0.4; charset=utf-8'
    """
    open_metrics = text = 0.0
    for offer in accept.split(",", _MOST_OFFERS)[:_MOST_OFFERS]:
        kind, *rest = [part.strip().lower() for part in offer.split(";")]
        parameters = dict(part.partition("=")[::2] for part in rest)
        if kind == "application/openmetrics-text" and parameters.get("version", "").strip('"') in _VERSIONS:
            open_metrics = max(open_metrics, _weight(parameters))
        elif kind in {"text/plain", "text/*"}:
            text = max(text, _weight(parameters))
    if open_metrics > 0 and open_metrics >= text:
        return OPENMETRICS, format_openmetrics
    return TEXT, format_prometheus


def _weight(parameters: dict[str, str]) -> float:
    try:
        weight = float(parameters.get("q", "1"))
    except ValueError:
        return 0.0
    return weight if 0 <= weight <= 1 else 0.0
