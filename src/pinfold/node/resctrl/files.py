"""The files of resctrl, below a root directory; a fake has the same verbs and the kernel's rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from pathlib import Path

MOUNT: Final = "sys/fs/resctrl"


class Files(Protocol):
    """The files below the mount point; paths are relative to it."""

    def read(self, path: str) -> str:
        """Return the text of a file."""
        ...

    def write(self, path: str, text: str) -> None:
        """Write a file in one call."""
        ...

    def make(self, path: str) -> None:
        """Make a group."""
        ...

    def remove(self, path: str) -> None:
        """Remove a group."""
        ...

    def names(self, path: str) -> list[str]:
        """Return the names of the directories in a directory, sorted; none if it is missing."""
        ...


class RealFiles:
    """The kernel's files."""

    def __init__(self, root: Path) -> None:
        self._root = root / MOUNT

    def read(self, path: str) -> str:
        """Return the text of a file."""
        return (self._root / path).read_text()

    def write(self, path: str, text: str) -> None:
        """Write a file in one call."""
        (self._root / path).write_text(text)

    def make(self, path: str) -> None:
        """Make a group."""
        (self._root / path).mkdir()

    def remove(self, path: str) -> None:
        """Remove a group."""
        (self._root / path).rmdir()

    def names(self, path: str) -> list[str]:
        """Return the names of the directories in a directory, sorted; none if it is missing."""
        place = self._root / path
        return sorted(entry.name for entry in place.iterdir() if entry.is_dir()) if place.is_dir() else []
