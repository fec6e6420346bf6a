"""Pods that ask to be near devices of the machine (`pinfold.dev/near`): at which NUMA nodes these are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.core.events.daemon import Warned
from pinfold.core.localmemory import LOCAL_MEMORY
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.topologymanager.others import NO_OTHERS, WHOLE, Held, Holding
from pinfold.errors import PinfoldError
from pinfold.formats.pods.annotations import PREFIX, parse_annotations
from pinfold.formats.pods.runtime import told_uid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pinfold.core.events import Event
    from pinfold.core.machine.topology import Topology
    from pinfold.core.pods.pod import Pod
    from pinfold.core.topologymanager.others import OtherHints
    from pinfold.formats.pods.runtime import RuntimePod
    from pinfold.manager.cluster import HintSource
    from pinfold.node.machine.devices import Devices

NEAR: Final = f"{PREFIX}near"
_READ: Final = (NEAR, LOCAL_MEMORY)


def near_devices(devices: Devices, pod: Pod | RuntimePod) -> Held:
    """Return the devices that a pod asks to be near, as hints of each of its containers; or raise what is wrong."""
    asked = pod.annotations and {key: pod.annotations[key] for key in _READ if key in pod.annotations}
    if not asked:
        return NO_OTHERS
    names = dict.fromkeys(parse_annotations(asked, source=f"pod {pod.name}").near)
    holdings = tuple(Holding(name, (devices.find(name).nodes,)) for name in names)
    return Held({WHOLE: holdings}, is_asked=True) if names else NO_OTHERS


class NodeHints:
    """The other resources of pods on a Kubernetes node: as the kubelet reports them, and as annotations name them."""

    def __init__(self, kubelet: HintSource | None, devices: Devices, tell: Callable[[Event], object]) -> None:
        self._kubelet = kubelet
        self._devices = devices
        self._tell = tell

    async def find(self, pods: Sequence[RuntimePod]) -> Mapping[str, Held]:
        """Return what the containers of *pods* have or ask to be near, by UID."""
        found = {} if self._kubelet is None else dict(await self._kubelet.find(pods))
        for pod in pods:
            near = self._near(pod)
            if near:
                found[told_uid(pod)] = found.get(told_uid(pod), NO_OTHERS).with_all(near)
        return found

    def _near(self, pod: RuntimePod) -> Held:
        """Return the devices that a pod asks to be near; a wrong annotation is reported, and no hint."""
        try:
            return near_devices(self._devices, pod)
        except PinfoldError as error:
            self._tell(Warned(f"pod {pod.namespace}/{pod.name}: {NEAR}: {error}"))
            return NO_OTHERS


def far_from(others: OtherHints, container: str, cpus: CPUSet, topology: Topology) -> list[str]:
    """Return a warning for each device that some of a container's CPUs are far from."""
    everything = sum(1 << node.id for node in topology.numa_nodes)
    found = []
    for name, hints in others.of(container, everything).items() if others else ():
        nodes = next((hint.nodes for hint in hints if hint.preferred), None) if hints else None
        near = CPUSet(sum(node.mask for node in topology.numa_nodes if nodes and node.id in nodes))
        if nodes and cpus - near:
            where = f"NUMA node {CPUSet.of(*nodes)}, where {name} is"
            found.append(f"{len(cpus & near) or 'none'} of the CPUs {cpus} {_are(len(cpus & near))} at {where}")
    return found


def _are(count: int) -> str:
    return "is" if count <= 1 else "are"
