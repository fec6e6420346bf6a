"""The children of a process, also those that wait to be reaped."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def children(pid: int) -> list[int]:
    """Return the children that any thread of a process has started; a thread that ends meanwhile has none."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            found.extend(map(int, (task / "children").read_text().split()))
    return found


def command_of(pid: int) -> list[str]:
    """Return the command line of a process; empty if it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return []
