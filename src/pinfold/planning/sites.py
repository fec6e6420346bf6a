"""What the nodes of a type do with pods: the same Admitter as the daemon's decides, and each answer is kept.

Of a node's State only the shared pool is kept: no pod arrives twice, so the owners of the other CPUs do not matter.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.admission import Scope
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.state import State
from pinfold.core.topologymanager.options import TopologyPolicy
from pinfold.planning.scheduling import Demand, Load, Room

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pinfold.core.config import Config
    from pinfold.core.machine.topology import Topology
    from pinfold.core.pods.pod import Pod

MOST_PODS: Final = 110
"""The kubelet's default for maxPods."""
_REMEMBERED: Final = 100_000


@dataclass(frozen=True, slots=True)
class NodeType:
    """*count* equal nodes: the same machine, and the same kubelet settings."""

    name: str
    count: int
    topology: Topology
    config: Config
    most_pods: int = MOST_PODS

    @property
    def allocatable(self) -> int:
        """The milli CPUs that pods on one node can request together."""
        return max(0, len(self.topology.cpus) * 1000 - (self.config.reserved.milli or 0))


class Shape:
    """What nodes and schedulers read of a pod; equal pods have one Shape."""

    __slots__ = ("demand", "pod")

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.demand = Demand.of(pod)


def shapes_of(pods: Sequence[Pod]) -> tuple[Shape, ...]:
    """Return the Shape of each pod."""
    shapes: dict[object, Shape] = {}
    found = []
    for pod in pods:
        init = tuple((container.resources, container.sidecar) for container in pod.init)
        apps = tuple(container.resources for container in pod.containers)
        key = init, apps, pod.resources, pod.overhead
        if key not in shapes:
            shapes[key] = Shape(pod)
        found.append(shapes[key])
    return tuple(found)


class NodeAnswer(NamedTuple):
    """What a node does with a pod."""

    shared: int
    """The mask of the shared pool afterwards."""
    zones: tuple[int, ...]
    """The assignable CPUs of each NUMA node afterwards."""
    reason: str | None
    """The kubelet's reason if it refuses the pod; None if it admits it."""


class Site:
    """What all nodes of a type have in common; answers are cached."""

    def __init__(self, kind: NodeType) -> None:
        admitter = kind.config.build(kind.topology)
        manager = admitter.manager.policy
        self._admit = admitter.admit
        self._answers: defaultdict[Shape, dict[int, NodeAnswer]] = defaultdict(dict)
        """By Shape and shared pool: nodes in the same State are decided once."""
        shared = admitter.policy.start(State.new()).shared
        self._pools = admitter.policy.pools
        self._given_away = bool(shared)
        self._zones_of: dict[int, tuple[int, ...]] = {}
        self._zones = tuple(zone.mask for zone in kind.topology.numa_nodes)
        self.room = Room(
            kind.allocatable,
            kind.most_pods,
            single=manager is TopologyPolicy.SINGLE_NUMA_NODE,
            as_a_whole=admitter.scope is Scope.POD and manager is not TopologyPolicy.NONE,
        )
        self.empty = Load(shared=shared.mask, zones=self.zones(shared.mask))

    def zones(self, shared: int) -> tuple[int, ...]:
        """Return the number of assignable CPUs of each NUMA node."""
        if (known := self._zones_of.get(shared)) is not None:
            return known
        if len(self._zones_of) >= _REMEMBERED:
            self._zones_of.clear()
        # Under policy `none` no CPU is ever assigned, and all are offered.
        free = self._pools.free(shared, self._pools.options) if self._given_away else -1
        found = self._zones_of[shared] = tuple([(free & zone).bit_count() for zone in self._zones])
        return found

    def admit(self, shared: int, shape: Shape) -> NodeAnswer:
        """Return what a node with this shared pool does with a pod of that shape."""
        answers = self._answers[shape]
        answer = answers.get(shared)
        if answer is None:
            if len(answers) >= _REMEMBERED:
                answers.clear()
            answer = answers[shared] = self._decide(shared, shape)
        return answer

    def _decide(self, shared: int, shape: Shape) -> NodeAnswer:
        admission = self._admit(State(CPUSet(shared)), shape.pod)
        if admission.refusal is not None:
            # The kubelet takes back the CPUs of a refused pod when it collects stale state.
            return NodeAnswer(shared, self.zones(shared), admission.refusal.reason)
        after = admission.state.shared.mask
        return NodeAnswer(after, self.zones(after), None)


class Ground:
    """The Sites of all types of nodes, and the Shapes of all pods."""

    def __init__(self, types: tuple[NodeType, ...], pods: tuple[Pod, ...]) -> None:
        self.given = types, pods
        self.sites = tuple(map(Site, types))
        self.shapes = shapes_of(pods)


_LATEST: Final[list[Ground]] = []


def ground(types: tuple[NodeType, ...], pods: tuple[Pod, ...]) -> Ground:
    """Return the Ground of a fleet, with all earlier answers if it was the last one asked for in this process."""
    if not (_LATEST and _LATEST[0].given == (types, pods)):
        _LATEST[:] = [Ground(types, pods)]
    return _LATEST[0]
