"""Snapshot: the one read model of a node, as plain data that every view renders."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pinfold.core.cpuset import CPUSet
    from pinfold.core.pods import QoS
    from pinfold.core.policies.base import Policy
    from pinfold.core.state import State
    from pinfold.core.topology import Topology


class ContainerView(NamedTuple):
    """What there is to say of one container."""

    namespace: str
    pod: str
    container: str
    kind: str
    """Who started it."""
    qos: QoS
    exclusive: bool
    cpus: CPUSet
    """As decided."""
    allowed: str
    """As the kernel says."""
    state: str
    pid: int | None = None
    restarts: int = 0
    code: int | None = None
    since: float = 0.0

    def data(self) -> dict[str, object]:
        """Return it as JSON-ready data."""
        return {**self._asdict(), "cpus": str(self.cpus), "since": round(self.since, 3)}


def pools(policy: Policy, state: State, topology: Topology) -> dict[str, str]:
    """Return the CPUs of each pool, as the KEP names them."""
    shared = state.shared or topology.online  # policy none keeps no account
    return {
        "online": str(topology.online),
        "shared": str(shared),
        "reserved": str(policy.reserved),
        "assignable": str(state.shared - policy.reserved),
        "exclusive": str(state.exclusive),
    }
