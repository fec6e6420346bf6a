"""ProcessLauncher: starts the main processes of containers, attaches running ones, and watches them to their end."""

from __future__ import annotations

import asyncio
import os
import pwd
import signal
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pinfold.core.pods.pod import AS_THE_DAEMON
from pinfold.errors import PinfoldError
from pinfold.node.grouperrors import GroupError
from pinfold.node.outputs import drain
from pinfold.node.procfs import PROC
from pinfold.node.starting import forker
from pinfold.node.starting.starter import NewProcess, Starter, StartError
from pinfold.node.waiting import OUTPUTS, in_thread
from pinfold.runtimes.base import ApplyError, LaunchError, Main, ProcessEnded, StillRunning
from pinfold.runtimes.processes.pids import OutOfFiles, check_same, check_threads, first, of_another, opened, started

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping

    from pinfold.core.pods.pod import ContainerRef
    from pinfold.node.processgroups.origin import Origin
    from pinfold.node.starting.starter import Begun
    from pinfold.runtimes.base import Start
    from pinfold.runtimes.processes.applier import ProcessApplier
    from pinfold.runtimes.processes.ending import Ending


class ProcessLauncher:
    """Runs the processes of containers in the groups of an applier."""

    def __init__(self, applier: ProcessApplier) -> None:
        self._applier = applier
        self._groups = applier.groups
        self._pidfds: dict[ContainerRef, int] = {}
        self._ours: set[ContainerRef] = set()
        """The containers whose main process is a child of this one, so that its exit code can be read."""
        self._ends: asyncio.Queue[ProcessEnded] = asyncio.Queue()
        self._one_ended = asyncio.Event()
        self._starter = Starter(applier.groups.name)
        applier.given_back = self._unwatch
        applier.ending.ended = self._leftover_ended

    @property
    def mains(self) -> Mapping[ContainerRef, Main]:
        """The main processes that run now."""
        return self._applier.mains

    @property
    def lent(self) -> Mapping[ContainerRef, Origin]:
        """The containers whose processes are only lent, and where these come from."""
        return self._applier.lent

    @property
    def known(self) -> Collection[ContainerRef]:
        """The containers that have a group, also those of an earlier daemon."""
        return self._applier.known

    async def spawn(self, ref: ContainerRef, start: Start, output: Callable[[], IO[bytes]]) -> int:
        """Start a command in the container's group, and return its pid; its first instruction runs there."""
        while True:
            places = self._groups.group(ref).places()
            try:
                begun = await self._begin(ref, start, output)
                await begun.runs()
                break
            except StartError as error:
                # A container that changes pools while it starts has another group by now, and the old one is gone.
                if error.step != "join" or self._groups.group(ref).places() == places:
                    raise _explained(start, error) from error
        self._ours.add(ref)
        found, pidfd = PROC.process(begun.pid), _opened_child(begun.pid)
        main = Main(begun.pid, found[0].start if found is not None else 0)  # it may have ended already
        self._watch(ref, main, pidfd)
        return begun.pid

    async def _begin(self, ref: ContainerRef, start: Start, output: Callable[[], IO[bytes]]) -> Begun:
        async with self._starter.turn:  # files are opened when it comes: hundreds of containers may wait for theirs
            group = self._groups.group(ref)
            request = _request(start, group.environment())
            with await _opened_output(output) as out, group.joiner() as joiner, _nothing() as nothing:
                return await self._starter.begin(request, (nothing.fileno(), out.fileno(), out.fileno()), joiner)

    def expect(self, ref: ContainerRef, pid: int, *, lent: bool = False) -> Main:
        """Return a running process that is to be attached; remember where a lent one comes from."""
        os.close(opened(pid))  # a thread has none, and its process would be moved
        if lent:
            self._applier.lent[ref] = self._groups.origin(pid)
        return Main(pid, started(pid))

    def attach(self, ref: ContainerRef, main: Main) -> None:
        """Move a running process into the container's group, and watch it; or leave it where it was."""
        pid = main.pid
        origin, pidfd = self._groups.origin(pid), opened(pid)
        try:
            check_same(main)
            group = self._groups.group(ref)
            group.attach(pid)
            check_threads(main, group.cpus())
            self._watch(ref, main, pidfd)
        except BaseException:
            os.close(pidfd)
            with suppress(GroupError):  # then `vacate` tries again
                self._groups.group(ref).give_back(origin)
            raise

    def environment(self, ref: ContainerRef) -> dict[str, str]:
        """Return the environment variables that mark the container's processes."""
        return self._groups.group(ref).environment()

    def holder(self, pid: int) -> ContainerRef | None:
        """Return the container that a process belongs to already."""
        return next((ref for ref in self._applier.known if pid in self._groups.group(ref).members()), None)

    def is_ours(self, pid: int) -> bool:
        """Return whether a process is this daemon, or a program of its own; one of an earlier daemon may still run."""
        return pid == os.getpid() or not {forker.__file__, drain.__file__}.isdisjoint(PROC.command(pid))

    def find_again(self, ref: ContainerRef, main: Main | None, origin: Origin | None = None) -> bool:
        """Watch a main process from before the restart, and return whether it still runs."""
        if origin is not None:
            self._applier.lent[ref] = origin
        try:
            group = self._groups.group(ref)
            main = first([pid for pid in group.members() if not self.is_ours(pid)]) if main is None else main
            if main is None or started(main.pid) != main.started or PROC.is_ending(main.pid):
                return _is_absent()
            pidfd = opened(main.pid)
        except OutOfFiles:  # it runs, and must not be forgotten
            raise
        except PinfoldError:
            return _is_absent()
        try:
            if not group.has(main.pid):  # an adopted one has no marks by which affinity would know it
                group.attach(main.pid)
            self._watch(ref, main, pidfd)
        except PinfoldError:
            os.close(pidfd)
            return False
        return True

    def signal(self, ref: ContainerRef, number: signal.Signals) -> None:
        """Send a signal to the container's main process."""
        if ref in self._pidfds:
            try:
                signal.pidfd_send_signal(self._pidfds[ref], number)
            except ProcessLookupError:
                pass
            except PermissionError as error:
                raise of_another(self.mains[ref].pid) from error

    async def gone(self, refs: Collection[ContainerRef], within: float) -> bool:
        """Wait for the main processes of these containers to end, *within* seconds; return whether all have."""
        try:
            async with asyncio.timeout(within):
                while any(ref in self.mains for ref in refs):
                    self._one_ended.clear()
                    await self._one_ended.wait()
        except TimeoutError:
            return False
        return True

    async def clear(self, refs: Collection[ContainerRef], within: float) -> None:
        """Kill all processes of these containers, and wait *within* seconds for their end; or raise."""
        left: StillRunning | None = None
        try:
            async with asyncio.timeout(within):
                while (left := _first_left(self._applier.ending, refs)) is not None:
                    self._one_ended.clear()
                    await self._one_ended.wait()
        except TimeoutError:
            if left is not None:
                raise left from None

    async def events(self) -> AsyncIterator[ProcessEnded]:
        """Yield the containers whose main process has ended, and None for a process that was left behind."""
        self._starter.warm()
        while True:
            yield await self._ends.get()

    def _unwatch(self, ref: ContainerRef) -> None:
        """Stop watching a process that goes on without us."""
        if ref in self._pidfds:
            _close(self._applier, ref, self._pidfds.pop(ref))
            self._one_ended.set()

    def _watch(self, ref: ContainerRef, main: Main, pidfd: int) -> None:
        self._applier.mains[ref] = main
        self._pidfds[ref] = pidfd
        asyncio.get_running_loop().add_reader(pidfd, self._ended, ref)

    def _ended(self, ref: ContainerRef) -> None:
        pidfd = self._pidfds.pop(ref)
        code = None
        if ref in self._ours:
            self._ours.discard(ref)
            with suppress(ChildProcessError):
                result = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
                if result is not None:
                    code = result.si_status if result.si_code == os.CLD_EXITED else -result.si_status
        _close(self._applier, ref, pidfd)
        self._ends.put_nowait(ProcessEnded(ref, code))
        self._one_ended.set()

    def _leftover_ended(self) -> None:
        self._ends.put_nowait(ProcessEnded(None))
        self._one_ended.set()


