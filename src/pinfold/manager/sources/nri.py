"""NRISource: what pinfold answers a container runtime over NRI: which CPUs a container gets, before it exists.

create: decide, save, move the others off, reply. start, when the container has its cgroup but has not run: verify, and
refuse what cannot be put right. Nothing here waits for the runtime, which is itself waiting for the answer.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from pinfold.core.events.daemon import RuntimeHangs
from pinfold.core.events.running import NotVerified
from pinfold.errors import PinfoldError
from pinfold.formats.pods.runtime import Phase, RuntimeContainer, RuntimePod, is_workload
from pinfold.proto import nri_pb2 as nri

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import ContainerRef
    from pinfold.manager.node import Node
    from pinfold.manager.telling.bus import Bus
    from pinfold.runtimes.nri.requests import Creation, Updates

_NO_QUOTA: Final = -1
_STUCK_AFTER: Final = 10.0
_PHASES: Final = {
    nri.CONTAINER_CREATED: Phase.CREATED,
    nri.CONTAINER_RUNNING: Phase.RUNNING,
    nri.CONTAINER_PAUSED: Phase.RUNNING,
    nri.CONTAINER_STOPPED: Phase.STOPPED,
}


class NRISource:
    """Tells a node what the runtime asks, and answers."""

    def __init__(self, node: Node, bus: Bus, *, is_told_all: bool = True) -> None:
        """*is_told_all*: the runtime tells of everything that runs as soon as it is connected."""
        self._node = node
        self._bus = bus
        self._is_told_all = is_told_all

    def linked(self, link: str, detail: str) -> None:
        """Record how the connection is; tell of a runtime that has registered us and does not go on."""
        self._node.linked(link, detail)
        if link == "registered" and self._is_told_all:
            asyncio.get_running_loop().call_later(_STUCK_AFTER, self._tell_if_stuck, self._node.link)

    def _tell_if_stuck(self, link: tuple[str, str]) -> None:
        if self._node.link is link:
            why = "it has registered pinfold and does not go on (as containerd#10085); restart the runtime"
            self._bus.tell(RuntimeHangs(link[1], why))

    def synchronize(self, pods: Sequence[nri.PodSandbox], containers: Sequence[nri.Container], /) -> Updates:
        """Agree with what runs; strays are pinned in the reply too, so that the runtime's own record has it."""
        known = [_pod(pod) for pod in pods]
        strays = self._node.resync(known, [_container(container) for container in containers])
        return [self._update(container) for container in strays]

    def create(self, pod: nri.PodSandbox, container: nri.Container, /) -> Creation:
        """Decide, and reply with the CPUs; no other container is on them any more."""
        self._node.roster.know_pod(_pod(pod))
        found = _container(container)._replace(phase=Phase.CREATED)
        if not is_workload(found):
            return None, ()
        try:
            cpus = self._node.arrive(found)
        except PinfoldError:
            self._node.removed(found.id)
            raise
        return (None if cpus is None else self._adjustment(found, cpus)), ()

    def start(self, pod: nri.PodSandbox, container: nri.Container, /) -> None:
        """Verify the container and the others before its first instruction."""
        self._node.roster.know_pod(_pod(pod))
        found = _container(container)._replace(phase=Phase.CREATED)
        if is_workload(found):
            if found.id not in self._node.roster.containers:  # it was created while we were not asked
                self._node.arrive(found)
            self._node.verify(found, has_group=True)

    def post_start(self, pod: nri.PodSandbox, container: nri.Container, /) -> None:
        """Verify once more: an update while a container is being started reaches its record, not its cgroup."""
        self._node.roster.know_pod(_pod(pod))
        found = _container(container)._replace(phase=Phase.RUNNING)
        known = self._node.roster.containers.get(found.id)
        # A container that ends at once is told to have stopped before it is told to have started (containerd 1.7).
        if is_workload(found) and (known is None or known.phase is not Phase.STOPPED):
            try:
                self._node.verify(found)
            except PinfoldError as error:  # it runs already: no reply could stop it
                self._bus.tell(NotVerified(container=found.name, why=str(error)))

    def update(self, _pod: nri.PodSandbox, container: nri.Container, wanted: nri.LinuxResources, /) -> Updates:
        """Let others change what they like of a container, except its CPUs."""
        known, ref = self._node.roster.containers.get(container.id), self._node.roster.ref(container.id)
        if known is None or ref is None or self._node.read_only:
            return ()
        if self._cpus(ref) is not None:
            return [self._update(known)]
        known = _with_amounts(known, wanted)
        known = known._replace(cpus=wanted.cpu.cpus or known.cpus)
        self._node.roster.know(known)
        if not known.cpus:  # without CPUs in the runtime's own record, what the cgroup has stays
            return ()
        update = nri.ContainerUpdate(container_id=container.id)
        update.linux.resources.cpu.cpus = str(self._node.manager.wanted.cpus_of(ref))
        return [update]

    def stop(self, _pod: nri.PodSandbox, container: nri.Container, /) -> Updates:
        """Record that its process is dead."""
        known = self._node.roster.containers.get(container.id)
        if known is not None:
            self._node.stopped(known._replace(phase=Phase.STOPPED, pid=0))
        return ()

    def remove(self, _pod: nri.PodSandbox, container: nri.Container, /) -> None:
        """Forget the container."""
        self._node.removed(container.id)

    def run_pod(self, pod: nri.PodSandbox, /) -> None:
        """Record the pod."""
        self._node.roster.know_pod(_pod(pod))

    def stop_pod(self, pod: nri.PodSandbox, /) -> None:
        """Take back what it had."""
        self._node.gone(pod.id)

    def remove_pod(self, pod: nri.PodSandbox, /) -> None:
        """Take back what it had, if it was never stopped."""
        self._node.gone(pod.id)

    def _cpus(self, ref: ContainerRef) -> CPUSet | None:
        return self._node.manager.state.cpus(*ref)

    def _update(self, container: RuntimeContainer) -> nri.ContainerUpdate:
        ref = self._node.roster.ref(container.id)
        cpus = None if ref is None else self._cpus(ref)
        update = nri.ContainerUpdate(container_id=container.id, ignore_failure=True)
        if cpus is not None:
            self._set(update.linux.resources.cpu, container, cpus)
        return update

    def _adjustment(self, container: RuntimeContainer, cpus: CPUSet) -> nri.ContainerAdjustment:
        adjustment = nri.ContainerAdjustment()
        self._set(adjustment.linux.resources.cpu, container, cpus)
        return adjustment

    def _set(self, cpu: nri.LinuxCPU, container: RuntimeContainer, cpus: CPUSet) -> None:
        cpu.cpus = str(cpus)
        cpu.quota.value = _NO_QUOTA
        ref = self._node.roster.ref(container.id)
        mems = None if ref is None else self._node.manager.wanted.mems.get(ref)
        if mems:
            cpu.mems = str(mems)


def _pod(pod: nri.PodSandbox) -> RuntimePod:
    return RuntimePod(
        id=pod.id,
        uid=pod.uid,
        name=pod.name,
        namespace=pod.namespace,
        cgroup_parent=pod.linux.cgroup_parent,
        labels=dict(pod.labels),
        annotations=dict(pod.annotations),
    )


def _container(container: nri.Container) -> RuntimeContainer:
    found = RuntimeContainer(
        id=container.id,
        pod=container.pod_sandbox_id,
        name=container.name,
        phase=_PHASES.get(container.state, Phase.UNKNOWN),
        labels=dict(container.labels),
        annotations=dict(container.annotations),
        pid=container.pid,
        cgroups_path=container.linux.cgroups_path,
        cpus=container.linux.resources.cpu.cpus,
    )
    return _with_amounts(found, container.linux.resources)


def _with_amounts(container: RuntimeContainer, resources: nri.LinuxResources) -> RuntimeContainer:
    """Return the container with what the resources say; 0 says nothing: containerd writes it for what is not set."""
    cpu = resources.cpu
    return container._replace(
        shares=cpu.shares.value or container.shares,
        quota=cpu.quota.value or container.quota,
        period=cpu.period.value or container.period,
    )
