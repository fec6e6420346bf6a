"""Checks that a State from disk fits the machine and the reserved CPUs, when the static policy starts.

The rules and, as `reference`, the words are the kubelet's. Knows nothing of files: a State without any CPU was
never saved, and becomes the first State of the node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.state import State
from pinfold.errors import StateError

if TYPE_CHECKING:
    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import PodUID


class StateMismatch(StateError):  # noqa: N818 - the fact, as the others in this family
    """A State that does not fit the node; *reference* is the kubelet's text for it."""

    def __init__(self, message: str, reference: str) -> None:
        super().__init__(message)
        self.reference = reference


class EmptySharedPool(StateMismatch):
    """Every CPU is assigned, and the shared pool is empty."""

    def __init__(self) -> None:
        super().__init__(
            "the State has Assignments, but no CPU in the shared pool; release a container, or move the file away",
            "default cpuset cannot be empty",
        )


class ReservedNotShared(StateMismatch):
    """Reserved CPUs are not in the shared pool, although without strict-cpu-reservation they must be."""

    def __init__(self, reserved: CPUSet, shared: CPUSet) -> None:
        super().__init__(
            f"reserved CPUs {reserved - shared} are not in the shared pool {shared}; restore the previous "
            "reserved CPUs (and strict-cpu-reservation, if it was on), or release the containers on them",
            f'not all reserved cpus: "{reserved}" are present in defaultCpuSet: "{shared}"',
        )
        self.reserved = reserved
        self.shared = shared


class ReservedShared(StateMismatch):
    """Reserved CPUs are in the shared pool, although strict-cpu-reservation keeps them out."""

    def __init__(self, reserved: CPUSet, shared: CPUSet) -> None:
        super().__init__(
            f"strictly reserved CPUs {reserved & shared} are in the shared pool {shared}; restore the previous "
            "reserved CPUs, or turn strict-cpu-reservation off",
            f'some of strictly reserved cpus: "{reserved & shared}" are present in defaultCpuSet: "{shared}"',
        )
        self.reserved = reserved
        self.shared = shared


class AssignmentShared(StateMismatch):
    """An Assignment with CPUs of the shared pool."""

    def __init__(self, pod: PodUID, container: str, cpus: CPUSet, shared: CPUSet) -> None:
        super().__init__(
            f"container {container} of pod {pod} has CPUs {cpus}, but {cpus & shared} are also in the shared pool; "
            "release the container, or correct the State",
            f'pod: {pod}, container: {container} cpuset: "{cpus}" overlaps with default cpuset "{shared}"',
        )
        self.pod = pod
        self.container = container
        self.cpus = cpus
        self.shared = shared


class OtherCPUs(StateMismatch):
    """The State has other CPUs than the machine."""

    def __init__(self, expected: CPUSet, found: CPUSet) -> None:
        difference = " and ".join(
            text
            for cpus, text in (
                (found - expected, f"CPUs {found - expected} of the State are not available"),
                (expected - found, f"CPUs {expected - found} of the machine are not in the State"),
            )
            if cpus
        )
        super().__init__(
            f"{difference}; bring the CPUs online, or release the containers on them",
            f'current set of available CPUs "{expected}" doesn\'t match with CPUs in state "{found}"',
        )
        self.expected = expected
        self.found = found


def validate(state: State, *, online: CPUSet, reserved: CPUSet, strict: bool = False) -> State:
    """Return the State to start with: *state* itself if it fits, or the first one if it has no CPUs at all.

    *strict* is the option strict-cpu-reservation, which keeps reserved CPUs out of the shared pool.

    >>> from pinfold.core.machine.cpuset import CPUSet
    >>> print(validate(State(CPUSet()), online=CPUSet.parse("0-7"), reserved=CPUSet.of(0), strict=True).shared)
    1-7
    >>> validate(State(CPUSet.parse("0-3")), online=CPUSet.parse("0-7"), reserved=CPUSet.of(0))
    Traceback (most recent call last):
    pinfold.core.validation.OtherCPUs: CPUs 4-7 of the machine are not in the State; bring the CPUs online, or ...
    """
    usable = online - reserved if strict else online
    shared = state.shared
    if not shared:
        # differs: the kubelet checks only the Assignments of containers, and would put the CPUs of pods into the pool.
        if state.assignments or state.pods:
            raise EmptySharedPool
        return State(usable)
    if strict and shared & reserved:
        raise ReservedShared(reserved, shared)
    if not strict and not reserved <= shared:
        raise ReservedNotShared(reserved, shared)
    for pod, containers in state.assignments.items():
        for container, cpus in containers.items():
            if cpus & shared:
                raise AssignmentShared(pod, container, cpus, shared)
    if (known := shared | state.exclusive) != usable:
        raise OtherCPUs(usable, known)
    return state
