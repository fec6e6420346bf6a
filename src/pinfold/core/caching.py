"""Cache classes: how much of the L3 cache and of the memory bandwidth containers may use.

Knows nothing of resctrl: `node.resctrl` sets what is decided here.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import ContainerRef
    from pinfold.core.reconcile import Wanted

EXCLUSIVE: Final = "exclusive"
"""The class of containers with exclusive CPUs that ask for no other."""
SHARED: Final = "shared"
"""The class of everything else on the machine."""


class CacheClass(NamedTuple):
    """A row of the table: ways of the L3 cache as a mask, and memory bandwidth in percent; None is no limit."""

    ways: int | None = None
    bandwidth: int | None = None


class CacheUsage(NamedTuple):
    """How much cache and memory bandwidth a container uses; None where the hardware does not count it."""

    container: ContainerRef
    occupancy: int | None
    """Bytes of the L3 cache."""
    traffic: int | None
    """Bytes from and to memory since its group was made."""


class UnknownCacheClass(NamedTuple):
    """A container that asks for a class that is not in the table."""

    container: ContainerRef
    name: str


class CachePlan(NamedTuple):
    """The containers of each class with their CPUs, and those that ask for a class that does not exist."""

    members: Mapping[str, Mapping[ContainerRef, CPUSet]]
    unknown: tuple[UnknownCacheClass, ...] = ()


def overlaps(table: Mapping[str, CacheClass]) -> list[Problem]:
    """Return the classes that share ways of the cache: each would slow the other.

    >>> print(*overlaps({"gold": CacheClass(0xF0), "shared": CacheClass(0x1F)}))
    cache classes gold and shared overlap in ways 0x10; give each its own ways
    """
    return [
        Problem(f"cache classes {one} and {other} overlap in ways {both:#x}", "give each its own ways")
        for one, other in combinations(table, 2)
        if (both := (table[one].ways or 0) & (table[other].ways or 0))
    ]


def plan_caches(table: Mapping[str, CacheClass], want: Wanted) -> CachePlan:
    """Return which containers with exclusive CPUs belong to which class."""
    members: dict[str, dict[ContainerRef, CPUSet]] = {}
    unknown = []
    for ref, cpus in want.exclusive.items():
        name = want.cache_classes.get(ref, EXCLUSIVE if EXCLUSIVE in table else "")
        if name == SHARED:
            continue
        if name in table:
            members.setdefault(name, {})[ref] = cpus
        elif name:
            unknown.append(UnknownCacheClass(ref, name))
    return CachePlan(members, tuple(unknown))
