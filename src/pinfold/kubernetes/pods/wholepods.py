"""WholePods: what other sources than the container runtime know of pods, asked when a pod needs it.

A container runtime reports neither init containers nor pod-level resources, and each container only when it comes. So
the sources are asked, one after another, at the moment when a pod is decided. The runtime waits meanwhile, for 2 s in
NRI: all sources together have one second.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from pinfold.core.events.about import PodName
from pinfold.core.events.daemon import PodInParts, PodsNotRead
from pinfold.errors import PinfoldError
from pinfold.formats.pods.runtime import told_uid

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from pinfold.core.pods.pod import Pod
    from pinfold.formats.pods.runtime import RuntimePod
    from pinfold.kubernetes.pods.base import Found, PodSource

WITHIN: Final = 1.0
"""Seconds for all sources; each gets half of what is left, so that one that hangs leaves time for the next."""


class WholePods:
    """Asks *sources* in their order, and keeps what they said of the pods that are here."""

    def __init__(
        self,
        sources: Sequence[PodSource],
        tell: Callable[[PodInParts | PodsNotRead], object],
        *,
        named: bool = False,
        within: float = WITHIN,
    ) -> None:
        """*named*: the user has named the source, so it is asked and reported also if it is not there."""
        self._sources = sources
        self._named = named
        self._tell = tell
        self._within = within
        self._found: dict[str, Pod] = {}
        """By UID."""
        self._problems: dict[tuple[str, bool], str] = {}
        """Why sources, and watches of sources, failed last, as it was reported."""
        self._parts: set[str] = set()
        """The UIDs of pods that no source knew, as they were reported."""

    def find(self, pod: RuntimePod) -> Pod | None:
        """Return the pod if it is known without asking; a source that watches has the latest.

        What a watch knew is kept while the pod is here: it forgets pods that have ended, and their last containers
        may still run.
        """
        uid = told_uid(pod)
        known = next(filter(None, (source.known(pod) for source in self._sources)), None)
        if known is not None:
            self._found[uid] = known
        return self._found.get(uid)

    async def ask(self, pods: Sequence[RuntimePod], here: Collection[str]) -> None:
        """Ask for *pods*, and report those that no source knows; forget all whose UIDs are not *here*."""
        self._found = {uid: pod for uid, pod in self._found.items() if uid in here}
        self._parts &= {*here}
        missing = list(pods)
        until = asyncio.get_running_loop().time() + self._within
        asked = []
        for source in self._sources:
            if missing and (self._named or source.is_there()):
                asked.append(source.name)
                found = await self._ask(source, missing, until)
                self._found |= {told_uid(pod): found[pod.id] for pod in missing if pod.id in found}
                missing = [pod for pod in missing if pod.id not in found]
        why = f"unknown to {', '.join(asked)}" if asked else "there is no source of whole pods"
        for pod in missing:
            self._report(pod, why)

    def _report(self, pod: RuntimePod, why: str) -> None:
        """Report a pod that no source knows, once: a kubelet tries to start it again and again."""
        uid = told_uid(pod)
        if uid not in self._parts:
            self._parts.add(uid)
            self._tell(PodInParts(PodName(pod.namespace, pod.name, uid), why))

    async def follow(self) -> None:
        """Keep the sources that can be watched up to date, for ever."""
        await asyncio.gather(*(source.follow(partial(self._failed, source, watched=True)) for source in self._sources))

    async def _ask(self, source: PodSource, pods: Sequence[RuntimePod], until: float) -> Found:
        """Return what a source knows; report once why it does not answer."""
        left = until - asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(left / 2):
                found = await source.find(pods)
        except TimeoutError:
            return self._failed(source, f"no answer in {left / 2:.2g} s")
        except PinfoldError as error:
            return self._failed(source, str(error))
        self._problems.pop((source.name, False), None)
        return found

    def _failed(self, source: PodSource, why: str, *, watched: bool = False) -> Found:
        if self._problems.get((source.name, watched)) != why:
            self._problems[source.name, watched] = why
            self._tell(PodsNotRead(why if source.name in why else f"{source.name}: {why}"))
        return {}
