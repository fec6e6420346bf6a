"""Events: everything that happens on a node, as frozen values of one closed union.

A module here is a section of docs/reference/events.md, and a class in it is a row: its docstring says what it means,
`what` is its word in the log, the event stream and the journal, and its fields are the fields there. `measures` has
the events that are only counted: they have no word, and no entry is made of them.

This package makes no entry, keeps no number and no time, and does not know who listens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.core.events.daemon import DaemonEvent
from pinfold.core.events.decisions import DecisionEvent
from pinfold.core.events.measures import Measured
from pinfold.core.events.repairs import RepairEvent
from pinfold.core.events.running import RunningEvent

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import UnionType

__all__ = ["GROUPS", "Event", "Measured", "Told"]

Told = DecisionEvent | RunningEvent | RepairEvent | DaemonEvent
"""The events that become entries: in the log, the event stream and the journal."""
Event = Told | Measured

GROUPS: Final[Mapping[str, UnionType]] = {
    "Decisions": DecisionEvent,
    "What runs": RunningEvent,
    "What was repaired, or could not be": RepairEvent,
    "The daemon": DaemonEvent,
}
"""The sections of docs/reference/events.md."""
