"""ProcessApplier: keeps the processes of containers on their CPUs, with cgroups if permitted, else by affinity."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pinfold.core.machine.cpuset import EMPTY
from pinfold.core.reconcile import Drift, Limit, Observed, Wanted, steps
from pinfold.node.grouperrors import GroupError
from pinfold.node.processgroups.errors import NoGroupError
from pinfold.node.processgroups.memory import set_memory
from pinfold.node.procfs import PROC
from pinfold.runtimes.base import Members
from pinfold.runtimes.processes.closelook import CloseLook
from pinfold.runtimes.processes.ending import Ending
from pinfold.runtimes.processes.halting import Halting
from pinfold.runtimes.processes.pids import check_threads
from pinfold.runtimes.processes.quicklook import QuickLook

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import ContainerRef
    from pinfold.core.reconcile import Step
    from pinfold.node.processgroups.groups import ProcessGroups
    from pinfold.node.processgroups.origin import Origin
    from pinfold.runtimes.base import Main
    from pinfold.runtimes.brevity import Hearing


class ProcessApplier:
    """Sets and reads back the CPUs of the groups of plain processes."""

    name: Final = "processes"

    def __init__(self, groups: ProcessGroups, directory: Path | None = None) -> None:
        """Use these groups; *directory* holds the list of processes that are stopped for a moment."""
        self.groups = groups
        self.kind = groups.kind
        """How processes are kept on their CPUs."""
        self.mains: dict[ContainerRef, Main] = {}
        """The main process of each running container, set by the launcher."""
        self.lent: dict[ContainerRef, Origin] = {}
        """The containers whose processes are only lent, and where these come from."""
        self.given_back: Callable[[ContainerRef], None] = lambda _ref: None
        """Called with a container whose lent processes go on without it."""
        self.ending = Ending(groups)
        self._halting = Halting(groups, directory)
        self._shared: dict[ContainerRef, Limit] = {}
        self._exclusive: set[ContainerRef] = set()
        self._close_look = CloseLook(groups, self.mains, self.lent)
        self._quick_look = QuickLook(groups.glance) if groups.glance is not None else None
        self._memory: dict[ContainerRef, CPUSet] = {}
        """The NUMA nodes of the memory of containers that do not have all."""
        self._astray: set[ContainerRef] = set()
        """The containers that it has found missing, on other CPUs, with another limit, or with moved processes."""

    @property
    def weaker(self) -> tuple[str, ...]:
        """The guarantees that do not hold here, in words."""
        return self.groups.weaker

    def heed(self, hearing: Hearing) -> None:
        """Read quotas and weights only where something was written, or is not heard of."""
        self._close_look.brevity.hearing = hearing

    @property
    def known(self) -> Collection[ContainerRef]:
        """The containers that have a group."""
        return self._exclusive.union(self._shared)

    # -- before the first request

    def find(self) -> dict[ContainerRef, CPUSet]:
        """Return the exclusive containers of an earlier daemon that run; remember all that have a group."""
        self._halting.find()
        found = self.groups.found()
        self._shared = {ref: Limit() for ref, exclusive in found.items() if not exclusive}
        self._exclusive = {ref for ref, exclusive in found.items() if exclusive}
        groups = {ref: self.groups.group(ref) for ref in self._exclusive}
        return {ref: group.cpus() for ref, group in groups.items() if group.members()}

    def prepare(self, shared: CPUSet) -> None:
        """Make our subtree; an earlier pool only shrinks here, `apply` grows it when others have left."""
        self.groups.prepare(self._pool() & shared or shared)

    # -- the Applier

    def observe(self, *, closely: bool = False) -> Observed:
        """Return the CPUs that the groups have now; a group that is missing has none."""
        if closely and self._quick_look is not None and (found := self._quick_look.at(self.known)) is not None:
            self._astray.clear()
            return found
        with self.groups.one_look():
            shared = self._pool()
            containers = {ref: _cpus(self.groups, ref) for ref in self._exclusive} | dict.fromkeys(self._shared, shared)
            if not closely:
                return Observed(shared, containers)
            elsewhere, faults = self._close_look.look(containers, self._shared)
        self._astray = {*elsewhere, *(ref for ref in faults if ref is not None)}
        return Observed(shared, containers | elsewhere, faults)

    def apply(self, want: Wanted) -> None:
        """Take CPUs away first, then give, one step after the other; bring back processes that were moved out."""
        with self.groups.one_look():
            found, leaving = self.observe(), self._exclusive - want.exclusive.keys()
            if not found.shared:
                self.groups.prepare(want.shared)
            for ref in leaving:
                self._share(ref, want.sharing.get(ref, Limit()))
                self._exclusive.discard(ref)
            if leaving or not found.shared:
                found = self.observe()
            own = {ref: cpus for ref in self._exclusive if (cpus := found.containers[ref])}
            way = steps(Wanted(found.shared or EMPTY, own), want)
            with self._halting.stopped(_exchanging(way, self.known)):
                for step in way:
                    self._take(step)
            for ref, limit in want.sharing.items():
                has = self._shared.get(ref)
                if has is not limit and (has is None or (self.groups.has_limits and has != limit)):
                    self._share(ref, limit)
            self._set_memory(want)
            self._repair()

    def _set_memory(self, want: Wanted) -> None:
        for ref in self._memory.keys() & want.exclusive.keys() - want.mems.keys():
            set_memory(self.groups.group(ref).places(), None)
        for ref, nodes in want.mems.items():
            if self._memory.get(ref) != nodes:
                set_memory(self.groups.group(ref).places(), nodes)
        self._memory = dict(want.mems)

    def _take(self, step: Step) -> None:
        ref = step.container
        if ref is None:
            self.groups.set_shared(step.cpus)
        else:
            self._exclusive.add(ref)  # first, so that `vacate` cleans up after a failure
            self.groups.make_exclusive(ref, step.cpus)
            self._shared.pop(ref, None)

    def _share(self, ref: ContainerRef, limit: Limit) -> None:
        self.groups.make_shared(ref, limit)
        self._shared[ref] = limit

    def _repair(self) -> None:
        """Put right what the last close look has found."""
        astray = self._astray & {*self._exclusive, *self._shared}
        for ref in astray & self._shared.keys():
            self.groups.make_shared(ref, self._shared[ref])
        self._close_look.repair(astray)
        self._astray.clear()

    def mend(self, ref: ContainerRef, want: Wanted) -> Drift | None:
        """Raise unless all threads of the container's main process are on its CPUs; on fewer is their own choice."""
        main = self.mains.get(ref)
        if main is not None:
            check_threads(main, want.cpus_of(ref))
        return None

    def is_clear(self, want: Wanted) -> bool:
        """Return whether the shared pool is off all exclusive CPUs."""
        return self._pool() <= want.shared

    def vacate(self, ref: ContainerRef) -> list[int]:
        """Kill the remaining processes of the container's group, and remove it; give back and return the lent ones.

        Raise StillRunning if processes have not ended yet: call it again when the launcher has reported their end.
        """
        given: list[int] = []
        if ref in self.known and not self._remove_empty(ref):
            if ref not in self.lent:
                self.ending.end(ref)
            else:
                with suppress(NoGroupError):  # another program has removed it
                    given = self.groups.group(ref).give_back(self.lent[ref])
            self.groups.remove(ref)
        if self.lent.pop(ref, None) is not None:
            self.given_back(ref)
        self._shared.pop(ref, None)
        self._exclusive.discard(ref)
        return given

    def _remove_empty(self, ref: ContainerRef) -> bool:
        """Remove the container's group if it has no processes: none is left that could start another."""
        with self.groups.one_look():
            empty = not self.ending.populated([ref])
            if empty:
                self.groups.remove(ref)
        return empty

    def allowed(self, ref: ContainerRef) -> str:
        """Return the CPUs that the threads of the main process may use, as the kernel says."""
        main = self.mains.get(ref)
        sets = {str(PROC.allowed(thread)) for thread in PROC.threads(main.pid)} if main is not None else set()
        return " ".join(sorted(sets - {""}))

    def members(self, ref: ContainerRef) -> Members:
        """Return the cgroups and the processes of a container."""
        try:
            group = self.groups.group(ref)
            return Members(group.places(), group.members())
        except GroupError:
            return Members()

    async def leave(self, cpus: CPUSet, kept: CPUSet = EMPTY) -> None:  # noqa: ARG002 - no kubelet goes on here
        """Remove empty groups; processes that go on are in the shared pool, which has these CPUs by now."""
        self.groups.remove_empty()

    def _pool(self) -> CPUSet:
        try:
            return self.groups.shared_cpus()
        except GroupError:
            return EMPTY


def _cpus(groups: ProcessGroups, ref: ContainerRef) -> CPUSet:
    try:
        return groups.group(ref).cpus()
    except GroupError:
        return EMPTY


def _exchanging(way: Sequence[Step], known: Collection[ContainerRef]) -> list[ContainerRef]:
    """Return the *known* containers that take part in an exchange of CPUs, with none free to step aside to."""
    if not any(step.clash for step in way):
        return []
    moving = {step.container for step in way}
    return [ref for ref in known if ref in moving]
