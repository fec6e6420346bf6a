"""Reads processes and threads from /proc; one that has ended is missing, which is no error."""

from __future__ import annotations

import os
import signal
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.machine.cpuset import EMPTY, CPUSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    Alive = Mapping[int, "Seen"]
    """Living processes by number."""

_OWN: Final = "/proc"
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_CHUNK: Final = 1 << 16
_LINE: Final = 1 << 12
"""More than the longest /proc/PID/stat, which the kernel gives as a whole."""
_ALLOWED: Final = b"Cpus_allowed_list:"
_LEADER: Final = b"Tgid:"
_DEAD: Final = (b"Z", b"X")
_STOPPED: Final = b"T"
_RUNNING: Final = b"R"
# Where the fields of /proc/PID/stat stand after the command, which may hold anything, and its closing parenthesis.
_STATE, _PARENT, _FLAGS, _START = 0, 1, 6, 19
_ENVIRONMENT: Final = slice(47, 49)
NO_ENVIRONMENT: Final = (b"0", b"0")
"""Where the kernel says that the environment of a kernel thread is, and of a process that is not ours."""
_ONE_THREAD: Final = 3
"""The links of a directory with one below it."""
NO_INODE: Final = 1
"""What the kernel lists if it has no inode."""
_EXITING: Final = 0x4
_KERNEL_THREAD: Final = 0x200000
_PENDING: Final = (b"SigPnd:", b"ShdPnd:")
_KILL: Final = 1 << signal.SIGKILL - 1


class Process(NamedTuple):
    """A process that cannot be mistaken for a later one with the same number."""

    pid: int
    start: int
    """Clock ticks from boot to its start."""


class Seen(NamedTuple):
    """A living process, as it was seen once."""

    process: Process
    parent: int
    environment: tuple[bytes, ...] = ()
    """Where its memory has the environment it started with: elsewhere after each exec. Empty if it is not told.

    Of a kernel thread it is NO_ENVIRONMENT.
    """
    inode: int = 0
    """That of its directory, if it was listed: a later process of the same number has another."""


