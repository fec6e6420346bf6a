"""OtherHints: the hints of a pod's resources beside CPUs: devices, memory, hugepages.

`Held` has those of resources that a container has already, from the kubelet or by the name of a device. The planner has
hints of its own, which change as it hands resources out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from pinfold.core.machine.cpuset import cpus_of
from pinfold.core.topologymanager.hint import Hint, HintList
from pinfold.core.topologymanager.masks import MOST_MASKS
from pinfold.errors import AdmissionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.topologymanager.hint import Hints

    Resource = Mapping[str, Hints | None]

WHOLE: Final = ""
"""Stands for the pod as a whole where a container's name is expected."""


class NotEnoughResources(AdmissionError):  # noqa: N818 - the fact, as the others in this family
    """The node does not have as many of a resource left as a pod asks for."""

    reason = "UnexpectedAdmissionError"

    def __init__(self, resource: str, wanted: int, left: int) -> None:
        said = f"requested number of devices unavailable for {resource}. Requested: {wanted}, Available: {left}"
        super().__init__(f"Allocate failed due to {said}, which is unexpected")
        self.resource = resource
        self.wanted = wanted
        self.left = left


class NotEnoughLocalMemory(AdmissionError):  # noqa: N818 - the fact, as the others in this family
    """The NUMA nodes of a container's CPUs do not have as much memory left as it asks for, and it is to be local."""

    reason = "UnexpectedAdmissionError"

    def __init__(self, resource: str, wanted: int, left: int, nodes: CPUSet) -> None:
        self.need = f"{in_mebibytes(wanted)} of {resource} at NUMA {nodes}"
        self.room = f"{in_mebibytes(left)} is left there"
        said = f"not enough local {resource} at NUMA {nodes}. Requested: {wanted}, Available: {left}"
        super().__init__(f"Allocate failed due to {said}, which is unexpected")


def in_mebibytes(amount: int) -> str:
    """Return an amount of memory in words, rounded down.

    >>> in_mebibytes((6 << 30) + 5)
    '6,144 MiB'
    """
    return f"{amount >> 20:,} MiB"


class OtherHints(Protocol):
    """The hints of a pod's other resources; false if it has none."""

    def of(self, container: str, everything: int) -> Resource:
        """Return the hints of a container, or of the pod if it is WHOLE, on a machine with the nodes *everything*."""
        ...

    def taken(self, container: str, affinity: int | None) -> OtherHints:
        """Return the hints after a container was admitted with this affinity."""
        ...

    @property
    def is_asked(self) -> bool:
        """Whether a user has named them for this pod: then they count also with Topology Manager policy none."""
        ...

    def __bool__(self) -> bool: ...


class Holding(NamedTuple):
    """What a container has of one resource."""

    resource: str
    units: tuple[int, ...]
    """The NUMA nodes of each device, as masks."""
    together: bool = False
    """Whether all these nodes are one preferred hint, and no other is one: so memory is assigned."""


@dataclass(frozen=True, slots=True)
class Held:
    """The resources that the containers of a pod have, by container; WHOLE stands for each of them.

    >>> nic = Held({"app": (Holding("nic", (0b10,)),)})
    >>> print(*nic.of("app", 0b11)["nic"], sep=" ; ")
    NUMA 1, preferred ; NUMA 0-1
    """

    by_container: Mapping[str, tuple[Holding, ...]] = field(default_factory=dict, hash=False)
    is_asked: bool = False

    def of(self, container: str, everything: int) -> Resource:
        """Return the hints of a container; those of the pod are of all that its containers have."""
        found: dict[str, Holding] = {}
        for resource, units, together in self._holdings(container):
            before = found[resource].units if resource in found else ()
            found[resource] = Holding(resource, before + units, together)
        return {name: _hints(holding, everything) for name, holding in found.items()}

    def with_all(self, other: Held) -> Held:
        """Return what both have."""
        names = dict.fromkeys((*self.by_container, *other.by_container))
        both = {name: self.by_container.get(name, ()) + other.by_container.get(name, ()) for name in names}
        return Held(both, self.is_asked or other.is_asked)

    def memory(self, container: str) -> int:
        """Return the NUMA nodes of the memory and hugepages that a container has, as a mask."""
        return reduce(or_, (unit for one in self._holdings(container) if one.together for unit in one.units), 0)

    def taken(self, container: str, affinity: int | None) -> Held:  # noqa: ARG002 - they are where they are
        """Return the same: these resources are where they are."""
        return self

    def __bool__(self) -> bool:
        return any(self.by_container.values())

    def _holdings(self, container: str) -> Iterator[Holding]:
        if container != WHOLE:
            yield from self.by_container.get(container, ())
            yield from self.by_container.get(WHOLE, ())
            return
        for holdings in self.by_container.values():
            yield from holdings


NO_OTHERS: Final = Held()


def _hints(holding: Holding, everything: int) -> Hints | None:
    """Return the hints of a resource; None if no unit of it is at a NUMA node of this machine."""
    units = [unit & everything for unit in holding.units if unit & everything]
    if not units:
        return None
    if holding.together:
        return HintList([Hint(reduce(or_, units), preferred=True)])
    return covering(units, everything)


def covering(units: Iterable[int], everything: int) -> HintList:
    """Return the hints of devices: every set of nodes that reaches each of them, the narrowest ones preferred.

    As the kubelet does for devices that it has assigned, except that it prefers the fewest nodes that could have as
    many devices. Of more masks than MOST_MASKS, only the nodes of the devices and all nodes are named.
    """
    units = set(units)
    if 1 << everything.bit_count() > MOST_MASKS:
        every = reduce(or_, units)
        return HintList(dict.fromkeys([Hint(every, preferred=True), Hint(everything, preferred=every == everything)]))
    masks = [mask for mask in _masks(everything) if all(mask & unit for unit in units)]
    fewest = min(mask.bit_count() for mask in masks)
    return HintList(Hint(mask, mask.bit_count() == fewest) for mask in masks)


def _masks(everything: int) -> list[int]:
    """Return all masks of these nodes but the empty one."""
    masks = [0]
    for node in cpus_of(everything):
        masks += [mask | 1 << node for mask in masks]
    return sorted(masks[1:], key=lambda mask: (mask.bit_count(), mask))
