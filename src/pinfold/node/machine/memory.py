"""Memory and hugepages of each NUMA node, in a sysfs tree, live or recorded."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.pods.quantity import Quantity
from pinfold.node.machine.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_NODES: Final = "sys/devices/system/node"
_LINE: Final = re.compile(r"Node [0-9]+ ([A-Za-z_()]+): +([0-9]{1,15}) kB")
_RECLAIMABLE: Final = ("MemFree", "Active(file)", "Inactive(file)", "SReclaimable")
"""What the kernel can give to a program without moving another one's memory to a disk."""

_PAGE_SIZES: Final = (64, 1024, 2048, 16384, 32768, 524288, 1048576, 2097152, 16777216)
"""In kB, of all architectures."""


class NodeMemory(NamedTuple):
    """The memory of one NUMA node, in bytes."""

    total: int
    available: int
    hugepages: Mapping[int, tuple[int, int]]
    """By size: all pages and the free ones."""


def read_memory(root: Path) -> dict[int, NodeMemory]:
    """Return the memory of each NUMA node of the machine whose /sys is below *root*; none where it is not told."""
    tree = Tree(root, _NODES)
    found = {}
    for node in tree.numbered("", "node"):
        lines = dict(_LINE.findall(tree.text(f"node{node}/meminfo") or ""))
        if "MemTotal" not in lines:
            continue
        available = sum(int(lines.get(name, 0)) for name in _RECLAIMABLE)
        found[node] = NodeMemory(int(lines["MemTotal"]) << 10, available << 10, _hugepages(tree, node))
    return found


def memory_resources(root: Path) -> tuple[dict[int, dict[str, int]], dict[int, dict[str, int]]]:
    """Return memory and hugepages of each NUMA node in bytes, under their names in Kubernetes: all, and available."""
    total, available = {}, {}
    for node, memory in read_memory(root).items():
        pages = {f"hugepages-{_shown(size)}": (size, counts) for size, counts in memory.hugepages.items() if counts[0]}
        huge = {name: size * count for name, (size, (count, _)) in pages.items()}
        free = {name: size * count for name, (size, (_, count)) in pages.items()}
        total[node] = {"memory": max(memory.total - sum(huge.values()), 0), **huge}
        available[node] = {"memory": memory.available, **free}
    return total, available


def _shown(size: int) -> str:
    return Quantity.from_milli(size * 1000).format(binary=True)


def nodes_with_memory(root: Path) -> CPUSet | None:
    """Return the NUMA nodes that have memory; None if the machine whose /sys is below *root* does not tell."""
    return CPUSet.from_cpus(node for node, memory in read_memory(root).items() if memory.total) or None


def _hugepages(tree: Tree, node: int) -> dict[int, tuple[int, int]]:
    found = {}
    for size in _PAGE_SIZES:
        path = f"node{node}/hugepages/hugepages-{size}kB"
        if not tree.exists(path):
            continue
        both = [max(tree.number(f"{path}/{name}") or 0, 0) for name in ("nr_hugepages", "free_hugepages")]
        found[size << 10] = (both[0], both[1])
    return found
