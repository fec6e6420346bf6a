"""What is left at NUMA nodes for pods that ask for local memory; core/localmemory.py decides with it.

Left is what the kernel can still give, and no more than what other containers with local memory have not asked for:
one that has just started does not use its memory yet. Where the kubelet has assigned memory itself, pinfold follows it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pinfold.core.localmemory import with_local_memory
from pinfold.core.stock import NO_STOCK, PlannedHints, Stock
from pinfold.core.topologymanager.others import Held
from pinfold.manager.wanting import memory_nodes, wants_local_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pinfold.core.admission import Admission
    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import ContainerRef, Pod
    from pinfold.core.state import State
    from pinfold.core.topologymanager.hint import Hints
    from pinfold.core.topologymanager.others import OtherHints
    from pinfold.manager.manager import Rules
    from pinfold.runtimes.roster import Roster

    Resources = Mapping[int, Mapping[str, int]]
    """Memory and hugepages in bytes, by NUMA node."""
    ReadMemory = Callable[[], tuple[Resources, Resources]]
    """Returns what the machine has, and what the kernel can still give."""


def not_known() -> tuple[Resources, Resources]:
    """Return nothing: the memory of this machine is not known."""
    return {}, {}


class LocalMemory:
    """Decides about pods with what is left at NUMA nodes, which is read when a pod asks for local memory."""

    def __init__(self, roster: Roster, read: ReadMemory = not_known) -> None:
        self._roster = roster
        self._read = read

    def decide(self, pod: Pod, due: Collection[str] | None, state: State, rules: Rules) -> tuple[Admission, OtherHints]:
        """Return what becomes of a pod, or of its due containers, and the hints of its other resources."""
        left = self._left_for(pod, state, rules)
        others = self._hints(pod, state, left)
        admission = rules.admitter.admit(state, pod, due=due, others=others)
        if not left.total:
            return admission, others

        def nodes_of(ref: ContainerRef, cpus: CPUSet) -> CPUSet:
            return memory_nodes(ref, cpus, rules, self._roster)

        return with_local_memory(pod, left, admission, state, nodes_of), others

    def _left_for(self, pod: Pod, state: State, rules: Rules) -> Stock:
        """Return what is left for a pod; an empty Stock if there is nothing to check."""
        if len(rules.topology.numa_nodes) < 2 or not wants_local_memory(self._roster, pod.uid):  # noqa: PLR2004
            return NO_STOCK
        held = self._roster.held.get(pod.uid)
        if isinstance(held, Held) and any(held.memory(one.name) for one in pod.all_containers):
            return NO_STOCK
        total, available = self._read()
        stock = self._booked(Stock.of(total), state, rules)
        return replace(stock, left={name: _least(row, name, available) for name, row in stock.left.items()})

    def _hints(self, pod: Pod, state: State, stock: Stock) -> OtherHints:
        """Return the hints of a pod's other resources; its memory counts until it has CPUs."""
        others = self._roster.others(pod)
        return others if not stock.total or pod.uid in state.assignments else _WithMemory(others, stock.hints(pod))

    def _booked(self, stock: Stock, state: State, rules: Rules) -> Stock:
        """Return the stock without what containers with local memory have asked for."""
        for uid, pod in self._roster.known_pods().items():
            if uid not in state.assignments or not wants_local_memory(self._roster, uid):
                continue
            for one in (*(init for init in pod.init if init.sidecar), *pod.containers):
                cpus, needs = state.cpus(uid, one.name), stock.needs(pod, one)
                if cpus is not None and needs:
                    ref = pod.ref(one)
                    stock = stock.take(ref, needs, memory_nodes(ref, cpus, rules, self._roster).mask)
        return stock


@dataclass(frozen=True, slots=True)
class _WithMemory:
    """The hints of a pod's other resources, and of its memory."""

    others: OtherHints
    memory: PlannedHints
    is_asked: bool = True

    def of(self, container: str, everything: int) -> Mapping[str, Hints | None]:
        """Return the hints of a container, or of the pod."""
        beside = self.others.of(container, everything) if self.others else {}
        return {**self.memory.of(container, everything), **beside}

    def taken(self, container: str, affinity: int | None) -> _WithMemory:
        """Return the hints after a container was admitted."""
        return replace(
            self, others=self.others.taken(container, affinity), memory=self.memory.taken(container, affinity)
        )

    def __bool__(self) -> bool:
        return True


def _least(row: Mapping[int, int], name: str, available: Resources) -> dict[int, int]:
    return {node: min(left, available.get(node, {}).get(name, left)) for node, left in row.items()}
