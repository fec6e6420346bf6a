"""Scoring: remembers the counters of each owner's CPUs from when it got them, and compares them when asked.

Nothing is read meanwhile.
"""

from __future__ import annotations

import asyncio
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.exclusivity import score

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pinfold.core.exclusivity import Reading, Score
    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import ContainerRef
    from pinfold.core.reconcile import Wanted
    from pinfold.node.exclusivity import Meter
    from pinfold.runtimes.base import Applier

_SETTLING: Final = 1.0
"""Seconds from an assignment to the first reading: until then processes arrive, and bring run time from elsewhere."""


class _First(NamedTuple):
    cpus: CPUSet
    reading: Reading


class Scoring:
    """Scores the containers that have exclusive CPUs."""

    def __init__(self, meter: Meter, applier: Applier) -> None:
        self._meter = meter
        self._applier = applier
        self._first: dict[ContainerRef, _First] = {}
        self._owners: dict[ContainerRef, CPUSet] = {}

    def show(self, want: Wanted) -> None:
        """Record which containers have which CPUs, and begin soon to count for those that are new."""
        self._owners = dict(want.exclusive)
        self._first = {ref: first for ref, first in self._first.items() if self._owners.get(ref) == first.cpus}
        if self._owners.keys() - self._first.keys():
            asyncio.get_running_loop().call_later(_SETTLING, self._begin)

    def _begin(self) -> None:
        new = {ref: cpus for ref, cpus in self._owners.items() if ref not in self._first}
        self._first.update((ref, _First(new[ref], reading)) for ref, reading in self._read(new).items())

    def scores(self) -> list[Score]:
        """Return the score of every container with exclusive CPUs since it got them; it reads the counters now."""
        self._begin()
        now = self._read(self._owners)
        return [score(ref, cpus, self._first[ref].reading, now[ref]) for ref, cpus in self._owners.items()]

    def _read(self, owners: Mapping[ContainerRef, CPUSet]) -> dict[ContainerRef, Reading]:
        if not owners:
            return {}
        counters = self._meter.count(reduce(or_, owners.values()))
        members = {ref: self._applier.members(ref) for ref in owners}
        return {ref: self._meter.read(cpus, counters, *members[ref]) for ref, cpus in owners.items()}
