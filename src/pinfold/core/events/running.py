"""Processes and containers that start, end, or run without their CPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pinfold.core.values import value

if TYPE_CHECKING:
    from pinfold.core.events.about import PodName
    from pinfold.core.machine.cpuset import CPUSet


@value()
class Started:
    """A container's process has started."""

    what: ClassVar = "started"
    pod: PodName
    container: str
    pid: int


@value()
class Ended:
    """A container's process has ended; no `code` if it is no child of ours; `output`: last lines after a failure."""

    what: ClassVar = "ended"
    pod: PodName
    container: str
    code: int | None = None
    output: str = ""


@value()
class CannotStart:
    """A container's command cannot be run."""

    what: ClassVar = "cannot-start"
    pod: PodName
    container: str
    why: str


@value()
class NeverAttached:
    """`pinfold run` has ended before it started its command."""

    what: ClassVar = "never-attached"
    pod: PodName


@value()
class GivenBack:
    """Adopted processes continue without pinfold, in their original cgroups."""

    what: ClassVar = "given-back"
    pod: PodName
    container: str
    pids: tuple[int, ...]


@value(kw_only=True)
class NotEnded:
    """The daemon could not end processes; it tries again."""

    what: ClassVar = "not-ended"
    pod: PodName | None = None
    container: str = ""
    why: str


@value()
class NotReleased:
    """The daemon could not take back the CPUs of ended containers; it tries again."""

    what: ClassVar = "not-released"
    why: str


@value()
class Found:
    """The daemon has found a process of an earlier daemon that is in no file, and shows it again."""

    what: ClassVar = "found"
    pod: PodName
    container: str


@value()
class Verified:
    """Before a container's first instruction, it and all others had their CPUs."""

    what: ClassVar = "verified"
    pod: PodName
    container: str
    cpus: CPUSet


@value(kw_only=True)
class NotVerified:
    """A container runs, but its CPUs could not be verified."""

    what: ClassVar = "not-verified"
    pod: PodName | None = None
    container: str
    why: str


@value()
class RanUnpinned:
    """A container ran for some seconds before it had its CPUs."""

    what: ClassVar = "ran-unpinned"
    pod: PodName
    container: str
    seconds: float


@value(kw_only=True)
class RunsUnpinned:
    """A container runs without its exclusive CPUs; it gets them as soon as enough are free."""

    what: ClassVar = "runs-unpinned"
    pod: PodName | None = None
    container: str
    why: str


@value()
class Vanished:
    """A pod has gone and the container runtime did not say so."""

    what: ClassVar = "vanished"
    pod: PodName


RunningEvent = (
    Started
    | Ended
    | CannotStart
    | NeverAttached
    | GivenBack
    | NotEnded
    | NotReleased
    | Found
    | Verified
    | NotVerified
    | RanUnpinned
    | RunsUnpinned
    | Vanished
)
