"""RuntimeRecord: the sandboxes and containers that a scripted runtime has, as plain values.

A container's resources are kept twice, as containerd does: in its OCI spec, and as ContainerStatus shows them. An
adjustment by an NRI plugin changes the spec alone; every later update changes both. Its cgroup has them a third time.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.errors import PinfoldError
from pinfold.formats.pods.runtime import Phase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pinfold.core.machine.processorgroups import GroupAffinity
    from pinfold.core.pods.pod import Pod


_FIRST_PID: Final = 1_000_000_001  # no kernel gives such a number


class NotInRecord(PinfoldError):  # noqa: N818 - the fact
    """An id or name that no sandbox or container has."""

    def __init__(self, what: str, wanted: str) -> None:
        super().__init__(f"no {what} is {wanted}")
        self.wanted = wanted


class Spec(NamedTuple):
    """The resources in a container's OCI spec; 0 and "" are not set, a quota of -1 is no limit."""

    shares: int = 0
    quota: int = 0
    period: int = 0
    memory: int = 0
    cpus: str = ""
    mems: str = ""

    def updated(self, asked: Spec) -> Spec:
        """Return the spec with what *asked* sets; what it leaves unset stays, as in CRI.

        >>> Spec(shares=1024, quota=100_000, cpus="0-3").updated(Spec(quota=-1, cpus="2"))
        Spec(shares=1024, quota=-1, period=0, memory=0, cpus='2', mems='')
        """
        return Spec(
            shares=asked.shares or self.shares,
            quota=asked.quota or self.quota,
            period=asked.period or self.period,
            memory=asked.memory or self.memory,
            cpus=asked.cpus or self.cpus,
            mems=asked.mems or self.mems,
        )


@dataclass(frozen=True, slots=True)
class SandboxRecord:
    """A pod's sandbox; a pod whose sandbox died has a second one, with the next *attempt*."""

    id: str
    pod: Pod
    attempt: int
    cgroup_parent: str
    cgroups_path: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    created: int
    """In nanoseconds since 1970, as all times here."""
    ready: bool = True


@dataclass(frozen=True, slots=True)
class ContainerRecord:
    """One start of a container; a container that is restarted has one more, with the next *attempt*."""

    id: str
    sandbox: str
    """The id of its sandbox."""
    name: str
    attempt: int
    cgroups_path: str
    spec: Spec
    told: Spec
    """The resources that ContainerStatus shows."""
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    created: int
    phase: Phase = Phase.UNKNOWN
    """Unknown until it is created."""
    pid: int = 0
    exit_code: int = 0
    why: str = ""
    """Why it did not start."""
    affinity: tuple[GroupAffinity, ...] = ()
    """Its CPUs on Windows."""

    def updated(self, asked: Spec) -> ContainerRecord:
        """Return the container after an update."""
        spec = self.spec.updated(asked)
        return replace(self, spec=spec, told=spec)


class RuntimeRecord:
    """All sandboxes and containers, by id, in the order in which they were made."""

    def __init__(self) -> None:
        self.sandboxes: dict[str, SandboxRecord] = {}
        self.containers: dict[str, ContainerRecord] = {}
        self._given = 0

    def new_id(self) -> str:
        """Return an id that nothing has yet; the same script gets the same ones."""
        self._given += 1
        return hashlib.sha256(str(self._given).encode()).hexdigest()

    def new_pid(self) -> int:
        """Return a process that does not exist."""
        self._given += 1
        return _FIRST_PID + self._given

    def sandbox(self, sandbox_id: str) -> SandboxRecord:
        """Return the sandbox with this id."""
        if sandbox_id not in self.sandboxes:
            raise NotInRecord("sandbox", sandbox_id)
        return self.sandboxes[sandbox_id]

    def container(self, container_id: str) -> ContainerRecord:
        """Return the container with this id."""
        if container_id not in self.containers:
            raise NotInRecord("container", container_id)
        return self.containers[container_id]

    def containers_of(self, sandbox_id: str) -> list[ContainerRecord]:
        """Return the containers of a sandbox, each start of each."""
        return [container for container in self.containers.values() if container.sandbox == sandbox_id]

    def find(self, pod: str, name: str) -> ContainerRecord:
        """Return the last start of a container, by the names of its pod and its own."""
        for container in reversed(self.containers.values()):
            if container.name == name and self.sandboxes[container.sandbox].pod.name == pod:
                return container
        raise NotInRecord("container", f"{pod}/{name}")
