"""A disk that loses its power: records the calls of a writer, and returns every content that may be left of them.

The model is weaker than real file systems, so that what survives here survives there. Until its fsync a file may have
nothing, a part, zeros or all of what was written. Until the fsync of the directory each new name, rename and removal
may have reached the disk or not, each for itself; those that have are done in their order.
"""

from __future__ import annotations

import os
import stat
from itertools import chain, combinations
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Names = dict[str, int]
    """Files by their names; each file has a number."""


class Call(NamedTuple):
    """One call: of a file (write, sync), of its names (name, rename, unlink), of the directory (commit), or a mark."""

    kind: str
    file: int = 0
    name: str = ""
    data: bytes = b""


class RecordingOS:
    """The module os, for one directory: does all calls, and remembers those that change the disk."""

    def __init__(self, *, fsync_files: bool = True, fsync_directories: bool = True) -> None:
        """Without *fsync_files* or *fsync_directories* these calls are left out: a checker must notice that."""
        self.calls: list[Call] = []
        self._fsync = {False: fsync_files, True: fsync_directories}
        self._numbers: dict[int, int] = {}
        """The number of each file by its inode, which another file may have later."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - all that os has
        return getattr(os, name)

    def open(self, path: str | os.PathLike[str], flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        is_new = flags & os.O_CREAT and not _is_there(path, dir_fd)
        file = os.open(path, flags, mode, dir_fd=dir_fd)
        if is_new:
            self._numbers[os.fstat(file).st_ino] = len(self.calls)
            self.calls.append(Call("name", self._number(file), os.path.basename(path)))  # noqa: PTH119 - as os has it
        return file

    def _number(self, file: int) -> int:
        return self._numbers[os.fstat(file).st_ino]

    def ftruncate(self, file: int, length: int) -> None:
        os.ftruncate(file, length)
        self.calls.append(Call("truncate", self._number(file)))

    def write(self, file: int, data: bytes) -> int:
        length = os.write(file, data)
        self.calls.append(Call("write", self._number(file), data=bytes(data[:length])))
        return length

    def fsync(self, file: int) -> None:
        is_directory = stat.S_ISDIR(os.fstat(file).st_mode)
        if self._fsync[is_directory]:
            self.calls.append(Call("commit") if is_directory else Call("sync", self._number(file)))

    fdatasync = fsync

    def rename(self, old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        number = self._numbers[os.stat(old, dir_fd=src_dir_fd).st_ino]
        os.rename(old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        self.calls.append(Call("rename", number, f"{old}\0{new}"))

    def unlink(self, name: str, *, dir_fd: int) -> None:
        os.unlink(name, dir_fd=dir_fd)
        self.calls.append(Call("unlink", name=name))

    def mark(self, what: str) -> None:
        """Remember that something was acknowledged now."""
        self.calls.append(Call("mark", name=what))


def _is_there(path: str | os.PathLike[str], directory: int | None) -> bool:
    try:
        os.stat(path, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


class Crash(NamedTuple):
    """What is on the disk after a power failure, and what was acknowledged before it."""

    files: Mapping[str, bytes]
    acknowledged: tuple[str, ...]


def crashes(calls: list[Call]) -> Iterator[Crash]:
    """Yield all that may be on the disk after a power failure before, between and after these calls."""
    seen = set()
    for length in range(len(calls) + 1):
        done = calls[:length]
        acknowledged = tuple(call.name for call in done if call.kind == "mark")
        for names in _names(done):
            for files in _contents(names, done):
                key = (tuple(sorted(files.items())), acknowledged)
                if key not in seen:
                    seen.add(key)
                    yield Crash(files, acknowledged)


def _names(done: list[Call]) -> Iterator[Names]:
    """Yield the names that the directory may have: all that were committed, and any of the others."""
    changes = [call for call in done if call.kind in {"name", "rename", "unlink", "commit"}]
    last = max((index for index, call in enumerate(changes) if call.kind == "commit"), default=-1)
    sure, unsure = changes[: last + 1], changes[last + 1 :]
    sizes = range(len(unsure) + 1)
    for some in chain.from_iterable(combinations(unsure, size) for size in sizes):
        names: Names = {}
        for call in (*sure, *some):
            _apply(names, call)
        yield names


def _apply(names: Names, call: Call) -> None:
    match call.kind:
        case "name":
            names[call.name] = call.file
        case "rename":
            old, new = call.name.split("\0")
            names.pop(old, None)
            names[new] = call.file
        case "unlink":
            names.pop(call.name, None)


def _contents(names: Names, done: list[Call]) -> Iterator[dict[str, bytes]]:
    """Yield the files, with all that each may hold."""
    choices: list[dict[str, bytes]] = [{}]
    for name, file in names.items():
        choices = [{**files, name: data} for files in choices for data in _data(file, done)]
    yield from choices


def _data(file: int, done: list[Call]) -> set[bytes]:
    """Return what a file may hold: after its fsync all that was written, before it anything."""
    content, synced = b"", True
    for call in done:
        if call.file == file and call.kind in {"name", "truncate"}:
            content, synced = b"", call.kind == "name"
        elif call.file == file and call.kind == "write":
            content, synced = content + call.data, False
        elif call.file == file and call.kind == "sync":
            synced = True
    return {content} if synced else {content, content[: len(content) // 2], bytes(len(content)), b""}
