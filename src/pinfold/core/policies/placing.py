"""Placing: which CPUs a pod gets under options of pinfold's own.

A static policy with the reference's options alone chooses the CPUs. It is offered only CPUs with which the own options
hold: first threads of free cores, isolated CPUs, or CPUs of few enough uncore caches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.core.allocators.packed import NotEnoughCPUs
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.policies.caches import Caches, UncoreAlignmentError
from pinfold.core.policies.options import OWN
from pinfold.core.policies.wholecores import SMTAlignmentError
from pinfold.core.topologymanager.cpu import cpu_hints, hints_for_assigned, listed_hints
from pinfold.errors import AdmissionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pinfold.core.policies.options import Options
    from pinfold.core.policies.pools import Pools
    from pinfold.core.policies.static import StaticPolicy
    from pinfold.core.state import State
    from pinfold.core.topologymanager.hint import Hints
    from pinfold.core.trace import Recorder

_MOST_LISTED: Final = 1 << 10
"""Hints are listed up to so many sets of NUMA nodes; beyond, they do not look at uncore caches."""


class IsolatedCPUsError(AdmissionError):
    """Too few isolated CPUs are free."""

    reason = "IsolatedCPUsError"

    def __init__(self, wanted: int, free: CPUSet) -> None:
        super().__init__(
            f"require-isolated-cpus: {wanted} CPUs wanted, {len(free)} isolated ones free ({free or 'none'})"
        )
        self.wanted = wanted
        self.free = free


class SMTIsolationError(AdmissionError):
    """Too few cores are wholly free for CPUs whose siblings stay idle."""

    reason = "SMTIsolationError"

    def __init__(self, wanted: int, free: int) -> None:
        super().__init__(f"isolate-smt-siblings: {wanted} CPUs need {wanted} whole cores, {free} are wholly free")
        self.wanted = wanted
        self.free = free


class Placing:
    """Chooses CPUs for pods with the same *options*."""

    def __init__(self, static: StaticPolicy, pools: Pools, options: Options) -> None:
        self.static: Final = static
        self.pools: Final = pools
        self.options: Final = options
        self._whole: Final = static.options.full_pcpus_only
        self._room: Final = self._cores(pools.free(pools.topology.online.mask, options))
        self.caches: Final = Caches(static.machine, self._room)
        self._fewest_nodes: Final[dict[int, int]] = {}

    def occupied(self, cpus: CPUSet) -> CPUSet:
        """Return the CPUs that leave the shared pool with *cpus*: also their siblings, if these stay idle."""
        return self.pools.topology.siblings(cpus) if self.options.isolate_smt_siblings else cpus

    def seen(self, cpus: CPUSet) -> CPUSet:
        """Return CPUs as the machine without idle siblings has them: the first CPU of each core."""
        if not self.options.isolate_smt_siblings:
            return cpus
        cores = self.pools.topology.cores
        return CPUSet(sum(core.mask & -core.mask for core in cores if core.mask & cpus.mask))

    def take(self, available: int, count: int, recorder: Recorder | None = None) -> int:
        """Return *count* CPUs of *available*, spread as the options say."""
        return self.static.take(available, count, recorder)

    def choose(
        self, state: State, count: int, affinity: int | None, reusable: int, recorder: Recorder | None = None
    ) -> CPUSet:
        """Return the CPUs for a request, or raise an AdmissionError."""
        if self._whole and self.static.machine.even and count % self.static.machine.cpus_per_core:
            raise SMTAlignmentError(count, self.static.machine.cpus_per_core)
        offered = self._offer(self.free(state, count, reusable), count, affinity)
        if recorder is not None:
            recorder.step(f"looked only at CPUs {CPUSet(offered)}", 0, ", ".join(self._names()))
        cpus = CPUSet(self.static.choose_from(offered, count, affinity, recorder))
        self.pools.check_left(state, self.occupied(cpus))
        return cpus

    def hints(self, state: State, need: int, reusable: int) -> Hints:
        """Return the hints for *need* CPUs; CPUs of the mask *reusable* are part of each."""
        free = self.free(state, need, reusable)
        return self.hints_within(free & ~reusable, reusable, need, lambda area: self.caches.hold(free & area, need))

    def hints_within(self, available: int, required: int, need: int, holds: Callable[[int], bool]) -> Hints:
        """Return the hints for *need* CPUs with all NUMA nodes of the CPUs *required*.

        *holds* tells whether the CPUs of some NUMA nodes have room in few enough caches.
        """
        topology, by_socket = self.static.machine.topology, self.options.align_by_socket
        nodes = topology.numa_nodes
        if not self.options.require_align_cpus_by_uncorecache or 1 << len(nodes) > _MOST_LISTED:
            return cpu_hints(topology, available, required, need, align_by_socket=by_socket)
        must = sum(1 << node.id for node in nodes if node.mask & required)
        return listed_hints(
            topology,
            lambda mask: not must & ~mask and holds(self.static.machine.numa_mask(mask)),
            self._nodes_for(need),
            align_by_socket=by_socket,
        )

    def hints_for_assigned(self, cpus: CPUSet, need: int) -> Hints:
        """Return the hints for a container or pod that has its CPUs already."""
        topology = self.static.machine.topology
        if not cpus <= topology.online:
            topology = self.pools.topology
        return hints_for_assigned(topology, cpus.mask, need, align_by_socket=self.options.align_by_socket)

    def _nodes_for(self, need: int) -> int:
        """Return the fewest NUMA nodes of an empty node that hold *need* CPUs in the fewest caches."""
        if need not in self._fewest_nodes:
            machine = self.static.machine
            every = listed_hints(
                machine.topology, lambda mask: self.caches.hold(self._room & machine.numa_mask(mask), need), 1
            )
            self._fewest_nodes[need] = every.narrowest or len(machine.topology.numa_nodes)
        return self._fewest_nodes[need]

    def free(self, state: State, count: int, reusable: int) -> int:
        """Return the CPUs that a request of *count* CPUs can have."""
        pools = self.pools
        free = self._cores(pools.free(state.shared.mask, self.options) | reusable)
        isolated = self._cores(free & pools.isolated.mask | reusable)
        size = pools.topology.threads_per_core if self.options.isolate_smt_siblings else 1
        scarce = count * size > len(pools.shared(state)) - max(1, self.options.min_shared_cpus)
        return isolated if scarce and isolated.bit_count() >= count else free

    def _cores(self, free: int) -> int:
        return sum(self.static.whole_cores(free)) if self._whole else free

    def _offer(self, free: int, count: int, affinity: int | None) -> int:
        """Return the CPUs to choose from: near the affinity if possible, isolated ones if preferred."""
        near = free if affinity is None else free & self.static.near(affinity)
        for room in (near, free):
            for part in self._parts(room):
                if part.bit_count() >= count and (offered := self._align(part, count, affinity)):
                    return offered
        raise self._refusal(free, count)

    def _parts(self, free: int) -> Iterator[int]:
        """Yield isolated CPUs, other CPUs, and both, where isolated ones are preferred; else all."""
        isolated = self.pools.isolated.mask if self.options.prefer_isolated_cpus else 0
        if isolated:
            yield self._cores(free & isolated)
            yield self._cores(free & ~isolated)
        yield self._cores(free)

    def _align(self, free: int, count: int, affinity: int | None) -> int:
        """Return the free CPUs of few enough caches: of those that the reference would choose, if they are."""
        if not self.options.require_align_cpus_by_uncorecache:
            return free
        if not self.caches.hold(free, count):
            return 0
        chosen = self.static.choose_from(free, count, affinity, None)
        return free & self.caches.span(chosen) if self.caches.aligned(chosen) else self.caches.within(free, count)

    def _refusal(self, free: int, count: int) -> AdmissionError:
        enough = free.bit_count() >= count
        if enough:
            step = self.static.machine.cpus_per_core if self._whole else 1
            fewest = self.caches.fewest(count)
            most = self.caches.most(free, fewest)
            return UncoreAlignmentError(count, fewest, most, self.caches.nearest(free, count, step))
        if self.options.require_isolated_cpus:
            return IsolatedCPUsError(count, CPUSet(free))
        if self.options.isolate_smt_siblings:
            return SMTIsolationError(count, free.bit_count())
        if self._whole:
            return SMTAlignmentError(count, self.static.machine.cpus_per_core, free.bit_count())
        return NotEnoughCPUs(count, free.bit_count())

    def _names(self) -> Iterator[str]:
        """Yield the own options in force."""
        return (name for name, option in OWN.items() if getattr(self.options, option.field))
