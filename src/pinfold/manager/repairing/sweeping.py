"""Sweeping: finds pods that have ended without a report from their source, and releases their CPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.core.events.running import Vanished
from pinfold.formats.pods.runtime import name_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from pinfold.core.pods.pod import ContainerRef
    from pinfold.manager.node import Node
    from pinfold.manager.telling.bus import Bus
    from pinfold.runtimes.base import Sight

_FEW: Final = 100
"""So many pods are looked at in each period, beside those with exclusive CPUs."""


class Sweeping:
    """Looks for the end of a node's pods, where its `sight` sees them."""

    def __init__(self, node: Node, bus: Bus) -> None:
        self._node = node
        self._bus = bus
        self._next = 0
        """The place of the pod that the next periodic look begins with."""

    async def sweep_all(self) -> None:
        """Release the CPUs of all pods that have vanished."""
        await self._sweep(self._node.roster.pods)

    async def sweep_owners(self) -> None:
        """Release the CPUs of owners that have vanished; quick, so that it can be called often."""
        await self._sweep(self._owners())

    async def sweep_some(self) -> None:
        """Release the CPUs of owners that have vanished, and forget those of the next few others; called in turns."""
        if self._node.sight is None:
            return
        pods = list(self._node.roster.pods)
        begin = self._next if self._next < len(pods) else 0
        self._next = begin + _FEW
        await self._sweep(dict.fromkeys((*self._owners(), *pods[begin : self._next])))

    def _owners(self) -> list[str]:
        node = self._node
        return [pod_id for uid in node.manager.state.assignments for pod_id in node.roster.find_pods(uid)]

    async def _sweep(self, pods: Collection[str]) -> None:
        node, sight = self._node, self._node.sight
        if sight is None:
            return
        for pod_id in [pod_id for pod_id in pods if sight.is_gone(pod_id)]:
            name = name_of(node.roster.pods.get(pod_id))
            if name is None:  # its source has reported it meanwhile
                continue
            self._bus.tell(Vanished(name))
            await node.gone(pod_id)
        if left := self._left_unseen(sight):
            await node.releases.release(left)

    def _left_unseen(self, sight: Sight) -> list[ContainerRef]:
        """Return the owners of pods that ended before the daemon started, where no source reports what runs."""
        node = self._node
        if node.roster.is_complete or node.read_only:
            return []
        state = node.manager.state
        unseen = [uid for uid in state.assignments if not node.roster.find_pods(uid)]
        return [ref for uid in filter(sight.has_left, unseen) for ref, _ in state.of_pod(uid)]
