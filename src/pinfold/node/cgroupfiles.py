"""Reads and writes one file of a cgroup, or makes and removes one group; explains the kernel's errors in words.

Never buffered: a buffered write hides the kernel's error until the file is closed. What was written is read back.
Knows nothing of versions or of who owns which group.
"""

from __future__ import annotations

import errno
import os
import time
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, Self

from pinfold.core.machine.cpuset import CPUSet
from pinfold.errors import excerpt
from pinfold.node.grouperrors import GroupError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROCS: Final = "cgroup.procs"

_CHUNK: Final = 1 << 16
_ENDS: Final = 2048
"""A read that returns fewer bytes was the last: the kernel fills a page with lines, as far as there are any."""
_NONE_BELOW: Final = 2
# A process that has just ended can hold its group for a moment longer, though it is listed no more.
_LINGER_TRIES: Final = 50
_LINGER_SECONDS: Final = 0.001

NO_PERMISSION: Final = "not permitted; it belongs to another user"
_MEANINGS: Final = {
    errno.EACCES: NO_PERMISSION,
    errno.EPERM: NO_PERMISSION,
    errno.EROFS: "the file system is mounted read-only",
    errno.ENOENT: "there is no such group, or this kernel has no such file",
    errno.ENODEV: "the group has just been removed",
    errno.ENAMETOOLONG: "the path is too long; the kernel takes 4095 bytes",
    errno.EAGAIN: "the groups above allow no more groups (cgroup.max.descendants, cgroup.max.depth)",
    errno.EEXIST: "something else has that name",
}
_WRITE_MEANINGS: Final = {
    ("cpuset.cpus", errno.ERANGE): "no such CPU",
    ("cpuset.cpus", errno.EINVAL): "not a set of CPUs that are online",
    ("cpuset.cpus", errno.ENOSPC): "the group has processes and would have no CPU",
    ("cpuset.cpus", errno.EACCES): "the group above does not have all of these CPUs",
    ("cpuset.cpus", errno.EBUSY): "a group below has CPUs that would be taken away, or a deadline process needs them",
    ("cpuset.mems", errno.ERANGE): "no such NUMA node",
    ("cpuset.mems", errno.EINVAL): "not a set of NUMA nodes that have memory",
    ("cpuset.mems", errno.ENOSPC): "the group has processes and would have no memory",
    ("cpuset.mems", errno.EACCES): "the group above does not have all of these NUMA nodes",
    ("cpuset.mems", errno.EBUSY): "a group below has NUMA nodes that would be taken away",
    (PROCS, errno.ESRCH): "there is no such process",
    (
        PROCS,
        errno.EINVAL,
    ): "a kernel thread bound to its CPU, or a real-time process (cpu.rt_runtime_us of the group is 0)",
    (PROCS, errno.ENOSPC): "the group has no CPUs or no NUMA nodes yet",
    (PROCS, errno.EBUSY): "the group hands controllers to groups below it, so it takes no processes",
    (PROCS, errno.EOPNOTSUPP): "the group or the process is threaded",
    (PROCS, errno.EACCES): "not permitted; the process, or the group it is in, belongs to another user",
    ("smp_affinity_list", errno.EIO): "its driver or the kernel keeps this IRQ where it is",
    ("smp_affinity_list", errno.EPERM): "its driver or the kernel keeps this IRQ where it is",
    ("cgroup.subtree_control", errno.EBUSY): "the group has processes of its own, so it cannot hand controllers down",
    ("cgroup.subtree_control", errno.ENOENT): "the group above does not hand that controller down",
    ("cgroup.subtree_control", errno.EINVAL): "no such controller, or real-time processes are in the way",
}


class Directory(NamedTuple):
    """The directory of a group, open."""

    path: str
    file: int


class CgroupError(GroupError):
    """A cgroup file that the kernel would not read or write as asked; *name* is the errno's, if there is one."""

    def __init__(self, path: Path, value: str, name: str, meaning: str) -> None:
        super().__init__(f"{path}: {value} → {f'{name}: ' if name else ''}{meaning}")
        self.path = path
        self.value = value
        self.name = name
        self.meaning = meaning


