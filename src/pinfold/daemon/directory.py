"""The state directory, held by one daemon at a time."""

from __future__ import annotations

import errno
import os
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from pinfold.errors import PinfoldError
from pinfold.node.procfs import Procfs
from pinfold.node.statefile import lock

_PATIENCE: Final = 4.0  # a runtime waits 5 s for its plugin to register
_NO_ROOM: Final = {errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOENT}


class AlreadyRunning(PinfoldError):  # noqa: N818 - the fact
    """Another daemon has this state directory or socket."""

    exit_code = 5


class NotOurs(PinfoldError):  # noqa: N818 - the fact
    """Other users could change files in a directory of ours."""

    exit_code = 2


class NotMade(PinfoldError):  # noqa: N818 - the fact
    """The state directory is not there and cannot be made."""

    exit_code = 2

    def __init__(self, directory: Path, error: OSError) -> None:
        said = f"the state directory {directory} cannot be made: {error.strerror}"
        super().__init__(f"{said}; name another one with --state-dir")


class StateDirectory:
    """Makes the directory, checks that it is ours alone, and holds its lock while the block lasts."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock: int | None = None

    def __enter__(self) -> None:
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise NotMade(self._directory, error) from error
        check_ours("state", self._directory)
        self._lock = _open_lock(self._directory / "lock")
        if self._lock is None:
            return
        if not _take(self._lock):
            pid = _holder(self._lock) or "unknown"
            os.close(self._lock)
            raise AlreadyRunning(f"a daemon (process {pid}) has the state directory {self._directory}")
        with suppress(OSError):  # a full or read-only disk: the number is for people only
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            os.close(self._lock)


def is_held(directory: Path) -> bool:
    """Return whether a daemon has this state directory; takes nothing."""
    try:
        file = os.open(directory / "lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        lock(file, 0.0)
    except TimeoutError:
        return True
    finally:
        os.close(file)
    return False


def _take(file: int) -> bool:
    """Take the lock, or return False if a daemon has it.

    A container runtime that restarts starts its next plugin before the last one has ended, and does not start itself
    if that gives up. And a daemon that was killed may have left a process that has not run its program yet: until then
    it has all files of the daemon, with their locks.
    """
    for patience in (0.0, _PATIENCE):
        with suppress(TimeoutError):
            lock(file, time.monotonic() + patience)
            return True
        if "NRI_PLUGIN_SOCKET" not in os.environ and Procfs(Path("/proc")).process(int(_holder(file) or 0)):
            break
    return False


def _holder(file: int) -> str:
    """Return the process of the daemon that has the lock; nothing if the file does not say it."""
    text = os.pread(file, 20, 0).decode("ascii", "replace").strip()
    return text if text.isdecimal() else ""


def check_ours(what: str, directory: Path) -> None:
    """Raise if another user owns the directory, or the link that leads there, or may write into it. None is fine."""
    if not os.path.lexists(directory):
        return
    found = directory.stat()
    for owner in (directory.lstat().st_uid, found.st_uid):
        if owner not in {0, os.geteuid()}:
            said = f"the {what} directory {directory} belongs to user {owner}"
            raise NotOurs(f"{said}; change its owner to {os.geteuid()}")
    if found.st_mode & 0o022:
        mode = f"{stat.S_IMODE(found.st_mode):04o}"
        raise NotOurs(f"other users may write into the {what} directory {directory} (mode {mode}); use chmod go-w")


def _open_lock(path: Path) -> int | None:
    """Open the lock file; None on a disk that takes no new file: there the control socket tells daemons apart."""
    for flags in (os.O_RDWR | os.O_CREAT, os.O_RDONLY):
        try:
            return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise NotOurs(f"{path} is a symbolic link; remove it") from error
            if error.errno not in _NO_ROOM:
                raise
    return None
