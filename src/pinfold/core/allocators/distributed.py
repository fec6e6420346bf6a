"""distribute-cpus-across-numa: even shares from the fewest NUMA nodes that can give them, the rest balanced."""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.allocators.order import Arrangement, Fidelity, note_repeats
from pinfold.core.allocators.packed import NotEnoughCPUs, take_packed, take_packed_in
from pinfold.core.trace import Defect
from pinfold.errors import AdmissionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pinfold.core.allocators.order import Machine
    from pinfold.core.trace import Recorder


# Beyond this many combinations (more than 16 nodes) the search is cut: the fullest nodes are taken.
_MOST_COMBINATIONS: Final = 20_000
_MOST_SUBSETS: Final = 1 << 16
# The kubelet's later combinations cannot overwrite a saved one of up to this many nodes.
_NEVER_ALIASED: Final = 3
# Scores are rounded to a thousandth: below this many CPUs no two different choices are rounded to the same score.
_ROUNDING: Final = 1000


class AccountingError(AdmissionError):
    """The kubelet chose NUMA nodes with too few free CPUs; the text is the kubelet's."""

    def __init__(self, missing: int) -> None:
        super().__init__(f"accounting error, not enough CPUs allocated, remaining: {missing}")
        self.missing = missing


class Split(NamedTuple):
    """How many CPUs each NUMA node gives; nodes are positions in the list of sorted NUMA nodes."""

    nodes: tuple[int, ...]
    share: int
    """What each of *nodes* gives."""
    extra: tuple[int, ...]
    """The nodes that give the remainder, one group each in turn."""


def take_distributed(
    machine: Machine, available: int, count: int, arrangement: Arrangement, recorder: Recorder | None = None
) -> int:
    """Return *count* CPUs of *available*, in equal parts from several NUMA nodes, in groups of CPUs."""
    if count < 1:
        return 0
    if not count % arrangement.group:
        free = available & machine.online
        if count > free.bit_count():
            raise NotEnoughCPUs(count, available.bit_count())
        if recorder is None and not (arrangement.spread or arrangement.align_by_socket):
            taken = _take_from_fullest(machine, free, count, arrangement.group)
            if taken:
                return taken
        search = _Search(machine, free, count, arrangement, recorder)
        split = search.run()
        if split is not None:
            return search.take(split, spread=arrangement.spread)
    if recorder is not None:
        recorder.step("packed instead", 0, "no NUMA nodes can share the CPUs evenly")
    return take_packed(machine, available, count, arrangement._replace(uncore=False), recorder)


