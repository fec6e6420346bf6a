"""Groups by affinity: no cgroup at all, each thread is told its CPUs. Works without privileges on one's own processes.

`sched_setaffinity` reaches one thread, so it is repeated over the threads of a process, and over the processes of a
container, until a round finds none to move: from then on, whatever is started is started by one that was moved.
"""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pinfold.core.cpuset import EMPTY, CPUSet
from pinfold.node.grouperrors import (
    OFFLINE,
    OUTSIDERS,
    GroupError,
    GroupInUseError,
    GroupsHeldError,
    KindUnavailableError,
    NoCPUsError,
    NoGroupError,
)
from pinfold.node.groupnames import checked_name, marks, show
from pinfold.node.membership import Membership
from pinfold.node.procfs import Procfs
from pinfold.node.sysfs import SYSTEM
from pinfold.node.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from pinfold.core.pods import ContainerRef
    from pinfold.node.groups import Limit
    from pinfold.node.joiner import Joiner

KIND: Final = "affinity"
_ROUNDS: Final = 1000
# The kernel may leave out a thread while others come and go: one round that finds nothing is not enough.
_CLEAN_ROUNDS: Final = 2
_POOL: Final = "the shared pool"
_MEANINGS: Final = {
    errno.EPERM: "not permitted; it belongs to another user",
    errno.EINVAL: "its cpuset allows none of these CPUs, or it is a kernel thread bound to its CPU",
}


class AffinityError(GroupError):
    """A thread that cannot be told its CPUs."""

    def __init__(self, thread: int, cpus: CPUSet, meaning: str) -> None:
        super().__init__(f"thread {thread}: CPUs {cpus} → {meaning}")
        self.thread = thread
        self.cpus = cpus
        self.meaning = meaning


def discover(_cgroup_root: Path, name: str) -> Affinity:
    """Return the groups called *name*; they need no more than Linux."""
    if not hasattr(os, "sched_setaffinity"):
        raise KindUnavailableError(KIND, "there is no sched_setaffinity; this is not Linux")
    return Affinity(name)


