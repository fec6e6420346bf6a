"""Faults of the machine under a running daemon: each is a block, at whose end the machine is sound again."""

from __future__ import annotations

import errno
import os
import resource
import signal
import time
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.e2e.daemon import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.daemon import Daemon

# The program runs before the daemon. While the file $FAULT is there, calls on files fail with the errno in it, wait for
# its seconds, or see a clock that is its seconds off.
PROGRAM: Final = """
import os, sys, time
def fault():
    try:
        what, _, value = open(os.environ["FAULT"]).read().partition(" ")
        return what, float(value or 0)
    except (OSError, ValueError):
        return "", 0.0
def failing(name, *, slow=False):
    real = getattr(os, name)
    def call(*arguments, **options):
        what, value = fault()
        if what == "fails" and not (name == "write" and arguments[0] < 3):
            raise OSError(int(value), os.strerror(int(value)))
        if what == "waits" and slow:
            time.sleep(value)
        return real(*arguments, **options)
    setattr(os, name, call)
def shifted(name, unit):
    real = getattr(time, name)
    def call():
        what, value = fault()
        return real() + int(value * unit) if what == "clock" else real()
    setattr(time, name, call)
for name in ("fsync", "fdatasync"):
    failing(name, slow=True)
for name in ("rename", "ftruncate", "posix_fallocate"):
    failing(name)
shifted("time", 1)
shifted("time_ns", 10**9)
from pinfold.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
FREEZER: Final = Path("/sys/fs/cgroup/freezer")
PIDS: Final = Path("/sys/fs/cgroup/pids")


@contextmanager
def _told(daemon: Daemon, what: str) -> Iterator[None]:
    """Tell the program what happens."""
    file, new = Path(daemon.environment["FAULT"]), Path(daemon.environment["FAULT"] + ".new")
    new.write_text(what)
    new.rename(file)
    yield
    file.unlink()


@contextmanager
def full(daemon: Daemon) -> Iterator[None]:
    """Fill the disk to its last block."""
    filler = daemon.state_dir / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    yield
    filler.unlink()


@contextmanager
def no_inodes(daemon: Daemon) -> Iterator[None]:
    """Leave no inode for another file."""
    directory = daemon.state_dir / "filler"
    directory.mkdir()
    with suppress(OSError):
        for number in range(100_000):
            (directory / str(number)).touch()
    yield
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()


@contextmanager
def read_only(daemon: Daemon) -> Iterator[None]:
    """Have every change of a file refused, as on a disk that the kernel has mounted read-only after an error."""
    with _told(daemon, f"fails {errno.EROFS}"):
        yield


@contextmanager
def input_output_errors(daemon: Daemon) -> Iterator[None]:
    """Have every sync fail: what was written may be lost."""
    with _told(daemon, f"fails {errno.EIO}"):
        yield


@contextmanager
def slow_fsync(daemon: Daemon) -> Iterator[None]:
    """Let every sync take a second."""
    with _told(daemon, "waits 1"):
        yield


@contextmanager
def clock_ahead(daemon: Daemon) -> Iterator[None]:
    """Set the wall clock to tomorrow, and back."""
    with _told(daemon, "clock 86400"):
        yield


@contextmanager
def clock_back(daemon: Daemon) -> Iterator[None]:
    """Set the wall clock to yesterday, and forward again."""
    with _told(daemon, "clock -86400"):
        yield


@contextmanager
def no_files(daemon: Daemon) -> Iterator[None]:
    """Let the daemon open two more files, and no further ones."""
    before = resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)
    used = max(int(path.name) for path in Path(f"/proc/{daemon.pid}/fd").iterdir())
    resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (used + 3, before[1]))
    yield
    resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, before)


@contextmanager
def _group(hierarchy: Path, pid: int) -> Iterator[Path]:
    """Make a group of cgroup v1 with one process; it leaves when the block ends."""
    group = hierarchy / f"pinfold-test-{uuid.uuid4().hex[:12]}"
    group.mkdir()
    try:
        (group / "cgroup.procs").write_text(str(pid))
        yield group
    finally:
        wait_for(lambda: _emptied(group, hierarchy), "the group is empty")
        group.rmdir()


def _emptied(group: Path, hierarchy: Path) -> bool:
    for pid in (group / "cgroup.procs").read_text().split():
        with suppress(OSError):
            (hierarchy / "cgroup.procs").write_text(pid)
    return not (group / "cgroup.procs").read_text()


@contextmanager
def no_threads(daemon: Daemon) -> Iterator[None]:
    """Let the daemon start no thread and no process."""
    with _group(PIDS, daemon.pid) as group:
        (group / "pids.max").write_text("1")
        yield
        (group / "pids.max").write_text("max")


@contextmanager
def frozen_container(daemon: Daemon) -> Iterator[None]:
    """Freeze a container, so that not even SIGKILL ends it."""
    with _group(FREEZER, daemon.running("old")) as group:
        (group / "freezer.state").write_text("FROZEN")
        wait_for(lambda: (group / "freezer.state").read_text() == "FROZEN\n", "it is frozen")
        yield
        (group / "freezer.state").write_text("THAWED")


@contextmanager
def stopped(daemon: Daemon) -> Iterator[None]:
    """Stop the daemon for a second, then let it go on."""
    os.kill(daemon.pid, signal.SIGSTOP)
    time.sleep(1)
    os.kill(daemon.pid, signal.SIGCONT)
    yield


@contextmanager
def unread_log(daemon: Daemon) -> Iterator[None]:
    """Start it again with a log that is a full pipe, which is read in the end."""
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    with suppress(BlockingIOError):
        while True:
            os.write(theirs, b"x" * 4096)
    os.set_blocking(theirs, True)
    daemon.kill()
    daemon.start(stderr=theirs)
    os.close(theirs)
    yield
    os.set_blocking(ours, False)
    with suppress(BlockingIOError):
        while os.read(ours, 1 << 16):
            pass
    daemon.restart()
    os.close(ours)
