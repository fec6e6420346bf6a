"""The loop around the Manager: signals and timers; asyncio, one thread.

Only the loop uses the Manager: requests, reports from sources and timers come one after the other.
"""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Final, Protocol

from pinfold.core.events.daemon import Failed
from pinfold.core.events.repairs import ReconcileFailed
from pinfold.errors import PinfoldError
from pinfold.node.machine.hotplug import Hotplug

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from pinfold.manager.node import Node
    from pinfold.manager.telling.bus import Bus

    Source = Callable[[], Awaitable[None]]
    """Reports containers to a Node, for ever."""

_PAUSE: Final = 1.0


class Changeable(Protocol):
    """The configuration and CPUs that a node was started with, which may change."""

    async def reload(self) -> None:
        """Read the configuration again, and go on under it."""
        ...

    async def look(self) -> None:
        """Read which CPUs are online, and go on with these."""
        ...


class Loop:
    """Keeps a node going."""

    def __init__(
        self, node: Node, sources: Sequence[Source], bus: Bus, period: float, reload: asyncio.Event | None = None
    ) -> None:
        """Look at everything each *period* seconds; *reload* is set when the configuration is to be read again."""
        self.period = period
        self._node = node
        self._sources = sources
        self._bus = bus
        self._trouble = ""
        self._stop = asyncio.Event()
        self._reload = asyncio.Event() if reload is None else reload
        self._look = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self, basis: Changeable, ready: Callable[[], None]) -> None:
        """Serve until SIGTERM or SIGINT; workloads go on without us. *ready* is called when signals are handled."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self._reload.set)
        hotplug = Hotplug()
        if (listening := hotplug.fileno()) is not None:
            loop.add_reader(listening, self._look_if, hotplug)
        works = (
            *self._sources,
            lambda: self._reconcile_periodically(basis),
            lambda: _at_each(self._reload, basis.reload),
            lambda: _at_each(self._look, basis.look),
        )
        self._tasks = [asyncio.create_task(self._keep_at(work)) for work in works]
        try:
            ready()
            await self._stop.wait()
        finally:
            if listening is not None:
                loop.remove_reader(listening)
            hotplug.close()
            await self.rest()

    async def rest(self) -> None:
        """Stop the sources and the periodic check; nothing changes the node from then on."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def stop(self) -> None:
        """End the loop, as SIGTERM does."""
        self._stop.set()

    async def _keep_at(self, work: Source) -> None:
        """Run something for ever; report an unexpected error, and start it again."""
        while True:
            try:
                await work()
            except Exception as error:  # noqa: BLE001 - the one place: a daemon that is deaf is worse
                self._bus.tell(Failed(why=f"{type(error).__name__}: {error}"))
            await asyncio.sleep(_PAUSE)

    async def _reconcile_periodically(self, basis: Changeable) -> None:
        while True:
            await asyncio.sleep(self.period)
            await basis.look()
            await self._node.settle()
            await self._node.manager.reshield()
            try:
                self._node.manager.reconcile(spaced=True)
                self._trouble = ""
            except PinfoldError as error:
                if str(error) != self._trouble:  # the same line every few seconds would hide the rest
                    self._trouble = str(error)
                    self._bus.tell(ReconcileFailed(self._trouble))

    def _look_if(self, hotplug: Hotplug) -> None:
        if hotplug.has_happened():
            self._look.set()


async def _at_each(event: asyncio.Event, react: Callable[[], Awaitable[None]]) -> None:
    """React to each event, for ever."""
    while True:
        await event.wait()
        event.clear()
        await react()
