"""How CPUs lie on a machine: which cores, caches, NUMA nodes and sockets they touch, and whether fewer would do.

Also what is left over: how much of the free CPUs still stands in groups that nobody has a part of.
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
    """A kind of group, from the inside out; the value is what people call it."""

    CORE = "core"
    UNCORE = "L3"
    NUMA = "NUMA"
    SOCKET = "socket"

    def counted(self, number: int) -> str:
        """Return so many groups of this kind, in words.

        >>> Level.NUMA.counted(1), Level.NUMA.counted(2), Level.UNCORE.counted(2)
        ('1 NUMA node', '2 NUMA nodes', '2 L3')
        """
        return f"{number} {self.noun}{'' if number == 1 or self is Level.UNCORE else 's'}"

    @property
    def noun(self) -> str:
        """One group of this kind."""
        return "NUMA node" if self is Level.NUMA else str(self)


class Span(NamedTuple):
    """The groups of one level that CPUs touch, and how few could hold as many CPUs on this node."""

    ids: tuple[int, ...]
    fewest: int

    @property
    def is_aligned(self) -> bool:
        """Whether there is no needless group."""
        return len(self.ids) <= self.fewest


class Alignment(NamedTuple):
    """The spans of CPUs, a field for each level from the inside out."""

    core: Span
    uncore: Span
    numa: Span
    socket: Span

    @property
    def is_aligned(self) -> bool:
        """Whether no level has a needless group."""
        return all(span.is_aligned for span in self)

    @property
    def levels(self) -> Mapping[Level, Span]:
        """The spans by level."""
        return dict(zip(Level, self, strict=True))

    @property
    def crossed(self) -> tuple[Level, ...]:
        """The levels with a needless group."""
        return tuple(level for level, span in self.levels.items() if not span.is_aligned)


class Leftover(NamedTuple):
    """What can still be given, and in which pieces."""

    cpus: CPUSet
    largest: Mapping[Level, int]
    """The most free CPUs in one group of a level: the largest request that could be held by one."""
    broken: Mapping[Level, float]
    """The share of the free CPUs that are in groups of which someone has a part; 0 where nothing is free."""

    @property
    def fragmentation(self) -> float:
        """One figure for all of it, 0 (whole) to 1: the mean over cores, caches and NUMA nodes."""
        return sum(self.broken[level] for level in _PIECES) / len(_PIECES)


_PIECES: Final = (Level.CORE, Level.UNCORE, Level.NUMA)


class Ruler:
    """Measures CPUs of one node, of which only *allocatable* CPUs are ever given.

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
        """Return how *cpus* lie."""
        members, count = list(cpus), len(cpus)
        return Alignment(*[self._span(level, members, count) for level in Level])

    def _span(self, level: Level, cpus: Sequence[int], count: int) -> Span:
        of = self._of[level]
        return Span(tuple(sorted({of[cpu] for cpu in cpus if cpu in of})), self.fewest(level, count))

    def fewest(self, level: Level, count: int) -> int:
        """Return how few groups can hold so many CPUs when nobody else is there; all if not even they can."""
        room = self._room[level]
        return min(bisect_left(room, count) + 1, len(room))

    def largest(self, level: Level) -> int:
        """Return how many CPUs the largest group of a level can ever give."""
        return self._room[level][0] if self._room[level] else 0

    def free(self, level: Level, cpus: CPUSet) -> dict[int, int]:
        """Return how many of *cpus* each group of a level has, by id."""
        return {group.id: (group.mask & cpus.mask).bit_count() for group in self._groups[level]}

    def leftover(self, free: CPUSet) -> Leftover:
        """Return in which pieces the *free* CPUs stand."""
        largest = {level: max(self.free(level, free).values(), default=0) for level in Level}
        return Leftover(free, largest, {level: self._broken(level, free.mask) for level in Level})

    def _broken(self, level: Level, free: int) -> float:
        if not free:
            return 0.0
        whole = sum(group.mask & free for group in self._groups[level] if not group.mask & self._all.mask & ~free)
        return (free & ~whole).bit_count() / free.bit_count()
