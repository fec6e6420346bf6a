"""Balance: chooses the NUMA nodes for an even split that leaves nodes equally full, scored as the kubelet does.

Does not choose the CPUs of a node.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.trace import Defect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pinfold.core.allocators.order import Area, Arrangement, Machine
    from pinfold.core.trace import Recorder


# All combinations of nodes and of givers of the remainder are tried, up to this many tries. Machines of 16 NUMA nodes
# never need more: 11 of 16 nodes are 8,945,664 tries, which took 15 s at worst.
_MOST_TRIES: Final = 10_000_000


class Split(NamedTuple):
    """How many CPUs each NUMA node gives; nodes are positions in the list of sorted NUMA nodes."""

    nodes: tuple[int, ...]
    share: int
    """What each of *nodes* gives."""
    extra: tuple[int, ...]
    """The nodes that give the remainder, one group each in turn."""


class Balance(NamedTuple):
    """Searches the nodes that leave free CPUs best balanced over all nodes."""

    machine: Machine
    nodes: Sequence[Area]
    """The nodes with free CPUs, as the kubelet sorts them."""
    counts: Sequence[int]
    """The number of free CPUs of each."""
    wanted: int
    """The number of CPUs to split."""
    arrangement: Arrangement
    recorder: Recorder | None

    def best(self, size: int, share: int) -> Split | None:
        """Return the best split over *size* nodes, each giving *share* CPUs before the remainder; None if none exists.

        With align-by-socket each may give less.
        """
        if math.comb(len(self.counts), size) << size > _MOST_TRIES:
            return self._over_fullest(size, share)
        return self._over_best(size)

    def _over_fullest(self, size: int, share: int) -> Split | None:
        """Return the split over the fullest nodes, each group of the remainder from the fullest node."""
        nodes = sorted(sorted(range(len(self.counts)), key=self.counts.__getitem__, reverse=True)[:size])
        left = {i: self.counts[i] - share for i in nodes}
        extra = []
        for _ in range(0, self.wanted - share * size, self.arrangement.group):
            fullest = max(left, key=left.__getitem__)
            left[fullest] -= self.arrangement.group
            extra.append(fullest)
        return Split(tuple(nodes), share, tuple(extra)) if min(left.values()) >= 0 else None

    def _over_best(self, size: int) -> Split | None:
        """Return the first of the best-scored splits, trying all combinations of nodes in order."""
        best: Split | None = None
        best_rank = (True, math.inf)
        known: dict[tuple[int, ...], tuple[float, int, tuple[int, ...]] | None] = {}
        following = None
        for nodes in combinations(range(len(self.nodes)), size):
            if best_rank[1] == 0:
                following = nodes
                break
            counts = tuple([self.counts[i] for i in nodes])
            if counts not in known:
                known[counts] = self._share_out(counts)
            outcome = known[counts]
            if outcome is None:
                continue
            score, share, extra = outcome
            rank = (self.arrangement.align_by_socket and not self._in_one_socket(nodes), score)
            if rank < best_rank:
                best, best_rank = Split(nodes, share, tuple([nodes[i] for i in extra])), rank
        if best is None or not self.machine.exact:
            return best
        return best._replace(nodes=self._aliased(best.nodes, following))

    def _aliased(self, nodes: tuple[int, ...], following: tuple[int, ...] | None) -> tuple[int, ...]:
        """Return what the kubelet reads back for saved *nodes* after it has looked at the *following* ones."""
        kept = _allocated_at(len(nodes))
        if following is None:
            last = len(self.nodes) - len(nodes) + kept
            following = (*nodes[:kept], *range(last, len(self.nodes)))
        found = following if following[:kept] == nodes[:kept] else nodes
        if found != nodes and self.recorder is not None:
            names = [", ".join(str(self.nodes[i].id) for i in which) for which in (nodes, found)]
            self.recorder.defect(
                Defect.ALIASED_COMBINATION, f"NUMA nodes {names[0]} were chosen, {names[1]} are used instead"
            )
        return found

    def _in_one_socket(self, nodes: tuple[int, ...]) -> bool:
        cpus = sum([self.nodes[i].mask for i in nodes])
        return sum([bool(socket.mask & cpus) for socket in self.machine.sockets.places]) == 1

    def _share_out(self, counts: tuple[int, ...]) -> tuple[float, int, tuple[int, ...]] | None:
        """Return score, share and givers of the remainder for nodes with these free CPUs; None if impossible."""
        group = self.arrangement.group
        if sum([count // group for count in counts]) * group < self.wanted:
            return None
        share = self.wanted // len(counts) // group * group
        if self.arrangement.align_by_socket:
            share = min(share, min(counts) // group * group)
        elif min(counts) < share:
            return None
        others = list(self.counts)
        for count in counts:
            others.remove(count)
        after = [count - share for count in counts]
        rest = self.wanted - share * len(counts)
        if not rest:
            return deviation(others + after), share, ()
        best = self._best_givers(others, after, rest)
        return best and (best[0], share, best[1])

    def _best_givers(self, others: list[int], after: list[int], rest: int) -> tuple[float, tuple[int, ...]] | None:
        """Return the score and the nodes that give the remainder: as many as possible, unless fewer balance better."""
        group = self.arrangement.group
        able = [i for i, count in enumerate(after) if count >= group]
        best: tuple[float, tuple[int, ...]] | None = None
        scores: dict[tuple[int, ...], float] = {}
        for size in range(len(able), 0, -1):
            for givers in combinations(able, size):
                left = tuple([after[i] for i in givers])
                score = scores.get(left)
                if score is None:
                    score = scores[left] = self._score(others, after, givers, rest)
                if score < (best[0] if best else math.inf):
                    best = (score, givers)
            if best and len(best[1]) == size and self.machine.exact:
                best = (best[0], self._aliased_givers(best[1], able))
        return best

    def _score(self, others: list[int], after: list[int], givers: tuple[int, ...], rest: int) -> float:
        """Return the balance after *givers* have given the remainder in turns; infinite if they cannot."""
        group = self.arrangement.group
        if sum([after[i] // group for i in givers]) * group < rest:
            if self.recorder is not None and self.machine.exact and sum([after[i] for i in givers]) >= rest:
                what = f"{rest} CPUs in groups of {group} from nodes with {[after[i] for i in givers]} CPUs never end"
                self.recorder.defect(Defect.ENDLESS_DISTRIBUTION, what)
            return math.inf
        left = list(after)
        while rest:
            for i in givers:
                if rest and left[i] >= group:
                    left[i] -= group
                    rest -= group
        return deviation(others + left)

    def _aliased_givers(self, givers: tuple[int, ...], able: list[int]) -> tuple[int, ...]:
        kept = _allocated_at(len(givers))
        found = (*givers[:kept], *able[len(able) - len(givers) + kept :])
        if found != givers and self.recorder is not None:
            self.recorder.defect(Defect.ALIASED_COMBINATION, "other NUMA nodes than the chosen ones give the rest")
        return found


def is_aliased(size: int) -> bool:
    """Whether the kubelet may overwrite a saved combination of *size* nodes."""
    return _allocated_at(size) < size


def _allocated_at(size: int) -> int:
    """Return how many first elements of a saved combination later ones cannot overwrite.

    The kubelet appends to arrays that grow to 1, 2, 4, 8, 16 … elements; an array with room left is written in place.
    """
    return 1 if size == 1 else (1 << (size - 1).bit_length() - 1) + 1


def deviation(counts: Sequence[int]) -> float:
    """Return the population standard deviation, mean and result rounded to 3 decimals, half away from zero."""
    size = len(counts)
    mean = math.floor(sum(counts) / size * 1000 + 0.5) / 1000
    return math.floor(math.sqrt(sum([(count - mean) ** 2 for count in counts]) / size) * 1000 + 0.5) / 1000
