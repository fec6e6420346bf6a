"""What should be, out of a State: the CPUs of the shared pool and of each container that has some of its own.

And what is not so: the differences between that and what a runtime says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pinfold.core.pods import ContainerRef

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pinfold.core.cpuset import CPUSet
    from pinfold.core.state import State


class Wanted(NamedTuple):
    """The CPUs that everything is meant to run on."""

    shared: CPUSet
    exclusive: Mapping[ContainerRef, CPUSet]

    def cpus_of(self, container: ContainerRef) -> CPUSet:
        """Return the CPUs of a container: its own, or the shared ones."""
        return self.exclusive.get(container, self.shared)


class Observed(NamedTuple):
    """The CPUs that everything runs on, as the kernel or the container runtime says."""

    shared: CPUSet | None
    """None: there is no pool of its own to be seen."""
    containers: Mapping[ContainerRef, CPUSet]


class Drift(NamedTuple):
    """A difference between what should be and what is; without a container it is the shared pool's."""

    container: ContainerRef | None
    wanted: CPUSet
    found: CPUSet

    def __str__(self) -> str:
        who = (
            "the shared pool"
            if self.container is None
            else f"container {self.container.name} of pod {self.container.pod}"
        )
        return f"{who} has CPUs {self.found or 'none'} instead of {self.wanted}"


def wanted(state: State) -> Wanted:
    """Return what should be."""
    exclusive = {
        ContainerRef(pod, name): cpus
        for pod, containers in state.assignments.items()
        for name, cpus in containers.items()
    }
    return Wanted(state.shared, exclusive)


def drift(want: Wanted, observed: Observed) -> Iterator[Drift]:
    """Yield what is not as it should be, the shared pool first."""
    if observed.shared is not None and observed.shared != want.shared:
        yield Drift(None, want.shared, observed.shared)
    for container, found in observed.containers.items():
        if found != want.cpus_of(container):
            yield Drift(container, want.cpus_of(container), found)
