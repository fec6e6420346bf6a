"""The affinity that the processes of a new container inherit from their runtime, lifted as early as possible.

Where a runtime itself may use some CPUs only (a shield has moved it, or its unit says CPUAffinity=), what it starts
inherits that, and since Linux 6.2 keeps it within its cpuset: a container that shares would never use the other CPUs.
runc lifts it since 1.2; older ones do not.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from pinfold.core.machine.cpuset import EMPTY
from pinfold.formats.pods.runtime import Phase
from pinfold.node.procfs import Procfs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.formats.pods.runtime import RuntimeContainer

_PROC: Final = Procfs(Path("/proc"))


class ProcessesOf(Protocol):
    """Knows the processes of containers."""

    def processes(self, container: RuntimeContainer) -> list[int]:
        """Return the processes of a container as this PID namespace numbers them; those of others are left out."""
        ...


class Inherited:
    """Lifts what processes of this machine have inherited; *online* returns the CPUs of the machine."""

    def __init__(self, places: ProcessesOf, online: Callable[[], CPUSet]) -> None:
        self._places = places
        self._online = online

    def lift(self, container: RuntimeContainer) -> None:
        """Let the processes of a container use all CPUs of its cpuset; a process that cannot be changed stays so."""
        for pid in self._places.processes(container):
            for thread in _PROC.threads(pid):
                self._free(thread)

    def lift_running(self, container: RuntimeContainer) -> None:
        """Do the same for a container that runs already; threads that have other CPUs than its runtime chose them."""
        pids = self._places.processes(container)
        parents = (found[1] for pid in pids if (found := _PROC.process(pid)) is not None)
        starter = next((parent for parent in parents if parent not in pids), 0)
        inherited = _PROC.allowed(starter) if starter else EMPTY
        if not inherited or self._online() <= inherited:
            return
        for thread in (thread for pid in pids for thread in _PROC.threads(pid)):
            if _PROC.allowed(thread) == inherited:
                self._free(thread)

    def lift_new(self, containers: Iterable[RuntimeContainer], before: Mapping[str, RuntimeContainer]) -> None:
        """Do the same for those that run, unless they ran *before*, where they are by their ids."""
        for container in containers:
            was = before.get(container.id)
            if container.phase is Phase.RUNNING and (was is None or was.phase is not Phase.RUNNING):
                self.lift_running(container)

    def _free(self, thread: int) -> None:
        with suppress(OSError):
            os.sched_setaffinity(thread, self._online())