class Procfs:
    """The processes below one /proc."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._read = partial(_read, self._root)

    def processes(self, known: Alive | None = None) -> dict[int, Seen]:
        """Return every living process, by number.

        Processes that are *known* are not read again, so one may only wait to be reaped, or have another parent or
        program by now. Ask for the one process where that matters.
        """
        known, alive = known or {}, dict[int, Seen]()
        for entry in self.entries():
            if not entry.name.isdecimal():
                continue
            pid, inode = int(entry.name), entry.inode()
            found = known.get(pid)
            if found is None or found.inode != inode or inode == NO_INODE:
                found = self.process(pid, inode)
            if found is not None:
                alive[pid] = found
        return alive

    def entries(self) -> list[os.DirEntry[str]]:
        """Return what /proc lists: a directory for each process, called by its number, and others.

        Their inodes need no call for each.
        """
        try:
            # By the file of the directory: else Python makes the path of each entry.
            file = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return []
        try:
            with os.scandir(file) as entries:
                return list(entries)
        except OSError:
            return []
        finally:
            os.close(file)

    def process(self, pid: int, inode: int = 0) -> Seen | None:
        """Return the process with its parent; None if it is not there or only waits to be reaped."""
        fields = _read_line(f"{self._root}/{pid}/stat").rpartition(b")")[2].split()
        if len(fields) <= _START or fields[_STATE] in _DEAD:
            return None
        environment = tuple(fields[_ENVIRONMENT])
        is_told = environment != NO_ENVIRONMENT or int(fields[_FLAGS]) & _KERNEL_THREAD
        return Seen(Process(pid, int(fields[_START])), int(fields[_PARENT]), environment if is_told else (), inode)

    def owner(self, pid: int) -> int | None:
        """Return the user that a process runs as."""
        try:
            return os.stat(f"{self._root}/{pid}").st_uid  # noqa: PTH116 - as elsewhere here, without a Path
        except OSError:
            return None

    def leader(self, thread: int) -> int | None:
        """Return the process that a thread belongs to; None if it is not there."""
        for line in self._read(f"{thread}/status").splitlines():
            if line.startswith(_LEADER):
                return int(line[len(_LEADER) :])
        return None

    def boot(self) -> str:
        """Return the boot ID, which differs after each boot; "" if it is unknown."""
        return self._read("sys/kernel/random/boot_id").decode("ascii", "replace").strip()

    def now(self) -> float:
        """Return the clock ticks from boot to now; 0 if they are unknown."""
        uptime = self._read("uptime").split()
        return float(uptime[0]) * _TICKS if uptime else 0.0

    def command(self, pid: int) -> list[str]:
        """Return the command line of a process; empty if it has none."""
        return [part.decode("utf-8", "surrogateescape") for part in self._read(f"{pid}/cmdline").split(b"\0")]

    def is_stopped(self, pid: int) -> bool:
        """Whether the process was stopped by a signal."""
        return self._read(f"{pid}/stat").rpartition(b")")[2].split()[:1] == [_STOPPED]

    def is_ending(self, pid: int) -> bool:
        """Whether the process was killed, or exits, and only needs CPU time for it, or has to be thawed."""
        fields = self._read(f"{pid}/stat").rpartition(b")")[2].split()
        if len(fields) > _FLAGS and int(fields[_FLAGS]) & _EXITING:
            return True
        lines = (line.split() for line in self._read(f"{pid}/status").splitlines() if line.startswith(_PENDING))
        return any(int(signals, 16) & _KILL for _, signals in lines)

    def is_running(self, pid: int) -> bool:
        """Whether a thread of the process has a CPU, or waits for one."""
        states = (
            self._read(f"{pid}/task/{thread}/stat").rpartition(b")")[2].split()[:1] for thread in self.threads(pid)
        )
        return [_RUNNING] in states

    def threads(self, pid: int) -> list[int]:
        """Return the threads of the process now."""
        try:
            # A process with one thread has the thread of its own number: most have, and to list them takes longer.
            if os.stat(f"{self._root}/{pid}/task").st_nlink == _ONE_THREAD:  # noqa: PTH116 - as elsewhere here
                return [pid]
        except OSError:
            return []
        return list(self.numbers(f"{pid}/task"))

    def allowed(self, thread: int) -> CPUSet:
        """Return the CPUs that the thread may use; none if it is not there."""
        allowed = self._read(f"{thread}/status").partition(_ALLOWED)[2].partition(b"\n")[0]
        return CPUSet.parse(allowed.decode("ascii")) if allowed else EMPTY

    def runs_on(self, thread: int) -> CPUSet:
        """Return those of the allowed CPUs that are online; none if the thread is not there. Quicker than `allowed`."""
        if self._root != _OWN:
            return self.allowed(thread)
        try:
            return _cpus(frozenset(os.sched_getaffinity(thread)))
        except OSError:
            return EMPTY

    def group(self, pid: int, controllers: str) -> str:
        """Return the process's group in the hierarchy that has one of the *controllers*, "" is v2; "" is the top."""
        wanted = set(controllers.split(","))
        for line in self._read(f"{pid}/cgroup").decode("utf-8", "surrogateescape").splitlines():
            _, names, path = (line + "::").split(":", 2)
            if wanted & set(names.split(",")):
                return path.removesuffix("::")
        return ""

    def is_in_group(self, pid: int, name: str) -> bool:
        """Whether the process is in a group that has *name* in its own name, or below one."""
        return name.encode() in self._read(f"{pid}/cgroup")

    def environment(self, pid: int) -> list[bytes]:
        """Return the environment the process started with, as "NAME=value"; its owner can write there what it likes."""
        return self._read(f"{pid}/environ").split(b"\0")

    def own_environment(self, pid: int) -> list[bytes]:
        """Return the same for our own processes, nothing for other users': they could join a group uninvited."""
        try:
            if os.stat(f"{self._root}/{pid}").st_uid != os.geteuid():  # noqa: PTH116 - called for every process there is
                return []
        except OSError:
            return []
        return self.environment(pid)

    def numbers(self, path: str = "") -> Iterator[int]:
        """Yield the numbers of all processes, or of those listed below *path*; some may only wait to be reaped."""
        try:
            names = os.listdir(f"{self._root}/{path}")  # noqa: PTH208 - names are all we need
        except OSError:
            return
        yield from (int(name) for name in names if name.isascii() and name.isdigit())


def _read(root: str, path: str) -> bytes:
    chunks = []
    try:
        file = os.open(f"{root}/{path}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        while chunk := os.read(file, _CHUNK):
            chunks.append(chunk)
    except OSError:
        return b""
    finally:
        os.close(file)
    return b"".join(chunks)


def _read_line(path: str) -> bytes:
    """Return a short text by one read: at each check, many are read."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(file, _LINE)
    except OSError:
        return b""
    finally:
        os.close(file)


@lru_cache(64)
def _cpus(numbers: frozenset[int]) -> CPUSet:
    """Return the CPUs of these numbers; most threads of a host have the same."""
    return CPUSet.from_cpus(numbers)


def are_within(threads: Iterable[int], cpus: CPUSet) -> bool:
    """Return whether none of these threads of this machine may use other CPUs; one that has ended uses none."""
    own, allowed = set(cpus), os.sched_getaffinity
    for thread in threads:  # without a CPUSet for each: there may be a thousand, at each check
        try:
            if not allowed(thread) <= own:
                return False
        except OSError:  # it has ended
            pass
    return True


def may_leave(processes: Iterable[tuple[int, CPUSet]]) -> bool:
    """Return whether the first thread of a process of this machine may use other CPUs than those beside it."""
    own, last = set[int](), EMPTY
    for pid, cpus in processes:  # without a CPUSet for each: there may be a thousand, at each check
        if cpus is not last:  # those of a pool are the same object
            own, last = set(cpus), cpus
        try:
            if not os.sched_getaffinity(pid) <= own:
                return True
        except OSError:  # it has ended
            pass
    return False


PROC: Final = Procfs(Path(_OWN))
"""This machine's."""


def age(pid: int, procfs: Procfs = PROC) -> float:
    """Return for how many seconds the process has existed; 0 if it does not."""
    found, now = procfs.process(pid), procfs.now()
    return max((now - found.process.start) / _TICKS, 0.0) if found is not None and now else 0.0
