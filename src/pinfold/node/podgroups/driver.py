"""Driver: what PodGroups needs of a cgroup hierarchy. `v1` and `v2` drive the kernel, `simulated` a tree in memory.

A group is named by its path. Every verb raises CgroupError, with the kernel's errno, where the kernel would refuse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.node.podgroups.balance import BalanceFlags
    from pinfold.node.podgroups.settings import GroupSetting, Quota


class Hierarchy(Protocol):
    """Which groups there are, and which processes are in them."""

    @property
    def root(self) -> Path:
        """The path of the top group."""
        ...

    def exists(self, group: Path) -> bool:
        """Whether there is such a group now."""
        ...

    def below(self, group: Path) -> list[Path]:
        """Return the groups directly below, in order of their names; none if there is no such group."""
        ...

    def has_below(self, group: Path) -> bool:
        """Return whether there are groups directly below; quicker than to list them."""
        ...

    def members(self, group: Path) -> list[int]:
        """Return the processes in the group itself, ascending."""
        ...

    def group_of(self, pid: int) -> Path | None:
        """Return the group that a process is in; None if the process has ended, or is in the top group."""
        ...


class Pooling(Protocol):
    """Sets the pods of the shared pool, where a group must be within the one above it."""

    def share(
        self,
        above: Path,
        cpus: CPUSet,
        move: Callable[[Path], None],
        *,
        pods: Collection[str] | None = None,
        settled: Collection[Path] | None = None,
    ) -> bool:
        """Let the pods directly below *above*, which has these CPUs, and their containers have them, and no others.

        *pods* are the names of some; else it is all. *move* is called for containers with groups below them, which
        must move too. Pods that are not *settled* do not shrink, if that is given; return whether there were none. A
        group that is removed meanwhile is skipped.
        """
        ...


class Driver(Protocol):
    """The CPUs, NUMA nodes and CPU time of groups; *file* is `settings.CPUS` or `settings.MEMS`."""

    @property
    def kind(self) -> str:
        """The description of this driver, for people to read."""
        ...

    @property
    def nested(self) -> bool:
        """Whether a group must be within the one above it (cgroup v1); else the one above cuts it (cgroup v2)."""
        ...

    @property
    def pooling(self) -> Pooling | None:
        """Sets the pods of the shared pool where groups are `nested`."""
        ...

    @property
    def balance_flags(self) -> BalanceFlags | None:
        """The flags to clear before groups move, which is quicker then; None where that is so without it."""
        ...

    @property
    def hierarchy(self) -> Hierarchy:
        """The groups."""
        ...

    def own(self, group: Path, file: str) -> CPUSet:
        """Return the CPUs (or NUMA nodes) that were set for the group; none if it follows the one above."""
        ...

    def effective(self, group: Path, file: str) -> CPUSet:
        """Return the CPUs (or NUMA nodes) that processes in the group can use."""
        ...

    def set_own(self, group: Path, file: str, cpus: CPUSet, known: CPUSet | None = None) -> GroupSetting:
        """Set the group's own, unless they are so already, and read them back; *known* is what was just read."""
        ...

    def quota(self, group: Path) -> Quota:
        """Return the group's own limit of CPU time; the groups above can have lower ones."""
        ...

    def set_quota(self, group: Path, quota: Quota) -> tuple[GroupSetting, ...]:
        """Set the group's own limit; sets nothing where CPU time cannot be limited."""
        ...

    def hand_down_to(self, group: Path) -> None:
        """Let the group have CPUs of its own: on cgroup v2 every group above must hand the controller down."""
        ...
