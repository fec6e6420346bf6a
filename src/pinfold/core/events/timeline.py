"""The State at a time, and the owners of a CPU over time, from the entries of a journal.

An entry `state` holds a whole State, valid until the next one. Entries are in the order of their numbers. When the
clock was set back, later entries win, and earlier ones count as no later than they.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from itertools import accumulate, zip_longest
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.events.entries import STATE, Entry, Subject
from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.errors import ParseError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

SHARED: Final = "shared"
EXCLUSIVE: Final = "exclusive"
NO_OWNER: Final = "nobody"
"""In no pool and no container's: offline, or strictly reserved."""
UNKNOWN: Final = "unknown"
_GIVES: Final = ("assigned", "resized", "moved")
_TAKES: Final = ("released", "resized", "moved")
_ABOUT_ALL: Final = ("serving", "stopped", "hotplug", "reconfigured", "not-kept", "state-not-usable", "undone")


class Moment(NamedTuple):
    """The State at a time."""

    time: float
    shared: CPUSet = EMPTY
    exclusive: Mapping[str, CPUSet] = {}
    """By NAMESPACE/POD/CONTAINER."""
    known: bool = False
    """Whether the journal has an entry for it."""
    since: float | None = None
    """When this State began, if known."""

    def data(self) -> dict[str, object]:
        """Return it as JSON-ready data."""
        exclusive = {owner: str(cpus) for owner, cpus in self.exclusive.items()}
        return {
            "time": round(self.time, 3),
            "shared": str(self.shared),
            "exclusive": exclusive,
            "known": self.known,
            "since": None if self.since is None else round(self.since, 3),
        }


class Tenure(NamedTuple):
    """One owner of a CPU, from when to when."""

    pool: str
    """`exclusive`, `shared`, `nobody` or `unknown`."""
    owner: str | None = None
    """The container that has it exclusively, as NAMESPACE/POD/CONTAINER."""
    since: float | None = None
    """None: since before the first entry."""
    until: float | None = None
    """None: still."""
    why: str = ""

    def data(self) -> dict[str, object]:
        """Return it as JSON-ready data."""
        return self._asdict()

    def meets(self, since: float | None, until: float | None) -> bool:
        """Whether any of it was within these times."""
        return (until is None or self.since is None or self.since <= until) and (
            since is None or self.until is None or self.until > since
        )


def state_at(entries: Sequence[Entry], time: float) -> Moment:
    """Return the State at a time: that of the last `state` entry up to then.

    >>> first = Entry(1, 10.0, "state", {"shared": "0-3", "exclusive": {}})
    >>> then = Entry(2, 20.0, "state", {"shared": "0-1", "exclusive": {"default/web/app": "2-3"}})
    >>> str(state_at([first, then], 15.0).shared), str(state_at([first, then], 20.0).shared)
    ('0-3', '0-1')
    """
    times = settled_times(entries)
    for index in range(bisect_right(times, time) - 1, -1, -1):
        if entries[index].what == STATE:
            return moment_of(entries[index], time)
    return Moment(time)


def settled_times(entries: Sequence[Entry]) -> list[float]:
    """Return the time of each entry, lowered to that of later ones: these never go back, so can be searched."""
    return list(accumulate((entry.time for entry in reversed(entries)), min))[::-1]


def moment_of(entry: Entry, time: float) -> Moment:
    """Return the State in an entry, as that of *time*; unknown if it cannot be read."""
    owners = entry.fields.get(EXCLUSIVE)
    if not isinstance(owners, dict):
        return Moment(time, since=entry.time)
    try:
        exclusive = {str(owner): _cpus(cpus) for owner, cpus in owners.items()}
        return Moment(time, _cpus(entry.fields.get(SHARED)), exclusive, known=True, since=entry.time)
    except ParseError:
        return Moment(time, since=entry.time)


def owners_of(
    entries: Iterable[Entry], cpu: int, since: float | None = None, until: float | None = None
) -> list[Tenure]:
    """Return the owners of a CPU, one after the other, within these times.

    Earlier entries are read too: an owner may have had the CPU for long.
    """
    watch = _Watch(cpu)
    for entry in entries:
        watch.see(entry)
    return [tenure for tenure in watch.tenures() if tenure.meets(since, until)]


