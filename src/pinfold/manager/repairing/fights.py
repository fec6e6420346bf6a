"""Fights: repairs that another program undoes again and again. They are spaced out, so that neither side spins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pinfold.core.pods.pod import ContainerRef
    from pinfold.core.reconcile import Drift

FIGHT: Final = 5
"""So many looks in a row that find the same difference are a fight."""
_LONGEST: Final = 8
"""In a fight, one look of so many repairs at least."""


class Verdict(NamedTuple):
    """What to do about the differences that a look has found."""

    repair: bool
    begun: tuple[Drift, ...]
    """The differences with which a fight has just begun."""


class Fights:
    """Counts for each container and cause how many looks in a row have found a difference."""

    def __init__(self) -> None:
        self._looks: dict[tuple[ContainerRef | None, str], int] = {}

    def judge(self, found: Sequence[Drift]) -> Verdict:
        """Return whether to repair now; one difference that is no fight is enough, as all are repaired together."""
        before = self._looks
        self._looks = {key: before.get(key, 0) + 1 for key in ((one.container, one.cause) for one in found)}
        begun = tuple(one for one in found if self._looks[one.container, one.cause] == FIGHT)
        return Verdict(any(_is_due(looks) for looks in self._looks.values()), begun)

    def forget(self, left: Sequence[Drift]) -> None:
        """Do not count differences that could not be repaired: no one has undone anything."""
        for one in left:
            self._looks.pop((one.container, one.cause), None)


def _is_due(looks: int) -> bool:
    """Return whether to repair at this look: at each before the fight, then at the 2nd, 4th, 8th, 16th, 24th of it.

    >>> [looks for looks in range(1, 40) if _is_due(looks)]
    [1, 2, 3, 4, 5, 7, 9, 13, 21, 29, 37]
    """
    since = looks - FIGHT
    return since <= 0 or since in {2, 4} or since % _LONGEST == 0
