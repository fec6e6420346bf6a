"""PodGroups: the CPUs of Kubernetes pods and containers, through the cgroups that the kubelet and its runtime made.

It makes and removes none of these groups: it finds them, sets their CPUs and reads them back. Every change has taken
effect in the kernel before the call returns. Where the groups are units of systemd, tell it the settings that a call
returns (`systemd`): else systemd writes back the old values.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from pinfold.core.machine.cpuset import EMPTY
from pinfold.node.cgroupfiles import CgroupError
from pinfold.node.grouperrors import KindUnavailableError, NoCPUsError
from pinfold.node.podgroups import v1, v2
from pinfold.node.podgroups.cut import Cut
from pinfold.node.podgroups.nested import Nested
from pinfold.node.podgroups.settings import CPUS, MEMS, GroupChanges, GroupSetting, Quota
from pinfold.node.podgroups.tree import PodTree

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.node.podgroups.driver import Driver

_CGROUP_ROOT: Final = Path("/sys/fs/cgroup")
_PROC: Final = Path("/proc")
_DRIVERS: Final[tuple[Callable[[Path, Path], Driver], ...]] = (v2.discover, v1.discover)


def discover(cgroup_root: Path = _CGROUP_ROOT, proc: Path = _PROC, kubepods: str | None = None) -> PodGroups:
    """Return the groups of this machine, of the cgroup version that has the cpuset controller.

    *kubepods* is the group of all pods, as a path or a slice; without it, the one nearest to the top is taken, as
    soon as there is one.
    """
    return PodGroups(find_driver(cgroup_root, proc), kubepods)


def find_driver(cgroup_root: Path = _CGROUP_ROOT, proc: Path = _PROC) -> Driver:
    """Return the driver for the cgroup version of this machine that has the cpuset controller."""
    refusals = []
    for discovered in _DRIVERS:
        try:
            return discovered(cgroup_root, proc)
        except KindUnavailableError as error:
            refusals.append(error)
    raise KindUnavailableError(", ".join(error.kind for error in refusals), "; ".join(error.why for error in refusals))


class PodGroups:
    """The groups of pods and containers. A group is named by its path, which `tree` finds. Remembers nothing.

    Every change returns all settings that are now as wanted; `GroupSetting.changed` tells which were not so before. The
    CPUs of pods and containers that share are not among them on v1, where systemd knows of no CPUs. A group that is
    removed meanwhile is skipped.
    """

    def __init__(self, driver: Driver, kubepods: str | None = None) -> None:
        self.kind = driver.kind
        """The driver's description, for people to read."""
        self.nested = driver.nested
        """Whether the kernel insists that a group is within the one above it."""
        self.tree = PodTree(driver.hierarchy, kubepods)
        """Finds the groups and their processes."""
        self._driver = driver

    def cpus(self, group: Path) -> CPUSet:
        """Return the CPUs that the kernel lets the group use."""
        return self._driver.effective(group, CPUS)

    def mems(self, group: Path) -> CPUSet:
        """Return the NUMA nodes that the kernel lets the group use."""
        return self._driver.effective(group, MEMS)

    def quota(self, group: Path) -> Quota:
        """Return a pod's or container's own limit of CPU time; the groups above can have lower ones."""
        return self._driver.quota(self.tree.paths.checked(group))

    def set_pool(
        self,
        cpus: CPUSet,
        guaranteed: Collection[Path] = (),
        singles: Collection[Path] = (),
        *,
        closely: bool = True,
        settled: Collection[Path] | None = None,
    ) -> tuple[GroupSetting, ...]:
        """Make *cpus* the shared pool: of all Burstable and BestEffort pods and of the groups that are given.

        *guaranteed* are the Guaranteed pods without an exclusive container; *singles* are, of the other Guaranteed
        pods, all containers that are not exclusive: `tree.containers(pod)` has them, the sandbox included. The singles
        come first: they must have left before the owner in their pod gets its CPUs.

        Without *closely*, groups that the kernel cuts to those above (v2) are not looked at: then the time does not
        depend on how many there are. Until the next close look, one with CPUs of its own may have fewer than the
        pool; none has more.

        *settled* are the pods in which no container is about to be made, all if not given. The others' own groups do
        not shrink on v1, only those of their containers: a runtime that has read them to copy them could fail.
        """
        if not cpus:
            raise NoCPUsError("shared pool")
        containers = [self.tree.paths.checked_container(container) for container in singles]
        parents = [*self.tree.pooled(), *(self.tree.paths.checked_pod(pod) for pod in guaranteed)]
        changes, order = self._start()
        for container in containers:
            with changes.unless_gone(container):
                self._driver.hand_down_to(container)
                order.give(container, CPUS, cpus)
        for parent in parents:
            with changes.unless_gone(parent):
                self._driver.hand_down_to(parent)
                order.share(parent, cpus, closely=closely, settled=settled)
        return changes.settings()

    def open_pod(
        self, pod: Path, cpus: CPUSet, mems: CPUSet | None = None, *, lift_quota: bool = True
    ) -> tuple[GroupSetting, ...]:
        """Make room in a Guaranteed pod for an exclusive container that is about to be made; others keep what they had.

        Call it before the runtime makes the group: on v1 that would fail, and on v2 the container would run on all
        CPUs of its pod. The pod's quota is lifted, as it would throttle the container too. To give it back later, use
        `quota` before, or `Quota.of_millicpu` of the pod's limits.
        """
        self.tree.check_exclusive(self.tree.paths.checked_pod(pod), cpus)
        changes, order = self._start()
        if lift_quota:
            changes.set_quota(pod, Quota(None))
        self._driver.hand_down_to(pod / "container")  # the container that is about to be made
        for file, wanted in ((CPUS, cpus), (MEMS, mems)):
            if wanted:
                order.make_room(pod, file, wanted)
        return changes.settings()

    def set_container(
        self, container: Path, cpus: CPUSet, mems: CPUSet | None = None, *, lift_quota: bool = True
    ) -> tuple[GroupSetting, ...]:
        """Give an exclusive container its CPUs (and NUMA nodes), with room in its pod, and no quota in either.

        Move the others away first, with `set_pool`.
        """
        self.tree.check_exclusive(self.tree.paths.checked_container(container), cpus)
        changes, order = self._start()
        for group in (container.parent, container) if lift_quota else ():
            changes.set_quota(group, Quota(None))
        self._driver.hand_down_to(container)
        for file, wanted in ((CPUS, cpus), (MEMS, mems)):
            if wanted:
                order.give(container, file, wanted)
        return changes.settings()

    def set_quota(self, group: Path, quota: Quota) -> tuple[GroupSetting, ...]:
        """Set the limit of a pod or container, to give back what was lifted when nothing in it is exclusive."""
        changes = GroupChanges(self._driver)
        changes.set_quota(self.tree.paths.checked(group), quota)
        return changes.settings()

    def widen_all(self, cpus: CPUSet, kept: CPUSet = EMPTY) -> tuple[GroupSetting, ...]:
        """Let every group from kubepods down to the containers have *cpus* again: for leaving the node.

        Groups are widened from the top down, and read back when all are done. Groups that follow the one above need
        no write. A container on CPUs of *kept* alone is an owner, and stays there.
        """
        if not cpus:
            raise NoCPUsError("groups of all pods")
        changes, order = self._start()
        flags = self._driver.balance_flags
        for group in self.tree.down_to_pods():
            if flags is not None and self.tree.paths.levels(group) == 1:
                flags.give_back(group)
            with changes.unless_gone(group):
                if own := self._driver.own(group, CPUS):
                    changes.set_own(group, CPUS, own | cpus, own)
        for container in self.tree.all_containers():
            with changes.unless_gone(container):
                own = self._driver.own(container, CPUS)
                if flags is not None:
                    flags.give_back(container, is_owner=own <= kept)
                if not own <= kept:
                    order.give(container, CPUS, cpus)
        for setting in changes.settings():
            with changes.unless_gone(setting.group):
                self._check_has(setting.group, cpus)
        return changes.settings()

    def heed_balance(self, owners: Callable[[], Collection[Path]]) -> None:
        """Look whether what was done to move containers quickly is still without effect; else undo it (`balance`).

        *owners* returns the groups of the containers with CPUs of their own, which have not moved.
        """
        if (flags := self._driver.balance_flags) is not None:
            flags.heed(lambda: self._sharing(owners()))

    def _sharing(self, owners: Collection[Path]) -> list[Path]:
        pods = (group for group in self.tree.down_to_pods() if self.tree.paths.levels(group) == 1)
        return [group for group in (*pods, *self.tree.all_containers()) if group not in owners]

    def _check_has(self, group: Path, cpus: CPUSet) -> None:
        given = self.cpus(group)
        if not cpus <= given:
            meaning = f"the groups above do not allow all of these; the kernel lets it run on {given}"
            raise CgroupError(group / CPUS, str(cpus), "", meaning)

    def _start(self) -> tuple[GroupChanges, Cut | Nested]:
        changes, pooling = GroupChanges(self._driver), self._driver.pooling
        return changes, Cut(changes, self.tree) if pooling is None else Nested(changes, self.tree, pooling)
