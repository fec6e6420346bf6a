"""Starts daemons fast where Python starts slowly, as in the emulated guest: a warm process forks each of them.

The warm process has imported what a daemon imports; it has no thread and no event loop. Its child runs the command line
as Python would, from `pinfold.__main__` on, and is the process that gets SIGKILL. Only the start of the interpreter and
the imports differ from a daemon that was started on its own.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import select
import socket
import subprocess
import sys
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any, Final

from tests.needs import IN_GUEST

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from tests.e2e.daemon import Daemon

_MODULES: Final = (
    "pinfold.cli.serve",
    "pinfold.daemon.parts.host",
    "pinfold.daemon.parts.pods",
    "pinfold.manager.sources.nri",
    "pinfold.manager.sources.supervisor",
    "pinfold.node.podgroups.v2",
    "pinfold.node.processgroups.groups",
    "pinfold.node.processgroups.v2",
)
"""The verb `serve`, and what it imports when it knows its runtime and its groups."""
_LONGEST: Final = 1 << 17
"""More bytes than an order has: a command line and an environment."""


class Forked(subprocess.Popen[str]):
    """A process whose parent is the nursery, which tells how it ended."""

    def __init__(self, nursery: socket.socket, stdout: IO[str]) -> None:
        self._nursery = nursery
        self.pid = int(nursery.recv(_LONGEST))
        self.stdout = stdout
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code once it has ended."""
        if self.returncode is None:
            if not select.select([self._nursery], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("nursery", timeout or 0)
            self.returncode = int(self._nursery.recv(_LONGEST))
        return self.returncode

    def send_signal(self, sig: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has killed itself, and the nursery is about to tell
                os.kill(self.pid, sig)

    def communicate(self, input: str | None = None, timeout: float | None = None) -> tuple[str, Any]:  # noqa: A002, ARG002
        """Return what it has printed once it has ended."""
        assert self.stdout is not None
        self.wait(timeout)
        with self.stdout as stdout:
            return stdout.read(), ""


class Nursery:
    """The warm process, as its user sees it; it has one child at a time."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._channel, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            self._process = subprocess.Popen(
                # By the last two words its children are known as daemons.
                [sys.executable, "-m", "tests.e2e.nursery", str(its.fileno()), "-m", "pinfold"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
                start_new_session=True,
            )

    def start(self, command: Sequence[str], environment: dict[str, str], stderr: int) -> Forked:
        """Fork a process that runs a command line of Python: `-m MODULE` or `-c PROGRAM`, with arguments."""
        mine, its = os.pipe()
        order = json.dumps([command[1:], environment]).encode()
        socket.send_fds(self._channel, [order], [its, stderr])
        os.close(its)
        return Forked(self._channel, os.fdopen(mine))

    def close(self) -> None:
        """End it; its child must have ended."""
        self._channel.close()
        self._process.wait()


def fast_starts(daemon: Daemon) -> AbstractContextManager[Daemon]:
    """Let a nursery start the daemon where Python starts slowly."""
    return forking(daemon) if IN_GUEST else nullcontext(daemon)


@contextmanager
def forking(daemon: Daemon) -> Iterator[Daemon]:
    """Let a nursery start the daemon until the end of the block."""
    daemon.nursery = Nursery(daemon.environment)
    try:
        yield daemon
    finally:
        daemon.kill()
        daemon.nursery.close()
        daemon.nursery = None


def _serve(channel: socket.socket) -> None:
    """Fork a child for each order, and tell its number and how it ended."""
    while True:
        order, descriptors, _, _ = socket.recv_fds(channel, _LONGEST, 2)
        if not order:
            return
        child = os.fork()
        if not child:
            channel.close()
            arguments, environment = json.loads(order)
            _become(arguments, environment, descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(str(child).encode())
        channel.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())


def _become(arguments: list[str], environment: dict[str, str], descriptors: list[int]) -> None:
    """Run a command line of Python in this process, with this standard output and these errors."""
    os.setsid()
    for number, descriptor in enumerate(descriptors, start=1):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    how, what, *sys.argv[1:] = arguments
    if how == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        sys.argv[0] = how
        exec(what, {"__name__": "__main__"})  # noqa: S102 - as Python does


if __name__ == "__main__":
    from pinfold.cli.leftout import leave_out

    leave_out()
    for module in _MODULES:
        import_module(module)
    gc.freeze()  # else each daemon would copy every page of it when it collects its garbage
    _serve(socket.socket(fileno=int(sys.argv[1])))
