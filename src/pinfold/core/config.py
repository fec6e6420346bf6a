"""Config: policy, options, reserved CPUs, Topology Manager, checked together against a machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self, TypeVar

from pinfold.core.admission import Admitter, Scope
from pinfold.core.allocators.order import Fidelity, Machine
from pinfold.core.gosyntax import go_quote
from pinfold.core.machine.cpuset import EMPTY
from pinfold.core.policies.none import NonePolicy
from pinfold.core.policies.options import OPTIONS, POD_LEVEL, REFERENCE, parse_options
from pinfold.core.policies.pools import Pools
from pinfold.core.policies.reserving import arrangement_of, reserve
from pinfold.core.policies.static import DYNAMIC, StaticPolicy
from pinfold.core.topologymanager.manager import TopologyManager
from pinfold.core.topologymanager.options import TopologyPolicy
from pinfold.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.machine.topology import Topology
    from pinfold.core.policies.base import Policy
    from pinfold.core.policies.options import Options
    from pinfold.core.trace import Recorder


_Built = TypeVar("_Built")


@dataclass(frozen=True, slots=True)
class Reservation:
    """CPUs that are never exclusive: an amount, or listed CPUs.

    >>> from pinfold.core.machine.cpuset import CPUSet
    >>> Reservation.of(CPUSet.of(0, 1)).count, Reservation(milli=1500).count
    (2, 2)
    """

    milli: int | None = None
    """CPU reserved for kubelet and system together; the static policy chooses whole CPUs for it."""
    cpus: CPUSet | None = None

    @classmethod
    def of(cls, cpus: CPUSet) -> Self:
        """Return the reservation of exactly these CPUs."""
        return cls(len(cpus) * 1000, cpus)

    @property
    def count(self) -> int:
        """The number of whole CPUs."""
        return -(-(self.milli or 0) // 1000)

    def problems(self) -> list[Problem]:
        """Return why the static policy cannot use this reservation."""
        why = "reserve at least one CPU: without one, the shared pool could become empty"
        advice = f"{why}; name it with --reserved-cpus or reservedSystemCPUs"
        if self.milli is None:
            return [Problem("[cpumanager] unable to determine reserved CPU resources for static policy", advice)]
        if self.milli <= 0:
            required = "systemreserved.cpu + kubereserved.cpu to be greater than zero"
            return [Problem(f"[cpumanager] the static policy requires {required}", advice)]
        return []


NOT_SAID: Final = Reservation()


@dataclass(frozen=True, slots=True)
class Config:
    """The operator's settings, with the kubelet's defaults; `build` checks them against a machine.

    >>> from pinfold.core.machine.cpuset import CPUSet
    >>> from pinfold.core.machine.presets import preset
    >>> config = Config("static", {"full-pcpus-only": "true"}, Reservation.of(CPUSet.of(0)))
    >>> print(config.build(preset("laptop-4")).policy.name)
    static
    >>> Config("static").build(preset("laptop-4"))
    Traceback (most recent call last):
    pinfold.errors.ConfigError: [cpumanager] unable to determine reserved CPU resources for static policy; ...
    """

    policy: str = "none"
    options: Mapping[str, str] = field(default_factory=dict)
    reserved: Reservation = NOT_SAID
    topology_policy: str = "none"
    topology_options: Mapping[str, str] = field(default_factory=dict)
    topology_scope: str = "container"
    gates: Mapping[str, bool] = field(default_factory=dict)
    fidelity: Fidelity = Fidelity.PINFOLD
    local_memory: bool = False
    """Whether pods whose annotation says nothing about it get local memory, in plans."""

    def build(self, topology: Topology) -> Admitter:
        """Return the Admitter for this machine, or raise a ConfigError with all problems."""
        problems: list[Problem] = []
        policy = _collect(problems, lambda: self.build_policy(topology))
        manager = _collect(problems, lambda: self.build_manager(topology))
        if self.topology_scope not in set(Scope):
            scopes = ", ".join(Scope)
            problems.append(Problem(f"unknown scope: {go_quote(self.topology_scope)}", f"known: {scopes}"))
        if policy is None or manager is None or problems:
            raise ConfigError(*problems)
        return Admitter(policy, manager, Scope(self.topology_scope), self.fidelity)

    def build_manager(self, topology: Topology) -> TopologyManager:
        """Return the Topology Manager; fidelity `pinfold` puts no limit on the number of NUMA nodes."""
        any_machine = self.fidelity is Fidelity.PINFOLD
        options = self.topology_options
        return TopologyManager.for_machine(self.topology_policy, options, topology, any_machine=any_machine)

    def build_policy(self, topology: Topology, recorder: Recorder | None = None) -> Policy:
        """Return the CPU Manager's policy; *recorder* collects how it chose its reserved CPUs."""
        # A kubelet does not know the policy dynamic.
        known = [name for name in POLICIES if name != DYNAMIC or self.fidelity is Fidelity.PINFOLD]
        if self.policy not in known:
            raise ConfigError(Problem(f"unknown policy: {go_quote(self.policy)}", f"known: {', '.join(known)}"))
        return POLICIES[self.policy](self, topology, recorder)


