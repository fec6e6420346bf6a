"""Threads on CPUs by affinity, which the kernel keeps for each thread and passes on to the threads that it starts.

Not here: which process belongs to which container.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from enum import Enum, auto
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.node.grouperrors import GroupError, NoCPUsError
from pinfold.node.machine.sysfs import SYSTEM
from pinfold.node.machine.tree import Tree
from pinfold.node.processgroups.errors import AffinityError, BarredError

if TYPE_CHECKING:
    from pinfold.node.procfs import Procfs

ROUNDS: Final = 1000
"""How often the threads of a process, or the processes of a container, are listed before we give up."""
# The kernel may leave out a thread while others start and end: one list without new threads is not enough.
_CLEAN_ROUNDS: Final = 2
_MEANINGS: Final = {
    errno.EPERM: "not permitted; it belongs to another user",
    errno.EINVAL: "its cpuset allows none of these CPUs, or it is a kernel thread bound to its CPU",
}


class Strictness(Enum):
    """Which of the CPUs that a thread is put on it must really get."""

    WITHIN = auto()
    """Some of them, and no others: a program may choose fewer for itself."""
    ALL = auto()
    """All of them that its cpuset has."""
    EXACTLY = auto()
    """All of them: they were promised."""


class Reach:
    """The CPUs that this daemon can put processes on: those of the machine that are in its own cpuset."""

    def __init__(self, root: Path) -> None:
        self._system = Tree(root, SYSTEM)
        self.possible = CPUSet(self._system.mask(["cpu/possible", "cpu/present"], []) or 0)
        """All CPUs that the machine can have; none if the kernel does not say."""

    def barred(self) -> CPUSet:
        """Return the online CPUs that the daemon's cpuset does not have."""
        online = CPUSet(self._system.mask(["cpu/online"], []) or 0)
        usable = _usable(self.possible)
        return online - usable if usable else EMPTY

    def check(self, group: str, cpus: CPUSet, *, exact: bool) -> None:
        """Raise if *group* cannot have these CPUs; unless *exact*, it is enough that it can have one of them."""
        if not cpus:
            raise NoCPUsError(group)
        if self.possible and not cpus <= self.possible:
            raise GroupError(f"{group}: CPUs {cpus} → no such CPU: {cpus - self.possible}")
        barred = self.barred()
        if cpus & barred and (exact or cpus <= barred):
            raise BarredError(group, cpus, barred)


def confine(procfs: Procfs, pid: int, cpus: CPUSet, strictness: Strictness) -> bool:
    """Put every thread of a process on *cpus*, and return whether one had to be moved.

    The threads are listed until no new one has to be moved: from then on, all new ones start on *cpus*.
    """
    done: set[int] = set()
    any_moved, clean = False, 0
    for _ in range(ROUNDS):
        new = set(procfs.threads(pid)) - done
        moved = True in {_confine_thread(thread, cpus, strictness) for thread in new}
        any_moved |= moved
        clean = 0 if moved else clean + 1
        if clean == _CLEAN_ROUNDS:
            return any_moved
        done |= new
    raise GroupError(f"process {pid} starts threads faster than they can be moved to CPUs {cpus}")


def _confine_thread(thread: int, cpus: CPUSet, strictness: Strictness) -> bool:
    """Put a thread on *cpus*, and return whether it had to be moved. A thread that has ended is fine."""
    before = EMPTY
    try:
        before = now = _allowed(thread)
        if now == cpus or (now <= cpus and strictness is Strictness.WITHIN):
            return False
        os.sched_setaffinity(thread, cpus)
        now = _allowed(thread)
    except ProcessLookupError:
        return False
    except PermissionError as error:
        if before and before <= cpus and strictness is not Strictness.EXACTLY:
            return False  # another user's, but it uses no CPU that it must not use
        raise AffinityError(thread, cpus, _MEANINGS[errno.EPERM]) from error
    except OSError as error:
        raise AffinityError(thread, cpus, _MEANINGS.get(error.errno or 0, str(error))) from error
    if not now <= cpus:
        raise AffinityError(thread, cpus, f"the kernel lets it run on {now}")
    if now != cpus and strictness is Strictness.EXACTLY:
        raise AffinityError(thread, cpus, f"it has only {now}; the others are offline, or not in its cpuset")
    return True


@cache
def every_cpu() -> CPUSet:
    """Return all CPUs that this machine can have; none if the kernel does not say."""
    return Reach(Path("/")).possible


def _usable(possible: CPUSet) -> CPUSet:
    """Return the CPUs that this process may use; none if it may not ask.

    This thread asks for all, and the kernel gives it those of its cpuset. If it had fewer before, it has them again; if
    not, its wish for all stays: since Linux 6.2 no cpuset widens a thread that has asked for fewer.
    """
    before = _allowed(0)
    try:
        os.sched_setaffinity(0, possible)
    except OSError:
        return EMPTY
    found = _allowed(0)
    if found != before:
        with suppress(OSError):  # its cpuset has none of these any more
            os.sched_setaffinity(0, before)
    return found


def _allowed(thread: int) -> CPUSet:
    return CPUSet.from_cpus(os.sched_getaffinity(thread))
