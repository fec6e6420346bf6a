"""The control groups of the rest of the host: services, users' sessions, containers that are not pinfold's.

On cgroup v2 a group below has no more CPUs than the one above, so only the topmost ones are set; where systemd rules,
it is told, and sets them. On v1 each group has CPUs of its own, and those below must leave a CPU first.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from pinfold.core.machine.cpuset import EMPTY
from pinfold.core.shield import HostPlace, PlaceKind
from pinfold.errors import ParseError
from pinfold.node.cgroupfiles import CgroupError, groups_below, read, read_cpus, write_once
from pinfold.node.podgroups.systemd import ENVIRONMENT, SYSTEMCTL, SystemdError, Unit, set_command
from pinfold.node.shield.files import write_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pinfold.core.machine.cpuset import CPUSet

HOST_GROUPS: Final = (
    "init.scope",
    "system.slice",
    "user.slice",
    "machine.slice",
    "docker",
    "libpod_parent",
    "lxc",
    "lxc.payload",
)
"""The groups that the shield moves, if they are there."""
_CPUS: Final = "cpuset.cpus"
_CGROUPS: Final = "sys/fs/cgroup"
_SYSTEMD: Final = "run/systemd/system"
_SECONDS: Final = 10.0
_MOST: Final = 10_000
"""Groups of v1 that are read; more are not ours to walk."""


class HostGroups:
    """The groups of the host below a root directory."""

    def __init__(self, root: Path, *, systemctl: str = SYSTEMCTL) -> None:
        cgroups = root / _CGROUPS
        v2 = next((path for path in (cgroups, cgroups / "unified") if _has_cpuset(path)), None)
        v1 = cgroups / "cpuset"
        self.top = v2 or (v1 if (v1 / _CPUS).is_file() else None)
        """The topmost group of the cpuset controller; None if there is none."""
        self._is_v2 = v2 is not None
        self._systemctl = systemctl if self._is_v2 and (root / _SYSTEMD).is_dir() else None

    @property
    def kind(self) -> str:
        """How groups are set, for people to read."""
        if self.top is None:
            return "no groups"
        return "systemd" if self._systemctl is not None else "cgroup v2" if self._is_v2 else "cgroup v1"

    def read(self) -> dict[HostPlace, CPUSet]:
        """Return the CPUs of each group; on v2 none means those of the group above. Those below come first."""
        found = {}
        for group in self._groups():
            assert self.top is not None  # noqa: S101 - for mypy: there are no groups without it
            with suppress(CgroupError, ParseError):
                cpus = read_cpus(group / _CPUS) if (group / _CPUS).exists() else EMPTY
                found[HostPlace(PlaceKind.GROUP, str(group.relative_to(self.top)))] = cpus
        return found

    def write(self, place: HostPlace, cpus: CPUSet) -> None:
        """Set the CPUs of a group, or raise; one that is gone is fine."""
        parts = PurePosixPath(place.id).parts
        if self.top is None or not parts or ".." in parts or parts[0] not in HOST_GROUPS:
            return
        group = self.top.joinpath(*parts)
        if not group.is_dir():
            return
        if self._systemctl is not None:
            self._tell(Unit(place.id, group, {"AllowedCPUs": str(cpus)}))
            return
        if self._is_v2 and not (group / _CPUS).exists():
            write_once(self.top / "cgroup.subtree_control", "+cpuset")
        write_text(group / _CPUS, str(cpus))

    def _groups(self) -> Iterator[Path]:
        """Yield the groups that are moved, those below before those above."""
        if self.top is None:
            return
        for name in HOST_GROUPS:
            group = self.top / name
            if group.is_dir() and not group.is_symlink():
                below = [] if self._is_v2 else list(_below(group))
                yield from (*reversed(below), group)

    def _tell(self, unit: Unit) -> None:
        """Set a unit's CPUs through systemd; the thread of the shield waits, not the daemon."""
        command = set_command(unit, systemctl=self._systemctl or SYSTEMCTL)
        environment = {**os.environ, **ENVIRONMENT}
        try:
            done = subprocess.run(  # noqa: S603 - a fixed command, and names of a fixed list
                command, env=environment, capture_output=True, stdin=subprocess.DEVNULL, timeout=_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SystemdError(command, str(error)) from error
        if done.returncode:
            raise SystemdError(command, done.stderr.decode("utf-8", "replace").strip()[:200])


def _below(group: Path) -> Iterator[Path]:
    """Yield the groups below, each before those below it."""
    waiting = [group]
    for _ in range(_MOST):
        if not waiting:
            return
        children = groups_below(waiting.pop())
        yield from children
        waiting.extend(children)


def _has_cpuset(group: Path) -> bool:
    try:
        return "cpuset" in read(group / "cgroup.controllers").split()
    except CgroupError:
        return False
