"""Brevity: how much of many containers a look must read, if all was well and nothing was written since."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable

_T = TypeVar("_T", bound="Hashable")

_FEW: Final = 100
"""So many containers are looked at in full each time."""
_EACH: Final = 0.2
"""For each one more a round may take so many seconds: three minutes for 1,000."""


class Hearing(Protocol):
    """Hears of what is written to groups."""

    @property
    def is_partial(self) -> bool:
        """Whether there is a group of which it does not hear."""

    def listen(self) -> int:
        """Take in what has been written; return how many events came so far."""

    def is_quiet(self, group: str) -> bool:
        """Return whether nothing was written to a group since the last call for it; False if that is not known."""


class Silence:
    """Hears nothing, where there are no groups: looks find everything themselves."""

    is_partial = False

    def listen(self) -> int:
        """Return that no event came."""
        return 0

    def is_quiet(self, group: str) -> bool:  # noqa: ARG002 - the protocol
        """Return False, as that is not known."""
        return False


class Brevity(Generic[_T]):
    """Shares the containers out among looks. Call `part` before each look, and `looked` after one at everything."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.hearing: Hearing | None = None
        """None: every look is at everything."""
        self._clock = clock
        self._events = 0
        self._order: tuple[_T, ...] = ()
        """The containers that were all in order when they were looked at; none if one was not."""
        self._seen: frozenset[_T] = frozenset()
        self._next = 0
        """The place of the first that the next look is at; behind the last: a round is over."""
        self._last = 0.0

    def part(self, containers: Collection[_T]) -> Collection[_T]:
        """Return the containers to look at: all, or the next few of many that were in order, while nothing is heard.

        When all had their turn, a part without any begins the next round.
        """
        now, within = self._clock(), (len(containers) - _FEW) * _EACH
        since, self._last = now - self._last, now
        if not self._is_calm(containers) or since >= within:
            return containers
        begin, self._next = self._next, self._next + int(len(containers) * since / within) + 1
        if begin >= len(self._order):
            self._next = 0
        return self._order[begin : self._next]

    def _is_calm(self, containers: Collection[_T]) -> bool:
        if self.hearing is None or self.hearing.is_partial:
            return False
        before, self._events = self._events, self.hearing.listen()
        return bool(self._order) and self._events == before and self._seen == set(containers)

    def looked(self, containers: Collection[_T], *, clean: bool) -> None:
        """Record a look at everything; *clean*: all was in order."""
        self._order, self._next = tuple(containers) if clean else (), 0
        self._seen = frozenset(self._order)

    def forget(self) -> None:
        """Look at everything the next time."""
        self._order = ()