def _build_none(config: Config, _topology: Topology, _recorder: Recorder | None) -> Policy:
    if config.options:
        given = " ".join(f"{name}:{value}" for name, value in sorted(config.options.items()))
        raise ConfigError(f"None policy: received unsupported options=map[{given}]")
    return NonePolicy()


def _build_static(config: Config, topology: Topology, recorder: Recorder | None) -> Policy:
    problems = config.reserved.problems()
    known = REFERENCE if config.fidelity is Fidelity.KUBELET else OPTIONS
    options, wrong = parse_options(config.options, config.gates, known)
    problems += wrong or check_machine(options, config.topology_policy, topology)
    machine = Machine(topology, config.fidelity)
    reserved = None
    if config.reserved.count > 0:
        arrangement = arrangement_of(options, machine)
        count, cpus = config.reserved.count, config.reserved.cpus
        avoided = Pools.of(topology, EMPTY, options).isolated
        reserved = _collect(problems, lambda: reserve(machine, arrangement, count, cpus, recorder, avoided))
    if reserved is not None and config.fidelity is Fidelity.PINFOLD:
        problems += _check_pools(Pools.of(topology, reserved, options))
    if problems or reserved is None:
        raise ConfigError(*problems)
    dynamic = config.policy == DYNAMIC
    return StaticPolicy(machine, reserved, options, pod_level=POD_LEVEL.is_on(config.gates), dynamic=dynamic)


POLICIES: Mapping[str, Callable[[Config, Topology, Recorder | None], Policy]] = {
    "none": _build_none,
    "static": _build_static,
    DYNAMIC: _build_static,
}


def check_machine(options: Options, topology_policy: str, topology: Topology) -> list[Problem]:
    """Return conflicts of the options with this machine or its Topology Manager."""
    problems = []
    if options.align_by_socket:
        if topology_policy == TopologyPolicy.SINGLE_NUMA_NODE:
            # The kubelet's spelling.
            other = "single-numa-node policy is incompatible with CPUManager align-by-socket policy option"
            problems.append(Problem(f"Topolgy manager {other}"))
        if topology.counts.sockets > len(topology.numa_nodes):
            said = (
                "Align by socket is not compatible with hardware where number of sockets are more than number of NUMA"
            )
            problems.append(Problem(said))
    return problems


def _check_pools(pools: Pools) -> list[Problem]:
    """Return why containers without exclusive CPUs would have too few CPUs."""
    problems = []
    topology, reserved, options = pools.topology, pools.reserved, pools.options
    strict = options.strict_cpu_reservation
    if not strict and (both := reserved & pools.isolated):
        said = f"CPUs {both} are reserved and isolated: shared containers would run on isolated CPUs"
        problems.append(Problem(said, "reserve other CPUs, or use strict-cpu-reservation"))
    shared = topology.online - pools.isolated
    if strict and not shared - reserved:
        # differs: the kubelet starts with an empty shared pool.
        rest = topology.online - reserved
        which = f"CPUs {reserved} reserved and {rest} isolated" if rest else f"all CPUs reserved ({reserved})"
        problems.append(Problem(f"strict-cpu-reservation with {which} leaves no CPU for the shared pool"))
    most = len(shared | topology.offline) - (len(reserved) if strict else 0)
    if options.min_shared_cpus > most:
        said = f"min-shared-cpus is {options.min_shared_cpus}, but only {most} CPUs can be shared"
        problems.append(Problem(said, "use a smaller number"))
    return problems


def _collect(problems: list[Problem], build: Callable[[], _Built]) -> _Built | None:
    try:
        return build()
    except ConfigError as error:
        problems += error.problems
        return None
