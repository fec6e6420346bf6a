"""Strays: processes and threads that another program has moved out of the groups of containers, or into them.

The kernel does not say who has moved a process. So this remembers which processes were in a group at the last look; and
a process belongs to a container if its parent does, or if its environment says so.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.node import cgroupfiles as files
from pinfold.node.cgroupfiles import CgroupError
from pinfold.node.processgroups.names import read_marks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pinfold.core.pods.pod import ContainerRef
    from pinfold.node.procfs import Process, Procfs

    Alive = Mapping[int, tuple[Process, int]]

_TASKS: Final = "tasks"
_INIT: Final = 1


class Moved(NamedTuple):
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
    """Who is in a group, or in one below it."""

    pids: frozenset[int]
    threads: frozenset[int] | None
    """None where a process cannot be in two groups."""


class Strays:
    """Remembers the processes of the containers of one *tree*."""

    def __init__(self, tree: str, procfs: Procfs) -> None:
        self._tree = tree
        self._procfs = procfs
        self._known: dict[Process, ContainerRef] = {}

    def look(self, containers: Mapping[ContainerRef, Housed]) -> Moved:
        """Return the processes that have been moved since the last look."""
        alive = self._procfs.processes()
        owners = self._owners(alive, containers)
        threads = {pid: self._procfs.threads(pid) for pid in owners}  # before the groups: later ones start inside
        # Containers of the shared pool have a group in common: it is read once.
        inside = {group: _read(group) for group in {group for housed in containers.values() for group in housed.groups}}
        into: dict[ContainerRef | None, tuple[int, ...]] = {}
        for ref, housed in containers.items():
            unknown = inside[housed.groups[0]].pids - owners.keys()
            strangers = {pid for pid in unknown if self._is_stranger(pid, housed.main, alive, owners)}
            owners.update(dict.fromkeys(unknown - strangers, ref))
            if strangers:
                into[ref] = tuple(sorted(strangers))
        common = {pid for found in inside.values() for pid in found.pids if pid in alive} - owners.keys()
        if others := common - {pid for pids in into.values() for pid in pids}:
            into[None] = tuple(sorted(others))
        self._known = {alive[pid][0]: ref for pid, ref in owners.items() if pid in alive}
        out: dict[ContainerRef, tuple[int, ...]] = {}
        for pid, ref in sorted(owners.items()):
            groups = (inside[group] for group in containers[ref].groups)
            if not all(self._is_inside(pid, threads.get(pid, ()), group) for group in groups):
                out[ref] = (*out.get(ref, ()), pid)
        return Moved(out, into)

    def _owners(self, alive: Alive, containers: Mapping[ContainerRef, Housed]) -> dict[int, ContainerRef]:
        """Return the containers of processes: of the main ones, of those seen before, and of their children."""
        owners = {
            process.pid: ref
            for process, ref in self._told(containers)
            if ref in containers and alive.get(process.pid, (None,))[0] == process
        }
        for start in alive:
            pid, climbed = start, []
            while pid in alive and pid not in owners and pid != os.getpid():
                climbed.append(pid)
                pid = alive[pid][1]
            owner = owners.get(pid)
            if owner is not None and not containers[owner].lent:
                owners.update(dict.fromkeys(climbed, owner))
        return owners

    def _told(self, containers: Mapping[ContainerRef, Housed]) -> Iterator[tuple[Process, ContainerRef]]:
        yield from self._known.items()
        yield from ((housed.main, ref) for ref, housed in containers.items() if housed.main is not None)

    def _is_stranger(self, pid: int, main: Process | None, alive: Alive, owners: Mapping[int, ContainerRef]) -> bool:
        """Return whether a process in a container's group was certainly not started by the container."""
        if pid not in alive:  # it has just been forked, by one that is in the group
            return False
        process, parent = alive[pid]
        if parent in owners or read_marks(self._tree, self._procfs.environment(pid)) is not None:
            return False
        return parent != _INIT or (main is not None and process.start < main.start)

    def _is_inside(self, pid: int, threads: Sequence[int], group: _Inside) -> bool:
        """Return whether a process is in a group with all its threads; one that has ended is nowhere else."""
        if pid not in group.pids:
            return self._procfs.process(pid) is None
        outside = set() if group.threads is None else set(threads) - group.threads
        return not outside or not outside & set(self._procfs.threads(pid))


def _read(group: Path) -> _Inside:
    """Return who is in a group, or in one below that its processes have made; no one if there is no such group."""
    pids, threads, groups = set[int](), set[int](), [group]
    try:
        for one in groups:  # grows while it is walked
            groups.extend(files.groups_below(one))
            pids.update(files.read_pids(one))
            if (one / _TASKS).exists():
                threads.update(map(int, files.read(one / _TASKS).split()))
    except CgroupError:  # it has just been removed
        pass
    return _Inside(frozenset(pids), frozenset(threads) if threads else None)
