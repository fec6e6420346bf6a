"""PodRunner: what a kubelet does with a pod in several calls of its runtime: run all of it, resize it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pinfold.formats.pods.runtime import Phase

if TYPE_CHECKING:
    from pinfold.core.pods.pod import Pod
    from pinfold.runtimes.simulated.cgroups import NodeGroups
    from pinfold.runtimes.simulated.record import ContainerRecord, SandboxRecord
    from pinfold.runtimes.simulated.runtime import ScriptedRuntime


class PodRunner:
    """The pods of a *runtime*; *groups* are the cgroups that its kubelet makes for them."""

    def __init__(self, runtime: ScriptedRuntime, groups: NodeGroups) -> None:
        self._runtime = runtime
        self._groups = groups

    async def run(self, pod: Pod) -> SandboxRecord:
        """Run a pod as a kubelet does: its sandbox, its init containers one after another, then all others."""
        sandbox = await self._runtime.run_pod(pod)
        for container in pod.all_containers:
            started = await self.run_container(sandbox.id, container.name)
            if container in pod.init and not container.sidecar:
                await self._runtime.stop_container(started.id, exit_code=0)
        return sandbox

    async def run_container(self, sandbox_id: str, name: str) -> ContainerRecord:
        """Create and start a container."""
        container = await self._runtime.create_container(sandbox_id, name)
        await self._runtime.start_container(container.id)
        return await self._runtime.post_start(container.id)

    async def replace_sandbox(self, sandbox_id: str) -> SandboxRecord:
        """Give a pod whose sandbox died another one; the dead one stays in the record."""
        await self._runtime.stop_sandbox(sandbox_id)
        return await self._runtime.run_pod(self._runtime.record.sandbox(sandbox_id).pod)

    async def resize(self, sandbox_id: str, pod: Pod) -> None:
        """Change the resources of a pod in place: of running containers by updates, of the pod's cgroup past NRI."""
        record, kubelet = self._runtime.record, self._runtime.kubelet
        sandbox = record.sandbox(sandbox_id)
        self._groups.make(sandbox.cgroup_parent, kubelet.pod_quota(pod))
        for container in record.containers_of(sandbox_id):
            asked = kubelet.spec(pod, container.name)
            if container.phase is Phase.RUNNING and asked != kubelet.spec(sandbox.pod, container.name):
                await self._runtime.update_container(container.id, asked)
        record.sandboxes[sandbox_id] = replace(sandbox, pod=pod)
