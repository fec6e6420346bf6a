"""Topology: CPUs, cores, uncore caches, NUMA nodes and sockets of one machine, asked by mask.

Does not know its source: sysfs, hwloc, lscpu, cAdvisor or a preset says which CPUs form which group, and
`Topology.from_groups` makes the value that all decisions use.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Self

from pinfold.core.machine.cpuset import EMPTY, CPUSet, cpus_of, format_list

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pinfold.core.machine.devices import Device


class Group(NamedTuple):
    """A core, uncore cache, NUMA node or socket: its id and the mask of its CPUs."""

    id: int
    mask: int

    @property
    def cpus(self) -> CPUSet:
        """The CPUs of the group."""
        return CPUSet(self.mask)


class Counts(NamedTuple):
    """The kubelet's own counts, which can differ from what it lists."""

    cpus: int
    cores: int
    sockets: int


class CPUInfo(NamedTuple):
    """The groups of one online CPU; None where the machine does not report one."""

    cpu: int
    core: int | None
    socket: int | None
    numa: int | None
    uncore: int | None


@dataclass(frozen=True, slots=True)
class Facts:
    """What a source reports; groups are masks by id and may be incomplete, overlap, or name CPUs not online.

    A core needs no id (it is named by its lowest CPU). A CPU in no group of a kind has an unknown group of that kind.
    """

    online: int
    cores: Sequence[int] = ()
    sockets: Mapping[int, int] = field(default_factory=dict)
    numa_nodes: Mapping[int, int] = field(default_factory=dict)
    uncore_caches: Mapping[int, int] = field(default_factory=dict)
    offline: int = 0
    isolated: int = 0
    distances: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    warnings: Sequence[str] = ()


@dataclass(frozen=True)
class Topology:
    """The CPUs of a machine and their groups. Two are equal when they describe the same machine.

    Rows are what the machine reports. The groups (`cores`, `uncore_caches`, `numa_nodes`, `sockets`) serve decisions:
    they cover every online CPU exactly once, in the order of their ids. Where a row says None, the groups assume, in
    this order: a core of its own; one common socket; one common NUMA node; one uncore cache for each socket.

    >>> from pinfold.core.machine.presets import preset
    >>> machine = preset("sockets:2,l3:2,cores:2,threads:2")
    >>> [str(cache.cpus) for cache in machine.uncore_caches]
    ['0-1,8-9', '2-3,10-11', '4-5,12-13', '6-7,14-15']
    >>> machine.cpus[9]
    CPUInfo(cpu=9, core=1, socket=0, numa=0, uncore=0)
    """

    cpus: tuple[CPUInfo, ...]
    offline: CPUSet = EMPTY
    isolated: CPUSet = EMPTY
    memory_only: tuple[int, ...] = ()
    """NUMA nodes without CPUs."""
    distances: Mapping[int, Mapping[int, int]] = field(default_factory=dict, hash=False)
    counted: Counts | None = None
    """Only in the kubelet's view of a machine, and only if its counts differ from its lists."""
    warnings: tuple[str, ...] = field(default=(), compare=False)
    """What was missing or contradictory in the source, and what was assumed instead."""
    devices: tuple[Device, ...] = field(default=(), compare=False)
    """Its network cards, disks and GPUs, if the source tells them; no decision looks at them."""
    resources: Mapping[int, Mapping[str, int]] = field(default_factory=dict, compare=False)
    """By NUMA node: how much it has of other resources than CPUs. Only a plan looks at them."""

    @classmethod
    def from_rows(cls, rows: Iterable[Sequence[int | None]]) -> Self:
        """Return the machine with these rows of CPU, core, socket, NUMA node and uncore cache."""
        return cls(tuple(sorted(CPUInfo(*row) for row in rows)))  # type: ignore[arg-type]  # CPU is never None

    @classmethod
    def from_groups(cls, facts: Facts) -> Self:
        """Return the machine with these groups, cut to its online CPUs; contradictions become warnings."""
        warnings = list(facts.warnings)
        cores = _label(facts.online, [(None, mask) for mask in facts.cores], "core", warnings)
        sockets = _label(facts.online, facts.sockets.items(), "socket", warnings)
        numa = _label(facts.online, facts.numa_nodes.items(), "NUMA node", warnings)
        uncore = _label(facts.online, facts.uncore_caches.items(), "uncore cache", warnings)
        rows = ((c, cores.get(c), sockets.get(c), numa.get(c), uncore.get(c)) for c in cpus_of(facts.online))
        return cls(
            cpus=tuple(CPUInfo(*row) for row in rows),
            offline=CPUSet(facts.offline & ~facts.online),
            isolated=CPUSet(facts.isolated),
            memory_only=tuple(sorted(facts.numa_nodes.keys() - set(numa.values()))),
            distances=_frozen(facts.distances),
            warnings=tuple(warnings),
        )

    def __reduce__(self) -> tuple[object, ...]:
        distances = {node: dict(row) for node, row in self.distances.items()}
        rest = (self.cpus, self.offline, self.isolated, self.memory_only, self.counted, self.warnings, self.devices)
        resources = {node: dict(row) for node, row in self.resources.items()}
        return _unpickled, (distances, *rest, resources)

    @cached_property
    def online(self) -> CPUSet:
        """The online CPUs."""
        return CPUSet.from_cpus(row.cpu for row in self.cpus)

    @cached_property
    def cores(self) -> tuple[Group, ...]:
        """All cores, each named by its lowest CPU."""
        return _groups((row.cpu if row.core is None else row.core, row.cpu) for row in self.cpus)

    @cached_property
    def sockets(self) -> tuple[Group, ...]:
        """All sockets."""
        spare = _spare(row.socket for row in self.cpus)
        return _groups((spare if row.socket is None else row.socket, row.cpu) for row in self.cpus)

    @cached_property
    def numa_nodes(self) -> tuple[Group, ...]:
        """All NUMA nodes that have CPUs."""
        spare = _spare([*self.memory_only, *(row.numa for row in self.cpus)])
        return _groups((spare if row.numa is None else row.numa, row.cpu) for row in self.cpus)

    @cached_property
    def numa_columns(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The ids and masks of the NUMA nodes, and how many CPUs the 1, 2, 3 … largest of them have together."""
        ids, masks = zip(*self.numa_nodes, strict=True)
        sizes = sorted((mask.bit_count() for mask in masks), reverse=True)
        return ids, masks, tuple(accumulate(sizes))

    @cached_property
    def uncore_caches(self) -> tuple[Group, ...]:
        """All uncore caches; where the machine reports none, one for each socket, with the socket's id."""
        known = _groups((row.uncore, row.cpu) for row in self.cpus if row.uncore is not None)
        rest = self.online.mask & ~sum(cache.mask for cache in known)
        spare = _spare(row.uncore for row in self.cpus)
        caches = list(known)
        for socket in self.sockets:
            if socket.mask & rest:
                # The kubelet names such a cache after its socket; beside real caches that id could mean another one.
                caches.append(Group(socket.id if not known else spare, socket.mask & rest))
                spare += 1
        return tuple(caches)

    @property
    def counts(self) -> Counts:
        """The numbers of CPUs, cores and sockets with which the kubelet calculates."""
        return self.counted or Counts(len(self.cpus), len(self.cores), len(self.sockets))

    @cached_property
    def core_of(self) -> Mapping[int, Group]:
        """The core of each CPU."""
        return {cpu: core for core in self.cores for cpu in cpus_of(core.mask)}

    @cached_property
    def threads_per_core(self) -> int:
        """The largest number of CPUs that a core has."""
        return max((core.mask.bit_count() for core in self.cores), default=0)

    @cached_property
    def without_smt(self) -> Topology:
        """The machine as it would be with one CPU on each core: the lowest.

        >>> from pinfold.core.machine.presets import preset
        >>> preset("sockets:2,cores:4,threads:2").without_smt == preset("sockets:2,cores:4,threads:1")
        True
        """
        first = {core.mask & -core.mask for core in self.cores}
        return replace(self, cpus=tuple(row for row in self.cpus if 1 << row.cpu in first), counted=None, warnings=())

    def siblings(self, cpus: CPUSet) -> CPUSet:
        """Return *cpus* and all CPUs on the same cores."""
        mask = cpus.mask
        return CPUSet(mask | sum(core.mask for core in self.cores if core.mask & mask))


def _unpickled(  # noqa: PLR0913, PLR0917 - the fields, in order
    distances: dict[int, dict[int, int]],
    cpus: tuple[CPUInfo, ...],
    offline: CPUSet,
    isolated: CPUSet,
    memory_only: tuple[int, ...],
    counted: Counts | None,
    warnings: tuple[str, ...],
    devices: tuple[Device, ...],
    resources: dict[int, dict[str, int]],
) -> Topology:
    return Topology(cpus, offline, isolated, memory_only, _frozen(distances), counted, warnings, devices, resources)


def _frozen(distances: Mapping[int, Mapping[int, int]]) -> Mapping[int, Mapping[int, int]]:
    return MappingProxyType({node: MappingProxyType(dict(row)) for node, row in distances.items()})


def _label(online: int, groups: Iterable[tuple[int | None, int]], kind: str, warnings: list[str]) -> dict[int, int]:
    """Return the group id of each online CPU; a CPU named by several groups stays with the first of them."""
    labels: dict[int, int] = {}
    seen = 0
    for label, mask in groups:
        fresh = mask & online & ~seen
        if both := mask & online & seen:
            name = kind if label is None else f"{kind} {label}"
            claim = f"{name} also claims CPUs {format_list(both)}, which another {kind} has"
            warnings.append(f"{claim}; the first one keeps them")
        seen |= fresh
        lowest = (fresh & -fresh).bit_length() - 1
        labels.update(dict.fromkeys(cpus_of(fresh), lowest if label is None else label))
    return labels


def _groups(pairs: Iterable[tuple[int, int]]) -> tuple[Group, ...]:
    masks: dict[int, int] = {}
    for label, cpu in pairs:
        masks[label] = masks.get(label, 0) | 1 << cpu
    return tuple(Group(label, masks[label]) for label in sorted(masks))


def _spare(labels: Iterable[int | None]) -> int:
    """Return an id that no group has: 0 where there are none."""
    return max((label for label in labels if label is not None), default=-1) + 1
