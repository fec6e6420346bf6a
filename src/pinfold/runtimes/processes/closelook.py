"""CloseLook: what another program has changed in the groups of plain processes, beyond the CPUs of the groups."""

from __future__ import annotations

from contextlib import suppress
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pinfold.core.machine.cpuset import EMPTY
from pinfold.core.reconcile import Cause, Fault
from pinfold.node.grouperrors import GroupError
from pinfold.node.processgroups.errors import NoGroupError, listed
from pinfold.node.processgroups.strays import Housed, Moved, Strays
from pinfold.node.procfs import PROC, Process

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import ContainerRef
    from pinfold.core.reconcile import Limit
    from pinfold.node.processgroups.groups import ProcessGroups
    from pinfold.runtimes.base import Main


class CloseLook:
    """Looks at the processes and limits of all groups, and remembers what it has found for the repair."""

    def __init__(
        self, groups: ProcessGroups, mains: Mapping[ContainerRef, Main], lent: Collection[ContainerRef]
    ) -> None:
        """*mains* are the main processes of containers, *lent* the containers whose processes are only lent."""
        self._groups = groups
        self._mains = mains
        self._lent = lent
        self._strays = Strays(groups.name, PROC)
        self._moved = Moved()
        self._limited = False
        """Whether it has found a quota or weight that is not ours."""

    def look(
        self, containers: Mapping[ContainerRef, CPUSet], limits: Mapping[ContainerRef, Limit]
    ) -> tuple[dict[ContainerRef, CPUSet], dict[ContainerRef | None, Fault]]:
        """Return the CPUs of containers that are not only on those of their group, and what else is wrong."""
        found = self._groups.found()
        self._moved = self._strays.look({ref: housed for ref in found if (housed := self._housed(ref)) is not None})
        faults = self._faults({ref: limit for ref, limit in limits.items() if ref in found})
        self._limited = any(fault.cause is Cause.LIMIT for fault in faults.values())
        return self._elsewhere(containers, found), faults

    def repair(self, refs: Collection[ContainerRef]) -> None:
        """Bring the processes of these containers back, move strangers out, and lift the quotas of pools."""
        for ref in refs:
            self._bring_back(ref)
        for pid in {pid for pids in self._moved.into.values() for pid in pids}:
            self._groups.expel(pid)
        if self._limited:
            self._groups.limits.free_pools()
        self._moved, self._limited = Moved(), False

    def _bring_back(self, ref: ContainerRef) -> None:
        mains = [main.pid] if (main := self._mains.get(ref)) is not None else []
        for pid in dict.fromkeys((*mains, *self._moved.out.get(ref, ()))):
            with suppress(GroupError):  # it may have ended meanwhile; if not, the next check finds it again
                self._groups.group(ref).attach(pid)

    def _elsewhere(
        self, containers: Mapping[ContainerRef, CPUSet], found: Collection[ContainerRef]
    ) -> dict[ContainerRef, CPUSet]:
        """Return the CPUs of containers whose group was removed, or with processes on other CPUs."""
        wrong = {ref: EMPTY for ref in containers if ref not in found}
        pids = {ref: {main.pid} for ref, main in self._mains.items()}
        for ref, moved in self._moved.out.items():
            pids.setdefault(ref, set()).update(moved)
        for ref, mine in pids.items():
            allowed = [PROC.allowed(thread) for pid in mine for thread in PROC.threads(pid)]
            if any(not cpus <= containers.get(ref, EMPTY) for cpus in allowed):
                wrong[ref] = reduce(or_, allowed, containers.get(ref, EMPTY))
        return wrong

    def _faults(self, limits: Mapping[ContainerRef, Limit]) -> dict[ContainerRef | None, Fault]:
        """Return what else is wrong; of each container only the worst."""
        whys: dict[ContainerRef | None, str] = {None: self._groups.limits.wrong_pools()}
        whys |= {ref: self._groups.limits.wrong(ref, limit) for ref, limit in limits.items()}
        faults = {ref: Fault(Cause.LIMIT, why) for ref, why in whys.items() if why}
        for ref, pids in self._moved.into.items():
            faults[ref] = Fault(Cause.STRANGERS, f"processes that are not its own were moved in: {listed(pids)}")
        for ref, pids in self._moved.out.items():
            faults[ref] = Fault(Cause.MEMBERS, f"processes were moved out of its cgroup: {listed(pids)}")
        return faults

    def _housed(self, ref: ContainerRef) -> Housed | None:
        """Return a container's groups; None if it has none, by affinity or because another program removed them."""
        main = self._mains.get(ref)
        try:
            places = self._groups.group(ref).places()
        except NoGroupError:
            return None
        return Housed(places, None if main is None else Process(*main), ref in self._lent) if places else None
