"""The driver for cgroup v1: CPUs are in the hierarchy of the cpuset controller, CPU time in that of the cpu controller.

systemd does not know of cpusets there, so only quotas have properties.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.node import cgroupfiles
from pinfold.node.grouperrors import KindUnavailableError
from pinfold.node.podgroups import files
from pinfold.node.podgroups.balance import BalanceFlags
from pinfold.node.podgroups.settings import CPUS, MEMS, GroupSetting, Quota
from pinfold.node.podgroups.v1pool import V1Pool

if TYPE_CHECKING:
    from pathlib import Path

    from pinfold.core.machine.cpuset import CPUSet

KIND: Final = "cgroup v1"
_EFFECTIVE: Final = {CPUS: "cpuset.effective_cpus", MEMS: "cpuset.effective_mems"}
_SHARES: Final = "cpu.shares"
_QUOTA: Final = "cpu.cfs_quota_us"
_PERIOD: Final = "cpu.cfs_period_us"
_UNLIMITED: Final = -1


def discover(cgroup_root: Path, proc: Path) -> V1:
    """Return the driver for the hierarchies below *cgroup_root*, where one has the cpuset controller."""
    mounted = [path for path in cgroupfiles.groups_below(cgroup_root) if (path / "tasks").is_file()]
    cpuset = next((path for path in mounted if (path / CPUS).is_file()), None)
    if cpuset is None:
        raise KindUnavailableError(KIND, f"no cpuset controller is mounted below {cgroup_root}")
    cpu = next((path for path in mounted if (path / _SHARES).is_file()), None)
    return V1(files.Directories(cpuset, unified=False, proc=proc), cpu)


class V1:
    """Groups on cgroup v1. The kernel's files are the only state; names and cleared flags are remembered."""

    kind = KIND
    nested = True

    def __init__(self, hierarchy: files.Directories, cpu: Path | None) -> None:
        self.hierarchy = hierarchy
        self._cpu = cpu
        self.balance_flags = BalanceFlags(hierarchy.root)
        self.pooling = V1Pool(self.balance_flags)

    def own(self, group: Path, file: str) -> CPUSet:
        """Return the CPUs (or NUMA nodes) that were set for the group; none while it is being made."""
        return cgroupfiles.read_cpus(f"{group}/{file}")

    def effective(self, group: Path, file: str) -> CPUSet:
        """Return the CPUs (or NUMA nodes) that processes in the group can use."""
        return cgroupfiles.read_cpus(f"{group}/{_EFFECTIVE[file]}")

    def set_own(self, group: Path, file: str, cpus: CPUSet, known: CPUSet | None = None) -> GroupSetting:
        """Set the group's own CPUs (or NUMA nodes)."""
        return files.set_cpus(group, file, cpus, known)

    def quota(self, group: Path) -> Quota:
        """Return the group's own limit of CPU time."""
        timed = self._timed(group)
        if timed is None:
            return Quota(None)
        quota = int(cgroupfiles.read(timed / _QUOTA))
        return Quota(None if quota < 0 else quota, int(cgroupfiles.read(timed / _PERIOD)))

    def set_quota(self, group: Path, quota: Quota) -> tuple[GroupSetting, ...]:
        """Set the group's own limit of CPU time."""
        timed = self._timed(group)
        if timed is None:
            return ()
        settings = []
        if quota.quota is not None and cgroupfiles.read(timed / _PERIOD) != str(quota.period):
            # Quota and period are one limit written in two steps; without a quota the kernel refuses no period.
            settings.append(files.set_text(timed, _QUOTA, str(_UNLIMITED)))
            settings.append(files.set_text(timed, _PERIOD, str(quota.period)))
        value = _UNLIMITED if quota.quota is None else quota.quota
        return (*settings, files.set_text(timed, _QUOTA, str(value), *quota.properties()))

    def hand_down_to(self, group: Path) -> None:
        """Do nothing: the cpuset controller has a hierarchy for itself."""

    def _timed(self, group: Path) -> Path | None:
        """Return the group's twin in the hierarchy of the cpu controller; None if its time cannot be limited (yet).

        A runtime makes the twin after the group: set the quota again when the container has started.
        """
        if self._cpu is None:
            return None
        twin = self._cpu / group.relative_to(self.hierarchy.root)
        return twin if (twin / _QUOTA).exists() else None
