"""Workloads: the pods of a host without Kubernetes, started in order, restarted as their policy says, and ended."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from enum import StrEnum
from functools import cache, partial
from typing import TYPE_CHECKING, Final
from zlib import crc32

from pinfold.core.events.about import PodName
from pinfold.core.events.running import CannotStart, Ended, Started
from pinfold.errors import PinfoldError
from pinfold.formats.pods.runtime import Phase, RuntimeContainer, RuntimePod
from pinfold.runtimes.base import LaunchError, Main, Start

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from pinfold.core.events import Event
    from pinfold.core.pods.pod import Container, ContainerRef, Pod
    from pinfold.node.outputs.outputs import Outputs
    from pinfold.runtimes.base import Launcher

_GRACE: Final = 5.0
_FIRST_DELAY: Final = 1.0
_LONGEST_DELAY: Final = 60.0
_LONGEST_NAME: Final = 200
_NOT_STARTED: Final = 126
_LINES: Final = 3
_LONGEST_LINE: Final = 200
_TAIL: Final = 4096
"""How much of a failed container's output its event has, and where that is looked for."""
_GOOD_RUN: Final = 600.0
"""After so many seconds a container counts as working, as in the kubelet."""
BEGUN: Final = Main(0, 0)
"""A main process that may have run, and is not known: it was about to start, or of an earlier boot."""


class WorkloadKind(StrEnum):
    """Where a workload comes from, which decides how it ends."""

    POD = "pod"
    RUN = "run"
    ADOPTED = "adopted"
    FOUND = "found"
    """It ran when the daemon started, and only its group is known."""


