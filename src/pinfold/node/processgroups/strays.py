"""Strays: processes and threads that another program has moved out of the groups of containers, or into them.

The kernel does not say who has moved a process. So this remembers which processes were in a group at the last look; and
a process belongs to a container if its parent does, or if its environment says so.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.node import cgroupfiles as files
from pinfold.node.cgroupfiles import CgroupError
from pinfold.node.outputs import drain
from pinfold.node.processgroups.names import read_marks

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from pinfold.core.pods.pod import ContainerRef
    from pinfold.node.procfs import Alive, Process, Procfs, Seen

_TASKS: Final = "tasks"
_INIT: Final = 1
_MOST_TEXTS: Final = 128


class MovedProcesses(NamedTuple):
    """The processes that another program has moved."""

    out: Mapping[ContainerRef, tuple[int, ...]] = {}
    """Those that are not in all groups of their container with all their threads."""
    into: Mapping[ContainerRef | None, tuple[int, ...]] = {}
    """Those that are in the group of a container that is not theirs; None: in a group of several containers."""


class Housed(NamedTuple):
    """A container's groups, and who it has."""

    groups: Sequence[Path]
    """The cgroups that all its threads must be in; the first is its own."""
    main: Process | None = None
    lent: bool = False
    """Whether its main process had children before, which are not in its groups."""


class _Inside(NamedTuple):
    """The processes and threads in a group, or in one below it."""

    pids: frozenset[int]
    threads: frozenset[int] | None
    """None where a process cannot be in two groups."""