class Overwritten(CgroupError):  # noqa: N818 - the fact
    """The kernel took a value, and has another one by now: another program has written too."""


def opened(path: Path, flags: int, doing: str) -> int:
    """Return the open file; *doing* names the operation for the error message."""
    with explained(path, doing):
        return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW)


def read(path: Path | str) -> str:
    """Return the content of the file, stripped."""
    # By hand, as each check reads the files of every container: `explained` and a Path for each file double the time.
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            data = chunk = os.read(file, _CHUNK)
            while len(chunk) >= _ENDS:
                chunk = os.read(file, _CHUNK)
                data += chunk
        finally:
            os.close(file)
    except (OSError, ValueError) as error:
        with explained(Path(path), "read"):
            raise error from None
    return data.decode("ascii", "replace").strip()


def read_cpus(path: Path | str) -> CPUSet:
    """Return the CPUs (or NUMA nodes) that the file lists."""
    return _parsed(read(path))


@lru_cache(maxsize=64)
def _parsed(text: str) -> CPUSet:
    """Return the CPUs of a list; most groups of a node have the same."""
    return CPUSet.parse(text)


def read_pids(group: Path) -> list[int]:
    """Return the processes that are in the group itself, ascending; one of another PID namespace has no number."""
    return sorted({int(pid) for pid in read(f"{group}/{PROCS}").split()} - {0})


def write(path: Path, value: str) -> None:
    """Write *value* and check that the kernel kept it."""
    write_once(path, value)
    _check(path, value, kept := read(path), same=kept == value)


def write_cpus(path: Path | str, cpus: CPUSet, directory: Directory | None = None) -> None:
    """Write a list of CPUs (or NUMA nodes) and check that the kernel kept it, in any notation. See `change_cpus`."""
    with CPUsFile(path, directory, doing=str(cpus)) as file:
        file.write(cpus)


def change_cpus(path: str, cpus: CPUSet, may_widen: Callable[[], bool], directory: Directory | None = None) -> bool:
    """Make the file list these CPUs, unless it does; return False, and leave it, if it would widen and may not.

    With an open *directory* the path is below it.
    """
    with CPUsFile(path, directory) as file:
        before = file.read()
        if before == cpus or not (cpus <= before or may_widen()):
            return before == cpus
        file.write(cpus)
    return True


class CPUsFile:
    """A file that lists CPUs (or NUMA nodes), open: to open it takes longer than to read, longest by the whole path.

    By hand as in `read`: on cgroup v1 every group of the shared pool is written whenever the pool changes.
    """

    __slots__ = ("_directory", "_file", "_path")

    def __init__(self, path: Path | str, directory: Directory | None = None, doing: str = "open") -> None:
        """Open it; with an open *directory* the path is below that. *doing* names the operation for error messages."""
        self._path, self._directory = path, directory
        try:
            flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
            self._file = os.open(path, flags, dir_fd=None if directory is None else directory.file)
        except (OSError, ValueError) as error:
            self._explain(error, doing)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def read(self) -> CPUSet:
        """Return the CPUs that the file lists."""
        return _parsed(self._text())

    def write(self, cpus: CPUSet) -> None:
        """Write a list of CPUs and check that the kernel kept it, in any notation."""
        value = str(cpus)
        try:
            os.pwrite(self._file, value.encode() or b"\n", 0)
        except OSError as error:
            self._explain(error, value, writing=True)
        kept = self._text()
        if kept != value:
            _check(whole(self._path, self._directory), value, kept, same=_parsed(kept) == cpus)

    def _text(self) -> str:
        try:
            return os.pread(self._file, _CHUNK, 0).decode("ascii", "replace").strip()
        except OSError as error:
            self._explain(error, "read")

    def _explain(self, error: OSError | ValueError, doing: str, *, writing: bool = False) -> NoReturn:
        with explained(whole(self._path, self._directory), doing, writing=writing):
            raise error from None
        raise AssertionError  # for mypy: `explained` lets no error pass


def whole(path: Path | str, directory: Directory | None) -> Path:
    """Return the path of a file or group, which is below the open *directory* if there is one."""
    return Path(path) if directory is None else Path(directory.path, path)


