"""Unix sockets to listen on: a socket in use is left alone, one that a dead daemon left behind is replaced."""

from __future__ import annotations

import errno
import grp
import os
import socket
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.errors import ConfigError, PinfoldError, Problem, excerpt

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


def find_group(name: str | None) -> int | None:
    """Return the number of the group that may use the control socket, or raise if there is no such group."""
    if name is None:
        return None
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError as error:
        said = f"--socket-group: there is no group {excerpt(name)} on this host"
        raise ConfigError(Problem(said, f"make it: groupadd --system {name}")) from error


def bind_unix(path: Path, flag: str, group: int | None = None) -> Bound:
    """Return a socket that listens on *path*, set by *flag*; our user, root and members of *group* can use it."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _make_room(path, flag)
        _bind(listener, path)
        if group is not None:
            os.chown(path, -1, group)
            path.chmod(0o660)
            _let_in(path.parent, group)
        listener.listen()
        return Bound(listener, path, _file(path))
    except OSError as error:
        listener.close()
        raise ConfigError(Problem(f"{flag}: {path}: {error.strerror or error}", "name another path")) from error
    except PinfoldError:
        listener.close()
        raise


def _let_in(directory: Path, group: int) -> None:
    """Let members of *group* reach files in our directory; raise if they cannot, and the directory is shared."""
    found = directory.stat()
    if found.st_mode & stat.S_IXOTH or (found.st_gid == group and found.st_mode & stat.S_IXGRP):
        return
    if found.st_mode & stat.S_IRWXG:
        said = f"--socket-group: members cannot enter {directory}, which belongs to group {found.st_gid}"
        raise ConfigError(Problem(said, "name another --socket"))
    os.chown(directory, -1, group)
    directory.chmod(stat.S_IMODE(found.st_mode) | stat.S_IXGRP)


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
