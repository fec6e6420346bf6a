"""A machine in one line, and remarks about it, for people to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from pinfold.core.machine.devices import describe_devices

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.machine.topology import Topology

_COUNTED: Final = (("socket", "sockets", 2), ("NUMA node", "NUMA nodes", 3), ("L3", "L3", 4), ("core", "cores", 1))


def summary(topology: Topology) -> str:
    """Return the machine in one line.

    >>> from pinfold.core.machine.presets import preset
    >>> print(summary(preset("epyc-9654-2s-nps4")))
    2 sockets · 8 NUMA nodes · 24 L3 · 192 cores · 384 CPUs, SMT2
    """
    rows = topology.cpus
    known = [_count({row[i] for row in rows}, one, many) for one, many, i in _COUNTED]
    if topology.memory_only:
        nodes = {row.numa for row in rows} | set(topology.memory_only)
        known[1] = f"{_count(nodes, 'NUMA node', 'NUMA nodes')} ({len(topology.memory_only)} memory-only)"
    cpus = [_plural(len(rows), "CPU", "CPUs"), *_threads(topology)]
    cpus += [f"{len(cpus)} {word}" for cpus, word in _states(topology) if cpus]
    return " · ".join([*known, ", ".join(cpus)])


class Remark(NamedTuple):
    """A line about the machine, and its subject."""

    about: Literal["isolated", "offline", "memory", "cores", "devices"]
    text: str


def remarks(topology: Topology) -> list[Remark]:
    """Return what the boxes of *topology* do not show, one line each; none for most machines.

    >>> from pinfold.core.machine.presets import preset
    >>> [remark.text for remark in remarks(preset("gb200"))]
    ['NUMA nodes without CPUs: 2-33']
    """
    found: list[Remark] = []
    if topology.isolated:
        found.append(Remark("isolated", f"Isolated: {topology.isolated}"))
    if topology.offline:
        found.append(Remark("offline", f"Offline: {topology.offline} (location unknown)"))
    if topology.memory_only:
        found.append(Remark("memory", f"NUMA nodes without CPUs: {_ranges(topology.memory_only)}"))
    if any(row.core is None for row in topology.cpus):
        found.append(Remark("cores", "CPUs with an unknown core are drawn as separate cores"))
    if topology.devices:
        found.append(Remark("devices", f"Devices: {'; '.join(describe_devices(topology.devices))}"))
    return found


def _count(labels: set[int | None], one: str, many: str) -> str:
    number = len(labels - {None})
    if not number:
        return f"{many} unknown"
    return _plural(number, one, many) + (" + unknown" if None in labels else "")


def _ranges(numbers: Iterable[int]) -> str:
    """Return ascending *numbers* as a list; not by mask, because ids of NUMA nodes can be huge."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _plural(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _threads(topology: Topology) -> list[str]:
    """Return how many CPUs the cores have, for the summary; nothing if the machine does not report cores."""
    sizes = [core.mask.bit_count() for core in topology.cores]
    if any(row.core is None for row in topology.cpus) or not sizes:
        return []
    low, high = min(sizes), max(sizes)
    return ["no SMT" if high == 1 else f"SMT{high}" if low == high else f"SMT{low}-{high}"]


def _states(topology: Topology) -> tuple[tuple[CPUSet, str], ...]:
    return (topology.offline, "offline"), (topology.isolated, "isolated")
