"""Notices: what containers are told of their CPUs, as files in a directory of each.

| file | has |
|---|---|
| `cpus`, `mems` | its CPUs, and the NUMA nodes of its memory, as lists |
| `generation` | a number that goes up with each change of these |
| `next` | a change that is announced: its generation, CPUs and NUMA nodes; empty if there is none |
| `ack` | written by the workload: the generation of the announced change that it is ready for |

Files are replaced by rename, so that inotify on the directory shows every change. Only `ack` is the workload's: if it
is missing, huge, a link or garbage, it does not count, and nothing else happens. It is read at a pace of ours, however
often it is written, and one that takes room on the disk is emptied.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import ContainerRef

ACK: Final = "ack"
STATE_DIR: Final = "PINFOLD_STATE_DIR"
"""The environment variable with the directory of a container."""
_NUMBER: Final = re.compile(rb"[0-9]{1,18}\s*")
_MOST: Final = 32
_MOST_ON_DISK: Final = 64 << 10
_BLOCK: Final = 512
_SAFELY: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class ContainerPlace(NamedTuple):
    """The CPUs of a container, and the NUMA nodes of its memory."""

    cpus: CPUSet
    mems: CPUSet


class Notices:
    """The directories of all containers, below one directory. Raises OSError if a file cannot be written.

    One thread writes; `path`, `has` and `is_empty` can be asked meanwhile.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._shown: dict[ContainerRef, tuple[int, ContainerPlace]] = {}
        """The generation and place in the files of each container."""
        self._swept = False

    def path(self, ref: ContainerRef) -> Path:
        """Return the directory of a container."""
        from urllib.parse import quote  # noqa: PLC0415 - an idle daemon has no container

        return self._directory / f"{quote(ref.pod, safe='')}_{quote(ref.name, safe='')}"

    def has(self, ref: ContainerRef) -> bool:
        """Return whether a container has a directory."""
        return ref in self._shown

    def is_empty(self) -> bool:
        """Return whether no container has a directory, also none of an earlier daemon."""
        self._swept = self._swept or not self._directory.is_dir()
        return self._swept and not self._shown

    def retain(self, refs: Collection[ContainerRef]) -> None:
        """Remove the directories of all other containers, also those of an earlier daemon."""
        if self._swept and self._shown.keys() <= set(refs):
            return
        names = {self.path(ref).name for ref in refs}
        for path in self._directory.iterdir() if self._directory.is_dir() else ():
            if path.name not in names:
                from shutil import rmtree  # noqa: PLC0415 - it imports archives and more, and few have such directories

                rmtree(path, ignore_errors=True)
        self._shown = {ref: shown for ref, shown in self._shown.items() if ref in refs}
        self._swept = True

    def show(self, ref: ContainerRef, place: ContainerPlace) -> None:
        """Write where a container is; nothing is announced then."""
        number, before = self._shown.get(ref) or (self._found(ref), None)
        if before == place:
            return
        self._prepare(ref)
        self._write(ref, "cpus", str(place.cpus))
        self._write(ref, "mems", str(place.mems))
        self._write(ref, "next", "")
        self._write(ref, "generation", str(number + 1))
        self._shown[ref] = number + 1, place

    def announce(self, ref: ContainerRef, place: ContainerPlace) -> None:
        """Write where a container will be; an earlier `ack` does not count."""
        shown = self._shown.get(ref)
        if shown is not None:  # else it has just ended
            self._empty_ack(ref)
            self._write(ref, "next", f"{shown[0] + 1} {place.cpus} {place.mems}")

    def withdraw(self, ref: ContainerRef) -> None:
        """Write that nothing is announced."""
        if ref in self._shown:
            self._write(ref, "next", "")

    def is_acknowledged(self, ref: ContainerRef) -> bool:
        """Return whether the workload is ready for the announced change."""
        shown = self._shown.get(ref)
        return shown is None or self._read_number(ref, ACK) == shown[0] + 1

    def empty_if_large(self, ref: ContainerRef) -> int:
        """Empty an `ack` that takes more of the disk than any answer needs; return how many bytes it took, or 0."""
        return self._empty_ack(ref, unless=_MOST_ON_DISK)

    def _prepare(self, ref: ContainerRef) -> None:
        path = self.path(ref)
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.close(os.open(path / ACK, os.O_CREAT | os.O_EXCL | os.O_WRONLY | _SAFELY, 0o666))
            (path / ACK).chmod(0o666)  # past the umask: the workload may be another user

    def _write(self, ref: ContainerRef, name: str, text: str) -> None:
        path = self.path(ref)
        new = path / f".{name}.new"
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY | _SAFELY, 0o644)
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{text}\n" if text else "")
        new.replace(path / name)

    def _found(self, ref: ContainerRef) -> int:
        """Return the generation that an earlier daemon has written; 0 if there is none."""
        return self._read_number(ref, "generation") or 0

    def _empty_ack(self, ref: ContainerRef, unless: int = -1) -> int:
        """Empty an `ack` that takes more than so many bytes of the disk, and return how many it took; else 0."""
        with suppress(OSError):
            descriptor = os.open(self.path(ref) / ACK, os.O_WRONLY | _SAFELY)
            try:
                found = os.fstat(descriptor)
                if stat.S_ISREG(found.st_mode) and found.st_blocks * _BLOCK > unless:
                    os.ftruncate(descriptor, 0)
                    return found.st_blocks * _BLOCK
            finally:
                os.close(descriptor)
        return 0

    def _read_number(self, ref: ContainerRef, name: str) -> int | None:
        """Return the number in a file of a container; None if it has none, or is no regular file."""
        try:
            descriptor = os.open(self.path(ref) / name, os.O_RDONLY | _SAFELY)
        except OSError:
            return None
        try:
            regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
            text = os.read(descriptor, _MOST) if regular else b""
        except OSError:
            return None
        finally:
            os.close(descriptor)
        return int(text) if _NUMBER.fullmatch(text) else None
