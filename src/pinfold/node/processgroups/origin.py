"""Origin: where a process was before it was lent to a container, and the way back there."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.cpuset import EMPTY, CPUSet
from pinfold.node.cgroupfiles import CgroupError, add_unless_gone
from pinfold.node.grouperrors import GroupError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pinfold.node.procfs import Procfs


_ROUNDS: Final = 1000


class Origin(NamedTuple):
    """Where a process came from; what is not known is the top of the hierarchy, and whatever CPUs that has."""

    groups: tuple[str, ...] = ()
    """Its cgroup in each hierarchy that matters, as the kernel calls it."""
    cpus: CPUSet = EMPTY
    """The CPUs that its first thread was allowed, and those that it has started since have."""
    threads: Mapping[int, CPUSet] = {}
    """Those of the threads that were allowed others."""

    def group(self, place: int) -> str:
        """Return the cgroup in one of the hierarchies, as they were told in order."""
        return self.groups[place] if place < len(self.groups) else ""


def origin_of(procfs: Procfs, pid: int, *controllers: str) -> Origin:
    """Return where a process is now, in the hierarchies of these controllers; "" is cgroup v2."""
    cpus = procfs.allowed(pid)
    threads = {thread: procfs.allowed(thread) for thread in procfs.threads(pid)}
    others = {thread: allowed for thread, allowed in threads.items() if allowed and allowed != cpus}
    return Origin(tuple(procfs.group(pid, names) for names in controllers), cpus, others)


def move_back(root: Path, group: str, pid: int) -> None:
    """Move a process into a group below *root*; where that takes it no more, into the nearest above that does."""
    parts = PurePosixPath(group.lstrip("/")).parts
    known = () if ".." in parts else parts  # a group outside of our view of the hierarchy
    for depth in range(len(known), -1, -1):
        try:
            add_unless_gone(root.joinpath(*known[:depth]), pid)
        except CgroupError:
            if not depth:
                raise
        else:
            return


def give_back_all(members: Callable[[], list[int]], give_back: Callable[[int], None], whose: str) -> list[int]:
    """Give back a container's processes until it has none, those that they fork meanwhile included; return them."""
    given = set[int]()
    for _ in range(_ROUNDS):
        pids = members()
        if not pids:
            return sorted(given)
        given.update(pids)
        for pid in pids:
            give_back(pid)
    raise GroupError(f"{whose} forks faster than its processes can be given back")


def restore_affinity(procfs: Procfs, pid: int, origin: Origin) -> None:
    """Let every thread of a process use the CPUs it was allowed before, as far as its group has them."""
    for thread in procfs.threads(pid):
        cpus = origin.threads.get(thread, origin.cpus)
        if cpus and procfs.allowed(thread) != cpus:
            with suppress(OSError):  # it has ended, or these CPUs have gone: what its group allows is next best
                os.sched_setaffinity(thread, cpus)
