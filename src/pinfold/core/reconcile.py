"""Wanted: the CPUs of the shared pool and of each container with exclusive CPUs, derived from a State.

Also the differences between Wanted and what a runtime reports, and the Steps from one to the other.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pinfold.core.machine.cpuset import EMPTY, CPUSet

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from pinfold.core.pods.pod import ContainerRef, PodUID
    from pinfold.core.state import State

NONE: Final[Mapping[ContainerRef, Any]] = MappingProxyType({})  # Any: stands for maps of different values
_MILLI: Final = 1000
_MIN_SHARES, _MAX_SHARES = 2, 262_144
_MIN_QUOTA: Final = 1000


class Limit(NamedTuple):
    """A container's CPU amounts in milli CPUs, and the kernel values that the kubelet derives from them.

    >>> small = Limit(request=250, limit=500)
    >>> small.shares, small.weight, small.quota
    (256, 10, 50000)
    """

    request: int = 0
    limit: int | None = None
    period: int = 100_000
    """The period of the quota, in microseconds."""

    @property
    def shares(self) -> int:
        """`cpu.shares` of cgroup v1."""
        return min(max(self.request * 1024 // _MILLI, _MIN_SHARES), _MAX_SHARES)

    @property
    def weight(self) -> int:
        """`cpu.weight` of cgroup v2."""
        return 1 + (self.shares - _MIN_SHARES) * 9999 // (_MAX_SHARES - _MIN_SHARES)

    @property
    def quota(self) -> int | None:
        """The microseconds of CPU time in each period; None: no limit. The kernel wants at least 1000."""
        return max(self.limit * self.period // _MILLI, _MIN_QUOTA) if self.limit else None


class Wanted(NamedTuple):
    """The CPUs that everything should run on."""

    shared: CPUSet
    exclusive: Mapping[ContainerRef, CPUSet]
    sharing: Mapping[ContainerRef, Limit] = NONE
    """The containers in the shared pool that pinfold makes cgroups for, with their weights and quotas."""
    mems: Mapping[ContainerRef, CPUSet] = NONE
    """The NUMA nodes for the memory of containers that ask for local memory; others use any node."""
    cache_classes: Mapping[ContainerRef, str] = NONE
    """The cache classes that containers with exclusive CPUs ask for."""

    def cpus_of(self, container: ContainerRef) -> CPUSet:
        """Return the CPUs of a container: its own, or the shared ones."""
        return self.exclusive.get(container, self.shared)


class Cause(StrEnum):
    """What another program has changed."""

    CPUS = "cpus"
    """The CPUs of a group, or the affinity of a process."""
    MEMBERS = "members"
    """Processes or threads were moved out of their group."""
    STRANGERS = "strangers"
    """Processes were moved into a group that is not theirs."""
    LIMIT = "limit"
    """The quota or weight."""
    CACHE = "cache"
    """Its cache ways or memory bandwidth."""
    SHIELD = "shield"
    """The CPUs of the rest of the host."""


class Fault(NamedTuple):
    """A change by another program that the CPUs alone do not show."""

    cause: Cause
    why: str


class Observed(NamedTuple):
    """The CPUs that everything runs on, as the kernel or the container runtime reports them."""

    shared: CPUSet | None
    """None: the runtime has no separate shared pool."""
    containers: Mapping[ContainerRef, CPUSet]
    faults: Mapping[ContainerRef | None, Fault] = MappingProxyType({})
    """What else is wrong with a container, or with the shared pool (None)."""


class Drift(NamedTuple):
    """A difference between wanted and actual CPUs; without a container it is the shared pool's."""

    container: ContainerRef | None
    wanted: CPUSet
    found: CPUSet
    cause: Cause = Cause.CPUS
    why: str = ""

    def said(self, pods: Mapping[PodUID, str]) -> str:
        """Return the difference in words, with the names of *pods*."""
        ref = self.container
        who = "the shared pool" if ref is None else f"container {ref.name} of pod {pods.get(ref.pod, ref.pod)}"
        return f"{who}: {self.why}" if self.why else f"{who} has CPUs {self.found or 'none'} instead of {self.wanted}"


