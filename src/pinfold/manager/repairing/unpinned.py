"""Unpinned: containers that run, or have run, without the CPUs they should have."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from pinfold.core.events.about import PodName
from pinfold.core.events.running import RanUnpinned, RunsUnpinned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pinfold.core.pods.pod import ContainerRef, PodUID
    from pinfold.errors import PinfoldError
    from pinfold.formats.pods.runtime import RuntimeContainer
    from pinfold.manager.telling.bus import Bus
    from pinfold.runtimes.roster import Roster


class _Waiting(NamedTuple):
    pod: PodName | None
    """None for a pod that pinfold does not manage; the roster may have forgotten the pod when the container ends."""
    container: str
    since: float


class Unpinned:
    """The containers that wait for CPUs while they run; every second is reported."""

    def __init__(self, roster: Roster, bus: Bus) -> None:
        self._roster = roster
        self._bus = bus
        self._waiting: dict[str, _Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, container_id: object) -> bool:
        return container_id in self._waiting

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._waiting))

    def wait(self, container: RuntimeContainer, why: PinfoldError, since: float) -> None:
        """Record that a container runs without the CPUs it should have; it gets them when enough are free."""
        ref = self._roster.ref(container.id)
        pod = None if ref is None else self._name(ref.pod)
        self._waiting[container.id] = _Waiting(pod, container.name, since)
        self._bus.tell(RunsUnpinned(pod=pod, container=container.name, why=str(why)))

    def has_ended(self, container_id: str) -> None:
        """Report a container that waited for its CPUs until it ended."""
        waiting = self._waiting.pop(container_id, None)
        if waiting is not None and waiting.pod is not None:
            self._tell(waiting.pod, waiting.container, time.time() - waiting.since)

    def has_cpus(self, container_id: str) -> None:
        """Record that a container has got its CPUs."""
        self._waiting.pop(container_id, None)

    def ran(self, ref: ContainerRef, seconds: float) -> None:
        """Report for how long a container ran before it had its CPUs."""
        self._tell(self._name(ref.pod), ref.name, seconds)

    def _tell(self, pod: PodName, container: str, seconds: float) -> None:
        self._bus.tell(RanUnpinned(pod, container, round(seconds, 3)))

    def _name(self, uid: PodUID) -> PodName:
        pods = (self._roster.of(pod_id).pod for pod_id in self._roster.find_pods(uid))
        return next((PodName.of(pod) for pod in pods if pod is not None), PodName.of_uid(uid))
