"""MergeReport: how a merged hint came about: which resource is at fault, what each gave, what was passed over.

Made after the decision, and only for an explanation; it decides nothing.
"""

from __future__ import annotations

from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.topologymanager.cpu import CPUHints
from pinfold.core.topologymanager.hint import Hint
from pinfold.core.topologymanager.masks import masks_of_size
from pinfold.core.topologymanager.merge import common_masks, count_goal, gather, preferred_masks, ranking
from pinfold.core.values import value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pinfold.core.topologymanager.closeness import Closeness
    from pinfold.core.topologymanager.hint import Hints
    from pinfold.core.topologymanager.merge import GatheredHints, Providers

    _Named = Sequence[tuple[str, Hints | None]]

SHOWN: Final = 5
"""The most hints that are named where there may be hundreds."""


class MergeReason(StrEnum):
    """Why the merged hint is preferred, or not."""

    NOT_ASKED = "the policy looks at no hints"
    NO_PREFERENCE = "no resource has a preference"
    AGREED = "every resource prefers these NUMA nodes"
    UNSATISFIABLE = "a resource is not available"
    NONE_PREFERRED = "a resource has no NUMA nodes that it prefers"
    DISAGREED = "the resources prefer different NUMA nodes"


class Contribution(NamedTuple):
    """The hints of one resource."""

    resource: str
    hint: Hint | None
    """Its hint that led to the result; None if no choice of hints gives the result."""
    preferred: tuple[Hint, ...]
    """The first few hints that it prefers."""


@value()
class MergeReport:
    """The merged hint and why it is the result."""

    admit: bool
    hint: Hint
    reason: MergeReason
    at_fault: tuple[str, ...] = ()
    """The resources because of which nothing is preferred."""
    contributions: tuple[Contribution, ...] = ()
    passed_over: tuple[Hint, ...] = ()
    """The next best results, the best first."""


class MergeQuestion(NamedTuple):
    """The hints, and the rules for merging them."""

    everything: int
    closeness: Closeness | None
    single: bool
    """Whether only single nodes count."""


def report(providers: Providers, question: MergeQuestion, hint: Hint, *, admit: bool) -> MergeReport:
    """Return the report on *hint*."""
    named = [(name, hints) for provider in providers if provider for name, hints in provider.items()]
    reason, at_fault = _reason(named, hint, single=question.single)
    chosen = _chosen([hints for _, hints in named], question, hint)
    contributions = [
        Contribution(name, choice, tuple(islice(_preferred(hints, single=question.single), SHOWN)))
        for (name, hints), choice in zip(named, chosen, strict=True)
    ]
    results = _preferred_results if hint.preferred else _other_results
    ranked = results(gather([{name: hints} for name, hints in named]), question)
    others = (Hint(mask, hint.preferred) for mask in ranked if mask != hint.affinity)
    return MergeReport(admit, hint, reason, at_fault, tuple(contributions), tuple(islice(others, SHOWN)))


def _reason(named: _Named, hint: Hint, *, single: bool) -> tuple[MergeReason, tuple[str, ...]]:
    """Return the reason and the resources at fault."""
    asked = [(name, hints) for name, hints in named if hints is not None]
    if hint.preferred:
        return (MergeReason.AGREED if asked else MergeReason.NO_PREFERENCE), ()
    if missing := [name for name, hints in asked if not hints]:
        return MergeReason.UNSATISFIABLE, tuple(missing)
    if lacking := [name for name, hints in asked if next(_preferred(hints, single=single), None) is None]:
        return MergeReason.NONE_PREFERRED, tuple(lacking)
    return MergeReason.DISAGREED, tuple(name for name, hints in asked if not hints.any_preferred)


def _preferred(hints: Hints | None, *, single: bool) -> Iterator[Hint]:
    """Yield the hints that a resource prefers; only one of CPUHints that cannot be listed."""
    every: Iterable[Hint] = hints or ()
    if isinstance(hints, CPUHints) and not hints.listable:
        mask = hints.singles & -hints.singles if single else hints.lowest_preferred()
        every = [Hint(mask, preferred=True)] if mask else ()
    for hint in every:
        if hint.preferred and (not single or hint.affinity is None or hint.affinity.bit_count() == 1):
            yield hint


