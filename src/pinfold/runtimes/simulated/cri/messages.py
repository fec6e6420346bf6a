"""The record of a scripted runtime ↔ the messages of CRI v1, with the fields that containerd fills."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from pinfold.core.machine.processorgroups import GroupAffinity
from pinfold.formats.pods.runtime import Phase
from pinfold.proto import cri_pb2 as cri
from pinfold.runtimes.cri.client import Happening
from pinfold.runtimes.simulated.record import Spec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pinfold.runtimes.simulated.record import ContainerRecord, SandboxRecord

_STATES: Final = {
    Phase.CREATED: cri.CONTAINER_CREATED,
    Phase.RUNNING: cri.CONTAINER_RUNNING,
    Phase.STOPPED: cri.CONTAINER_EXITED,
    Phase.UNKNOWN: cri.CONTAINER_UNKNOWN,
}
_EVENTS: Final = {
    Happening.CREATED: cri.CONTAINER_CREATED_EVENT,
    Happening.STARTED: cri.CONTAINER_STARTED_EVENT,
    Happening.STOPPED: cri.CONTAINER_STOPPED_EVENT,
    Happening.DELETED: cri.CONTAINER_DELETED_EVENT,
}


def sandbox_of(sandbox: SandboxRecord) -> cri.PodSandbox:
    """Return a sandbox as it is listed."""
    return cri.PodSandbox(
        id=sandbox.id,
        metadata=_metadata(sandbox),
        state=_ready(sandbox),
        created_at=sandbox.created,
        labels=sandbox.labels,
        annotations=sandbox.annotations,
    )


def container_of(container: ContainerRecord) -> cri.Container:
    """Return a container as it is listed."""
    return cri.Container(
        id=container.id,
        pod_sandbox_id=container.sandbox,
        metadata=cri.ContainerMetadata(name=container.name, attempt=container.attempt),
        state=_STATES[container.phase],
        created_at=container.created,
        labels=container.labels,
        annotations=container.annotations,
    )


def status_of(container: ContainerRecord, *, windows: bool) -> cri.ContainerStatus:
    """Return the status of a container on Linux, or on Windows."""
    resources = cri.ContainerResources(windows=_windows(container)) if windows else _linux(container.told)
    return cri.ContainerStatus(
        id=container.id,
        metadata=cri.ContainerMetadata(name=container.name, attempt=container.attempt),
        state=_STATES[container.phase],
        created_at=container.created,
        exit_code=container.exit_code,
        reason="StartError" if container.why else "",
        message=container.why,
        labels=container.labels,
        annotations=container.annotations,
        resources=resources,
    )


def info_of(container: ContainerRecord) -> str:
    """Return the JSON that containerd adds to a verbose status: the process, and the OCI spec with its resources."""
    spec = container.spec
    cpu = {name: getattr(spec, name) for name in ("shares", "quota", "period", "cpus", "mems")}
    resources = {
        "cpu": {name: value for name, value in cpu.items() if value},
        "memory": {"limit": spec.memory} if spec.memory else {},
    }
    info = {
        "sandboxID": container.sandbox,
        "pid": container.pid if container.phase is Phase.RUNNING else 0,
        "removing": False,
        "runtimeSpec": {
            "annotations": {"io.kubernetes.cri.sandbox-id": container.sandbox},
            "linux": {"cgroupsPath": container.cgroups_path, "resources": resources},
        },
    }
    return json.dumps(info)


def event_of(
    what: Happening, about: str, sandbox: SandboxRecord, statuses: Iterable[cri.ContainerStatus], created: int
) -> cri.ContainerEventResponse:
    """Return an event; *about* is the id of a container, or that of the sandbox itself."""
    status = cri.PodSandboxStatus(
        id=sandbox.id,
        metadata=_metadata(sandbox),
        state=_ready(sandbox),
        created_at=sandbox.created,
        labels=sandbox.labels,
        annotations=sandbox.annotations,
    )
    return cri.ContainerEventResponse(
        container_id=about,
        container_event_type=_EVENTS[what],
        created_at=created,
        pod_sandbox_status=status,
        containers_statuses=statuses,
    )


def spec_of(linux: cri.LinuxContainerResources) -> Spec:
    """Return the resources of an update request."""
    return Spec(
        shares=linux.cpu_shares,
        quota=linux.cpu_quota,
        period=linux.cpu_period,
        memory=linux.memory_limit_in_bytes,
        cpus=linux.cpuset_cpus,
        mems=linux.cpuset_mems,
    )


def affinity_of(windows: cri.WindowsContainerResources) -> tuple[GroupAffinity, ...]:
    """Return the CPUs in an update request of a Windows container."""
    return tuple(GroupAffinity(found.cpu_mask, found.cpu_group) for found in windows.affinity_cpus)


def is_listed(container: ContainerRecord, wanted: cri.ContainerFilter) -> bool:
    """Whether a filter lets a container through."""
    return (
        container.id.startswith(wanted.id)
        and (not wanted.pod_sandbox_id or container.sandbox == wanted.pod_sandbox_id)
        and (not wanted.HasField("state") or _STATES[container.phase] == wanted.state.state)
        and _has(container.labels, wanted.label_selector)
    )


def is_sandbox_listed(sandbox: SandboxRecord, wanted: cri.PodSandboxFilter) -> bool:
    """Whether a filter lets a sandbox through."""
    return (
        sandbox.id.startswith(wanted.id)
        and (not wanted.HasField("state") or _ready(sandbox) == wanted.state.state)
        and _has(sandbox.labels, wanted.label_selector)
    )


def _has(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return wanted.items() <= labels.items()


def _metadata(sandbox: SandboxRecord) -> cri.PodSandboxMetadata:
    pod = sandbox.pod
    return cri.PodSandboxMetadata(name=pod.name, uid=pod.uid, namespace=pod.namespace, attempt=sandbox.attempt)


def _ready(sandbox: SandboxRecord) -> cri.PodSandboxState:
    return cri.SANDBOX_READY if sandbox.ready else cri.SANDBOX_NOTREADY


def _linux(spec: Spec) -> cri.ContainerResources:
    linux = cri.LinuxContainerResources(
        cpu_shares=spec.shares,
        cpu_quota=spec.quota,
        cpu_period=spec.period,
        memory_limit_in_bytes=spec.memory,
        cpuset_cpus=spec.cpus,
        cpuset_mems=spec.mems,
    )
    return cri.ContainerResources(linux=linux)


def _windows(container: ContainerRecord) -> cri.WindowsContainerResources:
    affinity = [cri.WindowsCpuGroupAffinity(cpu_mask=mask, cpu_group=group) for mask, group in container.affinity]
    return cri.WindowsContainerResources(
        cpu_shares=container.told.shares, memory_limit_in_bytes=container.told.memory, affinity_cpus=affinity
    )
