"""Policy `none`: no container gets exclusive CPUs, and the State stays empty."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.core.machine.cpuset import EMPTY
from pinfold.core.machine.topology import Topology
from pinfold.core.policies.base import Decision, Kept
from pinfold.core.policies.pools import Pools
from pinfold.core.state import State

if TYPE_CHECKING:
    from pinfold.core.pods.pod import Container, ContainerRef, Pod
    from pinfold.core.topologymanager.hint import Hints
    from pinfold.core.trace import Defect, Recorder


class NonePolicy:
    """Admits every pod and assigns nothing."""

    name: Final = "none"
    reserved: Final = EMPTY
    allocatable: Final = EMPTY
    kept_apart: Final = EMPTY
    resizing: Final = None
    repacking: Final = None
    pools: Final = Pools(Topology(()))
    pod_level: Final = False
    defects: Final[tuple[tuple[Defect, str], ...]] = ()

    def request(self, pod: Pod, container: Container) -> int:  # noqa: ARG002 - the protocol
        """Return 0: every container shares."""
        return 0

    def start(self, state: State) -> State:
        """Return the State unchanged."""
        return state

    def keep(self, found: State) -> Kept:
        """Return a State without Assignments: all are lost."""
        return Kept(State.new(), dict(found.flat()))

    def hints(self, state: State, pod: Pod, container: Container) -> Hints | None:  # noqa: ARG002 - the protocol
        """Return None: the container has no preference."""
        return None

    def pod_hints(self, state: State, pod: Pod) -> Hints | None:  # noqa: ARG002 - the protocol
        """Return None: the pod has no preference."""
        return None

    def admit(
        self,
        state: State,
        pod: Pod,  # noqa: ARG002 - the protocol
        container: Container,  # noqa: ARG002
        affinity: int | None = None,  # noqa: ARG002
        recorder: Recorder | None = None,  # noqa: ARG002
    ) -> Decision:
        """Admit without an Assignment."""
        return Decision(state)

    def admit_pod(
        self,
        state: State,
        pod: Pod,  # noqa: ARG002 - the protocol
        affinity: int | None = None,  # noqa: ARG002
        recorder: Recorder | None = None,  # noqa: ARG002
    ) -> Decision:
        """Admit without an Assignment."""
        return Decision(state)

    def release(self, state: State, container: ContainerRef) -> Decision:  # noqa: ARG002 - the protocol
        """Release nothing: nothing was assigned."""
        return Decision(state)
