"""PodGroups: the CPUs of Kubernetes pods and containers, through the cgroups that the kubelet and its runtime made.

pinfold makes and removes none of these groups; it finds them, sets their CPUs and reads them back. Everything takes
effect before a call returns. Where systemd made the groups, it would take that back some day: `systemd` tells
it the settings that a call returns.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from pinfold.node.grouperrors import KindUnavailableError
from pinfold.node.podgroups import v1, v2

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pinfold.core.cpuset import CPUSet
    from pinfold.node.podgroups.settings import Quota, Setting
    from pinfold.node.podgroups.tree import PodTree


class PodGroups(Protocol):
    """The groups of pods and containers. A group is named by its directory, which `tree` finds.

    Every change returns all settings that are now as wanted; `Setting.changed` are those that were not so before.
    """

    @property
    def kind(self) -> str:
        """What it is, for people to read."""
        ...

    @property
    def nested(self) -> bool:
        """Whether the kernel insists that a group is within the one above it."""
        ...

    @property
    def tree(self) -> PodTree:
        """Where the groups are, and who is in them."""
        ...

    def cpus(self, group: Path) -> CPUSet:
        """Return the CPUs that the kernel lets the group use."""
        ...

    def mems(self, group: Path) -> CPUSet:
        """Return the NUMA nodes that the kernel lets the group use."""
        ...

    def quota(self, group: Path) -> Quota:
        """Return the group's own limit of CPU time, which those above may cut."""
        ...

    def set_pool(
        self,
        cpus: CPUSet,
        guaranteed: Collection[Path] = (),
        singles: Collection[Path] = (),
        *,
        closely: bool = True,
        settled: Collection[Path] | None = None,
    ) -> tuple[Setting, ...]:
        """Make *cpus* the shared pool: of all Burstable and BestEffort pods and of the groups that are given.

        Without *closely*, groups that are cut by those above are not looked at, where the kernel cuts them (v2): then
        the time does not depend on how many there are. One with CPUs of its own may have fewer than the pool until
        somebody looks closely; none has more.

        *guaranteed* are the Guaranteed pods without an exclusive container; *singles* are, of the other Guaranteed
        pods, all containers that are not exclusive: `tree.containers(pod)` has them, the sandbox included. What has
        gone meanwhile is passed over. Only what differs is written.

        *settled* are the pods in which no container is about to be made, all if not given. The others' own groups do
        not shrink on v1, only those of their containers: a runtime that has read them to copy them could fail.
        """
        ...

    def open_pod(
        self, pod: Path, cpus: CPUSet, mems: CPUSet | None = None, *, lift_quota: bool = True
    ) -> tuple[Setting, ...]:
        """Make room in a Guaranteed pod for an exclusive container that is about to be made.

        Call it before the runtime makes the group: on v1 that would fail, and on v2 the container would run on all
        CPUs of its pod. The pod's quota is lifted, else it would throttle what has none itself. To be given back
        later the quota must be known: from `quota` before, or `Quota.of_millicpu` of the pod's limits. Nothing is
        remembered here.
        """
        ...

    def set_container(
        self, container: Path, cpus: CPUSet, mems: CPUSet | None = None, *, lift_quota: bool = True
    ) -> tuple[Setting, ...]:
        """Give an exclusive container its CPUs (and NUMA nodes), with room in its pod, and no quota in either.

        Move the others away first, with `set_pool`.
        """
        ...

    def set_quota(self, group: Path, quota: Quota) -> tuple[Setting, ...]:
        """Set the limit of a pod or container, to give back what was lifted when nothing in it is exclusive."""
        ...


_KINDS: Final[tuple[Callable[[Path, Path, str | None], PodGroups], ...]] = (
    v2.discover,
    v1.discover,
)


def discover(
    cgroup_root: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc"), kubepods: str | None = None
) -> PodGroups:
    """Return the groups of this machine, of whichever cgroup version has the cpuset controller.

    *kubepods* is the group of all pods, as a path or a slice; without it, the one nearest to the top is taken, as
    soon as there is one.
    """
    refusals = []
    for kind in _KINDS:
        try:
            return kind(cgroup_root, proc, kubepods)
        except KindUnavailableError as error:
            refusals.append(error)
    raise KindUnavailableError(", ".join(error.kind for error in refusals), "; ".join(error.why for error in refusals))
