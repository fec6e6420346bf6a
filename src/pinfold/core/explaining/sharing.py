"""Why a container shares CPUs; and the containers that ask for whole CPUs but share them all the same.

A request of 1 CPU or more that is a whole number, or that misses only that, is meant to be exclusive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.pods.pod import QoS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pinfold.core.pods.pod import Container, Pod, Resources
    from pinfold.core.policies.base import Policy

_MILLI: Final = 1000
_UNKNOWN: Final = 1
"""Bytes of memory that stand for a request which a container runtime does not report."""


class MissedPinning(NamedTuple):
    """A container that asks for whole CPUs, but shares CPUs."""

    pod: Pod
    container: Container
    why: str

    def __str__(self) -> str:
        return f"{self.pod.name}/{self.container.name} {self.what}"

    @property
    def what(self) -> str:
        """Which CPUs the container asks for and why it shares, without its name."""
        cpus = (self.container.resources.requests.cpu or 0) / _MILLI
        whole = "whole " if cpus.is_integer() else ""
        return f"asks for {cpus:g} {whole}CPU{'' if cpus == 1 else 's'} but will share: {self.why}"


def asks_for_whole_cpus(pod: Pod) -> bool:
    """Whether a container of *pod* asks for one or more whole CPUs."""
    amounts = (container.resources.requests.cpu or 0 for container in pod.all_containers)
    return any(milli >= _MILLI and not milli % _MILLI for milli in amounts)


def missed_pinning(policy: Policy, pod: Pod) -> Iterator[MissedPinning]:
    """Yield the containers of *pod* that were meant to have CPUs of their own, and do not get any.

    >>> from pinfold.core.config import Config, Reservation
    >>> from pinfold.core.machine.cpuset import CPUSet
    >>> from pinfold.core.machine.presets import preset
    >>> from pinfold.core.pods.pod import Amounts, Container, Pod, PodUID, Resources
    >>> static = Config("static", reserved=Reservation.of(CPUSet.of(0))).build(preset("cores:8")).policy
    >>> kafka = Container("kafka", Resources(Amounts(4000), Amounts(4000)))
    >>> print(*missed_pinning(static, Pod(PodUID("u"), "kafka", containers=(kafka,))))
    kafka/kafka asks for 4 whole CPUs but will share: it has no memory limit, so the pod is Burstable, not Guaranteed
    """
    if not policy.allocatable:
        return
    for container in pod.all_containers:
        milli = container.resources.requests.cpu or 0
        meant = not milli % _MILLI or pod.qos is QoS.GUARANTEED
        if milli >= _MILLI and meant and not policy.request(pod, container):
            yield MissedPinning(pod, container, _why(policy, pod, container))


def why_shared(policy: Policy, pod: Pod, container: Container) -> str:
    """Return why a container has no exclusive CPUs, in one line."""
    if policy.request(pod, container):
        return "in the shared pool although it asks for whole CPUs"
    return f"in the shared pool because {_why(policy, pod, container)}"


def _why(policy: Policy, pod: Pod, container: Container) -> str:
    if not policy.allocatable:
        return f"policy {policy.name} gives no container exclusive CPUs"
    if pod.qos is not QoS.GUARANTEED:
        cause, therefore = _cause(pod, container), f"the pod is {pod.qos}, not {QoS.GUARANTEED}"
        return f"{cause}, so {therefore}" if cause else therefore
    milli = container.resources.requests.cpu or 0
    if pod.resources is not None and not milli % _MILLI:
        return "its pod has pod-level resources, which it shares"
    return f"{milli / _MILLI:g} CPUs is not a whole number"


def _cause(pod: Pod, container: Container) -> str:
    """Return what keeps the pod from being Guaranteed: a fault of this container, or of the first that has one."""
    if pod.resources is not None:
        fault = _fault(pod.resources)
        return fault and f"the pod as a whole {fault}"
    if fault := _fault(container.resources):
        return f"it {fault}"
    for other in pod.all_containers:
        if fault := _fault(other.resources):
            return f"{'init ' if other in pod.init else ''}container {other.name} {fault}"
    return ""


def _fault(resources: Resources) -> str:
    """Return why resources are not Guaranteed, in words; empty if they are, or if that is not known."""
    requests, limits = resources.requests, resources.limits
    if not limits.cpu and not limits.memory:
        return "has no limits"
    for name, limit in (("CPU", limits.cpu), ("memory", limits.memory)):
        if not limit:
            return f"has no {name} limit"
    if requests.cpu != limits.cpu:
        return "has a CPU request below its limit"
    if requests.memory not in {limits.memory, _UNKNOWN}:
        return "has a memory request below its limit"
    return ""
