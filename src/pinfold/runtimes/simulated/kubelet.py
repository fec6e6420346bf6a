"""Kubelet: the values that a kubelet passes to its runtime for a pod: cgroups, labels, annotations, shares, quotas.

Derives values and does nothing. The CPU Manager of this kubelet has the policy none: it asks for no CPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from pinfold.core.pods.pod import QoS, peak_cpu_limit
from pinfold.core.reconcile import Limit
from pinfold.formats.pods.runtime import (
    CONTAINER_NAME,
    DEFAULT_PERIOD,
    POD_NAME,
    POD_NAMESPACE,
    POD_UID,
    RESTART_COUNT,
)
from pinfold.node.podgroups.paths import BESTEFFORT, BURSTABLE, expand_slice
from pinfold.node.podgroups.settings import Quota
from pinfold.runtimes.simulated.record import ContainerRecord, NotInRecord, SandboxRecord, Spec

if TYPE_CHECKING:
    from pinfold.core.pods.pod import Container, Pod

_CLASSES: Final = {QoS.GUARANTEED: "", QoS.BURSTABLE: BURSTABLE, QoS.BEST_EFFORT: BESTEFFORT}
_KUBEPODS: Final = "kubepods"


class CgroupDriver(StrEnum):
    """How cgroups are made; the kubelet and its runtime must agree."""

    CGROUPFS = "cgroupfs"
    SYSTEMD = "systemd"


@dataclass(frozen=True, slots=True)
class Kubelet:
    """A kubelet with these settings; *cgroup_root* is the name of a group at the top, or "" for none."""

    driver: CgroupDriver = CgroupDriver.CGROUPFS
    cgroup_root: str = ""
    cfs_quota: bool = True
    period: int = DEFAULT_PERIOD

    def groups(self) -> tuple[str, ...]:
        """Return the cgroups that it makes before any pod comes: of all pods, then those of each class."""
        return tuple(self._group(name) for name in ("", BURSTABLE, BESTEFFORT))

    def cgroup_parent(self, pod: Pod) -> str:
        """Return the cgroup of a pod.

        >>> from pinfold.core.pods.pod import Pod, PodUID
        >>> pod = Pod(PodUID("1a-2b"), "web")
        >>> Kubelet().cgroup_parent(pod)
        '/kubepods/besteffort/pod1a-2b'
        >>> Kubelet(CgroupDriver.SYSTEMD).cgroup_parent(pod)
        '/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1a_2b.slice'
        """
        # systemd nests at "-", so a kubelet writes "_" for those of a UID.
        uid = pod.uid.replace("-", "_") if self.driver is CgroupDriver.SYSTEMD else pod.uid
        return self._group(_CLASSES[pod.qos], f"pod{uid}")

    def pod_quota(self, pod: Pod) -> Quota:
        """Return the limit of CPU time of a pod's cgroup; none if a container has none."""
        limit = peak_cpu_limit(pod)
        if limit is None or not self.cfs_quota or pod.qos is QoS.BEST_EFFORT:
            return Quota(None)
        return Quota.of_millicpu(limit, self.period)

    def spec(self, pod: Pod, name: str) -> Spec:
        """Return the resources of a container.

        One without a limit in a pod with pod-level resources is given the limit of the whole pod.
        """
        own, level = _find(pod, name).resources, pod.resources
        limit = own.limits.cpu or (level.limits.cpu if level else None)
        memory = own.limits.memory or (level.limits.memory if level else None)
        request = own.requests.cpu if own.requests.cpu is not None else limit
        cpu = Limit(request or 0, limit, self.period)
        if not self.cfs_quota:
            return Spec(cpu.shares, memory=memory or 0)
        return Spec(cpu.shares, cpu.quota or 0, cpu.period, memory or 0)

    def sandbox(self, pod: Pod, sandbox_id: str, attempt: int, created: int) -> SandboxRecord:
        """Return the sandbox that a kubelet asks for."""
        parent = self.cgroup_parent(pod)
        return SandboxRecord(
            id=sandbox_id,
            pod=pod,
            attempt=attempt,
            cgroup_parent=parent,
            cgroups_path=_cgroups_path(parent, sandbox_id),
            labels={**pod.labels, **_names(pod)},
            annotations={**pod.annotations, "kubernetes.io/config.source": "api"},
            created=created,
        )

    def container(
        self, sandbox: SandboxRecord, name: str, container_id: str, attempt: int, created: int
    ) -> ContainerRecord:
        """Return the container that a kubelet asks for."""
        spec = self.spec(sandbox.pod, name)
        return ContainerRecord(
            id=container_id,
            sandbox=sandbox.id,
            name=name,
            attempt=attempt,
            cgroups_path=_cgroups_path(sandbox.cgroup_parent, container_id),
            spec=spec,
            told=spec,
            labels={CONTAINER_NAME: name, **_names(sandbox.pod)},
            annotations={RESTART_COUNT: str(attempt)},
            created=created,
        )

    def _group(self, *names: str) -> str:
        parts = [part for part in (self.cgroup_root, _KUBEPODS, *names) if part]
        if self.driver is CgroupDriver.SYSTEMD:
            parts = list(expand_slice(f"{'-'.join(parts)}.slice"))
        return "/" + "/".join(parts)


def _names(pod: Pod) -> dict[str, str]:
    return {POD_NAME: pod.name, POD_NAMESPACE: pod.namespace, POD_UID: pod.uid}


def _find(pod: Pod, name: str) -> Container:
    containers = {container.name: container for container in pod.all_containers}
    if name not in containers:
        raise NotInRecord(f"container of pod {pod.name}", f"{name}; it has {', '.join(containers)}")
    return containers[name]


def _cgroups_path(parent: str, container_id: str) -> str:
    """Return the path in a container's OCI spec; runc wants the slice alone where systemd makes the groups."""
    above = parent.rpartition("/")[2]
    return f"{above}:cri-containerd:{container_id}" if above.endswith(".slice") else f"{parent}/{container_id}"
