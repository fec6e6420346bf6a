"""Laws of hints and of merging them: the same answers as a plain walk through everything, on small machines."""

from __future__ import annotations

from itertools import combinations, product
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from pinfold.core.machine.cpuset import cpus_of
from pinfold.core.topologymanager.closeness import Closeness
from pinfold.core.topologymanager.cpu import CPUHints, SocketRule, with_required
from pinfold.core.topologymanager.hint import Hint, HintList
from pinfold.core.topologymanager.manager import Merged, TopologyManager
from pinfold.core.topologymanager.masks import narrow_then_low
from pinfold.core.topologymanager.meet import _meet_by_counting
from pinfold.core.topologymanager.merge import gather, merge_hints
from pinfold.core.topologymanager.options import TopologyPolicy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pinfold.core.topologymanager.hint import Hints
    from pinfold.core.topologymanager.merge import Providers

    Distances = Mapping[int, Mapping[int, int]]

POLICIES = ["best-effort", "restricted", "single-numa-node"]


def masks_over(nodes: Sequence[int]) -> list[int]:
    """Return all masks over the nodes, by size and then in the order of node ids."""
    sets = (chosen for count in range(1, len(nodes) + 1) for chosen in combinations(nodes, count))
    return [sum(1 << node for node in chosen) for chosen in sets]


# What the kubelet does, as plainly as can be: every way to choose one hint of each resource, one after the other.


def walk_all(resources: Sequence[Sequence[Hint]], everything: int, distances: Distances | None) -> Hint:
    goal = max((min(counts) for hints in resources if (counts := _counts(hints))), default=0)
    best: Hint | None = None
    for permutation in product(*resources):
        masks = [hint.affinity for hint in permutation if hint.affinity is not None]
        preferred = all(hint.preferred for hint in permutation) and len(set(masks)) <= 1
        common = everything
        for mask in masks:
            common &= mask
        if common and (best is None or is_better(Hint(common, preferred), best, goal, distances)):
            best = Hint(common, preferred)
    return best or Hint(everything, preferred=False)


def is_better(candidate: Hint, current: Hint, goal: int, distances: Distances | None) -> bool:
    assert candidate.affinity is not None
    assert current.affinity is not None
    if candidate.preferred != current.preferred:
        return candidate.preferred
    new, old = candidate.affinity.bit_count(), current.affinity.bit_count()
    if new == old:
        return _average(candidate.affinity, distances) < _average(current.affinity, distances)
    if candidate.preferred or old > goal:
        return new < old
    return old < new <= goal


def walk_single(resources: Sequence[Sequence[Hint]], everything: int) -> Hint:
    kept = [
        [hint for hint in hints if hint.preferred and (hint.affinity is None or hint.affinity.bit_count() == 1)]
        for hints in resources
    ]
    hint = walk_all(kept, everything, None)
    return Hint(None, hint.preferred) if hint.affinity == everything else hint


def plain_merge(policy: str, providers: Providers, everything: int, distances: Distances | None) -> Merged:
    resources = [
        [Hint(None, preferred=True)] if hints is None else list(hints) or [Hint(None, preferred=False)]
        for provider in providers
        for hints in (provider or {"nothing": None}).values()
    ]
    if policy == TopologyPolicy.SINGLE_NUMA_NODE:
        hint = walk_single(resources, everything)
    else:
        hint = walk_all(resources, everything, distances)
    return Merged(hint.preferred or policy == TopologyPolicy.BEST_EFFORT, hint)


def _counts(hints: Iterable[Hint]) -> list[int]:
    return [hint.affinity.bit_count() for hint in hints if hint.affinity is not None]


def _average(mask: int, distances: Distances | None) -> tuple[float, int]:
    nodes = cpus_of(mask)
    every = [0] if distances is None else [distances[one][other] for one in nodes for other in nodes]
    return sum(every) / len(every), mask


# Machines, hints and providers.


@st.composite
def node_ids(draw: st.DrawFn, most: int = 4) -> tuple[int, ...]:
    count = draw(st.integers(1, most))
    return tuple(sorted(draw(st.permutations(range(10)))[:count]))


@st.composite
def distances_between(draw: st.DrawFn, nodes: Sequence[int]) -> Distances:
    return {one: {other: draw(st.integers(10, 13)) for other in nodes} for one in nodes}


@st.composite
def hint_lists(draw: st.DrawFn, nodes: Sequence[int], preferred: st.SearchStrategy[bool]) -> HintList | None:
    # Node 10 is on no machine: a provider may speak of nodes that the Topology Manager does not know.
    masks = [*masks_over(nodes), *masks_over([nodes[-1], 10])]
    # One in nine is null, one is empty: what is special must not be all there is.
    count = draw(st.sampled_from([1, 1, 2, 2, 3, 3, 4, 0, None]))
    if count is None:
        return None
    affinity = st.sampled_from([*masks, None, 0])
    return HintList([Hint(draw(affinity), draw(preferred)) for _ in range(count)])


