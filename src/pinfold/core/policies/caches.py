"""require-align-cpus-by-uncorecache: which free CPUs are within the fewest uncore caches for a request."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Final

from pinfold.errors import AdmissionError

if TYPE_CHECKING:
    from pinfold.core.allocators.order import Machine


class UncoreAlignmentError(AdmissionError):
    """The free CPUs are spread over more uncore caches than the request needs."""

    reason = "UncoreAlignmentError"

    def __init__(self, wanted: int, fewest: int, most: int, nearest: int | None) -> None:
        caches = "1 uncore cache" if fewest == 1 else f"{fewest} uncore caches"
        have = "no cache has more than" if fewest == 1 else f"no {fewest} caches together have more than"
        fix = "no other size fits" if nearest is None else f"the nearest size that fits is {nearest}"
        super().__init__(f"{wanted} CPUs must be within {caches}, but {have} {most} free CPUs; {fix}")
        self.wanted = wanted
        self.fewest = fewest
        self.most = most
        self.nearest = nearest


class KeptOutsideError(AdmissionError):
    """With the CPUs that a running container keeps, its new size is spread over more uncore caches than it needs."""

    reason = UncoreAlignmentError.reason

    def __init__(self, wanted: int, fewest: int, kept: int) -> None:
        caches = "1 uncore cache" if fewest == 1 else f"{fewest} uncore caches"
        super().__init__(f"{wanted} CPUs must be within {caches}, which they cannot with the {kept} CPUs that it keeps")
        self.wanted = wanted
        self.fewest = fewest
        self.kept = kept


class Caches:
    """The uncore caches of a machine, of which *room* can be exclusive on an empty node."""

    def __init__(self, machine: Machine, room: int) -> None:
        self._masks: Final = machine.uncore_caches.masks
        self._machine: Final = machine
        self._room: Final = tuple(accumulate(self._counts(room)))

    def _counts(self, free: int) -> list[int]:
        return sorted([(mask & free).bit_count() for mask in self._masks], reverse=True)

    def fewest(self, count: int) -> int:
        """Return the fewest caches that hold *count* CPUs on an empty node; all if even they are too few."""
        return min(bisect_left(self._room, count) + 1, len(self._room))

    def most(self, free: int, caches: int) -> int:
        """Return how many *free* CPUs the best *caches* caches have together."""
        return sum(self._counts(free)[:caches])

    def hold(self, free: int, count: int) -> bool:
        """Whether *count* of the *free* CPUs are within the fewest caches."""
        return self.most(free, self.fewest(count)) >= count

    def span(self, cpus: int) -> int:
        """Return the CPUs of the caches that *cpus* are in."""
        return sum(mask for mask in self._masks if mask & cpus)

    def aligned(self, cpus: int) -> bool:
        """Whether *cpus* are within the fewest caches for their number."""
        return self._touched(cpus) <= self.fewest(cpus.bit_count())

    def _touched(self, cpus: int) -> int:
        return sum(bool(mask & cpus) for mask in self._masks)

    def within(self, free: int, count: int) -> int:
        """Return the *free* CPUs of the fewest caches that hold *count*, in one NUMA node or socket if possible.

        0 if they do not hold so many.
        """
        rows = (self._machine.numa_nodes, self._machine.sockets)
        places = chain.from_iterable(row.fullest_first(free) for row in rows)
        rooms = [free & place.mask for place in places]
        return next((found for room in (*rooms, free) if (found := self._pack(room, count, self.fewest(count)))), 0)

    def beside(self, free: int, held: int, count: int) -> int:
        """Return the *free* CPUs on which *held* ones can grow to *count* in the fewest caches; 0 if there are none."""
        own = self.span(held)
        others = self.fewest(count) - self._touched(held)
        missing = count - (held | free & own).bit_count()
        if missing <= 0 <= others:
            return free & own
        packed = (self._pack(free & ~own, missing, caches) for caches in range(1, others + 1))
        return next((free & own | found for found in packed if found), 0)

    def largest(self, held: int, kept: int, count: int) -> int:
        """Return those *held* CPUs, with all *kept* ones, in the fewest caches for *count*; 0 if too few."""
        parts = [mask & held for mask in self._masks if mask & held]
        parts.sort(key=lambda part: (not part & kept, -part.bit_count()))
        found = sum(parts[: self.fewest(count)])
        return found if found.bit_count() >= count and not kept & ~found else 0

    def _pack(self, free: int, count: int, fewest: int) -> int:
        """Return the free CPUs of the largest caches, and of the smallest that then holds the rest."""
        parts = sorted((mask & free for mask in self._masks), key=int.bit_count, reverse=True)
        taken = sum(parts[: fewest - 1])
        rest = [part for part in parts[fewest - 1 :] if part.bit_count() >= count - taken.bit_count()]
        return taken | min(rest, key=int.bit_count) if rest else 0

    def nearest(self, free: int, count: int, step: int) -> int | None:
        """Return the multiple of *step* next to *count* of which the free CPUs hold as many; None if there is none."""
        sizes = (size for size in range(step, free.bit_count() + 1, step) if self.hold(free, size))
        return min(sizes, key=lambda size: (abs(size - count), size), default=None)
