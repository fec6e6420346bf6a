"""The pods of a host without Kubernetes: started in order, watched, restarted as their policy says, and ended."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

from pinfold.core.snapshot import ContainerView
from pinfold.errors import PinfoldError
from pinfold.manager.manager import Note
from pinfold.node.groups import Limit
from pinfold.runtimes.base import CannotStart

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pinfold.core.pods import Container, ContainerRef, Pod
    from pinfold.core.policies.base import Policy
    from pinfold.core.reconcile import Wanted
    from pinfold.core.state import State
    from pinfold.runtimes.base import Launcher

_GRACE: Final = 5.0
_FIRST_DELAY: Final = 1.0
_LONGEST_DELAY: Final = 60.0
_LONGEST_NAME: Final = 200
_NOT_STARTED: Final = 126
_GOOD_RUN: Final = 600.0
"""After so many seconds a container counts as one that works, as with the kubelet."""


class Kind(StrEnum):
    """Who started a workload, and so who ends it."""

    POD = "pod"
    RUN = "run"
    ADOPTED = "adopted"
    FOUND = "found"
    """It ran when the daemon started, and nothing is known of it but its group."""


class Common(NamedTuple):
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
    done: bool = False
    """It will not be started again."""
    since: float = field(default_factory=time.time)

    def now(self, state: str, pid: int | None = None) -> None:
        """Change the state, and remember since when."""
        self.state = state
        self.pid = pid
        self.since = time.time()


class Workload:
    """One pod and its processes."""

    def __init__(self, pod: Pod, kind: Kind, runtime: Launcher, common: Common) -> None:
        self.pod = pod
        self.kind = kind
        self.status = {container.name: Status() for container in pod.all_containers}
        self.common = common
        self._runtime = runtime
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

    def limit(self, container: Container) -> Limit:
        """Return the weight and quota that a container has in the shared pool."""
        amounts = container.resources
        return Limit(amounts.requests.cpu or 0, amounts.limits.cpu if self.common.quota else None, self.common.period)

    def without_cpus(self, policy: Policy, state: State) -> list[ContainerRef]:
        """Return the containers that go on, should have CPUs of their own under the policy, and have none."""
        return [
            self.pod.ref(container)
            for container in self.pod.all_containers
            if policy.request(self.pod, container)
            and state.cpus(self.pod.uid, container.name) is None
            and not self.status[container.name].done
        ]

    def view(self, ref: ContainerRef, want: Wanted) -> ContainerView:
        """Return what there is to see of a container: its CPUs as decided, and as the kernel allows its process."""
        status = self.status[ref.name]
        return ContainerView(
            namespace=self.pod.namespace,
            pod=self.pod.name,
            container=ref.name,
            kind=self.kind,
            qos=self.pod.qos,
            exclusive=ref in want.exclusive,
            cpus=want.cpus_of(ref),
            allowed=self._runtime.allowed(ref),
            state=status.state,
            pid=status.pid,
            restarts=status.restarts,
            code=status.code,
            since=status.since,
        )

    async def run(self, tell: Callable[[Note], None]) -> None:
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

    async def _succeeds(self, container: Container, tell: Callable[[Note], None]) -> bool:
        """Run an init container, again and again unless the pod is never restarted; whether it did its work."""
        again = "Never" if self.pod.restart_policy == "Never" else "OnFailure"
        return await self._supervise(container, again, tell) == 0

    async def _supervise(
        self, container: Container, policy: str, tell: Callable[[Note], None], begun: asyncio.Event | None = None
    ) -> int | None:
        status = self.status[container.name]
        delay, clock = _FIRST_DELAY, asyncio.get_running_loop().time
        while not status.done:
            start = clock()
            note = await self._once(container, tell, begun)
            status.done = policy == "Never" or (policy == "OnFailure" and status.code == 0)
            tell(note)
            if not status.done:
                status.now("backing off")
                if clock() - start >= _GOOD_RUN:
                    delay = _FIRST_DELAY
                await asyncio.sleep(delay)
                delay = min(delay * 2, _LONGEST_DELAY)
                status.restarts += 1
        return status.code

    async def _once(self, container: Container, tell: Callable[[Note], None], begun: asyncio.Event | None) -> Note:
        """Run the container to its end, and return what to tell of it."""
        ref, status = self.pod.ref(container), self.status[container.name]
        future: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._ends[container.name] = future
        try:
            pid = self._spawn_unless_running(container, ref, tell)
        except PinfoldError as error:
            status.now("cannot start")
            status.code = error.code if isinstance(error, CannotStart) else _NOT_STARTED
            return self._note("cannot-start", container, why=str(error))
        finally:
            if begun is not None:
                begun.set()
        status.now("running", pid)
        code = await future
        return self._note("ended", container, code=code)

    def _note(self, what: str, container: Container, **fields: object) -> Note:
        return Note(
            what,
            {"pod": self.pod.name, "container": container.name, **fields},
            {"namespace": self.pod.namespace, "uid": self.pod.uid},
        )

    def _spawn_unless_running(self, container: Container, ref: ContainerRef, tell: Callable[[Note], None]) -> int:
        main = self._runtime.mains.get(ref)
        if main is not None:  # since before we started
            return main.pid
        log = self.common.logs / _log_name(self.pod, container)
        try:
            self.common.logs.mkdir(parents=True, exist_ok=True)
            with log.open("ab") as out:
                command = [*container.command, *container.args]
                environment = {**os.environ, **dict(container.env)}
                pid = self._runtime.spawn(ref, command, environment, container.working_dir, out)
        except OSError as error:
            raise CannotStart(str(log), error) from error
        tell(self._note("started", container, pid=pid))
        return pid

    async def end(self) -> None:
        """End all processes: politely, then not."""
        running = [ref for ref in self.refs() if ref in self._runtime.mains]
        for ref in running:
            self._runtime.signal(ref, signal.SIGTERM)
        for grace, number in ((_GRACE, signal.SIGKILL), (_GRACE, None)):
            if not await self._runtime.gone(running, grace) and number is not None:
                for ref in running:
                    self._runtime.signal(ref, number)


def _log_name(pod: Pod, container: Container) -> str:
    """Return a file name for what a container prints; a long one ends in a number that no other has."""
    name = f"{pod.namespace}_{pod.name}_{container.name}"
    if len(name) > _LONGEST_NAME:
        name = f"{name[:_LONGEST_NAME]}-{crc32(name.encode()):08x}"
    return f"{name}.log"
