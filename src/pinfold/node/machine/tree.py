"""Tree: reads small files of a sysfs tree, live or recorded, and trusts none of them.

A missing file gives None. A file that is unreadable, oversized, garbled or wrong gives None and a warning.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from pinfold.core.machine.cpuset import CPUSet, format_list
from pinfold.errors import ParseError, PinfoldError, excerpt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

# The longest honest file is a list of 65,536 CPUs; the kernel itself stops at a page for most.
_MAX_FILE: Final = 1 << 19
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_MAX_NUMBERED: Final = 65535
_OF_CPU: Final = re.compile(r"cpu/cpu([0-9]+)(?=/)")


class NoCPUs(PinfoldError):  # noqa: N818 - the fact, as the others in this family
    """No CPU was found."""

    def __init__(self, root: object, why: str) -> None:
        super().__init__(f"{root}: {why}")
        self.root = root


class Tree:
    """The files below one directory; paths are relative to it."""

    def __init__(self, root: Path, below: str) -> None:
        self._root = os.path.join(root, below)  # noqa: PTH118 - os is several times faster, and called per file
        self._warnings: dict[tuple[str, str], int] = {}
        self._answered: dict[tuple[str, int], int] = {}

    def text(self, path: str) -> str | None:
        """Return the content of the file, stripped; None if there is none that can be read."""
        try:
            return _read(f"{self._root}/{path}")
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            self._unusable(path, error)
            return None

    def number(self, path: str) -> int | None:
        """Return the number in the file."""
        text = self.text(path)
        if text is None:
            return None
        if _NUMBER.fullmatch(text):
            return int(text)
        self._unusable(path, ParseError(f"expected a number, found {excerpt(text)}"))
        return None

    def mask(self, lists: Sequence[str], maps: Sequence[str], *, cpu: int | None = None) -> int | None:
        """Return the CPUs in the first file that can be used: a list if there is one, else a hex map.

        With *cpu*, the files are about a group of this CPU: a file that leaves it out is wrong and not used. The kind
        of file that answered last time is asked first: a kernel writes the same files for all CPUs.
        """
        paths = (*lists, *maps)
        kind = (paths[0].rpartition("/")[2], len(paths))
        best = self._answered.get(kind, 0)
        for i in (best, *(i for i in range(len(paths)) if i != best)):
            mask = self._mask(paths[i], CPUSet.parse if i < len(lists) else CPUSet.parse_mask)
            if mask is None:
                continue
            if cpu is not None and not mask >> cpu & 1:
                self.warn(paths[i], "leaves out its own CPU; ignored" if mask else "names no CPU; ignored")
                continue
            self._answered[kind] = i
            return mask
        return None

    def numbered(self, path: str, prefix: str) -> list[int]:
        """Return the numbers of the entries *prefix*N of a directory, ascending."""
        try:
            names = os.listdir(f"{self._root}/{path}")  # noqa: PTH208 - names are all we need
        except (FileNotFoundError, NotADirectoryError):
            return []
        except (OSError, ValueError) as error:
            self._unusable(path, error)
            return []
        size = len(prefix)
        numbers = {int(name[size:]) for name in names if _is_numbered(name, prefix)}
        return sorted(number for number in numbers if number <= _MAX_NUMBERED)

    def exists(self, path: str) -> bool:
        """Whether there is such a file or directory."""
        return os.path.exists(f"{self._root}/{path}")  # noqa: PTH110 - as above

    @property
    def warnings(self) -> list[str]:
        """What was missing or wrong, and what is assumed instead; the same about several CPUs is one warning."""
        return [f"{_place(path, cpus)}: {problem}" for (path, problem), cpus in self._warnings.items()]

    def warn(self, path: str, problem: str) -> None:
        """Record that something is missing or wrong, and what is assumed instead."""
        of_cpu = _OF_CPU.match(path)
        key = (_OF_CPU.sub("cpu/cpuN", path), problem)
        self._warnings[key] = self._warnings.get(key, 0) | (1 << int(of_cpu[1]) if of_cpu else 0)

    def _mask(self, path: str, parse: Callable[[str], CPUSet]) -> int | None:
        text = self.text(path)
        try:
            return None if text is None else parse(text).mask
        except ParseError as error:
            self._unusable(path, error)
            return None

    def _unusable(self, path: str, error: OSError | ValueError) -> None:
        problem = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        self.warn(path, f"{problem}; ignored")


def _place(path: str, cpus: int) -> str:
    """Return the path of the one CPU; or, of several CPUs, their common path and which they are."""
    if cpus.bit_count() > 1:
        return f"{path} (CPUs {format_list(cpus)})"
    return path.replace("cpuN", f"cpu{format_list(cpus)}", 1) if cpus else path


def _read(path: str) -> str:
    # Not blocking: a recorded tree may hold a FIFO where a file should be.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    data = b""
    try:
        # The kernel hands out some lists a page at a time.
        while len(data) <= _MAX_FILE and (more := os.read(fd, _MAX_FILE + 1)):
            data += more
    finally:
        os.close(fd)
    if len(data) > _MAX_FILE:
        raise ParseError(f"more than {_MAX_FILE:,} bytes")
    try:
        return data.decode("ascii").strip(" \t\r\n\0")
    except UnicodeDecodeError as error:
        raise ParseError("not text") from error


def _is_numbered(name: str, prefix: str) -> bool:
    tail = name[len(prefix) :]
    return name.startswith(prefix) and tail.isascii() and tail.isdigit() and len(tail) <= len(str(_MAX_NUMBERED))
