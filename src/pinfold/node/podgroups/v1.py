"""Groups of Kubernetes pods on cgroup v1: a child must be within its parent, so every group is set by itself.

Shrinking goes from the bottom up, widening from the top down; a pool that moves is widened first. The groups above
(pod, class, kubepods) are widened as needed and have no processes themselves. A container that is made meanwhile
copies its pod's CPUs; if it is in the way, everything is done once more. Between its reading and its writing them the
pod must not shrink, or it could not start: pods in which one may be made are named by those who know, and stay wide
until it is there. CPU time is a hierarchy of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.node import cgroupfiles as files
from pinfold.node.cgroupfiles import CgroupError
from pinfold.node.grouperrors import KindUnavailableError, NoCPUsError
from pinfold.node.podgroups.paths import is_kubepods
from pinfold.node.podgroups.settings import CPUS, MEMS, Changes, Quota, Setting, unless_gone
from pinfold.node.podgroups.tree import PodTree

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from pinfold.core.cpuset import CPUSet

KIND: Final = "cgroup v1"
_EFFECTIVE: Final = {CPUS: "cpuset.effective_cpus", MEMS: "cpuset.effective_mems"}
_SHARES: Final = "cpu.shares"
_QUOTA: Final = "cpu.cfs_quota_us"
_PERIOD: Final = "cpu.cfs_period_us"
_UNLIMITED: Final = -1
# Each round lasts microseconds, and is needed only for a container that was made during the one before.
_ROUNDS: Final = 20
# What a container that is being made causes; the last is no errno: its runtime has written after us.
_DISTURBED: Final = ("EBUSY", "EACCES", "")


def discover(cgroup_root: Path, proc: Path, kubepods: str | None) -> PodGroupsV1:
    """Return the groups in the hierarchies below *cgroup_root*, where one has the cpuset controller."""
    mounted = [path for path in files.groups_below(cgroup_root) if (path / "tasks").is_file()]
    cpuset = next((path for path in mounted if (path / CPUS).is_file()), None)
    if cpuset is None:
        raise KindUnavailableError(KIND, f"no cpuset controller is mounted below {cgroup_root}")
    cpu = next((path for path in mounted if (path / _SHARES).is_file()), None)
    return PodGroupsV1(PodTree(cpuset, unified=False, proc=proc, kubepods=kubepods), cpu)


class _Move(NamedTuple):
    """The CPUs of a group."""

    before: CPUSet
    target: CPUSet


class PodGroupsV1:
    """Pods and containers of Kubernetes on cgroup v1. Remembers nothing: the kernel's files are the only state."""

    kind = KIND
    nested = True

    def __init__(self, tree: PodTree, cpu: Path | None) -> None:
        self.tree = tree
        self._cpu = cpu

    def cpus(self, group: Path) -> CPUSet:
        """Return the CPUs that the kernel lets the group use."""
        return files.read_cpus(group / _EFFECTIVE[CPUS])

    def mems(self, group: Path) -> CPUSet:
        """Return the NUMA nodes that the kernel lets the group use."""
        return files.read_cpus(group / _EFFECTIVE[MEMS])

    def quota(self, group: Path) -> Quota:
        """Return the group's own limit of CPU time."""
        timed = self._timed(group)
        if timed is None or not timed.is_dir():
            return Quota(None)
        quota = int(files.read(timed / _QUOTA))
        return Quota(None if quota < 0 else quota, int(files.read(timed / _PERIOD)))

    def set_pool(
        self,
        cpus: CPUSet,
        guaranteed: Collection[Path] = (),
        singles: Collection[Path] = (),
        *,
        closely: bool = True,  # noqa: ARG002 - every group must be set by itself
        settled: Collection[Path] | None = None,
    ) -> tuple[Setting, ...]:
        """Make *cpus* the shared pool, singles first: they must have left before their pod's owner gets CPUs."""
        if not cpus:
            raise NoCPUsError("shared pool")
        tops = [self.tree.checked_container(container) for container in singles]
        tops += [*self.tree.pooled(), *(self.tree.checked_pod(pod) for pod in guaranteed)]
        changes = Changes()
        for top in tops:
            with unless_gone(top):
                self._set_all(changes, top, CPUS, cpus, settled)
        return changes.settings()

    def open_pod(
        self, pod: Path, cpus: CPUSet, mems: CPUSet | None = None, *, lift_quota: bool = True
    ) -> tuple[Setting, ...]:
        """Make room in a pod for an exclusive container that is about to be made; the others keep what they had."""
        self.tree.check_exclusive(self.tree.checked_pod(pod), cpus)
        changes = Changes()
        if lift_quota:
            self._set_quota(changes, pod, Quota(None))
        for file, wanted in ((CPUS, cpus), (MEMS, mems)):
            if wanted:
                self._widen_above(changes, pod / "container", file, wanted)
        return changes.settings()

    def set_container(
        self, container: Path, cpus: CPUSet, mems: CPUSet | None = None, *, lift_quota: bool = True
    ) -> tuple[Setting, ...]:
        """Give an exclusive container its CPUs, and lift its quota and its pod's."""
        self.tree.check_exclusive(self.tree.checked_container(container), cpus)
        changes = Changes()
        if lift_quota:
            for group in (container.parent, container):
                self._set_quota(changes, group, Quota(None))
        for file, wanted in ((MEMS, mems), (CPUS, cpus)):
            if wanted:
                self._set_all(changes, container, file, wanted)
        return changes.settings()

    def set_quota(self, group: Path, quota: Quota) -> tuple[Setting, ...]:
        """Set the limit of a pod or container: give back what was lifted."""
        self.tree.checked(group)
        changes = Changes()
        self._set_quota(changes, group, quota)
        return changes.settings()

    def _set_all(
        self, changes: Changes, top: Path, file: str, wanted: CPUSet, settled: Collection[Path] | None = None
    ) -> None:
        """Set *top* and everything below it down to the containers; deeper groups follow, or are cut."""
        for tries_left in reversed(range(_ROUNDS)):
            try:
                self._widen_above(changes, top, file, wanted)
                self._set_round(changes, self._moves(top, file, wanted, settled), file)
            except CgroupError as error:
                if error.name not in _DISTURBED or not tries_left:
                    raise
            else:
                return

    def _set_round(self, changes: Changes, moves: dict[Path, _Move], file: str) -> None:
        parents = {group.parent for group in moves}
        has = {group: move.before for group, move in moves.items()}
        for group, (before, target) in moves.items():
            if not target <= before:
                # What has groups below must contain them until they have moved too.
                wider = target | before if group in parents else target
                with unless_gone(group):
                    changes.set_cpus(group, file, wider, known=before)
                    has[group] = wider
        for group in reversed(moves):
            with unless_gone(group):
                changes.set_cpus(group, file, moves[group].target, known=has[group])

    def _moves(self, top: Path, file: str, wanted: CPUSet, settled: Collection[Path] | None) -> dict[Path, _Move]:
        """Return what each group has and is to have, those above first; those above unsettled pods do not shrink."""
        moves: dict[Path, _Move] = {}
        containers = len(top.parts) + self.tree.levels(top)
        groups = self.tree.below(top)
        pods = () if settled is None else (group for group in groups if len(group.parts) == containers - 1)
        wide = {above for pod in pods if settled is not None and pod not in settled for above in (pod, pod.parent)}
        for group in groups:
            with unless_gone(group):
                before = files.read_cpus(group / file)
                if len(group.parts) <= containers:
                    moves[group] = _Move(before, wanted | before if group in wide else wanted)
                elif before and group.parent in moves:
                    above = moves[group.parent]
                    # One that had all its parent had goes on having all; another keeps what is left of its own.
                    follows = before == above.before
                    moves[group] = _Move(before, above.target if follows else before & above.target or above.target)
        return moves

    def _widen_above(self, changes: Changes, group: Path, file: str, wanted: CPUSet) -> None:
        """Let the groups above, from kubepods on down, contain what is wanted.

        A CPU that was offline for a while is missing in every group of v1 until somebody puts it back.
        """
        above = [path for path in reversed(group.parents) if path.is_relative_to(self.tree.root)]
        depth = next((depth for depth, path in enumerate(above) if is_kubepods(path.name)), len(above))
        for path in above[depth:]:
            own = files.read_cpus(path / file)
            if not wanted <= own:
                changes.set_cpus(path, file, own | wanted)

    def _timed(self, group: Path) -> Path | None:
        """Return the group's twin in the hierarchy of the cpu controller; None if its time cannot be limited."""
        if self._cpu is None or not (self._cpu / _SHARES).is_file():
            return None
        twin = self._cpu.joinpath(*self.tree.parts(group))
        return None if twin.is_dir() and not (twin / _QUOTA).exists() else twin

    def _set_quota(self, changes: Changes, group: Path, quota: Quota) -> None:
        timed = self._timed(group)
        # A runtime makes the group of CPU time after that of CPUs: who looks again when it has started finds it.
        if timed is None or not timed.is_dir():
            return
        if quota.quota is not None and files.read(timed / _PERIOD) != str(quota.period):
            # The two are one limit written in two steps; without a quota no period is refused.
            changes.set_text(timed, _QUOTA, str(_UNLIMITED))
            changes.set_text(timed, _PERIOD, str(quota.period))
        value = _UNLIMITED if quota.quota is None else quota.quota
        changes.set_text(timed, _QUOTA, str(value), *quota.properties())
