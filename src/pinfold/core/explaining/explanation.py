"""Why a container has its CPUs, shares CPUs, or was refused: what the journal records, and the explanation from it.

Every "would fit" was tried when the pod was refused (core/explaining/advice.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.trace import TraceStep
from pinfold.errors import ParseError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pinfold.core.events.entries import Entry, Subject
    from pinfold.core.explaining.alignment import Alignment

_SHOWN: Final = 3
_PASSED: Final = "passed over "
_LEVELS: Final = ("cores", "uncore_caches", "numa_nodes", "sockets")
DECISIONS: Final = ("assigned", "resized", "moved", "refused", "released")
"""The words of the entries that decide on a container's CPUs."""
NOT_KEPT: Final = "the steps were not recorded"


class WhyRefused(NamedTuple):
    """Why the pod was refused, and what would help."""

    reason: str
    message: str
    need: str = ""
    room: str = ""
    fixes: tuple[str, ...] = ()


class Explanation(NamedTuple):
    """Explains a container's CPUs."""

    container: str
    """NAMESPACE/POD/CONTAINER."""
    cpus: CPUSet | None = None
    """Its exclusive CPUs; None if it has none."""
    since: float | None = None
    """When that was decided."""
    steps: tuple[TraceStep, ...] = ()
    alignment: Mapping[str, object] | None = None
    refusal: WhyRefused | None = None
    shares: str = ""
    """Why it has no exclusive CPUs, if it was not refused."""

    @property
    def taken(self) -> tuple[TraceStep, ...]:
        """The steps that led to the CPUs."""
        return tuple(step for step in self.steps if not step.what.startswith(_PASSED))

    @property
    def passed_over(self) -> tuple[TraceStep, ...]:
        """Groups that were looked at and not taken."""
        return tuple(step for step in self.steps if step.what.startswith(_PASSED))

    @property
    def why(self) -> str:
        """How these CPUs were chosen, or why there are none, in one line."""
        if self.refusal is not None:
            return f"{self.refusal.reason}: {self.refusal.message}"
        if self.cpus is None:
            return self.shares
        took = [step.what for step in self.taken if step.took]
        if not took:
            return self.taken[-1].what if self.taken else NOT_KEPT
        more = f", and {len(took) - _SHOWN} more steps" if len(took) > _SHOWN else ""
        return ", then ".join(took[:_SHOWN]) + more

    def data(self) -> dict[str, object]:
        """Return it as JSON-ready data."""
        return {
            "container": self.container,
            "cpus": None if self.cpus is None else str(self.cpus),
            "since": None if self.since is None else round(self.since, 3),
            "why": self.why,
            "steps": [str(step) for step in self.taken],
            "passed_over": [str(step).removeprefix(_PASSED) for step in self.passed_over],
            "alignment": self.alignment,
            "refusal": None if self.refusal is None else {**self.refusal._asdict(), "fixes": list(self.refusal.fixes)},
        }


def alignment_counts(alignment: Alignment) -> dict[str, object]:
    """Return how many groups of each level the CPUs use, and the minimum."""
    spans = dict(zip(_LEVELS, alignment, strict=True))
    fewest = {name: span.fewest for name, span in spans.items()}
    return {**{name: len(span.ids) for name, span in spans.items()}, "fewest": fewest}


def decides_on(entry: Entry, subject: Subject) -> bool:
    """Whether an entry decides on a container's CPUs."""
    return entry.what in DECISIONS and subject.covers(entry)


def explain_entry(entry: Entry, subject: Subject) -> Explanation:
    """Return the explanation that an entry has for a container."""
    namespace = entry.text("namespace") or subject.namespace
    pod = entry.text("pod") or subject.pod
    container = entry.text("container") or (subject.container if pod == subject.pod else None)
    found = Explanation("/".join(filter(None, (namespace, pod, container))), since=entry.time)
    found = found._replace(steps=tuple(_steps(entry.fields.get("steps"))))
    if entry.what == "refused":
        fixes = entry.fields.get("fixes")
        told = tuple(str(fix) for fix in fixes if fix) if isinstance(fixes, list) else ()
        return found._replace(
            refusal=WhyRefused(
                entry.text("reason"), entry.text("message"), entry.text("need"), entry.text("room"), told
            )
        )
    if entry.what == "released":
        return found._replace(shares="it released its CPUs")
    alignment = entry.fields.get("alignment")
    return found._replace(
        cpus=_cpus(entry.fields.get("cpus")), alignment=alignment if isinstance(alignment, dict) else None
    )


def _steps(kept: object) -> Sequence[TraceStep]:
    rows: list[dict[str, Any]] = [row for row in kept if isinstance(row, dict)] if isinstance(kept, list) else []
    return [TraceStep(str(row.get("what", "")), _cpus(row.get("took")), str(row.get("why") or "")) for row in rows]


def _cpus(text: object) -> CPUSet:
    try:
        return CPUSet.parse(text) if isinstance(text, str) else CPUSet()
    except ParseError:
        return CPUSet()
