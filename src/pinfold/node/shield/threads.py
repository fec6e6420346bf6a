"""Threads outside of control groups: those of processes, and kernel threads; moved one by one, by their affinity."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.core.shield import HostPlace, PlaceKind
from pinfold.node.cgroupfiles import CgroupError, read_pids
from pinfold.node.grouperrors import GroupError
from pinfold.node.processgroups.names import CONTAINER_MARK

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from pathlib import Path

_KERNEL: Final = 0x0020_0000
"""PF_KTHREAD: a thread of the kernel."""
_BOUND: Final = 0x0400_0000
"""PF_NO_SETAFFINITY: the kernel lets no program change its CPUs."""
# Where the fields of /proc/PID/stat stand after the command, which may hold anything, and its closing parenthesis.
_STATE, _FLAGS, _START = 0, 6, 19
_DEAD: Final = ("Z", "X")
_MARK: Final = f"{CONTAINER_MARK}=".encode()


class ThreadBoundError(GroupError):
    """A thread whose CPUs could not be set."""

    def __init__(self, thread: str, error: OSError) -> None:
        words = {errno.EPERM: "it belongs to another user", errno.EINVAL: "the kernel keeps it where it is"}
        super().__init__(f"{thread}: {words.get(error.errno or 0) or error.strerror}")
        self.gone = error.errno == errno.ESRCH


class ThreadAffinity(Protocol):
    """The affinity of threads."""

    def get(self, thread: int) -> CPUSet:
        """Return the CPUs of a thread, or raise an OSError."""
        ...

    def set(self, thread: int, cpus: CPUSet) -> None:
        """Set the CPUs of a thread, or raise an OSError."""
        ...


class KernelScheduler:
    """This machine's scheduler."""

    def get(self, thread: int) -> CPUSet:
        """Return the CPUs of a thread, or raise an OSError."""
        return CPUSet.from_cpus(os.sched_getaffinity(thread))

    def set(self, thread: int, cpus: CPUSet) -> None:
        """Set the CPUs of a thread, or raise an OSError."""
        os.sched_setaffinity(thread, cpus)


class _Stat(NamedTuple):
    name: str
    flags: int
    start: int


class Threads:
    """The threads of the processes that are in no control group but the topmost one."""

    def __init__(
        self,
        root: Path,
        top: Path | None,
        scheduler: ThreadAffinity,
        members: Callable[[], Collection[int]] = frozenset,
        joined: Callable[[], Mapping[int, CPUSet]] = dict,
    ) -> None:
        """*top* is the topmost group, None if there are none; *members* returns the processes of containers in it.

        *joined* returns the processes of containers with groups of their own, and the CPUs of these groups.
        """
        self._proc = root / "proc"
        self._top = top
        self._scheduler = scheduler
        self._members = members
        self._joined = joined

    def read(self) -> dict[HostPlace, CPUSet]:
        """Return the CPUs of each thread that may be moved.

        Processes of another pinfold stay: it keeps them where they are by their affinity, as we would.
        """
        ours = set(self._members())
        found = {}
        for pid in self._pids():
            if pid in ours or self._is_marked(pid):
                continue
            for thread in self._threads(pid):
                cpus, place = self._get(thread), self._place(pid, thread)
                if cpus and place is not None:
                    found[place] = cpus
        return found

    def joined(self, known: Collection[str], *, all_of_them: bool) -> dict[HostPlace, CPUSet]:
        """Return the CPUs of threads in groups of containers.

        Only those with fewer CPUs than their group or with a *known* key, unless *all_of_them*.
        """
        found = {}
        for pid, of_group in self._joined().items():
            for thread in self._threads(pid):
                cpus, place = self._get(thread), self._place(pid, thread)
                if cpus and place is not None and (all_of_them or cpus < of_group or place.key in known):
                    found[place] = cpus
        return found

    def write(self, place: HostPlace, cpus: CPUSet) -> None:
        """Set the CPUs of a thread, or raise; one that has ended meanwhile is fine."""
        number, _, start = place.id.partition(":")
        stat = self._stat(int(number), int(number))
        if stat is None or str(stat.start) != start:
            return
        try:
            self._scheduler.set(int(number), cpus)
        except OSError as error:
            if error.errno != errno.ESRCH:
                raise ThreadBoundError(str(place), error) from error

    def ticks(self) -> int | None:
        """Return how long the machine is up, as the start of a thread is given; None if that is not known."""
        try:
            return int(float((self._proc / "uptime").read_text().split()[0]) * os.sysconf("SC_CLK_TCK"))
        except (OSError, ValueError, IndexError):
            return None

    def _is_marked(self, pid: int) -> bool:
        """Return whether a process is in a container of a pinfold, as its environment says."""
        try:
            entries = (self._proc / str(pid) / "environ").read_bytes().split(b"\0")
        except OSError:
            return False
        return any(entry.startswith(_MARK) for entry in entries)

    def _place(self, pid: int, thread: int) -> HostPlace | None:
        stat = self._stat(pid, thread)
        if stat is None or stat.flags & _BOUND:
            return None
        kind = PlaceKind.KERNEL_THREAD if stat.flags & _KERNEL else PlaceKind.PROCESS
        return HostPlace(kind, f"{thread}:{stat.start}", stat.name)

    def _get(self, thread: int) -> CPUSet:
        try:
            return self._scheduler.get(thread)
        except OSError:
            return EMPTY

    def _pids(self) -> Iterable[int]:
        if self._top is not None:
            try:
                return read_pids(self._top)
            except (CgroupError, ValueError):
                pass
        return _numbers(self._proc)

    def _threads(self, pid: int) -> Iterator[int]:
        return _numbers(self._proc / str(pid) / "task")

    def _stat(self, pid: int, thread: int) -> _Stat | None:
        """Return what is known of a thread; None if it is not there, or only waits to be reaped."""
        try:
            text = (self._proc / str(pid) / "task" / str(thread) / "stat").read_text("utf-8", "replace")
            head, _, tail = text.rpartition(")")
            fields = tail.split()
            if fields[_STATE] in _DEAD:
                return None
            return _Stat(head.partition("(")[2], int(fields[_FLAGS]), int(fields[_START]))
        except (OSError, ValueError, IndexError):
            return None


def _numbers(directory: Path) -> Iterator[int]:
    try:
        names = os.listdir(directory)  # noqa: PTH208 - names are all we need
    except OSError:
        return
    yield from sorted(int(name) for name in names if name.isascii() and name.isdigit())
