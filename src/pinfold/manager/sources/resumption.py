"""Resumption: a starting daemon finds the processes of an earlier one again; those that run keep their CPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.core.events.about import PodName
from pinfold.core.events.daemon import NotKept, WorkloadsNotUsable
from pinfold.core.events.repairs import ReconcileFailed
from pinfold.core.events.running import Found
from pinfold.core.machine.cpuset import EMPTY
from pinfold.core.pods.pod import Container, ContainerRef, Pod, PodUID
from pinfold.errors import PinfoldError
from pinfold.formats.pods.runtime import Phase
from pinfold.manager.sources.workloads import BEGUN, WorkloadKind
from pinfold.node.processgroups.origin import Origin

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pinfold.manager.node import Node
    from pinfold.manager.sources.kept import KeptWorkload
    from pinfold.manager.sources.supervisor import Supervisor
    from pinfold.manager.sources.workloads import Workload
    from pinfold.manager.telling.bus import Bus


class Resumption:
    """Goes on with the saved workloads, and with processes that no file mentions."""

    def __init__(self, supervisor: Supervisor, node: Node, bus: Bus) -> None:
        self._supervisor = supervisor
        self._launcher = supervisor.launcher
        self._workbook = supervisor.workbook
        self._node = node
        self._bus = bus

    async def resume(self, rows: Iterable[KeptWorkload], problem: str | None) -> None:
        """Go on with the workloads in *rows*; *problem* says what in their file could not be read."""
        if problem is not None:
            self._bus.tell(WorkloadsNotUsable(problem))
        found = [(self._workbook.new(kept.pod, kept.kind), kept) for kept in rows]
        for workload, _ in found:
            self._workbook.take(workload)
        manager = self._node.manager
        manager.know([workload.pod for workload, _ in found])
        await manager.decide(lambda state: state)
        left = [ref for workload, kept in found for ref in self._go_on(workload, kept)]
        left += self._take_in_strangers(left)
        here = self._workbook.workloads
        await self._node.releases.release([*left, *(ref for ref, _ in manager.state.flat() if ref.pod not in here)])
        await self._admit_again()
        self._look_closely()
        for workload in here.values():
            if workload.kind is WorkloadKind.POD:
                self._supervisor.begin(workload)
        self._workbook.saves.save()

    def _look_closely(self) -> None:
        """Bring back processes that a killed daemon has moved half way: none may be on exclusive CPUs of others."""
        try:
            self._node.manager.reconcile()
        except PinfoldError as error:  # it is tried again
            self._bus.tell(ReconcileFailed(str(error)))

    def _go_on(self, workload: Workload, kept: KeptWorkload) -> Collection[ContainerRef]:
        """Go on with a workload; return its containers if nothing of it runs and what is left must not be ended."""
        alive = [self._find_again(workload, container, kept) for container in kept.pod.all_containers]
        if workload.kind is not WorkloadKind.POD and not any(alive):
            self._workbook.drop(workload)
            return workload.refs if workload.kind is WorkloadKind.ADOPTED else ()
        return ()

    def _find_again(self, workload: Workload, container: Container, kept: KeptWorkload) -> bool:
        """Watch a container's main process again, if it is still the same; return whether it is."""
        name, ref = container.name, workload.pod.ref(container)
        if name in kept.done:
            workload.is_done(name, kept.done[name])
            return False
        adopted = workload.kind is WorkloadKind.ADOPTED
        origin = kept.origins.get(name, Origin()) if adopted else None
        main = kept.mains.get(name)
        found = self._launcher.find_again(ref, main if main != BEGUN else None, origin)
        if found:
            workload.goes_on(container, self._launcher.mains[ref].pid)
        elif main is not None and workload.runs_once(container):
            workload.is_done(name, None)  # it ended while no daemon watched it
        return found

    def _take_in_strangers(self, left: Iterable[ContainerRef]) -> list[ContainerRef]:
        """Show what runs in our groups but is in no file, until it ends; return the containers without processes.

        Never end a process that we have not started: it may still be needed.
        """
        mine = {*left, *(ref for workload in self._workbook.workloads.values() for ref in workload.refs)}
        found: dict[PodUID, list[ContainerRef]] = {}
        empty = []
        for ref in sorted(set(self._launcher.known) - mine):
            origin = Origin() if ref.pod.startswith(f"{WorkloadKind.ADOPTED}-") else None
            if ref.pod not in self._workbook.workloads and self._launcher.find_again(ref, None, origin):
                found.setdefault(ref.pod, []).append(ref)
            else:
                empty.append(ref)
        for uid, refs in found.items():
            self._show(uid, refs)
        return empty

    def _show(self, uid: PodUID, refs: list[ContainerRef]) -> None:
        pod = Pod(uid, uid, containers=tuple(Container(ref.name) for ref in refs), restart_policy="Never")
        adopted = uid.startswith(f"{WorkloadKind.ADOPTED}-")
        workload = self._workbook.new(pod, WorkloadKind.ADOPTED if adopted else WorkloadKind.FOUND)
        self._workbook.take(workload)
        for ref in refs:
            workload.now(ref.name, Phase.RUNNING, self._launcher.mains[ref].pid)
            self._bus.tell(Found(PodName.of(pod), ref.name))

    async def _admit_again(self) -> None:
        """Give CPUs to containers that should have some and have none; or report that they share."""
        manager = self._node.manager
        for workload in list(self._workbook.workloads.values()):
            due = self._without_cpus(workload)
            if not due:
                continue
            try:
                await manager.admit(workload.pod, due)
            except PinfoldError as error:
                for name in due:
                    self._bus.tell(NotKept(PodName.of(workload.pod), name, EMPTY, str(error)))

    def _without_cpus(self, workload: Workload) -> list[str]:
        """Return the containers that go on, should have CPUs of their own, and have none."""
        manager, pod = self._node.manager, workload.pod
        request = manager.rules.admitter.policy.request
        return [
            container.name
            for container in pod.all_containers
            if request(pod, container)
            and manager.state.cpus(pod.uid, container.name) is None
            and container.name not in workload.done
        ]
