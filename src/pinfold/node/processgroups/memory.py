"""The NUMA nodes from which the processes of a group get memory: its cpuset.mems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.node import cgroupfiles as files
from pinfold.node.grouperrors import GroupError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pinfold.core.machine.cpuset import CPUSet

_MEMS: Final = "cpuset.mems"
_MIGRATE: Final = "cpuset.memory_migrate"
"""Only in v1, where pages stay unless it is 1; v2 always moves them."""


def set_memory(places: Sequence[Path], nodes: CPUSet | None) -> None:
    """Let a group, the first of its *places*, have memory of these NUMA nodes only; None: of all.

    Memory that its processes have already moves there as far as possible.
    """
    if not places:
        if nodes is None:
            return
        raise GroupError("memory of chosen NUMA nodes needs cgroups; this daemon sets the affinity of threads only")
    file, is_v1 = places[0] / _MEMS, (places[0] / _MIGRATE).exists()
    if is_v1:
        files.write(places[0] / _MIGRATE, "1" if nodes is not None else "0")
    if nodes is not None:
        files.write_cpus(file, nodes)
    elif is_v1:
        files.write_cpus(file, files.read_cpus(places[0].parent / _MEMS))
    else:
        files.write_once(file, "")
