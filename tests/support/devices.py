"""Writes devices into a sysfs tree, as the kernel lays them out: links from classes to PCI devices."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class DeviceTree:
    """The devices of the machine below *root*, with *nodes* NUMA nodes."""

    def __init__(self, root: Path, nodes: int = 2) -> None:
        self.root = root
        self.sys = root / "sys"
        for node in range(nodes):
            (self.sys / f"devices/system/node/node{node}").mkdir(parents=True)

    def pci(self, address: str, node: int | None, *, kind: str = "0x020000", vendor: str = "0x8086") -> Path:
        """Write a PCI device; None: without the file numa_node."""
        path = self.sys / f"devices/pci0000:00/{address}"
        path.mkdir(parents=True)
        (path / "class").write_text(f"{kind}\n")
        (path / "vendor").write_text(f"{vendor}\n")
        if node is not None:
            (path / "numa_node").write_text(f"{node}\n")
        self.link(f"bus/pci/devices/{address}", path)
        return path

    def of_class(self, kind: str, name: str, parent: Path) -> Path:
        """Write a device of a class below its parent."""
        path = parent / kind / name
        path.mkdir(parents=True)
        (path / "device").symlink_to(os.path.relpath(parent, path))
        self.link(f"class/{kind}/{name}", path)
        return path

    def link(self, name: str, target: Path) -> None:
        """Write a link in sysfs."""
        link = self.sys / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(target, link.parent))


def usual_devices(root: Path) -> DeviceTree:
    """Write two network cards, a disk and a GPU, all but eth0 at NUMA node 1."""
    tree = DeviceTree(root)
    tree.of_class("net", "eth0", tree.pci("0000:17:00.0", 0))
    tree.of_class("net", "eth1", tree.pci("0000:3b:00.0", 1))
    disk = tree.of_class("nvme", "nvme0", tree.pci("0000:5e:00.0", 1, kind="0x010802"))
    tree.of_class("block", "nvme0n1", disk)
    tree.pci("0000:00:02.0", 0, kind="0x030000", vendor="0x1a03")
    tree.of_class("drm", "card1", tree.pci("0000:af:00.0", 1, kind="0x030200", vendor="0x10de"))
    return tree
