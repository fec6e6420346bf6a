"""How CPUs are taken as the options say, and the CPUs that are reserved: chosen as a container's would be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.allocators.order import Arrangement, Machine
from pinfold.core.allocators.packed import take_packed
from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from pinfold.core.policies.options import Options
    from pinfold.core.trace import Recorder


def reserve(  # noqa: PLR0913, PLR0917 - all that the choice depends on
    machine: Machine,
    arrangement: Arrangement,
    count: int,
    cpus: CPUSet | None = None,
    recorder: Recorder | None = None,
    avoided: CPUSet = EMPTY,
) -> CPUSet:
    """Return the reserved CPUs: those listed, or *count* CPUs chosen as a container's would be, none of *avoided*."""
    if cpus is None:
        free = machine.online & ~avoided.mask
        take = allocator_of(arrangement)
        cpus = CPUSet(take(machine, free, count, arrangement, recorder)) if count <= free.bit_count() else EMPTY
    if len(cpus) != count:
        said = f"[cpumanager] unable to reserve the required amount of CPUs (size of {cpus} did not equal {count})"
        raise ConfigError(Problem(said, f"the machine has CPUs {machine.topology.online}"))
    for cpu in cpus:
        if not machine.online >> cpu & 1:
            cause = f"unknown CPU ID: {cpu}"
            raise ConfigError(f"[cpumanager] unable to build the reserved physical CPUs from the reserved set: {cause}")
    return cpus


def arrangement_of(options: Options, machine: Machine) -> Arrangement:
    """Return how to spread the CPUs of a request, as the options say."""
    group = machine.cpus_per_core if options.full_pcpus_only else 1
    return Arrangement(
        spread=options.distribute_cpus_across_cores,
        uncore=options.prefer_align_cpus_by_uncorecache,
        group=group if options.distribute_cpus_across_numa else 0,
        align_by_socket=options.align_by_socket,
    )


def allocator_of(arrangement: Arrangement) -> Callable[[Machine, int, int, Arrangement, Recorder | None], int]:
    """Return the Allocator for an arrangement."""
    if not arrangement.group:
        return take_packed
    from pinfold.core.allocators.distributed import take_distributed  # noqa: PLC0415 - few nodes spread CPUs

    return take_distributed
