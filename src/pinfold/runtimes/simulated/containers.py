"""Containers: the record of each container and its cgroup, changed together. Knows nothing of plugins and clients."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pinfold.errors import PinfoldError
from pinfold.formats.pods.runtime import Phase

if TYPE_CHECKING:
    from pinfold.runtimes.simulated.cgroups import NodeGroups
    from pinfold.runtimes.simulated.record import ContainerRecord, RuntimeRecord, Spec


class WrongPhase(PinfoldError):  # noqa: N818 - the fact
    """A verb that cannot be done to a container or sandbox as it is."""


class Containers:
    """The containers in *record*, whose cgroups are in *groups*."""

    def __init__(self, record: RuntimeRecord, groups: NodeGroups) -> None:
        self._record = record
        self._groups = groups

    def keep(self, container: ContainerRecord) -> ContainerRecord:
        """Record the container as it is now."""
        self._record.containers[container.id] = container
        return container

    def created(self, container_id: str) -> ContainerRecord:
        """Return the container, if it is created and has not been started."""
        container = self._record.container(container_id)
        if container.phase is not Phase.CREATED:
            raise WrongPhase(f"container {container_id} is {container.phase}; only a created one can be started")
        return container

    def spawn(self, container_id: str) -> ContainerRecord:
        """Make the cgroup of a created container with a process in it, unless it has one."""
        container = self.created(container_id)
        if not container.pid:
            pid = self._record.new_pid()
            self._groups.start(container.cgroups_path, container.spec, pid)
            container = self.keep(replace(container, pid=pid))
        return container

    def apply(self, container_id: str, asked: Spec) -> None:
        """Change a container's spec, and its cgroup if it runs: if the cgroup refuses, neither."""
        if container_id not in self._record.containers:
            return
        container = self._record.containers[container_id].updated(asked)
        if container.phase is Phase.RUNNING:
            self._groups.set(container.cgroups_path, container.spec)
        self.keep(container)

    def end(self, container_id: str, exit_code: int, why: str = "") -> None:
        """Remove the cgroup of a container with its process, and record how it ended."""
        container = self._record.container(container_id)
        self._groups.end(container.cgroups_path)
        self.keep(replace(container, phase=Phase.STOPPED, pid=0, exit_code=exit_code, why=why))
