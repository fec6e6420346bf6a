"""Unix sockets to listen on: a socket in use is left alone, one that a dead daemon left behind is replaced."""

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
_NOT_LISTENING: Final = {errno.ECONNREFUSED, errno.ENOENT}


class SocketTaken(PinfoldError):  # noqa: N818 - the fact
    """Another process serves on a socket."""

    exit_code = 5


class Bound(NamedTuple):
    """A socket that listens, and its file."""

    listener: socket.socket
    path: Path
    file: tuple[int, int]

    def remove(self) -> None:
        """Remove the file, unless it belongs to another process by now."""
        with suppress(OSError):
            if _file(self.path) == self.file:
                self.path.unlink()


def bind_unix(path: Path, flag: str) -> Bound:
    """Return a socket that listens on *path*, set by *flag*; only our user and root can use it."""
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
    """Remove a socket on which no process answers; raise if the path is anything else."""
    if not os.path.lexists(path):
        return
    if not path.is_socket():
        raise ConfigError(Problem(f"{flag}: {path} exists and is not a socket", "name another path"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PATIENCE)
        try:
            probe.connect(str(path))
        except OSError as error:
            if error.errno in _NOT_LISTENING:
                path.unlink(missing_ok=True)
                return
            if not isinstance(error, TimeoutError | BlockingIOError):  # these: a busy process listens
                raise
    raise SocketTaken(f"{flag}: {path} is in use by another daemon or a kubelet")


def _bind(listener: socket.socket, path: Path) -> None:
    mask = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(mask)


def _file(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino
