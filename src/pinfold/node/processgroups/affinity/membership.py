"""Membership: which process belongs to which container, where no cgroup says so.

A process belongs to the container that it was started in or attached to, else to the one that its environment names,
else to its parent's. What was found is remembered, so a process stays a member when its parent has ended.

Most processes of a host are not ours: of those that are old enough to have become their program, each scan reads some
again, the others and kernel threads only if their number is another process's by now. New processes are read every
time, and members unless a glance is enough.
"""

from __future__ import annotations

import os
from itertools import islice
from typing import TYPE_CHECKING, Final

from pinfold.node.processgroups.errors import NoProcessError
from pinfold.node.processgroups.names import read_marks
from pinfold.node.procfs import NO_ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pinfold.core.pods.pod import ContainerRef
    from pinfold.node.procfs import Alive, Process, Procfs, Seen

_OLD: Final = 300
"""Clock ticks, three seconds: a process that is older has become the program that it was forked for."""
_AGAIN: Final = 50


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
        self._members.pop(process.pid, None)

    def put(self, ref: ContainerRef, pid: int) -> None:
        """Put a process that was started in the container there, unless it has ended."""
        found = self._procfs.process(pid)
        if found is not None:
            self._take_in(found.process, ref)

    def _take_in(self, process: Process, ref: ContainerRef) -> None:
        self._known[process] = ref
        self._strangers.pop(process.pid, None)

    def scan(self, *, glance: bool = False) -> dict[ContainerRef, list[int]]:
        """Return the processes of every container that has any, ascending.

        At a *glance* members are not read again: one may only wait to be reaped.
        """
        due = set(islice(self._programs(), self._again))
        waiting = {pid: seen for pid, seen in self._strangers.items() if pid not in due}
        if glance:
            waiting |= self._members
        alive = self._procfs.processes(waiting)
        unread = {pid: seen for pid, seen in waiting.items() if alive.get(pid) is seen}
        read = {pid: seen for pid, seen in alive.items() if pid not in unread}
        owners = self._owners(alive, read, unread)
        members: dict[ContainerRef, list[int]] = {}
        for pid in sorted(alive):
            if (owner := owners[pid]) is not None:
                members.setdefault(owner, []).append(pid)
        self._members = {pid: alive[pid] for pids in members.values() for pid in pids}
        self._remember(alive, {alive[pid].process: ref for ref, pids in members.items() for pid in pids})
        strangers = {pid: seen for pid, seen in unread.items() if owners[pid] is None}
        self._strangers = strangers | self._old({pid: seen for pid, seen in read.items() if owners[pid] is None})
        return members

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

    def _owners(self, alive: Alive, read: Alive, unread: Alive) -> dict[int, ContainerRef | None]:
        """Return the containers of all, climbing from those *read* to parents until one belongs to a container."""
        owners: dict[int, ContainerRef | None] = {os.getpid(): None}
        owners.update((pid, self._known.get(seen.process)) for pid, seen in unread.items())
        for start in read:
            pid, owner = start, None
            climbed = []
            while pid in alive and pid not in owners:
                climbed.append(pid)
                owners[pid] = None
                seen = alive[pid]
                if seen.process in self._known:
                    owner = self._known[seen.process]
                    break
                owner = self._marked(seen)
                if owner is not None:
                    break
                pid = seen.parent
            else:
                owner = owners.get(pid)
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
