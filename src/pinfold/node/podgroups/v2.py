"""Groups of Kubernetes pods on cgroup v2: a parent's CPUs cut those of everything below, at once.

So the shared pool is one write each for burstable, besteffort and the Guaranteed pods without exclusive containers.
What the kernel does silently, and what is done about it:

- A child that has no CPU in common with its parent runs on all of the parent's. Before an exclusive container gets its
  CPUs, its pod gets them too; pods and containers of the pool that have CPUs of their own get the pool's.
- A child without CPUs of its own follows its parent. Before a pod is widened for an exclusive container, the others in
  it are given what they had.
- A populated group cannot have its own CPUs taken away (ENOSPC), so they are set, never cleared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.core.cpuset import EMPTY, CPUSet
from pinfold.node import cgroupfiles as files
from pinfold.node.cgroupfiles import CgroupError
from pinfold.node.grouperrors import KindUnavailableError, NoCPUsError
from pinfold.node.podgroups.settings import CPUS, MEMS, Changes, Quota, Setting, unless_gone
from pinfold.node.podgroups.tree import PodTree

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path


KIND: Final = "cgroup v2"
_HANDED_DOWN: Final = "cgroup.subtree_control"
_AVAILABLE: Final = "cgroup.controllers"
_CPUSET: Final = "cpuset"
_MAX: Final = "cpu.max"
_UNLIMITED: Final = "max"
_PROPERTIES: Final = {CPUS: "AllowedCPUs", MEMS: "AllowedMemoryNodes"}


def discover(cgroup_root: Path, proc: Path, kubepods: str | None) -> PodGroupsV2:
    """Return the groups below *cgroup_root* (or its directory "unified"), where it has the cpuset controller."""
    root = next((path for path in (cgroup_root, cgroup_root / "unified") if (path / _AVAILABLE).is_file()), None)
    if root is None:
        raise KindUnavailableError(KIND, f"it is not mounted at {cgroup_root}")
    if _CPUSET not in _words(root / _AVAILABLE):
        raise KindUnavailableError(KIND, f"{root} has no cpuset controller; is it in use by cgroup v1?")
    return PodGroupsV2(PodTree(root, unified=True, proc=proc, kubepods=kubepods))


class PodGroupsV2:
    """Pods and containers of Kubernetes on cgroup v2. Remembers nothing: the kernel's files are the only state."""

    kind = KIND
    nested = False

    def __init__(self, tree: PodTree) -> None:
        self.tree = tree

    def cpus(self, group: Path) -> CPUSet:
        """Return the CPUs that the kernel lets the group use."""
        return self._effective(group, CPUS)

    def mems(self, group: Path) -> CPUSet:
        """Return the NUMA nodes that the kernel lets the group use."""
        return self._effective(group, MEMS)

    def quota(self, group: Path) -> Quota:
        """Return the group's own limit of CPU time."""
        path = group / _MAX
        if group.is_dir() and not path.exists():
            return Quota(None)
        quota, period = files.read(path).split()
        return Quota(None if quota == _UNLIMITED else int(quota), int(period))

    def set_pool(
        self,
        cpus: CPUSet,
        guaranteed: Collection[Path] = (),
        singles: Collection[Path] = (),
        *,
        closely: bool = True,
        settled: Collection[Path] | None = None,  # noqa: ARG002 - no group is in another's way
    ) -> tuple[Setting, ...]:
        """Make *cpus* the shared pool, singles first: they must have left before their pod's owner gets CPUs."""
        if not cpus:
            raise NoCPUsError("shared pool")
        pods = [self.tree.checked_pod(pod) for pod in guaranteed]
        changes = Changes()
        for container in singles:
            with unless_gone(container):
                self._give(changes, self.tree.checked_container(container), CPUS, cpus)
        for parent in (*self.tree.pooled(), *pods):
            with unless_gone(parent):
                self._hand_down_to(parent)
                if closely:
                    self._set_those_with_their_own(changes, parent, cpus)
                self._set(changes, parent, CPUS, cpus)
                self._check(parent, CPUS, cpus)
        return changes.settings()

    def open_pod(
        self, pod: Path, cpus: CPUSet, mems: CPUSet | None = None, *, lift_quota: bool = True
    ) -> tuple[Setting, ...]:
        """Make room in a pod for an exclusive container that is about to be made; the others keep what they had."""
        self.tree.check_exclusive(self.tree.checked_pod(pod), cpus)
        changes = Changes()
        if lift_quota:
            self._set_quota(changes, pod, Quota(None))
        self._hand_down_to(pod / "container")
        for file, wanted in ((CPUS, cpus), (MEMS, mems)):
            if wanted:
                self._widen(changes, pod, file, wanted)
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
        self._give(changes, container, CPUS, cpus)
        if mems:
            self._give(changes, container, MEMS, mems)
        return changes.settings()

    def set_quota(self, group: Path, quota: Quota) -> tuple[Setting, ...]:
        """Set the limit of a pod or container: give back what was lifted."""
        self.tree.checked(group)
        changes = Changes()
        self._set_quota(changes, group, quota)
        return changes.settings()

    def _effective(self, group: Path, file: str) -> CPUSet:
        """Ask the group, or the nearest above it that has the cpuset controller."""
        if not (group / f"{file}.effective").exists() and group.is_dir() and group != self.tree.root:
            return self._effective(group.parent, file)
        return files.read_cpus(group / f"{file}.effective")

    def _set(self, changes: Changes, group: Path, file: str, wanted: CPUSet) -> None:
        changes.set_cpus(group, file, wanted, f"{_PROPERTIES[file]}={wanted}")

    def _give(self, changes: Changes, container: Path, file: str, wanted: CPUSet) -> None:
        """Set a container and make room above it; in this order it never has more than before or than wanted."""
        self._hand_down_to(container)
        self._set(changes, container, file, wanted)
        self._widen(changes, container.parent, file, wanted)
        self._check(container, file, wanted)

    def _widen(self, changes: Changes, pod: Path, file: str, wanted: CPUSet) -> None:
        own = files.read_cpus(pod / file)
        if not own:
            return
        if not wanted <= own:
            for container in self.tree.containers(pod):
                if not _own(container, file):
                    with unless_gone(container):
                        self._set(changes, container, file, own)
        self._set(changes, pod, file, own | wanted)

    def _set_those_with_their_own(self, changes: Changes, parent: Path, cpus: CPUSet) -> None:
        """Set pods and containers that do not follow *parent*: they could end up with fewer CPUs than the pool has.

        Deeper groups belong to the workload: whatever they say, the kernel keeps them within their container.
        """
        for group in self.tree.pods_and_containers(parent):
            if _own(group, CPUS):
                with unless_gone(group):
                    self._set(changes, group, CPUS, cpus)

    def _set_quota(self, changes: Changes, group: Path, quota: Quota) -> None:
        if (group / _MAX).exists():
            text = f"{_UNLIMITED if quota.quota is None else quota.quota}"
            period = self.quota(group).period if quota.quota is None else quota.period
            changes.set_text(group, _MAX, f"{text} {period}", *quota.properties())

    def _check(self, group: Path, file: str, wanted: CPUSet) -> None:
        given = files.read_cpus(group / f"{file}.effective")
        if not given <= wanted:
            meaning = f"none of these is online and allowed by the groups above; the kernel lets it run on {given}"
            raise CgroupError(group / file, str(wanted), "", meaning)

    def _hand_down_to(self, group: Path) -> None:
        """Let the group have the cpuset controller: every group above must hand it down, from the top on."""
        if (group / CPUS).exists():
            return
        above = [path for path in reversed(group.parents) if path.is_relative_to(self.tree.root)]
        for path in above:
            if _CPUSET in _words(path / _HANDED_DOWN):
                continue
            if _CPUSET not in _words(path / _AVAILABLE):
                raise CgroupError(path / _AVAILABLE, _CPUSET, "", "the groups above do not hand that controller down")
            files.write_once(path / _HANDED_DOWN, f"+{_CPUSET}")


def _own(group: Path, file: str) -> CPUSet:
    """Return the CPUs that the group has of its own; none if it follows the one above, or is gone."""
    try:
        return files.read_cpus(group / file)
    except CgroupError as error:
        if error.name not in {"ENOENT", "ENODEV"}:
            raise
        return EMPTY


def _words(path: Path) -> set[str]:
    return set(files.read(path).split())
