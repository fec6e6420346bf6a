"""Local memory: whether the memory and hugepages of a container are left at the NUMA nodes of its CPUs.

A container with local memory gets memory from these nodes alone, and the kernel ends it if they have none left. Plans
and the daemon decide by this rule; they differ in what they know to be left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.core.pods.pod import ANNOTATION_PREFIX
from pinfold.core.stock import is_memory
from pinfold.core.topologymanager.others import NotEnoughLocalMemory

if TYPE_CHECKING:
    from collections.abc import Callable

    from pinfold.core.admission import Admission
    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import ContainerRef, Pod
    from pinfold.core.state import State
    from pinfold.core.stock import Stock

    MemoryNodes = Callable[[ContainerRef, CPUSet], CPUSet]
    """Returns the NUMA nodes from which a container with these CPUs gets its memory."""

LOCAL_MEMORY: Final = f"{ANNOTATION_PREFIX}local-memory"
_ANSWERS: Final = {"true": True, "false": False}


def asks_for_local_memory(pod: Pod) -> bool | None:
    """Return what the annotation of a pod says; None if it says nothing."""
    return _ANSWERS.get(pod.annotations.get(LOCAL_MEMORY, ""))


def with_local_memory(pod: Pod, stock: Stock, admission: Admission, before: State, nodes_of: MemoryNodes) -> Admission:
    """Return the admission of a pod with local memory: a refusal if *stock* has too little at the nodes of new CPUs."""
    if not stock.total or admission.refusal is not None:
        return admission
    hints, containers = stock.hints(pod), {one.name: one for one in pod.all_containers}
    for ref, cpus in admission.state.of_pod(pod.uid):
        if before.cpus(*ref) == cpus or ref.name not in containers:
            continue
        nodes = nodes_of(ref, cpus)
        if not nodes:  # no memory is near: it uses that of any node, as the event memory-not-local tells
            continue
        for name, need in stock.needs(pod, containers[ref.name]).items():
            left = sum(hints.stock.left[name].get(node, 0) for node in nodes)
            if is_memory(name) and left < need:
                refusal = NotEnoughLocalMemory(name, need, left, nodes)
                return admission._replace(state=before, decisions={}, refusal=refusal, container=ref.name)
        hints = hints.taken(ref.name, nodes.mask)
    return admission
