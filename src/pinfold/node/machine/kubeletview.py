"""The machine as the kubelet's own discovery sees it, mistakes included; needed to plan exactly for its node.

The kubelet (through cAdvisor) names a core by (NUMA node, package id, core_id), leaves out CPUs in no node or without
these ids, takes the package id for the NUMA node where there are no nodes, and takes the socket for the uncore cache
where a cache has no id file or is shared, by its shared_cpu_map, by as many CPUs as its NUMA node has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.machine.cpuset import EMPTY, CPUSet, cpus_of
from pinfold.core.machine.topology import CPUInfo, Topology
from pinfold.node.machine.sysfs import SYSTEM, read_distances, read_isolated, read_nodes, read_online, uncore_directory
from pinfold.node.machine.tree import NoCPUs, Tree

if TYPE_CHECKING:
    from pathlib import Path


def discover_as_kubelet(root: Path) -> Topology:
    """Return the machine whose /sys is below *root*, as a kubelet there would see it."""
    tree = Tree(root, SYSTEM)
    online, present = read_online(tree)
    # Only s390 has a polarization file; its kubelet also wants to know book and drawer.
    required = ["core_id", "physical_package_id"]
    s390 = any(tree.exists(f"cpu/cpu{cpu}/polarization") for cpu in cpus_of(online | present))
    if s390:
        required += ["book_id", "drawer_id"]
    ids = {cpu: _ids(tree, cpu, required) for cpu in cpus_of(online)}
    known = {cpu: found for cpu, found in ids.items() if found is not None}
    if not known:
        raise NoCPUs(root, "the kubelet finds no CPUs here: none has all of " + ", ".join(required))
    nodes = read_nodes(tree, online)
    by_node = _cpus_by_node(nodes, known)
    # A CPU that two nodes claim ends up in the last one.
    rows = {row.cpu: row for node, cpus in by_node.items() for row in _rows(tree, node, cpus, s390=s390)}
    if not rows:
        raise NoCPUs(root, "the kubelet finds no CPUs here: none is in a NUMA node")
    seen = CPUSet.from_cpus(rows)
    return Topology(
        cpus=tuple(sorted(rows.values())),
        offline=CPUSet(present & ~online),
        isolated=CPUSet(read_isolated(tree)),
        memory_only=tuple(sorted(node for node, mask in nodes.items() if not mask & seen.mask)),
        distances=read_distances(tree, nodes),
        warnings=(*tree.warnings, *_warnings(CPUSet(online) - seen)),
    )


def _warnings(unseen: CPUSet) -> tuple[str, ...]:
    return (f"CPUs {unseen}: online, but the kubelet does not see them",) if unseen != EMPTY else ()


def _ids(tree: Tree, cpu: int, required: list[str]) -> tuple[int, ...] | None:
    found = tuple(tree.number(f"cpu/cpu{cpu}/topology/{name}") for name in required)
    return None if None in found else tuple(number for number in found if number is not None)


def _cpus_by_node(nodes: dict[int, int], known: dict[int, tuple[int, ...]]) -> dict[int, dict[int, tuple[int, ...]]]:
    if nodes:
        return {node: {cpu: known[cpu] for cpu in cpus_of(mask) if cpu in known} for node, mask in nodes.items()}
    by_package: dict[int, dict[int, tuple[int, ...]]] = {}
    for cpu, ids in known.items():
        by_package.setdefault(ids[1], {})[cpu] = ids
    return by_package


def _rows(tree: Tree, node: int, cpus: dict[int, tuple[int, ...]], *, s390: bool) -> list[CPUInfo]:
    cores: dict[tuple[int, ...], list[int]] = {}
    for cpu, ids in cpus.items():
        cores.setdefault(ids, []).append(cpu)
    rows = []
    for ids, threads in cores.items():
        socket = ids[1]
        uncore = _uncore(tree, threads[0], len(cpus), s390=s390)
        rows += [CPUInfo(cpu, min(threads), socket, node, socket if uncore is None else uncore) for cpu in threads]
    return rows


def _uncore(tree: Tree, cpu: int, cpus_in_node: int, *, s390: bool) -> int | None:
    cache = uncore_directory(tree, cpu)
    if cache is None:
        return None
    name = tree.number(f"{cache}/id")
    if name is None and not s390:
        return None
    return None if _sharing(tree, cache) == cpus_in_node else (name or 0)


def _sharing(tree: Tree, cache: str) -> int:
    """Return the number of CPUs that share the cache; the kubelet reads the map, even where the map is wrong."""
    mask = tree.mask([], [f"{cache}/shared_cpu_map"])
    if mask is None:  # A recorded tree can be without it, where the machine was not.
        mask = tree.mask([f"{cache}/shared_cpu_list"], [])
    return (mask or 0).bit_count()
