"""Membership: which process belongs to which container, where no cgroup says so.

A process belongs to the container that it was started in or attached to, else to the one that its environment names,
else to its parent's. What was found is remembered, so a process stays a member when its parent has ended.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pinfold.node.processgroups.errors import NoProcessError
from pinfold.node.processgroups.names import read_marks

if TYPE_CHECKING:
    from pinfold.core.pods.pod import ContainerRef
    from pinfold.node.procfs import Alive, Process, Procfs, Seen


class Membership:
    """The processes of the containers of one *tree*."""

    def __init__(self, tree: str, procfs: Procfs) -> None:
        self._tree = tree
        self._procfs = procfs
        self._known: dict[Process, ContainerRef | None] = {}
        self._unmarked: dict[Process, tuple[bytes, ...]] = {}
        """Processes without marks, and where their environments were then: most processes of a host are not ours."""
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
        self._known[process] = ref
        return process

    def is_known(self, ref: ContainerRef, pid: int) -> bool:
        """Return whether the last scan, or a caller since then, has put a process into the container."""
        found = self._procfs.process(pid)
        return found is not None and self._known.get(found.process) == ref

    def drop(self, process: Process) -> None:
        """Forget to which container a process belongs."""
        self._known.pop(process, None)

    def put(self, ref: ContainerRef, pid: int) -> None:
        """Put a process that was started in the container there, unless it has ended."""
        found = self._procfs.process(pid)
        if found is not None:
            self._known[found.process] = ref

    def scan(self) -> dict[ContainerRef, list[int]]:
        """Return the processes of every container that has any, ascending."""
        alive = self._procfs.processes()
        owners = self._owners(alive)
        # Processes without a container are looked at again next time: a child has its own environment only after exec.
        self._known = {
            seen.process: owners[pid]
            for pid, seen in alive.items()
            if owners[pid] is not None or seen.process in self._known
        }
        living = {seen.process for seen in alive.values()}
        self._unmarked = {process: place for process, place in self._unmarked.items() if process in living}
        members: dict[ContainerRef, list[int]] = {}
        for pid in sorted(alive):
            owner = owners[pid]
            if owner is not None:
                members.setdefault(owner, []).append(pid)
        return members

    def _owners(self, alive: Alive) -> dict[int, ContainerRef | None]:
        """Return the container of each process, climbing from child to parent until one belongs to a container."""
        owners: dict[int, ContainerRef | None] = {os.getpid(): None}
        for start in alive:
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
        if seen.environment and self._unmarked.get(seen.process) == seen.environment:
            return None
        marked = read_marks(self._tree, self._procfs.own_environment(seen.process.pid))
        if marked is None:
            self._unmarked[seen.process] = seen.environment
            return None
        ref, exclusive = marked
        self.marked_exclusive[ref] = exclusive
        return ref
