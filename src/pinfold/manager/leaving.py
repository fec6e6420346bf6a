"""Leaving a node: every group that was narrowed gets all CPUs back, and that is read back.

For a daemon whose sources have stopped, and for `pinfold leave` after a daemon has ended. The State stays as it is: a
daemon that starts later gives the owners that still run the same CPUs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.machine.cpuset import EMPTY
from pinfold.core.reconcile import Wanted, describe, drift
from pinfold.manager.wanting import limited
from pinfold.runtimes.base import ApplyError

if TYPE_CHECKING:
    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.runtimes.base import Applier
    from pinfold.runtimes.roster import Roster


async def leave(applier: Applier, roster: Roster, online: CPUSet, kept: CPUSet = EMPTY) -> None:
    """Give all groups the *online* CPUs; or raise, and leave the rest as it is.

    Owners share again, with their CPU limits; but a kubelet goes on with those that have *kept* CPUs.
    """
    if not kept:
        free = Wanted(online, {}, limited(roster))
        applier.apply(free)
        if wrong := list(drift(free, applier.observe(closely=True))):
            names = {uid: f"{pod.namespace}/{pod.name}" for uid, pod in roster.known_pods().items()}
            raise ApplyError(describe(wrong, names))
    await applier.leave(online, kept)
