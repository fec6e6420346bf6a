"""A shard of a fleet: pods arrive one after the other, are scheduled to nodes, and admitted or refused there.

`ranking` chooses the node, `sites` says what the node does. Knows nothing of other shards.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, NamedTuple

from pinfold.planning.dice import Dice
from pinfold.planning.ranking import Ranking
from pinfold.planning.scheduling import Load
from pinfold.planning.sites import ground

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pinfold.core.pods.pod import Pod
    from pinfold.planning.scheduling import Scheduler
    from pinfold.planning.sites import NodeType


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


class _Shard:
    """The nodes of a shard while pods arrive."""

    def __init__(self, task: ShardTask) -> None:
        self.task = task
        known = ground(task.types, task.pods)
        self.shapes = known.shapes
        self.site_of = [known.sites[number] for number in task.nodes]
        self.loads = list(task.loads or [site.empty for site in self.site_of])
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
            before = self.loads[node].shared
            reason = self.visit(node, waiting)
            if watch is not None:
                watch(Visit(node, waiting, before, self.loads[node].shared, reason))
            if reason is not None:
                if waiting.refused < self.task.retries:
                    queue.append(Waiting(waiting.workload, waiting.refused + 1))
                else:
                    self.refused[waiting.workload] += 1
        counts = dict(self.placed), dict(self.refusals), dict(self.refused)
        return ShardResult(tuple(self.loads), self.usage(), *counts, tuple(left))

    def usage(self) -> dict[int, Usage]:
        usage = dict.fromkeys(sorted(set(self.task.nodes)), Usage())
        for number, site, load in zip(self.task.nodes, self.site_of, self.loads, strict=True):
            exclusive = (site.empty.shared & ~load.shared).bit_count()
            usage[number] = usage[number].plus(Usage(load.requested, exclusive, load.pods))
        return usage

    def visit(self, node: int, waiting: Waiting) -> str | None:
        """Let the node decide on a pod; return the reason if it refuses."""
        load, workload = self.loads[node], waiting.workload
        shape, number = self.shapes[workload], self.task.nodes[node]
        shared, zones, reason = self.site_of[node].admit(load.shared, shape)
        if reason is None:
            request, scored = shape.demand[:2]
            self.loads[node] = Load(load.requested + request, load.scored + scored, load.pods + 1, shared, zones)
            self.placed[number, workload, waiting.refused] += 1
            self.ranking.filled(node)
        else:
            self.refusals[number, workload, reason] += 1
        return reason