@st.composite
def provider_lists(draw: st.DrawFn, nodes: Sequence[int], most: int = 3) -> list[Mapping[str, Hints | None] | None]:
    # If nothing is preferred, all depends on what the masks have in common.
    preferred = draw(st.sampled_from([st.booleans(), st.just(value=False)]))
    kinds = st.sampled_from([("a",), ("a",), ("a",), ("a", "b"), ("a", "b"), (), None])
    names = [draw(kinds) for _ in range(draw(st.sampled_from([*range(most), *[most] * most])))]
    return [None if some is None else {name: draw(hint_lists(nodes, preferred)) for name in some} for some in names]


@st.composite
def cpu_families(draw: st.DrawFn, nodes: tuple[int, ...]) -> CPUHints:
    free = tuple(draw(st.integers(0, 4)) for _ in nodes)
    required = draw(st.sets(st.sampled_from(nodes), max_size=2)) if draw(st.booleans()) else set()
    rule = None
    if draw(st.booleans()):
        sockets = tuple(draw(st.sampled_from([1, 2, 4, 3])) for _ in nodes)
        rule = SocketRule(sockets, draw(st.integers(1, 3)))
    count = draw(st.integers(1, len(nodes)))
    need = draw(st.integers(1, max(1, sum(free)) + 1))
    return CPUHints(nodes, *with_required(free, need, [node in required for node in nodes]), count, rule)


# The laws.


@given(st.data())
def test_merging_lists_gives_what_a_walk_through_all_choices_gives(data: st.DataObject) -> None:
    nodes = data.draw(node_ids())
    everything = sum(1 << node for node in nodes)
    providers = data.draw(provider_lists(nodes))
    policy = data.draw(st.sampled_from(POLICIES))
    closest = data.draw(st.booleans())
    distances = data.draw(distances_between(nodes))
    options = {"prefer-closest-numa-nodes": "true"} if closest else {}

    manager = TopologyManager.create(policy, options, nodes, distances)

    assert manager.merge(providers) == plain_merge(policy, providers, everything, distances if closest else None)


@given(st.data())
def test_described_cpu_hints_merge_as_the_same_hints_listed(data: st.DataObject) -> None:
    nodes = data.draw(node_ids(most=6))
    cpus = data.draw(cpu_families(nodes))
    others = data.draw(provider_lists(nodes, most=2))
    policy = data.draw(st.sampled_from(POLICIES))
    options = {"prefer-closest-numa-nodes": "true"} if data.draw(st.booleans()) else {}
    memory_only = data.draw(st.sets(st.integers(10, 11)))
    every = [*nodes, *sorted(memory_only)]

    manager = TopologyManager.create(policy, options, every, data.draw(distances_between(every)))

    assert manager.merge([{"cpu": cpus}, *others]) == manager.merge([{"cpu": HintList(cpus)}, *others])


@given(st.data())
def test_two_resources_with_described_hints_merge_as_two_lists(data: st.DataObject) -> None:
    nodes = data.draw(node_ids(most=4))
    one, other = data.draw(cpu_families(nodes)), data.draw(cpu_families(nodes))
    everything = sum(1 << node for node in nodes)

    merged = merge_hints(gather([{"one": one, "other": other}]), everything)

    assert merged == merge_hints(gather([{"one": HintList(one)}, {"other": HintList(other)}]), everything)


@given(st.data())
def test_cpu_hints_are_all_masks_that_the_rule_allows_in_order(data: st.DataObject) -> None:
    nodes = data.draw(node_ids(most=5))
    cpus = data.draw(cpu_families(nodes))
    have = dict(zip(nodes, cpus.free, strict=True))

    def is_preferred(mask: int) -> bool:
        if mask.bit_count() == cpus.preferred_count or cpus.socket_rule is None:
            return mask.bit_count() == cpus.preferred_count
        touched = 0
        for node, sockets in zip(nodes, cpus.socket_rule.sockets, strict=True):
            touched |= sockets if mask >> node & 1 else 0
        return touched.bit_count() == cpus.socket_rule.spans

    allowed = [mask for mask in masks_over(nodes) if sum(have[node] for node in cpus_of(mask)) >= cpus.need]

    assert list(cpus) == [Hint(mask, is_preferred(mask)) for mask in allowed]
    assert bool(cpus) == bool(allowed)


