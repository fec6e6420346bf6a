"""ScriptedRuntime: a kubelet and its container runtime that do what a script says, with everything but processes.

Each verb does what the CRI call of that name does in containerd: it asks and tells NRI plugins in the same order, keeps
the same record, and makes and sets the same cgroups. A verb that a plugin refuses raises PluginError, as the kubelet's
call would fail.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Self

from pinfold.errors import PinfoldError
from pinfold.formats.pods.runtime import Phase
from pinfold.runtimes.cri.client import Happening
from pinfold.runtimes.simulated.cgroups import NodeGroups
from pinfold.runtimes.simulated.containers import Containers, WrongPhase
from pinfold.runtimes.simulated.cri.runtime import ScriptedCRI
from pinfold.runtimes.simulated.kubelet import Kubelet
from pinfold.runtimes.simulated.nri.hooks import NRIHooks
from pinfold.runtimes.simulated.record import RuntimeRecord, Spec
from pinfold.runtimes.simulated.settings import RUNTIMES
from pinfold.runtimes.simulated.wholepods import PodRunner

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from pinfold.core.machine.processorgroups import GroupAffinity
    from pinfold.core.pods.pod import Pod
    from pinfold.node.podgroups.simulated import Simulated
    from pinfold.runtimes.simulated.nri.runtime import ScriptedNRI
    from pinfold.runtimes.simulated.record import ContainerRecord, SandboxRecord
    from pinfold.runtimes.simulated.settings import RuntimeSettings

_KILLED: Final = 137
_START_FAILED: Final = 128
_KUBELET: Final = Kubelet()
_OF_SANDBOX: Final = Spec(shares=2)


class ScriptedRuntime:
    """The kubelet and the runtime of one node; `record` is what they have, `nri` serves plugins, `cri` clients.

    `pods` does with a whole pod what a kubelet does in several calls.

    *now* is the clock, in nanoseconds since 1970.
    """

    def __init__(
        self,
        groups: Simulated,
        kubelet: Kubelet = _KUBELET,
        settings: RuntimeSettings = RUNTIMES["containerd-2.1"],
        now: Callable[[], int] = time.time_ns,
    ) -> None:
        self.record = RuntimeRecord()
        self.kubelet = kubelet
        self.settings = settings
        self.now = now
        self.cri = ScriptedCRI(self)
        self.groups = groups
        self._groups = NodeGroups(groups)
        self._containers = Containers(self.record, self._groups)
        self._hooks = NRIHooks(self.record, self._containers.apply, settings)
        self.pods = PodRunner(self, self._groups)
        for group in self.kubelet.groups():
            self._groups.make(group)

    @property
    def nri(self) -> ScriptedNRI:
        """The runtime's side of NRI."""
        return self._hooks.nri

    @property
    def unapplied(self) -> list[PinfoldError]:
        """Why updates that plugins asked for could not be applied."""
        return self._hooks.unapplied

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def restart(self) -> None:
        """End the runtime and start it again; containers go on, connections do not."""
        await self.close()
        self._hooks.forget()
        for service in (self.nri, self.cri):
            if service.path:
                await service.listen()

    async def close(self) -> None:
        """End all connections, and accept no more."""
        await self.nri.close()
        await self.cri.close()

    # -- sandboxes

    async def run_pod(self, pod: Pod) -> SandboxRecord:
        """Make a pod's cgroup and run its sandbox."""
        attempt = sum(found.pod.uid == pod.uid for found in self.record.sandboxes.values())
        sandbox = self.kubelet.sandbox(pod, self.record.new_id(), attempt, self.now())
        self._groups.make(sandbox.cgroup_parent, self.kubelet.pod_quota(pod))
        self._groups.start(sandbox.cgroups_path, _OF_SANDBOX, self.record.new_pid())
        try:
            await self._hooks.run_pod(sandbox)
        except PinfoldError:
            await self._hooks.stop_pod(sandbox)
            await self._hooks.remove_pod(sandbox)
            self._groups.end(sandbox.cgroups_path)
            raise
        self.record.sandboxes[sandbox.id] = sandbox
        self.cri.tell(Happening.CREATED, sandbox.id, sandbox)
        self.cri.tell(Happening.STARTED, sandbox.id, sandbox)
        return sandbox

    async def stop_pod(self, sandbox_id: str) -> None:
        """Kill a pod's containers and its sandbox, and remove its cgroup; the record keeps them all."""
        await self.stop_sandbox(sandbox_id)
        parent = self.record.sandbox(sandbox_id).cgroup_parent
        if not any(found.ready for found in self.record.sandboxes.values() if found.cgroup_parent == parent):
            self._groups.remove(parent)

    async def remove_pod(self, sandbox_id: str) -> None:
        """Remove a pod's sandbox and its containers; first stop what runs."""
        await self.stop_pod(sandbox_id)
        for container in self.record.containers_of(sandbox_id):
            await self.remove_container(container.id)
        sandbox = self.record.sandboxes.pop(sandbox_id)
        self.cri.tell(Happening.DELETED, sandbox_id, sandbox)
        await self._hooks.remove_pod(sandbox)

    async def stop_sandbox(self, sandbox_id: str) -> None:
        """Kill a pod's containers and its sandbox; the pod's cgroup stays."""
        for container in self.record.containers_of(sandbox_id):
            if container.phase is Phase.RUNNING:
                await self.stop_container(container.id)
        sandbox = self.record.sandbox(sandbox_id)
        self._groups.end(sandbox.cgroups_path)
        self.record.sandboxes[sandbox_id] = stopped = replace(sandbox, ready=False)
        if sandbox.ready:
            self.cri.tell(Happening.STOPPED, sandbox_id, stopped)
        await self._hooks.stop_pod(stopped)

    # -- containers

    async def create_container(self, sandbox_id: str, name: str) -> ContainerRecord:
        """Create a container as the plugins adjust it; if one refuses, there is no container."""
        sandbox = self.record.sandbox(sandbox_id)
        if not sandbox.ready:
            raise WrongPhase(f"sandbox {sandbox_id} is not ready, so it takes no container {name}")
        attempt = sum(found.name == name for found in self.record.containers_of(sandbox_id))
        container = self.kubelet.container(sandbox, name, self.record.new_id(), attempt, self.now())
        try:
            adjusted = await self._hooks.create(sandbox, container)
            self._containers.keep(replace(container, phase=Phase.CREATED, spec=container.spec.updated(adjusted)))
            if self.settings.early:
                self.spawn_container(container.id)
        except PinfoldError:
            self.record.containers.pop(container.id, None)
            # containerd tells of the undoing without what the kubelet gave.
            await self._hooks.remove(sandbox, replace(container, labels={}, annotations={}))
            raise
        self.cri.tell(Happening.CREATED, container.id, sandbox)
        await self._hooks.post_create(sandbox, self.record.container(container.id))
        return self.record.container(container.id)

    def spawn_container(self, container_id: str) -> ContainerRecord:
        """Make the cgroup of a created container, and a process in it that does not run yet; as `runc create` does.

        `start_container` begins with this. An update that comes in between reaches the spec and not the cgroup.
        """
        return self._containers.spawn(container_id)

    async def start_container(self, container_id: str) -> ContainerRecord:
        """Let a container run, once it has its cgroup and process; if a plugin or the cgroup refuses, it is dead."""
        container = self._containers.created(container_id)
        sandbox = self.record.sandbox(container.sandbox)
        try:
            container = self.spawn_container(container_id)
            await self._hooks.start(sandbox, container)
        except PinfoldError as error:
            if container.pid:
                await self._hooks.stop(sandbox, container)
            self._containers.end(container_id, _START_FAILED, why=str(error))
            raise
        self._containers.keep(replace(self.record.container(container_id), phase=Phase.RUNNING))
        self.cri.tell(Happening.STARTED, container_id, sandbox)
        return self.record.container(container_id)

    async def post_start(self, container_id: str) -> ContainerRecord:
        """Tell plugins that a container runs; `start_container` does not, so that something can come in between."""
        container = self.record.container(container_id)
        await self._hooks.post_start(self.record.sandbox(container.sandbox), container)
        return self.record.container(container_id)

    async def update_container(self, container_id: str, asked: Spec) -> ContainerRecord:
        """Change a container's resources as *asked* and as plugins overrule that; a running one's cgroup too."""
        container = self.record.container(container_id)
        sandbox = self.record.sandbox(container.sandbox)
        self._containers.apply(container_id, await self._hooks.update(sandbox, container, asked))
        await self._hooks.post_update(sandbox, self.record.container(container_id))
        return self.record.container(container_id)

    async def stop_container(self, container_id: str, exit_code: int = _KILLED) -> None:
        """End a container's process, as if the kubelet killed it or it exited by itself."""
        container = self.record.container(container_id)
        sandbox = self.record.sandbox(container.sandbox)
        if container.phase is Phase.RUNNING:
            self._containers.end(container_id, exit_code)
            self.cri.tell(Happening.STOPPED, container_id, sandbox)
        await self._hooks.stop(sandbox, container)  # which is sent as it was

    async def remove_container(self, container_id: str) -> None:
        """Remove a container; first stop it if it runs."""
        await self.stop_container(container_id)
        container = self.record.containers.pop(container_id)
        sandbox = self.record.sandbox(container.sandbox)
        self._groups.end(container.cgroups_path)
        self.cri.tell(Happening.DELETED, container_id, sandbox)
        await self._hooks.remove(sandbox, container)

    def set_affinity(self, container_id: str, affinity: tuple[GroupAffinity, ...]) -> None:
        """Set the CPUs of a Windows container; as with Linux, none at all leaves them as they are."""
        container = self.record.container(container_id)
        self._containers.keep(replace(container, affinity=affinity or container.affinity))
