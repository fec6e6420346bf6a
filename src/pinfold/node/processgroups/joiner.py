"""Joiner: puts a process into a group between fork and exec, so that its first instruction is already confined."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from pinfold.node.cgroupfiles import PROCS, opened
from pinfold.node.processgroups.affinity.threads import every_cpu

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


class Joiner:
    """Moves the forked child that calls it (the `preexec_fn` of subprocess). Make it before the fork, close it after.

    With `Popen(..., preexec_fn=group.joiner())` it closes itself. To start several processes, keep it in a `with`.
    """

    def __init__(self, join: Callable[[], None], close: Callable[[], None]) -> None:
        self._join = join
        self._close = close
        self._open = True

    @classmethod
    def into(cls, groups: Sequence[Path]) -> Joiner:
        """Return a Joiner that moves its caller into these cgroups; their files are opened now.

        The caller may then use all CPUs of its group, also if the daemon has fewer. A child inherits the affinity of
        its parent, and since Linux 6.2 no cpuset widens what was once set by affinity.
        """
        files: list[int] = []
        possible = every_cpu()
        try:
            files.extend(opened(group / PROCS, os.O_WRONLY, "join") for group in groups)
        except BaseException:
            _close_all(files)
            raise

        def join() -> None:
            _write_all(files, b"0")  # the process that writes: the child need not know its own number
            with suppress(OSError):  # a sandbox forbids it, or the possible CPUs are not known: it keeps what it has
                os.sched_setaffinity(0, possible)  # last: a shield moves only processes outside of our groups

        return cls(join, lambda: _close_all(files))

    def __call__(self) -> None:
        """Move the calling process by system calls alone; after a fork, locks of other threads may be held for ever."""
        self._join()

    def close(self) -> None:
        """Close what was opened; a second call does nothing."""
        if self._open:
            self._open = False
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def _write_all(files: Sequence[int], data: bytes) -> None:
    for file in files:
        os.write(file, data)


def _close_all(files: Sequence[int]) -> None:
    for file in files:
        os.close(file)
