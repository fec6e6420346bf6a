"""The state directory, held by one daemon at a time."""

from __future__ import annotations

import errno
import os
import stat
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pinfold.errors import PinfoldError
from pinfold.node.statefile import lock

if TYPE_CHECKING:
    from pathlib import Path

_PATIENCE: Final = 4.0  # a runtime waits 5 s for its plugin to register
_NO_ROOM: Final = {errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOENT}


class AlreadyRunning(PinfoldError):  # noqa: N818 - the fact
    """Another daemon has this state directory or socket."""

    exit_code = 5


class NotOurs(PinfoldError):  # noqa: N818 - the fact
    """Other users could change what is in the state directory."""

    exit_code = 2


class StateDirectory:
    """Makes the directory, checks that it is ours alone, and holds its lock while the block lasts."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock: int | None = None

    def __enter__(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        _check_ours(self._directory)
        self._lock = _open_lock(self._directory / "lock")
        if self._lock is None:
            return
        # A container runtime that restarts starts its next plugin before the last one has ended, and does not start
        # itself if that gives up.
        until = time.monotonic() + (_PATIENCE if "NRI_PLUGIN_SOCKET" in os.environ else 0.0)
        try:
            lock(self._lock, until)
        except TimeoutError as error:
            pid = os.read(self._lock, 20).decode("ascii", "replace").strip() or "unknown"
            os.close(self._lock)
            raise AlreadyRunning(f"a daemon (process {pid}) has the state directory {self._directory}") from error
        with suppress(OSError):  # a full or read-only disk: the number is for people only
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            os.close(self._lock)


def _check_ours(directory: Path) -> None:
    """Raise if another user owns the directory or may write into it."""
    found = directory.stat()
    if found.st_uid not in {0, os.geteuid()}:
        raise NotOurs(
            f"the state directory {directory} belongs to user {found.st_uid}; change its owner to {os.geteuid()}"
        )
    if found.st_mode & 0o022:
        mode = f"{stat.S_IMODE(found.st_mode):04o}"
        raise NotOurs(f"other users may write into the state directory {directory} (mode {mode}); use chmod go-w")


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
