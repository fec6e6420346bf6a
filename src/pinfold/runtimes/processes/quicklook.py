"""QuickLook: a quick look at processes that no cgroup keeps on their CPUs, before a close one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.runtimes.brevity import Brevity, Silence

if TYPE_CHECKING:
    from collections.abc import Collection

    from pinfold.core.pods.pod import ContainerRef
    from pinfold.core.reconcile import Observed
    from pinfold.node.processgroups.groups import ThreadGlance


class QuickLook:
    """Looks at all threads that are known, and lists those of many containers one after the other.

    Of many containers, one look lists the processes of the host, and the next the threads of the containers whose turn
    it is: both cost about as much as all the rest.
    """

    def __init__(self, look: ThreadGlance, brevity: Brevity[ContainerRef] | None = None) -> None:
        """*look* is `ProcessGroups.glance`."""
        self._look = look
        self._brevity: Brevity[ContainerRef] = brevity or Brevity()
        self._brevity.hearing = Silence()
        self._lists_next = False
        """Whether the next look lists the processes of the host, and no threads of those that are known."""

    def at(self, containers: Collection[ContainerRef]) -> Observed | None:
        """Return the CPUs of these containers, if all are in order; None if a closer look is needed."""
        lists = self._lists_next
        part = () if lists else self._brevity.part(containers)
        whole = len(part) == len(containers)
        found = self._look(part, anew=lists or whole)
        # Sets of a dict and of a set are quick to make: the hash of a name is not computed again.
        if found is None or set(found.containers) != set(containers):
            self._brevity.forget()
            self._lists_next = False
            return None
        if whole:
            self._brevity.looked(containers, clean=True)
        self._lists_next = not (lists or whole)
        return found
