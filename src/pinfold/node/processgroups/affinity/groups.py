"""Groups by affinity: no cgroups, the CPUs of every thread are set. Works without privileges on the user's processes.

What the kernel does not keep is remembered here: the containers and their CPUs (`confinement`) and which process
belongs to which (`membership`). After a restart, the marks in the environment of processes tell both.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pinfold.node.grouperrors import KindUnavailableError
from pinfold.node.groupwatch import Places
from pinfold.node.processgroups.affinity.confinement import Confinement
from pinfold.node.processgroups.affinity.threads import Reach
from pinfold.node.processgroups.errors import NOT_PROMISED, GroupInUseError
from pinfold.node.processgroups.joiner import Joiner
from pinfold.node.processgroups.names import checked_name, marks, show
from pinfold.node.processgroups.origin import give_back_all, origin_of
from pinfold.node.procfs import Procfs

if TYPE_CHECKING:
    from collections.abc import Collection
    from contextlib import AbstractContextManager

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import ContainerRef
    from pinfold.core.reconcile import Limit, Observed
    from pinfold.node.processgroups.origin import Origin

KIND: Final = "affinity"
_POOL: Final = "the shared pool"


def discover(name: str) -> AffinityGroups:
    """Return the groups called *name*; they need no more than Linux."""
    if not hasattr(os, "sched_setaffinity"):
        raise KindUnavailableError(KIND, "there is no sched_setaffinity; this is not Linux")
    return AffinityGroups(name)


class NoLimits:
    """Where there are no quotas and weights, none can be wrong."""

    def wrong(self, ref: ContainerRef, limit: Limit) -> str:  # noqa: ARG002 - affinity has no limits
        """Return nothing."""
        return ""

    def wrong_pools(self) -> str:
        """Return nothing."""
        return ""

    def free_pools(self) -> None:
        """Do nothing."""


class AffinityGroups:
    """Containers as sets of processes with the same affinity."""

    kind = KIND
    limits = NoLimits()
    has_limits = False

    def __init__(self, name: str, root: Path = Path("/"), procfs: Procfs | None = None) -> None:
        self.name = checked_name(name)
        self.instead_of: tuple[str, ...] = ()
        """Why no stronger kind was taken; empty if the user has named this one."""
        self._procfs = procfs or Procfs(root / "proc")
        self._reach = Reach(root)
        self._confinement = Confinement(name, self._procfs)

    @property
    def weaker(self) -> tuple[str, ...]:
        """What cannot be promised, in words; first what the user can change."""
        reasons = []
        if barred := self._reach.barred():
            reasons.append(
                f"the daemon's cpuset does not have CPUs {barred}, so no container gets them; "
                f"start the daemon with --reserved-cpus {barred}, so that it promises them to no container"
            )
        if self.instead_of:
            reasons.append(f"affinity is used because {'; '.join(self.instead_of)}")
        reasons += [
            "a process can change its own affinity; it is put back at the next reconcile",
            "an affinity that a process has chosen itself is lost when the CPUs of its container change",
            "CPU limits and weights are not applied",
        ]
        if os.geteuid() != 0:
            reasons.append("processes of other users are not moved")
        return (*reasons, *NOT_PROMISED)

    def places(self) -> Places:
        """Return none: there are no cgroups."""
        return Places()

    def hold(self) -> None:
        """Do nothing: there is no group to hold. The register of daemons keeps their names apart."""

    def prepare(self, shared: CPUSet) -> None:
        """Set the shared pool; there is nothing to make."""
        self.set_shared(shared)

    def set_shared(self, cpus: CPUSet) -> None:
        """Make *cpus* the shared pool, and move every process in it."""
        self._reach.check(_POOL, cpus, exact=False)
        self._confinement.set_pool(cpus)

    def shared_cpus(self) -> CPUSet:
        """Return the CPUs of the pool, and any others that a thread in it may use."""
        confinement = self._confinement
        members = confinement.members().items()
        sharing = [pid for ref, pids in members if not confinement.is_exclusive(ref) for pid in pids]
        return confinement.pool | confinement.used(sharing)

    def glance(self, part: Collection[ContainerRef], *, anew: bool = True) -> Observed | None:
        """Return the CPUs of all containers, if all threads that are known are on these; None if that is not certain.

        The threads of new processes are listed, and those of *part* of the containers again. Unless *anew*, the
        processes of the host are not listed, so processes that have come are not seen.
        """
        return self._confinement.glance(part, anew=anew)

    def one_look(self) -> AbstractContextManager[None]:
        """Return a block in which the processes of the host are listed once, and again when one was moved."""
        return self._confinement.one_look()

    def make_exclusive(self, ref: ContainerRef, cpus: CPUSet) -> None:
        """Remember the container with CPUs of its own, and move the processes that it has."""
        self._reach.check(f"container {show(ref)}", cpus, exact=True)
        self._confinement.set_own(ref, cpus)

    def make_shared(self, ref: ContainerRef, limit: Limit) -> None:  # noqa: ARG002 - affinity has no limits
        """Remember the container as one that shares, and move the processes that it has."""
        self._reach.check(_POOL, self._confinement.pool, exact=False)
        self._confinement.set_own(ref, None)

    def expel(self, pid: int) -> None:
        """Do nothing: no process can be moved into a container."""

    def group(self, ref: ContainerRef) -> AffinityGroup:
        """Return the container's group, or raise if it has none."""
        self._confinement.require(ref)
        return AffinityGroup(self._confinement, ref, self._reach.possible)

    def found(self) -> dict[ContainerRef, bool]:
        """Return the containers that were made, or that have processes with marks; True if it is exclusive."""
        return {ref: self._confinement.is_exclusive(ref) for ref in self._confinement.refs()}

    def origin(self, pid: int) -> Origin:
        """Return which CPUs the threads of a process may use."""
        return origin_of(self._procfs, pid)

    def remove(self, ref: ContainerRef) -> None:
        """Forget the container, which must have no processes."""
        pids = self._confinement.members().get(ref)
        if pids:
            raise GroupInUseError(f"container {show(ref)}", pids)
        self._confinement.forget(ref)

    def remove_empty(self) -> list[int]:
        """Forget the containers without processes; return the processes that are left."""
        members = self._confinement.members()
        self._confinement.keep_only(members)
        return sorted(pid for pids in members.values() for pid in pids)


