"""Built-in machines by name, and any regular machine by its shape, for examples, tests and plans."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pinfold.core.machine.shapes import SHAPES
from pinfold.core.machine.topology import Facts, Topology
from pinfold.errors import ParseError, excerpt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_CPUS: Final = 65536
MAX_NODES: Final = 1024
LEVELS: Final = ("sockets", "numa", "l3", "cores", "threads")
# As in the firmware tables of most two-socket servers; the kernel's unit is 10 = local.
LOCAL, SAME_SOCKET, REMOTE = 10, 12, 32


def preset(name: str) -> Topology:
    """Return the machine called *name*, or of that shape.

    A shape lists its levels from the outside in, each with a count per group of the level before; levels left out
    have the count 1. CPUs are numbered as on most servers: one thread of every core, then the other threads.

    >>> len(preset("epyc-9654-2s").cores), len(preset("sockets:2,numa:2,l3:4,cores:4,threads:2").cpus)
    (192, 128)
    >>> [str(node.cpus) for node in preset("sockets:1,l3:1,numa:2,cores:2").numa_nodes]
    ['0-1', '2-3']
    """
    if name in _BUILDERS:
        return _BUILDERS[name]()
    if name in SHAPES:
        return from_shape(SHAPES[name])
    if ":" in name:
        return from_shape(name)
    names = preset_names()
    within = [each for each in names if name and name.lower() in each]
    import difflib  # noqa: PLC0415 - only for mistakes

    close = within[:3] or difflib.get_close_matches(name[:40], names, n=3, cutoff=0.5) or [*names[:3], "…"]
    shape = f"or a shape such as {SHAPES['laptop-4']}"
    raise ParseError(f"unknown machine {excerpt(name)}; try {', '.join(close)} (`pinfold presets` lists all), {shape}")


def preset_names() -> list[str]:
    """Return the names of all built-in machines."""
    return sorted([*SHAPES, *_BUILDERS])


def from_shape(text: str) -> Topology:
    """Return the regular machine of this shape."""
    counts = _parse_shape(text)
    sockets, numa, l3, inner, threads = (counts[level] for level in LEVELS)
    caches = max(l3, 1)
    # Of numa and l3 the one named first is the outer one: it spans all cores of the groups inside it.
    outer = next(level for level in counts if level in {"numa", "l3"})
    per_numa, per_cache = (inner * caches, inner) if outer == "numa" else (inner, inner * numa)
    per_socket = inner * numa * caches
    total = sockets * per_socket
    cores = [sum(1 << core + t * total for t in range(threads)) for core in range(total)]
    nodes = _blocks(cores, per_numa)
    return Topology.from_groups(
        Facts(
            online=(1 << total * threads) - 1,
            cores=cores,
            sockets=_blocks(cores, per_socket),
            numa_nodes=nodes,
            uncore_caches=_blocks(cores, per_cache) if l3 else {},
            distances=_distances(len(nodes), len(nodes) // sockets),
        )
    )


def _hybrid(p_cores: int, e_cores: int) -> Topology:
    """Return a laptop or desktop with two kinds of cores: SMT2 ones first, with adjacent CPUs, then single ones."""
    p_cpus = 2 * p_cores
    cores = [3 << cpu for cpu in range(0, p_cpus, 2)] + [1 << cpu for cpu in range(p_cpus, p_cpus + e_cores)]
    everything = (1 << p_cpus + e_cores) - 1
    one = {0: everything}
    facts = Facts(everything, cores, sockets=one, numa_nodes=one, uncore_caches=one, distances={0: {0: LOCAL}})
    return Topology.from_groups(facts)


def _gb200() -> Topology:
    """Return two Grace CPUs with 16 memory nodes of the GPUs each: 34 NUMA nodes, of which two have CPUs."""
    grace = from_shape("sockets:2,numa:1,l3:1,cores:72,threads:1")
    sockets = len(grace.sockets)
    nodes = range(sockets + 32)
    socket_of = [*range(sockets), *(node // 16 for node in range(32))]

    def distance(a: int, b: int) -> int:
        if a == b:
            return LOCAL
        beside_gpu = max(a, b) >= sockets
        return (80 if beside_gpu else 40) * (2 if beside_gpu and socket_of[a] != socket_of[b] else 1)

    distances = {a: {b: distance(a, b) for b in nodes} for a in nodes}
    return Topology(cpus=grace.cpus, memory_only=tuple(nodes[sockets:]), distances=distances)


_BUILDERS: Final[Mapping[str, Callable[[], Topology]]] = {
    "i7-12850hx": lambda: _hybrid(8, 8),
    "gb200": _gb200,
}


def _blocks(cores: list[int], size: int) -> dict[int, int]:
    return {i: sum(cores[i * size : (i + 1) * size]) for i in range(len(cores) // size)}


def _distances(nodes: int, per_socket: int) -> dict[int, dict[int, int]]:
    def distance(a: int, b: int) -> int:
        return LOCAL if a == b else SAME_SOCKET if a // per_socket == b // per_socket else REMOTE

    return {a: {b: distance(a, b) for b in range(nodes)} for a in range(nodes)}


def _parse_shape(text: str) -> dict[str, int]:
    """Return the count of each level, in the order in which numa and l3 nest."""
    counts: dict[str, int] = {}
    at = 0
    for part in text.split(","):
        match = re.fullmatch(r"([a-z0-9]+):([0-9]{1,5})", part)
        if match is None or match[1] not in LEVELS or match[1] in counts:
            problem = f"expected LEVEL:COUNT with each level once, of {', '.join(LEVELS)}"
            raise ParseError(problem, text=text, at=at)
        counts[match[1]] = int(match[2])
        if not counts[match[1]] and match[1] != "l3":
            raise ParseError(f"a machine has at least one of {match[1]}", text=text, at=at)
        at += len(part) + 1
    order = [level for level in counts if level in {"numa", "l3"}] if "numa" in counts else ["numa"]
    rank = {level: LEVELS.index("numa" if level == "l3" else level) for level in LEVELS}
    if list(counts) != sorted(counts, key=rank.__getitem__):
        raise ParseError(f"levels go from the outside in: {', '.join(LEVELS)} (numa and l3 either way)", text=text)
    full = {level: counts.get(level, 1) for level in dict.fromkeys([*order, *LEVELS])}
    total = 1
    for count in full.values():
        total *= max(count, 1)
    if total > MAX_CPUS:
        raise ParseError(f"{total:,} CPUs are more than {MAX_CPUS:,}", text=text)
    if full["sockets"] * full["numa"] * (max(full["l3"], 1) if next(iter(full)) == "l3" else 1) > MAX_NODES:
        raise ParseError(f"more than {MAX_NODES:,} NUMA nodes", text=text)
    return full