@given(st.data())
def test_with_required_nodes_just_the_masks_that_hold_them_have_what_is_needed(data: st.DataObject) -> None:
    nodes = data.draw(node_ids(most=5))
    free = [data.draw(st.integers(0, 4)) for _ in nodes]
    required = [data.draw(st.booleans()) for _ in nodes]
    need = data.draw(st.integers(1, sum(free) + 1))
    must = sum(1 << node for node, is_required in zip(nodes, required, strict=True) if is_required)

    cpus = CPUHints(nodes, *with_required(free, need, required), preferred_count=1)

    for mask in masks_over(nodes):
        enough = sum(count for node, count in zip(nodes, free, strict=True) if mask >> node & 1) >= need
        assert cpus.holds(mask) == (enough and not must & ~mask)


@given(st.data())
def test_questions_to_cpu_hints_are_answered_as_from_their_list(data: st.DataObject) -> None:
    nodes = data.draw(node_ids(most=5))
    cpus = data.draw(cpu_families(nodes))
    listed = HintList(cpus)
    preferred = [mask for mask, is_preferred in cpus if is_preferred and mask is not None]

    assert bool(cpus) == bool(listed)
    assert cpus.narrowest == listed.narrowest
    assert cpus.singles == listed.singles
    assert {mask for mask in masks_over(nodes) if cpus.holds(mask)} == listed.masks
    assert {mask for mask in masks_over(nodes) if cpus.prefers(mask)} == listed.preferred
    assert cpus.lowest_preferred() == min(preferred, key=narrow_then_low, default=0)


@given(st.data())
def test_what_cpu_hints_have_in_common_with_some_nodes_is_found_without_the_list(data: st.DataObject) -> None:
    nodes = data.draw(node_ids(most=5))
    cpus = data.draw(cpu_families(nodes))
    within = data.draw(st.sampled_from(masks_over(nodes)))
    common = {hint.affinity & within for hint in cpus if hint.affinity is not None}

    assert {mask for mask in (0, *masks_over(nodes)) if cpus.leaves(mask, within)} == common
    for count in range(1, len(nodes) + 1):
        lowest = min((mask for mask in common if mask.bit_count() == count), default=0)
        assert cpus.lowest(count, within) == lowest


@given(st.data())
@settings(max_examples=20, deadline=None)
def test_socket_rule_beyond_sixteen_nodes_finds_the_narrowest_where_sockets_are_equal(data: st.DataObject) -> None:
    nodes = tuple(range(18))
    free = tuple(data.draw(st.integers(0, 3)) for _ in nodes)
    count = data.draw(st.integers(1, 4))
    spans = -(-count // 3)
    cpus = CPUHints(nodes, free, 3 * count, count, SocketRule(tuple(1 << node // 3 for node in nodes), spans))
    masks = (sum(chosen) for size in range(1, 3 * spans + 1) for chosen in combinations([1 << n for n in nodes], size))

    assert not cpus.listable
    assert cpus.lowest_preferred() == min(filter(cpus.prefers, masks), key=narrow_then_low, default=0)


@given(st.data())
def test_counting_pairs_of_masks_meets_them_all(data: st.DataObject) -> None:
    nodes = data.draw(node_ids(most=5))
    masks = st.sets(st.sampled_from([0, *masks_over(nodes)]), max_size=12)
    some, others = data.draw(masks), data.draw(masks)

    met = _meet_by_counting(some, others, sum(1 << node for node in nodes))

    assert met == {mask & other for mask in some for other in others}


@given(st.data())
def test_closest_is_the_least_average_distance_then_the_lowest(data: st.DataObject) -> None:
    nodes = data.draw(node_ids(most=5))
    distances = data.draw(distances_between(nodes))
    count = data.draw(st.integers(1, len(nodes)))
    allowed = data.draw(st.sets(st.sampled_from(masks_over(nodes)), min_size=1))
    fitting = [mask for mask in allowed if mask.bit_count() == count]

    picked = Closeness(distances).pick(
        sum(1 << node for node in nodes), count, allowed.__contains__, otherwise=min(fitting, default=0)
    )

    assert picked == min(fitting, key=lambda mask: _average(mask, distances), default=0)


@given(st.data())
def test_reported_contributions_lead_to_the_merged_hint(data: st.DataObject) -> None:
    nodes = data.draw(node_ids(most=5))
    cpus = data.draw(cpu_families(nodes))
    providers = [{"cpu": cpus}, *data.draw(provider_lists(nodes, most=2))]
    policy = data.draw(st.sampled_from(POLICIES))
    manager = TopologyManager.create(policy, {}, nodes, {})

    report = manager.explain(providers)
    hints = [contribution.hint for contribution in report.contributions]

    assert (report.admit, report.hint) == manager.merge(providers)
    assert report.hint not in report.passed_over
    if None in hints:
        assert not report.hint.preferred
        assert set(hints) == {None}
    else:
        common = manager.everything
        for hint in hints:
            assert hint is not None
            common &= manager.everything if hint.affinity is None else hint.affinity
        assert common == (manager.everything if report.hint.affinity is None else report.hint.affinity)
        if report.hint.preferred:
            assert all(hint is not None and hint.preferred for hint in hints)
