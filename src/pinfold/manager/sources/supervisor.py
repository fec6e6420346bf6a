"""Supervisor: the source of a host without Kubernetes. It starts, watches and ends plain processes.

Every client request comes in here, one after the other. The Node decides on admission and CPUs.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from pinfold.core.events.about import PodName
from pinfold.core.events.running import NeverAttached, Started
from pinfold.core.pods.pod import Amounts, Container, ContainerRef, Pod, PodUID, Resources
from pinfold.errors import PinfoldError
from pinfold.formats.pods.runtime import Phase
from pinfold.manager.sources.workbook import PodExists, UnknownPod
from pinfold.manager.sources.workloads import WorkloadKind
from pinfold.node.notices import STATE_DIR
from pinfold.node.waiting import OUTPUTS, in_thread
from pinfold.runtimes.base import ApplyError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping

    from pinfold.core.admission import Admission
    from pinfold.core.events import Event
    from pinfold.manager.node import Node
    from pinfold.manager.sources.workbook import Workbook
    from pinfold.manager.sources.workloads import Workload
    from pinfold.manager.telling.bus import Bus
    from pinfold.runtimes.base import Launcher

_ATTACH_WITHIN: Final = 30.0
_ANSWERS_FIRST: Final = 4
"""Rounds of the event loop after which containers are started: pods admitted as one have their answers by then."""
_NAMED: Final = 8
_ANNOTATIONS: Final = 256 << 10
_MEMORY: Final = 1 << 20  # a Guaranteed pod has a memory limit; which one does not matter here


class Supervisor:
    """The workloads of a machine, and the requests of clients."""

    def __init__(self, node: Node, launcher: Launcher, workbook: Workbook, bus: Bus) -> None:
        self.launcher = launcher
        self.workbook = workbook
        self._node = node
        self._bus = bus
        node.also_unsaved = lambda: workbook.saves.unsaved
        node.manager.saving = workbook.saves.write_accepted
        self.environment: Callable[[ContainerRef], Mapping[str, str]] = partial(_state_dir, node)
        """Returns the environment variable that tells a container's processes where they find their CPUs."""
        self._tasks: dict[PodUID, asyncio.Task[None]] = {}
        self._beginning: dict[PodUID, Workload] = {}
        """The workloads whose containers are started in a moment."""
        self._deadlines: dict[PodUID, asyncio.TimerHandle] = {}
        self._working: set[asyncio.Task[None]] = set()

    # -- requests of clients

    def check(self, pods: Iterable[Pod]) -> None:
        """Raise if any of these could never be run here, with all containers that have no command."""
        pods = [*pods]
        for pod in pods:
            if pod.annotations:
                _check_size(pod)
            self.workbook.near(pod)
        bare = [f"{pod.name}/{one.name}" for pod in pods for one in pod.all_containers if not one.command]
        if bare:
            more = f" and {len(bare) - _NAMED} more" if len(bare) > _NAMED else ""
            advice = "pinfold starts commands of this host, not images, so add command:"
            raise ApplyError(f"no command to run: {', '.join(bare[:_NAMED])}{more}; {advice}")

    async def submit(self, pod: Pod) -> Admission:
        """Admit a pod and start its containers; it is saved before the first of them runs. Or raise why not."""
        self.check([pod])
        workload = self.workbook.new(pod, WorkloadKind.POD)
        admission = await self._admit(workload)
        self.begin(workload)
        return admission

    async def replace(self, workload: Workload, pod: Pod) -> Admission:
        """End a workload and start *pod* instead; or raise why not, and start what ran before again."""
        self.check([pod])
        await self._end(workload)
        try:
            return await self.submit(pod)
        except PinfoldError:
            with suppress(PinfoldError):
                await self.submit(workload.pod)
            raise

    async def reserve(
        self,
        name: str,
        cpu: Amounts | int,
        *,
        kind: WorkloadKind = WorkloadKind.RUN,
        client: int | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> tuple[Pod, Admission]:
        """Admit a pod for a process that the user *client* starts and must attach soon."""
        amounts = Amounts(cpu * 1000, _MEMORY) if isinstance(cpu, int) else cpu
        limits = amounts if isinstance(cpu, int) else Amounts()
        uid = PodUID(f"{kind}-{name}")
        main = (Container("main", Resources(amounts, limits)),)
        pod = Pod(uid, name, containers=main, restart_policy="Never", annotations=annotations or {})
        self.workbook.near(pod)
        workload = self.workbook.new(pod, kind)
        workload.client = client
        admission = await self._admit(workload)
        loop = asyncio.get_running_loop()
        self._deadlines[uid] = loop.call_later(_ATTACH_WITHIN, self._give_up, workload)
        return pod, admission

    async def attach(self, uid: PodUID, pid: int) -> None:
        """Put a process into the container that was reserved for it; when this returns it may run."""
        workload = self.workbook.workloads.get(uid)
        if workload is None or workload.kind is WorkloadKind.POD:
            raise UnknownPod(f"nothing is reserved under {uid}")
        if uid not in self._deadlines:
            raise PodExists(f"pod {workload.pod.name} has its process already")
        self._deadlines.pop(uid).cancel()
        try:
            await self._attach(workload, pid)
        except Exception:  # any error: no process may be left on CPUs that are never given back
            await self._finish(workload)
            raise
        workload.now("main", Phase.RUNNING, pid)
        self._bus.tell(Started(PodName.of(workload.pod), "main", pid))
        self.workbook.saves.save()

    async def _attach(self, workload: Workload, pid: int) -> None:
        """Save which process comes, and from where, before it is moved: a crash must leave none pinned and unknown."""
        (ref,) = workload.refs
        self._check_free(pid)
        workload.begun[ref.name] = self.launcher.expect(ref, pid, lent=workload.kind is WorkloadKind.ADOPTED)
        await self.workbook.saves.write()
        self.workbook.check_here(workload)
        self.launcher.attach(ref, workload.begun[ref.name])

    def _check_free(self, pid: int) -> None:
        if self.launcher.is_ours(pid):
            raise ApplyError(f"process {pid} is pinfold itself")
        coming = (main for workload in self.workbook.workloads.values() for main in workload.begun.values())
        if any(main.pid == pid for main in (*self.launcher.mains.values(), *coming)):
            raise ApplyError(f"process {pid} is the main process of another container")

    async def delete(self, name: str, namespace: str = "default") -> list[int]:
        """End a pod, give its CPUs back and remove its output; return the processes that go on: they were only lent.

        Raise if the disk does not take that: the pod has ended, and a crash before the next try would bring it back.
        """
        try:
            workload = self.workbook.find(name, namespace)
            lent = await self._end(workload)
            await in_thread(workload.remove_outputs, OUTPUTS)
            return lent
        finally:  # also if it is gone already: an earlier request may have failed only at this
            await self.workbook.saves.write()

    async def end_all(self) -> None:
        """End all workloads, side by side."""
        events = asyncio.create_task(self.follow())
        await asyncio.gather(*map(self._end, list(self.workbook.workloads.values())), return_exceptions=True)
        events.cancel()
        await self._node.settle()

    # -- what happens by itself

    async def leave(self) -> None:
        """Stop watching, and save all that has happened; processes go on."""
        self._beginning.clear()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), *self._working, return_exceptions=True)
        with suppress(PinfoldError):  # it is reported
            await self.workbook.saves.write()

    async def follow(self) -> None:
        """Record the processes that end by themselves, for ever."""
        async for ended in self.launcher.events():
            workload = None if ended.container is None else self.workbook.workloads.get(ended.container.pod)
            if ended.container is None or workload is None:
                self._soon(self._node.settle())
                continue
            workload.ended(ended.container, ended.code)
            if workload.kind is not WorkloadKind.POD and self.launcher.mains.keys().isdisjoint(workload.refs):
                self._soon(self._finish(workload))  # the end of another one is not to wait for the disk

    def _give_up(self, workload: Workload) -> None:
        self._bus.tell(NeverAttached(PodName.of(workload.pod)))
        self._soon(self._finish(workload))

    # -- beginning and ending

    async def _admit(self, workload: Workload) -> Admission:
        """Admit a pod and save it; or raise, and keep nothing of it."""
        await self._node.settle()
        self.workbook.check_new(workload.pod)
        if self._node.releases.is_leaving(workload.pod.uid):
            raise PodExists(f"an earlier pod {workload.pod.name} has not ended yet; try again in a moment")
        workload.is_accepted = False
        self.workbook.take(workload)
        try:
            admission = await self._node.admit(workload.pod.uid, accepted=partial(self.workbook.saves.accept, workload))
            await self.workbook.saves.written(workload)
            self.workbook.check_here(workload)
        except PinfoldError:
            await self._finish(workload)
            if workload.is_accepted:  # the disk may have it, and a crash would bring it back
                await self.workbook.saves.write()
            raise
        return admission

    def begin(self, workload: Workload) -> None:
        """Run a pod's containers in a moment, in the background."""
        if not self._beginning:
            asyncio.get_running_loop().call_soon(self._begin_all, _ANSWERS_FIRST)
        self._beginning[workload.pod.uid] = workload

    def _begin_all(self, rounds: int) -> None:
        """Start the containers of all pods that have come, after so many rounds of the event loop."""
        if rounds > 1:
            asyncio.get_running_loop().call_soon(self._begin_all, rounds - 1)
            return
        beginning, self._beginning = self._beginning, {}
        for uid, workload in beginning.items():
            workload.environment = self.environment
            self._tasks[uid] = asyncio.create_task(self._run(workload))

    async def _run(self, workload: Workload) -> None:
        def tell(event: Event) -> None:
            self._bus.tell(event)
            self.workbook.saves.save()

        await workload.run(tell)
        with suppress(PinfoldError):  # then its CPUs are released later, which is reported
            await workload.end()
        self._tasks.pop(workload.pod.uid, None)
        await self._finish(workload)

    async def _end(self, workload: Workload) -> list[int]:
        """End a workload, or give it back if it is only lent; return the main processes that go on."""
        self._beginning.pop(workload.pod.uid, None)
        task = self._tasks.pop(workload.pod.uid, None)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])  # a process that it was about to start has ended then
        lent = [main.pid for ref, main in self.launcher.mains.items() if ref.pod == workload.pod.uid]
        try:
            if workload.kind is not WorkloadKind.ADOPTED:
                lent = []
                await workload.end()
        finally:
            await self._finish(workload)
        return lent

    def _soon(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _finish(self, workload: Workload) -> None:
        """Give the CPUs back: first no process is left on them, then the shared pool grows."""
        deadline = self._deadlines.pop(workload.pod.uid, None)
        if deadline is not None:
            deadline.cancel()
        if self.workbook.workloads.get(workload.pod.uid) is not workload:
            return  # it has ended by itself meanwhile
        self.workbook.remove(workload)
        await self._node.gone(workload.pod.uid)
        self.workbook.saves.save()


def _check_size(pod: Pod) -> None:
    size = sum(len(f"{name}{value}".encode(errors="surrogatepass")) for name, value in pod.annotations.items())
    if size > _ANNOTATIONS:
        allowed = f"Kubernetes allows {_ANNOTATIONS:,}"
        raise ApplyError(f"the annotations of pod {pod.name} have {size:,} bytes; {allowed}")


def _state_dir(node: Node, ref: ContainerRef) -> Mapping[str, str]:
    directory = node.notice_of(ref)
    return {STATE_DIR: directory} if directory else {}