async def _opened_output(output: Callable[[], IO[bytes]]) -> IO[bytes]:
    """Open what a container prints to, which may wait for a disk; close it again if it is not needed any more."""
    opening = asyncio.ensure_future(in_thread(output, OUTPUTS))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(lambda opened: opened.exception() or opened.result().close())
        raise


def _nothing() -> IO[bytes]:
    """Return the standard input of containers."""
    return Path(os.devnull).open("rb")


def _is_absent() -> bool:
    """Return False for a process that is not there; raise OutOfFiles if that cannot be seen."""
    os.close(opened(os.getpid()))
    return False


def _close(applier: ProcessApplier, ref: ContainerRef, pidfd: int) -> None:
    """Stop watching a process."""
    applier.mains.pop(ref, None)
    asyncio.get_running_loop().remove_reader(pidfd)
    os.close(pidfd)


def _request(start: Start, marks: Mapping[str, str]) -> NewProcess:
    """Return a start as the forker is asked for it."""
    user, group, groups = start.identity
    if group is None and user is not None:
        group = _primary_group(user)
    identity = None if start.identity == AS_THE_DAEMON else (user, group, groups)
    return NewProcess(list(start.command), {**start.environment, **marks}, start.directory, identity)


def _explained(start: Start, error: StartError) -> LaunchError | ApplyError:
    """Return the error of a start that failed, in the words of the user."""
    if error.step == "directory":
        return LaunchError(start.directory, error.cause)
    if error.step == "command":
        return LaunchError(start.command[0], error.cause)
    doing = f"become user {start.identity.user}" if error.step == "become" else f"{error.step} its group"
    return ApplyError(f"{start.command[0]}: could not {doing}: {error.cause.strerror or error.cause}")


def _primary_group(user: int) -> int:
    try:
        return pwd.getpwuid(user).pw_gid
    except KeyError:
        return user


def _opened_child(pid: int) -> int:
    """Return a file that stands for a child of ours; one that cannot be watched is not left running."""
    try:
        return opened(pid)
    except ApplyError:
        os.kill(pid, signal.SIGKILL)  # its number is not given to another before it is waited for
        asyncio.get_running_loop().run_in_executor(None, os.waitpid, pid, 0)
        raise


def _first_left(ending: Ending, refs: Collection[ContainerRef]) -> StillRunning | None:
    """Kill the processes of all these containers; return the error of the first that still has some."""
    errors = []
    for ref in ending.populated(refs):
        try:
            ending.end(ref)
        except StillRunning as error:
            errors.append(error)
    return errors[0] if errors else None
