"""Confinement: the CPUs of each container where no cgroup keeps them, and its processes put there thread by thread.

The processes of a container are listed until none had to be moved: from then on, every new one starts on its CPUs.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.node.grouperrors import GroupError
from pinfold.node.processgroups.affinity.glance import KnownThreads
from pinfold.node.processgroups.affinity.membership import Membership
from pinfold.node.processgroups.affinity.threads import ROUNDS, Strictness, confine
from pinfold.node.processgroups.errors import NoGroupError
from pinfold.node.processgroups.origin import restore_affinity

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from pinfold.core.pods.pod import ContainerRef
    from pinfold.core.reconcile import Observed
    from pinfold.node.processgroups.origin import Origin
    from pinfold.node.procfs import Procfs


class Confinement:
    """The containers that were made, or that have processes with marks, and the CPUs that each should have."""

    def __init__(self, tree: str, procfs: Procfs) -> None:
        self.tree = tree
        self.membership = Membership(tree, procfs)
        self.pool = EMPTY
        """The CPUs of all containers that share."""
        self._procfs = procfs
        self._own: dict[ContainerRef, CPUSet | None] = {}
        """The CPUs of exclusive containers; None for those that share."""
        self._looking = False
        self._listed: dict[ContainerRef, list[int]] | None = None
        """The processes of all containers, as listed in the block that goes on, until one of them was moved."""
        self._known = KnownThreads(procfs)

    @contextmanager
    def one_look(self) -> Iterator[None]:
        """List the processes of all containers once, and again when one was moved: it may have forked before."""
        outer, self._looking = self._looking, True
        try:
            yield
        finally:
            self._looking = outer
            if not outer:
                self._listed = None

    def refs(self) -> Collection[ContainerRef]:
        """Return all containers, also those known only by the marks of their processes."""
        self.members()
        return self._own.keys()

    def require(self, ref: ContainerRef) -> None:
        """Raise if there is no such container."""
        if ref not in self._own and ref not in self.members():
            raise NoGroupError(ref)

    def is_exclusive(self, ref: ContainerRef) -> bool:
        """Return whether the container has CPUs of its own."""
        self.require(ref)
        return self._own[ref] is not None

    def cpus(self, ref: ContainerRef) -> CPUSet:
        """Return the CPUs that the container should have."""
        self.require(ref)
        own = self._own[ref]
        return self.pool if own is None else own

    def used(self, pids: Iterable[int]) -> CPUSet:
        """Return the online CPUs that any thread of these processes may use."""
        return reduce(or_, {self._procfs.runs_on(thread) for thread in self._threads(pids)}, EMPTY)

    def _threads(self, pids: Iterable[int]) -> Iterator[int]:
        return (thread for pid in pids for thread in self._procfs.threads(pid))

    def members(self) -> dict[ContainerRef, list[int]]:
        """Return the processes of every container that has any. A container known only by their marks is added."""
        if self._listed is not None:
            return self._listed
        members = self.membership.scan()
        for ref in members.keys() - self._own.keys():
            exclusive = self.membership.marked_exclusive.get(ref, False)
            allowed = map(self._procfs.allowed, self._threads(members[ref]) if exclusive else ())
            own = reduce(or_, allowed, EMPTY) if exclusive else None
            if own == EMPTY:  # its processes have ended meanwhile
                del members[ref]
            else:
                self._own[ref] = own
                self._known.forget()
        self._listed = members if self._looking else None
        return members

    def glance(self, part: Collection[ContainerRef], *, anew: bool = True) -> Observed | None:
        """Return the CPUs of all containers, if all threads that are known are on these; None if that is not certain.

        The threads of new processes are listed, and those of *part* of the containers again. Unless *anew*, the
        processes of the host are not listed, so processes that have come are not seen.
        """
        members = self.membership.scan(glance=True) if anew else self.membership.reread()
        if not members.keys() <= self._own.keys():
            return None
        self._known.update(members, part)
        return self._known.look(members, self.pool, self._own)

    def set_pool(self, cpus: CPUSet) -> None:
        """Make *cpus* the shared pool, and move the processes of all containers that share."""
        changed, self.pool = cpus != self.pool, cpus
        self._known.forget()
        self._confine(lambda ref: not self.is_exclusive(ref), cpus, Strictness.ALL if changed else Strictness.WITHIN)

    def set_own(self, ref: ContainerRef, own: CPUSet | None) -> None:
        """Give the container CPUs of its own, or with None those of the pool, and move its processes."""
        changed = ref not in self._own or self._own[ref] != own
        self._own[ref] = own
        self._known.forget()
        strictness = self._strictness(ref) if changed else Strictness.WITHIN
        self._confine(lambda other: other == ref, self.cpus(ref), strictness)

    def add(self, ref: ContainerRef, pid: int) -> None:
        """Put a running process into the container, with all its threads; if that fails, it does not belong there."""
        process = self.membership.add(ref, pid)
        self._listed = None
        try:
            confine(self._procfs, pid, self.cpus(ref), self._strictness(ref))
        except GroupError:
            self.membership.drop(process)
            self._listed = None
            raise
        self._confine(lambda other: other == ref, self.cpus(ref), Strictness.WITHIN)  # children it has forked meanwhile

    def put(self, ref: ContainerRef, asked: CPUSet, pid: int) -> None:
        """Put a new process into the container. It has the CPUs that were *asked* for; there may be others since."""
        self.membership.put(ref, pid)
        self._listed = None
        if self.cpus(ref) != asked:
            confine(self._procfs, pid, self.cpus(ref), self._strictness(ref))

    def release(self, pid: int, origin: Origin) -> None:
        """Let a process use the CPUs that it had before; it belongs to no container from now on."""
        found, self._listed = self._procfs.process(pid), None
        if found is not None:
            restore_affinity(self._procfs, pid, origin)
            self.membership.drop(found.process)

    def forget(self, ref: ContainerRef) -> None:
        """Remove a container that has no processes; a missing one is fine."""
        self._own.pop(ref, None)
        self._known.forget()

    def keep_only(self, refs: Collection[ContainerRef]) -> None:
        """Remove all other containers, which must have no processes."""
        self._own = {ref: own for ref, own in self._own.items() if ref in refs}
        self._known.forget()

    def _strictness(self, ref: ContainerRef) -> Strictness:
        return Strictness.EXACTLY if self.is_exclusive(ref) else Strictness.ALL

    def _confine(self, chosen: Callable[[ContainerRef], bool], cpus: CPUSet, strictness: Strictness) -> None:
        """Put the processes of the chosen containers on *cpus*. All are tried before the first error is raised."""
        done: set[int] = set()
        errors: list[GroupError] = []
        for _ in range(ROUNDS):
            members = {pid for ref, pids in self.members().items() if chosen(ref) for pid in pids}
            moved = False
            for pid in members - done:
                try:
                    moved |= confine(self._procfs, pid, cpus, strictness)
                except GroupError as error:
                    errors.append(error)
            done |= members
            if not moved:
                break
            self._listed = None
        else:
            errors.append(GroupError(f"processes fork faster than they can be moved to CPUs {cpus}"))
        if errors:
            raise errors[0]
