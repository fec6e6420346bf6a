"""The loop around the Manager: workloads, timers, signals; asyncio, one thread.

Every request comes in here, one after the other; nothing else touches the Manager.
"""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.pods import Amounts, Container, ContainerRef, Pod, PodUID, Resources
from pinfold.errors import PinfoldError
from pinfold.formats.poddoc import pod_document
from pinfold.formats.podyaml import parse_pods
from pinfold.manager.manager import Note
from pinfold.manager.workloads import Kind, Workload
from pinfold.node.statefile import read_state_file, write_atomically
from pinfold.runtimes.base import ApplyError, Main

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pinfold.core.admission import Admission
    from pinfold.manager.manager import Manager
    from pinfold.manager.notes import Notes
    from pinfold.manager.workloads import Host
    from pinfold.runtimes.base import Launcher

_ATTACH_WITHIN: Final = 30.0
_MEMORY: Final = 1 << 20  # a Guaranteed pod has a memory limit; what it is does not matter here


class UnknownPod(PinfoldError):  # noqa: N818 - the fact
    """There is no such pod."""


class PodExists(PinfoldError):  # noqa: N818 - the fact
    """There is such a pod already."""


class Loop:
    """A host and its workloads."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of a host, put together once
        self, manager: Manager, runtime: Launcher, notes: Notes, directory: Path, period: float, host: Host
    ) -> None:
        self.manager = manager
        self.runtime = runtime
        self.notes = notes
        self.workloads: dict[PodUID, Workload] = {}
        self._directory = directory
        self._host = host
        self.period = period
        self._tasks: dict[PodUID, asyncio.Task[None]] = {}
        self._stop = asyncio.Event()

    async def run(self, reload: Callable[[], None]) -> None:
        """Serve until SIGTERM or SIGINT; workloads go on without us."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, reload)
        events = asyncio.create_task(self._follow_events())
        timer = asyncio.create_task(self._reconcile_now_and_then())
        try:
            await self._stop.wait()
        finally:
            for task in (events, timer, *self._tasks.values()):
                task.cancel()
            await asyncio.gather(events, timer, *self._tasks.values(), return_exceptions=True)

    # -- what clients ask for

    def submit(self, pod: Pod) -> Admission:
        """Admit a pod and start its containers."""
        self._check_new(pod)
        for container in pod.all_containers:
            if not container.command:
                raise ApplyError(f"container {container.name} of pod {pod.name} has no command to run")
        admission = self.manager.admit(pod)
        if admission.refusal is None:
            self._begin(Workload(pod, Kind.POD, self.runtime, self._host))
        return admission

    def reserve(self, name: str, cpu: Amounts | int, *, kind: Kind = Kind.RUN) -> tuple[Pod, Admission]:
        """Admit a pod for a process that somebody else starts; they must attach it soon."""
        amounts = Amounts(cpu * 1000, _MEMORY) if isinstance(cpu, int) else cpu
        limits = amounts if isinstance(cpu, int) else Amounts()
        uid = PodUID(f"{kind}-{name}")
        pod = Pod(uid, name, containers=(Container("main", Resources(amounts, limits)),), restart_policy="Never")
        self._check_new(pod)
        admission = self.manager.admit(pod)
        if admission.refusal is None:
            workload = Workload(pod, kind, self.runtime, self._host)
            workload.prepare()
            self.workloads[uid] = workload
            asyncio.get_running_loop().call_later(_ATTACH_WITHIN, self._give_up, uid)
        return pod, admission

    def attach(self, uid: PodUID, pid: int) -> None:
        """Put a process into the container that was reserved for it; when this returns it may run."""
        workload = self._find(uid)
        ref = workload.refs()[0]
        try:
            self.runtime.attach(ref, pid)
        except PinfoldError:
            self._finish(workload)
            raise
        workload.status["main"].now("running", pid)
        self.notes.tell(Note("started", {"pod": workload.pod.name, "container": "main", "pid": pid}))
        self._save()

    async def delete(self, name: str, namespace: str = "default") -> None:
        """End a pod and give its CPUs back."""
        for workload in list(self.workloads.values()):
            if (workload.pod.name, workload.pod.namespace) == (name, namespace):
                task = self._tasks.pop(workload.pod.uid, None)
                if task is not None:
                    task.cancel()
                await workload.end()
                self._finish(workload)
                return
        raise UnknownPod(f"there is no pod {name} in namespace {namespace}")

    async def end_all(self) -> None:
        """End all workloads."""
        events = asyncio.create_task(self._follow_events())
        for workload in list(self.workloads.values()):
            await workload.end()
            self._finish(workload)
        events.cancel()

    # -- what happens by itself

    async def _follow_events(self) -> None:
        async for ended in self.runtime.events():
            workload = self.workloads.get(ended.container.pod)
            if workload is None:
                continue
            workload.ended(ended.container, ended.code)
            if workload.kind is not Kind.POD:
                self._finish(workload)

    async def _reconcile_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self.period)
            with suppress(PinfoldError):
                self.manager.reconcile()

    def _give_up(self, uid: PodUID) -> None:
        workload = self.workloads.get(uid)
        if workload is not None and workload.status["main"].state == "waiting":
            self.notes.tell(Note("never-attached", {"pod": workload.pod.name}))
            self._finish(workload)

    # -- beginning and ending

    def _begin(self, workload: Workload) -> None:
        workload.prepare()
        self.workloads[workload.pod.uid] = workload
        self._tasks[workload.pod.uid] = asyncio.create_task(self._run(workload))

    async def _run(self, workload: Workload) -> None:
        def tell(note: Note) -> None:
            self.notes.tell(note)
            self._save()

        await workload.run(tell)
        await workload.end()
        self._tasks.pop(workload.pod.uid, None)
        self._finish(workload)

    def _finish(self, workload: Workload) -> None:
        """Give the CPUs back: first nobody is left on them, then the shared pool grows."""
        if self.workloads.pop(workload.pod.uid, None) is None:
            return  # it has ended by itself meanwhile
        refs = workload.refs()
        for ref in refs:
            with suppress(PinfoldError):
                self.runtime.forget(ref)
        self.manager.release(refs)
        self._save()

    def _check_new(self, pod: Pod) -> None:
        for workload in self.workloads.values():
            if (workload.pod.name, workload.pod.namespace) == (pod.name, pod.namespace):
                raise PodExists(f"there is a pod {pod.name} already; delete it first, or choose another name")

    def _find(self, uid: PodUID) -> Workload:
        if uid not in self.workloads:
            raise UnknownPod(f"nothing is reserved under {uid}")
        return self.workloads[uid]

    # -- across restarts

    def _save(self) -> None:
        rows = [
            {
                "kind": workload.kind,
                "pod": pod_document(workload.pod),
                "mains": {
                    ref.name: [main.pid, main.started]
                    for ref in workload.refs()
                    if (main := self.runtime.mains.get(ref)) is not None
                },
            }
            for workload in self.workloads.values()
        ]
        write_atomically(self._directory / "workloads.json", json.dumps({"workloads": rows}).encode())

    def resume(self) -> None:
        """Find the workloads of an earlier daemon again, and go on with them."""
        for kept in read_workloads(self._directory / "workloads.json"):
            workload = Workload(kept.pod, kept.kind, self.runtime, self._host)
            alive = [self._find_again(workload, name, main) for name, main in kept.mains.items()]
            if workload.kind is Kind.POD:
                self._begin(workload)
            elif any(alive):
                self.workloads[kept.pod.uid] = workload
        self.manager.keep_only(set(self.workloads))
        self._save()

    def _find_again(self, workload: Workload, name: str, main: Main) -> bool:
        """Watch a container's main process again, if it is still the same; whether it is."""
        found = name in workload.status and self.runtime.find_again(ContainerRef(workload.pod.uid, name), main)
        if found:
            workload.status[name].now("running", main.pid)
        return found


class Kept(NamedTuple):
    """A workload as it was written down."""

    kind: Kind
    pod: Pod
    mains: Mapping[str, Main]


def read_workloads(path: Path) -> list[Kept]:
    """Return what an earlier daemon had written down; nothing where it cannot be read."""
    try:
        text = read_state_file(path)
        rows = json.loads(text)["workloads"] if text else []
        return [
            Kept(
                Kind(row["kind"]),
                parse_pods(json.dumps(row["pod"])).pods[0],
                {name: Main(int(pid), int(started)) for name, (pid, started) in row["mains"].items()},
            )
            for row in rows
        ]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, PinfoldError):
        return []
