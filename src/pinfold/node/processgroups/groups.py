"""ProcessGroups: the processes of each container kept together, on the CPUs that the container is given.

There are three kinds: cgroup v2, cgroup v1 and, where the daemon may write neither, the affinity of every thread.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from pinfold.errors import ConfigError, excerpt
from pinfold.node.grouperrors import KindUnavailableError
from pinfold.node.unified import find_unified

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from contextlib import AbstractContextManager

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import ContainerRef
    from pinfold.core.reconcile import Limit, Observed
    from pinfold.node.groupwatch import Places
    from pinfold.node.processgroups.joiner import Joiner
    from pinfold.node.processgroups.origin import Origin


class ProcessGroup(Protocol):
    """The group of one container, which `ProcessGroups.group` finds. Every method can raise a GroupError."""

    def members(self) -> list[int]:
        """Return the processes that are in the group now, ascending."""

    def has(self, pid: int) -> bool:
        """Return whether a process is in the group; quicker than all members where no cgroup lists them."""

    def cpus(self) -> CPUSet:
        """Return the CPUs that the kernel lets these processes use."""

    def places(self) -> list[Path]:
        """Return the cgroups that all its threads must be in, its own first; none if there are no cgroups."""

    def environment(self) -> dict[str, str]:
        """Return the variables that mark a process of the container; add them to the environment it starts with."""

    def joiner(self) -> Joiner:
        """Return what a new process does, so that its first instruction runs in the group. Use it in a `with`."""

    def attach(self, pid: int) -> None:
        """Move a running process with all its threads into the group; its children stay where they are."""

    def give_back(self, origin: Origin) -> list[int]:
        """Move all processes of the group to where the attached one came from, and return them."""


class Limits(Protocol):
    """The quotas and weights of groups; another program may have changed them."""

    def wrong(self, ref: ContainerRef, limit: Limit) -> str:
        """Return how the quota and weight of a shared container differ from its limit; "" if they do not."""

    def wrong_pools(self) -> str:
        """Return which quota limits a pool, and so all containers in it; "" if none does."""

    def free_pools(self) -> None:
        """Lift the quotas of both pools, and of the pods in the shared one."""


class ThreadGlance(Protocol):
    """A quick look at processes that no cgroup keeps on their CPUs."""

    def __call__(self, part: Collection[ContainerRef], *, anew: bool) -> Observed | None:
        """Return what all containers have; None if a closer look is needed.

        The threads of *part* of the containers are listed; *anew*: the processes of the host too.
        """


class ProcessGroups(Protocol):
    """The groups of all containers, in a subtree of our own; nothing outside of it is touched.

    A method returns when the kernel has what was asked for, as read back, or raises a GroupError.
    """

    @property
    def name(self) -> str:
        """The name of the subtree."""

    @property
    def limits(self) -> Limits:
        """The quotas and weights of its groups."""

    @property
    def kind(self) -> str:
        """The kind, for people to read: cgroup v2, cgroup v1 or affinity."""

    @property
    def has_limits(self) -> bool:
        """Whether quotas and weights are applied."""

    @property
    def weaker(self) -> tuple[str, ...]:
        """What this kind cannot promise here, for people to read."""

    @property
    def glance(self) -> ThreadGlance | None:
        """A quick look at all processes, where no cgroup keeps them on their CPUs."""

    def places(self) -> Places:
        """Return the cgroups whose files another program could write to; none if there are no cgroups."""

    def hold(self) -> None:
        """Keep other daemons from using the same groups for as long as this process lives; raise if one does."""

    def prepare(self, shared: CPUSet) -> None:
        """Make the subtree where it is missing, and set the shared pool. Call it before the others."""

    def set_shared(self, cpus: CPUSet) -> None:
        """Make *cpus* the shared pool, for all containers in it at once."""

    def shared_cpus(self) -> CPUSet:
        """Return the CPUs that the kernel lets the shared pool use."""

    def one_look(self) -> AbstractContextManager[None]:
        """Return a block in which processes are listed once where no cgroup lists them, and again when one was moved.

        No process may be ended in it.
        """

    def make_exclusive(self, ref: ContainerRef, cpus: CPUSet) -> None:
        """Give a container CPUs of its own and no quota, in a new group or in the one that it has.

        A container that has shared until now brings its processes along.
        """

    def make_shared(self, ref: ContainerRef, limit: Limit) -> None:
        """Put a container into the shared pool with this quota and weight, in a new group or in the one that it has.

        A container that was exclusive until now brings its processes along.
        """

    def expel(self, pid: int) -> None:
        """Move a process that belongs to no container out of the subtree."""

    def group(self, ref: ContainerRef) -> ProcessGroup:
        """Return the container's group, or raise a NoGroupError."""

    def found(self) -> dict[ContainerRef, bool]:
        """Return the containers that have a group, also those of an earlier daemon; True if it is exclusive."""

    def origin(self, pid: int) -> Origin:
        """Return where a process is now, for `ProcessGroup.give_back` to move it there again."""

    def remove(self, ref: ContainerRef) -> None:
        """Remove the container's group, which must have no processes; a missing group is fine."""

    def remove_empty(self) -> list[int]:
        """Remove every group that has no processes, in it and below it; return the processes that are left."""


def _v2(cgroup_root: Path, name: str, _refusals: Sequence[KindUnavailableError]) -> ProcessGroups:
    root = find_unified(cgroup_root)
    from pinfold.node.processgroups import v2  # noqa: PLC0415 - a host needs one kind

    return v2.discover(root, name)


def _v1(cgroup_root: Path, name: str, _refusals: Sequence[KindUnavailableError]) -> ProcessGroups:
    from pinfold.node.processgroups import v1  # noqa: PLC0415 - a host needs one kind

    return v1.discover(cgroup_root, name)


def _affinity(_cgroup_root: Path, name: str, refusals: Sequence[KindUnavailableError]) -> ProcessGroups:
    from pinfold.node.processgroups.affinity import groups as affinity  # noqa: PLC0415 - a host needs one kind

    groups = affinity.discover(name)
    groups.instead_of = tuple(map(str, refusals))
    return groups


AFFINITY: Final = "affinity"
KINDS: Final[Mapping[str, Callable[[Path, str, Sequence[KindUnavailableError]], ProcessGroups]]] = {
    "cgroup-v2": _v2,
    "cgroup-v1": _v1,
    AFFINITY: _affinity,
}
"""From the strongest to the weakest, by the names that users write; each is told why the stronger ones were refused."""


def choose(
    wanted: str | None = None, *, cgroup_root: Path = Path("/sys/fs/cgroup"), name: str = "pinfold"
) -> ProcessGroups:
    """Return groups of the *wanted* kind, or of the strongest that works here; their subtree is called *name*."""
    if wanted is not None and wanted not in KINDS:
        raise ConfigError(f"{excerpt(wanted)} is not a kind of groups; expected one of {', '.join(KINDS)}")
    refusals: list[KindUnavailableError] = []
    for kind in KINDS if wanted is None else [wanted]:
        try:
            return KINDS[kind](cgroup_root, name, refusals)
        except KindUnavailableError as error:
            refusals.append(error)
    raise KindUnavailableError(", ".join(error.kind for error in refusals), "; ".join(error.why for error in refusals))
