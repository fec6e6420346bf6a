"""Plain Linux processes: started by us, by `pinfold run`, or adopted; in cgroups where we may, else by affinity."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Final

from pinfold.core.cpuset import EMPTY
from pinfold.core.reconcile import Observed, Wanted, steps
from pinfold.errors import PinfoldError
from pinfold.node.grouperrors import GroupError, NoGroupError
from pinfold.node.groups import Limit
from pinfold.node.halted import Halted
from pinfold.runtimes.base import ApplyError, CannotStart, Ended, Main
from pinfold.runtimes.processes.pids import PROC, first, of_another, opened, send, started

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from pinfold.core.cpuset import CPUSet
    from pinfold.core.pods import ContainerRef
    from pinfold.core.reconcile import Step
    from pinfold.node.groups import Groups
    from pinfold.node.origin import Origin
    from pinfold.node.procfs import Process

_TRIES: Final = 200
_PAUSE: Final = 0.002


class ProcessesRuntime:
    """Containers that are processes of this machine."""

    name: Final = "processes"

    def __init__(self, groups: Groups, directory: Path | None = None) -> None:
        """Use these groups; in *directory* is written down who is stopped for a moment."""
        self._groups = groups
        self._halted = Halted(directory, PROC)
        self._left_stopped: list[Process] = []
        """Those that an earlier daemon has stopped, and could not let go on."""
        self._mains: dict[ContainerRef, Main] = {}
        self._pidfds: dict[ContainerRef, int] = {}
        self._ours: set[ContainerRef] = set()
        """Those whose main process is a child of this one, so that its exit code can be had."""
        self._shared: dict[ContainerRef, Limit] = {}
        self._exclusive: set[ContainerRef] = set()
        self._lent: dict[ContainerRef, Origin] = {}
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

    @property
    def lent(self) -> Mapping[ContainerRef, Origin]:
        """The containers whose processes are only lent, and where these come from."""
        return self._lent

    def hold(self) -> None:
        """Make sure that no other daemon uses the same groups, or raise."""
        self._groups.hold()

    def find(self) -> dict[ContainerRef, CPUSet]:
        """Return the exclusive containers of an earlier daemon that run; remember all that have a group."""
        self._left_stopped = self._halted.read()
        if not self._left_stopped:
            self._halted.clear()
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
            self._exclusive.add(ref)  # before, so that `forget` removes what a failure leaves of it
            self._groups.make(ref, step.cpus, Limit())
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
        halted = [*self._left_stopped, *self._going_on(refs)]
        if len(halted) > len(self._left_stopped):
            self._halted.write(halted)
        pids = [process.pid for process in halted]
        try:
            send(pids, signal.SIGSTOP)
            self._wait_until(lambda: all(PROC.is_stopped(pid) or PROC.process(pid) is None for pid in pids))
            yield
        finally:
            with suppress(ApplyError):  # whom we may not let go on we could not stop either
                send(pids, signal.SIGCONT)
            if halted:
                self._halted.clear()
            self._left_stopped = []

    def _going_on(self, refs: Collection[ContainerRef | None]) -> Iterator[Process]:
        """Yield the processes of these containers that nobody has stopped."""
        for ref in refs:
            members = self._groups.members(ref) if ref is not None and ref in self.known else []
            for found in filter(None, map(PROC.process, members)):
                if not PROC.is_stopped(found[0].pid):
                    yield found[0]

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
        self._watch(ref, process.pid, _opened_child(process.pid))
        return process.pid

    def attach(self, ref: ContainerRef, pid: int, *, lent: bool = False) -> None:
        """Move a running process into the container's group, verify that, and watch it; or leave it where it was."""
        origin, since = self._groups.origin(pid), started(pid)
        pidfd = opened(pid)  # before it is moved: a thread has none, and its process would be moved
        if lent:
            self._lent[ref] = origin
        try:
            self._groups.attach(ref, pid)
            self._verify(ref, pid, since)
            self._watch(ref, pid, pidfd)
        except BaseException:
            os.close(pidfd)
            with suppress(GroupError):  # then `forget` tries again
                self._groups.give_back(ref, origin)
            raise

    def _verify(self, ref: ContainerRef, pid: int, since: int) -> None:
        wanted = self._groups.cpus(ref)
        for thread in PROC.threads(pid):
            cpus = PROC.allowed(thread)
            if not cpus <= wanted:  # fewer are its own choice
                raise ApplyError(f"thread {thread} of process {pid} may run on CPUs {cpus} instead of {wanted}")
        if started(pid) != since:
            raise ApplyError(f"process {pid} ended meanwhile")

    def lend(self, ref: ContainerRef, origin: Origin) -> None:
        """Take note that what runs in a container since before a restart is only lent."""
        self._lent[ref] = origin

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
                main = first(members)
            if main is None or started(main.pid) != main.started:
                return False
            pidfd = opened(main.pid)
        except PinfoldError:
            return False
        try:
            if main.pid not in members:  # an adopted one has no marks by which affinity would know it
                self._groups.attach(ref, main.pid)
            self._watch(ref, main.pid, pidfd)
        except PinfoldError:
            os.close(pidfd)
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
            try:
                signal.pidfd_send_signal(self._pidfds[ref], number)
            except ProcessLookupError:
                pass
            except PermissionError as error:
                raise of_another(self._mains[ref].pid) from error

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

    def forget(self, ref: ContainerRef) -> list[int]:
        """End whatever is left in the container's group, and remove it; what is lent is given back, and returned."""
        given: list[int] = []
        if ref in self.known:
            with suppress(NoGroupError):  # somebody else has removed it
                if ref in self._lent:
                    given = self._groups.give_back(ref, self._lent[ref])
                else:
                    self._end_members(ref)
            self._groups.remove(ref)
        if ref in self._lent:
            del self._lent[ref]
            self._unwatch(ref)
        self._shared.pop(ref, None)
        self._exclusive.discard(ref)
        return given

    def _end_members(self, ref: ContainerRef) -> None:
        for _ in range(_TRIES):
            members = self._groups.members(ref)
            if not members:
                return
            send(members, signal.SIGKILL)
            time.sleep(_PAUSE)  # the kernel takes a moment to let them go

    def clean_up(self) -> None:
        """Remove our subtree."""
        self._groups.remove_all()

    def _watch(self, ref: ContainerRef, pid: int, pidfd: int) -> None:
        found = PROC.process(pid)
        self._mains[ref] = Main(pid, found[0].start if found is not None else 0)  # it may have ended already
        self._pidfds[ref] = pidfd
        asyncio.get_running_loop().add_reader(pidfd, self._ended, ref)

    def _unwatch(self, ref: ContainerRef) -> None:
        if ref in self._pidfds:
            pidfd = self._pidfds.pop(ref)
            del self._mains[ref]
            asyncio.get_running_loop().remove_reader(pidfd)
            os.close(pidfd)
            self._one_ended.set()

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


def _opened_child(pid: int) -> int:
    """Return a file that stands for a child of ours; one that cannot be watched is not left running."""
    try:
        return opened(pid)
    except ApplyError:
        send([pid], signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