class _Watch:
    """Follows one CPU through the entries."""

    def __init__(self, cpu: int) -> None:
        self._cpu = cpu
        self._found: list[Tenure] = []
        self._texts: tuple[object, object] = (None, None)
        """The list of CPUs that had this CPU last, and its owner; while it is the same, nothing has moved."""
        self._around: list[Entry] = []
        """Entries since the previous State: the reason may come before or after its State."""
        self._moved = False
        """Whether the CPU has moved with the last State."""

    def see(self, entry: Entry) -> None:
        """Read the next entry."""
        self._set_back(entry.time)
        if entry.what != STATE:
            self._around.append(entry)
            self._explain(entry)
        else:
            self._moved = self._moves(entry)
            for happened in self._around if self._moved else ():
                self._explain(happened)
            self._around.clear()

    def tenures(self) -> list[Tenure]:
        """Return the owners, each until the next; owners without duration, as after a clock set back, are left out."""
        found: list[Tenure] = []
        for tenure, following in zip_longest(self._found, self._found[1:]):
            until = None if following is None else following.since
            if found and (found[-1].pool, found[-1].owner) == (tenure.pool, tenure.owner):
                found[-1] = found[-1]._replace(until=until)
            elif tenure.since is None or tenure.since != until:
                found.append(tenure._replace(until=until))
        return found

    def _moves(self, entry: Entry) -> bool:
        """Record the owner in a State; return whether it is another one than before."""
        if self._is_as_before(entry):
            return False
        pool, owner = self._hands(entry)
        last = self._found[-1] if self._found else None
        if last is not None and (last.pool, last.owner) == (pool, owner):
            return False
        self._found.append(Tenure(pool, owner, entry.time if last is not None else None))
        return True

    def _is_as_before(self, entry: Entry) -> bool:
        owner, text = self._texts
        owners = entry.fields.get(EXCLUSIVE)
        if text is None or not isinstance(owners, dict):
            return False
        return (entry.fields.get(SHARED) if owner is None else owners.get(owner)) == text

    def _hands(self, entry: Entry) -> tuple[str, str | None]:
        self._texts = (None, None)
        shared, owners = entry.fields.get(SHARED), entry.fields.get(EXCLUSIVE)
        if not isinstance(owners, dict):
            return UNKNOWN, None
        try:
            for owner, text in owners.items():
                if self._cpu in _cpus(text):
                    self._texts = (owner, text)
                    return EXCLUSIVE, str(owner)
            if self._cpu not in _cpus(shared):
                return NO_OWNER, None
        except ParseError:
            return UNKNOWN, None
        self._texts = (None, shared)
        return SHARED, None

    def _explain(self, entry: Entry) -> None:
        """Use an entry as the reason of the last move, if it can be one and there is none, or only a general one."""
        if self._found and (not self._found[-1].why or (self._moved and self._found[-1].why in _ABOUT_ALL)):
            before = self._found[-2].owner if self._found[1:] else None
            why = _reason(entry, self._found[-1].owner, before, self._cpu)
            if why and not (self._found[-1].why and why in _ABOUT_ALL):
                self._found[-1] = self._found[-1]._replace(why=why)

    def _set_back(self, time: float) -> None:
        """Move all beginnings after a time back to it, because the clock was set back."""
        for index in range(len(self._found) - 1, -1, -1):
            began = self._found[index].since
            if began is None or began <= time:
                return
            self._found[index] = self._found[index]._replace(since=time)


def _reason(entry: Entry, owner: str | None, before: str | None, cpu: int) -> str:
    """Return why a CPU went from one owner to another, if the entry says so."""
    if owner is not None and entry.what in _GIVES and _is_about(entry, owner):
        return _step_of(entry, cpu) or f"{entry.what} {entry.text('cpus')}"
    if before is not None and entry.what in _TAKES and _is_about(entry, before):
        return f"{entry.what} by {before}"
    return entry.what if entry.what in _ABOUT_ALL else ""


def _is_about(entry: Entry, owner: str) -> bool:
    try:
        return Subject.parse(owner).covers(entry)
    except ParseError:
        return False


def _step_of(entry: Entry, cpu: int) -> str:
    """Return the step of a decision that took a CPU, in words."""
    steps = entry.fields.get("steps")
    for step in steps if isinstance(steps, list) else ():
        try:
            if isinstance(step, dict) and cpu in _cpus(step.get("took")):
                why = step.get("why")
                return f"{step.get('what')} ({why})" if why else str(step.get("what"))
        except ParseError:
            continue
    return ""


def _cpus(text: object) -> CPUSet:
    if not isinstance(text, str):
        raise ParseError("expected a list of CPUs")
    return _parsed(text)


@lru_cache(maxsize=4096)
def _parsed(text: str) -> CPUSet:
    return CPUSet.parse(text)
