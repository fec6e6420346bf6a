"""Brevity: whether a look at many containers may be brief, because all was well and nothing was written since."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable

_FEW: Final = 100
"""So many containers are looked at in full each time."""
_EACH: Final = 0.06
"""For each one more it may be so many seconds since then: a minute for 1,100."""


class Hearing(Protocol):
    """Hears of what is written to groups."""

    @property
    def is_partial(self) -> bool:
        """Whether there is a group of which it does not hear."""

    def listen(self) -> int:
        """Take in what has been written; return how many events came so far."""

    def is_quiet(self, group: str) -> bool:
        """Return whether nothing was written to a group since the last call for it; False if that is not known."""


class Brevity:
    """Remembers the last look at everything. Call `may_be` before each look, and `looked` after one at everything."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.hearing: Hearing | None = None
        """None: every look is at everything."""
        self._clock = clock
        self._events = 0
        self._clean: float | None = None
        """When everything was looked at and nothing was wrong, if it was the last time."""
        self._seen: frozenset[Hashable] = frozenset()

    def may_be(self, containers: Collection[Hashable]) -> bool:
        """Return whether the same containers were all in order not long ago, and nothing was written since."""
        if self.hearing is None or self.hearing.is_partial:
            return False
        before, self._events = self._events, self.hearing.listen()
        if self._clean is None or self._events != before or self._seen != frozenset(containers):
            return False
        return self._clock() - self._clean < (len(self._seen) - _FEW) * _EACH

    def looked(self, containers: Collection[Hashable], *, clean: bool) -> None:
        """Record a look at everything; *clean*: all was in order."""
        self._clean = self._clock() if clean else None
        self._seen = frozenset(containers) if clean else frozenset()

    def forget(self) -> None:
        """Look at everything the next time."""
        self._clean = None
