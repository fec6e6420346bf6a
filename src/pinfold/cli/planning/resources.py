"""The option --devices of `pinfold plan`: devices, memory and hugepages of each NUMA node, from a file or sysfs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pinfold.cli.planning.arguments import BadQuestion
from pinfold.core.machine.devices import DeviceKind
from pinfold.formats.machine.resources import parse_resources
from pinfold.node.machine.devices import Devices
from pinfold.node.machine.memory import memory_resources
from pinfold.settings.filetext import read_file

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from pinfold.core.machine.topology import Topology

SYSFS: Final = "sysfs"
_GPUS: Final = {0x10DE: "nvidia.com/gpu", 0x1002: "amd.com/gpu", 0x8086: "gpu.intel.com/i915"}
"""The resource of a vendor's device plugin."""


def with_resources(args: argparse.Namespace, machine: Topology) -> Topology:
    """Return the machine with the resources that --devices tells."""
    if args.devices is None:
        return machine
    nodes = [*(node.id for node in machine.numa_nodes), *machine.memory_only]
    if args.devices != SYSFS:
        return replace(machine, resources=parse_resources(read_file(args.devices), nodes, source=args.devices))
    if args.preset or args.file or args.live:
        raise BadQuestion("--devices sysfs is about this host, or --sysroot; for other machines name a file")
    found = read_resources(args.sysroot or Path("/"))
    return replace(machine, resources={node: row for node, row in found.items() if node in nodes})


def read_resources(root: Path) -> Mapping[int, Mapping[str, int]]:
    """Return what sysfs tells of the machine: memory, hugepages, and GPUs by the names of their device plugins."""
    found, _available = memory_resources(root)
    for device in Devices(root).shown():
        resource = _GPUS.get(device.vendor) if device.kind is DeviceKind.GPU else None
        if resource is not None and device.node is not None:
            row = found.setdefault(device.node, {})
            row[resource] = row.get(resource, 0) + 1
    return found
