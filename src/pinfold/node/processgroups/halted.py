"""Halted: the file that lists the processes which a daemon stops for a moment.

It is written before they are stopped, so that the next daemon lets them go on if this one is killed.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pinfold.errors import PinfoldError
from pinfold.node.procfs import Process
from pinfold.node.statefile import read_state_file, write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pinfold.node.procfs import Procfs

FILE: Final = "stopped.json"
_UNREADABLE: Final = (ValueError, LookupError, TypeError, AttributeError, RecursionError, PinfoldError)


class Halted:
    """The file in *directory*; with None, nothing is written."""

    def __init__(self, directory: Path | None, procfs: Procfs) -> None:
        self._path = directory / FILE if directory is not None else None
        self._procfs = procfs

    def write(self, processes: Iterable[Process]) -> None:
        """Write the processes that will be stopped, for the next daemon of this boot, or raise."""
        if self._path is not None:
            stopped = {"boot": self._procfs.boot(), "processes": [list(process) for process in processes]}
            write_atomically(self._path, json.dumps(stopped).encode(), synced=False)

    def clear(self) -> None:
        """Remove the file: all processes go on."""
        if self._path is not None:
            with suppress(OSError):  # then the next daemon finds that none of them is stopped
                self._path.unlink()

    def read(self) -> list[Process]:
        """Return the processes that an earlier daemon has stopped and that still are; an unreadable file lists none."""
        try:
            text = read_state_file(self._path) if self._path is not None else None
            found = json.loads(text) if text is not None else {}
            processes = [Process(int(row[0]), int(row[1])) for row in found.get("processes", ())]
            is_of_now = found.get("boot") == self._procfs.boot()
        except _UNREADABLE:
            return []
        return [process for process in processes if is_of_now and self._is_stopped(process)]

    def _is_stopped(self, process: Process) -> bool:
        found = self._procfs.process(process.pid) if process.pid > 0 else None
        return found is not None and found.process == process and self._procfs.is_stopped(process.pid)
