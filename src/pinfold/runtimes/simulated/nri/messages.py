"""The record of a scripted runtime ↔ the messages of NRI, with the fields that containerd fills."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.formats.pods.runtime import Phase
from pinfold.proto import nri_pb2 as nri
from pinfold.runtimes.simulated.record import Spec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pinfold.runtimes.simulated.record import ContainerRecord, SandboxRecord

_STATES: Final = {
    Phase.CREATED: nri.CONTAINER_CREATED,
    Phase.RUNNING: nri.CONTAINER_RUNNING,
    Phase.STOPPED: nri.CONTAINER_STOPPED,
    Phase.UNKNOWN: nri.CONTAINER_UNKNOWN,
}
_KIND: Final = "io.cri-containerd.kind"
_CRI: Final = "io.kubernetes.cri."
_TYPE: Final = f"{_CRI}container-type"


def pod_of(sandbox: SandboxRecord) -> nri.PodSandbox:
    """Return a sandbox as plugins get it; NRI does not say whether it is ready."""
    logs = f"/var/log/pods/{sandbox.pod.namespace}_{sandbox.pod.name}_{sandbox.pod.uid}"
    named = {f"{_CRI}podsandbox.image-name": "localhost/pause:1", f"{_CRI}sandbox-log-directory": logs}
    return nri.PodSandbox(
        id=sandbox.id,
        name=sandbox.pod.name,
        uid=sandbox.pod.uid,
        namespace=sandbox.pod.namespace,
        labels={**sandbox.labels, _KIND: "sandbox"},
        annotations={**sandbox.annotations, **_annotations(sandbox), **named, _TYPE: "sandbox"},
        linux=nri.LinuxPodSandbox(cgroup_parent=sandbox.cgroup_parent),
    )


def container_of(sandbox: SandboxRecord, container: ContainerRecord) -> nri.Container:
    """Return a container as plugins get it."""
    resources = nri.LinuxResources(cpu=_cpu(container.spec))
    named = {f"{_CRI}container-name": container.name, f"{_CRI}image-name": f"localhost/{container.name}:1"}
    return nri.Container(
        id=container.id,
        pod_sandbox_id=sandbox.id,
        name=container.name,
        state=_STATES[container.phase],
        labels={**container.labels, _KIND: "container"} if container.labels else {},
        annotations={**container.annotations, **_annotations(sandbox), **named, _TYPE: "container"},
        linux=nri.LinuxContainer(resources=resources, cgroups_path=container.cgroups_path),
        pid=container.pid,
    )


def asked_of(spec: Spec) -> nri.LinuxResources:
    """Return the resources of an update: containerd sends all three numbers, 0 where CRI left one out."""
    cpu = _cpu(spec)
    cpu.shares.value, cpu.quota.value, cpu.period.value = spec.shares, spec.quota, spec.period
    return nri.LinuxResources(cpu=cpu)


def spec_of(resources: nri.LinuxResources) -> Spec:
    """Return what a plugin sets; like CRI, containerd takes 0 for not set."""
    cpu = resources.cpu
    return Spec(shares=cpu.shares.value, quota=cpu.quota.value, period=cpu.period.value, cpus=cpu.cpus, mems=cpu.mems)


def pieces_of(
    pods: Sequence[nri.PodSandbox], containers: Sequence[nri.Container], most: int
) -> list[nri.SynchronizeRequest]:
    """Return all pods and containers in requests of at most *most* bytes each; all but the last have `more`."""
    longest = each = max(len(pods), len(containers), 1)
    while True:
        starts = range(0, longest, each)
        pieces = [
            nri.SynchronizeRequest(
                pods=pods[at : at + each], containers=containers[at : at + each], more=at + each < longest
            )
            for at in starts
        ]
        if each == 1 or all(piece.ByteSize() <= most for piece in pieces):
            return pieces
        each = (each + 1) // 2


def _cpu(spec: Spec) -> nri.LinuxCPU:
    return nri.LinuxCPU(
        shares=nri.OptionalUInt64(value=spec.shares) if spec.shares else None,
        quota=nri.OptionalInt64(value=spec.quota) if spec.quota else None,
        period=nri.OptionalUInt64(value=spec.period) if spec.period else None,
        cpus=spec.cpus,
        mems=spec.mems,
    )


def _annotations(sandbox: SandboxRecord) -> dict[str, str]:
    about = {"id": sandbox.id, "name": sandbox.pod.name, "namespace": sandbox.pod.namespace, "uid": sandbox.pod.uid}
    return {f"{_CRI}sandbox-{key}": value for key, value in about.items()}
