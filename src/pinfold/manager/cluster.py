"""Cluster: what Kubernetes knows of a node's pods beside the container runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pinfold.core.pods.pod import QoS
from pinfold.formats.pods.runtime import place_of, told_uid

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from pinfold.core.pods.pod import Pod
    from pinfold.formats.pods.runtime import RuntimeContainer, RuntimePod
    from pinfold.runtimes.roster import Roster


class WholePods(Protocol):
    """What other sources than the container runtime know of pods."""

    def find(self, pod: RuntimePod) -> Pod | None:
        """Return the whole pod if it is known."""
        ...

    async def ask(self, pods: Sequence[RuntimePod], here: Collection[str]) -> None:
        """Ask the sources for *pods*; forget the pods whose UIDs are not *here*."""
        ...


class Cluster:
    """Asks for whole pods; by default it does not."""

    def __init__(self, roster: Roster, whole: WholePods | None = None) -> None:
        self._roster = roster
        self._whole = whole

    async def learn(self, pods: Iterable[RuntimePod], containers: Collection[RuntimeContainer] = ()) -> None:
        """Ask for whole pods, before a container of theirs arrives; only for pods that can have exclusive CPUs.

        A runtime that does not report the cgroups of its *pods* does report those of their *containers*.
        """
        if self._whole is None:
            return
        unknown = []
        for pod in pods:
            place = place_of(pod, [container for container in containers if container.pod == pod.id])
            if place is not None and place.qos is QoS.GUARANTEED and self._whole.find(pod) is None:
                unknown.append(pod)
        if unknown:
            await self._whole.ask(unknown, {told_uid(pod) for pod in (*self._roster.pods.values(), *unknown)})
