"""Nodes to try: the whole daemon half over plain processes, a simulated machine, and scripted NRI and CRI runtimes.

None of them needs root. The scripted runtimes speak the real bytes over sockets, and their cgroups are simulated.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import from_shape
from pinfold.core.reconcile import Limit
from pinfold.errors import PinfoldError
from pinfold.kubernetes.pods.wholepods import WholePods
from pinfold.manager.cluster import Cluster
from pinfold.manager.manager import Manager, Rules
from pinfold.manager.node import Node
from pinfold.manager.saving.store import StateStore
from pinfold.manager.sources.cri import POLLING, CRISource
from pinfold.manager.sources.kept import KeptWorkloads
from pinfold.manager.sources.nri import NRISource
from pinfold.manager.sources.resumption import Resumption
from pinfold.manager.sources.supervisor import Supervisor
from pinfold.manager.sources.workbook import Workbook
from pinfold.manager.telling.bus import Bus
from pinfold.manager.telling.telling import Telling
from pinfold.node.outputs.outputs import Outputs
from pinfold.node.podgroups.groups import PodGroups
from pinfold.node.podgroups.simulated import Simulated
from pinfold.node.processgroups.groups import choose
from pinfold.runtimes.cri.client import CRIClient
from pinfold.runtimes.nri import plugin as nriplugin
from pinfold.runtimes.nri.answers import Answers
from pinfold.runtimes.podplaces import PodPlaces
from pinfold.runtimes.pods import PodApplier
from pinfold.runtimes.processes.applier import ProcessApplier
from pinfold.runtimes.processes.launcher import ProcessLauncher
from pinfold.runtimes.roster import Roster
from pinfold.runtimes.simulated.launcher import SimulatedApplier, SimulatedLauncher
from pinfold.runtimes.simulated.runtime import ScriptedRuntime
from pinfold.runtimes.simulated.settings import RuntimeSettings
from tests.now import now

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pinfold.core.events import Event
    from pinfold.core.events.entries import Entry
    from pinfold.core.machine.topology import Topology
    from pinfold.core.pods.pod import Container, Pod, PodUID
    from pinfold.core.state import State
    from pinfold.kubernetes.pods.base import PodSource
    from pinfold.manager.cluster import HintSource, Refuse
    from pinfold.runtimes.base import Applier, Launcher

WITHIN = 10.0
PATIENT = RuntimeSettings(request_timeout=30.0)
EIGHT = from_shape("sockets:2,cores:4")  # NUMA nodes 0-3 and 4-7
FIRST = Reservation.of(CPUSet.of(0))


class Stand(Protocol):
    """A node with all that is around it."""

    machine: Topology
    daemon: Daemon
    directory: Path

    async def open(self) -> None:
        """Start the daemon."""

    async def run(self, pod: Pod) -> None:
        """Run a pod; when this returns, its containers run. Raise what kept it from running."""

    async def end(self, pod: Pod) -> None:
        """End a pod; when this returns, its CPUs are shared again."""

    async def restart_container(self, pod: Pod, name: str) -> None:
        """Let a container end, and start again."""

    async def kill_daemon(self) -> None:
        """End the daemon without any notice."""

    def cpus(self, pod: Pod, name: str) -> CPUSet:
        """Return the CPUs that a container's processes may use, as the kernel says."""

    def disturb(self, pod: Pod, name: str, cpus: CPUSet) -> None:
        """Set a container's CPUs behind the daemon's back."""

    async def close(self) -> None:
        """End everything."""


class Daemon:
    """Manager, Node and Bus over one applier; made anew after a crash."""

    def __init__(  # noqa: PLR0913 - all that a daemon stands on
        self,
        config: Config,
        machine: Topology,
        directory: Path,
        applier: Applier,
        roster: Roster,
        *,
        sources: Sequence[PodSource] = (),
        on_refusal: Refuse | None = None,
    ) -> None:
        self.bus = Bus(time.time)
        self.whole = WholePods(sources, self.bus.tell, within=WITHIN)
        self.machine = machine
        self._directory = directory
        rules = self.rules(config, machine)
        policy = rules.admitter.policy
        running: dict[PodUID, dict[str, CPUSet]] = {}
        for ref, cpus in getattr(applier, "find", dict)().items():
            running.setdefault(ref.pod, {})[ref.name] = cpus
        state = StateStore(directory, policy, config.gates).load(running).state
        self.manager = Manager(rules, state, applier, roster, Telling(self.bus))
        if hasattr(applier, "prepare"):
            applier.prepare(self.manager.wanted.shared)
        now(self.manager.start())
        cluster = Cluster(roster, self.whole if sources else None, on_refusal)
        self.node = Node(self.manager, roster, self.bus, cluster=cluster)

    def rules(self, config: Config, machine: Topology | None = None) -> Rules:
        """Return the rules that a configuration makes on this machine."""
        machine = machine or self.machine
        admitter = config.build(machine)
        return Rules(admitter, machine, StateStore(self._directory, admitter.policy, config.gates))

    @property
    def state(self) -> State:
        return self.manager.state

    def told(self, what: str) -> list[Entry]:
        """Return the events of one kind."""
        return [entry for entry in self.bus.after(0) if entry.what == what]