class Strays:
    """Remembers the processes of the containers of one *tree*."""

    def __init__(self, tree: str, procfs: Procfs) -> None:
        self._tree = tree
        self._procfs = procfs
        self._known: dict[Process, ContainerRef] = {}
        self._pids: dict[ContainerRef, list[int]] = {}
        """The same the other way round."""
        self._alive: Alive = {}
        """The processes of the last look."""

    def look(self, containers: Mapping[ContainerRef, Housed]) -> MovedProcesses:
        """Return the processes that have been moved since the last look."""
        alive = self._now_alive(containers)
        owners = self._owners(alive, containers)
        threads = {pid: self._procfs.threads(pid) for pid in owners}  # before the groups: later ones start inside
        processes = {thread: pid for pid, its in threads.items() for thread in its}
        # Containers of the shared pool have a group in common: it is read once.
        groups = {group for housed in containers.values() for group in housed.groups}
        inside = {group: _read(group, processes) for group in groups}
        into: dict[ContainerRef | None, tuple[int, ...]] = {}
        members = {pid for found in inside.values() for pid in found.pids}
        starting = {pid for pid in members - owners.keys() if self._is_starting(pid)}
        for ref, housed in containers.items():
            unknown = {pid for pid in inside[housed.groups[0]].pids if pid not in owners and pid not in starting}
            for pid in unknown & alive.keys():
                self._read_again(pid, alive)
            strangers = {pid for pid in unknown if self._is_stranger(pid, housed.main, alive, owners)}
            owners.update(dict.fromkeys(unknown - strangers, ref))
            if strangers:
                into[ref] = tuple(sorted(strangers))
        common = (members & alive.keys()) - owners.keys() - starting
        if others := common - {pid for pids in into.values() for pid in pids}:
            into[None] = tuple(sorted(others))
        self._remember(alive, owners)
        out: dict[ContainerRef, tuple[int, ...]] = {}
        for pid, ref in sorted(owners.items()):
            whole = [inside[group] for group in containers[ref].groups]
            if not all(self._is_inside(alive.get(pid), pid, threads.get(pid, ()), group) for group in whole):
                out[ref] = (*out.get(ref, ()), pid)
        return MovedProcesses(out, into)

    def learn(self, containers: Mapping[ContainerRef, Housed]) -> None:
        """Take in which processes there are, and whose they are; read no group."""
        alive = self._now_alive(containers)
        if alive != self._alive:
            self._remember(alive, self._owners(alive, containers))

    def are_inside(
        self,
        containers: Mapping[ContainerRef, Housed],
        part: Collection[ContainerRef],
        read: Mapping[Path, Collection[int]],
    ) -> bool:
        """Return whether the known processes of *part* of the containers are in their groups; `look` says which not.

        For many containers of which nothing was heard: who moves a process in writes to a group, and is heard. *read*
        are the threads of groups that were read already.
        """
        return all(self._is_whole(containers[ref].groups, self._pids.get(ref, ()), read) for ref in part)

    def _is_whole(self, groups: Sequence[Path], pids: Collection[int], read: Mapping[Path, Collection[int]]) -> bool:
        """Return whether these processes are in all groups of their container, with all their threads."""
        threads = {pid: its for pid in pids if (its := self._procfs.threads(pid))}
        for group in groups if threads else ():
            if inside := read.get(group) or threads_in(group):
                if any(thread not in inside for its in threads.values() for thread in its):
                    return False
            # cgroup v2 lists no threads; and a process may be in a group below
            elif not threads.keys() <= _read(group, {}).pids:
                return False
        return True

    def _remember(self, alive: Alive, owners: Mapping[int, ContainerRef]) -> None:
        self._known = {alive[pid][0]: ref for pid, ref in owners.items() if pid in alive}
        self._pids = {}
        for process, ref in self._known.items():
            self._pids.setdefault(ref, []).append(process.pid)
        self._alive = alive

    def _now_alive(self, containers: Mapping[ContainerRef, Housed]) -> dict[int, Seen]:
        """Return the living processes. Those of the last look are not read again, except where a main one is new."""
        if not containers:  # by affinity none has groups
            return {}
        alive = self._procfs.processes(self._alive)
        for housed in containers.values():
            main = housed.main
            if main is not None and main.pid in alive and alive[main.pid].process != main:
                self._read_again(main.pid, alive)
        return alive

    def _read_again(self, pid: int, alive: dict[int, Seen]) -> None:
        found = self._procfs.process(pid)
        if found is None:
            del alive[pid]
        else:
            alive[pid] = found

    def _owners(self, alive: Alive, containers: Mapping[ContainerRef, Housed]) -> dict[int, ContainerRef]:
        """Return the containers of processes: of the main ones, of those seen before, and of their children."""
        owners = {
            process.pid: ref
            for process, ref in self._told(containers)
            if ref in containers and alive.get(process.pid, (None,))[0] == process
        }
        free = {os.getpid()}  # and all others of no container, so that each is climbed from once
        for start in alive:
            pid, climbed = start, []
            while pid in alive and pid not in owners and pid not in free:
                climbed.append(pid)
                pid = alive[pid].parent
            owner = owners.get(pid)
            if owner is not None and not containers[owner].lent:
                owners.update(dict.fromkeys(climbed, owner))
            else:
                free.update(climbed)
        return owners

    def _told(self, containers: Mapping[ContainerRef, Housed]) -> Iterator[tuple[Process, ContainerRef]]:
        yield from self._known.items()
        yield from ((housed.main, ref) for ref, housed in containers.items() if housed.main is not None)

    def _is_starting(self, pid: int) -> bool:
        """Return whether we are about to start a process: a child of ours, but not the drain that was moved in.

        It has no mark before it has become its command; and while it becomes it, the kernel shows no command either.
        """
        found = self._procfs.process(pid)
        return found is not None and found.parent == os.getpid() and drain.__file__ not in self._procfs.command(pid)

    def _is_stranger(self, pid: int, main: Process | None, alive: Alive, owners: Mapping[int, ContainerRef]) -> bool:
        """Return whether a process in a container's group was certainly not started by the container."""
        if pid not in alive:  # it has just been forked, by one that is in the group
            return False
        process, parent = alive[pid].process, alive[pid].parent
        if parent in owners or read_marks(self._tree, self._procfs.environment(pid)) is not None:
            return False
        return parent != _INIT or (main is not None and process.start < main.start)

    def _is_inside(self, known: Seen | None, pid: int, threads: Sequence[int], group: _Inside) -> bool:
        """Return whether a process is in a group with all its threads; one that has ended is nowhere else."""
        if pid not in group.pids:
            found = self._procfs.process(pid)
            return found is None or (known is not None and found.process != known.process)
        outside = set() if group.threads is None else set(threads) - group.threads
        return not outside or not outside & set(self._procfs.threads(pid))


def _read(group: Path, processes: Mapping[int, int]) -> _Inside:
    """Return the processes in a group, or in one below that they have made; none if there is no such group.

    *processes* are the processes of known threads: the kernel takes long to say them.
    """
    pids, threads, groups = set[int](), set[int](), [group]
    try:
        for one in groups:  # grows while it is walked
            groups.extend(files.groups_below(one))
            here = threads_in(one)
            threads.update(here)
            is_known = here and all(thread in processes for thread in here)
            pids.update({processes[thread] for thread in here} if is_known else files.read_pids(one))
    except CgroupError:  # it has just been removed
        pass
    return _Inside(frozenset(pids), frozenset(threads) if threads else None)


def threads_in(group: Path) -> frozenset[int]:
    """Return the threads in a group of cgroup v1; none where a process cannot be in two groups."""
    try:
        return _numbers(files.read(f"{group}/{_TASKS}"))
    except CgroupError as error:
        if error.name == "ENOENT":
            return frozenset()
        raise


@lru_cache(_MOST_TEXTS)
def _numbers(text: str) -> frozenset[int]:
    """Return the numbers in a text; most groups have the same threads at the next look, and a pool has thousands."""
    return frozenset(map(int, text.split()))
