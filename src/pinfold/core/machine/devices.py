"""Device: a network card, disk or GPU of a machine, and the NUMA node that it is at."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class DeviceKind(StrEnum):
    """The kinds of devices that a map shows."""

    NETWORK = "network"
    NVME = "nvme"
    GPU = "gpu"


class Device(NamedTuple):
    """A device; *node* is None where the machine does not tell it."""

    name: str
    """As users write it: eth0, nvme0, gpu0."""
    kind: DeviceKind
    node: int | None
    address: str = ""
    """The PCI address; empty for a device that is not on a PCI bus."""
    vendor: int = 0
    """The PCI vendor; 0 if unknown."""


def describe_devices(devices: Iterable[Device]) -> list[str]:
    """Return a line for each NUMA node that has devices, and one for those without a known node.

    >>> nic, disk = Device("eth0", DeviceKind.NETWORK, 1), Device("nvme0", DeviceKind.NVME, 1)
    >>> describe_devices([nic, disk, Device("gpu0", DeviceKind.GPU, None)])
    ['NUMA 1: eth0, nvme0', 'unknown NUMA node: gpu0']
    """
    by_node: dict[int | None, list[str]] = {}
    for device in devices:
        by_node.setdefault(device.node, []).append(device.name)
    order = sorted(by_node, key=lambda node: (node is None, node or 0))
    return [f"{'unknown NUMA node' if node is None else f'NUMA {node}'}: {', '.join(by_node[node])}" for node in order]
