"""Workbook: the workloads of a host without Kubernetes, in memory, on the Roster and on disk."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pinfold.core.events.daemon import NotSaved, Warned
from pinfold.core.pods.pod import ContainerRef, Resources
from pinfold.core.topologymanager.others import NO_OTHERS
from pinfold.errors import PinfoldError, did_you_mean
from pinfold.manager.sources.kept import KeptWorkload
from pinfold.manager.sources.workloads import Workload, WorkloadKind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import Container, Pod, PodUID
    from pinfold.core.topologymanager.others import OtherHints
    from pinfold.manager.sources.kept import KeptWorkloads
    from pinfold.manager.telling.bus import Bus
    from pinfold.node.outputs.outputs import Outputs
    from pinfold.runtimes.base import Launcher
    from pinfold.runtimes.roster import Roster

    Resize = Callable[[ContainerRef, int], Awaitable[CPUSet]]

_PAUSE: Final = 1.0


class UnknownPod(PinfoldError):  # noqa: N818 - the fact
    """There is no such pod."""


class PodExists(PinfoldError):  # noqa: N818 - the fact
    """There is such a pod already."""


class Workbook:
    """All workloads; their changes go to the Roster, and to disk for the next daemon."""

    def __init__(self, roster: Roster, launcher: Launcher, kept: KeptWorkloads, bus: Bus, outputs: Outputs) -> None:
        self.workloads: dict[PodUID, Workload] = {}
        self._roster = roster
        self._launcher = launcher
        self._kept = kept
        self._bus = bus
        self.near: Callable[[Pod], OtherHints] = lambda _pod: NO_OTHERS
        """Returns the devices that a pod asks to be near, or raises what is wrong with their names."""
        self.printed = outputs
        """What containers have printed."""
        self.unsaved = ""
        """Why the disk does not have the workloads as they are; empty if it has."""
        self._changed = False
        self._saving: asyncio.Future[None] | None = None
        self._again: asyncio.TimerHandle | None = None

    def new(self, pod: Pod, kind: WorkloadKind) -> Workload:
        """Return a workload that is not here yet."""
        return Workload(pod, kind, self._launcher, self.printed)

    def take(self, workload: Workload) -> None:
        """Add a workload, and its containers to the Roster."""
        self.workloads[workload.pod.uid] = workload
        self._roster.know_pod(workload.told())
        try:
            near = self.near(workload.pod)
        except PinfoldError as error:  # it was checked when it came: the device has gone since
            self._bus.tell(Warned(f"pod {workload.pod.name}: {error}"))
            near = NO_OTHERS
        if near:
            self._roster.held[workload.pod.uid] = near
        workload.changed = self._roster.know
        workload.persist = self.persist
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
        self.save()
        return names[0], cpus

    def drop(self, workload: Workload) -> None:
        """Forget a workload of which nothing runs."""
        del self.workloads[workload.pod.uid]
        self._roster.forget_pod(workload.pod.uid)

    def outputs(self) -> set[str]:
        """Return the names of the files that containers may write to now."""
        return {name for workload in self.workloads.values() for name in workload.outputs()}

    def find(self, name: str, namespace: str) -> Workload:
        """Return the workload of that name, or raise."""
        for workload in self.workloads.values():
            if (workload.pod.name, workload.pod.namespace) == (name, namespace):
                return workload
        known = (one.pod.name for one in self.workloads.values() if one.pod.namespace == namespace)
        raise UnknownPod(f"there is no pod {name} in namespace {namespace}{did_you_mean(name, known)}")

    def applied(self, pod: Pod) -> Workload | None:
        """Return the workload of an earlier `pinfold apply` with the name of *pod*, if there is one."""
        names = (pod.name, pod.namespace)
        found = (one for one in self.workloads.values() if one.kind is WorkloadKind.POD)
        return next((one for one in found if (one.pod.name, one.pod.namespace) == names), None)

    def check_new(self, pod: Pod) -> None:
        """Raise if there is a pod of this name or UID already."""
        for workload in self.workloads.values():
            if (workload.pod.name, workload.pod.namespace) == (pod.name, pod.namespace):
                raise PodExists(f"there is a pod {pod.name} already; delete it first, or choose another name")
            if workload.pod.uid == pod.uid:
                raise PodExists(f"pod {workload.pod.name} has the uid {pod.uid} already; delete it first")

    def check_here(self, workload: Workload) -> None:
        """Raise if the workload was deleted while the disk took it."""
        if self.workloads.get(workload.pod.uid) is not workload:
            raise UnknownPod(f"pod {workload.pod.name} was deleted meanwhile")

    async def write(self) -> None:
        """Save all workloads, durably, or raise; what could not be saved is tried again until it is."""
        try:
            await self._kept.save(self._rows())
        except PinfoldError as error:
            self._try_later(str(error))
            raise
        self.unsaved = ""

    def _rows(self) -> Iterator[KeptWorkload]:
        for workload in self.workloads.values():
            yield self._as_kept(workload)

    async def persist(self) -> None:
        """Save all workloads; return when the disk has them, however long that takes."""
        while True:
            try:
                return await self.write()
            except PinfoldError:  # it is reported
                await asyncio.sleep(_PAUSE)

    def save(self) -> None:
        """Save all workloads soon, and try again until the disk has them."""
        self._changed = True
        if self._saving is None or self._saving.done():
            self._saving = asyncio.ensure_future(self._save())

    async def _save(self) -> None:
        while self._changed:
            self._changed = False
            with suppress(PinfoldError):  # it is reported, and tried again
                await self.write()

    def _try_later(self, why: str) -> None:
        if self.unsaved != why:
            self.unsaved = why
            self._bus.tell(NotSaved(why))
        if self._again is not None:
            self._again.cancel()
        self._again = asyncio.get_running_loop().call_later(_PAUSE, self.save)

    def _as_kept(self, workload: Workload) -> KeptWorkload:
        mains, lent = self._launcher.mains, self._launcher.lent
        running = workload.begun | {ref.name: mains[ref] for ref in workload.refs() if ref in mains}
        origins = {ref.name: lent[ref] for ref in workload.refs() if ref in lent}
        return KeptWorkload(workload.kind, workload.pod, running, dict(workload.done), origins)


def _resized(container: Container, name: str, count: int) -> Container:
    """Return the container, which asks for *count* CPUs if it has this name."""
    if container.name != name:
        return container
    both = (
        container.resources.requests._replace(cpu=count * 1000),
        container.resources.limits._replace(cpu=count * 1000),
    )
    return replace(container, resources=Resources(*both))
