"""Mover: gives running containers more, fewer or other CPUs; decided, saved, applied and verified like any change.

Growing takes the CPUs from the others first. A container that shrinks leaves its CPUs before the shared pool grows.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pinfold.core.admission import NOTHING_ASKED, Asked
from pinfold.core.moving.repacking import Consent, pinned_by
from pinfold.core.moving.resizing import NotResized
from pinfold.core.moving.running import NotResizable
from pinfold.errors import PinfoldError
from pinfold.manager.telling.changes import Changes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.moving.repack import Move, RepackPlan
    from pinfold.core.moving.repacking import Repacking
    from pinfold.core.pods.pod import ContainerRef
    from pinfold.core.state import State
    from pinfold.formats.pods.runtime import RuntimeContainer
    from pinfold.manager.manager import Manager
    from pinfold.runtimes.roster import Known, Roster


class Mover:
    """Changes the CPUs of containers that run, through one Manager."""

    def __init__(self, manager: Manager, roster: Roster) -> None:
        self._manager = manager
        self._roster = roster
        self._changes = Changes(manager.telling)

    async def follow(self, container: RuntimeContainer) -> None:
        """Resize a container as its runtime reports it now; or raise, and record nothing of the report."""
        before = self._roster.containers[container.id]
        self._roster.know(container)
        try:
            await self._fit(container)
        except PinfoldError:
            self._roster.know(before)
            raise

    async def _fit(self, container: RuntimeContainer) -> None:
        ref, pod = self._roster.ref(container.id), self._roster.of(container.pod).pod
        held = None if ref is None else self._manager.state.cpus(*ref)
        if ref is None or pod is None or held is None:
            return
        asked = next(one for one in pod.all_containers if one.name == ref.name)
        count = self._manager.rules.admitter.policy.request(pod, asked)
        if not count:
            milli = asked.resources.requests.cpu or 0
            refusal = NotResizable(f"{milli / 1000:g} CPUs is not a whole number; it keeps its CPUs {held}")
            self._changes.resize_refused(ref, math.ceil(milli / 1000), refusal)
            raise refusal
        if count != len(held):
            await self.resize(ref, count)

    async def resize(self, ref: ContainerRef, count: int) -> CPUSet:
        """Give a container *count* exclusive CPUs and return them; or raise, and change nothing."""
        manager = self._manager
        try:
            before, after = await manager.decide(lambda state: self._decide(state, ref, count))
        except NotResized as refusal:
            self._changes.resize_refused(ref, count, refusal)
            raise
        cpus = after.assignments[ref.pod][ref.name]
        if after != before:
            self._changes.resized(ref, before, cpus, manager.rules, self._asked(ref))
        return cpus

    def _decide(self, state: State, ref: ContainerRef, count: int) -> State:
        return self._manager.rules.admitter.resize(state, ref, count, asked=self._asked(ref)).state

    def would_have(self, ref: ContainerRef, count: int) -> CPUSet:
        """Return the CPUs that a resize would give a container; or raise why it cannot be."""
        try:
            after = self._decide(self._manager.state, ref, count)
        except NotResized as refusal:
            self._changes.resize_refused(ref, count, refusal)
            raise
        return after.assignments[ref.pod][ref.name]

    def plan(self, containers: Mapping[ContainerRef, Consent], budget: int) -> RepackPlan:
        """Return the moves that a repack of these containers would make."""
        return self._repacking.plan(self._manager.state, containers, budget)

    def may_move(self) -> dict[ContainerRef, Consent]:
        """Return the containers that may move, and what their pods say about it.

        Memory follows on request only (`pinfold.dev/local-memory`), and not away from a device.
        """
        found = {}
        for ref, _ in self._manager.state.flat():
            known = self._known(ref)
            if known is not None and known.movable:
                asked = self._asked(ref)
                found[ref] = Consent(known.local_memory and not asked.others, asked.annotations)
        return found

    async def move(self, move: Move) -> bool:
        """Move a container, or raise; return False if the State has changed so that the move is no longer possible."""
        manager = self._manager
        before, after = await manager.decide(lambda state: self._moved(state, move))
        if after == before:
            return False
        self._changes.moved(move, manager.rules.admitter.policy, manager.rules.topology)
        return True

    def _moved(self, state: State, move: Move) -> State:
        repacking = self._repacking
        return repacking.moved(state, move) if repacking.is_possible(state, move) else state

    @property
    def _repacking(self) -> Repacking:
        policy = self._manager.rules.admitter.policy
        if policy.repacking is None:
            raise NotResizable(f"policy {policy.name} moves no running container; only dynamic does")
        if spreading := pinned_by(policy.pools.options):
            raise NotResizable(f"no container moves: the option {spreading} spreads CPUs, which a repack would undo")
        return policy.repacking

    def _known(self, ref: ContainerRef) -> Known | None:
        return next((self._roster.of(pod_id) for pod_id in self._roster.find_pods(ref.pod)), None)

    def _asked(self, ref: ContainerRef) -> Asked:
        known = self._known(ref)
        if known is None or known.pod is None:
            return NOTHING_ASKED
        return Asked(self._roster.others(known.pod), known.pod.annotations)
