"""Cluster: what Kubernetes knows of a node's pods beside the container runtime, and what it is told about them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from pinfold.core.pods.pod import QoS
from pinfold.formats.pods.runtime import is_static, place_of, told_uid

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pinfold.core.pods.pod import Pod
    from pinfold.core.topologymanager.others import Held
    from pinfold.errors import AdmissionError
    from pinfold.formats.pods.runtime import RuntimeContainer, RuntimePod
    from pinfold.manager.admitting import Refusal
    from pinfold.runtimes.roster import Roster

Refuse = Callable[["Pod", "AdmissionError"], Awaitable[None]]
"""Called with a refused pod that is known whole, before its runtime gets the refusal."""


class WholePodSource(Protocol):
    """What other sources than the container runtime know of pods."""

    def find(self, pod: RuntimePod) -> Pod | None:
        """Return the whole pod if it is known."""
        ...

    async def ask(self, pods: Sequence[RuntimePod], here: Collection[str]) -> None:
        """Ask the sources for *pods*; forget the pods whose UIDs are not *here*."""
        ...


class HintSource(Protocol):
    """What knows which devices and memory containers have."""

    async def find(self, pods: Sequence[RuntimePod]) -> Mapping[str, Held]:
        """Return what the containers of *pods* have, by UID; it raises nothing, and knows what cannot be asked not."""
        ...


class Cluster:
    """Asks for whole pods and reports refused ones; by default it does neither."""

    def __init__(self, roster: Roster, whole: WholePodSource | None = None, on_refusal: Refuse | None = None) -> None:
        self._roster = roster
        self._whole = whole
        self._on_refusal = on_refusal
        self.hints: HintSource | None = None
        """Asked for the pods' other resources, where they are known."""

    async def learn(self, pods: Iterable[RuntimePod], containers: Collection[RuntimeContainer] = ()) -> None:
        """Ask for whole pods, before a container of theirs arrives; only for pods that can have exclusive CPUs.

        A runtime that does not report the cgroups of its *pods* does report those of their *containers*.
        """
        if self._whole is None and self.hints is None:
            return
        owners = []
        for pod in pods:
            place = place_of(pod, [container for container in containers if container.pod == pod.id])
            if place is not None and place.qos is QoS.GUARANTEED:
                owners.append(pod)
        asked = []
        if self._whole is not None and (unknown := [pod for pod in owners if self._whole.find(pod) is None]):
            asked.append(self._learn_whole(self._whole, unknown))
        if self.hints is not None and (unknown := [pod for pod in owners if told_uid(pod) not in self._roster.held]):
            asked.append(self._learn_hints(self.hints, unknown))
        if len(asked) == 1:  # tasks would delay the answer for nothing
            await asked[0]
        elif asked:
            await asyncio.gather(*asked)

    async def _learn_whole(self, whole: WholePodSource, pods: Sequence[RuntimePod]) -> None:
        await whole.ask(pods, {told_uid(pod) for pod in (*self._roster.pods.values(), *pods)})

    async def _learn_hints(self, hints: HintSource, pods: Sequence[RuntimePod]) -> None:
        """Keep the pods' other resources on the Roster; a pod that could not be asked for is tried again."""
        self._roster.held |= await hints.find(pods)

    async def refuse(self, container: RuntimeContainer, refusal: Refusal) -> None:
        """Report that a container's pod is refused.

        A pod that is not known whole may have a controller that makes new ones without end; a static pod has no object
        of its own at the API server. Both are left to the kubelet, which tries again.
        """
        known, told = self._roster.of(container.pod), self._roster.pods.get(container.pod)
        why = refusal.admission.refusal
        if self._on_refusal and known.pod and known.whole and told and not is_static(told) and why:
            await self._on_refusal(known.pod, why)
