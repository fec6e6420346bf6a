"""Workbook: the workloads of a host without Kubernetes, in memory and on the Roster; `saves` has them on disk."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pinfold.core.events.daemon import Warned
from pinfold.core.pods.pod import ContainerRef, Resources
from pinfold.core.topologymanager.others import NO_OTHERS
from pinfold.errors import PinfoldError, did_you_mean
from pinfold.manager.sources.kept import MOST_WORKLOADS
from pinfold.manager.sources.workloads import Workload, WorkloadKind
from pinfold.manager.sources.workloadsaves import WorkloadSaves

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import Container, Pod, PodUID
    from pinfold.core.topologymanager.others import OtherHints
    from pinfold.manager.sources.kept import KeptWorkloads
    from pinfold.manager.telling.bus import Bus
    from pinfold.node.outputs.outputs import Outputs
    from pinfold.runtimes.base import Launcher
    from pinfold.runtimes.roster import Roster

    Resize = Callable[[ContainerRef, int], Awaitable[CPUSet]]


class UnknownPod(PinfoldError):  # noqa: N818 - the fact
    """There is no such pod."""


class PodExists(PinfoldError):  # noqa: N818 - the fact
    """There is such a pod already."""


class TooManyPods(PinfoldError):  # noqa: N818 - the fact
    """The next daemon could not read one more."""


class Workbook:
    """All workloads; their changes go to the Roster, and to disk for the next daemon."""

    def __init__(self, roster: Roster, launcher: Launcher, kept: KeptWorkloads, bus: Bus, outputs: Outputs) -> None:
        self.workloads: dict[PodUID, Workload] = {}
        self._named: dict[tuple[str, str], dict[PodUID, Workload]] = {}
        """The workloads by namespace and name: only those that an earlier daemon has left can have the same."""
        self._roster = roster
        self._launcher = launcher
        self._bus = bus
        self.near: Callable[[Pod], OtherHints] = lambda _pod: NO_OTHERS
        """Returns the devices that a pod asks to be near, or raises what is wrong with their names."""
        self.printed = outputs
        """What containers have printed."""
        self.saves = WorkloadSaves(self.workloads, launcher, kept, bus)

    def new(self, pod: Pod, kind: WorkloadKind) -> Workload:
        """Return a workload that is not here yet."""
        return Workload(pod, kind, self._launcher, self.printed)

    def take(self, workload: Workload) -> None:
        """Add a workload, and its containers to the Roster."""
        self.workloads[workload.pod.uid] = workload
        self._named.setdefault(_full_name(workload.pod), {})[workload.pod.uid] = workload
        self._roster.know_pod(workload.told())
        try:
            near = self.near(workload.pod)
        except PinfoldError as error:  # it was checked when it came: the device has gone since
            self._bus.tell(Warned(f"pod {workload.pod.name}: {error}"))
            near = NO_OTHERS
        if near:
            self._roster.held[workload.pod.uid] = near
        workload.changed = self._roster.know
        workload.persist = self.saves.persist
        workload.tell_all()

    async def resize(
        self, name: str, namespace: str, container: str | None, count: int, by: Resize
    ) -> tuple[str, CPUSet]:
        """Give a container *count* exclusive CPUs *by* this function, or raise; return its name and CPUs.

        Without *container* the pod must have one container only.
        """
        workload = self.find(name, namespace)
        names = [one.name for one in workload.pod.all_containers if container in {None, one.name}]
        if len(names) != 1:
            known = ", ".join(one.name for one in workload.pod.all_containers)
            raise UnknownPod(f"pod {name}: name one of its containers, as POD/CONTAINER; it has {known}")
        cpus = await by(ContainerRef(workload.pod.uid, names[0]), count)
        pod = workload.pod
        init, apps = (tuple(_resized(one, names[0], count) for one in some) for some in (pod.init, pod.containers))
        workload.pod = replace(pod, init=init, containers=apps)
        self._roster.know_pod(workload.told())
        self.saves.save()
        return names[0], cpus

    def drop(self, workload: Workload) -> None:
        """Forget a workload of which nothing runs."""
        self.remove(workload)
        self._roster.forget_pod(workload.pod.uid)

    def remove(self, workload: Workload) -> None:
        """Remove a workload; the Roster has it until its CPUs are released."""
        del self.workloads[workload.pod.uid]
        named = self._named[_full_name(workload.pod)]
        del named[workload.pod.uid]
        if not named:
            del self._named[_full_name(workload.pod)]

    def outputs(self) -> set[str]:
        """Return the names of the files that containers may write to now."""
        return {name for workload in self.workloads.values() for name in workload.outputs()}

    def find(self, name: str, namespace: str) -> Workload:
        """Return the workload of that name, or raise."""
        if found := self._named.get((namespace, name)):
            return next(iter(found.values()))
        known = (one.pod.name for one in self.workloads.values() if one.pod.namespace == namespace)
        raise UnknownPod(f"there is no pod {name} in namespace {namespace}{did_you_mean(name, known)}")

    def applied(self, pod: Pod) -> Workload | None:
        """Return the workload of an earlier `pinfold apply` with the name of *pod*, if there is one."""
        found = self._named.get(_full_name(pod), {}).values()
        return next((one for one in found if one.kind is WorkloadKind.POD), None)

    def check_new(self, pod: Pod) -> None:
        """Raise if there is a pod of this name or UID already, or if there are too many."""
        if len(self.workloads) >= MOST_WORKLOADS:
            raise TooManyPods(f"there are {len(self.workloads):,} pods, and no room for more; delete some first")
        if _full_name(pod) in self._named:
            raise PodExists(f"there is a pod {pod.name} already; delete it first, or choose another name")
        if (other := self.workloads.get(pod.uid)) is not None:
            raise PodExists(f"pod {other.pod.name} has the uid {pod.uid} already; delete it first")

    def check_here(self, workload: Workload) -> None:
        """Raise if the workload was deleted while the disk took it."""
        if self.workloads.get(workload.pod.uid) is not workload:
            raise UnknownPod(f"pod {workload.pod.name} was deleted meanwhile")


def _full_name(pod: Pod) -> tuple[str, str]:
    return pod.namespace, pod.name


def _resized(container: Container, name: str, count: int) -> Container:
    """Return the container, which asks for *count* CPUs if it has this name."""
    if container.name != name:
        return container
    both = (
        container.resources.requests._replace(cpu=count * 1000),
        container.resources.limits._replace(cpu=count * 1000),
    )
    return replace(container, resources=Resources(*both))
