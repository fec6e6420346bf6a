"""Real processes for the contract of groups: started in a container's group, watched through /proc, ended at last."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, NamedTuple

from pinfold.core.machine.cpuset import CPUSet
from pinfold.node.starting.starter import NewProcess, Starter

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from pinfold.core.pods.pod import ContainerRef
    from pinfold.node.processgroups.groups import ProcessGroups
    from pinfold.node.starting.starter import Begun

ROOT: Final = Path("/sys/fs/cgroup")
# Isolated and without site: an interpreter that starts fast, also on an emulated machine.
PYTHON: Final = [sys.executable, "-I", "-S", "-c"]
# Each says "ready" when it stands, and ends with its standard input.
IDLE: Final = ["sh", "-c", "echo ready; read line"]
THREADS: Final = [
    *PYTHON,
    """
import _thread, sys, time
for _ in range(5): _thread.start_new_thread(time.sleep, (1000,))
print("ready", flush=True)
sys.stdin.read()
""",
]
# Starts threads that end soon, as fast as it can.
THREAD_STORM: Final = [
    *PYTHON,
    """
import _thread, time
print("ready", flush=True)
while True:
    try: _thread.start_new_thread(time.sleep, (.05,))
    except RuntimeError: pass
    time.sleep(.0005)
""",
]
# Forks children that end soon, as fast as it can.
FORK_STORM: Final = [
    *PYTHON,
    """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print("ready", flush=True)
while True:
    if not os.fork(): time.sleep(.05); os._exit(0)
    time.sleep(.001)
""",
]
# Forks for every line that it reads, and says the number of its child.
FORKS_WHEN_TOLD: Final = [
    *PYTHON,
    """
import os, sys, time
print("ready", flush=True)
for _ in sys.stdin:
    child = os.fork()
    if not child: time.sleep(1000)
    print(child, flush=True)
""",
]
# Both say the number of their child; a shell gives what it starts with & an empty input, unless told otherwise.
PARENT: Final = ["sh", "-c", "exec 3<&0; sh -c 'echo $$; read line' <&3 & read line; wait"]
ORPHAN: Final = ["sh", "-c", "exec 3<&0; sh -c 'echo $$; read line' <&3 & exit"]


class Running(NamedTuple):
    """A process, and the pipes to and from it."""

    pid: int
    stdin: IO[str]
    stdout: IO[str]

    @classmethod
    def of(cls, command: list[str]) -> Running:
        """Start a process in no group."""
        (theirs, to), (frm, its) = os.pipe(), os.pipe()
        process = subprocess.Popen(command, stdin=theirs, stdout=its, start_new_session=True)
        process.returncode = 0  # so that Popen does not wait for it
        return cls.through(process.pid, theirs, to, frm, its)

    @classmethod
    def through(cls, pid: int, theirs: int, to: int, frm: int, its: int) -> Running:
        """Close the ends of the pipes that the process has."""
        os.close(theirs)
        os.close(its)
        return cls(pid, os.fdopen(to, "w"), os.fdopen(frm))

    def wait(self) -> int:
        """Return how the process ended, as a shell says it."""
        self.stdin.close()
        self.stdout.close()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


_OTHER: Final = ThreadPoolExecutor(1)
"""Starts processes; it goes on, as a forker ends with the thread that has started it."""


def when_running(beginning: Coroutine[None, None, Begun]) -> int:
    """Return the number of a process when its command runs; a loop may run in this thread."""

    async def wait() -> int:
        begun = await beginning
        await begun.runs()
        return begun.pid

    return _OTHER.submit(asyncio.run, wait()).result()


def started(starter: Starter, command: list[str], groups: ProcessGroups, ref: ContainerRef) -> Running:
    """Start a process in the group of *ref*."""
    group = groups.group(ref)
    (theirs, to), (frm, its) = os.pipe(), os.pipe()
    try:
        with group.joiner() as joiner:
            request = NewProcess(command, os.environ | group.environment())
            pid = when_running(starter.begin(request, (theirs, its, 2), joiner))
    except BaseException:
        for file in (theirs, to, frm, its):
            os.close(file)
        raise
    return Running.through(pid, theirs, to, frm, its)


class Workload:
    """Starts processes and ends them all."""

    def __init__(self) -> None:
        self._started: list[Running] = []
        self._starter = Starter()

    def start(
        self, command: list[str], groups: ProcessGroups | None = None, ref: ContainerRef | None = None
    ) -> tuple[int, str]:
        """Return the process and its first line; in the group of *ref*, if one is given."""
        if groups is not None and ref is not None:
            process = started(self._starter, command, groups, ref)
        else:
            process = Running.of(command)
        self._started.append(process)
        return process.pid, process.stdout.readline().strip()

    def tell(self, pid: int) -> str:
        """Write a line to the process, and return what it answers."""
        (process,) = (process for process in self._started if process.pid == pid)
        process.stdin.write("go on\n")
        process.stdin.flush()
        return process.stdout.readline().strip()

    def end(self, pid: int | None = None) -> None:
        """End the process, or all, with every process of its session."""
        for process in [process for process in self._started if pid in {None, process.pid}]:
            while members := session(process.pid):  # again and again: it may fork, and dying takes a moment
                for member in members:
                    with suppress(ProcessLookupError):
                        os.kill(member, 9)
            process.wait()
            self._started.remove(process)


def session(leader: int) -> list[int]:
    """Return the living processes of a session."""
    members = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with suppress(OSError):
                fields = (path / "stat").read_bytes().rpartition(b")")[2].split()
                if int(fields[3]) == leader and fields[0] != b"Z":
                    members.append(int(path.name))
    return members


def allowed(pid: int) -> set[str]:
    """Return the different Cpus_allowed_list of all threads of a process."""
    found = set()
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            lines = (thread / "status").read_text().splitlines()
            found |= {line.split()[1] for line in lines if line.startswith("Cpus_allowed_list:")}
    return found


def allowed_or_gone(pid: int) -> set[str]:
    """Return the same, nothing if the process has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return allowed(pid)
    return set()


def threads(pid: int) -> int:
    """Return how many threads a process has."""
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def online() -> CPUSet:
    """Return the CPUs that this test may use."""
    return CPUSet.from_cpus(os.sched_getaffinity(0))


_writes: Counter[str] | None = None


def _notice(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and _writes is not None:
        path, _, flags = arguments
        if isinstance(flags, int) and flags & os.O_ACCMODE and str(path).startswith(str(ROOT)):
            _writes[str(path)] += 1


sys.addaudithook(_notice)


@contextmanager
def counted_writes() -> Iterator[Counter[str]]:
    """Count the cgroup files that this process opens for writing."""
    global _writes  # noqa: PLW0603 - an audit hook is for good
    _writes = Counter()
    try:
        yield _writes
    finally:
        _writes = None
