"""PodWatch: hears by inotify what other programs do to the groups of pods: to CPUs, quotas, and whole groups."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from pinfold.manager.repairing.noticing import Noticing
from pinfold.node.grouperrors import GroupError
from pinfold.node.groupwatch import GroupWatch, Places

if TYPE_CHECKING:
    from pathlib import Path

    from pinfold.manager.node import Node
    from pinfold.node.podgroups.tree import PodTree
    from pinfold.runtimes.pods import PodApplier

_FILES: Final = frozenset({"cpuset.cpus", "cpuset.mems", "cpu.max"})
"""On cgroup v1 quotas are in another hierarchy: the periodic check finds them."""


class PodWatch:
    """Watches the group of all pods and those above it, if there is inotify."""

    def __init__(self, node: Node, tree: PodTree, applier: PodApplier) -> None:
        self._node = node
        self._tree = tree
        self._applier = applier
        self._watch: GroupWatch | None = None

    def is_heard(self) -> bool:
        """Return whether the end of every pod is heard of."""
        return self._watch is not None and not self._watch.is_partial

    async def follow(self, pause: float) -> None:
        """Follow what happens, for ever; look after each *pause* whether there is another group of all pods."""
        while True:
            top = self._top()
            if top is not None and not self._node.read_only:
                await self._follow(top, pause)
            await asyncio.sleep(pause)

    async def _follow(self, top: Path, pause: float) -> None:
        """Follow one group of all pods until it is gone."""
        above = [path for path in top.parents if path.is_relative_to(self._tree.root)]
        try:
            watch = GroupWatch(Places(above, [top]), _FILES)
        except OSError:  # no inotify, or no more of it for this user: the periodic check finds all
            return
        self._watch = self._applier.brevity.hearing = watch
        noticing = asyncio.create_task(Noticing(self._node.manager, watch, self._node.sweeping.sweep_owners).follow())
        try:
            while not noticing.done() and watch.has(top) and not self._node.read_only:
                await asyncio.wait({noticing}, timeout=pause)
            if noticing.done():
                noticing.result()
        finally:
            self._watch = self._applier.brevity.hearing = None
            noticing.cancel()
            await asyncio.gather(noticing, return_exceptions=True)
            watch.close()

    def _top(self) -> Path | None:
        try:
            return self._tree.kubepods()
        except GroupError:  # more than one kubelet: each change reports it
            return None
