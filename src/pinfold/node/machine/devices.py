"""Devices of a machine in its sysfs, live or recorded: which there are, and at which NUMA node.

The kernel tells the node in the file numa_node of a PCI device; -1 is "unknown". A network interface, a disk or a card
is below its PCI device, so its directories are followed upwards until one has the file. A name may be that of

- a network interface, an InfiniBand device, an NVMe controller, a block device or a card (class/net, infiniband, nvme,
  block, drm), or
- a PCI address, with or without its domain, or
- gpuN: the GPUs in the order of their PCI addresses, without the display chips of board controllers.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.machine.devices import Device, DeviceKind
from pinfold.errors import PinfoldError, excerpt
from pinfold.node.machine.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Iterator

_CLASSES: Final = ("net", "infiniband", "nvme", "block", "drm")
_PCI: Final = "bus/pci/devices"
_ADDRESS: Final = re.compile(r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@!-]{0,127}")
_CONTROLLER: Final = re.compile(r"nvme[0-9]{1,6}")
_GPU: Final = re.compile(r"gpu[0-9]{1,4}")
_GPU_CLASSES: Final = ("0x03", "0x12")
"""Display controllers, and processing accelerators."""
_BOARD_CONTROLLERS: Final = frozenset({0x1A03, 0x102B})
"""ASPEED and Matrox: the screen of a server's management controller."""
_MOST: Final = 4096
"""The most entries of a directory that are looked at."""
_HIGHEST_NODE: Final = 65535
_NAMED: Final = 10


class NoSuchDevice(PinfoldError):  # noqa: N818 - the fact, as the others in this family
    """The machine has no device of this name."""

    def __init__(self, name: str, near: list[str], every: list[str]) -> None:
        shown = ", ".join(every[:_NAMED])
        there = f"{shown}{' and more' if len(every) > _NAMED else ''}" if every else "none that is known"
        hint = f"did you mean {near[0]}?" if near else f"this machine has {there}"
        super().__init__(f"there is no device {excerpt(name)}; {hint}")
        self.name = name


