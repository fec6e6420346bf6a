"""State: which container has which CPUs, as one immutable value.

Knows nothing of machines or policies: `check` gets the node's CPUs as arguments.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.core.pods.pod import ContainerRef

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pinfold.core.pods.pod import PodUID


# Shared by all States that have nothing of a kind; read-only.
NOTHING: Final[Mapping[PodUID, Any]] = MappingProxyType({})  # Any: stands for maps of different values


class State(NamedTuple):
    """The shared pool and all Assignments. A Policy maps a State to the next; nothing else changes one."""

    shared: CPUSet
    """CPUs of no container (the kubelet's file calls it the default CPU set).

    Containers without an Assignment run on them, except where an option keeps them off some (`Policy.pools`).
    """
    assignments: Mapping[PodUID, Mapping[str, CPUSet]] = NOTHING
    """Exclusive CPUs by pod and container."""
    pods: Mapping[PodUID, CPUSet] = NOTHING
    """CPUs of pods that were assigned as a whole (pod-level resources); their containers divide them."""
    baselines: Mapping[PodUID, Mapping[str, CPUSet]] = NOTHING
    """CPUs of containers before an in-place resize; kept for the kubelet's file."""
    reusable: Mapping[PodUID, CPUSet] = NOTHING
    """CPUs of finished init containers that later containers of the same pod may reuse. Lost at a restart."""

    @classmethod
    def new(cls) -> State:
        """Return the State of a node that has none yet; a Policy's `start` turns it into the first one."""
        return cls(EMPTY)

    def cpus(self, pod: PodUID, container: str) -> CPUSet | None:
        """Return the exclusive CPUs of a container, None if it has none."""
        return self.assignments.get(pod, {}).get(container)

    def cpus_of_pod(self, pod: PodUID) -> CPUSet:
        """Return all exclusive CPUs of a pod's containers."""
        mask = 0
        for cpus in self.assignments.get(pod, {}).values():
            mask |= cpus.mask
        return CPUSet(mask)

    def flat(self) -> Iterator[tuple[ContainerRef, CPUSet]]:
        """Yield every Assignment, by the identity of its container."""
        for pod, containers in self.assignments.items():
            for name, cpus in containers.items():
                yield ContainerRef(pod, name), cpus

    def of_pod(self, pod: PodUID) -> Iterator[tuple[ContainerRef, CPUSet]]:
        """Yield the Assignments of one pod."""
        for name, cpus in self.assignments.get(pod, {}).items():
            yield ContainerRef(pod, name), cpus

    @property
    def exclusive(self) -> CPUSet:
        """All CPUs that belong to a container or pod."""
        mask = 0
        for cpus in self.pods.values():
            mask |= cpus.mask
        for containers in self.assignments.values():
            for cpus in containers.values():
                mask |= cpus.mask
        return CPUSet(mask)

    def taken(self, cpus: CPUSet) -> State:
        """Return the State in which no pod may reuse *cpus*: a running container has got them."""
        if not self.reusable:
            return self
        left = {pod: theirs - cpus for pod, theirs in self.reusable.items()}
        return self._replace(reusable={pod: theirs for pod, theirs in left.items() if theirs} or NOTHING)

    def restarted(self) -> State:
        """Return the part of the State that survives a restart of the daemon."""
        return self._replace(reusable=NOTHING)

    def check(self, online: CPUSet, *, kept_apart: CPUSet = EMPTY, idle: CPUSet = EMPTY) -> list[str]:
        """Return the broken invariants, in words; none means the State is sound.

        *kept_apart* are reserved CPUs that strict-cpu-reservation keeps out of the shared pool, *idle* are siblings of
        exclusive CPUs on which nothing runs.
        """
        return [*self._broken(kept_apart), *self._uncovered(online, kept_apart | idle)]

    def _broken(self, kept_apart: CPUSet) -> Iterator[str]:
        if not self.shared:
            yield "the shared pool is empty"
        owners: dict[PodUID, CPUSet] = {}
        for pod in dict.fromkeys((*self.assignments, *self.pods)):
            mine = self.cpus_of_pod(pod) | self.pods.get(pod, EMPTY)
            if pod in self.pods and not self.cpus_of_pod(pod) <= self.pods[pod]:
                yield f"pod {pod} has containers on {self.cpus_of_pod(pod) - self.pods[pod]}, outside of its own CPUs"
            if mine & self.shared:
                yield f"pod {pod} has CPUs {mine & self.shared}, which are also shared"
            if mine & kept_apart:
                yield f"pod {pod} has CPUs {mine & kept_apart}, which are reserved"
            for other, theirs in owners.items():
                if mine & theirs:
                    yield f"pods {pod} and {other} both have CPUs {mine & theirs}"
            owners[pod] = mine
        if self.shared & kept_apart:
            yield f"CPUs {self.shared & kept_apart} are shared, but reserved strictly"

    def _uncovered(self, online: CPUSet, unused: CPUSet) -> Iterator[str]:
        covered = self.shared | self.exclusive | unused
        if covered - online:
            yield f"CPUs {covered - online} are in use, but not online"
        if online - covered:
            yield f"CPUs {online - covered} belong to no pool or container"
