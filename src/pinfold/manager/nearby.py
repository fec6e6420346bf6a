"""Pods that ask to be near devices of the machine (`pinfold.dev/near`): at which NUMA nodes these are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.topologymanager.others import NO_OTHERS, Held, Holding
from pinfold.formats.pods.annotations import PREFIX, parse_annotations

if TYPE_CHECKING:
    from pinfold.core.machine.topology import Topology
    from pinfold.core.pods.pod import Pod
    from pinfold.core.topologymanager.others import OtherHints
    from pinfold.node.devices import Devices

NEAR: Final = f"{PREFIX}near"
LOCAL_MEMORY: Final = f"{PREFIX}local-memory"
_READ: Final = (NEAR, LOCAL_MEMORY)


def near_devices(devices: Devices, pod: Pod) -> Held:
    """Return the devices that a pod asks to be near, as hints of each of its containers; or raise what is wrong."""
    asked = {key: pod.annotations[key] for key in _READ if key in pod.annotations}
    if not asked:
        return NO_OTHERS
    names = dict.fromkeys(parse_annotations(asked, source=f"pod {pod.name}").near)
    holdings = tuple(Holding(name, (devices.find(name).nodes,)) for name in names)
    return Held({container.name: holdings for container in pod.all_containers}, is_asked=True) if names else NO_OTHERS


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
