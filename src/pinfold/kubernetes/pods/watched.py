"""WatchedPods: a source whose pods are kept in memory and up to date, for as long as it is needed."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final

from pinfold.errors import PinfoldError
from pinfold.formats.pods.runtime import told_uid
from pinfold.runtimes.backoff import BackOff

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pinfold.core.pods.pod import Pod
    from pinfold.formats.pods.runtime import RuntimePod
    from pinfold.kubernetes.pods.base import Found, PodFeed


_MOST: Final = 60.0
"""Seconds between two attempts to watch, at most: what a watch does not know is asked for."""


class WatchedPods:
    """Pods of a feed; the watch begins when a pod is asked for: then no source before this one knew it."""

    def __init__(self, feed: PodFeed) -> None:
        self.name = feed.name
        self.is_there = feed.is_there
        self.pods: dict[str, Pod] = {}
        """By UID."""
        self._feed = feed
        self._needed = asyncio.Event()

    async def find(self, pods: Sequence[RuntimePod]) -> Found:
        """Ask the feed: the watch does not know these pods yet."""
        found = await self._feed.find(pods)
        if found:
            self._needed.set()
        return found

    def known(self, pod: RuntimePod) -> Pod | None:
        """Return the pod if the watch knows it."""
        return self.pods.get(told_uid(pod))

    async def follow(self, failed: Callable[[str], object]) -> None:
        """Watch for ever, from the first pod that was found here; connect again when the connection ends."""
        await self._needed.wait()
        back_off, clock = BackOff(_MOST), asyncio.get_running_loop().time
        while True:
            begun = clock()
            try:
                await self._watch()
            except PinfoldError as error:
                failed(str(error))
            # Not all nodes of a cluster at the same moment.
            part = 0.5 + os.urandom(1)[0] / 512  # `random` takes 0.2 MB of memory
            await asyncio.sleep(back_off.after(clock() - begun) * part)

    async def _watch(self) -> None:
        async for change in self._feed.changes():
            if change is None:
                self.pods.clear()
            elif change.pod is None:
                self.pods.pop(change.uid, None)
            else:
                self.pods[change.uid] = change.pod