async def until(is_so: Callable[[], bool], what: str) -> None:
    """Wait for something that happens elsewhere."""
    async with asyncio.timeout(WITHIN):
        while not is_so():  # noqa: ASYNC110 - it happens in a runtime, which sends no event
            await asyncio.sleep(0.01)
    assert is_so(), what


def limit_of(container: Container) -> Limit:
    return Limit(container.resources.requests.cpu or 0, container.resources.limits.cpu)


class HostStand:
    """Plain processes by affinity, which needs no root; or a simulated machine, on which nothing runs."""

    def __init__(self, config: Config, machine: Topology, *, real: bool) -> None:
        self.machine = machine
        self.real = real
        self.config = config
        self.directory = Path(tempfile.mkdtemp(prefix="pf-"))
        self._name = f"pinfold-test-{uuid.uuid4().hex[:12]}"
        self._tasks: list[asyncio.Task[None]] = []
        self._simulated = SimulatedApplier()
        self.supervisor: Supervisor
        self.daemon: Daemon

    async def open(self) -> None:
        applier, launcher = self._parts()
        roster = Roster()
        roster.limit_by(limit_of)
        self.daemon = Daemon(self.config, self.machine, self.directory, applier, roster)
        kept = KeptWorkloads(self.directory)
        workbook = Workbook(roster, launcher, kept, self.daemon.bus, Outputs(self.directory / "logs"))
        self.supervisor = Supervisor(self.daemon.node, launcher, workbook, self.daemon.bus)
        await Resumption(self.supervisor, self.daemon.node, self.daemon.bus).resume(*kept.load())
        self._tasks = [asyncio.create_task(self.supervisor.follow())]

    def _parts(self) -> tuple[Applier, Launcher]:
        if not self.real:
            return self._simulated, SimulatedLauncher(self._simulated)
        applier = ProcessApplier(choose("affinity", name=self._name), self.directory)
        return applier, ProcessLauncher(applier)

    async def run(self, pod: Pod) -> None:
        await self.supervisor.submit(pod)
        names = [container.name for container in pod.containers]
        await until(lambda: all(pod.ref(c) in self.supervisor.launcher.mains for c in pod.containers), f"{names} run")

    async def end(self, pod: Pod) -> None:
        await self.supervisor.delete(pod.name, pod.namespace)

    async def restart_container(self, pod: Pod, name: str) -> None:
        ref = next(pod.ref(container) for container in pod.all_containers if container.name == name)
        launcher = self.supervisor.launcher
        before = launcher.mains[ref]
        launcher.signal(ref, 9)  # type: ignore[arg-type]  # SIGKILL
        await until(lambda: launcher.mains.get(ref) not in {None, before}, f"{name} runs again")

    async def kill_daemon(self) -> None:
        for task in (*self._tasks, *self.supervisor._tasks.values()):  # noqa: SLF001 - as a crash does
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cpus(self, pod: Pod, name: str) -> CPUSet:
        ref = next(pod.ref(container) for container in pod.all_containers if container.name == name)
        return CPUSet.parse(self.daemon.manager.applier.allowed(ref))

    def disturb(self, pod: Pod, name: str, cpus: CPUSet) -> None:
        ref = next(pod.ref(container) for container in pod.all_containers if container.name == name)
        if self.real:
            os.sched_setaffinity(self.supervisor.launcher.mains[ref].pid, cpus)
        else:
            self._simulated.containers[ref] = cpus

    async def close(self) -> None:
        await self.supervisor.end_all()
        await self.kill_daemon()
        shutil.rmtree(self.directory, ignore_errors=True)


