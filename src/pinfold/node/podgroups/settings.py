"""Settings of groups: what a file of a group holds now, what it held before, and how systemd is told the same.

A `Changes` writes only what differs, sees that the kernel has kept it, and remembers everything that was wanted.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from pinfold.node import cgroupfiles as files
from pinfold.node.cgroupfiles import CgroupError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pinfold.core.cpuset import CPUSet

CPUS: Final = "cpuset.cpus"
MEMS: Final = "cpuset.mems"
_GONE: Final = ("ENOENT", "ENODEV")
_MILLI: Final = 1000
_LEAST: Final = 1000
_PERCENT: Final = 100


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

    def properties(self) -> tuple[str, ...]:
        """Return the same as properties of systemd, which counts in whole percent: rounded up, as runc does.

        >>> Quota(150_000).properties(), Quota(None).properties()
        (('CPUQuota=150%', 'CPUQuotaPeriodSec=100000us'), ('CPUQuota=',))
        """
        if self.quota is None:
            return ("CPUQuota=",)
        return (f"CPUQuota={-(-self.quota * _PERCENT // self.period)}%", f"CPUQuotaPeriodSec={self.period}us")


class Setting(NamedTuple):
    """A file of a group as it is wanted, and now is."""

    group: Path
    file: str
    before: str
    value: str
    properties: tuple[str, ...] = ()
    """The same for systemd, as NAME=VALUE; none where systemd does not know of it."""

    @property
    def changed(self) -> bool:
        """Whether it was different before."""
        return self.before != self.value


class Changes:
    """Writes files of groups, and remembers what was wanted, in order."""

    def __init__(self) -> None:
        self._settings: dict[tuple[Path, str], Setting] = {}

    def set_cpus(self, group: Path, file: str, cpus: CPUSet, *properties: str, known: CPUSet | None = None) -> None:
        """Make the file list these CPUs (or NUMA nodes); *known* is what it lists now, if it has just been read."""
        before = files.read_cpus(group / file) if known is None else known
        if before != cpus:
            files.write_cpus(group / file, cpus)
        self._note(Setting(group, file, str(before), str(cpus), properties))

    def set_text(self, group: Path, file: str, value: str, *properties: str) -> None:
        """Make the file hold this text."""
        before = files.read(group / file)
        if before != value:
            files.write(group / file, value)
        self._note(Setting(group, file, before, value, properties))

    def settings(self) -> tuple[Setting, ...]:
        """Return every file that was wanted to be something, in the order in which they were first named."""
        return tuple(self._settings.values())

    def _note(self, new: Setting) -> None:
        first = self._settings.setdefault((new.group, new.file), new)
        self._settings[new.group, new.file] = new._replace(before=first.before)


@contextmanager
def unless_gone(group: Path) -> Iterator[None]:
    """Pass over what cannot be done because the group has been removed meanwhile."""
    try:
        yield
    except CgroupError as error:
        if error.name not in _GONE or group.is_dir():
            raise
