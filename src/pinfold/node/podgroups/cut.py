"""The order of writing where a group's CPUs cut those of every group below it, at once (cgroup v2).

So the shared pool is one write for each group that has only sharing containers below it. The kernel also does two
things silently, and each needs a write of its own:

- A child that has no CPU in common with its parent runs on all of the parent's. Before an exclusive container gets its
  CPUs, its pod gets them too; pods and containers of the pool that have CPUs of their own get the pool's.
- A child without CPUs of its own follows its parent. Before a pod is widened for an exclusive container, the others in
  it are given what they had.

A group with processes cannot have its own CPUs taken away (ENOSPC), so they are set, never cleared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.node.cgroupfiles import CgroupError
from pinfold.node.podgroups.settings import CPUS

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.node.podgroups.settings import GroupChanges
    from pinfold.node.podgroups.tree import PodTree


class Cut:
    """Writes CPUs for one change, on a kernel that cuts groups to those above them."""

    def __init__(self, changes: GroupChanges, tree: PodTree) -> None:
        self._changes = changes
        self._driver = changes.driver
        self._tree = tree

    def share(
        self,
        top: Path,
        cpus: CPUSet,
        *,
        closely: bool,
        settled: Collection[Path] | None,  # noqa: ARG002 - no group is in the way of another
    ) -> None:
        """Keep everything below *top* within *cpus*; *closely*: let those with CPUs of their own have all of them.

        Groups deeper than a container belong to the workload: the kernel keeps them within their container.
        """
        for group in self._tree.pods_and_containers(top) if closely else ():
            with self._changes.unless_gone(group):
                if own := self._driver.own(group, CPUS):
                    self._changes.set_own(group, CPUS, cpus, own)
        self._changes.set_own(top, CPUS, cpus)
        self._check(top, CPUS, cpus)

    def give(self, container: Path, file: str, wanted: CPUSet) -> None:
        """Set a container, then make room above it: so it never has more than it had or than is wanted."""
        self._changes.set_own(container, file, wanted)
        self.make_room(container.parent, file, wanted)
        self._check(container, file, wanted)

    def make_room(self, pod: Path, file: str, wanted: CPUSet) -> None:
        """Let the pod contain what is wanted; its containers keep what they had."""
        own = self._driver.own(pod, file)
        if not own:
            return
        if not wanted <= own:
            for container in self._tree.containers(pod):
                with self._changes.unless_gone(container):
                    if not self._driver.own(container, file):
                        self._changes.set_own(container, file, own)
        self._changes.set_own(pod, file, own | wanted, own)

    def _check(self, group: Path, file: str, wanted: CPUSet) -> None:
        given = self._driver.effective(group, file)
        if not given <= wanted:
            meaning = f"none of these is online and allowed by the groups above; the kernel lets it run on {given}"
            raise CgroupError(group / file, str(wanted), "", meaning)
