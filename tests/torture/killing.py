"""Kills a daemon at a chosen call by which it, or what it starts, changes the disk, the kernel or a process."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.errors import PinfoldError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.daemon import Daemon

MOST: Final = 120
"""More calls than any change of these tests makes."""
# Once the file $COUNT is there, the daemon is killed before the call of this number that changes something. With
# $COUNT.starting each process that it starts counts its calls until it becomes the command; at the one of this number
# it kills the daemon, and goes on. Lines of the log are not counted.
PROGRAM: Final = """
import os, signal, subprocess, sys
left, daemon, kill = None, os.getpid(), os.kill
STARTING = '''
_left = None
def _counted(name):
    real = getattr(os, name)
    def call(*arguments):
        global _left
        if _left is None and os.path.exists(COUNT):
            _left = int(open(COUNT).read())
        if _left is not None:
            _left -= 1
            if _left == 0:
                os.kill(int(sys.argv[2]), 9)
        return real(*arguments)
    setattr(os, name, call)
for _name in ("chdir", "dup2", "execvpe", "read", "sched_setaffinity", "setsid", "write"):
    _counted(_name)
'''

def with_calls_counted(forker):
    path, mark = os.environ["COUNT"] + ".forker.py", "LENGTH = "
    before, _, after = open(forker.__file__).read().partition(mark)
    counting = STARTING.replace("COUNT", repr(os.environ["COUNT"] + ".starting"))
    open(path, "w").write(before + counting + mark + after)
    forker.__file__ = path
def counted(module, name):
    real = getattr(module, name)
    def call(*arguments, **options):
        global left
        if left is None and os.path.exists(os.environ["COUNT"]):
            left = int(open(os.environ["COUNT"]).read())
        if left is not None and not (name == "write" and arguments[0] == 2):
            left -= 1
            if left == 0:
                kill(daemon, 9)
        return real(*arguments, **options)
    setattr(module, name, call)
for name in ("fdatasync", "fsync", "ftruncate", "kill", "mkdir", "pidfd_open", "posix_fallocate", "rename", "rmdir",
             "sched_setaffinity", "unlink", "write"):
    counted(os, name)
counted(signal, "pidfd_send_signal")
counted(subprocess, "Popen")
from pinfold.node.starting import forker
with_calls_counted(forker)
from pinfold.cli.main import main
sys.exit(main(sys.argv[3:]))
"""


class Killed(NamedTuple):
    """What became of a change whose daemon was to be killed."""

    acknowledged: bool
    survived: bool
    """Whether the daemon has made fewer calls, with all that it writes after the answer."""


def killed_at(daemon: Daemon, number: int, change: Callable[[], None], *, starting: bool = False) -> Killed:
    """Make a change with a daemon that is killed at the call of this number; *starting*: of a process it starts."""
    count = daemon.place.directory / "count"
    daemon.environment["COUNT"] = str(count)
    count = count.with_suffix(".starting") if starting else count
    daemon.command = [sys.executable, "-c", PROGRAM, "-m", "pinfold"]  # by these words it is known as a daemon
    daemon.start()
    count.write_text(str(number))
    acknowledged = survived = False
    with suppress(PinfoldError):
        change()
        acknowledged = True
        while starting and any(row["state"] != "running" for row in daemon.containers()):
            time.sleep(0.01)
        daemon.flush()
        survived = True
    count.unlink()
    daemon.kill()
    if not starting:  # else the next one has to know the same forker
        daemon.command = [sys.executable, "-m", "pinfold"]
    return Killed(acknowledged, survived)
