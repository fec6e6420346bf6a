"""Forker: the program beside the daemon that starts processes, each in its group before its first instruction.

    python -I -S forker.py CHANNEL DAEMON NAME

CHANNEL is one end of a pair of Unix sockets, DAEMON the process of the daemon, NAME that of its groups, by which the
next daemon finds what is left of it (`unfinished`). A request is four bytes with its length, then JSON (`NewProcess` in
`starter`); with it come the files for standard input, output and error, a socket for the report, and a file for each
cgroup to join. The new process reports its number, in eight bytes, and waits for a byte from the daemon before it runs
the command: one that the daemon has given up never runs. What fails is reported as "STEP ERRNO"; a report that is
closed without a word means that the command runs.

The process is a child of the daemon, as if the daemon had forked: the kernel is asked for a sibling (CLONE_PARENT).
Where that cannot be asked, this program itself becomes the command, and the daemon starts another one.

It imports nothing of pinfold, so that it starts fast and stays small. It ends when the daemon does.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys
import warnings  # noqa: F401 - os.execvpe imports it, when the process may be a user who cannot read it

LENGTH = struct.Struct("=I")
NUMBER = struct.Struct("=q")
MOST_FILES = 16
_REPORT = 3
_JOINED = 4
"""Where the file for the report is among those of a request, and the first of the groups."""
_END_WITH_PARENT = 1
"""PR_SET_PDEATHSIG."""
_CLONE_PARENT = 0x8000
_CLONE = {"x86_64": 56, "aarch64": 220, "riscv64": 220, "loongarch64": 220, "ppc64le": 120, "armv7l": 120}
"""The number of the system call; the first argument are the flags on all of these machines."""


class Wish:
    """What the daemon asks for, out of its JSON."""

    def __init__(self, text: bytes | bytearray) -> None:
        wish = json.loads(text)
        self.command: list[str] = wish["command"]
        self.environment: dict[str, str] = wish["environment"]
        self.directory: str = wish["directory"]
        self.identity: tuple[int | None, int | None, list[int]] | None = wish["identity"]
        self.cpus: list[int] = wish["cpus"]
        self.strict: bool = wish["strict"]


def run(wish: Wish, files: list[int]) -> None:
    """Become the command; if that cannot be, report the step and the error, and end."""
    step, number = "join", NUMBER.pack(os.getpid())
    try:
        if not wish.strict:  # as soon as it has joined it may get little CPU time, and the daemon waits
            os.write(files[_REPORT], number)
            number = b""
        join(wish, files[_JOINED:])
        if wish.strict:  # the daemon knows it from now on, and may give it other CPUs
            os.write(files[_REPORT], number)
            number = b""
        step = "become"
        become(wish)
        step = "directory"
        if wish.directory:
            os.chdir(wish.directory)
        if not os.read(files[_REPORT], 1):
            os._exit(0)  # the daemon has given it up, or was killed
        step = "command"
        for standard, file in enumerate(files[:_REPORT]):
            os.dup2(file, standard)
        end_with_daemon(0)  # it is in its group, where the next daemon finds it
        os.execvpe(wish.command[0], wish.command, wish.environment)  # noqa: S606 - what the user asked for
    except BaseException as error:  # noqa: BLE001 - the daemon must hear of every error
        os.write(files[_REPORT], number + f"{step} {getattr(error, 'errno', None) or 22}".encode())
    finally:
        os._exit(127)


def join(wish: Wish, groups: list[int]) -> None:
    """Enter the groups, in a session of its own, with the CPUs that it should have."""
    if os.getsid(0) != os.getpid():  # it is so already where the forker itself becomes the command
        os.setsid()
    for group in groups:
        os.write(group, b"0")  # the process that writes
    try:
        os.sched_setaffinity(0, wish.cpus)  # last: a shield moves only processes outside of our groups
    except OSError:  # a sandbox forbids it, or the possible CPUs are not known: in a cgroup it keeps what it has
        if wish.strict:
            raise
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python
        signal.signal(ignored, signal.SIG_DFL)


def become(wish: Wish) -> None:
    """Become another user, if the wish names one."""
    if wish.identity is not None:
        user, group, groups = wish.identity
        os.setgroups(groups)
        if group is not None:
            os.setresgid(group, group, group)
        if user is not None:
            os.setresuid(user, user, user)


def end_with_daemon(number: int = signal.SIGKILL) -> None:
    """Have the kernel end this process when the daemon ends; 0: no more.

    The next daemon must not start a container that this process is still about to start.
    """
    try:
        import ctypes  # noqa: PLC0415 - some builds of Python have none

        ctypes.CDLL(None).prctl(_END_WITH_PARENT, number, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        return


def sibling() -> int:
    """Fork a child of the daemon: return its number, 0 in it, and -1 if that cannot be done here."""
    try:
        import ctypes  # noqa: PLC0415 - some builds of Python have none

        number = _CLONE[os.uname().machine]
        return int(ctypes.CDLL(None).syscall(number, _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0))
    except (ImportError, KeyError, OSError, AttributeError):
        return -1


def received(channel: socket.socket) -> tuple[Wish, list[int]]:
    """Return the next request and its files; end with the daemon."""
    data, files, _, _ = socket.recv_fds(channel, LENGTH.size, MOST_FILES)
    for file in files:
        os.set_inheritable(file, False)  # noqa: FBT003 - its only form
    if not data:
        sys.exit()
    (left,) = LENGTH.unpack(data)
    text = bytearray()
    while len(text) < left:
        part = channel.recv(left - len(text))
        if not part:
            sys.exit()
        text += part
    return Wish(text), files


def serve(channel: socket.socket, parent: int) -> None:
    """Start what the daemon, our *parent*, asks for until it ends."""
    end_with_daemon()
    while os.getppid() == parent:
        wish, files = received(channel)
        pid = sibling()
        if pid == 0:
            end_with_daemon()
            if os.getppid() != parent:
                os._exit(0)
        if pid <= 0:
            run(wish, files)
        for file in files:
            os.close(file)


if __name__ == "__main__":
    daemon = socket.socket(fileno=int(sys.argv[1]))
    daemon.set_inheritable(False)
    try:
        serve(daemon, int(sys.argv[2]))
    except ConnectionError:  # the daemon was killed
        sys.exit()
