"""NRIHooks: a runtime's requests to its NRI plugins when something happens to a pod or container.

As containerd does it: one request after the other; a plugin's error makes the operation fail if it still can, and is
only recorded otherwise; an update that cannot be applied stops nothing; and plugins do not hear of the stop or removal
of a pod that was started before the runtime.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from pinfold.errors import PinfoldError
from pinfold.formats.pods.runtime import Phase
from pinfold.proto import nri_pb2 as nri
from pinfold.runtimes.simulated.nri.messages import asked_of, container_of, pieces_of, pod_of, spec_of
from pinfold.runtimes.simulated.nri.peer import PluginError
from pinfold.runtimes.simulated.nri.runtime import UNKNOWN, ScriptedNRI
from pinfold.runtimes.simulated.record import Spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pinfold.runtimes.simulated.nri.runtime import RegisteredPlugin
    from pinfold.runtimes.simulated.record import ContainerRecord, RuntimeRecord, SandboxRecord
    from pinfold.runtimes.simulated.settings import RuntimeSettings


class NRIHooks:
    """The hooks of one runtime; *apply* changes a container of the record as a plugin's update asks."""

    def __init__(self, record: RuntimeRecord, apply: Callable[[str, Spec], None], settings: RuntimeSettings) -> None:
        self.nri = ScriptedNRI(settings, self._synchronize)
        self.unapplied: list[PinfoldError] = []
        """Why updates could not be applied."""
        self._record = record
        self._apply = apply
        self._asking = asyncio.Lock()
        self._to_stop: set[str] = set()
        self._to_remove: set[str] = set()
        """The pods and containers whose stop, or removal, plugins have not heard of yet."""

    def forget(self) -> None:
        """Forget what plugins were told, as a restarted runtime does."""
        self._to_stop.clear()
        self._to_remove.clear()

    # -- pods

    async def run_pod(self, sandbox: SandboxRecord) -> None:
        """Tell of a pod that is about to have containers; raise if a plugin objects."""
        async with self._asking:
            self._owe(sandbox.id)
            await self.nri.tell(nri.RUN_POD_SANDBOX, _about(sandbox))

    async def stop_pod(self, sandbox: SandboxRecord) -> None:
        """Tell that a pod's sandbox has stopped, once."""
        if self._is_due(self._to_stop, sandbox.id):
            await self._tell(nri.STOP_POD_SANDBOX, _about(sandbox))

    async def remove_pod(self, sandbox: SandboxRecord) -> None:
        """Tell that a pod's sandbox is removed, once."""
        if self._is_due(self._to_remove, sandbox.id):
            await self._tell(nri.REMOVE_POD_SANDBOX, _about(sandbox))

    # -- containers

    async def create(self, sandbox: SandboxRecord, container: ContainerRecord) -> Spec:
        """Return the plugins' settings for a container that does not exist yet, and apply their updates of others."""
        request = _about(sandbox, container)
        async with self._asking:
            self._owe(container.id)
            answers = await self.nri.ask(nri.CREATE_CONTAINER, "CreateContainer", request, nri.CreateContainerResponse)
            spec = _merged(container, answers)
            self._update(update for _, answer in answers for update in answer.update)
        return spec

    async def post_create(self, sandbox: SandboxRecord, container: ContainerRecord) -> None:
        """Tell that a container was created."""
        await self._tell(nri.POST_CREATE_CONTAINER, _about(sandbox, container))

    async def start(self, sandbox: SandboxRecord, container: ContainerRecord) -> None:
        """Tell that a container, which has its cgroup and its process, is about to run; raise if a plugin objects."""
        async with self._asking:
            await self.nri.tell(nri.START_CONTAINER, _about(sandbox, container))

    async def post_start(self, sandbox: SandboxRecord, container: ContainerRecord) -> None:
        """Tell that a container runs."""
        await self._tell(nri.POST_START_CONTAINER, _about(sandbox, container))

    async def update(self, sandbox: SandboxRecord, container: ContainerRecord, asked: Spec) -> Spec:
        """Return *asked* as the plugins override it, and apply their updates of others."""
        request = nri.UpdateContainerRequest(
            pod=pod_of(sandbox), container=container_of(sandbox, container), linux_resources=asked_of(asked)
        )
        async with self._asking:
            answers = await self.nri.ask(nri.UPDATE_CONTAINER, "UpdateContainer", request, nri.UpdateContainerResponse)
            updates = [update for _, answer in answers for update in answer.update]
            self._update(update for update in updates if update.container_id != container.id)
        for update in updates:
            if update.container_id == container.id:
                asked = asked.updated(spec_of(update.linux.resources))
        return asked

    async def post_update(self, sandbox: SandboxRecord, container: ContainerRecord) -> None:
        """Tell that a container was updated."""
        await self._tell(nri.POST_UPDATE_CONTAINER, _about(sandbox, container))

    async def stop(self, sandbox: SandboxRecord, container: ContainerRecord) -> None:
        """Tell that a container stopped, once, and apply the updates of others."""
        if not self._is_due(self._to_stop, container.id):
            return
        async with self._asking:
            with suppress(PluginError):
                request = _about(sandbox, container)
                answers = await self.nri.ask(nri.STOP_CONTAINER, "StopContainer", request, nri.StopContainerResponse)
                self._update(update for _, answer in answers for update in answer.update)

    async def remove(self, sandbox: SandboxRecord, container: ContainerRecord) -> None:
        """Tell that a container is removed, once; first that it stopped, if plugins were not told."""
        if self._is_due(self._to_remove, container.id):
            await self.stop(sandbox, container)
            await self._tell(nri.REMOVE_CONTAINER, _about(sandbox, container))

    # -- plugins

    async def _synchronize(self, plugin: RegisteredPlugin) -> None:
        """Tell a plugin of all sandboxes, also of dead ones, and of the containers that are not dead."""
        async with self._asking:
            live = [found for found in self._record.containers.values() if found.phase is not Phase.STOPPED]
            self._owe(*(container.id for container in live))
            pods = [pod_of(sandbox) for sandbox in self._record.sandboxes.values()]
            containers = [container_of(self._record.sandbox(found.sandbox), found) for found in live]
            await self._send(plugin, pieces_of(pods, containers, self.nri.settings.most_synchronized))

    async def _send(self, plugin: RegisteredPlugin, pieces: Iterable[nri.SynchronizeRequest]) -> None:
        now = asyncio.get_running_loop().time
        end = now() + self.nri.settings.request_timeout  # for all pieces together
        for piece in pieces:
            answer = await plugin.peer.ask("Synchronize", piece, nri.SynchronizeResponse, within=end - now())
            if piece.more and (answer.update or not answer.more):
                raise PluginError("Synchronize", UNKNOWN, f"plugin {plugin.name} does not take a node in pieces")
            self._update(answer.update)

    async def _tell(self, event: nri.Event, about: nri.ContainerRequest) -> None:
        """Tell of something that no plugin can prevent; record the errors it answers with."""
        async with self._asking:
            with suppress(PluginError):
                await self.nri.tell(event, about)

    def _update(self, updates: Iterable[nri.ContainerUpdate]) -> None:
        for update in updates:
            try:
                self._apply(update.container_id, spec_of(update.linux.resources))
            except PinfoldError as error:
                self.unapplied.append(error)

    def _owe(self, *ids: str) -> None:
        self._to_stop.update(ids)
        self._to_remove.update(ids)

    @staticmethod
    def _is_due(owed: set[str], wanted: str) -> bool:
        """Return whether plugins must still be told, and record that they have been."""
        due = wanted in owed
        owed.discard(wanted)
        return due


def _about(sandbox: SandboxRecord, container: ContainerRecord | None = None) -> nri.ContainerRequest:
    return nri.ContainerRequest(
        pod=pod_of(sandbox), container=None if container is None else container_of(sandbox, container)
    )


def _merged(created: ContainerRecord, answers: Iterable[tuple[str, nri.CreateContainerResponse]]) -> Spec:
    """Return all plugins' settings for a new container; raise if containerd would not take them."""
    spec = Spec()
    for plugin, answer in answers:
        if any(update.container_id == created.id for update in answer.update):
            raise PluginError("CreateContainer", UNKNOWN, f"plugin {plugin} updates the container being created")
        wanted = spec_of(answer.adjust.linux.resources)
        twice = [name for name, new, old in zip(Spec._fields, wanted, spec, strict=True) if new and old]
        if twice:
            raise PluginError("CreateContainer", UNKNOWN, f"plugin {plugin} sets what another set: {', '.join(twice)}")
        spec = spec.updated(wanted)
    return spec
