"""Stock: devices, memory and hugepages of a machine by NUMA node, handed out as a plan admits pods.

As the kubelet's Device Manager and Memory Manager count: a set of NUMA nodes is a hint if it has enough left, and is
preferred if no fewer nodes could have enough. Units of a resource are alike; which one a container gets is not planned.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.machine.cpuset import cpus_of
from pinfold.core.pods.pod import QoS, peak_amount
from pinfold.core.topologymanager.cpu import CPUHints
from pinfold.core.topologymanager.hint import UNSATISFIABLE, Hint, HintList
from pinfold.core.topologymanager.masks import MOST_MASKS
from pinfold.core.topologymanager.others import WHOLE, NotEnoughResources

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pinfold.core.machine.topology import Topology
    from pinfold.core.pods.pod import Container, ContainerRef, Pod, PodUID
    from pinfold.core.state import State
    from pinfold.core.topologymanager.hint import Hints

    Amounts = Mapping[str, Mapping[int, int]]
    """By resource and NUMA node."""

MEMORY: Final = "memory"
_HUGEPAGES: Final = "hugepages-"


class Given(NamedTuple):
    """What a container has of a resource: how much from which NUMA node."""

    container: ContainerRef
    resource: str
    amounts: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Stock:
    """What a machine has, and what is left of it."""

    total: Amounts = field(default_factory=dict, hash=False)
    left: Amounts = field(default_factory=dict, hash=False)
    given: tuple[Given, ...] = ()

    @classmethod
    def of(cls, resources: Mapping[int, Mapping[str, int]]) -> Stock:
        """Return the stock of a machine with these *resources* by NUMA node."""
        names = dict.fromkeys(name for row in resources.values() for name in row)
        total = {name: {node: row[name] for node, row in resources.items() if name in row} for name in names}
        return cls(total, total)

    def needs(self, pod: Pod, container: Container) -> dict[str, int]:
        """Return the known resources that a container asks for; memory counts for Guaranteed pods only."""
        asked = dict(container.extras)
        if pod.qos is QoS.GUARANTEED and container.resources.requests.memory:
            asked[MEMORY] = container.resources.requests.memory
        if pod.qos is not QoS.GUARANTEED:
            asked = {name: amount for name, amount in asked.items() if not name.startswith(_HUGEPAGES)}
        return {name: amount for name, amount in asked.items() if amount and name in self.total}

    def check(self, pod: Pod) -> None:
        """Raise if the pod asks for more of a resource than is left on the whole node."""
        for name, left in self.left.items():
            wanted, have = self._peak(pod, name), sum(left.values())
            if wanted > have:
                raise NotEnoughResources(name, wanted, have)

    def hints(self, pod: Pod, *, is_asked: bool = False) -> PlannedHints:
        """Return the hints for a pod; *is_asked*: they count also with Topology Manager policy none."""
        return PlannedHints(self, pod, is_asked)

    def without(self, uid: PodUID) -> Stock:
        """Return the stock after a pod has gone."""
        left = {name: dict(row) for name, row in self.left.items()}
        for container, resource, amounts in self.given:
            for node, amount in amounts.items() if container.pod == uid else ():
                left[resource][node] += amount
        return replace(self, left=left, given=tuple(one for one in self.given if one.container.pod != uid))

    def hint(self, resource: str, need: int, everything: int) -> Hints:
        """Return the hints for so much of a resource."""
        nodes = tuple(cpus_of(everything))
        left, total = self.left[resource], self.total[resource]
        sizes = sorted((total.get(node, 0) for node in nodes), reverse=True)
        fewest = next((count for count, have in enumerate(accumulate(sizes), 1) if have >= need), len(nodes))
        hints = CPUHints(nodes, tuple(left.get(node, 0) for node in nodes), need, fewest)
        if not hints:
            return UNSATISFIABLE
        if 1 << len(nodes) <= MOST_MASKS:
            return HintList(hints)
        singles = [Hint.of(node, preferred=fewest == 1) for node in nodes if left.get(node, 0) >= need]
        return HintList([*singles, Hint(everything, preferred=fewest == len(nodes))])

    def take(self, ref: ContainerRef, needs: Mapping[str, int], affinity: int | None) -> Stock:
        """Return the stock after a container has taken what it needs, from the nodes of its affinity first."""
        left, given = {name: dict(row) for name, row in self.left.items()}, list(self.given)
        for name, need in needs.items():
            row, taken = left[name], dict[int, int]()
            for node in sorted(row, key=lambda node: (affinity is not None and not affinity >> node & 1, node)):
                amount = min(row[node], need - sum(taken.values()))
                if amount:
                    taken[node] = amount
                    row[node] -= amount
            given.append(Given(ref, name, taken))
        return replace(self, left=left, given=tuple(given))

    def with_running(self, pod: Pod, state: State, topology: Topology) -> Stock:
        """Return the stock without what a running pod has, counted at the NUMA nodes of its CPUs."""
        stock = self
        for container in (*(one for one in pod.init if one.sidecar), *pod.containers):
            cpus, needs = state.cpus(pod.uid, container.name), self.needs(pod, container)
            nodes = sum(1 << node.id for node in topology.numa_nodes if cpus is not None and node.cpus & cpus)
            stock = stock.take(pod.ref(container), needs, nodes or None) if needs else stock
        return stock

    def _peak(self, pod: Pod, name: str) -> int:
        return peak_amount(pod, lambda container: self.needs(pod, container).get(name, 0))

    def whole(self, pod: Pod) -> Iterator[tuple[str, int]]:
        """Yield what a pod needs at its peak."""
        for name in self.total:
            if need := self._peak(pod, name):
                yield name, need


NO_STOCK: Final = Stock()


def is_memory(resource: str) -> bool:
    """Return whether a resource is memory or hugepages: bytes of a NUMA node, not devices."""
    return resource == MEMORY or resource.startswith(_HUGEPAGES)


@dataclass(frozen=True, slots=True)
class PlannedHints:
    """The hints of a pod's other resources, from a stock that its containers take from."""

    stock: Stock
    pod: Pod
    is_asked: bool = False

    def of(self, container: str, everything: int) -> Mapping[str, Hints | None]:
        """Return the hints of a container, or of the pod."""
        if container == WHOLE:
            return {name: self.stock.hint(name, need, everything) for name, need in self.stock.whole(self.pod)}
        found = (one for one in self.pod.all_containers if one.name == container)
        needs = (need for one in found for need in self.stock.needs(self.pod, one).items())
        return {name: self.stock.hint(name, need, everything) for name, need in needs}

    def taken(self, container: str, affinity: int | None) -> PlannedHints:
        """Return the hints after a container has taken its resources; an init container hands them on."""
        one = next(one for one in self.pod.all_containers if one.name == container)
        if one in self.pod.init and not one.sidecar:
            return self
        needs = self.stock.needs(self.pod, one)
        return replace(self, stock=self.stock.take(self.pod.ref(one), needs, affinity)) if needs else self

    def __bool__(self) -> bool:
        return bool(self.stock.total)
