"""How CPUs are spread over a machine: cores, caches, NUMA nodes and sockets used, and the minimum of each.

Also fragmentation: how many of the free CPUs are in partly used groups.
"""

from __future__ import annotations

from bisect import bisect_left
from enum import StrEnum
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.machine.topology import Group, Topology


class Level(StrEnum):
    """A kind of group, from the inside out; the value is its name for users."""

    CORE = "core"
    UNCORE = "L3"
    NUMA = "NUMA"
    SOCKET = "socket"

    def counted(self, number: int) -> str:
        """Return *number* groups of this kind, in words.

        >>> Level.NUMA.counted(1), Level.NUMA.counted(2), Level.UNCORE.counted(2)
        ('1 NUMA node', '2 NUMA nodes', '2 L3')
        """
        return f"{number} {self.noun}{'' if number == 1 or self is Level.UNCORE else 's'}"

    @property
    def noun(self) -> str:
        """One group of this kind."""
        return "NUMA node" if self is Level.NUMA else str(self)


class Span(NamedTuple):
    """The groups of one level that CPUs use, and the minimum for as many CPUs on this node."""

    ids: tuple[int, ...]
    fewest: int

    @property
    def is_aligned(self) -> bool:
        """Whether the CPUs use no more groups than necessary."""
        return len(self.ids) <= self.fewest


class Alignment(NamedTuple):
    """The spans of CPUs, a field for each level from the inside out."""

    core: Span
    uncore: Span
    numa: Span
    socket: Span

    @property
    def is_aligned(self) -> bool:
        """Whether no level has more groups than necessary."""
        return all(span.is_aligned for span in self)

    @property
    def levels(self) -> Mapping[Level, Span]:
        """The spans by level."""
        return dict(zip(Level, self, strict=True))

    @property
    def crossed(self) -> tuple[Level, ...]:
        """The levels with more groups than necessary."""
        return tuple(level for level, span in self.levels.items() if not span.is_aligned)


class Leftover(NamedTuple):
    """The free CPUs, and how fragmented they are."""

    cpus: CPUSet
    largest: Mapping[Level, int]
    """The most free CPUs in one group of a level: the largest request that fits into one."""
    broken: Mapping[Level, float]
    """Share of free CPUs in partly used groups, by level; 0 if no CPU is free."""

    @property
    def fragmentation(self) -> float:
        """Share of free CPUs in partly used cores, caches and NUMA nodes (averaged), 0 to 1."""
        return sum(self.broken[level] for level in _PIECES) / len(_PIECES)


_PIECES: Final = (Level.CORE, Level.UNCORE, Level.NUMA)


class Ruler:
    """Measures how CPUs of one node are spread; only *allocatable* CPUs can be exclusive.

    >>> from pinfold.core.machine.cpuset import CPUSet
    >>> from pinfold.core.machine.presets import preset
    >>> ruler = Ruler(preset("sockets:1,l3:2,cores:4,threads:2"))
    >>> ruler.measure(CPUSet.parse("0-1,8-9")).is_aligned
    True
    >>> ruler.measure(CPUSet.parse("3-4")).crossed
    (<Level.CORE: 'core'>, <Level.UNCORE: 'L3'>)
    """

    def __init__(self, topology: Topology, allocatable: CPUSet | None = None) -> None:
        self._all: Final = topology.online if allocatable is None else allocatable
        self._groups: Final[Mapping[Level, Sequence[Group]]] = {
            Level.CORE: topology.cores,
            Level.UNCORE: topology.uncore_caches,
            Level.NUMA: topology.numa_nodes,
            Level.SOCKET: topology.sockets,
        }
        self._room: Final = {level: self._cumulated(groups) for level, groups in self._groups.items()}
        self._of: Final = {
            level: {cpu: group.id for group in groups for cpu in group.cpus} for level, groups in self._groups.items()
        }

    def _cumulated(self, groups: Sequence[Group]) -> tuple[int, ...]:
        """Return how many CPUs the 1, 2, 3 … largest groups have together."""
        sizes = sorted(((group.mask & self._all.mask).bit_count() for group in groups), reverse=True)
        return tuple(accumulate(sizes))

    def measure(self, cpus: CPUSet) -> Alignment:
        """Return how *cpus* are spread."""
        members, count = list(cpus), len(cpus)
        return Alignment(*[self._span(level, members, count) for level in Level])

    def _span(self, level: Level, cpus: Sequence[int], count: int) -> Span:
        of = self._of[level]
        return Span(tuple(sorted({of[cpu] for cpu in cpus if cpu in of})), self.fewest(level, count))

    def fewest(self, level: Level, count: int) -> int:
        """Return the minimum of groups for *count* CPUs on an empty node; all groups if even they are too few."""
        room = self._room[level]
        return min(bisect_left(room, count) + 1, len(room))

    def largest(self, level: Level) -> int:
        """Return the number of allocatable CPUs in the largest group of a level."""
        return self._room[level][0] if self._room[level] else 0

    def free(self, level: Level, cpus: CPUSet) -> dict[int, int]:
        """Return the number of *cpus* in each group of a level, by id."""
        return {group.id: (group.mask & cpus.mask).bit_count() for group in self._groups[level]}

    def leftover(self, free: CPUSet) -> Leftover:
        """Return how fragmented the *free* CPUs are."""
        largest = {level: max(self.free(level, free).values(), default=0) for level in Level}
        return Leftover(free, largest, {level: self._broken(level, free.mask) for level in Level})

    def _broken(self, level: Level, free: int) -> float:
        if not free:
            return 0.0
        whole = sum(group.mask & free for group in self._groups[level] if not group.mask & self._all.mask & ~free)
        return (free & ~whole).bit_count() / free.bit_count()