def describe(differences: Iterable[Drift], pods: Mapping[PodUID, str]) -> str:
    """Return differences in words, with the names of *pods*."""
    return "; ".join(difference.said(pods) for difference in differences)


def wanted(state: State, shared: CPUSet) -> Wanted:
    """Return Wanted for a State whose other containers run on the CPUs *shared*."""
    return Wanted(shared, dict(state.flat()))


def drift(want: Wanted, observed: Observed) -> Iterator[Drift]:
    """Yield the differences, the shared pool first; one for each container."""
    pool: list[tuple[ContainerRef | None, CPUSet]] = [] if observed.shared is None else [(None, observed.shared)]
    faults, exclusive = observed.faults, want.exclusive
    for container, found in [*pool, *_doubtful(want, observed)]:
        wanted_cpus = want.shared if container is None else exclusive.get(container, want.shared)
        fault = faults.get(container) if faults else None
        if fault is not None:
            yield Drift(container, wanted_cpus, found, *fault)
        elif found != wanted_cpus:
            yield Drift(container, wanted_cpus, found)


def _doubtful(want: Wanted, observed: Observed) -> Collection[tuple[ContainerRef, CPUSet]]:
    """Return the containers that may have drifted: if the pool is right, not the thousand that have its own object."""
    pool, containers = observed.shared, observed.containers
    if pool != want.shared or observed.faults:
        return containers.items()
    apart = [(ref, found) for ref, found in containers.items() if found is not pool]
    return apart + [(ref, found) for ref in want.exclusive if (found := containers.get(ref)) is pool]


class Step(NamedTuple):
    """One change on the way: the CPUs that a container, or the shared pool (None), has from then on."""

    container: ContainerRef | None
    cpus: CPUSet
    clash: CPUSet = EMPTY
    """CPUs that another container still has: only if containers exchange CPUs and no CPU is free in between."""


def steps(now: Wanted, want: Wanted) -> list[Step]:
    """Return the Steps from *now* to *want*, ordered so that no container gets CPUs that another still has.

    Containers of one pod may share CPUs. Containers that lose their exclusive CPUs have left them before.

    >>> from pinfold.core.pods.pod import ContainerRef
    >>> app = ContainerRef("u1", "app")
    >>> for step in steps(Wanted(CPUSet.parse("0-3"), {}), Wanted(CPUSet.parse("0,2-3"), {app: CPUSet.of(1)})):
    ...     print("shared" if step.container is None else step.container.name, step.cpus)
    shared 0,2-3
    app 1
    """
    target = _parties(want)
    have = {who: cpus for who, cpus in _parties(now).items() if who in target}
    taken: list[Step] = []
    for who, cpus in have.items():
        kept = cpus & target[who]
        if kept and kept != cpus:
            taken.append(Step(who, kept))
    have.update((step.container, step.cpus) for step in taken)
    while left := [who for who in target if have.get(who) != target[who]]:
        step = _next(left, have, target)
        taken.append(step)
        have[step.container] = step.cpus
    return taken


def _parties(wanted: Wanted) -> dict[ContainerRef | None, CPUSet]:
    return dict([(None, wanted.shared), *wanted.exclusive.items()])


def _next(
    left: list[ContainerRef | None],
    have: Mapping[ContainerRef | None, CPUSet],
    target: Mapping[ContainerRef | None, CPUSet],
) -> Step:
    """Return a Step onto free CPUs, else one that makes room for others, else an exchange."""
    aside = None
    for who in left:
        clash = target[who] & _others(who, have)
        if not clash:
            return Step(who, target[who])
        free = target[who] - clash
        if aside is None and free and not have.get(who, EMPTY) & target[who]:
            aside = Step(who, free)
    return aside or Step(left[0], target[left[0]], target[left[0]] & _others(left[0], have))


def _others(who: ContainerRef | None, have: Mapping[ContainerRef | None, CPUSet]) -> CPUSet:
    cpus = EMPTY
    for other, theirs in have.items():
        alike = other is who if other is None or who is None else other.pod == who.pod
        if not alike:
            cpus |= theirs
    return cpus
