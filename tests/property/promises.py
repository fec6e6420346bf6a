"""What pinfold's own options promise of a container, from their words alone."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from pinfold.core.machine.cpuset import CPUSet

if TYPE_CHECKING:
    from pinfold.core.machine.topology import Topology
    from pinfold.core.pods.pod import ContainerRef
    from pinfold.core.policies.options import Options
    from pinfold.core.policies.static import StaticPolicy
    from pinfold.core.state import State


def fewest_caches(topology: Topology, room: CPUSet, count: int) -> int:
    """Return how many uncore caches hold *count* CPUs of *room*, by trying."""
    parts = [cache.cpus & room for cache in topology.uncore_caches]
    sizes = range(1, len(parts) + 1)
    fit = (k for k in sizes if any(sum(map(len, chosen)) >= count for chosen in combinations(parts, k)))
    return next(fit, len(parts))


def can_be_given(policy: StaticPolicy, options: Options, free: CPUSet) -> CPUSet:
    """Return which of the *free* CPUs a pod with these options may get."""
    topology, isolated = policy.machine.topology, policy.machine.topology.isolated
    free -= policy.reserved
    if options.require_isolated_cpus:
        free &= isolated
    elif not options.prefer_isolated_cpus and policy.options.offers("prefer-isolated-cpus", "require-isolated-cpus"):
        free -= isolated
    whole = [core.cpus for core in topology.cores if core.cpus <= free]
    if options.isolate_smt_siblings:
        return CPUSet.from_cpus(min(core) for core in whole)
    if options.full_pcpus_only:
        return CPUSet.from_cpus(cpu for core in whole for cpu in core)
    return free


def broken_promises(policy: StaticPolicy, state: State, ref: ContainerRef, options: Options) -> list[str]:
    """Return the options that the CPUs of a container do not keep."""
    topology, cpus = policy.machine.topology, state.cpus(*ref)
    assert cpus is not None
    isolated = topology.isolated
    broken = []
    if options.require_isolated_cpus and not cpus <= isolated:
        broken.append("require-isolated-cpus")
    only_on_request = policy.pools.isolated and not (options.prefer_isolated_cpus or options.require_isolated_cpus)
    if only_on_request and cpus & isolated:
        broken.append("isolated CPUs are for pods that ask for them")
    if options.isolate_smt_siblings:
        cores = {core.id for core in topology.cores if core.cpus & cpus}
        idle = policy.pools.idle(state)
        if len(cores) != len(cpus) or not topology.siblings(cpus) - cpus <= idle:
            broken.append("isolate-smt-siblings")
    elif options.full_pcpus_only and topology.siblings(cpus) != cpus:
        broken.append("full-pcpus-only")
    if options.require_align_cpus_by_uncorecache:
        room = can_be_given(policy, options, topology.online)
        used = [cache for cache in topology.uncore_caches if cache.cpus & cpus]
        if len(used) > fewest_caches(topology, room, len(cpus)):
            broken.append("require-align-cpus-by-uncorecache")
    return broken