class Workload:
    """One pod and its processes.

    *changed* is called with each change of a container, as values; *persist* waits until the disk has the workload.
    """

    def __init__(self, pod: Pod, kind: WorkloadKind, launcher: Launcher, outputs: Outputs) -> None:
        self.pod = pod
        self.kind = kind
        self.is_accepted = True
        """Whether it fits; one of which that is not known yet is not saved."""
        self.writing: asyncio.Future[None] | None = None
        """Done when the disk has it for the first time."""
        self.client: int | None = None
        """The user who has asked for it; None if that was an earlier daemon's client."""
        self.done: dict[str, int | None] = {}
        """The exit codes of the containers that will not be started again."""
        self.begun: dict[str, Main] = {}
        """The containers that run once and have begun; a row has their main processes while they are known."""
        self.changed: Callable[[RuntimeContainer], None] = lambda _container: None
        self.environment: Callable[[ContainerRef], Mapping[str, str]] = lambda _ref: {}
        """Returns what is added to a container's environment variables."""
        self.persist: Callable[[], Awaitable[None]] = _nothing
        self._outputs = outputs
        self._launcher = launcher
        self._containers = {
            container.name: RuntimeContainer(
                f"{pod.uid}/{container.name}", pod.uid, container.name, Phase.WAITING, since=time.time()
            )
            for container in pod.all_containers
        }
        self._ends: dict[str, asyncio.Future[int | None]] = {}
        self.refs = tuple(map(pod.ref, pod.all_containers))
        """The identities of all containers."""

    def told(self) -> RuntimePod:
        """Return the pod as the Roster has it."""
        return RuntimePod(self.pod.uid, self.pod.uid, self.pod.name, self.pod.namespace, spec=self.pod, kind=self.kind)

    def outputs(self) -> list[str]:
        """Return the names of the files with the output of its containers."""
        return [output_name(self.pod, container) for container in self.pod.all_containers]

    def remove_outputs(self) -> None:
        """Remove what its containers have printed."""
        for name in self.outputs():
            self._outputs.remove(name)

    def tell_all(self) -> None:
        """Report the state of every container."""
        for container in self._containers.values():
            self.changed(container)

    def now(self, name: str, phase: Phase, pid: int = 0, code: int | None = None) -> None:
        """Record a container's new state."""
        before = self._containers[name]
        code = before.code if code is None else code
        self._containers[name] = before._replace(phase=phase, pid=pid, code=code, since=time.time())
        self.changed(self._containers[name])

    def ended(self, ref: ContainerRef, code: int | None) -> None:
        """Record that a container's main process has ended."""
        self.now(ref.name, Phase.ENDED, code=code)
        future = self._ends.pop(ref.name, None)
        if future is not None and not future.done():
            future.set_result(code)

    def goes_on(self, container: Container, pid: int) -> None:
        """Record that a container has been running since before a restart of the daemon."""
        if self.runs_once(container):
            self.begun[container.name] = BEGUN
        self.now(container.name, Phase.RUNNING, pid)

    def runs_once(self, container: Container) -> bool:
        """Return whether a container is never started a second time."""
        return self.pod.restart_policy == "Never" and not container.sidecar

    def is_done(self, name: str, code: int | None) -> None:
        """Record that a container has ended for good, before a restart of the daemon."""
        self.done[name] = code
        self.now(name, Phase.ENDED, code=code)

    async def run(self, tell: Callable[[Event], None]) -> None:
        """Run init containers one after the other, then all others; return when the pod is done."""
        sidecars: list[asyncio.Task[int | None]] = []
        try:
            for container in self.pod.init:
                if container.sidecar:
                    begun = asyncio.Event()
                    sidecars.append(asyncio.create_task(self._supervise(container, "Always", tell, begun)))
                    await begun.wait()
                elif not await self._succeeds(container, tell):
                    return
            await asyncio.gather(*(self._supervise(c, self.pod.restart_policy, tell) for c in self.pod.containers))
        finally:
            for task in sidecars:
                task.cancel()
            await asyncio.gather(*sidecars, return_exceptions=True)

    async def _succeeds(self, container: Container, tell: Callable[[Event], None]) -> bool:
        """Run an init container, again and again unless the pod is never restarted; return whether it succeeded."""
        again = "Never" if self.pod.restart_policy == "Never" else "OnFailure"
        return await self._supervise(container, again, tell) == 0

    async def _supervise(
        self, container: Container, policy: str, tell: Callable[[Event], None], begun: asyncio.Event | None = None
    ) -> int | None:
        name = container.name
        delay, clock = _FIRST_DELAY, asyncio.get_running_loop().time
        while name not in self.done:
            start = clock()
            event: Ended | CannotStart
            if policy == "Never" and not await self._may_begin(self.pod.ref(container)):
                event = Ended(PodName.of(self.pod), name, self._containers[name].code)
            else:
                event = await self._once(container, tell, begun)
            code = self._containers[name].code
            if policy == "Never" or (policy == "OnFailure" and code == 0):
                self.done[name] = code
            tell(event)
            if name not in self.done:
                self.now(name, Phase.BACKING_OFF)
                if clock() - start >= _GOOD_RUN:
                    delay = _FIRST_DELAY
                await asyncio.sleep(delay)
                delay = min(delay * 2, _LONGEST_DELAY)
                self._count_restart(name)
        return self.done[name]

    async def _may_begin(self, ref: ContainerRef) -> bool:
        """Return whether a container that runs once may; save that before it does: no crash may lead to a second run.

        No: it has been running since before a restart of the daemon, and has ended before this was called.
        """
        if ref in self._launcher.mains:
            return True
        if ref.name in self.begun:
            return False
        self.begun[ref.name] = BEGUN
        await self.persist()
        return True

    def _count_restart(self, name: str) -> None:
        before = self._containers[name]
        self._containers[name] = before._replace(attempt=before.attempt + 1)

    async def _once(
        self, container: Container, tell: Callable[[Event], None], begun: asyncio.Event | None
    ) -> Ended | CannotStart:
        """Run the container to its end, and return how it ended."""
        future: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._ends[container.name] = future
        try:
            pid = await self._spawn_unless_running(container, tell)
        except PinfoldError as error:
            code = error.code if isinstance(error, LaunchError) else _NOT_STARTED
            self.now(container.name, Phase.CANNOT_START, code=code)
            return CannotStart(PodName.of(self.pod), container.name, str(error))
        finally:
            if begun is not None:
                begun.set()
        self.now(container.name, Phase.RUNNING, pid)
        ended = await future
        return Ended(PodName.of(self.pod), container.name, ended, await self._last_lines(container) if ended else "")

    async def _last_lines(self, container: Container) -> str:
        """Return the last lines that a container has printed."""
        await self._outputs.written(output_name(self.pod, container))
        text = self._outputs.read(output_name(self.pod, container), -_TAIL).decode(errors="replace")
        lines = [line.strip()[:_LONGEST_LINE] for line in text.splitlines() if line.strip()]
        return " | ".join(lines[-_LINES:])

    async def _spawn_unless_running(self, container: Container, tell: Callable[[Event], None]) -> int:
        ref = self.pod.ref(container)
        main = self._launcher.mains.get(ref)
        if main is not None:  # since before we started
            return main.pid
        await self._launcher.clear([ref], _GRACE)  # what the last main process has left behind
        name = output_name(self.pod, container)
        command = [*container.command, *container.args]
        environment = {**_own_environment(), **dict(container.env), **self.environment(ref)}
        start = Start(command, environment, container.working_dir, container.identity)
        try:
            pid = await self._launcher.spawn(ref, start, partial(self._outputs.open, name))
        except OSError as error:
            raise LaunchError(str(error.filename or name), error) from error
        tell(Started(PodName.of(self.pod), container.name, pid))
        return pid

    async def end(self) -> None:
        """End all processes: the main ones with SIGTERM, then what is left with SIGKILL; raise if one does not end."""
        running = [ref for ref in self.refs if ref in self._launcher.mains]
        for ref in running:
            self._launcher.signal(ref, signal.SIGTERM)
        if not await self._launcher.gone(running, _GRACE):
            for ref in running:
                self._launcher.signal(ref, signal.SIGKILL)
        await self._launcher.clear(self.refs, _GRACE)
        await self._launcher.gone(running, _GRACE)


@cache
def _own_environment() -> Mapping[str, str]:
    """Return the daemon's environment variables; `os.environ` decodes them at each look."""
    return dict(os.environ)


async def _nothing() -> None:
    """Save nothing."""


def output_name(pod: Pod, container: Container) -> str:
    """Return the name of the file for what a container prints; a long one ends in a number that no other has."""
    name = f"{pod.namespace}_{pod.name}_{container.name}"
    if len(name) > _LONGEST_NAME:
        name = f"{name[:_LONGEST_NAME]}-{crc32(name.encode()):08x}"
    return f"{name}.log"
