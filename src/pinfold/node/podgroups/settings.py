"""Settings of groups: what a file of a group holds now, what it held before, and the same as properties of systemd."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from pinfold.node.cgroupfiles import CgroupError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.node.podgroups.driver import Driver

CPUS: Final = "cpuset.cpus"
MEMS: Final = "cpuset.mems"
_PROPERTIES: Final = {CPUS: "AllowedCPUs", MEMS: "AllowedMemoryNodes"}
GONE: Final = ("ENOENT", "ENODEV")
"""The errors of a group that was removed meanwhile."""
_MILLI: Final = 1000
_LEAST: Final = 1000
_PERCENT: Final = 100
_UNLIMITED: Final = "max"


class Quota(NamedTuple):
    """Microseconds of CPU time in each period; None: no limit."""

    quota: int | None
    period: int = 100_000

    @classmethod
    def of_millicpu(cls, limit: int, period: int = 100_000) -> Self:
        """Return the quota that a kubelet sets for a limit of so many thousandths of a CPU.

        >>> Quota.of_millicpu(1500), Quota.of_millicpu(1)
        (Quota(quota=150000, period=100000), Quota(quota=1000, period=100000))
        """
        return cls(max(limit * period // _MILLI, _LEAST), period)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the quota that cpu.max of cgroup v2 holds.

        >>> Quota.parse("max 100000"), Quota.parse("150000 50000")
        (Quota(quota=None, period=100000), Quota(quota=150000, period=50000))
        """
        quota, period = text.split()
        return cls(None if quota == _UNLIMITED else int(quota), int(period))

    def __str__(self) -> str:
        return f"{_UNLIMITED if self.quota is None else self.quota} {self.period}"

    def after(self, before: Quota) -> Quota:
        """Return what the kernel has once this is written where *before* was: lifting a limit keeps its period.

        >>> Quota(None).after(Quota(25_000, 50_000))
        Quota(quota=None, period=50000)
        """
        return self._replace(period=before.period) if self.quota is None else self

    def properties(self) -> tuple[str, ...]:
        """Return the same as properties of systemd, which counts in whole percent: rounded up, as runc does.

        >>> Quota(150_000).properties(), Quota(None).properties()
        (('CPUQuota=150%', 'CPUQuotaPeriodSec=100000us'), ('CPUQuota=',))
        """
        if self.quota is None:
            return ("CPUQuota=",)
        return (f"CPUQuota={-(-self.quota * _PERCENT // self.period)}%", f"CPUQuotaPeriodSec={self.period}us")


class GroupSetting(NamedTuple):
    """A file of a group that now holds the wanted value."""

    group: Path
    file: str
    before: str
    value: str
    properties: tuple[str, ...] = ()
    """The same for systemd, as NAME=VALUE; none where systemd does not know of it."""

    @property
    def changed(self) -> bool:
        """Whether the file held something else before."""
        return self.before != self.value


def cpuset_property(file: str, cpus: CPUSet) -> str:
    """Return the property of systemd for the CPUs (or NUMA nodes) of a group on cgroup v2."""
    return f"{_PROPERTIES[file]}={cpus}"


class GroupChanges:
    """One change of groups through a driver: remembers all that was set, in the order in which it was first set."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._settings: dict[tuple[Path, str], GroupSetting] = {}

    def set_own(self, group: Path, file: str, cpus: CPUSet, known: CPUSet | None = None) -> None:
        """Set the group's own CPUs (or NUMA nodes); *known* is what was just read."""
        self._add(self.driver.set_own(group, file, cpus, known))

    def set_quota(self, group: Path, quota: Quota) -> None:
        """Set the group's own limit of CPU time."""
        for setting in self.driver.set_quota(group, quota):
            self._add(setting)

    def settings(self) -> tuple[GroupSetting, ...]:
        """Return the changed files, each once: its value before the change, and now."""
        return tuple(self._settings.values())

    @contextmanager
    def unless_gone(self, group: Path) -> Iterator[None]:
        """Skip what cannot be done because the group has been removed meanwhile."""
        try:
            yield
        except CgroupError as error:
            if error.name not in GONE or self.driver.hierarchy.exists(group):
                raise

    def _add(self, new: GroupSetting) -> None:
        first = self._settings.setdefault((new.group, new.file), new)
        if first is not new:
            self._settings[new.group, new.file] = new._replace(before=first.before)
