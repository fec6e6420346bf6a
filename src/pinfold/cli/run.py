"""`pinfold run`: a command on CPUs of its own; it starts only after all others have left them."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from pinfold.cli.arguments.amount import add_amount, add_wishes, amount_body, wishes_body
from pinfold.cli.asking.client import Client, add_socket
from pinfold.errors import ParseError

NOT_FOUND, NOT_EXECUTABLE = 127, 126
_FROM_THE_KERNEL: Final = 0x80
_OUR_OWN: Final = frozenset(
    {
        *(signal.SIGKILL, signal.SIGSTOP),  # these cannot be caught
        *(signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU),  # the terminal's, for all in the foreground
        *(signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS, signal.SIGABRT),
        signal.SIGCHLD,
    }
)
_PASSED_ON: Final = frozenset(signal.valid_signals()) - _OUR_OWN
_AWAITED: Final = _PASSED_ON | {signal.SIGCHLD}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pinfold run`."""
    add_socket(parser)
    add_amount(parser)
    add_wishes(parser)
    parser.add_argument("--name", help="the name it is shown under (default: the command and its process id)")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- CMD…", help="the command and its arguments")


def run(args: argparse.Namespace) -> int:
    """Reserve CPUs, start the command on them, pass signals on, and return its exit code."""
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise ParseError("no command; write it after --, as in: pinfold run --cpus 2 -- ./app --fast")
    client = Client.of(args)
    body = amount_body(args) | wishes_body(args)
    body["name"] = args.name or f"{_plain(command[0])}-{os.getpid()}"
    reserved = client.post("/v1/run", body)
    for warning in reserved.get("warnings", []):
        print(f"pinfold: warning: {warning}", file=sys.stderr, flush=True)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    gate, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        _wait_and_execute(gate, go, command, reserved["environment"])
    os.close(gate)
    try:
        client.post(f"/v1/run/{reserved['uid']}/attach", {"pid": pid})
        with suppress(BrokenPipeError):  # it was killed meanwhile
            os.write(go, b"1")
    finally:
        os.close(go)  # without the byte the child gives up
        status = _follow(pid)
    return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def _wait_and_execute(gate: int, go: int, command: list[str], environment: dict[str, str]) -> None:
    """In the child: wait until the CPUs are ours, then become the command."""
    os.close(go)
    if not os.read(gate, 1):
        os._exit(1)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these, and a command would inherit that
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, {**os.environ, **environment})  # noqa: S606 - what the user asked for
    except FileNotFoundError:
        print(f"pinfold: error: {command[0]}: command not found", file=sys.stderr, flush=True)
        os._exit(NOT_FOUND)
    except OSError as error:
        print(f"pinfold: error: {command[0]}: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(NOT_EXECUTABLE)


def _follow(pid: int) -> int:
    """Pass signals on until the child has ended, and return its status.

    The terminal sends Ctrl-C to all foreground processes: the child has it already.
    """
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        arrived = signal.sigwaitinfo(_AWAITED)
        from_outside = arrived.si_code != _FROM_THE_KERNEL and arrived.si_pid != os.getpid()  # SIGPIPE: our own write
        if arrived.si_signo != signal.SIGCHLD and from_outside:
            with suppress(ProcessLookupError):
                os.kill(pid, arrived.si_signo)


def _plain(command: str) -> str:
    name = "".join(sign if sign.isascii() and sign.isalnum() else "-" for sign in Path(command).name.lower())
    return name.strip("-")[:40] or "command"
