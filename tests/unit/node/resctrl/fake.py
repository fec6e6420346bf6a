"""A resctrl tree in memory with the kernel's rules, as fs/resctrl and arch/x86/kernel/cpu/resctrl have them.

Masks are adjacent bits within the cache, groups are as many as the hardware's CLOSIDs, a CPU is in one group, a
monitoring group has only CPUs of its parent, and nothing can be taken from the default group by writing to it.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field

from pinfold.core.machine.cpuset import EMPTY, CPUSet


@dataclass
class Hardware:
    """What the machine can divide."""

    cpus: CPUSet = CPUSet(0xFFFF)  # noqa: RUF009 - a value that never changes
    caches: tuple[int, ...] = (0, 1)
    cbm_mask: int = 0xFFF
    min_cbm_bits: int = 2
    num_closids: int = 4
    num_rmids: int = 16
    cdp: bool = False
    bandwidth: bool = True
    min_bandwidth: int = 10
    bandwidth_gran: int = 10
    monitors: bool = True

    @property
    def kinds(self) -> tuple[str, ...]:
        ways = ("L3CODE", "L3DATA") if self.cdp else ("L3",)
        return (*ways, "MB") if self.bandwidth else ways

    @property
    def closids(self) -> int:
        """With CDP every group needs two."""
        return self.num_closids // 2 if self.cdp else self.num_closids


@dataclass
class Group:
    """A control group, or the default one."""

    limits: dict[str, dict[int, int]]
    cpus: CPUSet = EMPTY
    monitors: dict[str, CPUSet] = field(default_factory=dict)


class FakeResctrl:
    """The files of resctrl; what a mask may not be is refused with the kernel's error and its status."""

    def __init__(self, hardware: Hardware | None = None, *, mounted: bool = True) -> None:
        self.hardware = hardware or Hardware()
        self.mounted = mounted
        self.groups: dict[str, Group] = {"": Group(self._whole(), self.hardware.cpus)}
        self.status = "ok"
        self.counts: dict[str, int] = {"llc_occupancy": 4096, "mbm_total_bytes": 1000}
        self.writes = 0

    def _whole(self) -> dict[str, dict[int, int]]:
        most = {kind: 100 if kind == "MB" else self.hardware.cbm_mask for kind in self.hardware.kinds}
        return {kind: dict.fromkeys(self.hardware.caches, value) for kind, value in most.items()}

    # -- the verbs

    def names(self, path: str) -> list[str]:
        if not self.mounted:
            return []
        match path.strip("/").split("/"):
            case [""]:
                return sorted(["info", "mon_data", "mon_groups", *filter(None, self.groups)])
            case ["info"]:
                return sorted([*self.hardware.kinds, *(["L3_MON"] if self.hardware.monitors else [])])
            case [group, "mon_groups"] if group in self.groups:
                return sorted(self.groups[group].monitors)
            case [group, "mon_groups", owner, "mon_data"] if owner in self.groups[group].monitors:
                return [f"mon_L3_{cache:02}" for cache in self.hardware.caches]
        return []

    def read(self, path: str) -> str:  # noqa: PLR0911 - one for each kind of file
        match path.split("/"):
            case ["info", "last_cmd_status"]:
                return f"{self.status}\n"
            case ["info", kind, name] if kind in self.hardware.kinds:
                return self._info(kind, name)
            case ["schemata"]:
                return self._schemata("")
            case [group, "schemata"] if group in self.groups:
                return self._schemata(group)
            case [group, "cpus_list"] if group in self.groups:
                return f"{self.groups[group].cpus}\n"
            case [group, "mon_groups", owner, "cpus_list"] if owner in self._monitors(group):
                return f"{self.groups[group].monitors[owner]}\n"
            case [group, "mon_groups", owner, "mon_data", _, figure] if owner in self._monitors(group):
                return f"{self.counts[figure]}\n" if figure in self.counts else "Unavailable\n"
        raise self._error(errno.ENOENT, "ok")

    def write(self, path: str, text: str) -> None:
        self.writes += 1
        self.status = "ok"
        match path.split("/"):
            case ["schemata"]:
                self._limit("", text)
            case [group, "schemata"] if group in self.groups:
                self._limit(group, text)
            case [group, "cpus_list"] if group in self.groups:
                self._assign(group, CPUSet.parse(text.strip()))
            case ["cpus_list"]:
                raise self._error(errno.EINVAL, "Can't drop CPUs from default rdtgroup")
            case [group, "mon_groups", owner, "cpus_list"] if owner in self._monitors(group):
                self._count_on(self.groups[group], owner, CPUSet.parse(text.strip()))
            case _:
                raise self._error(errno.ENOENT, "ok")

    def make(self, path: str) -> None:
        self.status = "ok"
        match path.split("/"):
            case [name] if name not in self.groups:
                if len(self.groups) >= self.hardware.closids:
                    raise self._error(errno.ENOSPC, "Out of CLOSIDs")
                self._take_rmid()
                self.groups[name] = Group(self._whole())
            case [group, "mon_groups", owner] if group in self.groups and owner not in self._monitors(group):
                self._take_rmid()
                self.groups[group].monitors[owner] = EMPTY
            case _:
                raise self._error(errno.EEXIST, "ok")

    def remove(self, path: str) -> None:
        match path.split("/"):
            case [name] if name in self.groups:
                self.groups[""].cpus |= self.groups.pop(name).cpus
            case [group, "mon_groups", owner] if owner in self._monitors(group):
                del self.groups[group].monitors[owner]
            case _:
                raise self._error(errno.EPERM, "ok")

    # -- the rules

    def _limit(self, group: str, text: str) -> None:
        if not text.endswith("\n"):
            raise self._error(errno.EINVAL, "ok")
        limits = {kind: dict(row) for kind, row in self.groups[group].limits.items()}
        for line in text.splitlines():
            kind, colon, rest = line.strip().partition(":")
            if not colon:
                raise self._error(errno.EINVAL, "Missing ':'")
            if kind not in limits:
                raise self._error(errno.EINVAL, f"Unknown or unsupported resource name '{kind}'")
            for part in rest.split(";"):
                cache, equals, value = part.partition("=")
                if not equals or not cache.isdecimal() or int(cache) not in limits[kind]:
                    raise self._error(errno.EINVAL, "Missing '=' or non-numeric domain")
                limits[kind][int(cache)] = self._bandwidth(value) if kind == "MB" else self._mask(value)
        self.groups[group].limits = limits

    def _mask(self, text: str) -> int:
        value = int(text, 16)
        if not value or value & ~self.hardware.cbm_mask:
            raise self._error(errno.EINVAL, "Mask out of range")
        if bin(value).strip("0b").count("0"):
            raise self._error(errno.EINVAL, f"The mask {value:x} has non-consecutive 1-bits")
        if value.bit_count() < self.hardware.min_cbm_bits:
            raise self._error(errno.EINVAL, f"Need at least {self.hardware.min_cbm_bits} bits in the mask")
        return value

    def _bandwidth(self, text: str) -> int:
        value = int(text)
        if not self.hardware.min_bandwidth <= value <= 100:
            raise self._error(errno.EINVAL, f"MB value {value} out of range [{self.hardware.min_bandwidth},100]")
        return -(-value // self.hardware.bandwidth_gran) * self.hardware.bandwidth_gran

    def _assign(self, group: str, cpus: CPUSet) -> None:
        if not cpus <= self.hardware.cpus:
            raise self._error(errno.EINVAL, "Can only assign online CPUs")
        mine = self.groups[group]
        self.groups[""].cpus |= mine.cpus - cpus
        mine.monitors = {owner: held & cpus for owner, held in mine.monitors.items()}
        for name, other in self.groups.items():
            if name != group:
                other.cpus -= cpus
                other.monitors = {owner: held - cpus for owner, held in other.monitors.items()}
        mine.cpus = cpus

    def _count_on(self, group: Group, owner: str, cpus: CPUSet) -> None:
        if not cpus <= group.cpus:
            raise self._error(errno.EINVAL, "Can only add CPUs to mongroup that belong to parent")
        group.monitors = {name: held - cpus for name, held in group.monitors.items()} | {owner: cpus}

    def _take_rmid(self) -> None:
        used = sum(1 + len(group.monitors) for group in self.groups.values())
        if self.hardware.monitors and used >= self.hardware.num_rmids:
            raise self._error(errno.ENOSPC, "Out of RMIDs")

    def _monitors(self, group: str) -> dict[str, CPUSet]:
        return self.groups[group].monitors if group in self.groups else {}

    def _info(self, kind: str, name: str) -> str:
        hardware = self.hardware
        known = {"num_closids": str(hardware.closids)}
        if kind == "MB":
            known |= {"min_bandwidth": str(hardware.min_bandwidth), "bandwidth_gran": str(hardware.bandwidth_gran)}
        else:
            known |= {"cbm_mask": f"{hardware.cbm_mask:x}", "min_cbm_bits": str(hardware.min_cbm_bits)}
        if name not in known:
            raise self._error(errno.ENOENT, "ok")
        return f"{known[name]}\n"

    def _schemata(self, group: str) -> str:
        lines = [
            f"{kind:>6}:"
            + ";".join(f"{cache}={value if kind == 'MB' else f'{value:x}'}" for cache, value in row.items())
            for kind, row in self.groups[group].limits.items()
        ]
        return "".join(f"{line}\n" for line in lines)

    def _error(self, number: int, status: str) -> OSError:
        self.status = status
        return OSError(number, os.strerror(number))
