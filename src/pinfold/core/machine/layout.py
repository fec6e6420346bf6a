"""Layout: how the groups of one machine nest, for pictures.

Knows nothing of characters, pixels or colours. Nesting is chosen for each machine so that groups are drawn whole: an
uncore cache that spans NUMA nodes is outside of them, a NUMA node that spans sockets is outside of these.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from itertools import permutations
from typing import TYPE_CHECKING, Final, TypeVar

from pinfold.core.machine.devices import describe_devices
from pinfold.core.machine.summary import summary
from pinfold.core.values import value

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    from pinfold.core.machine.topology import CPUInfo, Topology

_Key = TypeVar("_Key", bound="Hashable")


class GroupKind(StrEnum):
    """A kind of group that is drawn as a box; the value is its name for users."""

    SOCKET = "Socket"
    NUMA = "NUMA"
    UNCORE = "L3"


_FIELDS: Final[Mapping[GroupKind, int]] = {GroupKind.SOCKET: 2, GroupKind.NUMA: 3, GroupKind.UNCORE: 4}
"""The name of its column in a row of the Topology."""


@value()
class Name:
    """A group that a box stands for; without an id, CPUs whose group the machine does not report.

    >>> print(Name(GroupKind.NUMA, 3), Name(GroupKind.UNCORE, None), Name(GroupKind.UNCORE, 0, whole=False), sep=" ; ")
    NUMA 3 ; L3 unknown ; L3 0 (part)
    """

    kind: GroupKind
    id: int | None
    whole: bool = True

    def __str__(self) -> str:
        return f"{self.kind} {'unknown' if self.id is None else self.id}{'' if self.whole else ' (part)'}"


@value()
class Box:
    """One group, or several of different kinds with the very same CPUs; holds boxes, or cores when it is innermost."""

    names: tuple[Name, ...]
    cores: tuple[tuple[int, ...], ...]
    """The CPUs of each core in the box, whether or not it holds boxes."""
    boxes: tuple[Box, ...] = ()

    @property
    def label(self) -> str:
        """The label of the box."""
        return " · ".join(map(str, self.names)) or "Machine"

    @property
    def kind(self) -> GroupKind:
        """The outermost kind of group that the box stands for."""
        return self.names[0].kind if self.names else GroupKind.SOCKET

    def data(self) -> dict[str, object]:
        """Return the box as JSON-ready data; the cores stand in the innermost boxes."""
        boxes = [box.data() for box in self.boxes]
        cores = [] if boxes else [list(core) for core in self.cores]
        return {"label": self.label, "kind": self.kind.name.lower(), "boxes": boxes, "cores": cores}

    def leaves(self) -> Iterator[Box]:
        """Return the innermost boxes."""
        return (leaf for box in self.boxes for leaf in box.leaves()) if self.boxes else iter((self,))


@value()
class Layout:
    """All boxes of a machine, level by level: every outermost box has the same kinds of boxes in it."""

    levels: tuple[tuple[GroupKind, ...], ...]
    boxes: tuple[Box, ...]

    def at(self, depth: int) -> Sequence[Box]:
        """Return all boxes *depth* levels below the outermost ones."""
        boxes = self.boxes
        for _ in range(depth):
            boxes = tuple(inner for box in boxes for inner in box.boxes)
        return boxes


def layout(topology: Topology, *, merge: bool = True) -> Layout:
    """Return how the groups of *topology* nest; kinds that the machine does not report have no boxes.

    With *merge*, one box stands for several kinds of groups where they are the same CPUs throughout the machine.

    >>> from pinfold.core.machine.presets import preset
    >>> layout(preset("sockets:1,l3:1,numa:2,cores:2")).levels
    ((<GroupKind.SOCKET: 'Socket'>, <GroupKind.UNCORE: 'L3'>), (<GroupKind.NUMA: 'NUMA'>,))
    """
    rows = topology.cpus
    kinds = [kind for kind in GroupKind if any(row[_FIELDS[kind]] is not None for row in rows)]
    order = min(permutations(kinds), key=lambda kinds: _pieces(rows, kinds))
    levels = _levels(rows, order) if merge else tuple((kind,) for kind in order)
    whole = {kind: Counter(row[_FIELDS[kind]] for row in rows) for kind in kinds}
    return Layout(levels or ((),), _boxes(rows, levels or ((),), whole))


def layout_data(topology: Topology) -> dict[str, object]:
    """Return the contents of a picture of *topology* as JSON-ready data: boxes, and remarks on the rest.

    >>> from pinfold.core.machine.presets import preset
    >>> layout_data(preset("cores:1,threads:2"))["boxes"]
    [{'label': 'Socket 0 · NUMA 0 · L3 0', 'kind': 'socket', 'boxes': [], 'cores': [[0, 1]]}]
    """
    drawn = layout(topology)
    return {
        "summary": summary(topology),
        "depth": len(drawn.levels),
        "threads": topology.threads_per_core,
        "boxes": [box.data() for box in drawn.boxes],
        "offline": str(topology.offline),
        "memory_only": list(topology.memory_only),
        "devices": describe_devices(topology.devices),
    }


def _pieces(rows: Sequence[CPUInfo], order: Sequence[GroupKind]) -> int:
    """Return how many boxes this order of nesting needs; a group cut by an outer one counts twice."""
    labels = [[row[_FIELDS[kind]] for kind in order] for row in rows]
    return sum(
        len({tuple(label[:depth]) for label in labels if label[depth - 1] is not None})
        for depth in range(1, len(order) + 1)
    )


def _levels(rows: Sequence[CPUInfo], order: Sequence[GroupKind]) -> tuple[tuple[GroupKind, ...], ...]:
    """Return *order* with kinds joined if all their groups have the same CPUs."""
    levels: list[tuple[GroupKind, ...]] = []
    for kind in order:
        if levels and _same_groups(rows, _FIELDS[levels[-1][-1]], _FIELDS[kind]):
            levels[-1] += (kind,)
        else:
            levels.append((kind,))
    return tuple(levels)


def _same_groups(rows: Sequence[CPUInfo], a: int, b: int) -> bool:
    both = {(row[a], row[b]) for row in rows}
    return len(both) == len({row[a] for row in rows}) == len({row[b] for row in rows})


def _boxes(
    rows: Sequence[CPUInfo], levels: Sequence[Sequence[GroupKind]], whole: Mapping[GroupKind, Mapping[int | None, int]]
) -> tuple[Box, ...]:
    if not levels:
        return ()
    kinds, *inner = levels
    boxes = []
    for labels, members in _by(rows, lambda row: tuple(row[_FIELDS[kind]] for kind in kinds)).items():
        names = tuple(
            Name(kind, label, label is None or whole[kind][label] == len(members))
            for kind, label in zip(kinds, labels, strict=True)
        )
        boxes.append((labels, Box(names, _cores(members), _boxes(members, inner, whole))))
    boxes.sort(key=lambda pair: [(label is None, label or 0) for label in pair[0]])
    return tuple(box for _, box in boxes)


def _cores(rows: Iterable[CPUInfo]) -> tuple[tuple[int, ...], ...]:
    cores = _by(rows, lambda row: (row.core is None, row.cpu if row.core is None else row.core))
    return tuple(tuple(row.cpu for row in core) for core in cores.values())


def _by(rows: Iterable[CPUInfo], key: Callable[[CPUInfo], _Key]) -> dict[_Key, list[CPUInfo]]:
    groups: dict[_Key, list[CPUInfo]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups
