"""Differences from the wanted state, and whether they could be repaired."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, ClassVar

from pinfold.core.events.about import FOUND
from pinfold.core.values import value

if TYPE_CHECKING:
    from pinfold.core.events.about import PodName
    from pinfold.core.machine.cpuset import CPUSet


@value(kw_only=True)
class Drifted:
    """Another program has changed the CPUs, limits or processes of a container or of a pool; it is repaired."""

    what: ClassVar = "drift"
    pod: PodName | None = None
    container: str = ""
    pool: str = ""
    cause: str
    found: CPUSet = field(metadata=FOUND)
    wanted: CPUSet
    why: str = ""


@value(kw_only=True)
class NotRepaired:
    """A container or a pool could not be repaired; `why` if that is not its CPUs, or if nothing could be changed."""

    what: ClassVar = "not-repaired"
    pod: PodName | None = None
    container: str = ""
    pool: str = ""
    found: CPUSet | None = field(default=None, metadata=FOUND)
    wanted: CPUSet | None = None
    why: str = ""


@value(kw_only=True)
class Fought:
    """Another program has undone a repair several times in a row: find it and stop it. Repairs become less frequent."""

    what: ClassVar = "fight"
    pod: PodName | None = None
    container: str = ""
    pool: str = ""
    cause: str
    times: int


@value()
class LostUpdate:
    """A container was created with other CPUs than pinfold told its runtime; repaired before it ran."""

    what: ClassVar = "lost-update"
    pod: PodName
    container: str
    found: CPUSet
    wanted: CPUSet


@value()
class ReconcileFailed:
    """The actual state could not be checked; the daemon tries again."""

    what: ClassVar = "reconcile-failed"
    why: str


@value()
class Degraded:
    """A container has fewer CPUs than it asks for: some have gone, and no others can replace them; `why` says so."""

    what: ClassVar = "degraded"
    pod: PodName
    container: str
    cpus: CPUSet
    why: str


@value()
class Hotplugged:
    """CPUs have gone offline or come online; containers on offline CPUs get others."""

    what: ClassVar = "hotplug"
    offline: CPUSet
    online: CPUSet


@value()
class HotplugRefused:
    """The configuration does not fit the online CPUs, for example because a reserved one is offline."""

    what: ClassVar = "hotplug-refused"
    why: str


@value()
class Shielded:
    """The rest of the host was moved: it uses all CPUs except these from now on; none: it uses all CPUs again."""

    what: ClassVar = "shielded"
    cpus: CPUSet = field(metadata=FOUND)
    moved: str


@value()
class NotShielded:
    """Something of the host stays on exclusive CPUs, or could not be given back; `why` has the first reason."""

    what: ClassVar = "not-shielded"
    places: str
    why: str


RepairEvent = (
    Drifted
    | NotRepaired
    | Fought
    | LostUpdate
    | ReconcileFailed
    | Degraded
    | Hotplugged
    | HotplugRefused
    | Shielded
    | NotShielded
)
