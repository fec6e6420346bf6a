"""Processes by PID: opens, identifies and signals them; explains the kernel's errors in words."""

from __future__ import annotations

import errno
import os
import resource
import signal
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from pinfold.node.procfs import PROC
from pinfold.runtimes.base import ApplyError, Main

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.node.procfs import Process


class OutOfFiles(ApplyError):  # noqa: N818 - the fact
    """No more files can be opened, so that a process cannot be watched."""

    def __init__(self, pid: int) -> None:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        super().__init__(f"process {pid} cannot be watched: {limit} files are open; raise the limit (ulimit -n)")


def started(pid: int) -> int:
    """Return when a process started; raise if it is not there."""
    found = PROC.process(pid)
    if found is None:
        raise ApplyError(f"process {pid} is not there")
    return found.process.start


def check_threads(main: Main, wanted: CPUSet) -> None:
    """Raise unless all threads of a process are on these CPUs, or on fewer by their own choice; or if it has ended."""
    for thread in PROC.threads(main.pid):
        cpus = PROC.allowed(thread)
        if not cpus <= wanted:
            raise ApplyError(f"thread {thread} of process {main.pid} may run on CPUs {cpus} instead of {wanted}")
    check_same(main)


def check_same(main: Main) -> None:
    """Raise unless the process still runs; another one may have its pid."""
    if started(main.pid) != main.started:
        raise ApplyError(f"process {main.pid} ended meanwhile")


def first(pids: Sequence[int]) -> Main | None:
    """Return the process that the others come from: the oldest whose parent is none of them."""
    found = {pid: seen for pid in pids if (seen := PROC.process(pid)) is not None}
    roots = [seen.process for seen in found.values() if seen.parent not in found]
    oldest = min(roots, key=lambda process: (process.start, process.pid), default=None)
    return Main(oldest.pid, oldest.start) if oldest is not None else None


def opened(pid: int) -> int:
    """Return a file that stands for a process, or raise if there is none of this number."""
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno in {errno.EMFILE, errno.ENFILE}:
            raise OutOfFiles(pid) from error
        leader = PROC.leader(pid)
        if leader is None:
            raise ApplyError(f"process {pid} is not there") from error
        if leader != pid:
            raise ApplyError(f"{pid} is not a process, but a thread of process {leader}") from error
        raise ApplyError(f"process {pid}: {error.strerror}") from error


@contextmanager
def held(processes: Iterable[Process]) -> Iterator[dict[int, int]]:
    """Yield a file for each of the processes that still run, by PID: no later process can be taken for one of them."""
    with ExitStack() as files:
        pidfds: dict[int, int] = {}
        for process in processes:
            try:
                pidfd = os.pidfd_open(process.pid)
            except ProcessLookupError:
                continue
            except OSError as error:
                raise ApplyError(f"process {process.pid}: {error.strerror}") from error
            files.callback(os.close, pidfd)
            found = PROC.process(process.pid)
            if found is not None and found.process == process:
                pidfds[process.pid] = pidfd
        yield pidfds


def send(pidfds: Mapping[int, int], number: signal.Signals) -> None:
    """Send a signal to each; skip those that have ended; an error for one does not stop the others."""
    refused = None
    for pid, pidfd in pidfds.items():
        try:
            signal.pidfd_send_signal(pidfd, number)
        except ProcessLookupError:
            continue
        except PermissionError as error:
            refused = refused or (pid, error)
    if refused is not None:
        raise of_another(refused[0]) from refused[1]


def of_another(pid: int) -> ApplyError:
    """Return the error for a process that takes no signal from us."""
    return ApplyError(f"process {pid} belongs to another user; only that user can end it")
