"""CPUTime: how much CPU time the shared containers get, as quota and weight of the cpu controller.

One class for each cgroup version. Where a kernel has no cpu controller, or no quotas, nothing is written and `weaker`
says so. Not here: which CPUs a group has, and which processes are in it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pinfold.node import cgroupfiles as files
from pinfold.node.cgroupfiles import CgroupError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pinfold.core.pods.pod import ContainerRef
    from pinfold.core.reconcile import Limit
    from pinfold.node.processgroups.subtree import Subtree

SHARES: Final = "cpu.shares"
"""The file that every group of the cpu hierarchy of v1 has."""
_MAX_SHARES: Final = 262_144
_NEW_SHARES: Final = 1024
"""That of a group that was just made."""
_QUOTA: Final = "cpu.cfs_quota_us"
_PERIOD: Final = "cpu.cfs_period_us"
_REALTIME: Final = "cpu.rt_runtime_us"
_WEIGHT: Final = "cpu.weight"
_MAX_WEIGHT: Final = 10_000
_NEW_WEIGHT: Final = 100
_MAX: Final = "cpu.max"
_NEW_LIMIT: Final = (None, 100_000)
"""The quota and period of a group that was just made."""
_NO_CONTROLLER: Final = "CPU limits and weights are not applied: there is no cpu controller"
_NO_QUOTA: Final = "CPU limits are not applied: this kernel has no CPU quotas"
_NO_REALTIME: Final = "exclusive processes cannot have real-time priority: other cpu groups have its whole budget"


class CPUTimeV1:
    """The cpu controller of cgroup v1, which is a hierarchy of its own."""

    def __init__(self, tree: Subtree) -> None:
        self._tree = tree
        self._is_there = (tree.root / SHARES).is_file()

    @property
    def weaker(self) -> list[str]:
        """What cannot be promised, in words."""
        reasons = [] if self._is_there else [_NO_CONTROLLER]
        if self._is_there and not (self._tree.root / _QUOTA).exists():
            reasons.append(_NO_QUOTA)
        realtime = self._tree.exclusive / _REALTIME
        if realtime.exists() and files.read(realtime) == "0":
            reasons.append(_NO_REALTIME)
        return reasons

    def allow_realtime(self) -> None:
        """Let exclusive processes have real-time priority, where the kernel shares out a budget for it among groups."""
        if (self._tree.root / _REALTIME).exists():
            budget = files.read(self._tree.root / _REALTIME)
            # Refused when other groups have some of it already: then `weaker` says so.
            with suppress(CgroupError):
                for group in (self._tree.top, self._tree.exclusive):
                    files.write(group / _REALTIME, budget)

    def begin(self, ref: ContainerRef, limit: Limit, *, is_first: bool) -> None:
        """Set the weight and quota of a container whose group was just made; *is_first*: its pod's was too.

        What the kernel gives a new group is not read if just that is wanted: it takes longer than to make the group.
        """
        is_same, has_same_quota = limit.shares == _NEW_SHARES, (limit.quota, limit.period) == _NEW_LIMIT
        if not self._is_there or (is_first and is_same and has_same_quota):
            return
        group = self._tree.group(ref, exclusive=False)
        if not is_same:
            files.write(group / SHARES, str(limit.shares))
        if not is_first:
            self.weigh(group.parent)
        elif not is_same:
            files.write(group.parent / SHARES, str(limit.shares))
        if not has_same_quota:
            self._set_quota(group, limit)

    def keep_limit(self, ref: ContainerRef, limit: Limit) -> None:
        """Set the weight and quota of a shared container, unless it has them: a daemon that starts finds most right."""
        group = self._tree.group(ref, exclusive=False)
        if self.wrong(ref, limit):
            self.set_limit(group, limit)
        else:
            self.weigh(group.parent)

    def set_limit(self, group: Path, limit: Limit) -> None:
        """Set the weight and quota of a shared container's group."""
        if not self._is_there:
            return
        files.write(group / SHARES, str(limit.shares))
        self.weigh(group.parent)
        self._set_quota(group, limit)

    @staticmethod
    def _set_quota(group: Path, limit: Limit) -> None:
        if (group / _QUOTA).exists():
            # Old quota and new period together would be another limit, which the kernel may even refuse.
            if files.read(group / _PERIOD) != str(limit.period):
                files.write(group / _QUOTA, "-1")
                files.write(group / _PERIOD, str(limit.period))
            files.write(group / _QUOTA, str(-1 if limit.quota is None else limit.quota))

    def wrong(self, ref: ContainerRef, limit: Limit) -> str:
        """Return how the weight and quota of a shared container differ from its limit; "" if they do not."""
        if not self._is_there:
            return ""
        group = self._tree.group(ref, exclusive=False)
        quota = str(-1 if limit.quota is None else limit.quota)
        wanted = {SHARES: str(limit.shares), _QUOTA: quota, _PERIOD: str(limit.period)}
        return _difference(group, wanted) or _difference(group.parent, {_QUOTA: "-1"})

    def wrong_pools(self) -> str:
        """Return which quota limits a pool; "" if none does."""
        groups = (self._tree.top, self._tree.shared, self._tree.exclusive) if self._is_there else ()
        return next(filter(None, (_difference(group, {_QUOTA: "-1"}) for group in groups)), "")

    def free_pools(self) -> None:
        """Lift the quotas of both pools, and of the pods in the shared one."""
        shared = self._tree.shared
        for group in (self._tree.top, shared, self._tree.exclusive, *files.groups_below(shared)):
            if _difference(group, {_QUOTA: "-1"}):
                files.write(group / _QUOTA, "-1")

    def weigh(self, pod: Path) -> None:
        """Give a pod's group the weight of its containers together, so that containers of all pods compete equally."""
        if self._is_there:
            _add_up(pod, SHARES, _MAX_SHARES)


