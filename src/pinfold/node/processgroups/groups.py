"""Groups: keeping the processes of each container together, on the CPUs they are given.

Three kinds, one protocol: cgroup v2, cgroup v1 and, where neither can be written, the affinity of each thread.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from pinfold.errors import ConfigError, excerpt
from pinfold.node.grouperrors import KindUnavailableError
from pinfold.node.processgroups import affinity, v1, v2

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pinfold.core.cpuset import CPUSet
    from pinfold.core.pods import ContainerRef
    from pinfold.core.reconcile import Limit
    from pinfold.node.processgroups.joiner import Joiner
    from pinfold.node.processgroups.origin import Origin


class Groups(Protocol):
    """Groups of processes, one for each container, in a subtree of our own. Nothing outside of it is touched.

    Every method leaves what it was asked for, read back from the kernel, or raises a GroupError.
    """

    @property
    def kind(self) -> str:
        """Its name in words: cgroup v2, cgroup v1 or affinity."""

    @property
    def weaker(self) -> tuple[str, ...]:
        """In words, what this kind cannot promise here."""

    def hold(self) -> None:
        """Keep other daemons from using the same groups for as long as this process lives; raise if one does."""

    def prepare(self, shared: CPUSet) -> None:
        """Make the own subtree where it is missing, and set the shared pool. Comes before all the others."""

    def set_shared(self, cpus: CPUSet) -> None:
        """Make *cpus* the shared pool, for all containers in it at once."""

    def make(self, ref: ContainerRef, cpus: CPUSet | None, limit: Limit) -> None:
        """Make the container's group, or make the one that is there as it should be.

        With *cpus* it is exclusive and without quota; with None in the shared pool, with quota and weight. Processes
        that the container has in the other pool come along.
        """

    def set_cpus(self, ref: ContainerRef, cpus: CPUSet) -> None:
        """Change the CPUs of an exclusive container."""

    def attach(self, ref: ContainerRef, pid: int) -> None:
        """Move a running process with all its threads, and nothing else, into the container's group."""

    def origin(self, pid: int) -> Origin:
        """Return where a process is, before it is attached."""

    def give_back(self, ref: ContainerRef, origin: Origin) -> list[int]:
        """Move all processes of the container to where the one that was attached came from, and return them."""

    def joiner(self, ref: ContainerRef) -> Joiner:
        """Return what a forked child calls before exec, to be in the group from its first instruction on."""

    def environment(self, ref: ContainerRef) -> dict[str, str]:
        """Return the variables that whoever starts a process of the container adds to its environment."""

    def members(self, ref: ContainerRef) -> list[int]:
        """Return the processes of the container now, ascending."""

    def cpus(self, ref: ContainerRef) -> CPUSet:
        """Return the CPUs that the container can run on, as the kernel says."""

    def shared_cpus(self) -> CPUSet:
        """Return the CPUs that the shared pool can run on, as the kernel says."""

    def found(self) -> dict[ContainerRef, bool]:
        """Return the containers that have a group now, True: exclusive; also those made before a restart."""

    def remove(self, ref: ContainerRef) -> None:
        """Remove the container's group, which must have no processes; a missing one is fine."""

    def remove_all(self) -> None:
        """Remove the own subtree, which must have no processes."""


KINDS: Final[Mapping[str, Callable[[Path, str], Groups]]] = {
    "cgroup-v2": v2.discover,
    "cgroup-v1": v1.discover,
    "affinity": affinity.discover,
}
"""From the strongest to the weakest, by the names that users write."""


def choose(wanted: str | None = None, *, cgroup_root: Path = Path("/sys/fs/cgroup"), name: str = "pinfold") -> Groups:
    """Return the strongest kind of groups that can be had here, or the one *wanted*; *name* is the own subtree's."""
    if wanted is not None and wanted not in KINDS:
        raise ConfigError(f"{excerpt(wanted)} is no kind of groups; expected one of {', '.join(KINDS)}")
    refusals = []
    for kind in KINDS if wanted is None else [wanted]:
        try:
            return KINDS[kind](cgroup_root, name)
        except KindUnavailableError as error:
            refusals.append(error)
    raise KindUnavailableError(", ".join(error.kind for error in refusals), "; ".join(error.why for error in refusals))
