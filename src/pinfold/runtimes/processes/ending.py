"""Ending: kills the processes of containers and watches them to their end; it never waits for one.

A process that is frozen or waits for a disk dies only when it goes on. The loop hears of its end from a pidfd.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Final

from pinfold.node.processgroups.errors import NoGroupError
from pinfold.runtimes.base import StillRunning
from pinfold.runtimes.processes.pids import of_another

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from pinfold.core.pods.pod import ContainerRef
    from pinfold.node.processgroups.groups import ProcessGroups

_AT_ONCE: Final = 256
"""How many processes are watched at once; others are killed when some of these have ended."""


class Ending:
    """The processes that were killed and have not ended yet."""

    def __init__(self, groups: ProcessGroups) -> None:
        self.ended: Callable[[], None] = lambda: None
        """Called when a killed process has ended."""
        self._groups = groups
        self._pidfds: dict[int, int] = {}

    def end(self, ref: ContainerRef) -> None:
        """Kill the processes of a container; raise StillRunning as long as one of them has not ended."""
        try:
            group = self._groups.group(ref)
            pidfds = self._opened(group.members())
            # A process that has left the group meanwhile has ended, and its number may be another's.
            self._kill(pidfds, group.members())
            left = group.members()
        except NoGroupError:  # another program has removed it
            return
        if left:
            raise StillRunning(left)

    def populated(self, refs: Iterable[ContainerRef]) -> list[ContainerRef]:
        """Return those of the containers that have processes."""
        with self._groups.one_look():
            return [ref for ref in refs if self._is_populated(ref)]

    def _is_populated(self, ref: ContainerRef) -> bool:
        try:
            return bool(self._groups.group(ref).members())
        except NoGroupError:  # another program has removed it
            return False

    def _opened(self, pids: Iterable[int]) -> dict[int, int]:
        """Return a file for each process that is not watched yet, as far as there is room for them."""
        pidfds: dict[int, int] = {}
        for pid in pids:
            if len(self._pidfds) + len(pidfds) == _AT_ONCE:
                break
            try:
                if pid not in self._pidfds:
                    pidfds[pid] = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            except OSError:  # no more files
                break
        return pidfds

    def _kill(self, pidfds: dict[int, int], members: Collection[int]) -> None:
        """Kill and watch those that are members; an error for one does not spare the others."""
        refused: tuple[int, OSError] | None = None
        for pid, pidfd in pidfds.items():
            try:
                if pid in members:
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                    self._watch(pid, pidfd)
                else:
                    os.close(pidfd)
            except OSError as error:
                os.close(pidfd)
                if isinstance(error, PermissionError):  # any other: it has ended
                    refused = pid, error
        if refused is not None:
            raise of_another(refused[0]) from refused[1]

    def _watch(self, pid: int, pidfd: int) -> None:
        self._pidfds[pid] = pidfd
        asyncio.get_running_loop().add_reader(pidfd, self._has_ended, pid)

    def _has_ended(self, pid: int) -> None:
        pidfd = self._pidfds.pop(pid)
        asyncio.get_running_loop().remove_reader(pidfd)
        os.close(pidfd)
        self.ended()