class CPUTimeV2:
    """The cpu controller of cgroup v2; *is_there* says whether it is handed down to our groups."""

    def __init__(self, tree: Subtree, *, is_there: bool) -> None:
        self._tree = tree
        self._is_there = is_there

    @property
    def weaker(self) -> list[str]:
        """What cannot be promised, in words."""
        if not self._is_there:
            return [_NO_CONTROLLER]
        shared = self._tree.shared
        return [_NO_QUOTA] if shared.is_dir() and not (shared / _MAX).exists() else []

    def begin(self, ref: ContainerRef, limit: Limit, *, is_first: bool) -> None:
        """Set the weight and quota of a container whose group was just made. As on v1."""
        is_same, has_same_quota = limit.weight == _NEW_WEIGHT, (limit.quota, limit.period) == _NEW_LIMIT
        if not self._is_there or (is_first and is_same and has_same_quota):
            return
        group = self._tree.group(ref, exclusive=False)
        if not is_same:
            files.write(group / _WEIGHT, str(limit.weight))
        if not is_first:
            self.weigh(group.parent)
        elif not is_same:
            files.write(group.parent / _WEIGHT, str(limit.weight))
        if not has_same_quota:
            self._set_quota(group, limit)

    def keep_limit(self, ref: ContainerRef, limit: Limit) -> None:
        """Set the weight and quota of a shared container, unless it has them: a daemon that starts finds most right."""
        group = self._tree.group(ref, exclusive=False)
        if self.wrong(ref, limit):
            self.set_limit(group, limit)
        else:
            self.weigh(group.parent)

    def set_limit(self, group: Path, limit: Limit) -> None:
        """Set the weight and quota of a shared container's group."""
        if not self._is_there:
            return
        files.write(group / _WEIGHT, str(limit.weight))
        self._set_quota(group, limit)
        self.weigh(group.parent)

    @staticmethod
    def _set_quota(group: Path, limit: Limit) -> None:
        if (group / _MAX).exists():
            files.write(group / _MAX, f"{'max' if limit.quota is None else limit.quota} {limit.period}")

    def wrong(self, ref: ContainerRef, limit: Limit) -> str:
        """Return how the weight and quota of a shared container differ from its limit; "" if they do not."""
        if not self._is_there:
            return ""
        group = self._tree.group(ref, exclusive=False)
        quota = f"{'max' if limit.quota is None else limit.quota} {limit.period}"
        return _difference(group, {_WEIGHT: str(limit.weight), _MAX: quota}) or self._limited(group.parent)

    def wrong_pools(self) -> str:
        """Return which quota limits a pool; "" if none does."""
        groups = (self._tree.top, self._tree.shared, self._tree.exclusive) if self._is_there else ()
        return next(filter(None, map(self._limited, groups)), "")

    def free_pools(self) -> None:
        """Lift the quotas of both pools, and of the pods in the shared one."""
        shared = self._tree.shared
        for group in (self._tree.top, shared, self._tree.exclusive, *files.groups_below(shared)):
            if self._limited(group):
                files.write_once(group / _MAX, "max")

    def _limited(self, group: Path) -> str:
        found = _value(group, _MAX)
        return "" if found is None or found.startswith("max") else f"{group / _MAX} is {found} instead of max"

    def weigh(self, pod: Path) -> None:
        """Give a pod's group the weight of its containers together, so that containers of all pods compete equally."""
        if self._is_there:
            _add_up(pod, _WEIGHT, _MAX_WEIGHT)


def _difference(group: Path, wanted: Mapping[str, str]) -> str:
    """Return the first of the group's files that has another value than wanted; "" if none has."""
    for file, value in wanted.items():
        found = _value(group, file)
        if found not in {None, value}:
            return f"{group / file} is {found} instead of {value}"
    return ""


def _value(group: Path, file: str) -> str | None:
    """Return what a file of a group has; None if this kernel has no such file."""
    try:
        return files.read(f"{group}/{file}")
    except CgroupError as error:
        if error.name == "ENOENT":
            return None
        raise


def _add_up(pod: Path, file: str, most: int) -> None:
    """Write into the pod's *file* the sum of its containers', if it has any, but no more than *most*."""
    total = sum(int(files.read(f"{pod}/{name}/{file}")) for name in files.names_below(pod))
    value = str(min(total, most))
    if total and files.read(f"{pod}/{file}") != value:
        files.write(pod / file, value)
