"""IRQs and workqueues: the files of /proc and /sys in which the kernel takes a set of CPUs for each."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.shield import HostPlace, PlaceKind
from pinfold.errors import ParseError
from pinfold.node.cgroupfiles import CgroupError, read
from pinfold.node.shield.files import write_text

if TYPE_CHECKING:
    from pathlib import Path

_IRQS: Final = "proc/irq"
_AFFINITY: Final = "smp_affinity_list"
_EFFECTIVE: Final = "effective_affinity_list"
_DEFAULT: Final = "proc/irq/default_smp_affinity"
_WORKQUEUES: Final = "sys/devices/virtual/workqueue/cpumask"


class Masks:
    """The IRQs and workqueues below a root directory."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self) -> dict[HostPlace, CPUSet]:
        """Return the CPUs of each; one whose file cannot be read is left out."""
        found = {}
        for number in self._numbers():
            cpus = _cpus(self._root / _IRQS / number / _AFFINITY)
            if cpus:
                found[HostPlace(PlaceKind.IRQ, number, self._name(number))] = cpus
        for kind, path in ((PlaceKind.NEW_IRQS, _DEFAULT), (PlaceKind.WORKQUEUES, _WORKQUEUES)):
            cpus = _mask(self._root / path)
            if cpus:
                found[HostPlace(kind, "")] = cpus
        return found

    def write(self, place: HostPlace, cpus: CPUSet) -> None:
        """Set the CPUs of one of them, or raise."""
        if place.kind is PlaceKind.IRQ:
            write_text(self._root / _IRQS / place.id / _AFFINITY, str(cpus))
        else:
            path = self._root / (_DEFAULT if place.kind is PlaceKind.NEW_IRQS else _WORKQUEUES)
            write_text(path, cpus.format_mask())

    def is_bound(self, place: HostPlace, kept: CPUSet) -> bool:
        """Return whether an IRQ is really served by a kept CPU, as far as the kernel tells."""
        served = _cpus(self._root / _IRQS / place.id / _EFFECTIVE)
        return served is None or bool(served & kept)

    def _numbers(self) -> list[str]:
        try:
            names = os.listdir(self._root / _IRQS)  # noqa: PTH208 - names are all we need
        except OSError:
            return []
        return sorted((name for name in names if name.isascii() and name.isdigit()), key=int)

    def _name(self, number: str) -> str:
        """Return the device of an IRQ: the directories beside its files have the names of its handlers."""
        try:
            with os.scandir(self._root / _IRQS / number) as entries:
                return ", ".join(sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False)))
        except OSError:
            return ""


def _cpus(path: Path) -> CPUSet | None:
    try:
        return CPUSet.parse(read(path))
    except (CgroupError, ParseError):
        return None


def _mask(path: Path) -> CPUSet | None:
    try:
        return CPUSet.parse_mask(read(path))
    except (CgroupError, ParseError):
        return None
