"""MachineInfo, the JSON of cAdvisor (and of a kubelet, at /spec) about its machine → Topology.

Two readings of the same document: `parse_cadvisor` returns the real machine; `parse_cadvisor_as_kubelet` returns the
result of the kubelet's own discovery, with its mistakes, for planning that kubelet's node.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from pinfold.core.machine.topology import Counts, Facts, Topology
from pinfold.errors import ParseError, excerpt
from pinfold.formats.machine.topologyjson import MOST_CPUS, check_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_MAX_TEXT: Final = 1 << 24
_MAX_OBJECTS: Final = 4 * MOST_CPUS  # each core has a few caches
_MAX_NODES: Final = 1024  # as in Linux
_MAX_ID: Final = 2**31 - 1
# Levels 1 and 2 belong to cores; 0 is how Go writes a level that is not set.
_CORE_LEVELS: Final = (1, 2)
_UNKNOWN: Final = -1  # the kernel's value, which cAdvisor passes on


def parse_cadvisor(text: str) -> Topology:
    """Return the machine of a MachineInfo.

    A cache that a whole NUMA node shares is listed at the node, others at the cores. If an id names several caches,
    ids are ignored, and the caches are numbered in the order of their lowest CPUs.

    >>> machine = parse_cadvisor('''{"num_cores": 2, "topology": [{"node_id": 0, "cores": [
    ...     {"core_id": 4, "thread_ids": [0, 1], "socket_id": 1, "uncore_caches": [{"id": 7, "level": 3}]}]}]}''')
    >>> machine.cpus[1]
    CPUInfo(cpu=1, core=0, socket=1, numa=0, uncore=7)
    >>> parse_cadvisor('{"topology": [{"node_id": 0, "cores": [{"thread_ids": ["0"]}]}]}')
    Traceback (most recent call last):
    pinfold.errors.ParseError: topology[0].cores[0].thread_ids[0]: expected a whole number, found "0"
    """
    nodes = sorted(_nodes(_load(text)), key=lambda node: node.id)
    cores = [core for node in nodes for core in node.cores]
    _check_ids(nodes)
    if not any(core.cpus for core in cores):
        raise ParseError("no CPUs found; expected topology[].cores[].thread_ids[]")
    warnings: list[str] = []
    return Topology.from_groups(
        Facts(
            online=sum(core.mask for core in cores),
            cores=[core.mask for core in cores],
            sockets=_sockets(cores),
            numa_nodes={node.id: sum(core.mask for core in node.cores) for node in nodes},
            uncore_caches=_uncore_caches(nodes),
            distances=_distances(nodes, warnings),
            warnings=warnings,
        )
    )


def parse_cadvisor_as_kubelet(text: str) -> Topology:
    """Return the rows that a kubelet computes from a MachineInfo (upstream: topology.Discover).

    Where the document contradicts itself the last entry wins. The kubelet takes the numbers of CPUs and sockets from
    their own fields and not from the lists; if the two differ, the Topology and a warning say so.
    """
    document = _load(text)
    cpus, sockets = document.number("num_cores") or 0, document.number("num_sockets") or 0
    if cpus == 0:
        raise ParseError("could not detect number of cpus")
    nodes = _nodes(document)
    counts = Counts(cpus, sum(len(node.cores) for node in nodes), sockets)
    rows = {cpu: row for node in nodes for core in node.cores for cpu, row in _kubelet_rows(node, core)}
    listed = Counts(len(rows), len({row[1] for row in rows.values()}), len({row[2] for row in rows.values()}))
    warnings = []
    if listed != counts:
        said = "the kubelet counts {} CPUs, {} cores and {} sockets, but {}, {} and {} are listed"
        warnings.append(said.format(*counts, *listed))
    return replace(
        Topology.from_rows(rows.values()),
        memory_only=tuple(sorted({node.id for node in nodes} - {row[3] for row in rows.values()})),
        distances=_distances(sorted(nodes, key=lambda node: node.id), warnings),
        counted=None if listed == counts else counts,
        warnings=tuple(warnings),
    )


def _kubelet_rows(node: _Node, core: _Core) -> Iterator[tuple[int, tuple[int, int, int, int, int]]]:
    if not core.cpus:
        raise ParseError("no cpus provided")
    if len(set(core.cpus)) < len(core.cpus):
        raise ParseError("cpus provided are not unique")
    socket = core.socket or 0
    uncore = core.caches[0].id if core.caches else socket
    for cpu in core.cpus:
        yield cpu, (cpu, min(core.cpus), socket, node.id, uncore)


class _Cache(NamedTuple):
    id: int
    level: int


class _Core(NamedTuple):
    where: str
    cpus: list[int]
    mask: int
    socket: int | None
    caches: list[_Cache]


class _Node(NamedTuple):
    where: str
    id: int
    cores: list[_Core]
    caches: list[_Cache]
    distances: list[int]


def _nodes(document: _Field) -> list[_Node]:
    listed = list(document.items("topology"))
    if len(listed) > _MAX_NODES:
        raise ParseError(f"{len(listed):,} NUMA nodes; {_MAX_NODES:,} are allowed", where="topology")
    return [
        _Node(
            where=node.path,
            id=node.number("node_id", lowest=_UNKNOWN) or 0,
            cores=[_core(core) for core in node.items("cores")],
            caches=_caches(node, "caches"),
            distances=[distance.as_number() for distance in node.items("distances")],
        )
        for node in listed
    ]


def _core(core: _Field) -> _Core:
    cpus = [cpu.as_number(highest=MOST_CPUS - 1) for cpu in core.items("thread_ids")]
    return _Core(
        where=core.path,
        cpus=cpus,
        mask=sum(1 << cpu for cpu in set(cpus)),
        socket=core.number("socket_id", lowest=_UNKNOWN),
        caches=_caches(core, "uncore_caches"),
    )


def _caches(owner: _Field, name: str) -> list[_Cache]:
    return [_Cache(cache.number("id", lowest=_UNKNOWN) or 0, cache.number("level") or 0) for cache in owner.items(name)]


def _check_ids(nodes: Sequence[_Node]) -> None:
    """Raise if a NUMA node or a CPU is listed twice, or a node has no number."""
    seen_nodes: set[int] = set()
    seen_cpus: set[int] = set()
    for node in nodes:
        if node.id in seen_nodes or node.id < 0:
            raise ParseError(f"expected a unique NUMA node, found {node.id}", where=f"{node.where}.node_id")
        seen_nodes.add(node.id)
        for core in node.cores:
            for i, cpu in enumerate(core.cpus):
                if cpu in seen_cpus:
                    raise ParseError(f"CPU {cpu} is listed twice", where=f"{core.where}.thread_ids[{i}]")
                seen_cpus.add(cpu)


def _uncore_caches(nodes: Sequence[_Node]) -> dict[int, int]:
    # Caches of two nodes differ, even with the same id; at cores the same id is the same cache.
    caches: dict[tuple[int, int, int], int] = {}
    for node in nodes:
        whole = _first(node.caches)
        for core in node.cores:
            near = _first(core.caches)
            cache = whole if near is None or (whole is not None and whole.level < near.level) else near
            if cache is not None:
                key = (cache.level, node.id if cache is whole else _UNKNOWN, cache.id)
                caches[key] = caches.get(key, 0) | core.mask
    named = {number: mask for (_, _, number), mask in caches.items() if number >= 0}
    if len(named) == len(caches):
        return named
    return dict(enumerate(sorted(caches.values(), key=lambda mask: mask & -mask)))


def _first(caches: Sequence[_Cache]) -> _Cache | None:
    """Return the uncore cache of the lowest level."""
    uncore = [cache for cache in caches if cache.level not in _CORE_LEVELS]
    return min(uncore, key=lambda cache: cache.level, default=None)


def _distances(nodes: Sequence[_Node], warnings: list[str]) -> dict[int, dict[int, int]]:
    distances = {}
    for node in nodes:
        if len(node.distances) == len(nodes):
            distances[node.id] = {other.id: value for other, value in zip(nodes, node.distances, strict=True)}
        elif node.distances:
            problem = f"expected {len(nodes)} numbers, found {len(node.distances)}; ignored"
            warnings.append(f"{node.where}.distances: {problem}")
    return distances


def _sockets(cores: Sequence[_Core]) -> dict[int, int]:
    masks: dict[int, int] = {}
    for core in cores:
        if core.socket is not None and core.socket != _UNKNOWN:
            masks[core.socket] = masks.get(core.socket, 0) | core.mask
    return masks


class _Field(NamedTuple):
    """A value in the document and its path; null and missing are the same, as in Go."""

    path: str
    value: object

    def get(self, name: str) -> _Field:
        if not isinstance(self.value, dict):
            self.fail("an object")
        return _Field(f"{self.path}.{name}".lstrip("."), self.value.get(name))

    def items(self, name: str) -> Iterator[_Field]:
        field = self.get(name)
        if field.value is None:
            return
        if not isinstance(field.value, list):
            field.fail("a list")
        for i, item in enumerate(field.value):
            yield _Field(f"{field.path}[{i}]", item)

    def number(self, name: str, lowest: int = 0) -> int | None:
        field = self.get(name)
        return None if field.value is None else field.as_number(lowest=lowest)

    def as_number(self, *, lowest: int = 0, highest: int = _MAX_ID) -> int:
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            self.fail("a whole number")
        if not lowest <= self.value <= highest:
            raise ParseError(f"expected a number from {lowest} to {highest}", where=self.path)
        return self.value

    def fail(self, expected: str) -> NoReturn:
        found = excerpt(self.value) if isinstance(self.value, str) else _KINDS.get(type(self.value), "a number")
        raise ParseError(f"expected {expected}, found {found}", where=self.path)


_KINDS: Final[Mapping[type, str]] = {dict: "an object", list: "a list", bool: "true or false", type(None): "null"}


def _load(text: str) -> _Field:
    if len(text) > _MAX_TEXT:
        raise ParseError(f"MachineInfo of {len(text):,} characters; {_MAX_TEXT:,} are allowed")
    if text.count("{") > _MAX_OBJECTS:
        raise ParseError(f"MachineInfo with more than {_MAX_OBJECTS:,} objects")
    check_values(text)
    try:
        value: object = json.loads(text, parse_constant=_no_constant, parse_int=_whole)
    except json.JSONDecodeError as error:
        raise ParseError(f"not JSON: {error.msg}", where=f"line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise ParseError("not a MachineInfo: nested too deeply") from None
    document = _Field("", value)
    if not isinstance(value, dict):
        raise ParseError("not a MachineInfo: expected an object at the top")
    return document


def _no_constant(name: str) -> NoReturn:
    raise ParseError(f"not JSON: {name}")


def _whole(digits: str) -> int:
    # Python refuses to convert very long numbers, and no field here needs this length.
    return int(digits[:20])
