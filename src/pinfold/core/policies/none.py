"""Policy `none`: nobody gets exclusive CPUs; no account of CPUs is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.core.policies.base import Decision

if TYPE_CHECKING:
    from pinfold.core.hints import Hints
    from pinfold.core.pods import Container, ContainerRef, Pod
    from pinfold.core.state import State


class NonePolicy:
    """Leaves everything as it is."""

    name: Final = "none"

    def start(self, state: State) -> State:
        """Return the State as it was found."""
        return state

    def hints(self, state: State, pod: Pod, container: Container) -> Hints | None:  # noqa: ARG002 - the protocol
        """Return None: the container may be anywhere."""
        return None

    def pod_hints(self, state: State, pod: Pod) -> Hints | None:  # noqa: ARG002 - the protocol
        """Return None: the pod may be anywhere."""
        return None

    def admit(self, state: State, pod: Pod, container: Container, affinity: int | None = None) -> Decision:  # noqa: ARG002 - the protocol
        """Admit without giving anything."""
        return Decision(state)

    def admit_pod(self, state: State, pod: Pod, affinity: int | None = None) -> Decision:  # noqa: ARG002 - the protocol
        """Admit without giving anything."""
        return Decision(state)

    def release(self, state: State, container: ContainerRef) -> Decision:  # noqa: ARG002 - the protocol
        """Release nothing: nothing was given."""
        return Decision(state)
