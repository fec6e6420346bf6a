"""Scoring: remembers the counters of each owner's CPUs from when it got them, and compares them when asked.

Nothing is read meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.exclusivity import score

if TYPE_CHECKING:
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
        for ref, cpus in self._owners.items():
            if ref not in self._first:
                self._first[ref] = _First(cpus, self._read(ref, cpus))

    def scores(self) -> list[Score]:
        """Return the score of every container with exclusive CPUs since it got them; it reads the counters now."""
        self._begin()
        return [score(ref, cpus, self._first[ref].reading, self._read(ref, cpus)) for ref, cpus in self._owners.items()]

    def _read(self, ref: ContainerRef, cpus: CPUSet) -> Reading:
        found = self._applier.members(ref)
        return self._meter.read(cpus, found.groups, found.pids)
