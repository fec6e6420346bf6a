"""Hint, and a resource's hints as a list, indexed so that merging need not read each.

Knows nothing of CPUs: devices and memory have lists, the CPUs' own hints are in `cpu`. A mask here is
an int over NUMA node ids, which may have gaps: nodes 0 and 8 are the mask 0x101.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, Self

from pinfold.core.machine.cpuset import cpus_of, format_list

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Hint(NamedTuple):
    """NUMA nodes that could serve a request, and whether the resource prefers them.

    >>> print(Hint.of(0, 1, 8), Hint.of(2, preferred=False), Hint(None, preferred=True), sep=" ; ")
    NUMA 0-1,8, preferred ; NUMA 2 ; any NUMA, preferred
    """

    affinity: int | None
    """The mask of the nodes; None is any node, which differs from all nodes."""
    preferred: bool

    @classmethod
    def of(cls, *nodes: int, preferred: bool = True) -> Self:
        """Return the hint for exactly these nodes."""
        mask = 0
        for node in nodes:
            mask |= 1 << node
        return cls(mask, preferred)

    @property
    def nodes(self) -> list[int] | None:
        """The ids of the nodes, ascending; None is any node."""
        return None if self.affinity is None else cpus_of(self.affinity)

    def __str__(self) -> str:
        where = "any NUMA" if self.affinity is None else f"NUMA {format_list(self.affinity) or 'none'}"
        return f"{where}, preferred" if self.preferred else where


class Hints(Protocol):
    """All hints for one resource. If empty (and so false), the request cannot be satisfied."""

    @property
    def singles(self) -> int:
        """The nodes that are a preferred hint each by itself, as one mask."""
        ...

    @property
    def any_preferred(self) -> bool:
        """Whether one hint says: any node, preferred."""
        ...

    @property
    def narrowest(self) -> int:
        """The fewest nodes that a hint names; 0 if none names any."""
        ...

    def prefers(self, mask: int) -> bool:
        """Whether exactly these nodes are a preferred hint."""
        ...

    def __iter__(self) -> Iterator[Hint]: ...
    def __bool__(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class HintList:
    """Hints as they were listed, in any order, with repeats or without.

    >>> devices = HintList([Hint.of(1), Hint.of(0, 1, preferred=False)])
    >>> devices.narrowest, devices.prefers(0b10), devices.prefers(0b11)
    (1, True, False)
    """

    hints: tuple[Hint, ...]
    masks: frozenset[int] = field(init=False, repr=False, compare=False)
    """The masks of all hints that have one."""
    preferred: frozenset[int] = field(init=False, repr=False, compare=False)
    """The masks of the preferred ones."""
    has_any: bool = field(init=False, repr=False, compare=False)
    """Whether a hint, preferred or not, says: any node. True for an empty list, which limits no other resource."""
    any_preferred: bool = field(init=False, repr=False, compare=False)
    singles: int = field(init=False, repr=False, compare=False)
    narrowest: int = field(init=False, repr=False, compare=False)

    def __init__(self, hints: Iterable[Hint]) -> None:
        hints = tuple(hints)
        masks = {hint.affinity for hint in hints}
        preferred = {affinity for affinity, is_preferred in hints if is_preferred}
        index = {
            "hints": hints,
            "has_any": None in masks or not hints,
            "any_preferred": None in preferred,
            "masks": frozenset(mask for mask in masks if mask is not None),
            "preferred": frozenset(mask for mask in preferred if mask is not None),
            "singles": sum(mask for mask in preferred if mask is not None and mask.bit_count() == 1),
            "narrowest": min((mask.bit_count() for mask in masks if mask is not None), default=0),
        }
        for name, value in index.items():
            object.__setattr__(self, name, value)

    def prefers(self, mask: int) -> bool:
        """Whether exactly these nodes are a preferred hint."""
        return mask in self.preferred

    def __iter__(self) -> Iterator[Hint]:
        return iter(self.hints)

    def __len__(self) -> int:
        return len(self.hints)

    def __bool__(self) -> bool:
        return bool(self.hints)


UNSATISFIABLE: Final = HintList(())
"""The hints of an unavailable resource; a resource without a preference has None instead of hints."""
