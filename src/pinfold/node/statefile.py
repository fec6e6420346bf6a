"""The State's file on disk: replaced as a whole or not at all, and on the disk before anything relies on it.

The new content is written beside the old, made durable, and renamed over it: a reader, or a crash at any instant,
finds one or the other, whole. What a crash leaves behind has a name of its own and goes at the next write. Knows
nothing of what is in the file.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from pinfold.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_FILE: Final = 16 << 20
_MOST_ASIDE: Final = 1000
_KINDS: Final = {stat.S_IFDIR: "a directory", stat.S_IFLNK: "a symbolic link", stat.S_IFIFO: "a named pipe"}
_UNTOUCHED: Final = "not written; the old content is unchanged"


class StateFileError(StateError):
    """A State's file that could not be read or written; *cause* is what the system says."""

    def __init__(self, path: Path, what: str, cause: str) -> None:
        super().__init__(f"{path}: {what}: {cause}")
        self.path = path
        self.cause = cause


def leftover_of(path: Path) -> Path:
    """Return where an interrupted write of *path* leaves what it has written so far."""
    return path.with_name(f".{path.name}.pinfold-tmp")


def write_atomically(path: Path, data: bytes, *, at_once: bool = True) -> None:
    """Make *data* the content of the file, durably. On any error the file is as it was before.

    A power failure right afterwards finds the new content, or if not *at_once* the one before; never less than either.
    A link is neither followed nor replaced: the user who made it may not expect either.
    """
    with _errors_of(path, _UNTOUCHED), _locked_directory(path) as directory:
        _check_replaceable(path, directory)
        new = leftover_of(path).name
        # The directory is locked, so the process that wrote this has ended.
        with suppress(FileNotFoundError):
            os.unlink(new, dir_fd=directory)
        try:
            _write_new(new, data, directory)
            os.rename(new, path.name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with suppress(OSError):
                os.unlink(new, dir_fd=directory)
            raise
        if not at_once:
            return
        with _errors_of(path, "written, but a power failure could still undo it"):
            _sync_directory(directory)


def read_state_file(path: Path) -> str | None:
    """Return the content of the file, None if there is none.

    A byte that is not UTF-8 becomes half of a surrogate pair; the parser decides whether it matters.
    """
    with _errors_of(path, "not read"):
        try:
            # Not blocking: a named pipe must be an error, not a wait.
            file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        try:
            _check_regular(path, "not read", os.fstat(file).st_mode)
            data = _read_all(file)
        finally:
            os.close(file)
    if len(data) > MAX_FILE:
        raise StateFileError(path, "not read", f"it has more than {MAX_FILE:,} bytes")
    return data.decode("utf-8", "surrogateescape")


def keep_aside(path: Path) -> Path | None:
    """Rename what is at *path* to the first free name of PATH.bad-1, -2 and so on; None if that cannot be done."""
    for number in range(1, _MOST_ASIDE):
        aside = path.with_name(f"{path.name}.bad-{number}")
        if not os.path.lexists(aside):
            try:
                return path.rename(aside)
            except OSError:
                return None
    return None


def _read_all(file: int) -> bytearray:
    """Return what is in the file, or a little more than allowed."""
    data = bytearray()
    while len(data) <= MAX_FILE and (chunk := os.read(file, 1 << 20)):
        data += chunk
    return data


@contextmanager
def _locked_directory(path: Path) -> Iterator[int]:
    try:
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise FileNotFoundError(error.errno, f"there is no directory {path.parent}; create it first") from error
    try:
        # Some network file systems cannot lock a directory; there the one daemon of the node writes unlocked.
        with suppress(OSError):
            fcntl.flock(directory, fcntl.LOCK_EX)
        yield directory
    finally:
        os.close(directory)


def _check_replaceable(path: Path, directory: int) -> None:
    with suppress(FileNotFoundError):
        _check_regular(path, _UNTOUCHED, os.stat(path.name, dir_fd=directory, follow_symlinks=False).st_mode)


def _check_regular(path: Path, what: str, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise StateFileError(path, what, f"it is {_KINDS.get(stat.S_IFMT(mode), 'a device or socket')}, not a file")


def _write_new(name: str, data: bytes, directory: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    file = os.open(name, flags, 0o600, dir_fd=directory)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(file, rest) :]
        os.fsync(file)
    finally:
        os.close(file)


def _sync_directory(directory: int) -> None:
    try:
        os.fsync(directory)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems keep names safe by other means, and cannot be asked
            raise


@contextmanager
def _errors_of(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        linked = error.errno == errno.ELOOP
        cause = "it is a symbolic link, not a file" if linked else error.strerror or str(error)
        raise StateFileError(path, what, cause) from error
    except ValueError as error:  # a NUL in the path
        raise StateFileError(path, what, str(error)) from error