class NoNUMANode(PinfoldError):  # noqa: N818 - the fact, as the others in this family
    """The machine does not tell at which NUMA node a device is."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"device {name}: {why}; no CPU is nearer to it than others")
        self.name = name


class DevicePlace(NamedTuple):
    """Where a device is."""

    nodes: int
    """Its NUMA nodes, as a mask: more than one if it is reached over several controllers."""
    address: str


class Devices:
    """The devices of the machine whose /sys is below *root*."""

    def __init__(self, root: Path) -> None:
        self._sys = os.path.realpath(Path(root) / "sys")
        self._tree = Tree(Path(self._sys), "")

    def find(self, name: str) -> DevicePlace:
        """Return the place of a device; or raise if there is no such device, or its node is not known.

        On a machine with one NUMA node every device is at that one.
        """
        path = self._path(name)
        if path is None:
            every = self.names()
            from difflib import get_close_matches  # noqa: PLC0415 - only for mistakes

            raise NoSuchDevice(name, get_close_matches(name, every, 1), every)
        nodes = self._nodes_of(path) or self._only_node()
        if not nodes:
            virtual = "/virtual/" in f"{path}/" or "/pci" not in path
            why = "it is virtual and has no NUMA node" if virtual else "its numa_node is -1: the firmware tells no node"
            raise NoNUMANode(name, why)
        return DevicePlace(nodes, _address(path))

    def names(self) -> list[str]:
        """Return the names of all devices that a map shows, and of disks."""
        disks = [name for name in self._entries("class/block") if self._real(f"class/block/{name}/device")]
        return [*(device.name for device in self.shown()), *disks]

    def shown(self) -> list[Device]:
        """Return the network cards, NVMe controllers and GPUs; virtual functions are left out."""
        found = [*self._of_class("net", DeviceKind.NETWORK), *self._of_class("nvme", DeviceKind.NVME)]
        for number, address in enumerate(self._gpus()):
            path = f"{_PCI}/{address}"
            found.append(self._device(f"gpu{number}", DeviceKind.GPU, self._real(path) or path))
        return found

    def _of_class(self, name: str, kind: DeviceKind) -> Iterator[Device]:
        for entry in self._entries(f"class/{name}"):
            path = self._real(f"class/{name}/{entry}/device")
            if path is not None and not self._tree.exists(f"{self._below(path)}/physfn"):
                yield self._device(entry, kind, path)

    def _device(self, name: str, kind: DeviceKind, path: str) -> Device:
        nodes = self._nodes_of(path) or self._only_node()
        node = nodes.bit_length() - 1 if nodes.bit_count() == 1 else None
        return Device(name, kind, node, _address(path), self._hex(f"{self._below(path)}/vendor"))

    def _gpus(self) -> list[str]:
        """Return the PCI addresses of the GPUs."""
        found = []
        for address in self._entries(_PCI):
            kind = self._tree.text(f"{_PCI}/{address}/class") or ""
            vendor = self._hex(f"{_PCI}/{address}/vendor")
            if kind.startswith(_GPU_CLASSES) and vendor not in _BOARD_CONTROLLERS:
                found.append(address)
        return found

    def _path(self, name: str) -> str | None:
        """Return the directory of a device; None if there is none."""
        if _ADDRESS.fullmatch(name.lower()):
            long = name.lower() if name.count(":") > 1 else f"0000:{name.lower()}"
            return self._real(f"{_PCI}/{long}")
        if _GPU.fullmatch(name):
            gpus = dict(enumerate(self._gpus()))
            address = gpus.get(int(name.removeprefix("gpu")))
            return None if address is None else self._real(f"{_PCI}/{address}")
        if not _NAME.fullmatch(name):
            return None
        return next((path for kind in _CLASSES if (path := self._real(f"class/{kind}/{name}"))), None)

    def _nodes_of(self, path: str) -> int:
        """Return the NUMA nodes of a device; those of its controllers where several share a namespace."""
        node = self._node_above(path)
        if node is not None:
            return 1 << node if node >= 0 else 0
        above = os.path.dirname(path)  # noqa: PTH120 - text, as all paths here
        found = 0
        for entry in self._entries(self._below(above)) if "nvme-subsys" in above else ():
            controller = self._real(f"{self._below(above)}/{entry}") if _CONTROLLER.fullmatch(entry) else None
            node = None if controller is None else self._node_above(controller)
            found |= 1 << node if node is not None and node >= 0 else 0
        return found

    def _node_above(self, path: str) -> int | None:
        """Return the NUMA node in the nearest directory that has one, from *path* upwards; None if none has."""
        while path.startswith(f"{self._sys}/"):
            for below in (path, f"{path}/device"):
                if self._tree.exists(f"{self._below(below)}/numa_node"):
                    node = self._tree.number(f"{self._below(below)}/numa_node")
                    return node if node is not None and node <= _HIGHEST_NODE else -1
            path = os.path.dirname(path)  # noqa: PTH120 - as above
        return None

    def _only_node(self) -> int:
        """Return the one NUMA node of the machine, as a mask; 0 if it has several."""
        nodes = self._tree.numbered("devices/system/node", "node")
        return 1 << max(nodes, default=0) if len(nodes) <= 1 else 0

    def _real(self, path: str) -> str | None:
        """Return where a path leads, if there is something, and not outside of this sysfs."""
        found = os.path.realpath(f"{self._sys}/{path}")
        return found if found.startswith(f"{self._sys}/") and os.path.exists(found) else None  # noqa: PTH110 - text

    def _below(self, path: str) -> str:
        return path.removeprefix(f"{self._sys}/")

    def _entries(self, path: str) -> list[str]:
        try:
            names = os.listdir(f"{self._sys}/{path}")  # noqa: PTH208 - names are all we need
        except (OSError, ValueError):
            return []
        order = None if path == _PCI else _natural  # addresses are hexadecimal, and equally long
        return sorted((name for name in names if _NAME.fullmatch(name)), key=order)[:_MOST]

    def _hex(self, path: str) -> int:
        text = self._tree.text(path) or ""
        return int(text, 16) if re.fullmatch(r"0x[0-9a-f]{1,8}", text) else 0


def _natural(name: str) -> list[tuple[int, str]]:
    """Order nvme2 before nvme10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", name)]


def _address(path: str) -> str:
    """Return the PCI address that is deepest in a path."""
    return next((part for part in reversed(path.split("/")) if re.fullmatch(_ADDRESS, part)), "")
