"""Gauges: the present values of a node, computed from its State and Topology at each scrape.

A State never changes, so its values hold until there is another State.
"""

from __future__ import annotations

import os
import time
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pinfold.core.explaining.alignment import Level, Ruler
from pinfold.core.machine.cpuset import CPUSet, cpus_of
from pinfold.formats.openmetrics import Sample
from pinfold.serve.metrics import table as rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pinfold.core.machine.topology import Topology
    from pinfold.core.snapshot import Snapshot
    from pinfold.serve.metrics.table import Metric

    Values = Mapping[str, Sequence[Sample]]

_LEVELS: Final = dict(zip(rows.SPANS, Level, strict=True))
_SELF: Final = Path("/proc/self")


class Gauges:
    """Computes the gauges, and remembers those of the last State."""

    def __init__(self) -> None:
        self._ruler: tuple[Topology, CPUSet, _Spreads] | None = None
        self._last: tuple[Snapshot, Values] | None = None

    def measure(self, snapshot: Snapshot) -> Values:
        """Return the samples of each gauge that depends on State and Topology, by the name of its row."""
        if self._last is not None and _same(self._last[0], snapshot):
            return self._last[1]
        values = self._measure(snapshot)
        self._last = snapshot, values
        return values

    def _measure(self, snapshot: Snapshot) -> Values:
        spreads = self._spreads(snapshot)
        state, policy = snapshot.state, snapshot.policy
        assignable = policy.pools.shared(state) - policy.reserved
        owned = [cpus.mask for containers in state.assignments.values() for cpus in containers.values()]
        exclusive = CPUSet(reduce(or_, owned, 0)) | CPUSet(reduce(or_, (cpus.mask for cpus in state.pods.values()), 0))
        left = spreads.leftover(assignable.mask)
        return {
            rows.SHARED_MILLICORES.name: [Sample((), len(assignable) * 1000)],
            rows.EXCLUSIVE_CPUS.name: [Sample((), len(exclusive))],
            rows.PER_NUMA.name: [
                Sample((("numa_node", str(node.id)),), (node.mask & exclusive.mask).bit_count())
                for node in snapshot.topology.numa_nodes
            ],
            rows.POOL_CPUS.name: _by(rows.POOL_CPUS, [len(cpus) for cpus in snapshot.pool_cpus.values()]),
            rows.OWNERS.name: [Sample((), len(owned))],
            rows.SPREAD.name: _by(rows.SPREAD, spreads.count(owned)),
            rows.LARGEST_FREE.name: _by(rows.LARGEST_FREE, [largest for largest, _ in left]),
            rows.BROKEN_FREE.name: _by(rows.BROKEN_FREE, [broken for _, broken in left]),
        }

    def _spreads(self, snapshot: Snapshot) -> _Spreads:
        """Return what measures on this machine; it takes longer to make than to use."""
        topology, reserved = snapshot.policy.pools.seen(snapshot.topology), snapshot.policy.reserved
        if self._ruler is None or self._ruler[0] is not topology or self._ruler[1] != reserved:
            self._ruler = topology, reserved, _Spreads(topology, topology.online - reserved)
        return self._ruler[2]


class _Spreads:
    """The alignment of assignments and of free CPUs on one machine; on masks, since it runs at every scrape."""

    def __init__(self, topology: Topology, allocatable: CPUSet) -> None:
        kinds = (topology.cores, topology.uncore_caches, topology.numa_nodes, topology.sockets)
        self._ruler: Final = Ruler(topology, allocatable)
        self._parts: Final = [[group.mask & allocatable.mask for group in groups] for groups in kinds]
        self._of: Final = [{cpu: group.mask for group in groups for cpu in cpus_of(group.mask)} for groups in kinds]
        self._known: dict[int, tuple[bool, ...]] = {}
        """The results for the masks of the last scrape: mostly one or two masks are new."""

    def leftover(self, free: int) -> list[tuple[int, float]]:
        """Return for each level the most free CPUs of a group, and the share of those in groups that are not whole."""
        return [_pieces(parts, free) for parts in self._parts]

    def count(self, owned: Sequence[int]) -> list[int]:
        """Return for each level how many of the masks are spread over more groups than necessary."""
        known = self._known
        self._known = {mask: known.get(mask) or self._spread(mask) for mask in owned if mask & (mask - 1)}
        found = [self._known[mask] for mask in owned if mask in self._known]
        return [sum(column) for column in zip(*found, strict=True)] if found else [0] * len(self._of)

    def _spread(self, mask: int) -> tuple[bool, ...]:
        size = mask.bit_count()
        levels = zip(_LEVELS.values(), self._of, strict=True)
        return tuple(_touched(mask, of) > self._ruler.fewest(level, size) for level, of in levels)


def _pieces(parts: Sequence[int], free: int) -> tuple[int, float]:
    most = whole = 0
    for mask in parts:
        size = (mask & free).bit_count()
        most = max(most, size)
        if not mask & ~free:
            whole += size
    count = free.bit_count()
    return most, (count - whole) / count if count else 0.0


def _touched(mask: int, of: Mapping[int, int]) -> int:
    touched = 0
    while mask:
        group = of.get((mask & -mask).bit_length() - 1, mask)  # CPUs that are gone count as one group
        mask &= ~group
        touched += 1
    return touched


def _by(metric: Metric, values: Sequence[float]) -> list[Sample]:
    label = metric.labels[0]
    return [Sample(((label.name, name),), value) for name, value in zip(label.values, values, strict=True)]


def _same(before: Snapshot, now: Snapshot) -> bool:
    return before.state is now.state and before.topology is now.topology and before.policy is now.policy


def cache_values(snapshot: Snapshot) -> dict[str, list[Sample]]:
    """Return what containers use of the cache and of the memory bandwidth, by the name of the row."""
    pods = {pod.uid: pod for pod in snapshot.pods}
    found: dict[str, list[Sample]] = {}
    for (uid, container), *figures in snapshot.cache_usage:
        if (pod := pods.get(uid)) is None:
            continue
        labels = (("namespace", pod.namespace), ("pod", pod.name), ("container", container))
        for metric, value in zip((rows.CACHE_OCCUPANCY, rows.MEMORY_TRAFFIC), figures, strict=True):
            if value is not None:
                found.setdefault(metric.name, []).append(Sample(labels, value))
    return found


def score_values(snapshot: Snapshot) -> dict[str, list[Sample]]:
    """Return how exclusive the CPUs of containers were, by the name of the row."""
    pods = {pod.uid: pod for pod in snapshot.pods}
    found: dict[str, list[Sample]] = {}
    for score in snapshot.scores():
        if (pod := pods.get(score.container.pod)) is None:
            continue
        labels = (("namespace", pod.namespace), ("pod", pod.name), ("container", score.container.name))
        figures = (score.foreign, score.interrupts, score.preempted, score.throttled)
        for metric, value in zip((rows.FOREIGN, rows.INTERRUPTS, rows.PREEMPTED, rows.THROTTLED), figures, strict=True):
            found.setdefault(metric.name, []).append(Sample(labels, round(value, 3)))
    return found


def process_values() -> dict[str, float]:
    """Return what the daemon itself uses, by the name of the row; unknown values are left out."""
    values = {rows.CPU_SECONDS.name: round(time.process_time(), 3)}
    try:
        values[rows.RSS.name] = int((_SELF / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        values[rows.OPEN_FDS.name] = len(os.listdir(_SELF / "fd")) - 1  # noqa: PTH208 - faster; less the listing's own
    except (OSError, ValueError, IndexError):
        pass
    return values
