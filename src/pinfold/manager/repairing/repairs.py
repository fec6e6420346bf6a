"""Repairs: compares actual with wanted CPUs, and undoes the changes of other programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.events.measures import Looked
from pinfold.core.events.repairs import LostUpdate
from pinfold.core.reconcile import Cause, drift
from pinfold.manager.repairing.fights import FIGHT, Fights
from pinfold.node.cgroupfiles import Overwritten
from pinfold.runtimes.base import ApplyError

if TYPE_CHECKING:
    from pinfold.core.pods.pod import ContainerRef
    from pinfold.core.reconcile import Drift, Wanted
    from pinfold.manager.telling.telling import Telling
    from pinfold.runtimes.base import Applier


class Repairs:
    """Checks containers through an applier, and reports what it finds."""

    def __init__(self, applier: Applier, telling: Telling) -> None:
        self._applier = applier
        self._telling = telling
        self._fights = Fights()

    def reconcile(self, want: Wanted, *, spaced: bool = False, quick: bool = False) -> list[Drift]:
        """Check every container, repair what has drifted, and return it; *spaced*: less often in a fight.

        *quick*: something was heard of; it is not the periodic check.
        """
        found = list(drift(want, self._applier.observe(closely=True)))
        repair, begun = self._fights.judge(found, quick=quick) if spaced else (bool(found), ())
        self._telling.fought(begun, FIGHT)
        left = self._repair(want, found) if repair else found
        self._telling.tell(Looked(want, found, left, self._telling.clock()))
        return found

    def _repair(self, want: Wanted, found: list[Drift]) -> list[Drift]:
        """Repair the drift, and return the part that is left; or raise."""
        self._telling.drifted(found)
        try:
            self._applier.apply(want)
            left = list(drift(want, self._applier.observe(closely=True)))
        except Overwritten:  # another program has undone it before it was read back
            raise
        except BaseException:
            self._fights.discount(found)
            raise
        stuck = [one for one in left if not _is_undone(one)]
        self._fights.discount(stuck)
        self._telling.not_repaired(stuck)
        return left

    def verify(self, ref: ContainerRef, want: Wanted) -> None:
        """Check that a container about to run has its CPUs, and no other container has; repair it, or raise."""
        wrong = self._applier.mend(ref, want)
        if ref not in want.exclusive:
            return
        if wrong is not None and wrong.found != wrong.wanted:  # else only its quota was lifted
            self._telling.tell(LostUpdate(self._telling.name(ref.pod), ref.name, wrong.found, wrong.wanted))
        if not self._applier.is_clear(want) and self.reconcile(want):
            left = [found for found in self.reconcile(want) if found.container is not None]
            if left:
                raise ApplyError(self._telling.describe(left))


def _is_undone(one: Drift) -> bool:
    """Return whether another program has undone a repair as soon as it was made, and read back.

    What the kernel refuses, a group above or an offline CPU can only take CPUs away.
    """
    return one.cause is Cause.CPUS and not one.found <= one.wanted
