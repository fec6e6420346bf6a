"""A shard of a fleet: pods arrive one after the other, are scheduled to nodes, and admitted or refused there.

The same Admitter as the daemon's decides. Of a node's State only the shared pool is kept: no pod arrives twice, so the
owners of the other CPUs do not matter. Knows nothing of other shards.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.admission import Scope
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.state import State
from pinfold.core.topologymanager.options import TopologyPolicy
from pinfold.planning.dice import Dice
from pinfold.planning.scheduling import Demand, Load, Ranking, Room

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pinfold.core.config import Config
    from pinfold.core.machine.topology import Topology
    from pinfold.core.pods.pod import Pod
    from pinfold.planning.scheduling import Scheduler

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


class FleetWorkload(NamedTuple):
    """*replicas* equal pods."""

    name: str
    pod: Pod
    replicas: int = 1


class Waiting(NamedTuple):
    """A pod that waits for a node: its workload, by number, and how often it has been refused."""

    workload: int
    refused: int = 0


class Visit(NamedTuple):
    """A pod that was scheduled to a node, and the node's answer."""

    node: int
    waiting: Waiting
    before: int
    """The mask of the node's shared pool."""
    after: int
    reason: str | None
    """The kubelet's reason if it was refused; None if it was admitted."""


class ShardTask(NamedTuple):
    """All input of a shard; can be sent to another process or machine."""

    types: tuple[NodeType, ...]
    pods: tuple[Pod, ...]
    """By the workload's number."""
    scheduler: Scheduler
    nodes: tuple[int, ...]
    """The type of each node, by its number."""
    waiting: Sequence[Waiting]
    """In the order of arrival."""
    seeds: tuple[int, ...] = (0,)
    retries: int = 3
    loads: tuple[Load, ...] | None = None
    """The loads of the nodes at the start; None: no load."""


class Usage(NamedTuple):
    """The load of several nodes together."""

    requested: int = 0
    """In milli CPUs."""
    exclusive: int = 0
    """CPUs that belong to a container."""
    pods: int = 0

    def plus(self, other: Usage) -> Usage:
        """Return the sum of both."""
        return Usage(*map(sum, zip(self, other, strict=True)))


class ShardResult(NamedTuple):
    """The result of a task: every pod was placed, was refused finally, or is left."""

    loads: tuple[Load, ...]
    usage: Mapping[int, Usage]
    """By type, with the load from before."""
    placed: Mapping[tuple[int, int, int], int]
    """Pods by type, workload, and how often they had been refused before."""
    refusals: Mapping[tuple[int, int, str], int]
    """How often a node refused, by type, workload and reason."""
    refused: Mapping[int, int]
    """Pods that used up their replacements, by workload."""
    left: tuple[Waiting, ...]
    """Pods that no node of the shard has room for."""


def run_shard(task: ShardTask, watch: Callable[[Visit], None] | None = None) -> ShardResult:
    """Return the result of the task; *watch* is called for each visit to a node."""
    return _Shard(task).run(watch)


class Shape:
    """What nodes and schedulers read of a pod; equal pods have one Shape."""

    __slots__ = ("demand", "pod")

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.demand = Demand.of(pod)


def shapes_of(pods: Mapping[int, Pod]) -> dict[int, Shape]:
    """Return the Shape of each pod, by the pod's number."""
    shapes: dict[object, Shape] = {}
    found = {}
    for number, pod in pods.items():
        init = tuple((container.resources, container.sidecar) for container in pod.init)
        apps = tuple(container.resources for container in pod.containers)
        key = init, apps, pod.resources, pod.overhead
        if key not in shapes:
            shapes[key] = Shape(pod)
        found[number] = shapes[key]
    return found


class Site:
    """What all nodes of a type have in common; answers are cached."""

    def __init__(self, kind: NodeType) -> None:
        admitter = kind.config.build(kind.topology)
        manager = admitter.manager.policy
        self._admit = admitter.admit
        self._answers: dict[tuple[int, Shape], tuple[int, str | None]] = {}
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

    def admit(self, shared: int, shape: Shape) -> tuple[int, str | None]:
        """Return the shared pool after a pod of that shape, and the reason if it is refused."""
        key = shared, shape
        answer = self._answers.get(key)
        if answer is None:
            if len(self._answers) >= _REMEMBERED:
                self._answers.clear()
            admission = self._admit(State(CPUSet(shared)), shape.pod)
            refusal = admission.refusal
            # The kubelet takes back the CPUs of a refused pod when it collects stale state.
            answer = (admission.state.shared.mask, None) if refusal is None else (shared, refusal.reason)
            self._answers[key] = answer
        return answer


class _Shard:
    """The nodes of a shard while pods arrive."""

    def __init__(self, task: ShardTask) -> None:
        self.task = task
        self.sites = {number: Site(task.types[number]) for number in sorted(set(task.nodes))}
        self.site_of = [self.sites[number] for number in task.nodes]
        self.loads = list(task.loads or [site.empty for site in self.site_of])
        self.shapes = shapes_of({number: task.pods[number] for number in sorted({w.workload for w in task.waiting})})
        rooms = [site.room for site in self.site_of]
        self.ranking = Ranking(task.scheduler, rooms, self.loads, Dice.of(*task.seeds))
        self.placed: Counter[tuple[int, int, int]] = Counter()
        self.refusals: Counter[tuple[int, int, str]] = Counter()
        self.refused: Counter[int] = Counter()

    def run(self, watch: Callable[[Visit], None] | None) -> ShardResult:
        """Schedule the pods; a refused pod is replaced by one at the end of the queue."""
        queue = deque(self.task.waiting)
        left = []
        while queue:
            waiting = queue.popleft()
            node = self.ranking.best(self.shapes[waiting.workload].demand)
            if node is None:
                left.append(waiting)
                continue
            visit = self.visit(node, waiting)
            self.ranking.filled(node)
            if watch is not None:
                watch(visit)
            if visit.reason is not None:
                if waiting.refused < self.task.retries:
                    queue.append(Waiting(waiting.workload, waiting.refused + 1))
                else:
                    self.refused[waiting.workload] += 1
        counts = dict(self.placed), dict(self.refusals), dict(self.refused)
        return ShardResult(tuple(self.loads), self.usage(), *counts, tuple(left))

    def usage(self) -> dict[int, Usage]:
        usage = dict.fromkeys(self.sites, Usage())
        for number, site, load in zip(self.task.nodes, self.site_of, self.loads, strict=True):
            exclusive = (site.empty.shared & ~load.shared).bit_count()
            usage[number] = usage[number].plus(Usage(load.requested, exclusive, load.pods))
        return usage

    def visit(self, node: int, waiting: Waiting) -> Visit:
        load, site, workload = self.loads[node], self.site_of[node], waiting.workload
        shape = self.shapes[workload]
        after, reason = site.admit(load.shared, shape)
        number = self.task.nodes[node]
        if reason is None:
            demand = shape.demand
            zones = load.zones if after == load.shared else site.zones(after)
            self.loads[node] = Load(
                load.requested + demand.request, load.scored + demand.scored, load.pods + 1, after, zones
            )
            self.placed[number, workload, waiting.refused] += 1
        else:
            self.refusals[number, workload, reason] += 1
        return Visit(node, waiting, load.shared, after, reason)
