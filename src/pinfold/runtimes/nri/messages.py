"""Messages of NRI as values, and values as messages: pods and containers in, CPUs out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.formats.pods.runtime import Phase, RuntimeContainer, RuntimePod
from pinfold.node.notices import ACK, STATE_DIR
from pinfold.proto import nri_pb2 as nri

if TYPE_CHECKING:
    from pinfold.core.machine.cpuset import CPUSet

NOTICE_DIR: Final = "/run/pinfold"
"""Where a container finds the files that tell it of its CPUs."""
_NO_QUOTA: Final = -1
_PHASES: Final = {
    nri.CONTAINER_CREATED: Phase.CREATED,
    nri.CONTAINER_RUNNING: Phase.RUNNING,
    nri.CONTAINER_PAUSED: Phase.RUNNING,
    nri.CONTAINER_STOPPED: Phase.STOPPED,
}


class Pinning(NamedTuple):
    """The CPUs that a container is to have; exclusive ones come without a quota."""

    cpus: CPUSet
    mems: CPUSet | None = None
    exclusive: bool = True
    notice: str = ""
    """The directory in which the container is told of its CPUs, mounted when it is created; empty: none."""


def pod_of(pod: nri.PodSandbox) -> RuntimePod:
    """Return the pod in the runtime's message."""
    return RuntimePod(
        id=pod.id,
        uid=pod.uid,
        name=pod.name,
        namespace=pod.namespace,
        cgroup_parent=pod.linux.cgroup_parent,
        labels=dict(pod.labels),
        annotations=dict(pod.annotations),
    )


def container_of(container: nri.Container) -> RuntimeContainer:
    """Return the container in the runtime's message."""
    found = RuntimeContainer(
        id=container.id,
        pod=container.pod_sandbox_id,
        name=container.name,
        phase=_PHASES.get(container.state, Phase.UNKNOWN),
        labels=dict(container.labels),
        annotations=dict(container.annotations),
        pid=container.pid,
        cgroups_path=container.linux.cgroups_path,
    )
    return with_amounts(found, container.linux.resources)


def with_amounts(container: RuntimeContainer, resources: nri.LinuxResources) -> RuntimeContainer:
    """Return the container with these resources; 0 means not set, as containerd writes it."""
    cpu = resources.cpu
    return container._replace(
        shares=cpu.shares.value or container.shares,
        quota=cpu.quota.value or container.quota,
        period=cpu.period.value or container.period,
        cpus=cpu.cpus or container.cpus,
    )


def adjustment_of(pinning: Pinning) -> nri.ContainerAdjustment:
    """Return the reply that gives a container its CPUs when it is created."""
    adjustment = nri.ContainerAdjustment()
    _set(adjustment.linux.resources.cpu, pinning)
    if pinning.notice:
        _mount(adjustment, pinning.notice)
    return adjustment


def _mount(adjustment: nri.ContainerAdjustment, directory: str) -> None:
    """Mount the directory in which a container is told of its CPUs; it can write one file of it."""
    ack = f"{directory}/{ACK}"
    adjustment.mounts.add(destination=NOTICE_DIR, type="bind", source=directory, options=["rbind", "ro"])
    adjustment.mounts.add(destination=f"{NOTICE_DIR}/{ACK}", type="bind", source=ack, options=["bind", "rw"])
    adjustment.env.add(key=STATE_DIR, value=NOTICE_DIR)


def update_of(container_id: str, pinning: Pinning) -> nri.ContainerUpdate:
    """Return the update that gives a container that exists its CPUs; it may have ended meanwhile."""
    update = nri.ContainerUpdate(container_id=container_id, ignore_failure=pinning.exclusive)
    _set(update.linux.resources.cpu, pinning)
    return update


def _set(cpu: nri.LinuxCPU, pinning: Pinning) -> None:
    cpu.cpus = str(pinning.cpus)
    if pinning.exclusive:
        cpu.quota.value = _NO_QUOTA
    if pinning.mems:
        cpu.mems = str(pinning.mems)
