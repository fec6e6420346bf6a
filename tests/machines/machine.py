"""Machine: a description in a few lines, and the Topology that it must give in every format.

A description says what is true (the groups, by the ids a reader must find) and, in Files, how Linux tells it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.topology import Facts, Topology

Groups = Mapping[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Which sysfs files there are, and what they say where it is not simply the truth."""

    masks: tuple[str, ...] = ("list", "map")
    node_masks: tuple[str, ...] = ("list", "map", "links")
    cpu_lists: bool = True
    """Whether cpu/online, cpu/present and cpu/possible are there."""
    topology: bool = True
    """Whether the topology directories have files in them."""
    siblings: bool = True
    """Whether CPUs name the others of their core and package."""
    old_names: bool = True
    new_names: bool = True
    package_id: int | None = None
    package_is: Literal["socket", "core", "machine"] = "socket"
    """Which CPUs the sibling files of the package name."""
    core_ids: tuple[int, ...] = ()
    die_ids: tuple[int, ...] = ()
    cluster_ids: tuple[int, ...] = ()
    book_ids: tuple[int, ...] = ()
    caches: bool = True
    uncore_level: int = 3
    cache_ids: tuple[int, ...] | None = None
    """What the id files of the uncore caches say; () if there are none."""
    uncore_lists: Literal["right", "of other CPUs"] = "right"
    uncore_maps: Literal["right", "zero"] = "right"
    untold_uncore: tuple[str, ...] = ()
    """Uncore caches whose CPUs a reader cannot find, because every file of theirs is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine. Cores are separated by spaces and include offline CPUs; nodes are as the kernel has them."""

    name: str
    cores: str
    sockets: Groups = field(default_factory=dict)
    nodes: Groups = field(default_factory=dict)
    uncore: Groups = field(default_factory=dict)
    offline: str = ""
    isolated: str = ""
    distances: tuple[tuple[int, ...], ...] = ()
    files: Files = field(default_factory=Files)
    cannot: Mapping[str, str] = field(default_factory=dict)
    """Formats that cannot tell this machine, and why."""

    @property
    def core_masks(self) -> list[int]:
        return [mask(core) for core in self.cores.split()]

    @property
    def present(self) -> int:
        return sum(self.core_masks)

    @property
    def online(self) -> int:
        return self.present & ~mask(self.offline)

    @property
    def cache_ids(self) -> list[int | None]:
        """What the files say of each uncore cache."""
        ids = self.files.cache_ids
        return list(self.uncore) if ids is None else list(ids) if ids else [None] * len(self.uncore)

    @property
    def uncore_name(self) -> str:
        return f"L{self.files.uncore_level}"

    def core_id(self, core: int) -> int:
        """Return what the files call the core at this place of the description."""
        return self.files.core_ids[core] if self.files.core_ids else core

    def socket_of(self, cpus: int) -> int | None:
        """Return the socket of some CPUs."""
        return next((socket for socket, text in self.sockets.items() if mask(text) & cpus), None)


def mask(text: str) -> int:
    return CPUSet.parse(text).mask


def expected(machine: Machine) -> Topology:
    nodes = sorted(machine.nodes)
    return Topology.from_groups(
        Facts(
            online=machine.online,
            cores=machine.core_masks if machine.files.topology else [],
            sockets={socket: mask(text) for socket, text in machine.sockets.items()},
            numa_nodes={node: mask(machine.nodes[node]) for node in nodes},
            uncore_caches={cache: mask(text) for cache, text in machine.uncore.items()},
            offline=mask(machine.offline),
            isolated=mask(machine.isolated),
            distances={
                node: dict(zip(nodes, row, strict=True)) for node, row in zip(nodes, machine.distances, strict=False)
            },
        )
    )
