"""What a policy is: the Policy protocol and the Decision it returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pinfold.core.trace import Recorder, Trace
from pinfold.errors import AdmissionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pinfold.core.cpuset import CPUSet
    from pinfold.core.hints import Hints
    from pinfold.core.pods import Container, ContainerRef, Pod
    from pinfold.core.state import State

    # What was decided by and with: the function and its arguments, to be called once more with a recorder.
    Retake = tuple[Callable[..., object], *tuple[object, ...]]


class Decision:
    """The next State and why. *cpus* are the container's exclusive CPUs, None if it has none of its own."""

    __slots__ = ("_retake", "before", "cpus", "state")

    def __init__(self, state: State, cpus: CPUSet | None = None, retake: Retake | None = None) -> None:
        self.state = state
        self.cpus = cpus
        self._retake = retake
        self.before: Retake | None = None
        """What was asked before the policy was: the Topology Manager's part of the Trace."""

    @property
    def trace(self) -> Trace:
        """The steps that were taken: the decision is taken once more to find out, so that nobody else pays for it."""
        return _retaken(self.before, self._retake)

    def __repr__(self) -> str:
        return f"Decision(cpus={self.cpus!r}, state={self.state!r})"


def trace_of(refusal: AdmissionError) -> Trace:
    """Return the steps that were taken before a request was refused."""
    return _retaken(refusal.before, refusal.retake)


def _retaken(*retakes: Retake | None) -> Trace:
    recorder = Recorder()
    for retake in retakes:
        if retake is not None:
            decide, *inputs = retake
            try:
                decide(*inputs, recorder)
            except AdmissionError as refusal:
                recorder.step(f"refused with {refusal.reason}", 0, str(refusal))
    return recorder.trace()


class Policy(Protocol):
    """Decides which CPUs a container gets. The same inputs always give the same Decision."""

    @property
    def name(self) -> str:
        """The policy's name, as users write it."""
        ...

    def start(self, state: State) -> State:
        """Return the State to begin with: the one that was found (without CPUs: none was), if it fits this node."""
        ...

    def hints(self, state: State, pod: Pod, container: Container) -> Hints | None:
        """Return the NUMA nodes on which the container could be; None if it does not matter."""
        ...

    def pod_hints(self, state: State, pod: Pod) -> Hints | None:
        """Return the NUMA nodes on which all containers of the pod could be together."""
        ...

    def admit(self, state: State, pod: Pod, container: Container, affinity: int | None = None) -> Decision:
        """Give the container its CPUs, on the NUMA nodes of the mask *affinity* if it can be; or raise why not."""
        ...

    def admit_pod(self, state: State, pod: Pod, affinity: int | None = None) -> Decision:
        """Give a pod with pod-level resources its CPUs as a whole, and its containers their parts."""
        ...

    def release(self, state: State, container: ContainerRef) -> Decision:
        """Take the CPUs of a container back, except those that another container of the pod still uses."""
        ...
