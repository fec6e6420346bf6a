"""QuickLook: a quick look at processes that no cgroup keeps on their CPUs, before a close one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.runtimes.brevity import Brevity, Silence

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pinfold.core.pods.pod import ContainerRef
    from pinfold.core.reconcile import Observed


class QuickLook:
    """Looks at all threads that are known, and lists those of many containers one after the other."""

    def __init__(
        self,
        look: Callable[[Collection[ContainerRef]], Observed | None],
        brevity: Brevity[ContainerRef] | None = None,
    ) -> None:
        """*look* is that of `ProcessGroups.glance`."""
        self._look = look
        self._brevity: Brevity[ContainerRef] = brevity or Brevity()
        self._brevity.hearing = Silence()

    def at(self, containers: Collection[ContainerRef]) -> Observed | None:
        """Return the CPUs of these containers, if all are in order; None if a closer look is needed."""
        part = self._brevity.part(containers)
        found = self._look(part)
        # Sets of a dict and of a set are quick to make: the hash of a name is not computed again.
        if found is None or set(found.containers) != set(containers):
            self._brevity.forget()
            return None
        if len(part) == len(containers):
            self._brevity.looked(containers, clean=True)
        return found
