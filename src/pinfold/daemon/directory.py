"""The state directory, held by one daemon at a time."""

from __future__ import annotations

import fcntl
import os
import time
from typing import TYPE_CHECKING, Final

from pinfold.errors import PinfoldError

if TYPE_CHECKING:
    from pathlib import Path

_PATIENCE: Final = 4.0  # a runtime waits 5 s for its plugin to register
_PAUSE: Final = 0.05


class AlreadyRunning(PinfoldError):  # noqa: N818 - the fact
    """Another daemon has this state directory or socket."""

    exit_code = 5


class StateDirectory:
    """Makes the directory, and holds its lock while the block lasts."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = -1

    def __enter__(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # A container runtime that restarts starts its next plugin before the last one has ended, and does not start
        # itself if that gives up.
        until = time.monotonic() + (_PATIENCE if "NRI_PLUGIN_SOCKET" in os.environ else 0.0)
        while not self._locked():
            if time.monotonic() >= until:
                pid = os.read(self._lock, 20).decode("ascii", "replace").strip() or "unknown"
                raise AlreadyRunning(f"a daemon (process {pid}) has the state directory {self._directory}")
            time.sleep(_PAUSE)
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def _locked(self) -> bool:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)
