"""Notifier: tells containers where they are and will be, by files that each can watch."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pinfold.core.events.daemon import NoticeFailed
from pinfold.core.events.decisions import Announced
from pinfold.core.machine.cpuset import CPUSet
from pinfold.node.notices import ACK, ContainerPlace

if TYPE_CHECKING:
    from pinfold.core.pods.pod import ContainerRef
    from pinfold.core.reconcile import Wanted
    from pinfold.manager.manager import Manager
    from pinfold.manager.telling.bus import Bus
    from pinfold.node.notices import Notices

_LOOK_EVERY: Final = 0.05


class Notifier:
    """Tells containers where they are and will be; under the policy `dynamic` only."""

    def __init__(self, manager: Manager, notices: Notices, bus: Bus) -> None:
        self._manager = manager
        self._notices = notices
        self._bus = bus
        self._trouble = ""
        """What could not be written the last time."""
        self._large: set[ContainerRef] = set()
        """The containers whose `ack` took room on the disk, which was told."""

    def show(self, want: Wanted) -> None:
        """Tell every container with exclusive CPUs where it is; a file that cannot be written stops nothing.

        Called after each change and at each reconcile, so that what could not be written is written later.
        """
        owners = want.exclusive if self._manager.rules.admitter.policy.repacking is not None else {}
        failed = [why for ref, cpus in owners.items() if (why := self._show(ref, self._place(ref, cpus, want)))]
        with suppress(OSError):  # the directory of a container that is gone does no harm
            self._notices.retain(owners)
        self._large &= owners.keys()
        trouble = "; ".join(failed[:1]) + f"; and {len(failed) - 1} more" * (len(failed) > 1)
        if trouble not in {"", self._trouble}:
            self._bus.tell(NoticeFailed(trouble))
        self._trouble = trouble

    def _show(self, ref: ContainerRef, place: ContainerPlace) -> str:
        """Tell a container where it is, and return what went wrong."""
        try:
            self._notices.show(ref, place)
        except OSError as error:
            return str(error)
        if (took := self._notices.empty_if_large(ref)) and ref not in self._large:
            self._large.add(ref)
            path = self._notices.path(ref) / ACK
            self._bus.tell(NoticeFailed(f"{path}: it took {took:,} bytes of the disk; it is emptied at each check"))
        return ""

    async def announce(self, ref: ContainerRef, cpus: CPUSet, grace: float) -> None:
        """Tell a container where it will be; return when it is ready, or after *grace* seconds."""
        if not self._notices.has(ref):
            return
        self._bus.tell(Announced(self._manager.name(ref.pod), ref.name, cpus, grace))
        try:
            self._notices.announce(ref, self._place(ref, cpus, self._manager.wanted))
        except OSError as error:
            self._bus.tell(NoticeFailed(str(error)))
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                while not self._notices.is_acknowledged(ref):  # noqa: ASYNC110 - a file, which the workload writes
                    await asyncio.sleep(_LOOK_EVERY)

    def path_of(self, ref: ContainerRef) -> str:
        """Return the directory of a container; empty if it has none."""
        return str(self._notices.path(ref)) if self._notices.has(ref) else ""

    def withdraw(self, ref: ContainerRef) -> None:
        """Tell a container that it stays where it is."""
        with suppress(OSError):
            self._notices.withdraw(ref)

    def _place(self, ref: ContainerRef, cpus: CPUSet, want: Wanted) -> ContainerPlace:
        """Return a container's CPUs, and the NUMA nodes of its memory: any, unless it asks for local memory."""
        if ref in want.mems and want.exclusive.get(ref) == cpus:
            return ContainerPlace(cpus, want.mems[ref])
        nodes = self._manager.rules.topology.numa_nodes
        near = [node.id for node in nodes if ref not in want.mems or node.cpus & cpus]
        return ContainerPlace(cpus, CPUSet.of(*near))
