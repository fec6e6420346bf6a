"""Groups by affinity: no cgroup at all, every thread is told its CPUs. Works without privileges on one's own processes.

What the kernel does not keep is remembered here: the containers and their CPUs (`confinement`) and which process
belongs to which (`membership`). After a restart, the marks in the environment of processes tell both.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pinfold.node.grouperrors import KindUnavailableError
from pinfold.node.processgroups.confinement import Confinement
from pinfold.node.processgroups.errors import NOT_PROMISED, GroupInUseError, GroupsHeldError, NoGroupError
from pinfold.node.processgroups.names import checked_name, marks, show
from pinfold.node.processgroups.origin import give_back_all, origin_of, restore_affinity
from pinfold.node.processgroups.threads import Reach
from pinfold.node.procfs import Procfs

if TYPE_CHECKING:
    from pinfold.core.cpuset import CPUSet
    from pinfold.core.pods import ContainerRef
    from pinfold.core.reconcile import Limit
    from pinfold.node.processgroups.joiner import Joiner
    from pinfold.node.processgroups.origin import Origin

KIND: Final = "affinity"
_POOL: Final = "the shared pool"


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
        self._reach = Reach(root)
        self._confinement = Confinement(name, self._procfs)
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
        if barred := self._reach.barred():
            reasons.append(
                f"the daemon's cpuset does not have CPUs {barred}, so no container gets them; "
                f"start the daemon with --reserved-cpus {barred}, so that it promises them to no container"
            )
        return tuple(reasons)

    def hold(self) -> None:
        """Keep other daemons of this user from using the same marks; raise if one does."""
        if self._held is not None:
            return
        # A name that is no file: the kernel frees it when the process that has it ends.
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
        self._reach.check(_POOL, cpus, exact=False)
        self._confinement.set_pool(cpus)

    def make(self, ref: ContainerRef, cpus: CPUSet | None, limit: Limit) -> None:  # noqa: ARG002 - cannot be applied
        """Remember the container, and move the processes that it has already."""
        if cpus is None:
            self._reach.check(_POOL, self._confinement.pool, exact=False)
        else:
            self._reach.check(f"container {show(ref)}", cpus, exact=True)
        self._confinement.set_own(ref, cpus)

    def set_cpus(self, ref: ContainerRef, cpus: CPUSet) -> None:
        """Change the CPUs of an exclusive container."""
        self._confinement.find(ref)
        if not self._confinement.is_exclusive(ref):
            raise NoGroupError(ref)
        self._reach.check(f"container {show(ref)}", cpus, exact=True)
        self._confinement.set_own(ref, cpus)

    def attach(self, ref: ContainerRef, pid: int) -> None:
        """Put a running process with all its threads into the container."""
        self._confinement.find(ref)
        self._confinement.add(ref, pid)

    def origin(self, pid: int) -> Origin:
        """Return which CPUs the threads of a process may use."""
        return origin_of(self._procfs, pid)

    def give_back(self, ref: ContainerRef, origin: Origin) -> list[int]:
        """Let all processes of the container use the CPUs that its own could before, and forget them."""
        before = origin if origin.cpus else origin._replace(cpus=self._reach.possible)

        def give_back(pid: int) -> None:
            process = self._procfs.process(pid)
            if process is not None:
                restore_affinity(self._procfs, pid, before)
                self._confinement.membership.drop(process[0])

        return give_back_all(lambda: self.members(ref), give_back, f"container {show(ref)}")

    def joiner(self, ref: ContainerRef) -> Joiner:
        """Return what a forked child calls before exec."""
        self._confinement.find(ref)
        return self._confinement.membership.joiner(ref, lambda: os.sched_setaffinity(0, self._confinement.cpus(ref)))

    def environment(self, ref: ContainerRef) -> dict[str, str]:
        """Return the variables by which the container's processes are found after a restart."""
        self._confinement.find(ref)
        return marks(self._name, ref, exclusive=self._confinement.is_exclusive(ref))

    def members(self, ref: ContainerRef) -> list[int]:
        """Return the processes of the container now."""
        self._confinement.find(ref)
        return self._confinement.members().get(ref, [])

    def cpus(self, ref: ContainerRef) -> CPUSet:
        """Return the CPUs that the container was given, and those that any of its threads has beyond."""
        return self._confinement.used(self.members(ref)) | self._confinement.cpus(ref)

    def shared_cpus(self) -> CPUSet:
        """Return the CPUs of the pool, and those that any thread in it has beyond."""
        confinement = self._confinement
        members = confinement.members().items()
        sharing = [pid for ref, pids in members if not confinement.is_exclusive(ref) for pid in pids]
        return confinement.pool | confinement.used(sharing)

    def found(self) -> dict[ContainerRef, bool]:
        """Return the containers that were made, or whose processes say that they were; True: exclusive."""
        return {ref: self._confinement.is_exclusive(ref) for ref in self._confinement.refs()}

    def remove(self, ref: ContainerRef) -> None:
        """Forget the container, which must have no processes."""
        pids = self._confinement.members().get(ref)
        if pids:
            raise GroupInUseError(f"container {show(ref)}", pids)
        self._confinement.forget(ref)

    def remove_all(self) -> None:
        """Forget all containers, which must have no processes."""
        pids = [pid for pids in self._confinement.members().values() for pid in pids]
        if pids:
            raise GroupInUseError(self._name, pids)
        self._confinement.forget_all()
        if self._held is not None:
            self._held.close()
            self._held = None
