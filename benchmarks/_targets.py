"""Targets of figures, and when a missed one is a failure."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

FACTOR: Final = 2.0
"""A figure this many times worse than its target is a failure. Less can be a busy machine."""


class Target(NamedTuple):
    """What a figure is meant to be, beside what it is."""

    name: str
    value: float
    target: float
    at_least: bool = False
    """Whether the figure is to be as large as the target; if not, as small."""

    @property
    def worse(self) -> float:
        """How many times worse than the target the figure is; at most 1 if the target is met."""
        small, large = (self.value, self.target) if self.at_least else (self.target, self.value)
        if not large:
            return 0.0
        return large / small if small else math.inf

    def __str__(self) -> str:
        bound = "at least" if self.at_least else "at most"
        return (
            f"{self.name}: {self.value:,.4g}, target {bound} {self.target:,g}, missed by a factor of {self.worse:.2f}"
        )


def verdict(targets: Iterable[Target]) -> int:
    """Print how many targets are met, and those that are not; return 1 if one is missed by more than FACTOR."""
    given = list(targets)
    missed = [target for target in given if target.worse > 1]
    print(f"{len(given) - len(missed)} of {len(given)} targets met", *missed, sep="\n  ", file=sys.stderr)
    return int(any(target.worse > FACTOR for target in missed))
