"""How a running daemon leaves its node: sources stop, adopted processes go back, every group gets its CPUs back."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pinfold.core.events.daemon import NotWidened, Widened
from pinfold.core.machine.cpuset import EMPTY
from pinfold.daemon.claim import drop_claim
from pinfold.errors import PinfoldError
from pinfold.manager import leaving

if TYPE_CHECKING:
    from pathlib import Path

    from pinfold.daemon.parts.common import Parts
    from pinfold.manager.loop import Loop
    from pinfold.manager.sources.supervisor import Supervisor
    from pinfold.manager.telling.bus import Bus


class Leaving:
    """Leaves the node at most once, by request or at the end."""

    def __init__(self, loop: Loop, parts: Parts, bus: Bus, directory: Path) -> None:
        self._loop = loop
        self._parts = parts
        self._bus = bus
        self._directory = directory
        self._begun = False

    async def leave(self, *, keep_owners: bool = False) -> None:
        """Give all CPUs back, and let the loop end; or raise what could not be given back. The daemon ends anyhow.

        *keep_owners*: a kubelet with the static policy goes on with the State, and with the owners that run.
        """
        self._begun = True
        try:
            await self._loop.rest()
            await self._widen(keep_owners=keep_owners)
        except PinfoldError as error:
            self._bus.tell(NotWidened(str(error)))
            raise
        finally:
            self._loop.stop()

    async def at_exit(self) -> None:
        """Leave, if that has not been tried yet; a failure is only reported."""
        if not self._begun:
            try:
                await self.leave()
            except PinfoldError:
                return

    def remove_groups(self) -> None:
        """Leave no group behind if all workloads have ended; a group with processes of others stays."""
        with suppress(PinfoldError):
            self._parts.clean_up()
            drop_claim(self._directory)

    async def _widen(self, *, keep_owners: bool) -> None:
        node = self._parts.node
        if node.read_only:  # a kubelet manages CPUs here, and nothing was changed
            return
        if self._parts.supervisor is not None:
            await _give_back(self._parts.supervisor)
        online, kept = node.manager.rules.topology.online, node.manager.state.exclusive if keep_owners else EMPTY
        if self._parts.withdraw is not None:
            await self._parts.withdraw()
        await leaving.leave(node.manager.applier, node.roster, online, kept)
        await node.manager.shielding.end(online)
        drop_claim(self._directory)
        self._bus.tell(Widened(online, kept))


async def _give_back(supervisor: Supervisor) -> None:
    """Stop watching processes; adopted ones go on where they were before."""
    from pinfold.manager.sources.workloads import WorkloadKind  # noqa: PLC0415 - only a plain host has workloads

    await supervisor.leave()
    for workload in list(supervisor.workbook.workloads.values()):
        if workload.kind is WorkloadKind.ADOPTED:
            await supervisor.delete(workload.pod.name, workload.pod.namespace)
