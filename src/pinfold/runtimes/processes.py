"""Plain Linux processes: started by us, by `pinfold run`, or adopted; in cgroups where we may, else by affinity."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from pinfold.core.reconcile import Observed
from pinfold.node.groups import Limit
from pinfold.node.procfs import Procfs
from pinfold.runtimes.base import ApplyError, CannotStart, Ended, Main

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping, Sequence

    from pinfold.core.cpuset import CPUSet
    from pinfold.core.pods import ContainerRef
    from pinfold.core.reconcile import Wanted
    from pinfold.node.groups import Groups

PROC: Final = Procfs(Path("/proc"))
_TRIES: Final = 200
_PAUSE: Final = 0.002


class ProcessesRuntime:
    """Containers that are processes of this machine."""

    name: Final = "processes"

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._mains: dict[ContainerRef, Main] = {}
        self._pidfds: dict[ContainerRef, int] = {}
        self._ours: set[ContainerRef] = set()
        """Those whose main process is a child of this one, so that its exit code can be had."""
        self._known: set[ContainerRef] = set()
        self._exclusive: set[ContainerRef] = set()
        self._ends: asyncio.Queue[Ended] = asyncio.Queue()
        self._one_ended = asyncio.Event()

    @property
    def kind(self) -> str:
        """How processes are kept on their CPUs."""
        return self._groups.kind

    @property
    def weaker(self) -> tuple[str, ...]:
        """What this runtime cannot promise here, in words."""
        return self._groups.weaker

    @property
    def mains(self) -> Mapping[ContainerRef, Main]:
        """The main processes that run now."""
        return self._mains

    def prepare(self, shared: CPUSet) -> dict[ContainerRef, CPUSet]:
        """Make our subtree, and return the exclusive containers that an earlier daemon has left running."""
        self._groups.prepare(shared)
        found = self._groups.found()
        self._known = set(found)
        self._exclusive = {ref for ref, exclusive in found.items() if exclusive}
        return {ref: self._groups.cpus(ref) for ref in self._exclusive if self._groups.members(ref)}

    def observe(self) -> Observed:
        """Return the CPUs that the groups have now."""
        return Observed(self._groups.shared_cpus(), {ref: self._groups.cpus(ref) for ref in self._known})

    def apply(self, want: Wanted) -> None:
        """Shrink the pool first, then set what is exclusive, then let the pool grow."""
        before = self._groups.shared_cpus()
        shrunk = before & want.shared
        if shrunk and shrunk != before:
            self._groups.set_shared(shrunk)
        for ref in self._exclusive - want.exclusive.keys():
            self._groups.make(ref, None, Limit())
        for ref, cpus in want.exclusive.items():
            if ref not in self._exclusive:
                self._groups.make(ref, cpus, Limit())
                self._known.add(ref)
            elif self._groups.cpus(ref) != cpus:
                self._groups.set_cpus(ref, cpus)
        self._exclusive = set(want.exclusive)
        if want.shared != (shrunk or before):
            self._groups.set_shared(want.shared)

    def make_shared(self, ref: ContainerRef, limit: Limit) -> None:
        """Make the group of a container that runs in the shared pool."""
        self._groups.make(ref, None, limit)
        self._known.add(ref)

    def spawn(
        self, ref: ContainerRef, command: Sequence[str], environment: Mapping[str, str], directory: str, out: IO[bytes]
    ) -> int:
        """Start a command in the container's group, and return its pid; its first instruction runs there."""
        try:
            process = subprocess.Popen(  # noqa: S603 - what the user asked for
                list(command),
                env={**environment, **self._groups.environment(ref)},
                cwd=directory or None,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=self._groups.joiner(ref),  # noqa: PLW1509 - this process has one thread
            )
        except OSError as error:
            raise CannotStart(directory if error.filename == directory and directory else command[0], error) from error
        except subprocess.SubprocessError as error:
            raise ApplyError(f"{command[0]}: could not join its group: {error}") from error
        process.returncode = 0  # so that Popen does not wait for it: the pidfd tells
        self._ours.add(ref)
        self._watch(ref, process.pid)
        return process.pid

    def attach(self, ref: ContainerRef, pid: int) -> None:
        """Move a running process into the container's group, verify that, and watch it."""
        started = _started(pid)
        self._groups.attach(ref, pid)
        wanted = self._groups.cpus(ref)
        for thread in PROC.threads(pid):
            cpus = PROC.allowed(thread)
            if not cpus <= wanted:  # fewer are its own choice
                raise ApplyError(f"thread {thread} of process {pid} may run on CPUs {cpus} instead of {wanted}")
        if _started(pid) != started:
            raise ApplyError(f"process {pid} ended meanwhile")
        self._watch(ref, pid)

    def find_again(self, ref: ContainerRef, main: Main) -> bool:
        """Watch a main process of before a restart, if it still runs; whether it does."""
        try:
            if _started(main.pid) != main.started:
                return False
            self._watch(ref, main.pid)
        except ApplyError:
            return False
        return True

    def allowed(self, ref: ContainerRef) -> str:
        """Return the CPUs that the threads of the main process may use, as the kernel says."""
        main = self._mains.get(ref)
        sets = {str(PROC.allowed(thread)) for thread in PROC.threads(main.pid)} if main is not None else set()
        return " ".join(sorted(sets - {""}))

    def signal(self, ref: ContainerRef, number: signal.Signals) -> None:
        """Send a signal to the container's main process."""
        if ref in self._pidfds:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfds[ref], number)

    async def gone(self, refs: Collection[ContainerRef], within: float) -> bool:
        """Wait until no main process of these is left, for so many seconds at most; whether that is so."""
        try:
            async with asyncio.timeout(within):
                while any(ref in self._mains for ref in refs):
                    self._one_ended.clear()
                    await self._one_ended.wait()
        except TimeoutError:
            return False
        return True

    async def events(self) -> AsyncIterator[Ended]:
        """Yield the containers whose main process has ended."""
        while True:
            yield await self._ends.get()

    def forget(self, ref: ContainerRef) -> None:
        """End whatever is left in the container's group, and remove it."""
        if ref not in self._known:
            return
        for _ in range(_TRIES):
            members = self._groups.members(ref)
            if not members:
                break
            for pid in members:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_PAUSE)  # the kernel takes a moment to let them go
        self._groups.remove(ref)
        self._known.discard(ref)
        self._exclusive.discard(ref)

    def clean_up(self) -> None:
        """Remove our subtree."""
        self._groups.remove_all()

    def _watch(self, ref: ContainerRef, pid: int) -> None:
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError as error:
            raise ApplyError(f"process {pid} is gone") from error
        found = PROC.process(pid)
        self._mains[ref] = Main(pid, found[0].start if found is not None else 0)  # it may have ended already
        self._pidfds[ref] = pidfd
        self._known.add(ref)
        asyncio.get_running_loop().add_reader(pidfd, self._ended, ref)

    def _ended(self, ref: ContainerRef) -> None:
        pidfd = self._pidfds.pop(ref)
        del self._mains[ref]
        asyncio.get_running_loop().remove_reader(pidfd)
        code = None
        if ref in self._ours:
            self._ours.discard(ref)
            with suppress(ChildProcessError):
                result = os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
                if result is not None:
                    code = result.si_status if result.si_code == os.CLD_EXITED else -result.si_status
        os.close(pidfd)
        self._ends.put_nowait(Ended(ref, code))
        self._one_ended.set()


def _started(pid: int) -> int:
    """Return when a process started; raise if it is not there."""
    found = PROC.process(pid)
    if found is None:
        raise ApplyError(f"process {pid} is not there")
    return found[0].start
