"""Reasons: why each container has its CPUs, or was refused; the last decision about each, from the journal on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pinfold.core.entries import Entry, Subject

_MOST: Final = 10_000
_DECISIONS: Final = ("assigned", "refused")


class Reason(NamedTuple):
    """The last decision about a container."""

    name: str
    """NAMESPACE/POD/CONTAINER; of a pod that was refused as a whole, without a container."""
    entry: Entry

    @property
    def steps(self) -> list[str]:
        """The steps that were taken."""
        steps = self.entry.fields.get("steps")
        return [str(step) for step in steps] if isinstance(steps, list) else []

    def data(self) -> dict[str, object]:
        """Return it as JSON-ready data."""
        refused = self.entry.what == "refused"
        fixes = self.entry.fields.get("fixes")
        refusal = {
            "reason": self.entry.text("reason"),
            "message": self.entry.text("message"),
            "fixes": [str(fix) for fix in fixes] if isinstance(fixes, list) else [],
        }
        passed_over = [step for step in self.steps if step.startswith("passed over")]
        return {
            "container": self.name,
            "since": self.entry.time,
            "steps": [step for step in self.steps if step not in passed_over],
            "passed_over": passed_over,
            "refusal": refusal if refused else None,
        }


class Reasons:
    """The last decisions, by container."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._found: dict[str, Reason] = {}
        for entry in entries:
            self.take(entry)

    def take(self, entry: Entry) -> None:
        """Take note of an entry, if it is a decision."""
        if entry.what not in _DECISIONS:
            return
        parts = (entry.text("namespace") or "default", entry.text("pod"), entry.text("container"))
        name = "/".join(filter(None, parts))
        self._found.pop(name, None)
        self._found[name] = Reason(name, entry)
        if len(self._found) > _MOST:
            del self._found[next(iter(self._found))]

    def why(self, name: str) -> str:
        """Return in one line why a container has its CPUs; empty if nobody knows any more."""
        found = self._found.get(name)
        return "; ".join(found.steps[:3]) if found is not None and found.entry.what == "assigned" else ""

    def find(self, subject: Subject) -> Reason | None:
        """Return the last decision about whom somebody names."""
        for found in reversed(self._found.values()):
            if subject.covers(found.entry):
                return found
        return None

    def refusals(self) -> list[Reason]:
        """Return the last refusals, the newest first."""
        return [found for found in reversed(self._found.values()) if found.entry.what == "refused"]
