"""Plans a fleet: thousands of nodes and their pods, as node types x counts and workloads x replicas.

The fleet is split into shards, each as large as the part of a cluster that the default scheduler reads for one pod.
Pods are split likewise; pods without room in a shard go on to the next. The shards depend only on the fleet, not on
the workers, so that the outcome is the same on one core and on a hundred machines.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.planning.dice import Dice
from pinfold.planning.scheduling import Scheduler
from pinfold.planning.shard import FleetWorkload, ShardTask, Usage, Waiting, run_shard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pinfold.planning.shard import ShardResult
    from pinfold.planning.sites import NodeType

    Work = Callable[[Sequence[ShardTask]], Iterable[ShardResult]]

RETRIES: Final = 3
_LEAST_SAMPLE: Final = 100


class Fleet(NamedTuple):
    """Nodes, and the pods to place on them."""

    types: tuple[NodeType, ...]
    workloads: tuple[FleetWorkload, ...]

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return sum(kind.count for kind in self.types)

    @property
    def pods(self) -> int:
        """How many pods there are."""
        return sum(workload.replicas for workload in self.workloads)

    @property
    def containers(self) -> int:
        """How many containers the pods have."""
        return sum(workload.replicas * len(workload.pod.all_containers) for workload in self.workloads)


class FleetScenario(NamedTuple):
    """How to simulate the fleet."""

    schedulers: tuple[Scheduler, ...] = (Scheduler.BLIND, Scheduler.AWARE)
    seed: int = 0
    retries: int = RETRIES
    """How often the controller replaces a pod that a node has refused."""


class TypeOutcome(NamedTuple):
    """The result for the nodes of one type."""

    name: str
    nodes: int
    allocatable: int
    """In milli CPUs, of all nodes together."""
    usage: Usage
    refusals: Mapping[str, int]
    """How often a node of the type refused a pod, by the kubelet's reason."""


class WorkloadOutcome(NamedTuple):
    """The result for the pods of one workload."""

    name: str
    replicas: int
    placed: int
    refused: int
    """Pods that were refused even after all replacements."""
    unschedulable: int
    """Pods for which the scheduler found no node."""
    refusals: Mapping[str, int]
    """How often nodes refused one of its pods, by the kubelet's reason."""


class FleetOutcome(NamedTuple):
    """The result for the fleet under one scheduler."""

    scheduler: Scheduler
    shards: int
    types: tuple[TypeOutcome, ...]
    workloads: tuple[WorkloadOutcome, ...]
    saved: int
    """Pods that were refused first and placed later."""

    @property
    def placed(self) -> int:
        """Pods that were admitted."""
        return sum(workload.placed for workload in self.workloads)

    @property
    def refused(self) -> int:
        """Pods that were refused in the end."""
        return sum(workload.refused for workload in self.workloads)

    @property
    def unschedulable(self) -> int:
        """Pods without a node."""
        return sum(workload.unschedulable for workload in self.workloads)

    @property
    def refusals(self) -> int:
        """How often a node refused a pod."""
        return sum(sum(kind.refusals.values()) for kind in self.types)

    @property
    def retries(self) -> int:
        """How often a refused pod was replaced."""
        return self.refusals - self.refused

    @property
    def is_complete(self) -> bool:
        """Whether all pods were admitted."""
        return not self.refused and not self.unschedulable


def plan_fleet(
    fleet: Fleet,
    scenario: FleetScenario = FleetScenario(),  # noqa: B008 - a value that cannot change
    work: Work | None = None,
) -> tuple[FleetOutcome, ...]:
    """Return the outcome under each scheduler; *work* gets lists of tasks and returns their results in order.

    >>> from pinfold.core.config import Config, Reservation
    >>> from pinfold.core.pods.pod import Amounts, Container, Pod, PodUID, Resources
    >>> from pinfold.core.machine.presets import preset
    >>> from pinfold.planning.sites import NodeType
    >>> config = Config("static", reserved=Reservation(milli=2000), topology_policy="single-numa-node")
    >>> six = Amounts(cpu=6000, memory=1 << 30)
    >>> pod = Pod(PodUID(""), "db", containers=(Container("app", Resources(six, six)),))
    >>> machine = preset("sockets:2,cores:8")
    >>> fleet = Fleet((NodeType("small", 5, machine, config),), (FleetWorkload("db", pod, replicas=10),))
    >>> for outcome in plan_fleet(fleet):
    ...     print(outcome.scheduler, outcome.placed, outcome.refused, outcome.unschedulable)
    blind 10 0 0
    aware 10 0 0
    """
    work = work or _work_here
    dealt = _deal(fleet, scenario.seed, count_shards(fleet.nodes))
    runs = [_Run(fleet, scenario, scheduler, dealt) for scheduler in scenario.schedulers]
    while rounds := [(run, shard, task) for run in runs for shard, task in run.tasks()]:
        for (run, shard, _), result in zip(rounds, work([task for _, _, task in rounds]), strict=True):
            run.take(shard, result)
    return tuple(run.outcome() for run in runs)


def _work_here(tasks: Sequence[ShardTask]) -> Iterator[ShardResult]:
    return map(run_shard, tasks)


