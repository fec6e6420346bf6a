"""Origin: where a process was before it was lent to a container, and how it gets back there."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.node.cgroupfiles import CgroupError, add_unless_gone
from pinfold.node.grouperrors import GroupError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pinfold.node.procfs import Procfs


_ROUNDS: Final = 1000


class Origin(NamedTuple):
    """Where a process came from; an unknown group means the top of its hierarchy, unknown CPUs mean all of them."""

    groups: tuple[str, ...] = ()
    """Its cgroup in each hierarchy that our groups are in, as the kernel writes it."""
    cpus: CPUSet = EMPTY
    """The CPUs that its main thread was allowed; threads that it has started since get them too."""
    threads: Mapping[int, CPUSet] = {}
    """The CPUs of each thread that was allowed others than the main thread."""

    def group(self, place: int) -> str:
        """Return the cgroup in the hierarchy at this place of `groups`; "" if it is not known."""
        return self.groups[place] if place < len(self.groups) else ""


def origin_of(procfs: Procfs, pid: int, *controllers: str) -> Origin:
    """Return where a process is now, in the hierarchies of these controllers; "" is cgroup v2."""
    cpus = procfs.allowed(pid)
    threads = {thread: procfs.allowed(thread) for thread in procfs.threads(pid)}
    others = {thread: allowed for thread, allowed in threads.items() if allowed and allowed != cpus}
    return Origin(tuple(procfs.group(pid, names) for names in controllers), cpus, others)


def move_back(root: Path, group: str, pid: int) -> None:
    """Move a process into a group below *root*; if that refuses it or is gone, into the nearest above that takes it."""
    parts = PurePosixPath(group.lstrip("/")).parts
    known = () if ".." in parts else parts  # a group outside of our cgroup namespace
    for depth in range(len(known), -1, -1):
        try:
            add_unless_gone(root.joinpath(*known[:depth]), pid)
        except CgroupError:
            if not depth:
                raise
        else:
            return


def give_back_all(members: Callable[[], list[int]], give_back: Callable[[int], None], whose: str) -> list[int]:
    """Give back the processes of a container until it has none, also those forked meanwhile, and return them."""
    given = set[int]()
    for _ in range(_ROUNDS):
        pids = members()
        if not pids:
            return sorted(given)
        given.update(pids)
        for pid in pids:
            give_back(pid)
    raise GroupError(f"{whose}: its processes fork faster than they can be given back")


def restore_affinity(procfs: Procfs, pid: int, origin: Origin) -> None:
    """Let every thread of a process use the CPUs it was allowed before, as far as its group has them."""
    for thread in procfs.threads(pid):
        cpus = origin.threads.get(thread, origin.cpus)
        if cpus and procfs.allowed(thread) != cpus:
            with suppress(OSError):  # it has ended, or its group has none of these CPUs: it keeps what the group allows
                os.sched_setaffinity(thread, cpus)
