"""Pods with pod-level resources: one set of CPUs for the pod, divided up among its containers.

Sidecars keep their parts, init containers use the rest one after the other, then app containers take their parts;
containers that do not ask for whole CPUs share the rest of the pod's CPUs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.pods.pod import exclusive_cpus
from pinfold.errors import AdmissionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pinfold.core.pods.pod import Container, Pod


class EmptyPodSharedPoolError(AdmissionError):
    """Containers of the pod that share CPUs would have none; the texts are the kubelet's."""

    reason = "EmptyPodSharedPoolError"

    def __init__(self, *, during_init: bool) -> None:
        if during_init:
            text = "pod has shared init containers but no cpus available for them"
        else:
            text = "sum of exclusive container cpu requests equals pod budget, leaving no cpus for shared containers"
        super().__init__(f"pod rejected, {text}")


def check_budget(pod: Pod, budget: int) -> None:
    """Raise if containers that share CPUs would have none."""
    used = 0
    for container in pod.init:
        cpus = _exclusive(pod, container)
        if container.sidecar:
            used += cpus
        elif not cpus and used >= budget:
            raise EmptyPodSharedPoolError(during_init=True)
    lasting = [container for container in pod.init if container.sidecar] + list(pod.containers)
    used += sum(_exclusive(pod, container) for container in pod.containers)
    if used >= budget and not all(_exclusive(pod, container) for container in lasting):
        raise EmptyPodSharedPoolError(during_init=False)


def divide(pod: Pod, cpus: int, take: Callable[[int, int], int]) -> dict[str, CPUSet]:
    """Return the part of each container in the pod's CPUs; *take* chooses a number of them."""
    parts: dict[str, int] = {}
    free = cpus
    for container in pod.all_containers:
        count = _exclusive(pod, container)
        passing = container in pod.init and not container.sidecar
        if count:
            parts[container.name] = take(free, count)
            if not passing:
                free &= ~parts[container.name]
        elif passing:
            parts[container.name] = free
    return {container.name: CPUSet(parts.get(container.name, free)) for container in pod.all_containers}


def _exclusive(pod: Pod, container: Container) -> int:
    return exclusive_cpus(pod, container, pod_level=True)
