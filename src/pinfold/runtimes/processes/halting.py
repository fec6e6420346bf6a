"""Halting: processes that exchange CPUs are stopped for a moment, so that none runs beside another."""

from __future__ import annotations

import signal
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from pinfold.node.processgroups.halted import Halted
from pinfold.node.procfs import PROC
from pinfold.runtimes.base import ApplyError
from pinfold.runtimes.processes.pids import held, send

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from pinfold.core.pods.pod import ContainerRef
    from pinfold.node.processgroups.groups import ProcessGroups
    from pinfold.node.procfs import Process

_TRIES: Final = 20
_PAUSE: Final = 0.001


class Halting:
    """Stops the processes of containers, and lets them go on; also those that an earlier daemon has left stopped."""

    def __init__(self, groups: ProcessGroups, directory: Path | None) -> None:
        self._groups = groups
        self._halted = Halted(directory, PROC)
        self._left: list[Process] = []
        """The processes that an earlier daemon has stopped, and could not let go on."""

    def find(self) -> None:
        """Find the processes that an earlier daemon has left stopped."""
        self._left = self._halted.read()
        if not self._left:
            self._halted.clear()

    @contextmanager
    def stopped(self, refs: Collection[ContainerRef]) -> Iterator[None]:
        """Keep the processes of containers from running until the block ends."""
        halted = [*self._left, *self._going_on(refs)]
        if len(halted) > len(self._left):
            self._halted.write(halted)
        with held(halted) as pidfds:
            try:
                send(pidfds, signal.SIGSTOP)
                _wait_until(lambda: not any(map(PROC.is_running, pidfds)))
                yield
            finally:
                with suppress(ApplyError):  # a process that we may not let go on we could not stop either
                    send(pidfds, signal.SIGCONT)
                if halted:
                    self._halted.clear()
                self._left = []

    def _going_on(self, refs: Collection[ContainerRef]) -> Iterator[Process]:
        """Yield the processes of these containers that are not stopped."""
        for ref in refs:
            for found in filter(None, map(PROC.process, self._groups.group(ref).members())):
                if not PROC.is_stopped(found[0].pid):
                    yield found[0]


def _wait_until(is_so: Callable[[], bool]) -> None:
    """Wait a moment for the kernel to interrupt those that have a CPU. The others take the signal before they run."""
    for _ in range(_TRIES):
        if is_so():
            return
        time.sleep(_PAUSE)
