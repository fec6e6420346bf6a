"""Laws of the allocators: sound on every machine, the same as a plain walk through the reference's rules."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pinfold.core.allocators.balance import deviation
from pinfold.core.allocators.cores import ListedCores, StridedCores, stride_of
from pinfold.core.allocators.distributed import AccountingError, take_distributed
from pinfold.core.allocators.order import PACKED, Arrangement, Fidelity, Machine
from pinfold.core.allocators.packed import NotEnoughCPUs, take_packed
from pinfold.core.machine.cpuset import cpus_of
from pinfold.core.machine.presets import preset
from pinfold.core.machine.topology import Topology
from pinfold.core.trace import Defect, Recorder
from pinfold.errors import AdmissionError
from tests.property.strategies import (
    arrangements,
    cpus_within,
    distributed_arrangements,
    irregular_topologies,
    node_topologies,
    offline_topologies,
    regular_topologies,
    topologies,
    torn_topologies,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pinfold.core.machine.topology import Group

ANY_FIDELITY = st.sampled_from(Fidelity)
ANY_NESTING = topologies() | irregular_topologies(crossing=True)
UNCORE, SPREAD = Arrangement(uncore=True), Arrangement(spread=True)


def take(
    machine: Machine, free: int, count: int, arrangement: Arrangement = PACKED, recorder: Recorder | None = None
) -> int:
    allocator = take_distributed if arrangement.group else take_packed
    return allocator(machine, free, count, arrangement, recorder)


def mask_of(cpus: Iterable[int]) -> int:
    return sum(1 << cpu for cpu in cpus)


def sets_of(groups: Iterable[Group]) -> dict[int, set[int]]:
    return {group.id: set(cpus_of(group.mask)) for group in groups}


class Question(NamedTuple):
    topology: Topology
    free: int
    wanted: int
    arrangement: Arrangement


@st.composite
def questions(
    draw: st.DrawFn,
    machines: st.SearchStrategy[Topology],
    arrangement: st.SearchStrategy[Arrangement] | None = None,
    *,
    beyond: int = 0,
) -> Question:
    """So many CPUs of those free on a machine; with *beyond* perhaps more than there are."""
    topology = draw(machines)
    free = draw(cpus_within(topology.online.mask))
    if not free and not beyond:
        free = topology.online.mask
    count = draw(st.integers(1, free.bit_count() + beyond))
    ways = arrangements(topology.threads_per_core) if arrangement is None else arrangement
    return Question(topology, free, count, draw(ways))


# What the reference does, as plainly as can be: sets of numbers, every list made anew whenever it is looked at.


class Plain:
    """The rules of packed and of distributed on one machine; groups are judged as the fidelity judges them."""

    def __init__(self, topology: Topology, fidelity: Fidelity) -> None:
        self.cpus = set(topology.online)
        self.cores, self.caches = sets_of(topology.cores), sets_of(topology.uncore_caches)
        self.nodes, self.sockets = sets_of(topology.numa_nodes), sets_of(topology.sockets)
        self.averages = fidelity is Fidelity.KUBELET
        self.threads = len(self.cpus) // len(self.cores) if self.averages else topology.threads_per_core
        self.numa_first = len(self.sockets) >= len(self.nodes)

    def is_whole(self, group: set[int], kind: Mapping[int, set[int]], free: set[int]) -> bool:
        if self.averages and (kind is self.cores or kind is self.sockets):
            return len(group & free) == len(self.cpus) // len(kind)
        return group <= free

    def packed(self, free: set[int], count: int, arrangement: Arrangement = PACKED) -> set[int]:
        taking = _PlainTaking(self, set(free), count)
        steps: list[Callable[[], None]] = [taking.whole_sockets, taking.whole_nodes]
        steps = steps[::-1] if self.numa_first else steps
        steps += [taking.uncore] if arrangement.uncore else []
        steps += [taking.spread_cpus] if arrangement.spread else [taking.whole_cores, taking.single_cpus]
        for step in steps:
            if taking.need > 0:
                step()
        return taking.taken

    def distributed(self, free: set[int], count: int, arrangement: Arrangement) -> set[int] | None:
        """Return the CPUs, or None where the reference never returns."""
        group, inside = arrangement.group, arrangement._replace(uncore=False)
        most = math.ceil(math.ceil(len(self.cpus) / group) / len(self.nodes))
        groups = count // group if count % group == 0 else 0
        have = {node: len(self.nodes[node] & free) for node in _PlainTaking(self, free, count).sorted_nodes()}
        for size in range(-(-groups // most), min(groups, len(have)) + 1) if groups else ():
            try:
                split = _PlainSplits(self, have, count, arrangement).best(size)
            except Endless:
                return None
            if split is not None:
                return self._take_split(free, count, split, inside)
        return self.packed(free, count, inside)

    def _take_split(self, free: set[int], count: int, split: _Split, inside: Arrangement) -> set[int]:
        taken: set[int] = set()
        for node in split.nodes:
            if len(self.nodes[node] & free) >= split.share:
                taken |= self.packed(self.nodes[node] & free, split.share, inside)
        rest = count - split.share * len(split.nodes)
        while rest > 0:
            before = rest
            for node in split.givers:
                left = self.nodes[node] & free - taken
                if rest > 0 and len(left) >= inside.group:
                    taken |= self.packed(left, inside.group, inside)
                    rest -= inside.group
            if rest == before:
                raise Endless
        return taken


class _PlainTaking:
    def __init__(self, plain: Plain, free: set[int], need: int) -> None:
        self.plain, self.free, self.need = plain, free, need
        self.taken: set[int] = set()

    def fullest_first(self, groups: Mapping[int, set[int]], within: set[int] | None = None) -> list[int]:
        ids = [group for group, cpus in groups.items() if cpus & self.free & (cpus if within is None else within)]
        return sorted(ids, key=lambda group: (len(groups[group] & self.free), group))

    def once(self, ids: Iterable[int]) -> list[int]:
        """Return the ids without repetitions; the reference keeps those of groups that cross others."""
        return list(ids if self.plain.averages else dict.fromkeys(ids))

    def sorted_nodes(self) -> list[int]:
        nodes, sockets = self.plain.nodes, self.plain.sockets
        if self.plain.numa_first:
            return self.fullest_first(nodes)
        outer = [sockets[socket] for socket in self.fullest_first(sockets)]
        return self.once(node for cpus in outer for node in self.fullest_first(nodes, cpus))

    def sorted_sockets(self) -> list[int]:
        nodes, sockets = self.plain.nodes, self.plain.sockets
        if not self.plain.numa_first:
            return self.fullest_first(sockets)
        outer = [nodes[node] for node in self.fullest_first(nodes)]
        return self.once(socket for cpus in outer for socket in self.fullest_first(sockets, cpus))

    def sorted_cores(self) -> list[int]:
        plain = self.plain
        outer = [plain.sockets[i] for i in self.sorted_sockets()]
        if not plain.numa_first:
            outer = [plain.nodes[i] for i in self.sorted_nodes()]
        return [core for cpus in outer for core in self.fullest_first(plain.cores, cpus)]

    def sorted_caches(self) -> list[int]:
        plain = self.plain
        nodes = [plain.nodes[node] for node in self.sorted_nodes()]
        return self.once(cache for cpus in nodes for cache in self.fullest_first(plain.caches, cpus))

    def take(self, cpus: set[int]) -> None:
        self.taken |= cpus
        self.free -= cpus
        self.need -= len(cpus)

    def take_whole(self, ids: Sequence[int], groups: Mapping[int, set[int]]) -> None:
        whole = [groups[i] for i in ids if self.plain.is_whole(groups[i], groups, self.free)]
        for group in whole:
            if len(group) <= self.need:
                self.take(group)

    def whole_sockets(self) -> None:
        self.take_whole(self.sorted_sockets(), self.plain.sockets)

    def whole_nodes(self) -> None:
        self.take_whole(self.sorted_nodes(), self.plain.nodes)

    def whole_cores(self) -> None:
        cores, plain = self.sorted_cores(), self.plain
        if not plain.averages:  # differs: a larger core that fits comes first, within its socket or NUMA node
            places = plain.sockets if plain.numa_first else plain.nodes
            order = self.sorted_sockets() if plain.numa_first else self.sorted_nodes()
            outer = {core: order.index(i) for i in order for core in cores if plain.cores[core] <= places[i]}
            cores = sorted(cores, key=lambda core: (outer[core], -len(plain.cores[core])))
        self.take_whole(cores, plain.cores)

    def single_cpus(self) -> None:
        for cpu in [cpu for core in self.sorted_cores() for cpu in sorted(self.plain.cores[core] & self.free)]:
            self.take({cpu} if self.need > 0 else set())

    def spread_cpus(self) -> None:
        for cpu in [cpu for i in self.sorted_sockets() for cpu in sorted(self.plain.sockets[i] & self.free)]:
            self.take({cpu} if self.need > 0 else set())

    def uncore(self) -> None:
        plain = self.plain
        average = len(plain.cpus) // len(plain.caches)
        for cache in self.sorted_caches():
            if self.need >= average:
                self.take_whole(self.sorted_caches(), plain.caches)
            if self.need > 0:
                part = self._part_of(plain.caches[cache])
                self.take(part if len(part) == self.need else set())

    def _part_of(self, cache: set[int]) -> set[int]:
        plain = self.plain
        cores = sorted(core for core, cpus in plain.cores.items() if cpus & cache & self.free)
        cpus = set().union(*(plain.cores[core] & self.free for core in cores[: -(-self.need // plain.threads)]))
        odd = self.need % 2 and plain.threads > 1 and len(cpus) > self.need
        return cpus - {max(cpus)} if odd else cpus


class Endless(Exception):  # noqa: N818 - what it does
    """The reference goes round for ever."""


class _Split(NamedTuple):
    rank: tuple[bool, float]
    nodes: Sequence[int]
    share: int
    givers: Sequence[int]


class Saved:
    """An array as the reference grows it: to 1, 2, 4, 8 … elements, written in place while there is room."""

    def __init__(self, room: list[int], length: int) -> None:
        self.room, self.length = room, length

    def append(self, value: int) -> Saved:
        room = self.room
        if len(room) == self.length:
            room = [*room, *[-1] * max(1, self.length)]
        room[self.length] = value
        return Saved(room, self.length + 1)

    def read(self) -> list[int]:
        return self.room[: self.length]


def saved_combinations(values: Sequence[int], size: int, start: int = 0, found: Saved | None = None) -> Iterator[Saved]:
    found = found or Saved([], 0)
    if size == 0:
        yield found
        return
    for i in range(start, len(values) - size + 1):
        yield from saved_combinations(values, size - 1, i + 1, found.append(values[i]))


class _PlainSplits:
    """The best way to share CPUs out over so many nodes; with averages also as the reference remembers it."""

    def __init__(self, plain: Plain, have: Mapping[int, int], count: int, arrangement: Arrangement) -> None:
        self.plain, self.have, self.count = plain, have, count
        self.group, self.align = arrangement.group, arrangement.align_by_socket

    def best(self, size: int) -> _Split | None:
        best: _Split | None = None
        best_saved: Saved | None = None
        for saved in saved_combinations(list(self.have), size):
            if best is not None and best.rank[1] == 0:
                break
            split = self._over(saved.read())
            if split is not None and (best is None or split.rank < best.rank):
                best, best_saved = split, saved
        if best is None or best_saved is None or not self.plain.averages:
            return best
        return best._replace(nodes=best_saved.read())

    def _over(self, nodes: Sequence[int]) -> _Split | None:
        have, group = self.have, self.group
        if sum(have[node] // group for node in nodes) * group < self.count:
            return None
        share = self.count // len(nodes) // group * group
        if self.align:
            share = min(share, min(have[node] for node in nodes) // group * group)
        if min(have[node] for node in nodes) < share:
            return None
        after = {node: count - share * (node in nodes) for node, count in have.items()}
        sockets = [cpus for cpus in self.plain.sockets.values() if any(cpus & self.plain.nodes[n] for n in nodes)]
        apart = self.align and len(sockets) != 1
        rest = self.count - share * len(nodes)
        if not rest:
            return _Split((apart, plain_deviation(after.values())), nodes, share, ())
        score, givers = self._best_givers(nodes, after, rest)
        return _Split((apart, score), nodes, share, givers) if givers else None

    def _best_givers(self, nodes: Sequence[int], after: dict[int, int], rest: int) -> tuple[float, list[int]]:
        able = [node for node in nodes if after[node] >= self.group]
        best, best_score = Saved([], 0), math.inf
        for size in range(len(able), 0, -1):
            for saved in saved_combinations(able, size):
                score = self._score(after, saved.read(), rest)
                if score < best_score:
                    best_score, best = score, saved if self.plain.averages else Saved(saved.read(), size)
        return best_score, best.read()

    def _score(self, after: dict[int, int], givers: Sequence[int], rest: int) -> float:
        left = dict(after)
        if self.plain.averages and sum(left[node] for node in givers) < rest:
            return math.inf
        if not self.plain.averages and sum(left[node] // self.group for node in givers) * self.group < rest:
            return math.inf
        while rest > 0:
            before = rest
            for node in givers:
                if rest > 0 and left[node] >= self.group:
                    left[node] -= self.group
                    rest -= self.group
            if rest == before:
                raise Endless
        return plain_deviation(left.values())


def plain_deviation(counts: Iterable[int]) -> float:
    counts = list(counts)
    mean = _rounded(sum(counts) / len(counts))
    return _rounded(math.sqrt(sum((count - mean) ** 2 for count in counts) / len(counts)))


def _rounded(value: float) -> float:
    return math.floor(value * 1000 + 0.5) / 1000


# Soundness.


@given(questions(topologies(), beyond=2))
def test_exactly_the_cpus_asked_for_are_taken_from_the_free_ones_or_none_if_there_are_not_so_many(
    question: Question,
) -> None:
    topology, free, count, arrangement = question
    machine = Machine(topology)
    if count > free.bit_count():
        with pytest.raises(NotEnoughCPUs) as refusal:
            take(machine, free, count, arrangement)
        assert (refusal.value.wanted, refusal.value.free) == (count, free.bit_count())
        return
    taken = take(machine, free, count, arrangement)
    assert not taken & ~free
    assert taken.bit_count() == count


CROSSED = {
    "cache across NUMA nodes": ([(c, c, 0, c % 2, c // 2) for c in range(6)], 0b011011, 4, UNCORE),
    "socket across NUMA nodes": ([(c, c, c // 2, c % 2, 0) for c in range(6)], 0b011011, 4, PACKED),
    "NUMA node across sockets": (
        [(0, 0, 0, 0, 0), (1, 1, 1, 0, 0), (2, 2, 0, 1, 0), (3, 3, 0, 2, 0)],
        0b1111,
        3,
        Arrangement(group=1),
    ),
}


def crossed(name: str) -> Question:
    rows, free, count, arrangement = CROSSED[name]
    return Question(Topology.from_rows(rows), free, count, arrangement)


def check_sound(question: Question) -> None:
    topology, free, count, arrangement = question
    taken = take(Machine(topology), free, count, arrangement)
    assert not taken & ~free
    assert taken.bit_count() == count


@pytest.mark.parametrize("name", CROSSED)
def test_a_group_that_crosses_others_is_counted_once(name: str) -> None:
    check_sound(crossed(name))


@example(crossed("cache across NUMA nodes"))
@given(questions(irregular_topologies(crossing=True) | torn_topologies()))
def test_where_groups_cross_each_other_the_cpus_asked_for_are_taken_too(question: Question) -> None:
    check_sound(question)


@pytest.mark.parametrize("count", [0, -1])
@pytest.mark.parametrize("arrangement", [PACKED, UNCORE, SPREAD, Arrangement(group=1)])
def test_nothing_is_taken_where_nothing_is_needed(arrangement: Arrangement, count: int) -> None:
    machine = Machine(preset("laptop-4"))
    assert take(machine, 0, count, arrangement) == take(machine, 0b1111, count, arrangement) == 0


@given(questions(topologies()), st.integers(1, 1 << 40))
def test_cpus_that_the_machine_does_not_have_are_never_taken(question: Question, others: int) -> None:
    topology, free, count, arrangement = question
    machine = Machine(topology)
    absent = others & ~topology.online.mask
    assert take(machine, free | absent, count, arrangement) == take(machine, free, count, arrangement)


@given(questions(topologies(), beyond=2), ANY_FIDELITY)
def test_a_trace_tells_the_same_story_again_and_its_steps_add_up_to_the_answer(
    question: Question, fidelity: Fidelity
) -> None:
    topology, free, count, arrangement = question
    recorder = Recorder()
    answers = []
    for note in (None, recorder, None):
        try:
            answers.append(str(take(Machine(topology, fidelity), free, count, arrangement, note)))
        except AdmissionError as refusal:
            answers.append(str(refusal))
    assert answers[0] == answers[1] == answers[2]
    steps = [step.took.mask for step in recorder.trace().steps if step.took]
    if answers[0].isdigit():
        assert math.prod([1, *steps]) != 0
        assert sum(steps) == int(answers[0]), "the steps overlap, or took other CPUs"


@given(questions(topologies()))
def test_fidelity_pinfold_meets_no_defect(question: Question) -> None:
    topology, free, count, arrangement = question
    recorder = Recorder()
    take(Machine(topology), free, count, arrangement, recorder)
    assert not recorder.trace().defects


@given(questions(ANY_NESTING | node_topologies(), beyond=1))
def test_both_fidelities_agree_where_the_reference_has_no_defect(question: Question) -> None:
    topology, free, count, arrangement = question
    recorder = Recorder()

    def answer(fidelity: Fidelity, note: Recorder | None = None) -> str:
        try:
            return str(take(Machine(topology, fidelity), free, count, arrangement, note))
        except AdmissionError as refusal:
            return str(refusal)

    exact = answer(Fidelity.KUBELET, recorder)
    if not recorder.trace().defects:
        assert answer(Fidelity.PINFOLD) == exact


@given(questions(regular_topologies() | node_topologies(), beyond=1))
def test_on_regular_machines_the_reference_gives_only_free_cpus(question: Question) -> None:
    topology, free, count, arrangement = question
    recorder = Recorder()
    try:
        taken = take(Machine(topology, Fidelity.KUBELET), free, count, arrangement, recorder)
    except AdmissionError:
        return
    defects = {defect for defect, _ in recorder.trace().defects}
    assert not taken & ~free
    assert not defects & {Defect.AVERAGE_SIZE, Defect.UNAVAILABLE_CPUS}


# Agreement with the plain walk.


@given(questions(ANY_NESTING, st.sampled_from([PACKED, UNCORE, SPREAD])), ANY_FIDELITY)
def test_packed_spread_and_uncore_follow_the_rules_on_every_machine(question: Question, fidelity: Fidelity) -> None:
    topology, free, count, arrangement = question
    expected = Plain(topology, fidelity).packed(set(cpus_of(free)), count, arrangement)
    assert take_packed(Machine(topology, fidelity), free, count, arrangement) == mask_of(expected)


@given(questions(node_topologies() | topologies(), distributed_arrangements(1, 2)))
def test_distributed_is_the_first_of_the_best_balanced_splits_over_the_fewest_nodes(question: Question) -> None:
    topology, free, count, arrangement = question
    expected = Plain(topology, Fidelity.PINFOLD).distributed(set(cpus_of(free)), count, arrangement)
    assert expected is not None
    assert take_distributed(Machine(topology), free, count, arrangement) == mask_of(expected)


@given(questions(node_topologies(), distributed_arrangements(1, 2, by_socket=False)))
def test_fidelity_kubelet_finds_what_the_reference_left_in_its_arrays_or_says_that_it_never_returns(
    question: Question,
) -> None:
    topology, free, count, arrangement = question
    recorder = Recorder()
    answer: int | str
    expected: int | str
    try:
        answer = take_distributed(Machine(topology, Fidelity.KUBELET), free, count, arrangement, recorder)
    except AccountingError as error:
        answer = str(error)
    try:
        cpus = Plain(topology, Fidelity.KUBELET).distributed(set(cpus_of(free)), count, arrangement)
    except Endless:
        cpus = None
    if cpus is None:
        assert Defect.ENDLESS_DISTRIBUTION in {defect for defect, _ in recorder.trace().defects}
        return
    expected = mask_of(cpus) if len(cpus) == count else str(AccountingError(count - len(cpus)))
    assert answer == expected


@given(questions(node_topologies(), distributed_arrangements(1, 2, by_socket=False)))
def test_an_even_split_cannot_be_balanced_better_by_as_many_other_nodes(question: Question) -> None:
    topology, free, count, arrangement = question
    group = arrangement.group
    nodes = [node.mask for node in topology.numa_nodes]
    taken = take_distributed(Machine(topology), free, count, arrangement)
    given_by = [(node & taken).bit_count() for node in nodes if node & free]
    have = [(node & free).bit_count() for node in nodes if node & free]
    parts = Counter(part for part in given_by if part)
    if len(parts) != 1 or count % group or next(iter(parts)) % group:
        return  # with a rest, or packed
    share, used = next(iter(parts.items()))
    score = deviation([count - part for count, part in zip(have, given_by, strict=True)])
    for chosen in combinations(range(len(have)), used):
        if all(have[i] >= share for i in chosen):
            after = [count - share * (i in chosen) for i, count in enumerate(have)]
            assert deviation(after) >= score


@given(st.lists(st.integers(0, 40), min_size=1, max_size=9))
def test_deviation_is_the_populations_with_mean_and_result_rounded_to_a_thousandth(counts: list[int]) -> None:
    mean = sum(counts) / len(counts)
    exact = math.sqrt(sum((count - mean) ** 2 for count in counts) / len(counts))
    assert deviation(counts) == plain_deviation(counts)
    assert abs(deviation(counts) - exact) < 0.0012


def nodes_with(free_cpus: Sequence[int], cores: int = 8) -> tuple[Topology, int]:
    """Return a machine without SMT whose NUMA nodes have so many free CPUs, and the mask of these."""
    topology = preset(f"sockets:1,numa:{len(free_cpus)},cores:{cores}")
    return topology, sum((1 << count) - 1 << cores * node for node, count in enumerate(free_cpus))


@pytest.mark.parametrize("count", [13, 14, 17, 20])
def test_few_of_many_nodes_are_the_best_balanced_ones(count: int) -> None:
    topology, free = nodes_with([8, 3, 7, 5, 6] * 4)
    arrangement = Arrangement(group=1)
    expected = Plain(topology, Fidelity.PINFOLD).distributed(set(cpus_of(free)), count, arrangement)
    assert expected is not None
    assert take_distributed(Machine(topology), free, count, arrangement) == mask_of(expected)


def test_where_too_many_combinations_would_have_to_be_tried_the_fullest_nodes_share_the_cpus() -> None:
    topology, free = nodes_with([3] * 10 + [6] * 10)
    taken = take_distributed(Machine(topology), free, 55, Arrangement(group=1))
    assert [(node.mask & taken).bit_count() for node in topology.numa_nodes] == [0] * 10 + [6] * 5 + [5] * 5


@pytest.mark.parametrize("count", [1, 9, 14, 15, 19, 32, 34, 36])
def test_more_nodes_than_can_all_be_tried_share_the_cpus_out_too(count: int) -> None:
    free = sum(0b11 << 4 * node for node in range(18))
    check_sound(Question(preset("sockets:1,numa:18,cores:4"), free, count, Arrangement(group=1)))


@given(st.sampled_from([17, 18, 24, 40]), st.data())
@settings(max_examples=25, deadline=None)
def test_on_machines_of_more_than_sixteen_nodes_the_cpus_asked_for_are_taken_too(
    nodes: int, data: st.DataObject
) -> None:
    topology = preset(f"sockets:1,numa:{nodes},cores:2")
    free = data.draw(cpus_within(topology.online.mask)) or topology.online.mask
    count = data.draw(st.integers(1, free.bit_count()))
    check_sound(Question(topology, free, count, data.draw(distributed_arrangements(1, 2))))


# The two ways to pick cores.


@given(
    regular_topologies() | irregular_topologies(equal_cores=True) | offline_topologies(),
    ANY_FIDELITY,
    st.data(),
)
def test_bit_arithmetic_picks_the_same_cores_as_a_list_of_them(
    topology: Topology, fidelity: Fidelity, data: st.DataObject
) -> None:
    machine = Machine(topology, fidelity)
    stride = stride_of(topology.cores)
    if stride is None or not isinstance(machine.pick, StridedCores):
        assert isinstance(machine.pick, ListedCores)
        return
    listed = ListedCores(machine)
    free = data.draw(cpus_within(topology.online.mask))
    for place in (*machine.inner.places, *machine.uncore_caches.places):
        for need in range(1, place.size + 2):
            assert machine.pick.whole(place, free, need) == listed.whole(place, free, need)
            assert machine.pick.single(place, free, need) == listed.single(place, free, need)
            assert machine.pick.lowest(place, free, need) == listed.lowest(place, free, need)


@given(st.sampled_from([1, 2, 3, 4, 8]), st.integers(1, 6))
def test_machines_of_a_shape_have_a_stride_with_any_number_of_threads(threads: int, cores: int) -> None:
    topology = preset(f"sockets:1,cores:{cores},threads:{threads}")
    assert stride_of(topology.cores) == (0 if threads == 1 else cores)
    assert isinstance(Machine(topology).pick, StridedCores)


# Every free set of small machines.

SMALL = [
    "sockets:1,cores:5,threads:2",
    "sockets:2,cores:3,threads:2",
    "sockets:2,cores:5,threads:1",
    "sockets:1,numa:2,l3:2,cores:3,threads:1",
    "sockets:1,numa:1,l3:3,cores:2,threads:2",
    "sockets:2,numa:1,l3:2,cores:1,threads:2",
    "sockets:1,l3:1,numa:3,cores:2,threads:2",
    "sockets:2,numa:2,l3:1,cores:1,threads:2",
    "sockets:1,cores:3,threads:4",
]
SMALL_AND_ODD: Mapping[str, Sequence[Sequence[int]]] = {
    "hybrid": [(0, 0, 0, 0, 0), (1, 0, 0, 0, 0), (2, 2, 0, 0, 0), (3, 2, 0, 0, 0), *[(c, c, 0, 0, 0) for c in (4, 5)]],
    "offline threads": [(0, 0, 0, 0, 0), (1, 1, 0, 0, 0), (3, 1, 0, 0, 0), (4, 4, 1, 1, 1), (5, 5, 1, 1, 1)],
    "more sockets than NUMA nodes": [(c, c // 2 * 2, c // 2, c // 4, c // 2) for c in range(8)],
    "sockets of unequal size": [(c, c // 2 * 2, c // 6, c // 6, c // 6) for c in range(8)],
    "scattered numbers": [
        (cpu, core, core > 4, core > 4, core > 4)
        for core, cpus in ((0, (0, 9)), (2, (2, 3)), (5, (5, 30)), (7, (7, 11)))
        for cpu in cpus
    ],
}


def small(*shapes: str) -> list[Topology]:
    odd = [Topology.from_rows([list(map(int, row)) for row in rows]) for rows in SMALL_AND_ODD.values()]
    return [preset(shape) for shape in shapes or SMALL] + ([] if shapes else odd)


def free_sets(topology: Topology) -> Iterator[int]:
    part = topology.online.mask
    while part:
        yield part
        part = part - 1 & topology.online.mask


def unions(groups: Sequence[Group]) -> Iterator[int]:
    """Yield all CPUs of every choice of groups."""
    for size in range(1, len(groups) + 1):
        for chosen in combinations(groups, size):
            yield sum(group.mask for group in chosen)


def touched(groups: Iterable[Group], cpus: int) -> int:
    return sum(1 for group in groups if group.mask & cpus)


def ids_of(machines: Iterable[Topology]) -> list[str]:
    names = [*SMALL, *SMALL_AND_ODD]
    return [name for name, _ in zip(names, machines, strict=True)]


@pytest.mark.parametrize("arrangement", [PACKED, UNCORE, SPREAD], ids=["packed", "uncore", "spread"])
@pytest.mark.parametrize("topology", small(), ids=ids_of(small()))
def test_every_number_of_cpus_is_taken_from_every_free_set(topology: Topology, arrangement: Arrangement) -> None:
    machine = Machine(topology)
    for free in list(free_sets(topology))[:: 3 if len(topology.cpus) > 10 else 1]:
        for count in range(1, free.bit_count() + 1):
            taken = take_packed(machine, free, count, arrangement)
            assert not taken & ~free
            assert taken.bit_count() == count


@pytest.mark.parametrize("arrangement", [PACKED, UNCORE], ids=["packed", "uncore"])
@pytest.mark.parametrize("shape", SMALL)
def test_where_cores_are_wholly_free_or_taken_as_few_as_possible_are_used(shape: str, arrangement: Arrangement) -> None:
    topology = preset(shape)
    machine = Machine(topology)
    for free in unions(topology.cores):
        for count in range(1, free.bit_count() + 1):
            taken = take_packed(machine, free, count, arrangement)
            assert touched(topology.cores, taken) == -(-count // topology.threads_per_core)


@pytest.mark.parametrize("arrangement", [PACKED, UNCORE], ids=["packed", "uncore"])
@pytest.mark.parametrize("shape", SMALL)
def test_where_numa_nodes_are_wholly_free_or_taken_as_few_as_possible_are_used(
    shape: str, arrangement: Arrangement
) -> None:
    topology = preset(shape)
    machine = Machine(topology)
    size = topology.numa_nodes[0].mask.bit_count()
    for free in unions(topology.numa_nodes):
        for count in range(1, free.bit_count() + 1):
            taken = take_packed(machine, free, count, arrangement)
            assert touched(topology.numa_nodes, taken) == -(-count // size)


@pytest.mark.parametrize("arrangement", [PACKED, UNCORE, SPREAD], ids=["packed", "uncore", "spread"])
@pytest.mark.parametrize("shape", SMALL)
def test_where_sockets_are_wholly_free_or_taken_as_few_as_possible_are_used(
    shape: str, arrangement: Arrangement
) -> None:
    topology = preset(shape)
    machine = Machine(topology)
    size = topology.sockets[0].mask.bit_count()
    for free in unions(topology.sockets):
        for count in range(1, free.bit_count() + 1):
            taken = take_packed(machine, free, count, arrangement)
            assert touched(topology.sockets, taken) == -(-count // size)


@pytest.mark.parametrize("kind", ["sockets", "numa_nodes"])
@pytest.mark.parametrize("arrangement", [PACKED, UNCORE, SPREAD], ids=["packed", "uncore", "spread"])
@pytest.mark.parametrize("topology", small(), ids=ids_of(small()))
def test_a_request_of_the_size_of_a_wholly_free_socket_or_numa_node_gets_one_whole(
    topology: Topology, arrangement: Arrangement, kind: str
) -> None:
    machine = Machine(topology)
    groups: Sequence[Group] = getattr(topology, kind)
    wholes = {group.mask for level in (topology.sockets, topology.numa_nodes) for group in level}
    sizes = {mask.bit_count() for mask in wholes}
    smallest = min(sizes)
    for free in list(free_sets(topology))[:: 3 if len(topology.cpus) > 10 else 1]:
        for group in groups:
            if not group.mask & ~free and group.mask.bit_count() == smallest:
                assert take_packed(machine, free, smallest, arrangement) in wholes


NESTED_CACHES = [
    "sockets:1,numa:1,l3:3,cores:2,threads:2",
    "sockets:1,numa:2,l3:2,cores:3,threads:1",
    "sockets:2,numa:1,l3:2,cores:1,threads:2",
    "sockets:1,numa:1,l3:2,cores:3,threads:2",
]


@pytest.mark.parametrize("shape", NESTED_CACHES)
def test_what_fits_a_wholly_free_uncore_cache_lies_within_one_cache(shape: str) -> None:
    topology = preset(shape)
    machine = Machine(topology)
    size = topology.uncore_caches[0].mask.bit_count()
    for free in free_sets(topology):
        if any(not cache.mask & ~free for cache in topology.uncore_caches):
            for count in range(1, size + 1):
                taken = take_packed(machine, free, count, UNCORE)
                assert touched(topology.uncore_caches, taken) == 1


@pytest.mark.parametrize("shape", NESTED_CACHES)
def test_where_uncore_caches_are_wholly_free_or_taken_as_few_as_possible_are_used(shape: str) -> None:
    topology = preset(shape)
    machine = Machine(topology)
    size = topology.uncore_caches[0].mask.bit_count()
    for free in unions(topology.uncore_caches):
        for count in range(1, free.bit_count() + 1):
            taken = take_packed(machine, free, count, UNCORE)
            assert touched(topology.uncore_caches, taken) == -(-count // size)


def test_within_one_socket_a_whole_core_is_split_only_when_no_split_core_is_left() -> None:
    topology = preset("sockets:1,cores:5,threads:2")
    machine = Machine(topology)
    for free in free_sets(topology):
        for count in range(1, free.bit_count() + 1):
            taken = take_packed(machine, free, count)
            split = [
                core for core in topology.cores if not core.mask & ~free and 0 < (core.mask & taken).bit_count() < 2
            ]
            unused = [
                core for core in topology.cores if core.mask & free & ~taken and (core.mask & free).bit_count() == 1
            ]
            assert len(split) <= 1
            assert not (split and unused)


@pytest.mark.parametrize("shape", ["sockets:1,cores:5,threads:2", "sockets:1,cores:3,threads:4"])
def test_spread_uses_as_many_wholly_free_cores_of_a_socket_as_there_are_cpus_asked_for(shape: str) -> None:
    topology = preset(shape)
    machine = Machine(topology)
    for free in unions(topology.cores):
        for count in range(1, free.bit_count() + 1):
            taken = take_packed(machine, free, count, SPREAD)
            assert touched(topology.cores, taken) == min(count, touched(topology.cores, free))


@pytest.mark.parametrize("shape", ["sockets:2,numa:2,cores:2,threads:1", "sockets:1,numa:3,cores:2,threads:2"])
def test_on_an_empty_machine_an_even_split_takes_the_same_from_every_node_it_uses(shape: str) -> None:
    topology = preset(shape)
    machine = Machine(topology)
    size = topology.numa_nodes[0].mask.bit_count()
    for count in range(1, len(topology.cpus) + 1):
        taken = take_distributed(machine, topology.online.mask, count, Arrangement(group=1))
        parts = [part for node in topology.numa_nodes if (part := (node.mask & taken).bit_count())]
        assert len(parts) == -(-count // size)
        assert max(parts) - min(parts) <= 1
