"""Groups by affinity: no cgroup at all, each thread is told its CPUs. Works without privileges on one's own processes.

`sched_setaffinity` reaches one thread, so it is repeated over the threads of a process, and over the processes of a
container, until a round finds none to move: from then on, whatever is started is started by one that was moved.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
from contextlib import suppress
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pinfold.core.cpuset import EMPTY, CPUSet
from pinfold.node.grouperrors import GroupError, KindUnavailableError, NoCPUsError
from pinfold.node.processgroups.errors import (
    NOT_PROMISED,
    AffinityError,
    BarredError,
    GroupInUseError,
    GroupsHeldError,
    NoGroupError,
)
from pinfold.node.processgroups.membership import Membership
from pinfold.node.processgroups.names import checked_name, marks, show
from pinfold.node.processgroups.origin import give_back_all, origin_of, restore_affinity
from pinfold.node.procfs import Procfs
from pinfold.node.sysfs import SYSTEM
from pinfold.node.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from pinfold.core.pods import ContainerRef
    from pinfold.core.reconcile import Limit
    from pinfold.node.processgroups.joiner import Joiner
    from pinfold.node.processgroups.origin import Origin

KIND: Final = "affinity"
_ROUNDS: Final = 1000
# The kernel may leave out a thread while others come and go: one round that finds nothing is not enough.
_CLEAN_ROUNDS: Final = 2
_POOL: Final = "the shared pool"
_MEANINGS: Final = {
    errno.EPERM: "not permitted; it belongs to another user",
    errno.EINVAL: "its cpuset allows none of these CPUs, or it is a kernel thread bound to its CPU",
}


class _Mode(Enum):
    """How close a thread comes to the CPUs that it is put on."""

    WITHIN = auto()
    """One that has fewer is left alone: what a process has chosen is its own business."""
    ALL = auto()
    """It gets as many of them as its cpuset has."""
    EXACTLY = auto()
    """It gets all of them: they were promised."""


def _mode(*, force: bool, exact: bool) -> _Mode:
    return (_Mode.EXACTLY if exact else _Mode.ALL) if force else _Mode.WITHIN


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
        self._system = Tree(root, SYSTEM)
        self._possible = CPUSet(self._system.mask(["cpu/possible", "cpu/present"], []) or 0)
        self._pool = EMPTY
        self._made: dict[ContainerRef, CPUSet | None] = {}
        self._held: socket.socket | None = None

    @property
    def weaker(self) -> tuple[str, ...]:
        """What cannot be promised, in words."""
        reasons = [
            *NOT_PROMISED,
            "a process can change its own affinity; it is put back at the next reconcile",
            "what a process has chosen within its CPUs is overwritten when they change",
            "CPU limits and weights are not applied",
        ]
        if os.geteuid() != 0:
            reasons.append("processes of other users are not moved")
        if barred := self._barred():
            reasons.append(
                f"the daemon's cpuset does not have CPUs {barred}, so nobody gets them; "
                f"with --reserved-cpus {barred} nobody is promised them either"
            )
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
        self._confine(lambda ref: not self._is_exclusive(ref), cpus, _mode(force=changed, exact=False))

    def make(self, ref: ContainerRef, cpus: CPUSet | None, limit: Limit) -> None:  # noqa: ARG002 - cannot be applied
        """Remember the container, and move the processes that it has already."""
        self._check(_POOL if cpus is None else f"container {show(ref)}", self._pool if cpus is None else cpus)
        changed = ref not in self._made or self._made[ref] != cpus
        self._made[ref] = cpus
        self._confine(lambda other: other == ref, self._target(ref), _mode(force=changed, exact=cpus is not None))

    def set_cpus(self, ref: ContainerRef, cpus: CPUSet) -> None:
        """Change the CPUs of an exclusive container."""
        self._require(ref)
        if not self._is_exclusive(ref):
            raise NoGroupError(ref)
        self._check(f"container {show(ref)}", cpus)
        changed, self._made[ref] = cpus != self._made[ref], cpus
        self._confine(lambda other: other == ref, cpus, _mode(force=changed, exact=True))

    def attach(self, ref: ContainerRef, pid: int) -> None:
        """Put a running process with all its threads into the container."""
        self._require(ref)
        process = self._membership.add(ref, pid)
        cpus = self._target(ref)
        try:
            self._confine_process(pid, cpus, _mode(force=True, exact=self._is_exclusive(ref)))
        except GroupError:
            self._membership.drop(process)
            raise
        self._confine(lambda other: other == ref, cpus, _Mode.WITHIN)  # children it has forked meanwhile

    def origin(self, pid: int) -> Origin:
        """Return which CPUs the threads of a process may use."""
        return origin_of(self._procfs, pid)

    def give_back(self, ref: ContainerRef, origin: Origin) -> list[int]:
        """Let all processes of the container use the CPUs that its own could before, and forget them."""
        before = origin if origin.cpus else origin._replace(cpus=self._possible)

        def give_back(pid: int) -> None:
            process = self._procfs.process(pid)
            if process is not None:
                restore_affinity(self._procfs, pid, before)
                self._membership.drop(process[0])

        return give_back_all(lambda: self.members(ref), give_back, f"container {show(ref)}")

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
        barred = self._barred()
        if cpus & barred and (group != _POOL or cpus <= barred):
            raise BarredError(group, cpus, barred)

    def _barred(self) -> CPUSet:
        """Return the CPUs that the daemon's cpuset keeps from it, and from all that it starts."""
        online = CPUSet(self._system.mask(["cpu/online"], []) or 0)
        usable = _usable(self._possible)
        return online - usable if usable else EMPTY

    def _used(self, pids: list[int]) -> CPUSet:
        used = EMPTY
        for pid in pids:
            for thread in self._procfs.threads(pid):
                used |= self._procfs.allowed(thread)
        return used

    def _confine(self, chosen: Callable[[ContainerRef], bool], cpus: CPUSet, mode: _Mode) -> None:
        """Put the processes of the chosen containers on *cpus*.

        One that cannot be moved does not keep the others: it is reported when all have been tried.
        """
        done: set[int] = set()
        errors: list[GroupError] = []
        for _ in range(_ROUNDS):
            members = {pid for ref, pids in self._members().items() if chosen(ref) for pid in pids}
            moved = False
            for pid in members - done:
                try:
                    moved |= self._confine_process(pid, cpus, mode)
                except GroupError as error:
                    errors.append(error)
            done |= members
            if not moved:
                break
        else:
            errors.append(GroupError(f"processes fork faster than they can be moved to CPUs {cpus}"))
        if errors:
            raise errors[0]

    def _confine_process(self, pid: int, cpus: CPUSet, mode: _Mode) -> bool:
        """Put every thread on *cpus*; whether there was one to move."""
        done: set[int] = set()
        any_moved, clean = False, 0
        for _ in range(_ROUNDS):
            new = set(self._procfs.threads(pid)) - done
            moved = True in {_confine_thread(thread, cpus, mode) for thread in new}
            any_moved |= moved
            clean = 0 if moved else clean + 1
            if clean == _CLEAN_ROUNDS:
                return any_moved
            done |= new
        raise GroupError(f"process {pid} starts threads faster than they can be moved to CPUs {cpus}")


def _confine_thread(thread: int, cpus: CPUSet, mode: _Mode) -> bool:
    """Put the thread on *cpus*; whether that was needed. One that is on *cpus* now starts its own threads there."""
    before = EMPTY
    try:
        before = now = _allowed(thread)
        if now == cpus or (now <= cpus and mode is _Mode.WITHIN):
            return False
        os.sched_setaffinity(thread, cpus)
        now = _allowed(thread)
    except ProcessLookupError:
        return False
    except PermissionError as error:
        if before and before <= cpus and mode is not _Mode.EXACTLY:
            return False  # another user's, but it is in nobody's way
        raise AffinityError(thread, cpus, _MEANINGS[errno.EPERM]) from error
    except OSError as error:
        raise AffinityError(thread, cpus, _MEANINGS.get(error.errno or 0, str(error))) from error
    if not now <= cpus:
        raise AffinityError(thread, cpus, f"it has {now} all the same")
    if now != cpus and mode is _Mode.EXACTLY:
        raise AffinityError(thread, cpus, f"it has only {now}; the others are offline, or not in its cpuset")
    return True


def _usable(possible: CPUSet) -> CPUSet:
    """Return the CPUs that this process may give itself: a thread asks for all, and the kernel cuts that down."""
    found: list[CPUSet] = []

    def ask() -> None:
        with suppress(OSError):
            os.sched_setaffinity(0, possible)
            found.append(_allowed(0))

    asking = threading.Thread(target=ask)
    asking.start()
    asking.join()
    return found[0] if found else EMPTY


def _allowed(thread: int) -> CPUSet:
    return CPUSet.from_cpus(os.sched_getaffinity(thread))
