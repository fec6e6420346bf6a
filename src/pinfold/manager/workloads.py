"""The pods of a host without Kubernetes: started in order, watched, restarted as their policy says, and ended."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.pods import ContainerRef, exclusive_cpus
from pinfold.manager.manager import Note
from pinfold.node.groups import Limit
from pinfold.runtimes.base import CannotStart

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pinfold.core.pods import Container, Pod
    from pinfold.runtimes.base import Launcher

_GRACE: Final = 5.0
_FIRST_DELAY: Final = 1.0
_LONGEST_DELAY: Final = 60.0


class Kind(StrEnum):
    """Who started a workload, and so who ends it."""

    POD = "pod"
    RUN = "run"
    ADOPTED = "adopted"


class Host(NamedTuple):
    """What all workloads of a host have in common."""

    logs: Path
    """Where what they print is kept."""
    quota: bool = True
    """Whether CPU limits of shared containers are enforced."""
    period: int = 100_000
    """The microseconds that a quota is for."""


@dataclass(slots=True)
class Status:
    """What a container is doing."""

    state: str = "waiting"
    pid: int | None = None
    code: int | None = None
    restarts: int = 0
    since: float = field(default_factory=time.time)

    def now(self, state: str, pid: int | None = None) -> None:
        """Change the state, and remember since when."""
        self.state = state
        self.pid = pid
        self.since = time.time()


class Workload:
    """One pod and its processes."""

    def __init__(self, pod: Pod, kind: Kind, runtime: Launcher, host: Host) -> None:
        self.pod = pod
        self.kind = kind
        self.status = {container.name: Status() for container in pod.all_containers}
        self._runtime = runtime
        self._host = host
        self._ends: dict[str, asyncio.Future[int | None]] = {}

    def refs(self) -> list[ContainerRef]:
        """Return the identities of all containers."""
        return [self.pod.ref(container) for container in self.pod.all_containers]

    def ended(self, ref: ContainerRef, code: int | None) -> None:
        """Take note that a container's main process has ended."""
        status = self.status[ref.name]
        status.now("ended")
        status.code = code
        future = self._ends.pop(ref.name, None)
        if future is not None and not future.done():
            future.set_result(code)

    def prepare(self) -> None:
        """Make the groups of containers in the shared pool; those of exclusive ones exist since their admission."""
        for container in self.pod.all_containers:
            if not exclusive_cpus(self.pod, container):
                amounts = container.resources
                limit = amounts.limits.cpu if self._host.quota else None
                limits = Limit(amounts.requests.cpu or 0, limit, self._host.period)
                self._runtime.make_shared(self.pod.ref(container), limits)

    async def run(self, tell: Callable[[Note], None]) -> None:
        """Run init containers one after the other, then all others; return when the pod is done."""
        sidecars: list[asyncio.Task[None]] = []
        try:
            for container in self.pod.init:
                if container.sidecar:
                    sidecars.append(asyncio.create_task(self._supervise(container, "Always", tell)))
                else:
                    again = "Never" if self.pod.restart_policy == "Never" else "OnFailure"
                    await self._supervise(container, again, tell)
            await asyncio.gather(*(self._supervise(c, self.pod.restart_policy, tell) for c in self.pod.containers))
        finally:
            for task in sidecars:
                task.cancel()

    async def _supervise(self, container: Container, policy: str, tell: Callable[[Note], None]) -> None:
        delay = _FIRST_DELAY
        while True:
            code = await self._once(container, tell)
            if policy == "Never" or (policy == "OnFailure" and code == 0):
                return
            self.status[container.name].now("backing off")
            await asyncio.sleep(delay)
            delay = min(delay * 2, _LONGEST_DELAY)
            self.status[container.name].restarts += 1

    async def _once(self, container: Container, tell: Callable[[Note], None]) -> int | None:
        ref = self.pod.ref(container)
        future: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._ends[container.name] = future
        main = self._runtime.mains.get(ref)
        if main is None:  # else it has been running since before we started
            try:
                pid = self._spawn(container, ref)
            except CannotStart as error:
                tell(Note("cannot-start", {"pod": self.pod.name, "container": container.name, "why": str(error)}))
                self.status[container.name].now("cannot start")
                self.status[container.name].code = error.code
                return error.code
            tell(Note("started", {"pod": self.pod.name, "container": container.name, "pid": pid}))
        else:
            pid = main.pid
        self.status[container.name].now("running", pid)
        code = await future
        tell(Note("ended", {"pod": self.pod.name, "container": container.name, "code": code}))
        return code

    def _spawn(self, container: Container, ref: ContainerRef) -> int:
        self._host.logs.mkdir(parents=True, exist_ok=True)
        log = self._host.logs / f"{self.pod.namespace}_{self.pod.name}_{container.name}.log"
        environment = {**os.environ, **dict(container.env)}
        with log.open("ab") as out:
            command = [*container.command, *container.args]
            return self._runtime.spawn(ref, command, environment, container.working_dir, out)

    async def end(self) -> None:
        """End all processes: politely, then not."""
        running = [ref for ref in self.refs() if ref in self._runtime.mains]
        for ref in running:
            self._runtime.signal(ref, signal.SIGTERM)
        for grace, number in ((_GRACE, signal.SIGKILL), (_GRACE, None)):
            if not await self._runtime.gone(running, grace) and number is not None:
                for ref in running:
                    self._runtime.signal(ref, number)