def count_shards(nodes: int) -> int:
    """Return the number of shards for a fleet of *nodes* nodes.

    The default scheduler stops its search after a number of nodes that could take the pod: from 50 % of a cluster of
    100 nodes down to 5 % of a large one, at least 100. A shard has that many nodes.

    >>> [count_shards(nodes) for nodes in (1, 100, 300, 1000, 5000, 20_000)]
    [1, 1, 2, 2, 10, 20]
    """
    sample = max(_LEAST_SAMPLE, nodes * max(5, 50 - nodes // 125) // 100)
    return max(1, nodes // sample)


class _Run:
    """Runs the shards under one scheduler, round after round, until no pod waits."""

    def __init__(
        self, fleet: Fleet, scenario: FleetScenario, scheduler: Scheduler, waiting: list[list[Waiting]]
    ) -> None:
        self.fleet = fleet
        self.scenario = scenario
        self.scheduler = scheduler
        self.count = len(waiting)
        self.pods = tuple(workload.pod for workload in fleet.workloads)
        types = [number for number, kind in enumerate(fleet.types) for _ in range(kind.count)]
        self.nodes = [tuple(types[shard :: self.count]) for shard in range(self.count)]
        self.waiting = waiting
        self.round = 0
        self.latest: dict[int, ShardResult] = {}
        self.full: set[tuple[int, int]] = set()
        """Shards that have no room for a workload, both by number."""
        self.placed: Counter[tuple[int, int, int]] = Counter()
        self.refusals: Counter[tuple[int, int, str]] = Counter()
        self.refused: Counter[int] = Counter()
        self.unschedulable: Counter[int] = Counter()

    def tasks(self) -> list[tuple[int, ShardTask]]:
        """Return the tasks of the next round, by shard."""
        if self.round:
            self.waiting = self.sent_on()
        self.round += 1
        return [(shard, self.task(shard, waiting)) for shard, waiting in enumerate(self.waiting) if waiting]

    def task(self, shard: int, waiting: Sequence[Waiting]) -> ShardTask:
        return ShardTask(
            types=self.fleet.types,
            pods=self.pods,
            scheduler=self.scheduler,
            nodes=self.nodes[shard],
            waiting=waiting,
            seeds=(self.scenario.seed, shard, self.round),
            retries=self.scenario.retries,
            loads=self.latest[shard].loads if shard in self.latest else None,
        )

    def take(self, shard: int, result: ShardResult) -> None:
        """Add the result of a shard's task."""
        self.latest[shard] = result
        self.placed.update(result.placed)
        self.refusals.update(result.refusals)
        self.refused.update(result.refused)
        self.full.update((shard, waiting.workload) for waiting in result.left)

    def sent_on(self) -> list[list[Waiting]]:
        """Return the waiting pods by shard, each pod without a node moved to the next shard that may have room."""
        waiting: list[list[Waiting]] = [[] for _ in range(self.count)]
        for shard in [shard for shard, waited in enumerate(self.waiting) if waited]:
            for pod in self.latest[shard].left:
                others = ((shard + step) % self.count for step in range(1, self.count))
                following = next((other for other in others if (other, pod.workload) not in self.full), None)
                if following is None:
                    self.unschedulable[pod.workload] += 1
                else:
                    waiting[following].append(pod)
        return waiting

    def outcome(self) -> FleetOutcome:
        saved = sum(count for (_, _, refused), count in self.placed.items() if refused)
        types = tuple(self.type_outcome(number, kind) for number, kind in enumerate(self.fleet.types))
        workloads = tuple(self.workload_outcome(number, each) for number, each in enumerate(self.fleet.workloads))
        return FleetOutcome(self.scheduler, self.count, types, workloads, saved)

    def type_outcome(self, number: int, kind: NodeType) -> TypeOutcome:
        usage = Usage()
        for result in self.latest.values():
            usage = usage.plus(result.usage.get(number, Usage()))
        refusals: Counter[str] = Counter()
        for (of, _, reason), count in self.refusals.items():
            refusals[reason] += count if of == number else 0
        return TypeOutcome(kind.name, kind.count, kind.count * kind.allocatable, usage, _sorted(refusals))

    def workload_outcome(self, number: int, workload: FleetWorkload) -> WorkloadOutcome:
        placed = sum(count for (_, of, _), count in self.placed.items() if of == number)
        refusals: Counter[str] = Counter()
        for (_, of, reason), count in self.refusals.items():
            refusals[reason] += count if of == number else 0
        ended = self.refused[number], self.unschedulable[number]
        return WorkloadOutcome(workload.name, workload.replicas, placed, *ended, _sorted(refusals))


def _deal(fleet: Fleet, seed: int, shards: int) -> list[list[Waiting]]:
    """Return the waiting pods by shard, in random order of arrival."""
    order = [number for number, workload in enumerate(fleet.workloads) for _ in range(workload.replicas)]
    _shuffle(order, Dice.of(seed))
    fresh = [Waiting(number) for number in range(len(fleet.workloads))]
    return [[fresh[number] for number in order[shard::shards]] for shard in range(shards)]


def _shuffle(order: list[int], dice: Dice) -> None:
    # By remainders, not by `Dice.shuffle`: with it a seed would give other figures than it gave before.
    for last in range(len(order) - 1, 0, -1):
        other = dice.roll() % (last + 1)
        order[last], order[other] = order[other], order[last]


def _sorted(refusals: Mapping[str, int]) -> dict[str, int]:
    return {reason: refusals[reason] for reason in sorted(refusals) if refusals[reason]}
