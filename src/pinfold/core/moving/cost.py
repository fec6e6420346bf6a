"""Cost: how scattered the CPUs of containers are, which a repack lowers."""

from __future__ import annotations

from operator import add, sub
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.explaining.alignment import Level
from pinfold.core.machine.cpuset import cpus_of
from pinfold.core.topologymanager.closeness import Closeness

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.machine.topology import Topology


class Cost(NamedTuple):
    """How scattered CPUs are; the first difference decides which of two costs is lower."""

    numa_nodes: int = 0
    uncore_caches: int = 0
    split_cores: int = 0
    """Cores of which the container has only a part."""
    distance: int = 0
    """The sum of the distances between its NUMA nodes; 0 for one node."""

    def plus(self, other: Cost) -> Cost:
        """Return the sum of both costs."""
        return Cost(*map(add, self, other))

    def minus(self, other: Cost) -> Cost:
        """Return the difference of both costs."""
        return Cost(*map(sub, self, other))

    def __str__(self) -> str:
        """Return it in words, without what is 0.

        >>> str(Cost(1, 2)), str(Cost(2, 2, 1, 64))
        ('1 NUMA node, 2 L3', '2 NUMA nodes, 2 L3, 1 split core, distance 64')
        """
        parts = [Level.NUMA.counted(self.numa_nodes), Level.UNCORE.counted(self.uncore_caches)]
        if self.split_cores:
            parts.append(f"{self.split_cores} split core{'' if self.split_cores == 1 else 's'}")
        return ", ".join([*parts, *([f"distance {self.distance}"] if self.distance else [])])


class CostMeter:
    """Measures the cost of CPUs on one machine."""

    def __init__(self, topology: Topology) -> None:
        self._nodes: Final = topology.numa_nodes
        self._caches: Final = tuple(cache.mask for cache in topology.uncore_caches)
        self._core_of: Final = {cpu: core.mask for cpu, core in topology.core_of.items()}
        self._spread: Final = Closeness(topology.distances).spread
        self._known: dict[int, Cost] = {}

    def cost(self, cpus: int) -> Cost:
        """Return the cost of the CPUs of a mask."""
        known = self._known.get(cpus)
        if known is None:
            known = self._known[cpus] = self._measure(cpus)
        return known

    def _measure(self, cpus: int) -> Cost:
        nodes = [node.id for node in self._nodes if node.mask & cpus]
        caches = sum(1 for cache in self._caches if cache & cpus)
        split = {core for core in self.cores_of(cpus) if core & ~cpus}
        distance = self._spread(sum(1 << node for node in nodes)) if len(nodes) > 1 else 0
        return Cost(len(nodes), caches, len(split), distance)

    def cores_of(self, cpus: int) -> dict[int, None]:
        """Return the cores that have one of these CPUs, as masks, by their lowest of these."""
        return dict.fromkeys(map(self._core_of.__getitem__, cpus_of(cpus)))

    def total(self, containers: Iterable[CPUSet]) -> Cost:
        """Return the cost of several containers together."""
        total = Cost()
        for cpus in containers:
            total = total.plus(self.cost(cpus.mask))
        return total
