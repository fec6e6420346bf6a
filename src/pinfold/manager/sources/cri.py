"""CRISource: follows the containers of a runtime over CRI, where there is no NRI: by its events, and by polling.

CRI reports a container after it was created, so it may run before it has its CPUs: this time is measured. The others
are moved off first, then it gets its CPUs, and the runtime gets them too, for its own record.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.events.daemon import NotRecorded
from pinfold.errors import AdmissionError, PinfoldError, RuntimeUnavailable
from pinfold.formats.pods.runtime import Phase, is_workload, name_of
from pinfold.grpc.errors import Unimplemented
from pinfold.manager.admitting import Refusal
from pinfold.manager.node import age
from pinfold.runtimes.roster import LIVE

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.formats.pods.runtime import RuntimeContainer, RuntimePod
    from pinfold.manager.node import Node
    from pinfold.manager.telling.bus import Bus
    from pinfold.runtimes.cri.client import CRIClient

_AUDIT: Final = 5.0
_SOON: Final = 0.5
_SOON_LOOKS: Final = 3
_FIRST_DELAY: Final = 0.1
_LONGEST_DELAY: Final = 5.0
_AWAY: Final = 0.25
"""How long to wait for a runtime that does not answer at all."""
_TRIES: Final = 5
_AT_ONCE: Final = 16
_NO_QUOTA: Final = -1


class Polling(NamedTuple):
    """How often a runtime is asked, in seconds."""

    alone: float = 0.2
    """For everything that runs, if the runtime sends no events."""
    beside_events: float = 5.0
    owners: float = 4.5
    """For the amounts of CPU of containers with exclusive CPUs: no event reports new ones.

    Below *beside_events*, so that each of these polls asks for them.
    """


POLLING: Final = Polling()


class CRISource:
    """Keeps a node in step with its runtime."""

    def __init__(
        self, node: Node, client: CRIClient, bus: Bus, polling: Polling = POLLING, *, is_told_all: bool = True
    ) -> None:
        """Report to *node*; *is_told_all*: beside NRI, whether NRI reports everything that runs when it connects."""
        self._node = node
        self._client = client
        self._bus = bus
        self._is_told_all = is_told_all
        self._something = asyncio.Event()
        self._polling = polling
        self._every = polling.alone
        self._first = True
        self._missing: set[str] = set()
        """What the last poll did not list; NRI may report pods and containers before CRI lists them."""
        self._asking: dict[str, asyncio.Task[RuntimeContainer | None]] = {}
        self._asked: dict[str, float] = {}
        """When the status of each container was last asked for."""
        self._updates: set[asyncio.Task[None]] = set()
        self._few = asyncio.Semaphore(_AT_ONCE)

    async def follow(self) -> None:
        """Follow the runtime for ever; it may go away and come back."""
        delay = _FIRST_DELAY
        while True:
            events = asyncio.create_task(self._listen())
            try:
                version = await self._client.version()
                await self.look()
                self._node.linked("connected", f"{version.name} {version.version}")
                delay = _FIRST_DELAY
                await self._look_again_and_again()
            except PinfoldError as error:
                self._node.linked("closed", str(error))
                longest = _AWAY if isinstance(error, RuntimeUnavailable) else _LONGEST_DELAY
            finally:
                events.cancel()
                await asyncio.gather(events, return_exceptions=True)
            self._first = True
            delay = min(2 * delay, longest)
            await asyncio.sleep(delay)

    async def audit(self, *, found: bool = False) -> None:
        """Beside NRI: poll now and then, and soon after it has connected, for what NRI did not report.

        *found*: this socket was not configured, so it is used only if the same runtime answers.
        """
        link, looks = self._node.link, 0
        while True:
            await asyncio.sleep(_SOON if looks < _SOON_LOOKS else _AUDIT)
            link, looks = self._node.link, looks + 1 if self._node.link is link else 0
            # A runtime that has started us may never report what runs already, nor the end of a pod that it has not.
            self._first = not self._is_told_all and not self._node.roster.is_complete
            ready = {"synchronized"} if self._is_told_all else {"registered", "synchronized"}
            with suppress(PinfoldError):
                if link[0] in ready and (not found or await self._is_at(link[1])):
                    await self.look(patiently=True)

    async def _is_at(self, detail: str) -> bool:
        """Return whether the runtime that answers is the one that NRI is connected to."""
        if not self._client.is_there():  # looked at for ever, so without a call that fails
            return False
        version = await self._client.version()
        return f"{version.name} {version.version}" == detail

    async def _listen(self) -> None:
        """Poll at once when the runtime sends an event; poll at intervals where it sends none."""
        try:
            async with self._client.events() as events:
                async for _ in events:
                    self._every = self._polling.beside_events
                    self._something.set()
        except Unimplemented:
            self._every = self._polling.alone
            return
        except PinfoldError:
            pass
        self._every = self._polling.alone
        self._something.set()

    async def _look_again_and_again(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every):
                    await self._something.wait()
            self._something.clear()
            await self.look()

    async def look(self, *, patiently: bool = False) -> None:
        """List all containers, and record the new and the gone ones; *patiently*: gone if missing twice."""
        pods, listed = await asyncio.gather(self._client.pods(), self._client.containers())
        containers = [container for container in listed if is_workload(container)]
        fresh = [container for container in containers if self._is_news(container)]
        told = await self._ask_all(fresh, None if self._first else _SOON)
        theirs = {container.pod for container in told}
        await self._node.cluster.learn([pod for pod in pods if pod.id in theirs], told)
        if self._first:
            self._first = False
            await self._begin(pods, told)
            return
        if self._node.inherited is not None and not self._node.read_only:
            # First, while the runtime has the CPUs that they have inherited: a shield gives it those that are released.
            self._node.inherited.lift_new(told, self._node.roster.containers)
        await self._forget_gone(pods, containers, patiently=patiently)
        for pod in pods:
            if pod.ready and pod.id not in self._node.roster.pods:
                self._node.roster.know_pod(pod)
        listed_still = {container.id for container in containers}
        for container in told:
            if container.id in listed_still:
                await self._record(container)

    async def _ask_all(self, fresh: Iterable[RuntimeContainer], within: float | None) -> list[RuntimeContainer]:
        """Return the status of containers; a slow answer for one does not delay the others."""
        for container in fresh:
            if container.id not in self._asking:
                self._asking[container.id] = asyncio.create_task(self._ask(container))
        if self._asking:
            await asyncio.wait(self._asking.values(), timeout=within)
        done = [container_id for container_id, asking in self._asking.items() if asking.done()]
        found = [self._asking.pop(container_id).result() for container_id in done]
        return [container for container in found if container is not None]

    def _is_news(self, container: RuntimeContainer) -> bool:
        known = self._node.roster.containers.get(container.id)
        if self._first or known is None or known.phase is not container.phase:
            return True
        # No event tells of new amounts of CPU, so the owners of CPUs are asked now and then.
        ref = self._node.roster.ref(container.id)
        is_owner = ref is not None and self._node.manager.state.cpus(*ref) is not None
        return is_owner and time.monotonic() - self._asked.get(container.id, 0.0) >= self._polling.owners

    async def _ask(self, container: RuntimeContainer) -> RuntimeContainer | None:
        """Return the full status of a container; None if the runtime does not answer: it is asked again."""
        if container.phase not in LIVE:
            return container
        self._asked[container.id] = time.monotonic()
        async with self._few:
            try:
                return (await self._client.status(container.id))._replace(pod=container.pod)
            except PinfoldError:
                return None

    async def _begin(self, pods: Iterable[RuntimePod], containers: Iterable[RuntimeContainer]) -> None:
        """Reconcile the node with everything that runs, all at once."""
        ready = [pod for pod in pods if pod.ready]
        for container in await self._node.resync(ready, containers):
            self._update(container)

    async def _forget_gone(
        self, pods: Iterable[RuntimePod], containers: Iterable[RuntimeContainer], *, patiently: bool
    ) -> None:
        roster = self._node.roster
        there = {pod.id for pod in pods if pod.ready} | {container.id for container in containers}
        missing = {*roster.pods, *roster.containers} - there
        gone, self._missing = missing & self._missing if patiently else missing, missing
        for pod_id in [pod_id for pod_id in roster.pods if pod_id in gone]:
            await self._node.gone(pod_id)
        for container_id in [found for found in roster.containers if found in gone]:
            self._node.removed(container_id)
        self._asked = {container_id: at for container_id, at in self._asked.items() if container_id in there}

    async def _record(self, container: RuntimeContainer) -> None:
        if container.phase not in LIVE:
            self._node.stopped(container)
            return
        if self._node.read_only:
            await self._node.arrive(container)
            return
        known = container.id in self._node.roster.containers
        if known and container.id in self._node.unpinned:
            self._share(container)
            return
        try:
            right = self._was_right(container) if known else False
            if known:
                with suppress(AdmissionError):  # it keeps its CPUs, which is reported
                    await self._node.mover.follow(container)
                right = right and self._was_right(container)
            cpus = await self._node.arrive(container)
            self._node.verify(container)
        except PinfoldError as error:
            self._node.unpinned.wait(container, error, self._node.since.get(container.id, time.time()))
            self._share(container)
            if isinstance(error, Refusal):
                self._later(self._node.cluster.refuse(container, error))
            return
        if cpus is not None and not right:
            self._measure(container)
            self._update(container)

    def _share(self, container: RuntimeContainer) -> None:
        """Put a container that has no CPUs of its own into the shared pool, off the CPUs of owners."""
        with suppress(PinfoldError):  # the next reconcile tries again
            self._node.verify(container)

    def _was_right(self, container: RuntimeContainer) -> bool:
        """Whether a started container still has the CPUs it got when it was created."""
        ref = self._node.roster.ref(container.id)
        wanted = None if ref is None else self._node.manager.wanted.cpus_of(ref)
        return ref is not None and self._node.manager.applier.allowed(ref) == str(wanted)

    def _measure(self, container: RuntimeContainer) -> None:
        ref = self._node.roster.ref(container.id)
        if ref is not None and container.phase is Phase.RUNNING:
            self._node.unpinned.ran(ref, age(container))

    def _update(self, container: RuntimeContainer) -> None:
        """Send the runtime the CPUs, without waiting for it."""
        ref = self._node.roster.ref(container.id)
        cpus = None if ref is None else self._node.manager.state.cpus(ref.pod, ref.name)
        if cpus is not None:
            self._later(self._tell(container, cpus))

    def _later(self, work: Coroutine[None, None, None]) -> None:
        """Do something without waiting for it."""
        task = asyncio.create_task(work)
        self._updates.add(task)
        task.add_done_callback(self._updates.discard)

    async def _set(self, container: RuntimeContainer, cpus: CPUSet) -> None:
        if container.windows:
            await self._client.update_windows(container.id, cpus)
        else:
            await self._client.update(container.id, cpus=cpus, quota=_NO_QUOTA)

    async def _tell(self, container: RuntimeContainer, cpus: CPUSet) -> None:
        delay = _FIRST_DELAY
        for tries_left in reversed(range(_TRIES)):
            if self._node.read_only:  # a kubelet manages the CPUs by now
                return
            try:
                await self._set(container, cpus)
            except PinfoldError as error:
                if not tries_left:
                    pod = name_of(self._node.roster.pods.get(container.pod))
                    self._bus.tell(NotRecorded(pod=pod, container=container.name, why=str(error)))
                    return
            else:
                with suppress(PinfoldError):
                    self._node.verify(self._node.roster.containers.get(container.id, container))
                return
            await asyncio.sleep(delay)
            delay = min(2 * delay, _LONGEST_DELAY)
