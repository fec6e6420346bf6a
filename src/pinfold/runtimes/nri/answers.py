"""Answers: a Handler that turns the runtime's messages into values for the Manager's side, and its replies back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pinfold.formats.pods.runtime import Phase, is_workload
from pinfold.runtimes.nri.messages import adjustment_of, container_of, pod_of, update_of, with_amounts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pinfold.formats.pods.runtime import RuntimeContainer, RuntimePod
    from pinfold.proto import nri_pb2 as nri
    from pinfold.runtimes.nri.messages import Pinning
    from pinfold.runtimes.nri.requests import Creation, Updates

    Pinnings = Mapping[str, Pinning]
    """CPUs by the runtime's own ids of containers."""


class Decider(Protocol):
    """Decides the answers to a runtime; a PinfoldError in `created` or `starting` keeps the container from running."""

    async def synchronized(self, pods: Sequence[RuntimePod], containers: Sequence[RuntimeContainer]) -> Pinnings:
        """Record all that runs; return the containers that get CPUs only now."""
        ...

    def knows(self, pod: RuntimePod) -> None:
        """Record a pod."""
        ...

    async def created(self, container: RuntimeContainer) -> Pinning | None:
        """Admit a container that does not exist yet; None means that it shares."""
        ...

    async def starting(self, container: RuntimeContainer) -> None:
        """Verify a container that has its cgroup and has not run."""
        ...

    def started(self, container: RuntimeContainer) -> None:
        """Verify a container that has just begun to run."""
        ...

    async def updated(self, container: RuntimeContainer) -> Pinnings:
        """Record the resources that another program wants for a container; return the CPUs that override them."""
        ...

    def stopped(self, container_id: str) -> None:
        """Record that the container stopped."""
        ...

    def removed(self, container_id: str) -> None:
        """Forget a container."""
        ...

    async def gone(self, pod_id: str) -> None:
        """Release the CPUs of a pod."""
        ...


class Answers:
    """Turns messages into values for one Decider, and its answers into messages."""

    def __init__(self, asked: Decider) -> None:
        self._asked = asked

    async def synchronize(self, pods: Sequence[nri.PodSandbox], containers: Sequence[nri.Container], /) -> Updates:
        """Report all that runs; return the CPUs of the containers that get CPUs only now, for the runtime's record."""
        return _updates(await self._asked.synchronized([*map(pod_of, pods)], [*map(container_of, containers)]))

    async def create(self, pod: nri.PodSandbox, container: nri.Container, /) -> Creation:
        """Return the CPUs of a new container."""
        self._asked.knows(pod_of(pod))
        found = container_of(container)._replace(phase=Phase.CREATED)
        pinning = await self._asked.created(found) if is_workload(found) else None
        return (None if pinning is None else adjustment_of(pinning)), ()

    async def start(self, pod: nri.PodSandbox, container: nri.Container, /) -> None:
        """Verify a container before its first instruction."""
        self._asked.knows(pod_of(pod))
        found = container_of(container)._replace(phase=Phase.CREATED)
        if is_workload(found):
            await self._asked.starting(found)

    def post_start(self, pod: nri.PodSandbox, container: nri.Container, /) -> None:
        """Verify a container that runs."""
        self._asked.knows(pod_of(pod))
        found = container_of(container)._replace(phase=Phase.RUNNING)
        if is_workload(found):
            self._asked.started(found)

    async def update(self, _pod: nri.PodSandbox, container: nri.Container, wanted: nri.LinuxResources, /) -> Updates:
        """Let other programs change what they like of a container, except its CPUs."""
        return _updates(await self._asked.updated(with_amounts(container_of(container), wanted)))

    def stop(self, _pod: nri.PodSandbox, container: nri.Container, /) -> Updates:
        """Report that the container stopped."""
        self._asked.stopped(container.id)
        return ()

    def remove(self, _pod: nri.PodSandbox, container: nri.Container, /) -> None:
        """Report that the container is gone."""
        self._asked.removed(container.id)

    def run_pod(self, pod: nri.PodSandbox, /) -> None:
        """Report a pod."""
        self._asked.knows(pod_of(pod))

    async def stop_pod(self, pod: nri.PodSandbox, /) -> None:
        """Report that the pod is gone."""
        await self._asked.gone(pod.id)

    async def remove_pod(self, pod: nri.PodSandbox, /) -> None:
        """Report that the pod is gone, if it was never stopped."""
        await self._asked.gone(pod.id)


def _updates(pinnings: Pinnings) -> Updates:
    return [update_of(container_id, pinning) for container_id, pinning in pinnings.items()]
