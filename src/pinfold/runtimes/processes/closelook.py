"""CloseLook: what another program has changed in the groups of plain processes, beyond the CPUs of the groups."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pinfold.core.machine.cpuset import EMPTY
from pinfold.core.reconcile import Cause, Fault
from pinfold.node.grouperrors import GroupError
from pinfold.node.processgroups.errors import NoGroupError, listed
from pinfold.node.processgroups.strays import Housed, MovedProcesses, Strays, threads_in
from pinfold.node.procfs import PROC, Process, may_leave
from pinfold.runtimes.brevity import Brevity

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import ContainerRef
    from pinfold.core.reconcile import Limit
    from pinfold.node.processgroups.groups import ProcessGroups
    from pinfold.runtimes.base import Main


class CloseLook:
    """Looks at the processes and limits of all groups, and remembers what it has found for the repair."""

    def __init__(
        self,
        groups: ProcessGroups,
        mains: Mapping[ContainerRef, Main],
        lent: Collection[ContainerRef],
        brevity: Brevity[ContainerRef] | None = None,
    ) -> None:
        """*mains* are the main processes of containers, *lent* the containers whose processes are only lent."""
        self._groups = groups
        self._mains = mains
        self._lent = lent
        self._strays = Strays(groups.name, PROC)
        self._moved = MovedProcesses()
        self._limited = False
        """Whether it has found a quota or weight that is not ours."""
        self._right: dict[ContainerRef, Limit] = {}
        """The containers whose quota and weight were right at the last look."""
        self._houses: Mapping[ContainerRef, Housed] = {}
        """Of all containers, at the last look at everything."""
        self._pools: Collection[Path] = ()
        """The groups that those that share have in common for their CPUs, on cgroup v1."""
        self._pooled: tuple[Mapping[Path, frozenset[int]], Mapping[ContainerRef, Main]] | None = None
        """The threads in these, and the main processes, at the last look; None after one at everything."""
        self._apart: Collection[ContainerRef] = ()
        """The containers of which these do not tell on which CPUs their main processes are."""
        self.brevity: Brevity[ContainerRef] = brevity or Brevity()
        """Where nothing was written, quotas and weights are not read again; of many groups each look reads some.

        Then found later: a thread or child that was moved elsewhere, and a main process on the same CPUs elsewhere.
        """

    def look(
        self, containers: Mapping[ContainerRef, CPUSet], limits: Mapping[ContainerRef, Limit]
    ) -> tuple[dict[ContainerRef, CPUSet], dict[ContainerRef | None, Fault]]:
        """Return the CPUs of containers that are not only on those of their group, and what else is wrong."""
        part = self.brevity.part(containers)
        if len(part) < len(containers) and self._is_in_order(part, containers, limits.keys()):
            return {}, {}
        houses = {ref: housed for ref in containers if (housed := self._housed(ref)) is not None}
        self._houses, self._moved, self._pooled = houses, self._strays.look(houses), None
        self._pools = {group for ref in limits if ref in houses for group in houses[ref].groups[1:]}
        found = houses.keys() or self._groups.found().keys()  # by affinity there are no groups
        wanted = {ref: limit for ref, limit in limits.items() if ref in found}
        faults = self._faults(wanted, self._doubtful(houses, wanted))
        self._limited = any(fault.cause is Cause.LIMIT for fault in faults.values())
        elsewhere = self._elsewhere(containers, found)
        self.brevity.looked(containers, clean=not faults and not elsewhere)
        return elsewhere, faults

    def _is_in_order(
        self,
        part: Collection[ContainerRef],
        containers: Mapping[ContainerRef, CPUSet],
        sharing: AbstractSet[ContainerRef],
    ) -> bool:
        """Return whether main processes are on their CPUs, and all of *part* in their groups. Nothing was written.

        An empty *part* begins a round: new processes are taken in.
        """
        pools = {group: threads_in(group) for group in self._pools}
        if (pools, self._mains) != self._pooled:
            self._pooled, self._apart = (pools, dict(self._mains)), self._not_in(pools, sharing)
        if may_leave((self._mains[ref].pid, containers.get(ref, EMPTY)) for ref in self._apart):
            return False
        if not part:
            self._strays.learn(self._houses)
        return not self._groups.limits.wrong_pools() and self._strays.are_inside(self._houses, part, pools)

    def _not_in(
        self, pools: Mapping[Path, frozenset[int]], sharing: AbstractSet[ContainerRef]
    ) -> Collection[ContainerRef]:
        """Return the containers whose main processes are asked for one by one, as no pool keeps them on its CPUs."""
        pooled = frozenset[int]().union(*pools.values())
        return {ref for ref, main in self._mains.items() if main.pid not in pooled} | self._mains.keys() - sharing

    def repair(self, refs: Collection[ContainerRef]) -> None:
        """Bring the processes of these containers back, move strangers out, and lift the quotas of pools."""
        self.brevity.forget()
        for ref in refs:
            self._bring_back(ref)
        for pid in {pid for pids in self._moved.into.values() for pid in pids}:
            self._groups.expel(pid)
        if self._limited:
            self._groups.limits.free_pools()
        self._moved, self._limited = MovedProcesses(), False

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
        pids = [(ref, main.pid) for ref, main in self._mains.items()]
        pids += [(ref, pid) for ref, moved in self._moved.out.items() for pid in moved]
        for ref, pid in pids:
            own = containers.get(ref, EMPTY)
            for thread in PROC.threads(pid):
                cpus = PROC.runs_on(thread)
                if not cpus <= own:
                    wrong[ref] = wrong.get(ref, EMPTY) | own | cpus
        return wrong

    def _doubtful(
        self, houses: Mapping[ContainerRef, Housed], limits: Mapping[ContainerRef, Limit]
    ) -> Collection[ContainerRef]:
        """Return the containers that may have another limit by now."""
        hearing = self.brevity.hearing
        if hearing is None:
            return limits.keys()
        hearing.listen()
        quiet = {ref for ref, limit in limits.items() if self._right.get(ref) == limit}
        for ref in limits:
            own = str(houses[ref].groups[0])
            for group in (own, own.rpartition("/")[0]):  # the quota of its pod limits a container too
                if not hearing.is_quiet(group):
                    quiet.discard(ref)
        return limits.keys() - quiet

    def _faults(
        self, limits: Mapping[ContainerRef, Limit], doubtful: Collection[ContainerRef]
    ) -> dict[ContainerRef | None, Fault]:
        """Return what else is wrong; of each container only the worst."""
        whys: dict[ContainerRef | None, str] = {None: self._groups.limits.wrong_pools()}
        whys |= {ref: self._groups.limits.wrong(ref, limits[ref]) for ref in doubtful}
        self._right = {ref: limit for ref, limit in limits.items() if not whys.get(ref)}
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
