"""Watching: while a kubelet manages the CPUs here, the node shows the kubelet's State, from the kubelet's own file.

Nothing of it is saved or applied. What the cgroups have is read at each view, as always. A daemon that has managed the
CPUs gives way before.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from pinfold.core.events.daemon import NotWidened, Reconfigured, Warned
from pinfold.core.events.measures import Configured
from pinfold.core.state import State
from pinfold.errors import PinfoldError
from pinfold.node.kubeletstate import FILE, read_kubelet

if TYPE_CHECKING:
    from pathlib import Path

    from pinfold.core.pods.pod import PodUID
    from pinfold.manager.manager import Manager, Rules
    from pinfold.manager.node import Node
    from pinfold.manager.telling.bus import Bus
    from pinfold.runtimes.pods import PodApplier

_EVERY: Final = 1.0
"""Seconds between two looks at whether the file has been replaced."""


async def give_way(node: Node, applier: PodApplier, bus: Bus) -> None:
    """Only watch from now on: a kubelet has started to assign CPUs, and the two would undo each other's changes.

    The groups above the containers get all CPUs back: there, the kernel would cut what the kubelet assigns. Containers
    stay where they are until the kubelet moves them.
    """
    node.read_only = True
    manager = node.manager
    online = manager.rules.topology.online
    async with manager.turn:
        try:
            await manager.applier.leave(online, kept=online)
        except PinfoldError as error:
            bus.tell(NotWidened(str(error)))
        applier.read_only = True
        await manager.shielding.end(online)


def watch_under(manager: Manager, rules: Rules) -> None:
    """Show the node under other rules; the State is the kubelet's, and stays as it is."""
    manager.rules = rules
    manager.telling.tell(Configured(rules.admitter))
    manager.telling.tell(Reconfigured(rules.admitter.policy.name, manager.wanted.shared))


class Watching:
    """Follows the state file of the kubelet in *directory*, for a node that only watches."""

    def __init__(self, node: Node, directory: Path, bus: Bus) -> None:
        self._node = node
        self._directory = directory
        self._bus = bus
        self._stamp: tuple[int, ...] | None = None
        """The file that was last read: its inode, time and size."""
        self._names: set[PodUID] = set()
        self._problem = ""

    async def follow(self) -> None:
        """Show the kubelet's State whenever the file has changed, for ever."""
        while True:
            await self.look()
            await asyncio.sleep(_EVERY)

    async def look(self) -> None:
        """Show the kubelet's State as it is now, if this node only watches."""
        if not self._node.read_only:
            return
        stamp = self._read_stamp()
        if stamp != self._stamp:
            await self._show()
            self._stamp = stamp
        self._know_names()

    async def _show(self) -> None:
        manager = self._node.manager
        kubelet = await asyncio.to_thread(read_kubelet, self._directory)
        state = kubelet.state if kubelet is not None else None
        problem = kubelet.problem if kubelet is not None else ""
        if problem and problem != self._problem:
            self._bus.tell(Warned(f"{self._directory / FILE}: {problem}; the kubelet's assignments are not shown"))
        self._problem = problem
        async with manager.turn:
            manager.state = state if state is not None else State(manager.rules.topology.online)
            manager.telling.names.know(self._node.roster.known_pods().values())
            manager.tell_state()

    def _know_names(self) -> None:
        """Remember the names of the pods that are here, for the journal, and forget the others."""
        here = self._node.roster.known_pods()
        self._node.manager.know(here.values())
        for uid in self._names - here.keys():
            self._node.manager.telling.names.forget(uid)
        self._names = set(here)

    def _read_stamp(self) -> tuple[int, ...]:
        try:
            found = (self._directory / FILE).stat()
        except OSError:
            return ()
        return found.st_ino, found.st_mtime_ns, found.st_size
