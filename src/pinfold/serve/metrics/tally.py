"""Tally: the numbers of all counters and histograms of the table; each series exists from the start, at 0."""

from __future__ import annotations

from bisect import bisect_left
from itertools import product
from typing import TYPE_CHECKING

from pinfold.formats.openmetrics import Distribution, MetricKind, Sample
from pinfold.serve.metrics import table as rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pinfold.serve.metrics.table import Metric

    Values = tuple[str, ...]
    """The values of a series' labels, in the order of the table."""


class _Histogram:
    """Counts by size."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Tally:
    """Adds up."""

    def __init__(self) -> None:
        self._totals: dict[str, dict[Values, float]] = {}
        self._histograms: dict[str, dict[Values, _Histogram]] = {}
        self._samples: dict[str, Sequence[Sample | Distribution]] = {}
        """The series of each metric that has not changed since the last scrape."""
        for metric in rows.TABLE:
            combinations = list(product(*(label.values for label in metric.labels)))
            if metric.kind is MetricKind.COUNTER:
                self._totals[metric.name] = dict.fromkeys(combinations, 0)
            elif metric.kind is MetricKind.HISTOGRAM:
                self._histograms[metric.name] = {values: _Histogram(metric.buckets) for values in combinations}

    def add(self, metric: Metric, *values: str, by: float = 1) -> None:
        """Add to a counter."""
        self._totals[metric.name][values] += by
        self._samples.pop(metric.name, None)

    def observe(self, metric: Metric, value: float, *values: str) -> None:
        """Add a value to a histogram."""
        self._histograms[metric.name][values].observe(value)
        self._samples.pop(metric.name, None)

    def value(self, metric: Metric, *values: str) -> float:
        """Return one counter."""
        return self._totals[metric.name][values]

    def samples(self, metric: Metric) -> Sequence[Sample | Distribution]:
        """Return the series of a counter or histogram: the same object until one of them changes."""
        if metric.name not in self._samples:
            self._samples[metric.name] = list(self._series(metric))
        return self._samples[metric.name]

    def _series(self, metric: Metric) -> Iterator[Sample | Distribution]:
        names = [label.name for label in metric.labels]
        for values, total in self._totals.get(metric.name, {}).items():
            yield Sample(tuple(zip(names, values, strict=True)), total)
        for values, seen in self._histograms.get(metric.name, {}).items():
            yield Distribution(tuple(zip(names, values, strict=True)), seen.bounds, tuple(seen.counts), seen.sum)
