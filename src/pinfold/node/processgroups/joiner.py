"""Joiner: what a new process does before its first instruction, so that this runs in the group already."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self

from pinfold.node.cgroupfiles import PROCS, opened
from pinfold.node.processgroups.affinity.threads import every_cpu

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pinfold.core.machine.cpuset import CPUSet


class Joiner:
    """The files that the process writes to, and the CPUs that it takes then; closed when the block ends."""

    def __init__(self, cpus: CPUSet, *, joined: Callable[[int], None] | None = None) -> None:
        """Take *cpus* by affinity alone, and have *joined* called with the number of the process."""
        self.files: list[int] = []
        """The files of cgroups, open: a process that writes 0 is moved."""
        self.cpus = cpus
        self.strict = True
        """Whether a process that does not get these CPUs must not run."""
        self.joined = joined or (lambda _pid: None)

    @classmethod
    def into(cls, groups: Sequence[Path]) -> Joiner:
        """Return a Joiner that moves a process into these cgroups; their files are opened now.

        The process may then use all CPUs of its group, also if the daemon has fewer. A child inherits the affinity of
        its parent, and since Linux 6.2 no cpuset widens what was once set by affinity.
        """
        made = cls(every_cpu())
        made.strict = False
        try:
            made.files.extend(opened(group / PROCS, os.O_WRONLY, "join") for group in groups)
        except BaseException:
            made.close()
            raise
        return made

    def close(self) -> None:
        """Close what was opened; a second call does nothing."""
        while self.files:
            os.close(self.files.pop())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()
