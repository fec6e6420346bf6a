"""NodeGroups: the cgroups of a node, as its kubelet and its container runtime make, set and remove them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.machine.cpuset import CPUSet
from pinfold.node.podgroups.paths import parse_cgroup_parent, parse_cgroups_path
from pinfold.node.podgroups.settings import CPUS, MEMS, Quota

if TYPE_CHECKING:
    from pathlib import Path

    from pinfold.node.podgroups.simulated import Simulated
    from pinfold.runtimes.simulated.record import Spec


class NodeGroups:
    """Pods by their cgroup parent, containers by the cgroupsPath of their OCI spec; with either cgroup driver."""

    def __init__(self, groups: Simulated) -> None:
        self._groups = groups

    def make(self, parent: str, quota: Quota | None = None) -> None:
        """Make the group of a pod, or one above pods."""
        group = self._above(parent)
        self._groups.make(group)
        if quota is not None:
            self._groups.set_quota(group, quota)

    def remove(self, parent: str) -> None:
        """Remove the group of a pod with everything in it."""
        self._clear(self._above(parent))

    def start(self, path: str, spec: Spec, pid: int) -> None:
        """Make the group of a container as its spec says, with a process in it."""
        group = self._container(path)
        self._groups.make(group)
        self.set(path, spec)
        self._groups.put(pid, group)

    def set(self, path: str, spec: Spec) -> None:
        """Set the group of a container as its spec says; CPUs that the spec does not have stay as they are."""
        group = self._container(path)
        for file, listed in ((CPUS, spec.cpus), (MEMS, spec.mems)):
            if listed:
                self._groups.set_own(group, file, CPUSet.parse(listed))
        self._groups.set_quota(group, Quota(spec.quota, spec.period) if spec.quota > 0 else Quota(None))

    def end(self, path: str) -> None:
        """End all processes of a container, and remove its group."""
        self._clear(self._container(path))

    def _clear(self, group: Path) -> None:
        for below in self._groups.below(group):
            self._clear(below)
        for pid in self._groups.members(group) if self._groups.exists(group) else ():
            self._groups.end(pid)
        self._groups.remove(group)

    def _above(self, parent: str) -> Path:
        return self._groups.root.joinpath(*parse_cgroup_parent(parent))

    def _container(self, path: str) -> Path:
        return self._groups.root.joinpath(*parse_cgroups_path(path))
