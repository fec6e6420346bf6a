"""What should be, for a State on a machine and the containers on the Roster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.reconcile import wanted

if TYPE_CHECKING:
    from pinfold.core.pods.pod import ContainerRef
    from pinfold.core.reconcile import Wanted
    from pinfold.core.state import State
    from pinfold.manager.manager import Rules
    from pinfold.runtimes.roster import Roster


def wanted_of(state: State, rules: Rules, roster: Roster) -> Wanted:
    """Return what should be, with the limits and the local memory of the containers on the Roster."""
    topology = rules.topology
    # Policy none has no pool: every container has all CPUs.
    want = wanted(state, rules.admitter.policy.pools.shared(state) or topology.online)
    near = [(ref, cpus) for ref, cpus in want.exclusive.items() if _wants_local_memory(roster, ref)]
    mems = {ref: CPUSet.of(*(node.id for node in topology.numa_nodes if node.cpus & cpus)) for ref, cpus in near}
    classes = {ref: name for ref in want.exclusive if (name := _cache_class(roster, ref))}
    sharing = {ref: limit for ref, limit in roster.sharing().items() if ref not in want.exclusive}
    return want._replace(sharing=sharing, mems=mems, cache_classes=classes)


def _cache_class(roster: Roster, ref: ContainerRef) -> str:
    """Return the cache class that a container's pod asks for; empty if it asks for none."""
    return next((name for pod_id in roster.find_pods(ref.pod) if (name := roster.of(pod_id).cache_class)), "")


def _wants_local_memory(roster: Roster, ref: ContainerRef) -> bool:
    """Return whether a container asks for memory of the NUMA nodes of its CPUs alone."""
    return any(roster.of(pod_id).local_memory for pod_id in roster.find_pods(ref.pod))