def _take_from_fullest(machine: Machine, free: int, count: int, group: int) -> int:
    """Return equal shares of the fullest nodes if they are surely the best split; 0 if a search is needed.

    They are if there is no remainder, enough nodes are equally full, and no saved node can be overwritten.
    """
    nodes = machine.sorted_numa_nodes(free)
    counts = [(node.mask & free).bit_count() for node in nodes]
    most = max(counts)
    needed = count // group
    groups = -(-machine.size // group)
    per_node = -(-groups // len(machine.numa_nodes.places))
    for size in range(-(-needed // per_node), min(needed, len(nodes)) + 1):
        share = needed // size * group
        if share > most:
            continue
        if size > _NEVER_ALIASED or share * size != count or len(nodes) * most >= _ROUNDING * share:
            return 0
        if counts.count(most) < size:
            return 0
        taken = 0
        for i, have in enumerate(counts):
            if have == most:
                taken |= take_packed_in(machine, nodes[i], free, share)
                if taken.bit_count() == count:
                    return taken
    return 0


class _Search:
    """Searches the NUMA nodes to distribute over: those that leave free CPUs best balanced over all nodes."""

    __slots__ = ("align_by_socket", "count", "counts", "free", "group", "keeps_aliases", "machine", "nodes", "recorder")

    def __init__(
        self, machine: Machine, free: int, count: int, arrangement: Arrangement, recorder: Recorder | None
    ) -> None:
        self.machine = machine
        self.free = free
        self.nodes = machine.sorted_numa_nodes(free)
        self.counts = [(node.mask & free).bit_count() for node in self.nodes]
        if recorder is not None:
            note_repeats(recorder, self.nodes)
        self.count = count
        self.group = arrangement.group
        self.align_by_socket = arrangement.align_by_socket
        self.recorder = recorder
        self.keeps_aliases = machine.fidelity is Fidelity.KUBELET

    def run(self) -> Split | None:
        """Return the best split over the fewest nodes possible; None if there is none.

        The search starts at the number of full nodes needed and ends at one node per group or per free node.
        """
        groups = -(-self.machine.size // self.group)
        per_node = -(-groups // len(self.machine.numa_nodes.places))
        needed = self.count // self.group
        most = max(self.counts)
        for size in range(-(-needed // per_node), min(needed, len(self.nodes)) + 1):
            share = needed // size * self.group
            if share > most and not self.align_by_socket:
                continue
            split = self._best(size, share, most)
            if split is not None:
                return split
        return None

    def _best(self, size: int, share: int, most: int) -> Split | None:
        """Return the best split over *size* nodes; None if there is none."""
        aliased = self.keeps_aliases and size != _allocated_at(size)
        plain = share * size == self.count and not self.align_by_socket and not aliased
        if plain and len(self.nodes) * most < _ROUNDING * share:
            return self._over_fullest(size, share)
        if math.comb(len(self.nodes), size) > _MOST_COMBINATIONS or 1 << size > _MOST_SUBSETS:
            return self._over_fullest(size, share)
        return self._over_best(size)

    def take(self, split: Split, *, spread: bool) -> int:
        """Return the CPUs that the nodes give."""
        taken = 0
        for i in split.nodes:
            # With aliased nodes the kubelet may ask a node for more CPUs than it has; it then skips that node.
            if self.counts[i] >= split.share:
                taken |= self._take_in(i, split.share, 0, spread=spread)
        rest = self.count - split.share * len(split.nodes)
        while rest > 0:
            before = rest
            for i in split.extra:
                if rest and (self.nodes[i].mask & self.free & ~taken).bit_count() >= self.group:
                    taken |= self._take_in(i, self.group, taken, spread=spread)
                    rest -= self.group
            if rest == before:
                if self.recorder is not None:
                    self.recorder.defect(Defect.ENDLESS_DISTRIBUTION, f"no NUMA node can give {rest} more CPUs")
                break
        if taken.bit_count() < self.count:
            raise AccountingError(self.count - taken.bit_count())
        return taken

    def _take_in(self, i: int, count: int, taken: int, *, spread: bool) -> int:
        free = self.free & ~taken
        if not spread:
            return take_packed_in(self.machine, self.nodes[i], free, count, self.recorder)
        return take_packed(self.machine, free & self.nodes[i].mask, count, Arrangement(spread=True), self.recorder)

    def _over_fullest(self, size: int, share: int) -> Split | None:
        """Return the split over the fullest nodes; ties go to the first.

        Without a remainder this is the best split: only the sum of the chosen nodes' CPUs matters.
        """
        counts = self.counts
        most = max(counts)
        fullest = [i for i, count in enumerate(counts) if count == most]
        if len(fullest) >= size and share * size == self.count:
            return Split(tuple(fullest[:size]), share, ())
        able = [i for i, count in enumerate(counts) if count >= share]
        if len(able) < size:
            return None
        least = sorted([counts[i] for i in able])[-size]
        ties = size - sum([counts[i] > least for i in able])
        nodes = []
        for i in able:
            if counts[i] > least:
                nodes.append(i)
            elif counts[i] == least and ties:
                nodes.append(i)
                ties -= 1
        extra = self._fill(nodes, share, self.count - share * size)
        return None if extra is None else Split(tuple(nodes), share, extra)

    def _fill(self, nodes: Sequence[int], share: int, rest: int) -> tuple[int, ...] | None:
        """Return the nodes that give one more group each, always the fullest; None if no node can."""
        left = {i: self.counts[i] - share for i in nodes}
        extra = []
        for _ in range(rest // self.group):
            fullest = max(left, key=left.__getitem__)
            if left[fullest] < self.group:
                return None
            left[fullest] -= self.group
            extra.append(fullest)
        return tuple(extra)

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
            rank = (self.align_by_socket and not self._in_one_socket(nodes), score)
            if rank < best_rank:
                best, best_rank = Split(nodes, share, tuple([nodes[i] for i in extra])), rank
        if best is None or not self.keeps_aliases:
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
        group = self.group
        if sum([count // group for count in counts]) * group < self.count:
            return None
        share = self.count // len(counts) // group * group
        if self.align_by_socket:
            share = min(share, min(counts) // group * group)
        elif min(counts) < share:
            return None
        others = list(self.counts)
        for count in counts:
            others.remove(count)
        after = [count - share for count in counts]
        rest = self.count - share * len(counts)
        if not rest:
            return deviation(others + after), share, ()
        best = self._best_givers(others, after, rest)
        return best and (best[0], share, best[1])

    def _best_givers(self, others: list[int], after: list[int], rest: int) -> tuple[float, tuple[int, ...]] | None:
        """Return the score and the nodes that give the remainder: as many as possible, unless fewer balance better."""
        group = self.group
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
            if best and len(best[1]) == size and self.keeps_aliases:
                best = (best[0], self._aliased_givers(best[1], able))
        return best

    def _score(self, others: list[int], after: list[int], givers: tuple[int, ...], rest: int) -> float:
        """Return the balance after *givers* have given the remainder in turns; infinite if they cannot."""
        group = self.group
        if sum([after[i] // group for i in givers]) * group < rest:
            if self.recorder is not None and self.keeps_aliases and sum([after[i] for i in givers]) >= rest:
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
