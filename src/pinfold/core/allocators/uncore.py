"""prefer-align-cpus-by-uncorecache: whole uncore caches first, then one cache that can hold all that is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.allocators.order import note_core_size, note_repeats

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pinfold.core.allocators.order import Place
    from pinfold.core.allocators.packed import Taking


def take_uncore(taking: Taking) -> None:
    """Take whole caches while at least an average cache's worth is needed; then the rest within one cache."""
    # The kubelet makes the list once; caches taken whole stay in it, with no CPUs left.
    free = taking.free
    if taking.recorder is not None:
        note_repeats(taking.recorder, taking.machine.once(_sorted_caches(taking, free)))
    caches: Iterable[Place] = _sorted_caches(taking, free)
    if taking.need >= taking.machine.cpus_per_uncore:
        caches = taking.machine.once(caches)
        taking.take_whole(caches)
        if taking.need < 1:
            return
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


def _sorted_caches(taking: Taking, free: int) -> Iterator[Place]:
    """Yield the caches with free CPUs, sorted within each of the sorted NUMA nodes; one that spans nodes repeats."""
    machine = taking.machine
    for node in machine.sorted_numa_nodes(free):
        for cache in machine.caches_in[node.id].fullest_first(free):
            if cache.mask & node.mask & free:
                yield cache


def _partial(taking: Taking, cache: Place) -> int:
    """Return the free CPUs of as many cores as are needed, the lowest of the cache; one less for an odd rest."""
    need = taking.need
    threads = taking.machine.cpus_per_core
    mask = taking.machine.pick.lowest(cache, taking.free, -(-need // threads))
    if need % 2 and threads > 1 and mask.bit_count() > need:
        # The kubelet drops exactly one CPU, the highest, for any number of threads.
        mask ^= 1 << mask.bit_length() - 1
    return mask
