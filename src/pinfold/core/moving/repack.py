"""Repacking: which running containers to move, and where to, so that they use fewer NUMA nodes, caches and cores.

A plan is a list of moves in order. Each goes onto CPUs that are free at that moment, and none raises the cost of the
node. Steps of one or two moves strictly lower it: the first of two makes room for the second. Where few CPUs are free
every way is tried; on a large node the search is bounded, and its result depends on the State alone.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate, combinations, islice
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.machine.cpuset import EMPTY, CPUSet, cpus_of
from pinfold.core.moving.cost import Cost, CostMeter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pinfold.core.machine.topology import Topology
    from pinfold.core.pods.pod import ContainerRef

_SMALL: Final = 12
"""Of up to so many CPUs every choice is tried."""
_MOST_AREAS: Final = 64
_MOST_WAYS: Final = 4
_FEW_CONTAINERS: Final = 6
"""Among up to so many containers every pair is tried; among more, pairs are tried only if no single move helps."""
_MOST_SECONDS: Final = 16
_MOST_PAIRS: Final = 32


class Movable(NamedTuple):
    """A container that may move, its CPUs, and the CPUs that it may move to."""

    container: ContainerRef
    cpus: CPUSet
    area: CPUSet
    whole_cores: bool = False
    """Whether it has whole cores only (full-pcpus-only)."""
    most_caches: int | None = None
    """The most uncore caches that it may be in (require-align-cpus-by-uncorecache)."""


class Move(NamedTuple):
    """A container moves from some CPUs to others; *cost* and *lowered* are those of the container alone."""

    container: ContainerRef
    before: CPUSet
    after: CPUSet
    cost: Cost
    lowered: Cost
    idle: CPUSet = EMPTY
    """Siblings of the CPUs *after* that stay idle (isolate-smt-siblings)."""

    @property
    def why(self) -> str:
        """What the move brings, in words."""
        return f"cost {self.cost} -> {self.lowered}" if self.lowered < self.cost else "makes room for the next move"

    def __str__(self) -> str:
        return f"CPUs {self.before} -> {self.after} ({self.why})"


class RepackPlan(NamedTuple):
    """Moves in order, and the cost of the containers that may move, before and after."""

    moves: tuple[Move, ...]
    before: Cost
    after: Cost


class Packer:
    """Plans moves on one machine."""

    def __init__(self, topology: Topology) -> None:
        self.meter: Final = CostMeter(topology)
        self._chooser: Final = Chooser(topology, self.meter)

    def plan(self, free: CPUSet, movable: Sequence[Movable], budget: int) -> RepackPlan:
        """Return at most *budget* moves, of which each container has at most one."""
        cost, left = self.meter.cost, list(movable)
        moves: list[Move] = []
        before = after = self.meter.total(one.cpus for one in movable)
        now = free.mask
        while len(moves) < budget and (steps := self._steps(now, left, budget - len(moves))):
            for one, cpus in (move for step in steps for move in step):
                moves.append(Move(one.container, one.cpus, CPUSet(cpus), cost(one.cpus.mask), cost(cpus)))
                now = (now | one.cpus.mask) & ~cpus
                left.remove(one)
        for move in moves:
            after = after.plus(move.lowered).minus(move.cost)
        return RepackPlan(tuple(moves), before, after)

    def _steps(self, free: int, movable: Sequence[Movable], most: int) -> list[_Step]:
        """Return the best step; of many containers all the best single moves that do not hinder each other."""
        found = [step for one in movable if (step := self._alone(free, one)) is not None]
        few = len(movable) <= _FEW_CONTAINERS
        if most > 1 and (few or not found):
            found += islice(self._pairs(free, movable, None if few else _MOST_SECONDS), None if few else _MOST_PAIRS)
        found.sort(key=self._rank)
        return found[:1] if few or len(found[:1] and found[0]) > 1 else _side_by_side(found, free)[:most]

    def _rank(self, step: _Step) -> tuple[object, ...]:
        """Order steps by what they change in the cost, then by how many CPUs change their owner."""
        cost = self.meter.cost
        change = Cost()
        for one, cpus in step:
            change = change.plus(cost(cpus)).minus(cost(one.cpus.mask))
        changed = sum((cpus & ~one.cpus.mask).bit_count() for one, cpus in step)
        return change, len(step), changed, [one.container for one, _ in step]

    def _alone(self, free: int, one: Movable) -> _Step | None:
        held = self.meter.cost(one.cpus.mask)
        if held <= self._chooser.ideal(one):
            return None
        cpus = self._chooser.best(free & one.area.mask | one.cpus.mask, one)
        return None if cpus is None or self.meter.cost(cpus) >= held else ((one, cpus),)

    def _pairs(self, free: int, movable: Sequence[Movable], most: int | None) -> Iterator[_Step]:
        """Yield for each pair of containers the best two moves: the first makes room, the second lowers its cost."""
        cost = self.meter.cost
        scattered = [one for one in movable if cost(one.cpus.mask) > self._chooser.ideal(one)]
        for second in sorted(scattered, key=lambda one: cost(one.cpus.mask), reverse=True)[:most]:
            pool = free & second.area.mask | second.cpus.mask
            for first in self._chooser.in_the_way(pool, second, movable):
                ways = self._chooser.ways(pool | first.cpus.mask & second.area.mask, second)
                steps = [step for cpus in ways if (step := self._with(free, first, second, cpus))]
                if steps:
                    yield min(steps, key=self._rank)

    def _with(self, free: int, first: Movable, second: Movable, cpus: int) -> _Step | None:
        """Return the step in which *second* gets *cpus*, if *first* can leave them and is not worse off."""
        cost, own = self.meter.cost, first.cpus.mask
        if cost(cpus) >= cost(second.cpus.mask):
            return None
        aside = self._chooser.best((free & first.area.mask | own) & ~cpus, first)
        return None if aside is None or aside == own or cost(aside) > cost(own) else ((first, aside), (second, cpus))


class Chooser:
    """Finds the cheapest CPUs for one container, out of those that it could have."""

    def __init__(self, topology: Topology, meter: CostMeter) -> None:
        self._cost: Final = meter.cost
        self._cores_of: Final = meter.cores_of
        self._nodes: Final = tuple(node.mask for node in topology.numa_nodes)
        self._caches: Final = tuple(cache.mask for cache in topology.uncore_caches)
        self._threads: Final = topology.threads_per_core
        self._ideals: dict[tuple[int, int], Cost] = {}
        self._whole: dict[int, int] = {}

    def ideal(self, one: Movable) -> Cost:
        """Return a cost below which no CPUs of its area are, even if all were free."""
        key = one.area.mask, len(one.cpus)
        if key not in self._ideals:
            nodes = _how_many([node & one.area.mask for node in self._nodes], key[1])
            self._ideals[key] = Cost(nodes, _how_many([cache & one.area.mask for cache in self._caches], key[1]))
        return self._ideals[key]

    def best(self, pool: int, one: Movable) -> int | None:
        """Return the cheapest CPUs of *pool* for a container; of equal ones those that it has, then the lowest."""
        own = one.cpus.mask
        ways = self.ways(pool, one, most=1)
        return min(ways, key=lambda cpus: (self._cost(cpus), (cpus & ~own).bit_count(), cpus), default=None)

    def ways(self, pool: int, one: Movable, most: int = _MOST_WAYS) -> Iterator[int]:
        """Yield sets of CPUs for a container: all of them if they are few, else the *most* promising ones."""
        count = len(one.cpus)
        if one.whole_cores:
            pool = self._whole_in(pool)
        if pool.bit_count() < count:
            return
        if pool.bit_count() <= _SMALL:
            ways = (sum(some) for some in combinations([1 << cpu for cpu in cpus_of(pool)], count))
        else:
            areas = islice(self._areas(pool, count), _MOST_AREAS)
            ranked = sorted(areas, key=lambda area: self._promise(area, pool, one))
            ways = (self._pick(area, count, one.cpus.mask) for area in ranked[:most])
        if one.whole_cores or one.most_caches is not None:
            most_caches = len(self._caches) if one.most_caches is None else one.most_caches
            ways = (cpus for cpus in ways if self._keeps(cpus, most_caches, whole_cores=one.whole_cores))
        yield from ways

    def _keeps(self, cpus: int, most_caches: int, *, whole_cores: bool) -> bool:
        cost = self._cost(cpus)
        return cost.uncore_caches <= most_caches and not (whole_cores and cost.split_cores)

    def in_the_way(self, pool: int, one: Movable, others: Sequence[Movable]) -> Iterator[Movable]:
        """Yield the containers whose CPUs could let *one* have fewer caches than *pool* does, or all if it is small."""
        sizes = [(cache & pool).bit_count() for cache in self._caches]
        caches = min(_how_many_of(sizes, len(one.cpus)), self._cost(one.cpus.mask).uncore_caches)
        for other in others:
            theirs = other.cpus.mask & one.area.mask
            more = [size + (cache & theirs).bit_count() for size, cache in zip(sizes, self._caches, strict=True)]
            small = (pool | theirs).bit_count() <= _SMALL
            if other is not one and (small or _how_many_of(more, len(one.cpus)) < caches):
                yield other

    def _areas(self, pool: int, count: int) -> Iterator[int]:
        """Yield the CPUs of *pool* in the fewest NUMA nodes, and in these the fewest caches, that have *count*."""
        for together in _fewest([node & pool for node in self._nodes if node & pool], count):
            yield from _fewest([cache & together for cache in self._caches if cache & together], count)

    def _promise(self, area: int, pool: int, one: Movable) -> tuple[int, int, int]:
        """Order areas by about how many cores are split, then by how many CPUs change, then by what is left over."""
        count, whole = len(one.cpus), (area & self._whole_in(pool)).bit_count()
        split = count - whole if count > whole else int(count % self._threads > 0)
        return split, -(area & one.cpus.mask).bit_count(), area.bit_count()

    def _whole_in(self, pool: int) -> int:
        """Return the whole cores in *pool*."""
        if pool not in self._whole:
            self._whole[pool] = sum(core for core in self._cores_of(pool) if not core & ~pool)
        return self._whole[pool]

    def _pick(self, area: int, count: int, own: int) -> int:
        """Return *count* CPUs of *area*: whole cores first, those of its *own* before others."""
        cores = self._cores_of(area)
        whole = sorted((core for core in cores if not core & ~area), key=lambda core: -(core & own).bit_count())
        taken = 0
        for core in whole:
            if core.bit_count() <= count - taken.bit_count():
                taken |= core
        rest = sorted((core & area & ~taken for core in cores), key=lambda part: (-(part & own).bit_count(), part))
        # A core of which a part is free anyway is split before a whole one.
        for part in sorted(rest, key=whole.__contains__):
            taken |= _lowest(part, count - taken.bit_count())
        return taken


_Step = tuple[tuple[Movable, int], ...]
"""Containers and the CPUs that they move to, in order."""


def _side_by_side(steps: Sequence[_Step], free: int) -> list[_Step]:
    """Return the single moves that can all be made: each onto CPUs that are free now and that no earlier one takes."""
    chosen: list[_Step] = []
    for ((one, cpus),) in steps:
        if not cpus & ~one.cpus.mask & ~free:
            chosen.append(((one, cpus),))
            free &= ~cpus
    return chosen


def _fewest(parts: Sequence[int], count: int) -> Iterator[int]:
    """Yield the unions of as few parts as have *count* CPUs together."""
    for some in combinations(parts, _how_many(parts, count)):
        if sum(part.bit_count() for part in some) >= count:
            yield sum(some)


def _how_many(parts: Iterable[int], count: int) -> int:
    """Return how many of the parts are needed to have *count* CPUs; one more than all if they are too few."""
    return _how_many_of([part.bit_count() for part in parts], count)


def _how_many_of(sizes: Sequence[int], count: int) -> int:
    return bisect_left(list(accumulate(sorted(sizes, reverse=True))), count) + 1


def _lowest(cpus: int, count: int) -> int:
    """Return the *count* lowest CPUs of a mask, or all if there are fewer."""
    taken = 0
    while cpus and count > 0:
        lowest = cpus & -cpus
        taken |= lowest
        cpus ^= lowest
        count -= 1
    return taken
