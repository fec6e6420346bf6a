"""Fights: repairs that another program undoes again and again. They are spaced out, so that neither side spins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
        self._heard: set[tuple[ContainerRef | None, str]] = set()
        """The differences that quick looks have found since the last periodic one."""

    def judge(self, found: Sequence[Drift], *, quick: bool = False) -> Verdict:
        """Return whether to repair now; one difference that is no fight is enough, as all are repaired together.

        A *quick* look repairs at once, so the periodic one after it finds nothing: that does not end a fight.
        """
        keys = {(one.container, one.cause) for one in found}
        if quick:
            self._heard |= keys
        else:
            self._looks = {key: looks for key, looks in self._looks.items() if key in keys | self._heard}
            self._heard = set()
        self._looks |= {key: self._looks.get(key, 0) + 1 for key in keys}
        begun = tuple(one for one in found if self._looks[one.container, one.cause] == FIGHT)
        return Verdict(any(_is_due(self._looks[key]) for key in keys), begun)

    def discount(self, left: Iterable[Drift]) -> None:
        """Do not count this look at differences that could not be repaired: no one has undone anything."""
        for one in left:
            looks = self._looks.get((one.container, one.cause), 0)
            if 0 < looks < FIGHT:
                self._looks[one.container, one.cause] = looks - 1


def _is_due(looks: int) -> bool:
    """Return whether to repair at this look: at each before the fight, then at the 2nd, 4th, 8th, 16th, 24th of it.

    >>> [looks for looks in range(1, 40) if _is_due(looks)]
    [1, 2, 3, 4, 5, 7, 9, 13, 21, 29, 37]
    """
    since = looks - FIGHT
    return since <= 0 or since in {2, 4} or since % _LONGEST == 0
