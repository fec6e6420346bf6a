"""Where a scheduler places a pod: by CPU counts alone, or by the free CPUs of each NUMA node.

Both compare nodes by the default scheduler's LeastAllocated score on CPU, in whole percents; `aware` adds what the
scheduler plugin NodeResourceTopologyMatch does with NodeResourceTopology: its filter (single-numa-node only) and
its score LeastNUMANodes, without distances. Other resources and plugins are ignored. Knows nothing of CPU numbers.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.pods.pod import QoS, effective_requests

if TYPE_CHECKING:
    from collections.abc import Iterable, MutableSequence, Sequence

    from pinfold.core.pods.pod import Container, Pod

BEST_SCORE: Final = 100
ZONE_COST: Final = BEST_SCORE // 8
"""The cost of each further NUMA node in LeastNUMANodes; the plugin counts at most 8."""
UNSET_REQUEST: Final = 100
"""The milli CPUs that a container without a request counts for in scores (not in filters)."""

_MILLI: Final = 1000


class Scheduler(StrEnum):
    """The scheduler that chooses the node for a pod."""

    BLIND = "blind"
    AWARE = "aware"


class Demand(NamedTuple):
    """A pod as a scheduler sees it, in milli CPUs."""

    request: int
    """The milli CPUs that must be free on the node."""
    scored: int
    """The milli CPUs that it counts for in scores."""
    parts: tuple[int, ...] = ()
    """The requests of each container of a Guaranteed pod, with sidecars; other pods can run on any NUMA node."""
    init: tuple[int, ...] = ()
    """The requests of its init containers, which run one after the other before the others."""

    @classmethod
    def of(cls, pod: Pod) -> Demand:
        """Return the demand of *pod*.

        >>> from pinfold.core.pods.pod import Amounts, Container, Pod, PodUID, Resources
        >>> two = Amounts(cpu=2000, memory=1 << 30)
        >>> Demand.of(Pod(PodUID("u1"), "web", containers=(Container("app", Resources(two, two)),)))
        Demand(request=2000, scored=2000, parts=(2000,), init=())
        >>> Demand.of(Pod(PodUID("u2"), "idle", containers=(Container("app"),)))
        Demand(request=0, scored=100, parts=(), init=())
        """
        counted = replace(pod, init=tuple(map(_counted, pod.init)), containers=tuple(map(_counted, pod.containers)))
        request, scored = effective_requests(pod).cpu or 0, effective_requests(counted).cpu or 0
        if pod.qos is not QoS.GUARANTEED:
            return cls(request, scored)
        running = [*(container for container in pod.init if container.sidecar), *pod.containers]
        return cls(request, scored, _requests(running), _requests(each for each in pod.init if not each.sidecar))


def _requests(containers: Iterable[Container]) -> tuple[int, ...]:
    return tuple(cpu for container in containers if (cpu := container.resources.requests.cpu))


def _counted(container: Container) -> Container:
    resources = container.resources
    if resources.requests.cpu is not None:
        return container
    return replace(container, resources=replace(resources, requests=resources.requests._replace(cpu=UNSET_REQUEST)))


class Room(NamedTuple):
    """The capacity of a node; the same for all nodes of a type."""

    allocatable: int
    """In milli CPUs: all CPUs minus the reserved ones."""
    most_pods: int
    single: bool = False
    """Whether every container, or pod, must fit within one NUMA node."""
    as_a_whole: bool = False
    """Whether this applies to the pod, and not to each container by itself."""


class Load(NamedTuple):
    """The load of a node; it only grows, as pods do not leave."""

    requested: int = 0
    scored: int = 0
    pods: int = 0
    shared: int = 0
    """The mask of the shared pool."""
    zones: tuple[int, ...] = ()
    """The assignable CPUs of each NUMA node, as in NodeResourceTopology."""

    def used(self, room: Room) -> int:
        """Return how much of the node is in use for scores, in whole percents."""
        return min(BEST_SCORE, self.scored * BEST_SCORE // room.allocatable) if room.allocatable else BEST_SCORE


def has_room(room: Room, load: Load, demand: Demand) -> bool:
    """Return whether the node has room for the demand: the filter of every scheduler.

    >>> has_room(Room(8000, 110), Load(requested=7000), Demand(1000, 1000))
    True
    """
    return load.requested + demand.request <= room.allocatable and load.pods < room.most_pods


def score_zones(room: Room, load: Load, demand: Demand) -> int | None:
    """Return the score of a node, 0 to 88, higher for fewer NUMA nodes; None if the filter excludes it.

    >>> xeon = Room(64_000, 110, single=True)
    >>> score_zones(xeon, Load(zones=(32, 30)), Demand(31_000, 31_000, (31_000,)))
    88
    >>> score_zones(xeon, Load(zones=(30, 30)), Demand(31_000, 31_000, (31_000,))) is None
    True
    """
    if room.as_a_whole:
        count = zones_needed(load.zones, (demand.request,))
    else:
        counts = [zones_needed(load.zones, parts) for parts in (demand.parts, *((part,) for part in demand.init))]
        count = max(counts) if all(counts) else 0
    if room.single and count != 1:
        return None
    return max(0, BEST_SCORE - count * ZONE_COST) if count else 0


def zones_needed(zones: Sequence[int], parts: Iterable[int]) -> int:
    """Return the most NUMA nodes that any of *parts* needs if each takes the fewest possible; 0 if they do not fit.

    >>> zones_needed((4, 6), [4000, 5000]), zones_needed((4, 6), [8000]), zones_needed((4, 6), [11_000])
    (1, 2, 0)
    """
    left = [free * _MILLI for free in zones]
    most = 0
    for part in parts:
        count = _take(left, part)
        if not count:
            return 0
        most = max(most, count)
    return most


def _take(left: MutableSequence[int], part: int) -> int:
    """Take *part* from the fewest zones: the lowest one that can hold it, else the largest first."""
    for zone, free in enumerate(left):
        if free >= part:
            left[zone] -= part
            return 1
    if sum(left) < part:
        return 0
    count = 0
    for zone in sorted(range(len(left)), key=lambda zone: -left[zone]):
        count += 1
        taken = min(part, left[zone])
        left[zone] -= taken
        part -= taken
        if not part:
            break
    return count
