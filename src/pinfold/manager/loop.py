"""The loop around the Manager: signals and timers; asyncio, one thread.

Nothing else touches the Manager: requests, events of the runtime and timers come one after the other.
"""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Final, Protocol

from pinfold.errors import PinfoldError
from pinfold.manager.manager import Note
from pinfold.node.hotplug import Hotplug

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from pinfold.core.pods import Pod, PodUID
    from pinfold.core.snapshot import ContainerView
    from pinfold.manager.manager import Manager
    from pinfold.manager.notes import Notes


_PAUSE: Final = 1.0


class Node(Protocol):
    """What lives on a node, and how it is learnt of."""

    @property
    def pods(self) -> Mapping[PodUID, Pod]:
        """The pods that are here."""
        ...

    @property
    def link(self) -> tuple[str, str]:
        """How the connection to what runs containers is, and what there is to say of it."""
        ...

    @property
    def waiting(self) -> int:
        """How many containers run without the CPUs they should have."""
        ...

    def views(self) -> list[ContainerView]:
        """Return what there is to say of every container."""
        ...

    def settle(self) -> None:
        """Do what could not be done before, as far as it can be done now."""
        ...

    async def follow(self) -> None:
        """Take note of what happens, for ever."""
        ...

    async def leave(self) -> None:
        """Let everything go on without us."""
        ...


class Changeable(Protocol):
    """What a node was started with, and may be otherwise by now."""

    def reload(self) -> None:
        """Read the configuration again, and go on under it."""
        ...

    def look(self) -> None:
        """Look which CPUs are online, and go on with these."""
        ...


class Loop:
    """Keeps a node going."""

    def __init__(self, manager: Manager, node: Node, notes: Notes, period: float) -> None:
        self.manager = manager
        self.node = node
        self.notes = notes
        self.period = period
        self._trouble = ""
        self._stop = asyncio.Event()

    async def run(self, basis: Changeable, ready: Callable[[], None]) -> None:
        """Serve until SIGTERM or SIGINT; workloads go on without us. *ready* is called when signals are minded."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, basis.reload)
        hotplug = Hotplug()
        if (listening := hotplug.fileno()) is not None:
            loop.add_reader(listening, _look_if, hotplug, basis)
        works = (self.node.follow, lambda: self._reconcile_now_and_then(basis))
        tasks = [asyncio.create_task(self._keep_at(work)) for work in works]
        try:
            ready()
            await self._stop.wait()
        finally:
            if listening is not None:
                loop.remove_reader(listening)
            hotplug.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.node.leave()

    async def _keep_at(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do something for ever; what nobody expected is told, and it is begun anew."""
        while True:
            try:
                await work()
            except Exception as error:  # noqa: BLE001 - the one place: a daemon that is deaf is worse
                self.notes.tell(Note("failed", {"why": f"{type(error).__name__}: {error}"}))
            await asyncio.sleep(_PAUSE)

    async def _reconcile_now_and_then(self, basis: Changeable) -> None:
        while True:
            await asyncio.sleep(self.period)
            basis.look()
            self.node.settle()
            try:
                self.manager.reconcile()
                self._trouble = ""
            except PinfoldError as error:
                if str(error) != self._trouble:  # the same every few seconds would drown the rest
                    self._trouble = str(error)
                    self.notes.tell(Note("reconcile-failed", {"why": self._trouble}))


def _look_if(hotplug: Hotplug, basis: Changeable) -> None:
    if hotplug.has_happened():
        basis.look()
