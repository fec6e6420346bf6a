"""prefer-align-cpus-by-uncorecache: whole uncore caches first, then one cache that can hold all that is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.allocators.order import note_core_size, note_repeats

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pinfold.core.allocators.order import Area
    from pinfold.core.allocators.packed import Taking


def take_uncore(taking: Taking) -> None:
    """Take whole caches while at least an average cache's worth is needed; then the rest within one cache."""
    machine, free = taking.machine, taking.free
    nodes = machine.sorted_numa_nodes(free)
    if taking.recorder is not None:
        note_repeats(taking.recorder, machine.once(_sorted_caches(taking, nodes, free, 1)))
    if taking.need >= machine.cpus_per_uncore:
        useful = min(taking.need, machine.smallest_cache)
        caches = machine.once(_sorted_caches(taking, nodes, free, useful))
        taking.take_whole(caches)
        if taking.need < 1 or not caches:
            return
    # The kubelet makes the list once; caches taken whole stay in it, with no CPUs left.
    _take_part(taking, _sorted_caches(taking, nodes, free, taking.need))


def _take_part(taking: Taking, caches: Iterable[Area]) -> None:
    """Take all that is still needed from the first of *caches* that can give it."""
    if taking.recorder is not None:
        note_core_size(taking.recorder, taking.machine)
    free = taking.free
    for cache in caches:
        cpus = cache.mask & free
        if not cache.nested or cpus.bit_count() >= taking.need:
            cpus = _partial(taking, cache)
        if cpus.bit_count() == taking.need:
            taking.take(cpus, "part of", cache, f"it can hold all {taking.need} CPUs still needed")
            return
        if taking.recorder is not None:
            why = f"{cpus.bit_count()} CPUs of its cores are free, {taking.need} are needed"
            taking.recorder.step(f"passed over {cache.name}", 0, why)


def _sorted_caches(taking: Taking, nodes: Iterable[Area], free: int, least: int) -> Iterator[Area]:
    """Yield caches with *least* free CPUs or more, sorted within each of *nodes*; one that spans nodes repeats.

    A recorder is told of caches with fewer too. They are also needed where cores reach out of their caches.
    """
    machine = taking.machine
    if taking.recorder is not None or not machine.caches_nested:
        least = 1
    for node in nodes:
        for cache in machine.caches_in[node.id].counted(free, least)[0]:
            if cache.mask & node.mask & free:
                yield cache


def _partial(taking: Taking, cache: Area) -> int:
    """Return the free CPUs of as many cores as are needed, the lowest of the cache; one less for an odd rest."""
    need = taking.need
    threads = taking.machine.cpus_per_core
    mask = taking.machine.pick.lowest(cache, taking.free, -(-need // threads))
    if need % 2 and threads > 1 and mask.bit_count() > need:
        # The kubelet drops exactly one CPU, the highest, for any number of threads.
        mask ^= 1 << mask.bit_length() - 1
    return mask
