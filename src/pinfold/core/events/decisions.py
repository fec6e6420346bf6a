"""Decisions: pods admitted with their CPUs, pods refused, and pods gone."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, ClassVar

from pinfold.core.events.about import JOURNAL, STREAM
from pinfold.core.values import value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pinfold.core.events.about import Data, PodName, Rows
    from pinfold.core.machine.cpuset import CPUSet


@value()
class Admitted:
    """The node has admitted a pod, or `only` some of its containers; all others have left their CPUs (read back)."""

    what: ClassVar = "admitted"
    pod: PodName
    document: Data = field(metadata=JOURNAL)
    only: tuple[str, ...] = ()
    """The admitted containers, if not all of the pod are known yet."""


@value()
class Assigned:
    """A container has exclusive CPUs, or other ones than before."""

    what: ClassVar = "assigned"
    pod: PodName
    container: str
    cpus: CPUSet
    steps: Rows = field(default=(), metadata=JOURNAL)
    defects: Rows = field(default=(), metadata=JOURNAL)
    alignment: Data | None = field(default=None, metadata=JOURNAL)


@value()
class Resized:
    """A container has more or fewer exclusive CPUs than `before`; it kept running."""

    what: ClassVar = "resized"
    pod: PodName
    container: str
    before: CPUSet
    cpus: CPUSet
    steps: Rows = field(default=(), metadata=JOURNAL)
    alignment: Data | None = field(default=None, metadata=JOURNAL)


@value()
class ResizeRefused:
    """A container cannot have the `wanted` number of CPUs and keeps those it has; the message has the nearest size."""

    what: ClassVar = "resize-refused"
    pod: PodName
    container: str
    wanted: int
    reason: str
    message: str


@value()
class Announced:
    """A container was told which CPUs it will have; it has `seconds` to get ready."""

    what: ClassVar = "announced"
    pod: PodName
    container: str
    cpus: CPUSet
    seconds: float


@value()
class Moved:
    """A container has other CPUs than `before`, which lowers its `cost` or makes room for the next move."""

    what: ClassVar = "moved"
    pod: PodName
    container: str
    before: CPUSet
    cpus: CPUSet
    cost: str
    lowered: str
    steps: Rows = field(default=(), metadata=JOURNAL)
    alignment: Data | None = field(default=None, metadata=JOURNAL)


@value(kw_only=True)
class Refused:
    """The node has refused a pod; `fixes` says what would make it fit."""

    what: ClassVar = "refused"
    pod: PodName
    container: str = field(default="", metadata=STREAM)
    reason: str
    message: str
    need: str = field(metadata=JOURNAL)
    room: str = field(metadata=JOURNAL)
    fixes: tuple[str, ...] = field(metadata=JOURNAL)
    steps: Rows = field(default=(), metadata=JOURNAL)
    defects: Rows = field(default=(), metadata=JOURNAL)
    document: Data = field(metadata=JOURNAL)


@value()
class NotPinned:
    """A container asks for whole CPUs, but shares CPUs: `why` says what its pod lacks."""

    what: ClassVar = "not-pinned"
    pod: PodName
    container: str
    why: str


@value()
class MemoryNotLocal:
    """A container asks for local memory, but no NUMA node of its CPUs has memory: it uses any node's, as before."""

    what: ClassVar = "memory-not-local"
    pod: PodName
    container: str
    cpus: CPUSet


@value()
class Released:
    """A container's CPUs are shared again."""

    what: ClassVar = "released"
    pod: PodName
    container: str


@value()
class Gone:
    """A pod has left the node."""

    what: ClassVar = "gone"
    pod: PodName


@value()
class StateChanged:
    """The State from now on: saved, applied and read back; `verified` counts the groups read back."""

    what: ClassVar = "state"
    shared: CPUSet = field(metadata=JOURNAL)
    reserved: CPUSet = field(metadata=JOURNAL)
    offline: CPUSet = field(metadata=JOURNAL)
    exclusive: Mapping[str, CPUSet] = field(metadata=JOURNAL)
    """By NAMESPACE/POD/CONTAINER."""
    verified: int | None = field(default=None, metadata=JOURNAL)
    milliseconds: float | None = field(default=None, metadata=JOURNAL)


@value()
class Undone:
    """A decision could not be applied; the daemon has restored the State before it."""

    what: ClassVar = "undone"
    why: str


DecisionEvent = (
    Admitted
    | Assigned
    | Resized
    | ResizeRefused
    | Announced
    | Moved
    | Refused
    | NotPinned
    | MemoryNotLocal
    | Released
    | Gone
    | StateChanged
    | Undone
)
