"""Plain Linux processes: started by us, by `pinfold run`, or adopted; in cgroups where we may, else by affinity."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from pinfold.core.cpuset import EMPTY
from pinfold.core.reconcile import Observed, Wanted, steps
from pinfold.errors import PinfoldError
from pinfold.node.grouperrors import GroupError, NoGroupError
from pinfold.node.groups import Limit
from pinfold.node.procfs import Procfs
from pinfold.runtimes.base import ApplyError, CannotStart, Ended, Main

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence

    from pinfold.core.cpuset import CPUSet
    from pinfold.core.pods import ContainerRef
    from pinfold.core.reconcile import Step
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
        self._shared: dict[ContainerRef, Limit] = {}
        self._exclusive: set[ContainerRef] = set()
        self._astray: set[ContainerRef] = set()
        """What the last close look has found missing, or elsewhere."""
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

    @property
    def known(self) -> Collection[ContainerRef]:
        """The containers that have a group."""
        return self._exclusive | self._shared.keys()

    def hold(self) -> None:
        """Make sure that no other daemon uses the same groups, or raise."""
        self._groups.hold()

    def find(self) -> dict[ContainerRef, CPUSet]:
        """Return the exclusive containers of an earlier daemon that run; remember all that have a group."""
        found = self._groups.found()
        self._shared = {ref: Limit() for ref, exclusive in found.items() if not exclusive}
        self._exclusive = {ref for ref, exclusive in found.items() if exclusive}
        return {ref: self._groups.cpus(ref) for ref in self._exclusive if self._groups.members(ref)}

    def prepare(self, shared: CPUSet) -> None:
        """Make our subtree; a pool of before a restart is only shrunk, `apply` lets it grow when others have left."""
        self._groups.prepare(self._pool() & shared or shared)

    def observe(self, *, closely: bool = False) -> Observed:
        """Return the CPUs that the groups have now; a group that is missing has none."""
        shared = self._pool()
        containers = {ref: self._cpus(ref) for ref in self._exclusive} | dict.fromkeys(self._shared, shared)
        if closely:
            containers |= self._look_closely(containers)
        return Observed(shared, containers)

    def _look_closely(self, containers: Mapping[ContainerRef, CPUSet]) -> dict[ContainerRef, CPUSet]:
        """Return what is not so: groups that somebody has removed, main processes that somebody has moved out."""
        found = self._groups.found()
        wrong = {ref: EMPTY for ref in containers if ref not in found}
        for ref, main in self._mains.items():
            cpus = PROC.allowed(main.pid)
            if not cpus <= containers.get(ref, EMPTY):
                wrong[ref] = containers.get(ref, EMPTY) | cpus
        self._astray = set(wrong)
        return wrong

    def apply(self, want: Wanted) -> None:
        """Take CPUs away first, then give, one step after the other; bring back what was found astray."""
        if not self._pool():
            self._groups.prepare(want.shared)
        for ref in self._exclusive - want.exclusive.keys():
            self.make_shared(ref, Limit())
            self._exclusive.discard(ref)
        now = Wanted(self._pool(), {ref: cpus for ref in self._exclusive if (cpus := self._cpus(ref))})
        way = steps(now, want)
        with self._stopped({step.container for step in way} if any(step.clash for step in way) else ()):
            for step in way:
                self._take(step, is_there=step.container in now.exclusive)
        for ref in self._astray & {*self._exclusive, *self._shared}:
            self._bring_back(ref)
        self._astray.clear()

    def _take(self, step: Step, *, is_there: bool) -> None:
        ref = step.container
        if ref is None:
            self._groups.set_shared(step.cpus)
        elif is_there:
            self._groups.set_cpus(ref, step.cpus)
        else:
            self._groups.make(ref, step.cpus, Limit())
            self._exclusive.add(ref)
            self._shared.pop(ref, None)

    def _bring_back(self, ref: ContainerRef) -> None:
        if ref in self._shared:
            self._groups.make(ref, None, self._shared[ref])
        main = self._mains.get(ref)
        if main is not None:
            with suppress(GroupError):  # it may have ended meanwhile; if not, the next look finds it again
                self._groups.attach(ref, main.pid)

    @contextmanager
    def _stopped(self, refs: Collection[ContainerRef | None]) -> Iterator[None]:
        """Keep the processes of containers that exchange CPUs from running until all of them have theirs."""
        pids = [pid for ref in refs if ref is not None and ref in self.known for pid in self._groups.members(ref)]
        halted = [pid for pid in pids if not PROC.is_stopped(pid)]
        try:
            for pid in halted:
                _send(pid, signal.SIGSTOP)
            self._wait_until(lambda: all(PROC.is_stopped(pid) or PROC.process(pid) is None for pid in halted))
            yield
        finally:
            for pid in halted:
                _send(pid, signal.SIGCONT)

    @staticmethod
    def _wait_until(is_so: Callable[[], bool]) -> None:
        """Wait for the kernel, which takes a moment; but not for ever: who waits for a disk does not run either."""
        for _ in range(_TRIES):
            if is_so():
                return
            time.sleep(_PAUSE)

    def _pool(self) -> CPUSet:
        try:
            return self._groups.shared_cpus()
        except GroupError:
            return EMPTY

    def _cpus(self, ref: ContainerRef) -> CPUSet:
        try:
            return self._groups.cpus(ref)
        except GroupError:
            return EMPTY

    def make_shared(self, ref: ContainerRef, limit: Limit) -> None:
        """Make the group of a container that runs in the shared pool."""
        self._groups.make(ref, None, limit)
        self._shared[ref] = limit

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

    def environment(self, ref: ContainerRef) -> dict[str, str]:
        """Return the variables by which the container's processes are known."""
        return self._groups.environment(ref)

    def holder(self, pid: int) -> str | None:
        """Return what a process belongs to already, in words; None if it can be attached."""
        if pid == os.getpid():
            return "pinfold itself"
        for ref in self.known:
            if pid in self._groups.members(ref):
                return f"container {ref.name} of pod {ref.pod}"
        return None

    def find_again(self, ref: ContainerRef, main: Main | None) -> bool:
        """Watch the main process of before a restart, if it still runs; whether it does."""
        try:
            members = self._groups.members(ref)
            if main is None:
                main = _first(members)
            if main is None or _started(main.pid) != main.started:
                return False
            if main.pid not in members:  # an adopted one has no marks by which affinity would know it
                self._groups.attach(ref, main.pid)
            self._watch(ref, main.pid)
        except PinfoldError:
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
        if ref not in self.known:
            return
        for _ in range(_TRIES):
            try:
                members = self._groups.members(ref)
            except NoGroupError:  # somebody else has removed it
                break
            if not members:
                break
            for pid in members:
                _send(pid, signal.SIGKILL)
            time.sleep(_PAUSE)  # the kernel takes a moment to let them go
        self._groups.remove(ref)
        self._shared.pop(ref, None)
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


def _first(pids: Sequence[int]) -> Main | None:
    """Return the process that the others come from: the oldest whose parent is none of them."""
    found = {pid: process for pid in pids if (process := PROC.process(pid)) is not None}
    roots = [process for process, parent in found.values() if parent not in found]
    oldest = min(roots, key=lambda process: (process.start, process.pid), default=None)
    return Main(oldest.pid, oldest.start) if oldest is not None else None


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
