"""Host: the pods of a machine without Kubernetes, which are plain processes; also after a restart.

Every request comes in here, one after the other.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pinfold.core.pods import Amounts, Container, ContainerRef, Pod, PodUID, Resources
from pinfold.errors import PinfoldError
from pinfold.manager.kept import Kept
from pinfold.manager.manager import Note
from pinfold.manager.workloads import Kind, Workload
from pinfold.node.origin import Origin
from pinfold.runtimes.base import ApplyError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pinfold.core.admission import Admission
    from pinfold.core.snapshot import ContainerView
    from pinfold.manager.kept import KeptWorkloads
    from pinfold.manager.manager import Manager
    from pinfold.manager.notes import Notes
    from pinfold.manager.workloads import Common
    from pinfold.runtimes.base import Launcher

_ATTACH_WITHIN: Final = 30.0
_MEMORY: Final = 1 << 20  # a Guaranteed pod has a memory limit; what it is does not matter here


class UnknownPod(PinfoldError):  # noqa: N818 - the fact
    """There is no such pod."""


class PodExists(PinfoldError):  # noqa: N818 - the fact
    """There is such a pod already."""


class Host:
    """A machine and its workloads."""

    def __init__(self, manager: Manager, runtime: Launcher, notes: Notes, kept: KeptWorkloads, common: Common) -> None:
        self.manager = manager
        self.runtime = runtime
        self.workloads: dict[PodUID, Workload] = {}
        self._notes = notes
        self._kept = kept
        self._common = common
        self._tasks: dict[PodUID, asyncio.Task[None]] = {}
        self._deadlines: dict[PodUID, asyncio.TimerHandle] = {}
        self._leaving: dict[ContainerRef, str] = {}
        """Containers that have ended and still have CPUs, and why the last attempt to take these back has failed."""

    # -- what clients ask for

    def check(self, pods: Iterable[Pod]) -> None:
        """Raise if any of these could never be run here."""
        for pod in pods:
            for container in pod.all_containers:
                if not container.command:
                    raise ApplyError(f"container {container.name} of pod {pod.name} has no command to run")

    def submit(self, pod: Pod) -> Admission:
        """Admit a pod and start its containers; it is written down before the first of them runs."""
        self.check([pod])
        workload = Workload(pod, Kind.POD, self.runtime, self._common)
        admission = self._admit(workload)
        if admission.refusal is None:
            self._begin(workload)
        return admission

    def reserve(self, name: str, cpu: Amounts | int, *, kind: Kind = Kind.RUN) -> tuple[Pod, Admission]:
        """Admit a pod for a process that somebody else starts; they must attach it soon."""
        amounts = Amounts(cpu * 1000, _MEMORY) if isinstance(cpu, int) else cpu
        limits = amounts if isinstance(cpu, int) else Amounts()
        uid = PodUID(f"{kind}-{name}")
        pod = Pod(uid, name, containers=(Container("main", Resources(amounts, limits)),), restart_policy="Never")
        workload = Workload(pod, kind, self.runtime, self._common)
        admission = self._admit(workload)
        if admission.refusal is None:
            loop = asyncio.get_running_loop()
            self._deadlines[uid] = loop.call_later(_ATTACH_WITHIN, self._give_up, workload)
        return pod, admission

    def attach(self, uid: PodUID, pid: int) -> None:
        """Put a process into the container that was reserved for it; when this returns it may run."""
        workload = self.workloads.get(uid)
        if workload is None or workload.kind is Kind.POD:
            raise UnknownPod(f"nothing is reserved under {uid}")
        if uid not in self._deadlines:
            raise PodExists(f"pod {workload.pod.name} has its process already")
        try:
            self._check_free(pid)
            self.runtime.attach(workload.refs()[0], pid, lent=workload.kind is Kind.ADOPTED)
        except Exception:  # whatever it was: nobody must be left on CPUs that nobody gives back
            self._finish(workload)
            raise
        self._deadlines.pop(uid).cancel()
        workload.status["main"].now("running", pid)
        self._notes.tell(Note("started", {"pod": workload.pod.name, "container": "main", "pid": pid}))
        self._save()

    def _check_free(self, pid: int) -> None:
        if any(main.pid == pid for main in self.runtime.mains.values()):
            raise ApplyError(f"process {pid} is the main process of another container")

    async def delete(self, name: str, namespace: str = "default") -> list[int]:
        """End a pod and give its CPUs back; return the processes that go on, because they were only lent."""
        for workload in list(self.workloads.values()):
            if (workload.pod.name, workload.pod.namespace) == (name, namespace):
                return await self._end(workload)
        raise UnknownPod(f"there is no pod {name} in namespace {namespace}")

    async def end_all(self) -> None:
        """End all workloads, side by side."""
        events = asyncio.create_task(self.follow())
        await asyncio.gather(*map(self._end, list(self.workloads.values())), return_exceptions=True)
        events.cancel()
        self.settle()

    def limit_anew(self, *, quota: bool, period: int) -> None:
        """Give shared containers the CPU limits that they have under other settings; raise what cannot be done."""
        common = self._common._replace(quota=quota, period=period)
        if common == self._common:
            return
        self._common = common
        errors = []
        for workload in self.workloads.values():
            workload.common = common
            try:
                if workload.kind is not Kind.FOUND:  # of those nobody knows the limits
                    self._make_shared(workload)
            except PinfoldError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    # -- what there is to see

    @property
    def pods(self) -> dict[PodUID, Pod]:
        """The pods that are here."""
        return {uid: workload.pod for uid, workload in self.workloads.items()}

    @property
    def link(self) -> tuple[str, str]:
        """There is nobody to be connected to: the kernel runs processes."""
        return "connected", self.runtime.kind

    @property
    def waiting(self) -> int:
        """None: what cannot have its CPUs is not started."""
        return 0

    def views(self) -> list[ContainerView]:
        """Return every container: its CPUs as decided, and those that the kernel allows its process."""
        want = self.manager.wanted
        return [workload.view(ref, want) for workload in self.workloads.values() for ref in workload.refs()]

    # -- what happens by itself

    async def leave(self) -> None:
        """Watch no more; processes go on."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def follow(self) -> None:
        """Take note of what ends by itself, for ever."""
        async for ended in self.runtime.events():
            workload = self.workloads.get(ended.container.pod)
            if workload is None:
                continue
            workload.ended(ended.container, ended.code)
            if workload.kind is not Kind.POD and not any(ref in self.runtime.mains for ref in workload.refs()):
                self._finish(workload)

    def _give_up(self, workload: Workload) -> None:
        self._notes.tell(Note("never-attached", {"pod": workload.pod.name}))
        self._finish(workload)

    # -- beginning and ending

    def _admit(self, workload: Workload) -> Admission:
        """Let a pod in, make room for its shared containers, and write it down; or nothing of that."""
        self.settle()
        self._check_new(workload.pod)
        try:
            admission = self.manager.admit(workload.pod)
        except PinfoldError:
            self._sweep(workload)
            raise
        if admission.refusal is None:
            self.workloads[workload.pod.uid] = workload
            try:
                self._make_shared(workload)
                self._write()
            except PinfoldError:
                self._finish(workload)
                raise
        return admission

    def _sweep(self, workload: Workload) -> None:
        """Remove what there is of a workload that could not be let in, as far as that can be done."""
        for ref in workload.refs():
            with suppress(PinfoldError):
                self.runtime.forget(ref)

    def _make_shared(self, workload: Workload) -> None:
        """Make the groups of containers in the shared pool; those of exclusive ones exist since their admission."""
        for container in workload.pod.all_containers:
            ref = workload.pod.ref(container)
            if self.manager.state.cpus(ref.pod, ref.name) is None:
                self.runtime.make_shared(ref, workload.limit(container))

    def _begin(self, workload: Workload) -> None:
        self.workloads[workload.pod.uid] = workload
        self._tasks[workload.pod.uid] = asyncio.create_task(self._run(workload))

    async def _run(self, workload: Workload) -> None:
        def tell(note: Note) -> None:
            self._notes.tell(note)
            self._save()

        await workload.run(tell)
        with suppress(PinfoldError):  # then it is among those that leave, and told
            await workload.end()
        self._tasks.pop(workload.pod.uid, None)
        self._finish(workload)

    async def _end(self, workload: Workload) -> list[int]:
        """End a workload, or give it back if it is only lent; return the main processes that go on."""
        task = self._tasks.pop(workload.pod.uid, None)
        if task is not None:
            task.cancel()
        lent = [main.pid for ref, main in self.runtime.mains.items() if ref.pod == workload.pod.uid]
        try:
            if workload.kind is not Kind.ADOPTED:
                lent = []
                await workload.end()
        finally:
            self._finish(workload)
        return lent

    def _finish(self, workload: Workload) -> None:
        """Give the CPUs back: first nobody is left on them, then the shared pool grows."""
        deadline = self._deadlines.pop(workload.pod.uid, None)
        if deadline is not None:
            deadline.cancel()
        if self.workloads.pop(workload.pod.uid, None) is None:
            return  # it has ended by itself meanwhile
        self._leaving.update(dict.fromkeys(workload.refs(), ""))
        self.settle()
        self._save()

    def settle(self) -> None:
        """Give back the CPUs of what has ended; what cannot be done now is tried again at the next occasion."""
        gone = [ref for ref in list(self._leaving) if self._forget(ref)]
        try:
            self.manager.release(gone)
        except PinfoldError as error:
            self._notes.tell(Note("not-released", {"why": str(error)}))
            return
        for ref in gone:
            del self._leaving[ref]

    def _forget(self, ref: ContainerRef) -> bool:
        """End what is left of a container, or give it back; whether nothing is. The same trouble is told once."""
        try:
            given = self.runtime.forget(ref)
        except PinfoldError as error:
            if self._leaving[ref] != str(error):
                self._leaving[ref] = str(error)
                self._notes.tell(self.manager.note("not-ended", ref, why=str(error)))
            return False
        if given:
            self._notes.tell(self.manager.note("given-back", ref, pids=" ".join(map(str, given))))
        return True

    def _check_new(self, pod: Pod) -> None:
        for workload in self.workloads.values():
            if (workload.pod.name, workload.pod.namespace) == (pod.name, pod.namespace):
                raise PodExists(f"there is a pod {pod.name} already; delete it first, or choose another name")
            if workload.pod.uid == pod.uid:
                raise PodExists(f"pod {workload.pod.name} has the uid {pod.uid} already; delete it first")
        if any(ref.pod == pod.uid for ref in self._leaving):
            raise PodExists(f"an earlier pod {pod.name} has not ended yet; try again in a moment")

    # -- across restarts

    def _write(self) -> None:
        self._kept.save(map(self._as_kept, self.workloads.values()))

    def _save(self) -> None:
        """Write the workloads down; if that fails now, the next change does it."""
        try:
            self._write()
        except PinfoldError as error:
            self._notes.tell(Note("not-saved", {"why": str(error)}))

    def _as_kept(self, workload: Workload) -> Kept:
        running = {ref.name: self.runtime.mains[ref] for ref in workload.refs() if ref in self.runtime.mains}
        done = {name: status.code for name, status in workload.status.items() if status.done}
        origins = {ref.name: self.runtime.lent[ref] for ref in workload.refs() if ref in self.runtime.lent}
        return Kept(workload.kind, workload.pod, running, done, origins)

    def resume(self) -> None:
        """Find the workloads of an earlier daemon again, and go on with them; nobody who runs loses anything."""
        rows, problem = self._kept.load()
        if problem is not None:
            self._notes.tell(Note("workloads-not-usable", {"why": problem}))
        for kept in rows:
            workload = Workload(kept.pod, kept.kind, self.runtime, self._common)
            self.manager.know(kept.pod)
            self._make_shared(workload)
            self._lend(workload, kept.origins)
            alive = [self._find_again(workload, container, kept) for container in kept.pod.all_containers]
            if workload.kind is Kind.POD:
                self._begin(workload)
            elif any(alive):
                self.workloads[kept.pod.uid] = workload
            elif workload.kind is Kind.ADOPTED:  # what it has started is not ours to end
                self._leaving.update(dict.fromkeys(workload.refs(), ""))
        self._take_in_strangers()
        self.manager.keep_only({*self.workloads, *(ref.pod for ref in self._leaving)})
        self.settle()
        self._admit_again()
        self._save()

    def _lend(self, workload: Workload, origins: Mapping[str, Origin]) -> None:
        """Remember whence adopted processes come, as far as it is known."""
        if workload.kind is Kind.ADOPTED:
            for ref in workload.refs():
                self.runtime.lend(ref, origins.get(ref.name, Origin()))

    def _admit_again(self) -> None:
        """Give CPUs of their own to those who should have some, and were found with none; or tell that they share."""
        for workload in self.workloads.values():
            without = workload.without_cpus(self.manager.admitter.policy, self.manager.state)
            refusal: PinfoldError | None = None
            try:
                refusal = self.manager.admit(workload.pod).refusal if without else None
            except PinfoldError as error:
                refusal = error
            for ref in without if refusal is not None else ():
                self._notes.tell(self.manager.note("not-kept", ref, cpus="", why=str(refusal)))

    def _find_again(self, workload: Workload, container: Container, kept: Kept) -> bool:
        """Watch a container's main process again, if it is still the same; whether it is."""
        status, name = workload.status[container.name], container.name
        if name in kept.done:
            status.now("ended")
            status.done, status.code = True, kept.done[name]
            return False
        found = self.runtime.find_again(workload.pod.ref(container), kept.mains.get(name))
        if found:
            status.now("running", self.runtime.mains[workload.pod.ref(container)].pid)
        elif name in kept.mains and workload.kind is Kind.POD:
            self._end_litter(workload, container)
        return found

    def _end_litter(self, workload: Workload, container: Container) -> None:
        """End what a main process has left behind, before the next one starts."""
        ref = workload.pod.ref(container)
        self.runtime.forget(ref)
        if self.manager.state.cpus(ref.pod, ref.name) is None:
            self.runtime.make_shared(ref, workload.limit(container))
        else:
            self.runtime.apply(self.manager.wanted)

    def _take_in_strangers(self) -> None:
        """Show what runs in a group of ours and was written down nowhere, until it ends; remove the empty groups."""
        mine = {ref for workload in self.workloads.values() for ref in workload.refs()}
        found: dict[PodUID, list[ContainerRef]] = {}
        for ref in sorted(set(self.runtime.known) - mine - self._leaving.keys()):
            if ref.pod not in self.workloads and self.runtime.find_again(ref, None):
                found.setdefault(ref.pod, []).append(ref)
            else:
                self._leaving[ref] = ""
        for uid, refs in found.items():
            pod = Pod(uid, uid, containers=tuple(Container(ref.name) for ref in refs), restart_policy="Never")
            # Of a process that we have not started the worst is to be assumed: that somebody needs it.
            kind = Kind.ADOPTED if uid.startswith(f"{Kind.ADOPTED}-") else Kind.FOUND
            self.workloads[uid] = workload = Workload(pod, kind, self.runtime, self._common)
            self._lend(workload, {})
            for ref in refs:
                workload.status[ref.name].now("running", self.runtime.mains[ref].pid)
                self._notes.tell(Note("found", {"pod": uid, "container": ref.name}))
