"""Messages of CRI as values: the pods and containers that a runtime lists, and their status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.formats.pods.runtime import Phase, RuntimeContainer, RuntimePod
from pinfold.proto import cri_pb2 as cri

if TYPE_CHECKING:
    from pinfold.formats.wire.criinfo import Info

_PHASES: Final = {
    cri.CONTAINER_CREATED: Phase.CREATED,
    cri.CONTAINER_RUNNING: Phase.RUNNING,
    cri.CONTAINER_EXITED: Phase.STOPPED,
}


def pod_of(item: cri.PodSandbox) -> RuntimePod:
    """Return a pod as the runtime lists it."""
    return RuntimePod(
        id=item.id,
        uid=item.metadata.uid,
        name=item.metadata.name,
        namespace=item.metadata.namespace,
        labels=dict(item.labels),
        annotations=dict(item.annotations),
        ready=item.state == cri.SANDBOX_READY,
    )


def container_of(item: cri.Container) -> RuntimeContainer:
    """Return a container as the runtime lists it."""
    return RuntimeContainer(
        id=item.id,
        pod=item.pod_sandbox_id,
        name=item.metadata.name,
        phase=_PHASES.get(item.state, Phase.UNKNOWN),
        labels=dict(item.labels),
        annotations=dict(item.annotations),
        attempt=item.metadata.attempt,
        created=item.created_at,
    )


def status_of(status: cri.ContainerStatus, info: Info) -> RuntimeContainer:
    """Return a status with the details of the runtime's OCI spec; without a spec, with the standard fields."""
    linux = status.resources.linux
    return RuntimeContainer(
        id=status.id,
        pod=info.pod,
        name=status.metadata.name,
        phase=_PHASES.get(status.state, Phase.UNKNOWN),
        labels=dict(status.labels),
        annotations=dict(status.annotations),
        attempt=status.metadata.attempt,
        created=status.created_at,
        pid=info.pid,
        cgroups_path=info.cgroups_path,
        shares=info.shares if info.shares is not None else linux.cpu_shares or None,
        quota=info.quota if info.quota is not None else linux.cpu_quota or None,
        period=info.period if info.period is not None else linux.cpu_period or None,
        memory=info.memory if info.memory is not None else linux.memory_limit_in_bytes or None,
        cpus=info.cpus or linux.cpuset_cpus,
        mems=info.mems or linux.cpuset_mems,
        windows=status.resources.HasField("windows"),
    )