class Affinity:
    """Containers as sets of processes with the same affinity."""

    kind = KIND

    def __init__(self, name: str, root: Path = Path("/")) -> None:
        self._name = checked_name(name)
        self._procfs = Procfs(root / "proc")
        self._membership = Membership(name, self._procfs)
        self._possible = CPUSet(Tree(root, SYSTEM).mask(["cpu/possible", "cpu/present"], []) or 0)
        self._pool = EMPTY
        self._made: dict[ContainerRef, CPUSet | None] = {}
        self._held: socket.socket | None = None

    @property
    def weaker(self) -> tuple[str, ...]:
        """What cannot be promised, in words."""
        reasons = [
            OUTSIDERS,
            OFFLINE,
            "a process can change its own affinity; it is put back at the next reconcile",
            "what a process has chosen within its CPUs is overwritten when they change",
            "CPU limits and weights are not applied",
        ]
        if os.geteuid() != 0:
            reasons.append("processes of other users are not moved")
        return tuple(reasons)

    def hold(self) -> None:
        """Keep other daemons of this user from using the same marks; raise if one does."""
        if self._held is not None:
            return
        # A name that is no file: it is gone with the process that has it.
        held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            held.bind(f"\0pinfold-{os.geteuid()}-{self._name}")
        except OSError as error:
            held.close()
            raise GroupsHeldError(self._name) from error
        self._held = held

    def prepare(self, shared: CPUSet) -> None:
        """Set the shared pool; there is nothing to make."""
        self.set_shared(shared)

    def set_shared(self, cpus: CPUSet) -> None:
        """Make *cpus* the shared pool, and move every process in it."""
        self._check(_POOL, cpus)
        changed, self._pool = cpus != self._pool, cpus
        self._confine(lambda ref: not self._is_exclusive(ref), cpus, force=changed)

    def make(self, ref: ContainerRef, cpus: CPUSet | None, limit: Limit) -> None:  # noqa: ARG002 - cannot be applied
        """Remember the container, and move the processes that it has already."""
        self._check(_POOL if cpus is None else f"container {show(ref)}", self._pool if cpus is None else cpus)
        changed = ref not in self._made or self._made[ref] != cpus
        self._made[ref] = cpus
        self._confine(lambda other: other == ref, self._target(ref), force=changed)

    def set_cpus(self, ref: ContainerRef, cpus: CPUSet) -> None:
        """Change the CPUs of an exclusive container."""
        self._require(ref)
        if not self._is_exclusive(ref):
            raise NoGroupError(ref)
        self._check(f"container {show(ref)}", cpus)
        changed, self._made[ref] = cpus != self._made[ref], cpus
        self._confine(lambda other: other == ref, cpus, force=changed)

    def attach(self, ref: ContainerRef, pid: int) -> None:
        """Put a running process with all its threads into the container."""
        self._require(ref)
        process = self._membership.add(ref, pid)
        cpus = self._target(ref)
        try:
            self._confine_process(pid, cpus, force=True)
        except GroupError:
            self._membership.drop(process)
            raise
        self._confine(lambda other: other == ref, cpus, force=False)  # children it has forked meanwhile

    def joiner(self, ref: ContainerRef) -> Joiner:
        """Return what a forked child calls before exec."""
        self._require(ref)
        return self._membership.joiner(ref, lambda: os.sched_setaffinity(0, self._target(ref)))

    def environment(self, ref: ContainerRef) -> dict[str, str]:
        """Return the variables by which the container's processes are found after a restart."""
        self._require(ref)
        return marks(self._name, ref, exclusive=self._is_exclusive(ref))

    def members(self, ref: ContainerRef) -> list[int]:
        """Return the processes of the container now."""
        pids = self._members().get(ref, [])
        self._require(ref)
        return pids

    def cpus(self, ref: ContainerRef) -> CPUSet:
        """Return the CPUs that the container was given, and those that any of its threads has beyond."""
        return self._used(self.members(ref)) | self._target(ref)

    def shared_cpus(self) -> CPUSet:
        """Return the CPUs of the pool, and those that any thread in it has beyond."""
        members = self._members().items()
        return self._pool | self._used([pid for ref, pids in members if not self._is_exclusive(ref) for pid in pids])

    def found(self) -> dict[ContainerRef, bool]:
        """Return the containers that were made, or whose processes say that they were; True: exclusive."""
        self._members()
        return {ref: self._is_exclusive(ref) for ref in self._made}

    def remove(self, ref: ContainerRef) -> None:
        """Forget the container, which must have no processes."""
        pids = self._members().get(ref)
        if pids:
            raise GroupInUseError(f"container {show(ref)}", pids)
        self._made.pop(ref, None)

    def remove_all(self) -> None:
        """Forget all containers, which must have no processes."""
        pids = [pid for pids in self._members().values() for pid in pids]
        if pids:
            raise GroupInUseError(self._name, pids)
        self._made.clear()
        if self._held is not None:
            self._held.close()
            self._held = None

    def _target(self, ref: ContainerRef) -> CPUSet:
        cpus = self._made[ref]
        return self._pool if cpus is None else cpus

    def _is_exclusive(self, ref: ContainerRef) -> bool:
        return self._made[ref] is not None

    def _require(self, ref: ContainerRef) -> None:
        if ref not in self._made and ref not in self._members():
            raise NoGroupError(ref)

    def _members(self) -> dict[ContainerRef, list[int]]:
        """Return the processes of every container that has any; one found by its marks is as good as made."""
        members = self._membership.scan()
        for ref in members.keys() - self._made.keys():
            exclusive = self._membership.marked_exclusive.get(ref, False)
            cpus = self._used(members[ref]) if exclusive else None
            if cpus == EMPTY:  # ended meanwhile
                del members[ref]
            else:
                self._made[ref] = cpus
        return members

    def _check(self, group: str, cpus: CPUSet) -> None:
        if not cpus:
            raise NoCPUsError(group)
        if self._possible and not cpus <= self._possible:
            raise GroupError(f"{group}: CPUs {cpus} → no such CPU: {cpus - self._possible}")

    def _used(self, pids: list[int]) -> CPUSet:
        used = EMPTY
        for pid in pids:
            for thread in self._procfs.threads(pid):
                used |= self._procfs.allowed(thread)
        return used

    def _confine(self, chosen: Callable[[ContainerRef], bool], cpus: CPUSet, *, force: bool) -> None:
        """Put the processes of the chosen containers on *cpus*; with *force* also those that have fewer.

        One that cannot be moved does not keep the others: it is reported when all have been tried.
        """
        done: set[int] = set()
        errors: list[GroupError] = []
        for _ in range(_ROUNDS):
            members = {pid for ref, pids in self._members().items() if chosen(ref) for pid in pids}
            moved = False
            for pid in members - done:
                try:
                    moved |= self._confine_process(pid, cpus, force=force)
                except GroupError as error:
                    errors.append(error)
            done |= members
            if not moved:
                break
        else:
            errors.append(GroupError(f"processes fork faster than they can be moved to CPUs {cpus}"))
        if errors:
            raise errors[0]

    def _confine_process(self, pid: int, cpus: CPUSet, *, force: bool) -> bool:
        """Put every thread on *cpus*; whether there was one to move."""
        done: set[int] = set()
        any_moved, clean = False, 0
        for _ in range(_ROUNDS):
            new = set(self._procfs.threads(pid)) - done
            moved = True in {_confine_thread(thread, cpus, force=force) for thread in new}
            any_moved |= moved
            clean = 0 if moved else clean + 1
            if clean == _CLEAN_ROUNDS:
                return any_moved
            done |= new
        raise GroupError(f"process {pid} starts threads faster than they can be moved to CPUs {cpus}")


def _confine_thread(thread: int, cpus: CPUSet, *, force: bool) -> bool:
    """Put the thread on *cpus*; whether that was needed. One that is on *cpus* now starts its own threads there."""
    try:
        now = _allowed(thread)
        if now == cpus or (now <= cpus and not force):
            return False
        os.sched_setaffinity(thread, cpus)
        now = _allowed(thread)
    except ProcessLookupError:
        return False
    except OSError as error:
        raise AffinityError(thread, cpus, _MEANINGS.get(error.errno or 0, str(error))) from error
    if not now <= cpus:
        raise AffinityError(thread, cpus, f"it has {now} all the same")
    return True


def _allowed(thread: int) -> CPUSet:
    return CPUSet.from_cpus(os.sched_getaffinity(thread))
