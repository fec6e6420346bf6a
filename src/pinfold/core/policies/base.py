"""What a policy is: the Policy protocol and the values it returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.moving.repacking import Repacking
    from pinfold.core.moving.resizing import Resizing
    from pinfold.core.pods.pod import Container, ContainerRef, Pod
    from pinfold.core.policies.pools import Pools
    from pinfold.core.state import State
    from pinfold.core.topologymanager.hint import Hints
    from pinfold.core.trace import Defect, Recorder
    from pinfold.errors import AdmissionError


class Decision(NamedTuple):
    """The next State. *cpus* are the container's exclusive CPUs, None if it has none."""

    state: State
    cpus: CPUSet | None = None
    refusal: AdmissionError | None = None
    """A refusal that changes the State all the same: only the kubelet has one. All others are raised."""


class Kept(NamedTuple):
    """A State that fits, and the Assignments that could not be part of it."""

    state: State
    lost: Mapping[ContainerRef, CPUSet]


class Policy(Protocol):
    """Decides which CPUs a container gets. The same inputs always give the same Decision.

    A *recorder* collects the steps of the decision and never changes it.
    """

    @property
    def name(self) -> str:
        """The policy's name, as users write it."""
        ...

    @property
    def reserved(self) -> CPUSet:
        """The CPUs that are never exclusive."""
        ...

    @property
    def allocatable(self) -> CPUSet:
        """The CPUs that can be exclusive."""
        ...

    @property
    def kept_apart(self) -> CPUSet:
        """The reserved CPUs that are not in the shared pool."""
        ...

    @property
    def pools(self) -> Pools:
        """Which CPUs containers share, which stay idle, and which can be given."""
        ...

    @property
    def resizing(self) -> Resizing | None:
        """The rules for containers that grow or shrink while they run; None if the policy assigns no CPUs."""
        ...

    @property
    def repacking(self) -> Repacking | None:
        """The rules for containers that move while they run; None if they stay where they are."""
        ...

    @property
    def pod_level(self) -> bool:
        """Whether pods with pod-level resources get exclusive CPUs (the gate `PodLevelResourceManagers`)."""
        ...

    @property
    def defects(self) -> tuple[tuple[Defect, str], ...]:
        """The kubelet's defects with this policy on this machine, for any request."""
        ...

    def request(self, pod: Pod, container: Container) -> int:
        """Return how many exclusive CPUs the container must have; 0 puts it into the shared pool."""
        ...

    def start(self, state: State) -> State:
        """Return the State to start with: *state* if it fits this node, the first State if it has no CPUs."""
        ...

    def keep(self, found: State) -> Kept:
        """Return a sound State that keeps as much of *found* as the rules allow."""
        ...

    def hints(self, state: State, pod: Pod, container: Container) -> Hints | None:
        """Return the hints of the container; None if it has no preference."""
        ...

    def pod_hints(self, state: State, pod: Pod) -> Hints | None:
        """Return the hints for all containers of the pod together."""
        ...

    def admit(
        self,
        state: State,
        pod: Pod,
        container: Container,
        affinity: int | None = None,
        recorder: Recorder | None = None,
    ) -> Decision:
        """Give the container its CPUs, near the NUMA nodes of the mask *affinity*, or raise an AdmissionError."""
        ...

    def admit_pod(
        self, state: State, pod: Pod, affinity: int | None = None, recorder: Recorder | None = None
    ) -> Decision:
        """Give a pod with pod-level resources its CPUs, and its containers their parts."""
        ...

    def release(self, state: State, container: ContainerRef) -> Decision:
        """Take the CPUs of a container back, except those that another container of the pod still uses."""
        ...
