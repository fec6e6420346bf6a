"""KnownThreads: whether the threads of all containers are on their CPUs, without a list of those of each process.

The threads of a process are listed when it comes, and again when it is its container's turn. In between each thread
that is known is asked for its CPUs, which is one system call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pinfold.core.reconcile import Observed
from pinfold.node.procfs import are_within

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import ContainerRef
    from pinfold.node.procfs import Procfs

    Members = Mapping[ContainerRef, list[int]]
    """The processes of all containers; the same object until one comes or goes."""


class _Sight(NamedTuple):
    """What a glance looks at; the next one looks at the same if nothing has changed."""

    members: Members
    observed: Observed
    threads: dict[CPUSet, list[int]]
    """All that are known, by the CPUs that they should be on."""


class KnownThreads:
    """The threads that each process of a container had when they were listed last."""

    def __init__(self, procfs: Procfs) -> None:
        self._procfs = procfs
        self._listed: dict[int, list[int]] = {}
        """The threads of the processes of all containers."""
        self._sight: _Sight | None = None
        """What the last glance looked at; None after a change."""

    def forget(self) -> None:
        """Have the next look find out again what it looks at: a container has other CPUs now, or has gone."""
        self._sight = None

    def update(self, members: Members, part: Collection[ContainerRef]) -> None:
        """List the threads of new processes, and of *part* of the containers."""
        if self._sight is None or self._sight.members is not members:
            pids = [pid for pids in members.values() for pid in pids]
            self._listed = {pid: self._listed.get(pid) or self._procfs.threads(pid) for pid in pids}
        now = {pid: self._procfs.threads(pid) for ref in part for pid in members.get(ref, ())}
        if any(self._listed[pid] != threads for pid, threads in now.items()):
            self._listed |= now
            self._sight = None

    def look(self, members: Members, pool: CPUSet, own: Mapping[ContainerRef, CPUSet | None]) -> Observed | None:
        """Return the CPUs that all containers should have, if all threads are on these; None if one is not.

        *own* are those of exclusive containers, None for those that share the *pool*.
        """
        sight = self._sight
        if sight is None or sight.members is not members:
            sight = self._sight = self._prepare(members, pool, own)
        fits = all(are_within(threads, cpus) for cpus, threads in sight.threads.items())
        return sight.observed if fits else None

    def _prepare(self, members: Members, pool: CPUSet, own: Mapping[ContainerRef, CPUSet | None]) -> _Sight:
        should = {ref: pool if cpus is None else cpus for ref, cpus in own.items()}
        threads: dict[CPUSet, list[int]] = {}
        for ref, pids in members.items():
            threads.setdefault(should[ref], []).extend(thread for pid in pids for thread in self._listed[pid])
        return _Sight(members, Observed(pool, should), threads)
