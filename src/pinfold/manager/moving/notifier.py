"""Notifier: tells containers where they are and will be, by files that each can watch.

A thread writes and reads them: a disk that takes nothing for a while delays changes, and nothing else.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from pinfold.core.events.daemon import NoticeFailed
from pinfold.core.events.decisions import Announced
from pinfold.core.machine.cpuset import CPUSet
from pinfold.node.notices import ACK, ContainerPlace
from pinfold.node.waiting import NOTICES, in_thread

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pinfold.core.pods.pod import ContainerRef
    from pinfold.core.reconcile import Wanted
    from pinfold.manager.manager import Manager
    from pinfold.manager.telling.bus import Bus
    from pinfold.node.notices import Notices

    Places = Mapping[ContainerRef, ContainerPlace]

_LOOK_EVERY: Final = 0.05
_PATIENCE: Final = 10.0
"""Seconds that a change waits for a disk that does not take its notices."""


class Notifier:
    """Tells containers where they are and will be; under the policy `dynamic` only."""

    def __init__(self, manager: Manager, notices: Notices, bus: Bus) -> None:
        self._manager = manager
        self._notices = notices
        self._bus = bus
        self._newest: Places | None = None
        """Where containers are, which is not being written yet."""
        self._showing: asyncio.Future[None] | None = None
        self._trouble = ""
        """What could not be written the last time."""
        self._large: set[ContainerRef] = set()
        """The containers whose `ack` took room on the disk, which was told."""

    def show(self, want: Wanted) -> None:
        """Begin to tell every container with exclusive CPUs where it is; a file that cannot be written stops nothing.

        Called after each change and at each reconcile, so that what could not be written is written later.
        """
        owners = want.exclusive if self._manager.rules.admitter.policy.repacking is not None else {}
        if not owners and self._notices.is_empty():
            return
        self._newest = {ref: self._place(ref, cpus, want) for ref, cpus in owners.items()}
        if self._showing is None or self._showing.done():
            self._showing = asyncio.ensure_future(self._show())

    async def shown(self) -> None:
        """Return when all containers have been told, or after some seconds."""
        if self._showing is not None:
            await asyncio.wait([self._showing], timeout=_PATIENCE)

    async def _show(self) -> None:
        while self._newest is not None:
            places, self._newest = self._newest, None
            failed, large = await in_thread(partial(_write, self._notices, places), NOTICES)
            for ref in large.keys() - self._large:
                took, path = large[ref], self._notices.path(ref) / ACK
                self._bus.tell(NoticeFailed(f"{path}: it took {took:,} bytes of the disk; it is emptied at each check"))
            self._large = (self._large | large.keys()) & places.keys()
            trouble = "; ".join(failed[:1]) + f"; and {len(failed) - 1} more" * (len(failed) > 1)
            if trouble not in {"", self._trouble}:
                self._bus.tell(NoticeFailed(trouble))
            self._trouble = trouble

    async def announce(self, ref: ContainerRef, cpus: CPUSet, grace: float) -> None:
        """Tell a container where it will be; return when it is ready, or after *grace* seconds."""
        if not self._notices.has(ref):
            return
        self._bus.tell(Announced(self._manager.name(ref.pod), ref.name, cpus, grace))
        place = self._place(ref, cpus, self._manager.wanted)
        try:
            async with asyncio.timeout(_PATIENCE):
                await in_thread(partial(self._notices.announce, ref, place), NOTICES)
        except TimeoutError:
            why = f"the disk has not taken it within {_PATIENCE:g} s"
            self._bus.tell(NoticeFailed(f"{self._notices.path(ref)}: {why}"))
            return
        except OSError as error:
            self._bus.tell(NoticeFailed(str(error)))
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                is_ready = partial(self._notices.is_acknowledged, ref)
                while not await in_thread(is_ready, NOTICES):  # noqa: ASYNC110 - a file, which the workload writes
                    await asyncio.sleep(_LOOK_EVERY)

    def path_of(self, ref: ContainerRef) -> str:
        """Return the directory of a container; empty if it has none."""
        return str(self._notices.path(ref)) if self._notices.has(ref) else ""

    async def withdraw(self, ref: ContainerRef) -> None:
        """Tell a container that it stays where it is."""
        if not self._notices.has(ref):
            return
        with suppress(OSError):
            async with asyncio.timeout(_PATIENCE):
                await in_thread(partial(self._notices.withdraw, ref), NOTICES)

    def _place(self, ref: ContainerRef, cpus: CPUSet, want: Wanted) -> ContainerPlace:
        """Return a container's CPUs, and the NUMA nodes of its memory: any, unless it asks for local memory."""
        if ref in want.mems and want.exclusive.get(ref) == cpus:
            return ContainerPlace(cpus, want.mems[ref])
        nodes = self._manager.rules.topology.numa_nodes
        near = [node.id for node in nodes if ref not in want.mems or node.cpus & cpus]
        return ContainerPlace(cpus, CPUSet.of(*near))


def _write(notices: Notices, places: Places) -> tuple[list[str], dict[ContainerRef, int]]:
    """Tell containers where they are; return what went wrong, and the bytes of each `ack` that took too many."""
    failed, large = [], {}
    for ref, place in places.items():
        try:
            notices.show(ref, place)
        except OSError as error:
            failed.append(str(error))
        else:
            large[ref] = notices.empty_if_large(ref)
    with suppress(OSError):  # the directory of a container that is gone does no harm
        notices.retain(places)
    return failed, {ref: took for ref, took in large.items() if took}
