"""What is only counted: how long things took, and what became of them. None of it is logged, streamed or journaled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pinfold.core.admission import Admission, Admitter
    from pinfold.core.pods.pod import ContainerRef, Pod
    from pinfold.core.reconcile import Drift, Wanted
    from pinfold.core.state import State


@dataclass(frozen=True, slots=True)
class Configured:
    """From now on this Admitter decides."""

    admitter: Admitter


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision was made, be it a refusal."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A pod that asked to be let in has its answer; not *ok*: it was let in, and that could not be applied."""

    pod: Pod
    before: State
    admission: Admission
    seconds: float
    """From the request to the answer."""
    ok: bool = True


@dataclass(frozen=True, slots=True)
class Left:
    """Containers are gone, whether or not they had CPUs of their own."""

    containers: Sequence[ContainerRef]


@dataclass(frozen=True, slots=True)
class Saved:
    """A State was saved, or not *ok*: it could not be."""

    seconds: float
    ok: bool = True


@dataclass(frozen=True, slots=True)
class Applied:
    """A State was applied and read back, or not *ok*: it could not be."""

    seconds: float
    ok: bool = True


@dataclass(frozen=True, slots=True)
class Looked:
    """The actual state was checked: what was not as wanted, and what of it could not be repaired."""

    want: Wanted
    found: Sequence[Drift]
    left: Sequence[Drift]
    now: float
    """What the clock for measuring says."""


Measured = Configured | Decided | Judged | Left | Saved | Applied | Looked