def _chosen(resources: Sequence[Hints | None], question: MergeQuestion, hint: Hint) -> Sequence[Hint | None]:
    """Return a hint of each resource that together give *hint*; all None if no choice gives it."""
    nothing = [None] * len(resources)
    if hint.preferred:
        return [_agreeing(hints, question.everything, hint) for hints in resources]
    if question.single or hint.affinity is None:
        return nothing
    return _trail(resources, question.everything, hint.affinity) or nothing


def _agreeing(hints: Hints | None, everything: int, hint: Hint) -> Hint | None:
    if hints is None or (hint.affinity is None and hints.any_preferred):
        return Hint(None, preferred=True)
    target = everything if hint.affinity is None else hint.affinity
    if hints.prefers(target):
        return Hint(target, preferred=True)
    same = (own for own in hints if own.preferred and own.affinity is not None and own.affinity & everything == target)
    return Hint(None, preferred=True) if hints.any_preferred else next(same, None)


def _trail(resources: Sequence[Hints | None], everything: int, target: int) -> list[Hint] | None:
    """Return one hint of each resource with *target* as intersection; None if there is no such choice."""
    reached: dict[int, dict[int, Hint]] = {everything: {}}
    # CPUHints come last: they are searched within what the others leave.
    for place in sorted(range(len(resources)), key=lambda place: isinstance(resources[place], CPUHints)):
        ways: dict[int, dict[int, Hint]] = {}
        for have, chosen in reached.items():
            for cut, hint in _ways_on(resources[place], have, target):
                if have & cut not in ways:
                    ways[have & cut] = {**chosen, place: hint}
        reached = ways
    chosen = reached.get(target, {})
    return [chosen[place] for place in range(len(resources))] if target in reached else None


def _ways_on(hints: Hints | None, have: int, target: int) -> Iterator[tuple[int, Hint]]:
    """Yield intersections of *have* with hints of one resource that still hold *target*."""
    if not hints:
        yield have, Hint(None, preferred=hints is None)
    elif isinstance(hints, CPUHints):
        if hints.leaves(target, have & hints.everything):
            mask = target if hints.holds(target) else target | hints.everything & ~have
            yield mask, Hint(mask, hints.prefers(mask))
    else:
        for hint in hints:
            if hint.affinity is None or not target & ~hint.affinity:
                yield (have if hint.affinity is None else hint.affinity), hint


def _preferred_results(resources: GatheredHints, question: MergeQuestion) -> Iterable[int]:
    """Return the masks that all prefer, the best first; none if CPUHints decide alone and cannot be listed."""
    rank, cpus, everything = ranking(question.closeness), resources.cpus, question.everything
    picky = [hints for hints in resources.lists if not hints.any_preferred]
    if cpus is not None and not picky:
        masks = {mask for mask, preferred in cpus if preferred and mask is not None} if cpus.listable else set()
    elif cpus is not None:
        masks = set(filter(cpus.prefers, preferred_masks(resources.lists, everything)))
    else:
        masks = {mask & everything for mask in preferred_masks(resources.lists, everything)}
    wanted = {1} if question.single else range(1, everything.bit_count() + 1)
    return sorted((mask for mask in masks if mask.bit_count() in wanted), key=rank)


def _other_results(resources: GatheredHints, question: MergeQuestion) -> Iterator[int]:
    """Yield the masks that the resources have in common, the best first."""
    if question.single:
        return
    rank, cpus, goal = ranking(question.closeness), resources.cpus, count_goal(resources)
    masks = common_masks(resources.lists, question.everything)
    for count in (*range(goal, 0, -1), *range(goal + 1, question.everything.bit_count() + 1)):
        if cpus is None:
            found = {mask for mask in masks if mask.bit_count() == count}
        else:
            areas = {mask & cpus.everything for mask in masks}
            found = {mask for area in areas for mask in _left_of(area, count, cpus)}
        yield from sorted(found, key=rank)


def _left_of(area: int, count: int, cpus: CPUHints) -> Iterable[int]:
    """Return the masks of *count* nodes that hints of *cpus* have in common with *area*; one if they are too many."""
    lowest = cpus.lowest(count, area)
    masks = masks_of_size(area, count) if lowest else ()
    return (lowest,) if masks is None else (mask for mask in masks if cpus.leaves(mask, area))
