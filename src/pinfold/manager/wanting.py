"""What should be, for a State on a machine and the containers on the Roster."""

from __future__ import annotations

from operator import is_
from typing import TYPE_CHECKING

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.reconcile import wanted
from pinfold.core.topologymanager.others import Held

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pinfold.core.pods.pod import ContainerRef, PodUID
    from pinfold.core.reconcile import Limit, Wanted
    from pinfold.core.state import State
    from pinfold.manager.manager import Rules
    from pinfold.runtimes.roster import Roster


class Wanting:
    """Remembers the last Wanted: a check where nothing is new asks for the same again, of all containers."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._basis: tuple[object, ...] = ()
        """The State, the Rules and the limits that it followed from …"""
        self._version = 0
        """… and the version of the Roster."""
        self._last: Wanted | None = None

    def of(self, state: State, rules: Rules) -> Wanted:
        """Return what should be."""
        basis, version = (state, rules, self._roster.limits), self._roster.version
        if self._last is not None and version == self._version and all(map(is_, basis, self._basis)):
            return self._last
        want, near = _wanted_with(state, rules, self._roster)
        # The memory that the kubelet has assigned is no report of the Roster: it may have changed.
        self._basis, self._version, self._last = basis, version, None if near else want
        return want


def wanted_of(state: State, rules: Rules, roster: Roster) -> Wanted:
    """Return what should be, with the limits and the local memory of the containers on the Roster."""
    return _wanted_with(state, rules, roster)[0]


def _wanted_with(state: State, rules: Rules, roster: Roster) -> tuple[Wanted, bool]:
    """Return what should be, and whether a container with CPUs of its own asks for local memory."""
    # Policy none has no pool: every container has all CPUs.
    want = wanted(state, rules.admitter.policy.pools.shared(state) or rules.topology.online)
    near: list[ContainerRef] = []
    classes: dict[ContainerRef, str] = {}
    sharing = limited(roster)
    for ref in want.exclusive:
        sharing.pop(ref, None)
        for known in map(roster.of, roster.find_pods(ref.pod)):
            if known.local_memory:
                near.append(ref)
            if known.cache_class:
                classes.setdefault(ref, known.cache_class)
    mems = {ref: nodes for ref in near if (nodes := memory_nodes(ref, want.exclusive[ref], rules, roster))}
    return want._replace(sharing=sharing, mems=mems, cache_classes=classes), bool(near)


def limited(roster: Roster) -> dict[ContainerRef, Limit]:
    """Return all containers with their limits where pinfold makes their groups; none where a runtime does."""
    found: dict[ContainerRef, Limit] = {}
    if roster.limits is not None:
        for known in map(roster.of, roster.pods):
            found.update(known.limits)
    return found


def far_from_memory(
    before: State, after: Iterable[tuple[ContainerRef, CPUSet]], rules: Rules, roster: Roster
) -> Iterator[tuple[ContainerRef, CPUSet]]:
    """Yield the containers with new CPUs that ask for local memory, but no NUMA node of their CPUs has memory."""
    for ref, cpus in after:
        new = before.cpus(*ref) != cpus
        if new and wants_local_memory(roster, ref.pod) and not memory_nodes(ref, cpus, rules, roster):
            yield ref, cpus


def memory_nodes(ref: ContainerRef, cpus: CPUSet, rules: Rules, roster: Roster) -> CPUSet:
    """Return the NUMA nodes of a container's CPUs, and of the memory that the kubelet has assigned to it.

    Only those that have memory: the kernel refuses others in cpuset.mems.
    """
    topology = rules.topology
    nodes = CPUSet.of(*(node.id for node in topology.numa_nodes if node.cpus & cpus))
    everything = CPUSet.of(*topology.memory_only, *(node.id for node in topology.numa_nodes))
    there = everything if rules.memory is None else rules.memory
    held = roster.held.get(ref.pod)
    assigned = held.memory(ref.name) if isinstance(held, Held) else 0
    return (nodes | CPUSet(assigned)) & there


def wants_local_memory(roster: Roster, pod: PodUID) -> bool:
    """Return whether the containers of a pod ask for memory of the NUMA nodes of their CPUs alone."""
    return any(roster.of(pod_id).local_memory for pod_id in roster.find_pods(pod))
