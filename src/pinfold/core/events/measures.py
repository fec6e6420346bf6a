"""Events for the metrics only: durations and results. They are not logged, streamed or journaled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.values import value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pinfold.core.admission import Admission, Admitter
    from pinfold.core.pods.pod import ContainerRef, Pod
    from pinfold.core.reconcile import Drift, Wanted
    from pinfold.core.state import State


@value()
class Configured:
    """The daemon has a new Admitter."""

    admitter: Admitter


@value()
class Decided:
    """A decision was made, possibly a refusal."""

    seconds: float


@value(kw_only=True)
class Judged:
    """A pod has its answer; not *ok*: it was admitted, but that could not be applied."""

    pod: Pod
    before: State
    admission: Admission
    seconds: float
    """From the request to the answer."""
    ok: bool = True
    again: bool = False
    """Whether the pod was refused before, and has waited since."""


@value()
class Left:
    """Containers are gone, with or without exclusive CPUs."""

    containers: Sequence[ContainerRef]


@value()
class Saved:
    """A State was saved; not *ok*: saving failed."""

    seconds: float
    ok: bool = True


@value()
class Applied:
    """A State was applied and read back; not *ok*: that failed."""

    seconds: float
    ok: bool = True


@value()
class Looked:
    """The actual state was checked: differences found, and those that could not be repaired."""

    want: Wanted
    found: Sequence[Drift]
    left: Sequence[Drift]
    now: float
    """The time of the monotonic clock."""


InTurn = Configured | Judged | Left
"""These are counted in the order in which they happened."""
Measured = Configured | Decided | Judged | Left | Saved | Applied | Looked
