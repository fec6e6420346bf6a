"""Starter: starts processes through the forker, and says what went wrong with one that could not be started."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import select
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.errors import PinfoldError
from pinfold.node.procfs import PROC
from pinfold.node.starting import forker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pinfold.node.processgroups.joiner import Joiner

_PATIENCE: Final = 10.0
"""Seconds until a new forker that does not answer is given up: on a busy machine it may need some to start."""
_MOST_PATIENCE: Final = 16
"""At most so many times as long: each new forker gets twice the time of the one that was given up before it."""
_LESS: Final = 2.0
"""The same for one that has answered before: it may be frozen."""
_GLANCE: Final = 0.1
"""Seconds between two looks at a forker: one that is stopped is replaced soon."""
_MOMENT: Final = 0.01
_SLOW: Final = 10.0
"""Seconds until a command counts as running whose file system does not answer, or that gets no CPU time to begin."""
_REPORT_LENGTH: Final = 64
_GO: Final = b"1"
"""What a new process waits for."""


class NewProcess(NamedTuple):
    """A command, with what it finds when it begins; what the forker reads."""

    command: Sequence[str]
    environment: Mapping[str, str]
    directory: str = ""
    """The daemon's if it is empty."""
    identity: tuple[int | None, int | None, Sequence[int]] | None = None
    """The user, the group and further groups; None is the daemon's."""


class StartError(PinfoldError):
    """A process that could not be started; *step* is what failed: start, join, become, directory or command."""

    def __init__(self, step: str, cause: OSError) -> None:
        super().__init__(f"{step}: {cause.strerror}")
        self.step = step
        self.cause = cause


class Starter:
    """One forker, started with the first process, and again when it was killed. No call waits in the event loop."""

    def __init__(self, name: str = "") -> None:
        """*name*: that of the groups in which processes are started."""
        self._name = name
        self.turn = asyncio.Lock()
        """Held by the caller of `begin`: the forker is asked for one process at a time."""
        self._forker: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._has_answered = False
        self._times = 1
        """How many times as long as usual a new forker may take, after others were too slow."""
        self._abandoned: list[_Abandoned] = []
        self._ending: list[subprocess.Popen[bytes]] = []
        """The forkers that were killed, and not waited for yet: one that is frozen ends when it is thawed."""

    async def begin(self, request: NewProcess, files: tuple[int, int, int], joiner: Joiner) -> Begun:
        """Start a command in the groups of *joiner*; *files* are its standard files. Await what is returned.

        Raise a StartError if it cannot be started. Then, or if this is cancelled, the command never runs.
        """
        self._forget_ended()
        wanted = {**request._asdict(), "cpus": list(joiner.cpus), "strict": joiner.strict}
        try:
            pid, report = await self._ask(json.dumps(wanted).encode(), files, joiner.files)
        except OSError as error:
            self._give_up()
            raise StartError("start", error) from error
        except asyncio.CancelledError:
            await self._none_left()
            raise
        begun = Begun(pid, report, self._abandoned)
        try:
            joiner.joined(pid)
        except BaseException:
            begun.give_up()
            raise
        with suppress(OSError):  # it was killed: the launcher finds that out when it watches it
            report.send(_GO)
        return begun

    def warm(self) -> None:
        """Start the forker, so that the first process need not wait for it; failing is for the first process."""
        with suppress(OSError):
            self._running()

    def close(self) -> None:
        """End the forker, and wait a moment for that; the processes that it has started go on."""
        self._give_up()
        for process in self._ending:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GLANCE)
            process.returncode = 0  # Popen must not wait for one that is frozen
        self._ending.clear()
        self._forget_ended()
        for one in self._abandoned:
            one.close()
        self._abandoned.clear()

    def __del__(self) -> None:
        self.close()

    async def _ask(self, text: bytes, files: Sequence[int], groups: Sequence[int]) -> tuple[int, socket.socket]:
        """Return the number of a new process, and the socket on which it waits."""
        try:
            return await self._answer(text, files, groups)
        except (BrokenPipeError, ConnectionResetError):  # the forker was killed, and has started nothing
            self._give_up()
            return await self._answer(text, files, groups)

    async def _answer(self, text: bytes, files: Sequence[int], groups: Sequence[int]) -> tuple[int, socket.socket]:
        channel, process = self._running()
        report, its = socket.socketpair()
        try:
            with its:
                socket.send_fds(channel, [forker.LENGTH.pack(len(text))], [*files, its.fileno(), *groups])
            await self._send_and_wait(channel, text, report, process.pid)
            pid = _number(report)
        except BaseException:
            self._abandoned.append(_Abandoned(report))
            raise
        self._has_answered = True
        self._times = 1
        return self._started(pid, process), report

    async def _send_and_wait(self, channel: socket.socket, text: bytes, report: socket.socket, pid: int) -> None:
        """Return when the process has answered, or the forker has ended; end one that cannot go on."""
        looking = asyncio.create_task(self._end_if_stopped(pid))
        try:
            async with asyncio.timeout(_LESS if self._has_answered else _PATIENCE * self._times):
                await self._send(channel, text)
                await _readable(report.fileno())
        except TimeoutError:
            if not self._has_answered:
                self._times = min(2 * self._times, _MOST_PATIENCE)
            raise TimeoutError(errno.ETIMEDOUT, "the program that starts processes does not answer") from None
        finally:
            looking.cancel()

    async def _send(self, channel: socket.socket, text: bytes) -> None:
        try:
            await asyncio.get_running_loop().sock_sendall(channel, text)
        except asyncio.CancelledError:
            self._give_up()  # it has half of a request, and waits for the rest
            raise

    async def _end_if_stopped(self, pid: int) -> None:
        await asyncio.sleep(_GLANCE)  # most have answered by then
        while not PROC.is_stopped(pid):  # noqa: ASYNC110 - no event tells that another process was stopped
            await asyncio.sleep(_GLANCE)
        self._end(pid)

    def _forget_ended(self) -> None:
        self._abandoned[:] = [one for one in self._abandoned if not one.has_ended()]
        self._ending = [process for process in self._ending if process.poll() is None]

    async def _none_left(self) -> None:
        """Return when no process is left that was given up: until then it may join its groups. Or after 2 seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LESS):
                while self._abandoned:
                    await asyncio.sleep(_MOMENT)
                    self._forget_ended()

    def _end(self, pid: int) -> None:
        with suppress(PermissionError):  # of a user that we are no more: it ends with its channel
            os.kill(pid, signal.SIGKILL)  # a child of ours that was not waited for: the number is still its own

    def _give_up(self) -> None:
        """End the forker without waiting for that; the next process gets another one."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._forker is not None:
            self._end(self._forker.pid)
            self._ending.append(self._forker)
            self._forker = None
        self._has_answered = False

    def _started(self, pid: int, process: subprocess.Popen[bytes]) -> int:
        if pid == process.pid:  # it has become the command
            process.returncode = 0  # so that Popen does not wait for it
            self._forker = None
            self._give_up()
        return pid

    def _running(self) -> tuple[socket.socket, subprocess.Popen[bytes]]:
        """Return the forker, or start one.

        Popen returns as soon as the program is executed, not when it answers. No thread does it instead: Python lets no
        other thread run meanwhile, and the forker would end with the thread.
        """
        if self._channel is None or self._forker is None:
            ours, its = socket.socketpair()
            ours.setblocking(False)  # noqa: FBT003 - its only form
            with its:
                self._forker = subprocess.Popen(  # noqa: S603 - our own program
                    [sys.executable, "-I", "-S", forker.__file__, str(its.fileno()), str(os.getpid()), self._name],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env={},
                    pass_fds=(its.fileno(),),
                    start_new_session=True,
                )
            self._channel = ours
        return self._channel, self._forker


