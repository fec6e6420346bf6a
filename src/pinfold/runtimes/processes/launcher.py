"""ProcessLauncher: starts the main processes of containers, attaches running ones, and watches them to their end."""

from __future__ import annotations

import asyncio
import os
import pwd
import signal
import subprocess
from contextlib import suppress
from typing import IO, TYPE_CHECKING

from pinfold.core.pods.pod import AS_THE_DAEMON
from pinfold.errors import PinfoldError
from pinfold.node.grouperrors import GroupError
from pinfold.node.procfs import PROC
from pinfold.runtimes.base import ApplyError, LaunchError, Main, ProcessEnded, StillRunning
from pinfold.runtimes.processes.pids import OutOfFiles, check_same, check_threads, first, of_another, opened, started

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping

    from pinfold.core.pods.pod import ContainerRef, Identity
    from pinfold.node.processgroups.origin import Origin
    from pinfold.runtimes.base import Start
    from pinfold.runtimes.processes.applier import ProcessApplier


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

    def spawn(self, ref: ContainerRef, start: Start, out: IO[bytes]) -> int:
        """Start a command in the container's group, and return its pid; its first instruction runs there."""
        group = self._groups.group(ref)
        command, environment, directory, identity = start
        try:
            process = subprocess.Popen(  # noqa: S603 - what the user asked for
                list(command),
                env={**environment, **group.environment()},
                cwd=directory or None,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_first_steps(group.joiner(), identity),  # noqa: PLW1509 - it makes system calls only
            )
        except OSError as error:
            raise LaunchError(directory if error.filename == directory and directory else command[0], error) from error
        except subprocess.SubprocessError as error:
            became = "" if identity.user is None else f" or become user {identity.user}"
            raise ApplyError(f"{command[0]}: could not join its group{became}: {error}") from error
        process.returncode = 0  # so that Popen does not wait for it: we watch the pidfd
        self._ours.add(ref)
        self._watch(ref, process.pid, _opened_child(process.pid))
        return process.pid

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
            self._watch(ref, pid, pidfd)
        except BaseException:
            os.close(pidfd)
            with suppress(GroupError):  # then `vacate` tries again
                self._groups.group(ref).give_back(origin)
            raise

    def environment(self, ref: ContainerRef) -> dict[str, str]:
        """Return the environment variables that mark the container's processes."""
        return self._groups.group(ref).environment()

    def holder(self, pid: int) -> str | None:
        """Return what a process belongs to already, in words; None if it can be attached."""
        if pid == os.getpid():
            return "pinfold itself"
        for ref in self._applier.known:
            if pid in self._groups.group(ref).members():
                return f"container {ref.name} of pod {ref.pod}"
        return None

    def find_again(self, ref: ContainerRef, main: Main | None, origin: Origin | None = None) -> bool:
        """Watch a main process from before the restart, and return whether it still runs."""
        if origin is not None:
            self._applier.lent[ref] = origin
        try:
            group = self._groups.group(ref)
            main = first(group.members()) if main is None else main
            if main is None or started(main.pid) != main.started:
                return False
            pidfd = opened(main.pid)
        except OutOfFiles:  # it runs, and must not be forgotten
            raise
        except PinfoldError:
            return False
        try:
            if not group.has(main.pid):  # an adopted one has no marks by which affinity would know it
                group.attach(main.pid)
            self._watch(ref, main.pid, pidfd)
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
                while (left := self._first_left(refs)) is not None:
                    self._one_ended.clear()
                    await self._one_ended.wait()
        except TimeoutError:
            if left is not None:
                raise left from None

    def _first_left(self, refs: Collection[ContainerRef]) -> StillRunning | None:
        """Kill the processes of all these containers; return the error of the first that still has some."""
        errors = []
        for ref in refs:
            try:
                self._applier.ending.end(ref)
            except StillRunning as error:
                errors.append(error)
        return errors[0] if errors else None

    async def events(self) -> AsyncIterator[ProcessEnded]:
        """Yield the containers whose main process has ended, and None for a process that was left behind."""
        while True:
            yield await self._ends.get()

    def _unwatch(self, ref: ContainerRef) -> None:
        """Stop watching a process that goes on without us."""
        if ref in self._pidfds:
            self._close(ref, self._pidfds.pop(ref))
            self._one_ended.set()

    def _watch(self, ref: ContainerRef, pid: int, pidfd: int) -> None:
        found = PROC.process(pid)
        self._applier.mains[ref] = Main(pid, found[0].start if found is not None else 0)  # it may have ended already
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
        self._close(ref, pidfd)
        self._ends.put_nowait(ProcessEnded(ref, code))
        self._one_ended.set()

    def _leftover_ended(self) -> None:
        self._ends.put_nowait(ProcessEnded(None))
        self._one_ended.set()

    def _close(self, ref: ContainerRef, pidfd: int) -> None:
        self._applier.mains.pop(ref, None)
        asyncio.get_running_loop().remove_reader(pidfd)
        os.close(pidfd)


def _first_steps(join: Callable[[], None], identity: Identity) -> Callable[[], None]:
    """Return what a child does before its command: it joins its group while it may, then becomes its user."""
    if identity == AS_THE_DAEMON:
        return join
    user, group, groups = identity
    if group is None and user is not None:
        group = _primary_group(user)

    def steps() -> None:
        join()
        os.setgroups(groups)
        if group is not None:
            os.setresgid(group, group, group)
        if user is not None:
            os.setresuid(user, user, user)

    return steps


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
