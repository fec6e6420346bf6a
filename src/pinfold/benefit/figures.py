"""The statistics of a measurement: percentiles, ratios with their confidence, histograms. Pure, and small."""

from __future__ import annotations

import math
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Student's t for a two-sided confidence of 95 %, by degrees of freedom; beyond, the normal distribution is near enough.
_STUDENT: Final = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
    *(2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
_NORMAL: Final = 1.960
BINS_PER_DECADE: Final = 5


class Ratio(NamedTuple):
    """How many times larger one figure is than another, and the range that holds the true value in 95 of 100 cases."""

    value: float
    low: float
    high: float

    @property
    def is_certain(self) -> bool:
        """Whether the range leaves out 1: the two differ."""
        return self.low > 1 or self.high < 1


def percentile(ordered: Sequence[int], percent: float) -> int | None:
    """Return the sample that *percent* of all do not exceed; None if too few samples lie beyond it to say.

    >>> [percentile(range(1, 101), percent) for percent in (50, 99, 99.9)]
    [50, 99, None]
    """
    # Rounded: 99.99 % of 10,000 is 9,999, and floating point says a little more.
    rank = math.ceil(round(len(ordered) * percent / 100, 6))
    return ordered[rank - 1] if 0 < rank < len(ordered) else None


def ratio(pairs: Iterable[tuple[float, float]]) -> Ratio | None:
    """Return how many times larger the first of each pair is, from rounds that ran beside each other.

    The mean of logarithms, with Student's t: a ratio of 2 and one of 1/2 then cancel out. None without two pairs.

    >>> found = ratio([(20, 10), (44, 20), (36, 20)])
    >>> f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})"
    '1.99 (1.55 to 2.56)'
    """
    logs = [math.log(first / second) for first, second in pairs if first > 0 and second > 0]
    if len(logs) < 2:  # noqa: PLR2004 - one has no spread
        return None
    mean = fmean(logs)
    freedom = len(logs) - 1
    student = _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else _NORMAL
    half = student * stdev(logs) / math.sqrt(len(logs))
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def histogram(samples: Iterable[int], first: int, bins: int) -> list[int]:
    """Count samples in bins of equal width on a logarithmic scale; the outer bins take all that is beyond them.

    >>> histogram([900, 1_000, 10_000, 10_000, 99_000_000], first=1_000, bins=11)
    [2, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1]
    """
    counts = [0] * bins
    for sample in samples:
        place = math.floor(math.log10(max(sample, 1) / first) * BINS_PER_DECADE + 1e-9)
        counts[min(max(place, 0), bins - 1)] += 1
    return counts
