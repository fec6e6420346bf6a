"""hwloc XML (`lstopo machine.xml`), formats 1, 2 and 3 → Topology.

Interprets the objects; `hwlocxml` reads them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pinfold.core.machine.cpuset import MAX_CPU, format_list
from pinfold.core.machine.topology import Facts, Topology
from pinfold.errors import ParseError, excerpt
from pinfold.formats.machine.hwlocxml import MAX_ID, read_document

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pinfold.formats.machine.hwlocxml import Element, HwlocDocument


def parse_hwloc(text: str) -> Topology:
    """Return the machine of an hwloc XML document.

    hwloc attaches memory without CPUs to the nearest CPUs: a CPU belongs to the NUMA node with the smallest set that
    has it, the lowest one if there are several; nodes without such CPUs are NUMA nodes without CPUs.

    >>> machine = parse_hwloc('''<topology version="2.0">
    ...   <object type="Machine" cpuset="0x3" complete_cpuset="0x7">
    ...     <object type="NUMANode" os_index="0" cpuset="0x3"/>
    ...     <object type="PU" os_index="0"/><object type="PU" os_index="1"/>
    ...   </object>
    ... </topology>''')
    >>> print(machine.online, machine.offline, machine.cpus[1])
    0-1 2 CPUInfo(cpu=1, core=None, socket=None, numa=0, uncore=None)
    """
    document = read_document(text)
    online, offline = _online(document)
    nodes = _nodes(document.of_type("NUMANode"))
    return Topology.from_groups(
        Facts(
            online=online,
            cores=[mask for _, mask in _groups(document.of_type("Core"), online)],
            sockets=_named(_groups(document.of_type("Package"), online)),
            numa_nodes=_own_cpus(nodes, online),
            uncore_caches=_named(_groups(document.uncore_caches(), online)),
            offline=offline,
            distances=_distances(document),
        )
    )


def _online(document: HwlocDocument) -> tuple[int, int]:
    """Return the CPUs that are online and those that are offline."""
    if document.machine is None:
        raise ParseError("no object found; expected at least the machine")
    cpuset = document.machine.mask("cpuset")
    # Only format 1 has online_cpuset: there cpuset may hold CPUs that are offline.
    running = cpuset & document.machine.mask("online_cpuset", default=cpuset)
    online = running & document.machine.mask("allowed_cpuset", default=cpuset) & _pus(document.of_type("PU"))
    if not online:
        raise ParseError("no CPUs found; expected PU objects inside the cpuset of the machine")
    return online, document.machine.mask("complete_cpuset", default=cpuset) & ~running


def _pus(pus: Iterable[Element]) -> int:
    mask = 0
    for pu in pus:
        cpu = pu.required("os_index", MAX_CPU)
        if mask >> cpu & 1:
            pu.fail(f"PU {cpu} is a duplicate")
        mask |= 1 << cpu
    return mask


def _groups(objects: Iterable[Element], online: int) -> list[tuple[int | None, int]]:
    """Return id and online CPUs of each, in the order of their lowest CPUs; objects of one type never overlap."""
    found = []
    seen = 0
    for thing in objects:
        number, mask = thing.number("os_index"), thing.mask("cpuset") & online
        if mask & seen:
            thing.fail(f"CPUs {format_list(mask & seen)} are in two objects of type {thing.type}")
        seen |= mask
        if mask:
            found.append((number, mask))
    return sorted(found, key=lambda group: group[1] & -group[1])


def _named(groups: Sequence[tuple[int | None, int]]) -> dict[int, int]:
    """Return the groups by their ids if each has one of its own, else numbered in the order given."""
    named = {number: mask for number, mask in groups if number is not None}
    return named if len(named) == len(groups) else dict(enumerate(mask for _, mask in groups))


def _nodes(objects: Iterable[Element]) -> dict[int, int]:
    """Return the CPUs near each NUMA node, in the order of the document."""
    nodes: dict[int, int] = {}
    for thing in objects:
        number = thing.required("os_index")
        if number in nodes:
            thing.fail(f"NUMA node {number} is a duplicate")
        nodes[number] = thing.mask("cpuset")
    return nodes


def _own_cpus(nodes: Mapping[int, int], online: int) -> dict[int, int]:
    owned = {}
    rest = online
    for number in sorted(nodes, key=lambda number: ((nodes[number] & online).bit_count(), number)):
        owned[number] = nodes[number] & rest
        rest &= ~nodes[number]
    return dict(sorted(owned.items()))


def _distances(document: HwlocDocument) -> dict[int, dict[int, int]]:
    nodes = document.of_type("NUMANode")
    for matrix in document.matrices:
        count = matrix.required("nbobjs")
        if not count or (matrix.type == "distances" and count != len(nodes)):
            continue
        order = _order(matrix, nodes)
        values = [_distance(matrix, word) for word in matrix.values]
        if len(order) != count or len(values) != count**2:
            matrix.fail(f"expected {count**2} distances of {count} NUMA nodes, found {len(values)} of {len(order)}")
        rows = (values[i : i + count] for i in range(0, count**2, count))
        return {node: dict(zip(order, row, strict=True)) for node, row in zip(order, rows, strict=True)}
    return {}


def _order(matrix: Element, nodes: Sequence[Element]) -> list[int]:
    """Return the NUMA nodes in the order of the matrix; in format 1 that is the order of the document."""
    if matrix.type == "distances":
        return [node.required("os_index") for node in nodes]
    key = "gp_index" if matrix.attributes.get("indexing") == "gp" else "os_index"
    numbers = {node.attributes.get(key): node.required("os_index") for node in nodes}
    order = []
    for word in matrix.indexes:
        if word not in numbers:
            matrix.fail(f"expected the {key} of each NUMA node once, found {excerpt(word)}")
        order.append(numbers.pop(word))
    return order


def _distance(matrix: Element, word: str) -> int:
    value = _float(word) * _float(matrix.attributes.get("latency_base", "1"))
    if not 0 <= value <= MAX_ID:
        matrix.fail(f"expected a distance, found {excerpt(word)}")
    return round(value)


def _float(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return math.nan
