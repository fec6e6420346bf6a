"""The option --devices of `pinfold plan`: devices, memory and hugepages of each NUMA node, from a file or sysfs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pinfold.cli.planning.arguments import BadQuestion
from pinfold.core.machine.devices import DeviceKind
from pinfold.core.pods.quantity import Quantity
from pinfold.errors import ParseError
from pinfold.formats.machine.resources import parse_resources
from pinfold.node.machine.devices import Devices
from pinfold.node.machine.memory import read_memory

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from pinfold.core.machine.topology import Topology

SYSFS: Final = "sysfs"
_MAX_FILE: Final = 1 << 20
_GPUS: Final = {0x10DE: "nvidia.com/gpu", 0x1002: "amd.com/gpu", 0x8086: "gpu.intel.com/i915"}
"""The resource of a vendor's device plugin."""


def with_resources(args: argparse.Namespace, machine: Topology) -> Topology:
    """Return the machine with the resources that --devices tells."""
    if args.devices is None:
        return machine
    nodes = [*(node.id for node in machine.numa_nodes), *machine.memory_only]
    if args.devices != SYSFS:
        return replace(machine, resources=parse_resources(_read(args.devices), nodes, source=args.devices))
    if args.preset or args.file or args.live:
        raise BadQuestion("--devices sysfs is about this host, or --sysroot; for other machines name a file")
    found = read_resources(args.sysroot or Path("/"))
    return replace(machine, resources={node: row for node, row in found.items() if node in nodes})


def read_resources(root: Path) -> Mapping[int, Mapping[str, int]]:
    """Return what sysfs tells of the machine: memory, hugepages, and GPUs by the names of their device plugins."""
    found: dict[int, dict[str, int]] = {}
    for node, memory in read_memory(root).items():
        sizes = {size: count for size, (count, _free) in memory.hugepages.items() if count}
        pages = {f"hugepages-{_shown(size)}": size * count for size, count in sizes.items()}
        found[node] = {"memory": max(memory.total - sum(pages.values()), 0), **pages}
    for device in Devices(root).shown():
        resource = _GPUS.get(device.vendor) if device.kind is DeviceKind.GPU else None
        if resource is not None and device.node is not None:
            row = found.setdefault(device.node, {})
            row[resource] = row.get(resource, 0) + 1
    return found


def _shown(size: int) -> str:
    return Quantity.from_milli(size * 1000).format(binary=True)


def _read(name: str) -> str:
    with Path(name).open("rb") as file:
        data = file.read(_MAX_FILE + 1)
    if len(data) > _MAX_FILE:
        raise ParseError(f"is larger than {_MAX_FILE >> 20} MiB", where=name)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ParseError(f"is not text (byte {error.start + 1} is not UTF-8)", where=name) from None
