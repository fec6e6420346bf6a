"""Unix sockets to listen at: one that somebody answers at is left alone, what a dead daemon has left is replaced."""

from __future__ import annotations

import errno
import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.errors import ConfigError, PinfoldError, Problem

if TYPE_CHECKING:
    from pathlib import Path

_PATIENCE: Final = 1.0
_NOBODY: Final = {errno.ECONNREFUSED, errno.ENOENT}


class SocketTaken(PinfoldError):  # noqa: N818 - the fact
    """Somebody else serves at a socket."""

    exit_code = 5


class Bound(NamedTuple):
    """A socket that listens, and its file."""

    listener: socket.socket
    path: Path
    file: tuple[int, int]

    def remove(self) -> None:
        """Remove the file, unless it is by now that of somebody else."""
        with suppress(OSError):
            if _file(self.path) == self.file:
                self.path.unlink()


def bind_unix(path: Path, flag: str) -> Bound:
    """Return a socket that listens at *path*, which *flag* names; only we and root can use it."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _make_room(path, flag)
        _bind(listener, path)
        listener.listen()
        return Bound(listener, path, _file(path))
    except OSError as error:
        listener.close()
        raise ConfigError(Problem(f"{flag}: {path}: {error.strerror or error}", "name another path")) from error
    except PinfoldError:
        listener.close()
        raise


def _make_room(path: Path, flag: str) -> None:
    """Remove a socket at which nobody answers; raise if there is anything else."""
    if not os.path.lexists(path):
        return
    if not path.is_socket():
        raise ConfigError(Problem(f"{flag}: {path} is there already, and is no socket", "name another path"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PATIENCE)
        try:
            probe.connect(str(path))
        except OSError as error:
            if error.errno in _NOBODY:
                path.unlink(missing_ok=True)
                return
            if not isinstance(error, TimeoutError | BlockingIOError):  # these: somebody is there, and busy
                raise
    raise SocketTaken(f"{flag}: somebody answers at {path}; another daemon or a kubelet serves there")


def _bind(listener: socket.socket, path: Path) -> None:
    mask = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(mask)


def _file(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino
