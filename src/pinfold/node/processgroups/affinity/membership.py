"""Membership: which process belongs to which container, where no cgroup says so.

A process belongs to the container that it was started in or attached to, else to the one that its environment names,
else to its parent's. What was found is remembered, so a process stays a member when its parent has ended.

Most processes of a host are not ours: of those that are old enough to have become their program, each scan reads some
again, the others and kernel threads only if their number is another process's by now. New processes are read every
time, and members unless a glance is enough.

A glance goes on from the last scan: it compares the inodes of /proc with those of then, which differ for processes that
have come or gone, and reads no more than these and a few strangers.
"""

from __future__ import annotations

import os
from itertools import islice
from typing import TYPE_CHECKING, Final

from pinfold.node.processgroups.errors import NoProcessError
from pinfold.node.processgroups.names import read_marks
from pinfold.node.procfs import NO_ENVIRONMENT, NO_INODE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from os import DirEntry

    from pinfold.core.pods.pod import ContainerRef
    from pinfold.node.procfs import Alive, Process, Procfs, Seen

_OLD: Final = 300
"""Clock ticks, three seconds: a process that is older has become the program that it was forked for."""
_AGAIN: Final = 50
_NO_PROCESS: Final = 0


class Membership:
    """The processes of the containers of one *tree*."""

    def __init__(self, tree: str, procfs: Procfs, again: int = _AGAIN) -> None:
        """Read *again* strangers at each scan."""
        self._tree = tree
        self._procfs = procfs
        self._again = again
        self._strangers: dict[int, Seen] = {}
        """Old processes without a container; those that were read longest ago come first."""
        self._members: dict[int, Seen] = {}
        """The processes of all containers at the last scan."""
        self._unsettled: dict[int, int] = {}
        """The others with their inodes, which a glance reads: new ones, and those that were put elsewhere since."""
        self._inodes: dict[int, int] = {}
        """The processes of the last scan by their inodes; _NO_PROCESS for other entries of /proc."""
        self._owned: dict[int, ContainerRef] = {}
        """The containers of the members."""
        self._by_container: dict[ContainerRef, list[int]] | None = None
        """The result of the last glance, while it is right."""
        self._listing: list[int] = []
        """The inodes of the last glance, as they were listed."""
        self._is_ahead = False
        """Whether the strangers of the next glance were read already."""
        self._known: dict[Process, ContainerRef | None] = {}
        self._unmarked: dict[int, Seen] = {}
        """Processes without marks, with the place of their environments then: most processes of a host are not ours."""
        self.marked_exclusive: dict[ContainerRef, bool] = {}
        """Whether a container is exclusive, as the environments of its processes say."""

    def add(self, ref: ContainerRef, pid: int) -> Process:
        """Put a running process into the container; the children it has already stay where they are."""
        self.scan()
        alive = self._procfs.processes()
        if pid not in alive:
            raise NoProcessError(pid)
        for seen in alive.values():
            if seen.parent == pid:
                self._known.setdefault(seen.process, None)
        process = alive[pid].process
        self._take_in(process, ref)
        return process

    def is_known(self, ref: ContainerRef, pid: int) -> bool:
        """Return whether the last scan, or a caller since then, has put a process into the container."""
        found = self._procfs.process(pid)
        return found is not None and self._known.get(found.process) == ref

    def drop(self, process: Process) -> None:
        """Forget to which container a process belongs."""
        self._known.pop(process, None)
        self._unsettle(process.pid)

    def put(self, ref: ContainerRef, pid: int) -> None:
        """Put a process that was started in the container there, unless it has ended."""
        found = self._procfs.process(pid)
        if found is not None:
            self._take_in(found.process, ref)

    def _take_in(self, process: Process, ref: ContainerRef) -> None:
        self._known[process] = ref
        self._unsettle(process.pid)

    def _unsettle(self, pid: int) -> None:
        """Let the next glance read a process that it would not."""
        if (seen := self._pop(pid)) is not None:
            self._unsettled[pid] = seen.inode

    def _pop(self, pid: int) -> Seen | None:
        """Return a process as it was seen, if it need not be read, and remove it."""
        if self._owned.pop(pid, None) is None:
            return self._strangers.pop(pid, None)
        self._by_container = None
        return self._members.pop(pid)

    def scan(self, *, glance: bool = False) -> dict[ContainerRef, list[int]]:
        """Return the processes of every container that has any, ascending.

        At a *glance* members are not read again: one may only wait to be reaped. The caller must not change what that
        returns; it is the same object as before if no process of a container has come or gone.
        """
        if glance and (found := self._glance()) is not None:
            return found
        due = set(islice(self._programs(), self._again))
        waiting = {pid: seen for pid, seen in self._strangers.items() if pid not in due}
        alive = self._procfs.processes(waiting)
        unread = {pid: seen for pid, seen in waiting.items() if alive.get(pid) is seen}
        read = {pid: seen for pid, seen in alive.items() if pid not in unread}
        self._owned = {pid: owner for pid, owner in self._owners(read, {}).items() if owner is not None}
        self._members = {pid: alive[pid] for pid in self._owned}
        self._remember(alive, {alive[pid].process: ref for pid, ref in self._owned.items()})
        others = {pid: seen for pid, seen in read.items() if pid not in self._owned}
        old = self._old(others)
        self._strangers = unread | old
        self._unsettled = {pid: seen.inode for pid, seen in others.items() if pid not in old}
        self._inodes, self._listing = {seen.inode: pid for pid, seen in alive.items()}, []
        self._by_container = None
        return self._by_owner()

    def _by_owner(self) -> dict[ContainerRef, list[int]]:
        members: dict[ContainerRef, list[int]] = {}
        for pid in sorted(self._owned):
            members.setdefault(self._owned[pid], []).append(pid)
        return members

    def _glance(self) -> dict[ContainerRef, list[int]] | None:
        """Return the processes of every container, from those of the last scan; None if a full one is needed."""
        entries = self._procfs.entries()
        listing = [entry.inode() for entry in entries]
        if listing != self._listing:  # hardly ever of many processes, if the host is quiet
            now = dict(zip(listing, entries, strict=True))
            if not self._inodes or len(now) < len(entries) or NO_INODE in now:  # they do not tell all processes apart
                return None
            self._compare(now)
            self._listing = listing
        return self._read(0 if self._is_ahead else self._again)

    def reread(self) -> dict[ContainerRef, list[int]]:
        """Return the processes of every container as a glance does, without a new list of those of the host.

        As many strangers are read as by two glances; the next glance reads none.
        """
        members = self._read(2 * self._again)
        self._is_ahead = True
        return members

    def _read(self, again: int) -> dict[ContainerRef, list[int]]:
        """Read new processes and the next few strangers; return the processes of every container."""
        self._is_ahead = False
        for pid in list(islice(self._programs(), again)):
            self._unsettle(pid)
        found = ((pid, self._procfs.process(pid, inode)) for pid, inode in self._unsettled.items())
        read = {pid: seen for pid, seen in found if seen is not None}
        owned = {pid: owner for pid, owner in self._owners(read, self._owned).items() if owner is not None}
        if owned:
            self._members |= {pid: read[pid] for pid in owned}
            self._known |= {read[pid].process: owner for pid, owner in owned.items()}
            self._owned |= owned
            self._by_container = None
        old = self._old({pid: seen for pid, seen in read.items() if pid not in owned})
        self._strangers |= old
        for pid in (*owned, *old):
            del self._unsettled[pid]
        if self._by_container is None:
            self._by_container = self._by_owner()
        return self._by_container

    def _compare(self, now: Mapping[int, DirEntry[str]]) -> None:
        """Forget the processes that have gone since the last scan, and take in those that have come."""
        names = {inode: now[inode].name for inode in now.keys() - self._inodes.keys()}
        come = {inode: int(name) if name.isdecimal() else _NO_PROCESS for inode, name in names.items()}
        again = set(come.values())  # the kernel has forgotten their inodes, or they are others of the same number
        for inode in self._inodes.keys() - now.keys():
            pid = self._inodes.pop(inode)
            seen = self._pop(pid)
            self._unsettled.pop(pid, None)
            if seen is not None and pid not in again:
                self._known.pop(seen.process, None)
                self._unmarked.pop(pid, None)
        self._inodes |= come
        self._unsettled |= {pid: inode for inode, pid in come.items() if pid != _NO_PROCESS}

    def _programs(self) -> Iterator[int]:
        """Yield the strangers that can become another program, as a kernel thread cannot."""
        return (pid for pid, seen in self._strangers.items() if seen.environment != NO_ENVIRONMENT)

    def _remember(self, alive: Alive, members: Mapping[Process, ContainerRef]) -> None:
        """Forget the processes that have ended, and add these."""
        # Other processes are looked at again next time: a child has its own environment only after exec.
        known = ((process, ref) for process, ref in self._known.items() if process.pid in alive)
        self._known = {process: ref for process, ref in known if alive[process.pid].process == process}
        self._known.update(members)
        self._unmarked = {pid: seen for pid, seen in self._unmarked.items() if pid in alive}

    def _old(self, alive: Alive) -> dict[int, Seen]:
        """Return those of the processes that are old."""
        before = self._procfs.now() - _OLD
        return {pid: seen for pid, seen in alive.items() if seen.process.start < before}

    def _owners(self, read: Alive, unread: Mapping[int, ContainerRef | None]) -> dict[int, ContainerRef | None]:
        """Return the containers of those *read*, climbing to parents until one belongs to a container.

        *unread* are the containers of others, if they have one.
        """
        owners: dict[int, ContainerRef | None] = {os.getpid(): None}
        for start in read:
            pid, owner = start, None
            climbed = []
            while pid in read and pid not in owners:
                climbed.append(pid)
                owners[pid] = None
                seen = read[pid]
                if seen.process in self._known:
                    owner = self._known[seen.process]
                    break
                owner = self._marked(seen)
                if owner is not None:
                    break
                pid = seen.parent
            else:
                owner = owners.get(pid, unread.get(pid))
            owners.update(dict.fromkeys(climbed, owner))
        return owners

    def _marked(self, seen: Seen) -> ContainerRef | None:
        """Return the container that a process's environment names; one without marks is read again after an exec."""
        if seen.environment and self._unmarked.get(seen.process.pid) == seen:
            return None
        marked = read_marks(self._tree, self._procfs.own_environment(seen.process.pid))
        if marked is None:
            self._unmarked[seen.process.pid] = seen
            return None
        ref, exclusive = marked
        self.marked_exclusive[ref] = exclusive
        return ref
