"""Snapshot: the one read model of a node, as plain data that every view renders."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.machine.topology import Topology
    from pinfold.core.pods.pod import Pod, QoS
    from pinfold.core.policies.base import Policy
    from pinfold.core.state import State


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


class Figures(NamedTuple):
    """What was counted since the daemon started."""

    journal_drops: int = 0
    """Entries that the journal could not keep."""
    drifts_repaired: int = 0
    """Differences between the actual and the wanted CPUs that were repaired."""


class Snapshot(NamedTuple):
    """What a node is like at one moment: the one value that metrics, PodResources, API, page and CLI render."""

    topology: Topology
    policy: Policy
    state: State
    pods: Sequence[Pod] = ()
    containers: Sequence[ContainerView] = ()
    """Only where it was asked for: it takes a look at every container."""
    runtime: str = "processes"
    """What runs the containers, as users write it."""
    link: tuple[str, str] = ("connected", "")
    """How the connection to it is, and what there is to say of that."""
    connected: bool = True
    """Whether it can be reached."""
    waiting: int = 0
    """How many containers run without the CPUs they should have."""
    figures: Figures = Figures()
    """What was counted since the daemon started."""
    about: Mapping[str, object] = MappingProxyType({})
    """What the daemon was started with, and under which rules it goes on."""

    @property
    def shared(self) -> CPUSet:
        """The CPUs of all containers without own ones; policy none keeps no account: all CPUs are shared."""
        return self.state.shared or self.topology.online

    @property
    def assignable(self) -> CPUSet:
        """The CPUs that can be given now."""
        return self.state.shared - self.policy.reserved

    def pools(self) -> dict[str, str]:
        """Return the CPUs of each pool, and those that are in none."""
        found = pools(self.policy, self.state, self.topology)
        return {**found, "offline": str(self.topology.offline), "isolated": str(self.topology.isolated)}


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