class Begun:
    """A process that is about to become its command."""

    def __init__(self, pid: int, report: socket.socket, abandoned: list[_Abandoned]) -> None:
        self.pid = pid
        self._report = report
        self._abandoned = abandoned

    async def runs(self) -> None:
        """Return when the command runs; raise a StartError if it cannot. Then, or if it is cancelled, none is left.

        One that waits for its file system, or for CPU time, for more than 10 seconds counts as running.
        """
        try:
            if await _has_data(self._report.fileno(), _SLOW):
                self._check()
        except BaseException:
            self.give_up()
            await self._end()
            raise
        self._report.close()

    def give_up(self) -> None:
        """End the process; it is waited for later."""
        with suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, signal.SIGKILL)  # a child that was not waited for: the number is still its own
        self._abandoned.append(_Abandoned(self._report, self.pid))

    async def _end(self) -> None:
        """Return when the process has ended: until then it may still join its groups."""
        with suppress(OSError):
            pidfd = os.pidfd_open(self.pid)
            try:
                await _has_data(pidfd, _SLOW)
            finally:
                os.close(pidfd)

    def _check(self) -> None:
        """Raise what the process reports."""
        try:
            step, _, number = self._report.recv(_REPORT_LENGTH).decode().partition(" ")
        except ConnectionResetError:  # it was killed before it had read our answer
            return
        if step:
            raise StartError(step, OSError(int(number), os.strerror(int(number))))


class _Abandoned:
    """A process that was given up, if it was started at all; it ends as soon as it finds that out."""

    def __init__(self, report: socket.socket, pid: int = 0) -> None:
        self._report = report
        self._pid = pid
        if pid:
            report.close()
        else:
            report.shutdown(socket.SHUT_WR)

    def has_ended(self) -> bool:
        """Return whether nothing is left of it; it is waited for, as it is a child of ours."""
        if not self._pid:
            if not _is_readable(self._report.fileno()):
                return False
            with suppress(ConnectionResetError):
                self._pid = _number(self._report)
        with suppress(ChildProcessError):
            if self._pid and os.waitpid(self._pid, os.WNOHANG) == (0, 0):
                return False
        self._report.close()
        return True

    def close(self) -> None:
        """Wait for it no more; it finds out that it was given up."""
        self._report.close()


def _number(report: socket.socket) -> int:
    """Return what a new process says first; raise if there is no process."""
    answer = report.recv(forker.NUMBER.size)
    if not answer:  # no process has the other end any more
        raise ConnectionResetError(errno.ECHILD, "the program that starts processes was killed")
    return int(forker.NUMBER.unpack(answer)[0])


async def _has_data(file: int, within: float) -> bool:
    """Return whether a file can be read, or has come to its end, within so many seconds."""
    try:
        async with asyncio.timeout(within):
            await _readable(file)
    except TimeoutError:
        return False
    return True


async def _readable(file: int) -> None:
    """Return when a file can be read, or has come to its end."""
    loop, there = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(file, there.set)
    try:
        await there.wait()
    finally:
        loop.remove_reader(file)


def _is_readable(file: int) -> bool:
    """Return whether a file can be read now; select would take no number above 1023."""
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(0))
