"""Snapshot: the one read model of a node, as plain data that every view renders."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pinfold.core.caching import CacheUsage
    from pinfold.core.exclusivity import Score
    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.machine.topology import Topology
    from pinfold.core.pods.pod import Pod, PodUID, QoS
    from pinfold.core.policies.base import Policy
    from pinfold.core.state import State


class ContainerView(NamedTuple):
    """One container in the read model."""

    namespace: str
    pod: str
    container: str
    kind: str
    """What started it."""
    qos: QoS
    exclusive: bool
    cpus: CPUSet
    """As decided."""
    allowed: str
    """As the kernel reports them."""
    state: str
    pid: int | None = None
    restarts: int = 0
    code: int | None = None
    since: float = 0.0
    exclusivity: Mapping[str, object] | None = None
    """What others have used of its exclusive CPUs; None if it has none."""

    def data(self) -> dict[str, object]:
        """Return it as JSON-ready data."""
        return {**self._asdict(), "cpus": str(self.cpus), "since": round(self.since, 3)}


class RefusedPod(NamedTuple):
    """A pod as it asked for CPUs, and the kubelet's reason word for its refusal."""

    pod: Pod
    reason: str


class Figures(NamedTuple):
    """The counters since the daemon started."""

    journal_drops: int = 0
    """Entries that the journal could not keep."""
    drifts_repaired: int = 0
    """Differences between the actual and the wanted CPUs that were repaired."""


class Snapshot(NamedTuple):
    """A node at one moment: the value that metrics, PodResources, API, page and CLI render."""

    topology: Topology
    policy: Policy
    state: State
    pods: Sequence[Pod] = ()
    containers: Sequence[ContainerView] = ()
    """Only on request: it reads every container."""
    runtime: str = "processes"
    """What runs the containers, as users write it."""
    link: tuple[str, str] = ("connected", "")
    """The state of the connection to it, and details."""
    connected: bool = True
    """Whether it can be reached."""
    unsaved: str = ""
    """Why the disk may not have what it should; empty if it has."""
    waiting: int = 0
    """How many containers run without their exclusive CPUs."""
    refused: Mapping[PodUID, RefusedPod] = MappingProxyType({})
    """The pods that were refused and wait for a next attempt."""
    figures: Figures = Figures()
    """How many entries the journal could not write since the start."""
    cache_usage: Sequence[CacheUsage] = ()
    """What containers use of the cache and of the memory bandwidth, where resctrl counts it."""
    scores: Callable[[], Sequence[Score]] = tuple
    """How exclusive the CPUs of containers were; reads the kernel's counters when it is called."""
    about: Mapping[str, object] = MappingProxyType({})
    """The daemon's configuration."""

    @property
    def pool_cpus(self) -> dict[str, CPUSet]:
        """The CPUs of each pool, and those in no pool."""
        found = pool_cpus(self.policy, self.state, self.topology)
        return {**found, "offline": self.topology.offline, "isolated": self.topology.isolated}

    def pools(self) -> dict[str, str]:
        """Return the CPUs of each pool, and those in no pool."""
        return {name: str(cpus) for name, cpus in self.pool_cpus.items()}


def pools(policy: Policy, state: State, topology: Topology) -> dict[str, str]:
    """Return the CPUs of each pool, in words."""
    return {name: str(cpus) for name, cpus in pool_cpus(policy, state, topology).items()}


def pool_cpus(policy: Policy, state: State, topology: Topology) -> dict[str, CPUSet]:
    """Return the CPUs of each pool, as the KEP names them, and what can be exclusive at all."""
    return {
        "online": topology.online,
        "shared": policy.pools.shared(state) or topology.online,  # policy none keeps no State
        "reserved": policy.reserved,
        "assignable": policy.pools.assignable(state),
        "exclusive": state.exclusive,
        "idle": policy.pools.idle(state),
        "allocatable": policy.pools.offered,
    }