@contextmanager
def directory_of(group: str) -> Iterator[Directory | None]:
    """Open the directory of a group, for the files of many groups below it; None if there is no such group."""
    try:
        file = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        raise _error(Path(group), "open the group", error) from error
    try:
        yield Directory(group, file)
    finally:
        os.close(file)


def write_once(path: Path, value: str) -> None:
    """Write *value* in a single system call; for files that cannot be read back the same."""
    file = opened(path, os.O_WRONLY, value)
    try:
        with explained(path, value, writing=True):
            # One call takes all of it or fails; an empty value still needs a byte to be a write.
            os.write(file, value.encode() or b"\n")
    finally:
        os.close(file)


def add_process(group: Path, pid: int) -> None:
    """Move the process, with all its threads, into the group."""
    write_once(group / PROCS, str(pid))


def add_unless_gone(group: Path, pid: int) -> None:
    """Move the process into the group; one that has ended meanwhile is fine."""
    try:
        add_process(group, pid)
    except CgroupError as error:
        if error.name != "ESRCH":
            raise


def make_group(path: Path | str) -> bool:
    """Make the group if it is missing; return whether it was made."""
    # By hand as in `read`: each pod that shares has two new ones.
    try:
        os.mkdir(path)  # noqa: PTH102
    except (OSError, ValueError) as error:
        if isinstance(error, FileExistsError) and Path(path).is_dir():
            return False
        with explained(Path(path), "make the group"):
            raise error from None
    return True


def remove_group(path: Path) -> None:
    """Remove the group, which must have no processes and no groups below; one that is missing is fine."""
    for tries_left in reversed(range(_LINGER_TRIES)):
        try:
            path.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            lingers = error.errno == errno.EBUSY and not groups_below(path) and not read_pids(path)
            if not (lingers and tries_left):
                meaning = "it has processes or groups below it" if error.errno == errno.EBUSY else None
                raise _error(path, "remove the group", error, meaning) from error
            time.sleep(_LINGER_SECONDS)
        else:
            return


def groups_below(path: Path) -> list[Path]:
    """Return the groups directly below, none if there is no such group."""
    return [path / name for name in names_below(path)]


def has_below(path: Path | str, directory: Directory | None = None) -> bool:
    """Return whether there are groups directly below; to list them takes longer. See `change_cpus`."""
    try:
        links = _links(path, directory)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _error(whole(path, directory), "look for groups below", error) from error
    return links > _NONE_BELOW or (links < _NONE_BELOW and bool(names_below(whole(path, directory))))


def count_below(path: str, directory: Directory | None = None) -> int:
    """Return how many groups are directly below, -1 if that is not known; to list them takes longer."""
    try:
        links = _links(path, directory)
    except OSError:
        return -1
    return max(links - _NONE_BELOW, -1)


def _links(path: Path | str, directory: Directory | None = None) -> int:
    """Return the links of a directory: two, and one from each below it; 1 where a file system does not count them."""
    # Of hundreds of groups, whenever the pool changes.
    return os.stat(path, dir_fd=directory and directory.file).st_nlink


def names_below(path: Path | str) -> list[str]:
    """Return the names of the groups directly below, none if there is no such group."""
    try:
        if _links(path) == _NONE_BELOW:
            return []
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _error(Path(path), "list the groups below", error) from error


def _check(path: Path, value: str, kept: str, *, same: bool) -> None:
    if not same:
        raise Overwritten(path, value or "(nothing)", "", f"the kernel kept {excerpt(kept)}")


@contextmanager
def explained(path: Path, doing: str, *, writing: bool = False) -> Iterator[None]:
    """Raise a CgroupError in place of an OSError: it says what failed on which file, and what the errno means there."""
    try:
        yield
    except OSError as error:
        special = _WRITE_MEANINGS.get((path.name, error.errno or 0)) if writing else None
        raise _error(path, doing, error, special) from error
    except ValueError as error:  # a NUL in the path
        raise CgroupError(path, doing, "", str(error)) from error


def _error(path: Path, doing: str, error: OSError, meaning: str | None = None) -> CgroupError:
    number = error.errno or 0
    words = meaning or _MEANINGS.get(number) or error.strerror or str(error)
    return CgroupError(path, doing or "(nothing)", errno.errorcode.get(number, ""), words)
