"""The pools of a node: which CPUs containers share, which stay idle, and which can be given.

Without pinfold's own options the shared pool is the State's, and no CPU is idle. With them, isolated CPUs that have no
owner stay out of the shared pool, and so do the siblings of CPUs that were given with isolate-smt-siblings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pinfold.core.allocators.cores import lowest
from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.core.policies.options import DEFAULT
from pinfold.errors import AdmissionError

if TYPE_CHECKING:
    from typing import Self

    from pinfold.core.machine.topology import Topology
    from pinfold.core.policies.options import Options
    from pinfold.core.state import State


class EmptySharedPoolError(AdmissionError):
    """The request would take the last CPU that shared containers can run on."""

    reason = "EmptySharedPoolError"

    def __init__(self, wanted: int, shared: CPUSet) -> None:
        super().__init__(
            f"{wanted} CPUs would empty the shared pool (CPUs {shared}): with strict-cpu-reservation the reserved CPUs "
            "are not part of it, and containers without exclusive CPUs would have nowhere to run"
        )
        self.wanted = wanted
        self.shared = shared


class MinSharedCPUsError(AdmissionError):
    """The request would take CPUs that min-shared-cpus keeps for shared containers."""

    reason = "MinSharedCPUsError"

    def __init__(self, wanted: int, shared: CPUSet, least: int) -> None:
        super().__init__(
            f"{wanted} of the {len(shared)} CPUs of the shared pool ({shared}) are too many: "
            f"min-shared-cpus keeps {least} of them, so at most {max(0, len(shared) - least)} can be taken"
        )
        self.wanted = wanted
        self.shared = shared
        self.least = least


class Pools(NamedTuple):
    """The pools of a node under its options."""

    topology: Topology
    reserved: CPUSet = EMPTY
    options: Options = DEFAULT
    isolated: CPUSet = EMPTY
    """The isolated CPUs, if an option keeps them for containers that ask for them."""

    @classmethod
    def of(cls, topology: Topology, reserved: CPUSet, options: Options) -> Self:
        """Return the pools of a machine."""
        kept = options.offers("prefer-isolated-cpus", "require-isolated-cpus")
        isolated = topology.isolated & topology.online if kept else EMPTY
        return cls(topology, reserved, options, isolated)

    def seen(self, topology: Topology) -> Topology:
        """Return the machine as containers see it: without siblings that are always idle."""
        return topology.without_smt if self.options.isolate_smt_siblings else topology

    def shared(self, state: State) -> CPUSet:
        """Return the CPUs on which containers without exclusive CPUs run."""
        return state.shared - self.isolated if self.isolated else state.shared

    def idle(self, state: State) -> CPUSet:
        """Return the siblings of exclusive CPUs on which nothing runs (isolate-smt-siblings)."""
        if not self.options.offers("isolate-smt-siblings"):
            return EMPTY
        exclusive = state.exclusive
        return self.topology.siblings(exclusive) - exclusive - state.shared - self.reserved

    def with_idle(self, state: State, cpus: CPUSet) -> CPUSet:
        """Return exclusive CPUs, and the idle ones on the same cores."""
        idle = self.idle(state)
        return cpus | self.topology.siblings(cpus) & idle if idle else cpus

    def assignable(self, state: State) -> CPUSet:
        """Return the CPUs that can be given now to a container that asks for no option by annotation."""
        return CPUSet(self.free(state.shared.mask, self.options))

    def free(self, shared: int, options: Options) -> int:
        """Return the unowned CPUs that a pod with these options can be given."""
        free = shared & ~self.reserved.mask
        if options.require_isolated_cpus:
            free &= self.isolated.mask
        elif not options.prefer_isolated_cpus:
            free &= ~self.isolated.mask
        if options.isolate_smt_siblings:
            free = sum(core.mask & -core.mask for core in self.topology.cores if not core.mask & ~free)
        return free

    @property
    def allocatable(self) -> CPUSet:
        """The CPUs that can be exclusive."""
        return CPUSet(self.free(self.topology.online.mask, self.options))

    @property
    def offered(self) -> CPUSet:
        """The CPUs that can be exclusive at the same time: without the highest ones that min-shared-cpus keeps.

        Only the number of kept CPUs is fixed; which CPUs they are depends on the assignments.
        """
        every = self.allocatable
        if not self.options.min_shared_cpus:
            return every
        size = self.topology.threads_per_core if self.options.isolate_smt_siblings else 1
        apart = self.reserved if self.options.strict_cpu_reservation else EMPTY
        most = (len(self.topology.online - apart - self.isolated) - self.options.min_shared_cpus) // size
        return every & self.isolated | CPUSet(lowest((every - self.isolated).mask, max(0, most)))

    def check_left(self, state: State, occupied: CPUSet) -> None:
        """Raise if too few CPUs would be left to share."""
        shared = self.shared(state)
        taken = shared & occupied
        if not taken:
            return
        if len(shared - taken) < self.options.min_shared_cpus:
            raise MinSharedCPUsError(len(taken), shared, self.options.min_shared_cpus)
        if taken == shared:
            raise EmptySharedPoolError(len(taken), shared)
