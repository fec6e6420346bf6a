"""Topology from a sysfs tree, live or recorded.

Where a file is missing or wrong, the next one is read, in this order:

- online: cpu/online; each cpuN/online; every cpuN directory. Offline: cpu/present (or the directories) less online.
- core: core_cpus or thread_siblings, as list or map; the same NUMA node, package, die, cluster, book, drawer and
  core_id; unknown.
- socket: physical_package_id if it is not negative, of the CPU itself, the others of its core, or those in its
  package_cpus or core_siblings; these files, if they tell more than the cores do, numbered by their lowest CPU;
  unknown.
- NUMA node: nodeN/cpulist, nodeN/cpumap, the cpuN links in nodeN, the nodeN link in cpuN; unknown.
- uncore cache: shared_cpu_list or shared_cpu_map of the first cache above level 2, named by its id file if all such
  caches have one of their own, else numbered by their lowest CPU; unknown.

A file about the core, package or cache of a CPU that leaves out this CPU is wrong. Every wrong file, and every
assumption made for want of a file, is a warning. Package ids are read for each CPU; the files of cores, packages and
caches once for each group, not for each of its CPUs.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final, TypeVar

from pinfold.core.machine.cpuset import cpus_of, format_list
from pinfold.core.machine.topology import Facts, Topology
from pinfold.errors import excerpt
from pinfold.node.machine.tree import NoCPUs, Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

_Key = TypeVar("_Key")

SYSTEM: Final = "sys/devices/system"
# firmware that does not know writes -1, which some kernels print unsigned
_UNKNOWN_ID: Final = 0xFFFFFFFF
_NO_CPUS: Final = (None, "", "(null)")
"""What is in a file about no CPUs: some kernels print a missing list."""
_LAST_CORE_LEVEL: Final = 2


def discover(root: Path) -> Topology:
    """Return the machine whose /sys is below *root*."""
    tree = Tree(root, SYSTEM)
    online, present = read_online(tree)
    if not online:
        raise NoCPUs(root, f"no CPUs found in {SYSTEM}/cpu; expected the root directory of a Linux machine or a copy")
    numa_nodes = read_nodes(tree, online)
    cores = _cores(tree, online, numa_nodes)
    return Topology.from_groups(
        Facts(
            online=online,
            cores=cores,
            sockets=_sockets(tree, online, cores),
            numa_nodes=numa_nodes,
            uncore_caches=_uncore_caches(tree, online),
            offline=present & ~online,
            isolated=read_isolated(tree),
            distances=read_distances(tree, numa_nodes),
            warnings=tree.warnings,
        )
    )


def read_online(tree: Tree) -> tuple[int, int]:
    """Return the masks of online and of present CPUs."""
    directories = _mask_of(tree.numbered("cpu", "cpu"))
    online = tree.mask(["cpu/online"], [])
    if not online:
        if directories:
            tree.warn("cpu/online", "missing; taken from cpuN/online, or every cpuN directory")
        online = _mask_of(cpu for cpu in cpus_of(directories) if tree.number(f"cpu/cpu{cpu}/online") != 0)
    elif directories and online & ~directories:
        _warn_about(tree, online & ~directories, "online, but without a directory; ignored")
        online &= directories
    present = tree.mask(["cpu/present"], [])
    return online, online | (directories if present is None else present)


def read_isolated(tree: Tree) -> int:
    """Return the mask of CPUs that the kernel keeps free of other work: isolcpus and nohz_full."""
    paths = [path for path in ("cpu/isolated", "cpu/nohz_full") if tree.text(path) not in _NO_CPUS]
    return reduce(or_, [tree.mask([path], []) or 0 for path in paths], 0)


def read_nodes(tree: Tree, online: int) -> dict[int, int]:
    """Return the CPUs of each NUMA node, also those that are offline; empty where there are no nodes."""
    nodes: dict[int, int] = {}
    for node in tree.numbered("node", "node"):
        mask = tree.mask([f"node/node{node}/cpulist"], [f"node/node{node}/cpumap"])
        nodes[node] = _mask_of(tree.numbered(f"node/node{node}", "cpu")) if mask is None else mask
    unlisted = online & ~_union(nodes)
    by_link = _nodes_by_cpu_links(tree, unlisted)
    if nodes:
        _warn_about(tree, _union(by_link), "no NUMA node lists them; taken from the node link of each CPU")
        _warn_about(tree, unlisted & ~_union(by_link), "in no NUMA node")
    return {node: nodes.get(node, 0) | by_link.get(node, 0) for node in sorted(nodes.keys() | by_link)}


def read_distances(tree: Tree, nodes: Mapping[int, int]) -> dict[int, dict[int, int]]:
    """Return the distances in sysfs; a row lists them in the order of the online nodes."""
    listed = tree.mask(["node/online"], [])
    order = sorted(nodes) if listed is None else cpus_of(listed)
    distances: dict[int, dict[int, int]] = {}
    for node in nodes:
        words = (tree.text(f"node/node{node}/distance") or "").split()
        if not words:
            continue
        if len(words) == len(order) and all(word.isdigit() and len(word) < 10 for word in words):  # noqa: PLR2004
            distances[node] = dict(zip(order, map(int, words), strict=True))
        else:
            found = excerpt(" ".join(words))
            tree.warn(f"node/node{node}/distance", f"expected {len(order)} numbers, found {found}; ignored")
    return distances


def uncore_directory(tree: Tree, cpu: int) -> str | None:
    """Return the directory of the uncore cache: the first cache above level 2."""
    caches = (f"cpu/cpu{cpu}/cache/index{index}" for index in tree.numbered(f"cpu/cpu{cpu}/cache", "index"))
    return next((cache for cache in caches if (tree.number(f"{cache}/level") or 0) > _LAST_CORE_LEVEL), None)


def _cores(tree: Tree, online: int, numa_nodes: Mapping[int, int]) -> list[int]:
    groups, missing = _groups(online, lambda cpu: _siblings(tree, cpu, "core_cpus", "thread_siblings"))
    by_id = _cores_by_id(tree, missing, numa_nodes)
    named = _union(by_id)
    _warn_about(tree, named, "no file names the CPUs of their core; taken from core_id, package and NUMA node")
    _warn_about(tree, missing & ~named, "on an unknown core; each is taken for a core of its own")
    return [*groups.values(), *by_id.values()]


def _cores_by_id(tree: Tree, cpus: int, numa_nodes: Mapping[int, int]) -> dict[tuple[int | None, ...], int]:
    """Return the cores of *cpus* by core_id and what it can repeat in: NUMA nodes, packages, dies, and so on."""
    by_id: dict[tuple[int | None, ...], int] = {}
    for cpu in cpus_of(cpus):
        core = tree.number(f"cpu/cpu{cpu}/topology/core_id")
        if core is None or core < 0:
            continue
        outer = ("physical_package_id", "die_id", "cluster_id", "book_id", "drawer_id")
        node = next((node for node, mask in numa_nodes.items() if mask >> cpu & 1), None)
        key = (node, *(tree.number(f"cpu/cpu{cpu}/topology/{name}") for name in outer), core)
        by_id[key] = by_id.get(key, 0) | 1 << cpu
    return by_id


def _sockets(tree: Tree, online: int, cores: list[int]) -> dict[int, int]:
    packages, _missing = _groups(online, lambda cpu: _siblings(tree, cpu, "package_cpus", "core_siblings"))
    sockets = _sockets_by_id(tree, online)
    _warn_of_several_ids(tree, packages.values(), sockets)
    _extend(sockets, [*cores, *packages.values()], online & ~_union(sockets))
    unnamed = [mask for mask in packages.values() if not mask & _union(sockets)]
    if set(unnamed) - set(cores):
        sockets.update(enumerate(sorted(unnamed, key=_lowest), max(sockets, default=-1) + 1))
    _warn_about(tree, online & ~_union(sockets), "in no known socket; one common socket is assumed")
    return sockets


def _sockets_by_id(tree: Tree, online: int) -> dict[int, int]:
    sockets: dict[int, int] = {}
    for cpu in cpus_of(online):
        socket = tree.number(f"cpu/cpu{cpu}/topology/physical_package_id")
        if socket is not None and 0 <= socket != _UNKNOWN_ID:
            sockets[socket] = sockets.get(socket, 0) | 1 << cpu
    return sockets


def _warn_of_several_ids(tree: Tree, packages: Iterable[int], sockets: Mapping[int, int]) -> None:
    for package in packages:
        ids = sum(1 for mask in sockets.values() if mask & package)
        if ids > 1:
            _warn_about(tree, package, f"listed as one package, but with {ids} package ids; the ids are used")


def _extend(sockets: dict[int, int], groups: Iterable[int], unnamed: int) -> None:
    """Put CPUs without a package id into the socket of the others in their group, if these are all in one."""
    for group in groups:
        ids = [socket for socket, mask in sockets.items() if mask & group] if group & unnamed else []
        if len(ids) == 1:
            sockets[ids[0]] |= group & unnamed
            unnamed &= ~group


def _uncore_caches(tree: Tree, online: int) -> dict[int, int]:
    ids: dict[int, int | None] = {}

    def shared(cpu: int) -> int | None:
        cache = uncore_directory(tree, cpu)
        if cache is None:
            return None
        ids[cpu] = tree.number(f"{cache}/id")
        return _shared(tree, cache, cpu)

    caches, _missing = _groups(online, shared)
    names = [ids[asked] for asked in caches]
    if None in names or len(set(names)) < len(names):
        order = sorted(caches.values(), key=_lowest)
        names = [order.index(cache) for cache in caches.values()]
    return {name: cache for name, cache in zip(names, caches.values(), strict=True) if name is not None}


def _shared(tree: Tree, cache: str, cpu: int) -> int | None:
    # Both files are read: there are few caches, and the kubelet goes by the map where we go by the list.
    listed = tree.mask([f"{cache}/shared_cpu_list"], [], cpu=cpu)
    mapped = tree.mask([], [f"{cache}/shared_cpu_map"], cpu=cpu)
    if listed is None and mapped is None:
        tree.warn(cache, "no file says which CPUs share this cache; the cache is unknown")
    elif listed is not None and mapped is not None and listed != mapped:
        tree.warn(cache, "shared_cpu_list and shared_cpu_map name different CPUs; the list is used")
    return mapped if listed is None else listed


def _siblings(tree: Tree, cpu: int, *names: str) -> int | None:
    paths = [f"cpu/cpu{cpu}/topology/{name}" for name in names]
    return tree.mask([f"{path}_list" for path in paths], paths, cpu=cpu)


def _groups(online: int, group_of: Callable[[int], int | None]) -> tuple[dict[int, int], int]:
    """Return the groups by the one CPU that was asked for each, and the CPUs that no group names."""
    groups: dict[int, int] = {}
    missing = 0
    rest = online
    while rest:
        cpu = _lowest(rest)
        mask = group_of(cpu)
        if mask is None:
            missing |= 1 << cpu
            rest ^= 1 << cpu
        else:
            groups[cpu] = mask & online
            rest &= ~mask
            # A CPU without files of its own is where the files of others place it.
            missing &= ~mask
    return groups, missing


def _nodes_by_cpu_links(tree: Tree, online: int) -> dict[int, int]:
    nodes: dict[int, int] = {}
    for cpu in cpus_of(online):
        for node in tree.numbered(f"cpu/cpu{cpu}", "node")[:1]:
            nodes[node] = nodes.get(node, 0) | 1 << cpu
    return nodes


def _warn_about(tree: Tree, cpus: int, problem: str) -> None:
    if cpus:
        tree.warn(f"CPUs {format_list(cpus)}", problem)


def _mask_of(cpus: Iterable[int]) -> int:
    mask = 0
    for cpu in cpus:
        mask |= 1 << cpu
    return mask


def _union(groups: Mapping[_Key, int]) -> int:
    mask = 0
    for group in groups.values():
        mask |= group
    return mask


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1