class PodStand:
    """A scripted container runtime with simulated cgroups, over NRI or CRI."""

    def __init__(  # noqa: PLR0913 - all that a node is
        self,
        config: Config,
        machine: Topology,
        *,
        nri: bool,
        whole: bool = False,
        sources: Sequence[PodSource] = (),
        settings: RuntimeSettings = PATIENT,
    ) -> None:
        """*whole*: all pods are known whole from the beginning; *sources* are asked for them."""
        self.machine = machine
        self.config = config
        self.directory = Path(tempfile.mkdtemp(prefix="pf-"))
        self.driver = Simulated(machine.online)
        self.runtime = ScriptedRuntime(self.driver, settings=settings)
        self.known: dict[str, Pod] = {}
        self.polling = POLLING
        self.synchronize = True
        """Whether the runtime reports what runs when a plugin connects; containerd 1.7 does not if it launches it."""
        self._nri = nri
        self._whole = whole
        self._sources = sources
        self.on_refusal: Refuse | None = None
        self.hints: Callable[[Callable[[Event], object]], HintSource] | None = None
        """Makes the source of devices and memory for each daemon."""
        self._sandboxes: dict[str, str] = {}
        self._task: asyncio.Task[None] | None = None
        self.daemon: Daemon

    async def open(self) -> None:
        roster = Roster(lambda pod: self.known.get(pod.uid) if self._whole else self.daemon.whole.find(pod))
        places = PodPlaces(PodGroups(self.driver), roster, asked_first=self._nri)
        applier = PodApplier("nri" if self._nri else "cri", places)
        self.daemon = Daemon(
            self.config,
            self.machine,
            self.directory,
            applier,
            roster,
            sources=self._sources,
            on_refusal=self.on_refusal,
        )
        self.daemon.node.sight = places
        if self.hints is not None:
            self.daemon.node.cluster.hints = self.hints(self.daemon.bus.tell)
        await (self._connect_nri() if self._nri else self._connect_cri())

    async def _connect_nri(self) -> None:
        source = NRISource(self.daemon.node, self.daemon.bus, is_told_all=self.synchronize)
        plugin = nriplugin.Plugin(Answers(source), changed=source.linked)
        ours = await self.runtime.nri.attach(synchronize=self.synchronize)
        self._task = asyncio.create_task(plugin.run(*await asyncio.open_unix_connection(sock=ours)))
        await self.runtime.nri.until(1)

    async def _connect_cri(self) -> None:
        path = str(self.directory / "cri.sock")
        await self.runtime.cri.listen(path)
        source = CRISource(self.daemon.node, CRIClient(path), self.daemon.bus, self.polling)
        self._task = asyncio.create_task(source.follow())
        await until(lambda: self.daemon.node.roster.is_complete, "everything was told")

    async def run(self, pod: Pod) -> None:
        self.known[pod.uid] = pod
        sandbox = await self.runtime.run_pod(pod)
        self._sandboxes[pod.uid] = sandbox.id
        for container in pod.all_containers:
            started = await self.runtime.pods.run_container(sandbox.id, container.name)
            await self._heard(started.id)
            if container in pod.init and not container.sidecar:
                await self.runtime.stop_container(started.id, exit_code=0)

    async def _heard(self, container_id: str) -> None:
        """Wait until the daemon has dealt with a container; over CRI that is after it has started."""
        node = self.daemon.node
        await until(lambda: container_id in node.roster.containers, "the daemon has heard of the container")
        await until(lambda: self._is_decided(container_id), "the daemon has decided on the container")
        if container_id in node.unpinned:
            raise PinfoldError(str(self.daemon.told("runs-unpinned")[-1].fields["why"]))

    def _is_decided(self, container_id: str) -> bool:
        """Return whether a container that wants CPUs has them, or was refused."""
        node, manager = self.daemon.node, self.daemon.node.manager
        ref, request = node.roster.ref(container_id), manager.rules.admitter.policy.request
        if ref is None or node.read_only or container_id in node.unpinned:
            return True
        pod = node.roster.of(node.roster.containers[container_id].pod).pod
        wants = pod is not None and any(request(pod, one) for one in pod.all_containers if one.name == ref.name)
        return not wants or manager.state.cpus(*ref) is not None

    async def end(self, pod: Pod) -> None:
        await self.runtime.remove_pod(self._sandboxes[pod.uid])
        await until(lambda: pod.uid not in self.daemon.state.assignments, "its CPUs are shared again")

    async def restart_container(self, pod: Pod, name: str) -> None:
        sandbox = self._sandboxes[pod.uid]
        await self.runtime.stop_container(self.runtime.record.find(pod.name, name).id)
        started = await self.runtime.pods.run_container(sandbox, name)
        await self._heard(started.id)

    async def kill_daemon(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self._nri:
            await self.runtime.nri.until(0)
        else:
            await self.runtime.cri.close()

    def cpus(self, pod: Pod, name: str) -> CPUSet:
        container = self.runtime.record.find(pod.name, name)
        tree = PodGroups(self.driver).tree
        return self.driver.effective(tree.paths.container(container.cgroups_path), "cpuset.cpus")

    def disturb(self, pod: Pod, name: str, cpus: CPUSet) -> None:
        container = self.runtime.record.find(pod.name, name)
        self.driver.set_own(PodGroups(self.driver).tree.paths.container(container.cgroups_path), "cpuset.cpus", cpus)

    async def close(self) -> None:
        await self.kill_daemon()
        await self.runtime.close()
        shutil.rmtree(self.directory, ignore_errors=True)