class AffinityGroup:
    """The processes of one container; *possible* are the CPUs that those of unknown origin get back."""

    def __init__(self, confinement: Confinement, ref: ContainerRef, possible: CPUSet) -> None:
        self._confinement = confinement
        self._ref = ref
        self._possible = possible

    def members(self) -> list[int]:
        """Return the processes of the container now."""
        self._confinement.require(self._ref)
        return self._confinement.members().get(self._ref, [])

    def has(self, pid: int) -> bool:
        """Return whether a process is known to be in the container."""
        return self._confinement.membership.is_known(self._ref, pid)

    def cpus(self) -> CPUSet:
        """Return the CPUs that the container should have, and any others that one of its threads may use."""
        return self._confinement.used(self.members()) | self._confinement.cpus(self._ref)

    def places(self) -> list[Path]:
        """Return none: there are no cgroups."""
        return []

    def environment(self) -> dict[str, str]:
        """Return the variables by which the container's processes are found after a restart."""
        return marks(self._confinement.tree, self._ref, exclusive=self._confinement.is_exclusive(self._ref))

    def joiner(self) -> Joiner:
        """Return a Joiner that sets the affinity of a process, and remembers whose it is."""
        cpus = self._confinement.cpus(self._ref)
        return Joiner(cpus, joined=partial(self._confinement.put, self._ref, cpus))

    def attach(self, pid: int) -> None:
        """Put a running process with all its threads into the container."""
        self._confinement.add(self._ref, pid)

    def give_back(self, origin: Origin) -> list[int]:
        """Let all processes of the container use the CPUs that the attached one had before, and return them."""
        before = origin if origin.cpus else origin._replace(cpus=self._possible)
        whose = f"container {show(self._ref)}"
        return give_back_all(self.members, lambda pid: self._confinement.release(pid, before), whose)
