"""The State's file on disk: replaced as a whole or not at all, and on the disk before anything relies on it.

The new content is written beside the old, made durable, and renamed over it: a reader, or a crash at any instant,
finds one or the other, whole. What a crash leaves behind has a name of its own and goes at the next write. The new
file is also the lock of its writers: only our user can open it, so that no other user can keep us from writing. Knows
nothing of what is in the file.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from pinfold.errors import StateError
from pinfold.node.reserve import give_reserve, take_reserve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_FILE: Final = 16 << 20
_MOST_ASIDE: Final = 1000
_KINDS: Final = {stat.S_IFDIR: "a directory", stat.S_IFLNK: "a symbolic link", stat.S_IFIFO: "a named pipe"}
_UNTOUCHED: Final = "not written; the old content is unchanged"
_PATIENCE: Final = 10.0
_PAUSE: Final = 0.002
_FOREIGN: Final = {errno.ELOOP, errno.ENXIO}
"""What the system says of a link or a named pipe where a file should be."""


class StateFileError(StateError):
    """A State's file that could not be read or written; *cause* is what the system says."""

    def __init__(self, path: Path, what: str, cause: str) -> None:
        super().__init__(f"{path}: {what}: {cause}")
        self.path = path
        self.cause = cause


def leftover_of(path: Path) -> Path:
    """Return where an interrupted write of *path* leaves what it has written so far."""
    return path.with_name(f".{path.name}.pinfold-tmp")


def write_atomically(path: Path, data: bytes, *, at_once: bool = True, synced: bool = True) -> None:
    """Make *data* the content of the file, durably. On any error the file is as it was before.

    A power failure right afterwards finds the new content, or if not *at_once* the one before; never less than either,
    unless not *synced*: then the file means nothing after another boot, and is not worth waiting for the disk.
    A link is neither followed nor replaced: the user who made it may not expect either.
    """
    if len(data) > MAX_FILE:
        raise StateFileError(path, _UNTOUCHED, f"{len(data):,} bytes; at most {MAX_FILE:,} can be read again")
    with _errors_of(path, _UNTOUCHED), _directory(path) as directory:
        _check_replaceable(path, directory)
        new = leftover_of(path).name
        with _locked(new, directory) as file:
            try:
                written = _write_new(file, new, data, directory, synced=synced)
                os.rename(written, path.name, src_dir_fd=directory, dst_dir_fd=directory)
            except BaseException:
                with suppress(OSError):
                    os.unlink(new, dir_fd=directory)
                raise
            if at_once and synced:
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
    """Rename the file at *path* to the first free name of PATH.bad-1, -2 and so on; None if that cannot be done."""
    for number in range(1, _MOST_ASIDE):
        aside = path.with_name(f"{path.name}.bad-{number}")
        if not os.path.lexists(aside):
            try:
                return path.rename(aside)
            except OSError:
                return None
    return None


def _read_all(file: int) -> bytearray:
    """Return the content of the file, or a little more than allowed."""
    data = bytearray()
    while len(data) <= MAX_FILE and (chunk := os.read(file, 1 << 20)):
        data += chunk
    return data


@contextmanager
def _directory(path: Path) -> Iterator[int]:
    try:
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise FileNotFoundError(error.errno, f"there is no directory {path.parent}; create it first") from error
    try:
        yield directory
    finally:
        os.close(directory)


@contextmanager
def _locked(name: str, directory: int) -> Iterator[int]:
    """Open the file, empty, made if there is none; no other writer has it meanwhile."""
    until = time.monotonic() + _PATIENCE
    while True:
        file = _open_own(name, directory)
        try:
            lock(file, until)
            if _is_at(name, directory, file):
                os.ftruncate(file, 0)
                yield file
                return
        finally:
            os.close(file)


def lock(file: int, until: float) -> None:
    """Lock the file for us alone, or raise when the monotonic clock shows *until*."""
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise TimeoutError(errno.ETIMEDOUT, "another process keeps it locked") from None
            time.sleep(_PAUSE)
        except OSError:  # some network file systems have no locks; there the one daemon of the node writes unlocked
            return
        else:
            return


def _open_own(name: str, directory: int) -> int:
    """Open a file that only our user can open; remove anything else of that name."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    while True:
        try:
            file = os.open(name, flags, 0o600, dir_fd=directory)
        except OSError as error:
            if error.errno == errno.ENOSPC and give_reserve(directory, name):
                continue  # the disk has no inode for another file
            if error.errno not in _FOREIGN:
                raise
        else:
            found = os.fstat(file)
            if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077:
                return file
            os.close(file)
        os.unlink(name, dir_fd=directory)


def _is_at(name: str, directory: int, file: int) -> bool:
    """Return whether the file still has this name: another writer may have renamed or removed it."""
    try:
        return os.path.samestat(os.stat(name, dir_fd=directory, follow_symlinks=False), os.fstat(file))
    except FileNotFoundError:
        return False


def _check_replaceable(path: Path, directory: int) -> None:
    with suppress(FileNotFoundError):
        _check_regular(path, _UNTOUCHED, os.stat(path.name, dir_fd=directory, follow_symlinks=False).st_mode)


def _check_regular(path: Path, what: str, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise StateFileError(path, what, f"it is {_KINDS.get(stat.S_IFMT(mode), 'a device or socket')}, not a file")


def _write_new(file: int, new: str, data: bytes, directory: int, *, synced: bool) -> str:
    """Write *data* to the new file, and return its name; on a full disk it is a file of the reserve, another one."""
    try:
        _fill(file, data)
        if synced:
            os.fsync(file)
    except OSError as error:
        reserve = take_reserve(directory, len(data)) if error.errno == errno.ENOSPC else None
        if reserve is None:
            raise
        try:
            _fill(reserve[0], data)
            os.ftruncate(reserve[0], len(data))
            os.fsync(reserve[0])
        finally:
            os.close(reserve[0])
        os.unlink(new, dir_fd=directory)
        return reserve[1]
    return new


def _fill(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


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
