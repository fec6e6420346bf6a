"""NRISource: passes a container runtime's NRI requests to a Node, and answers with CPUs before a container exists.

created: ask for the whole pod, decide, save, move the others off, reply. starting, when the container has its cgroup
but has not run: verify, and refuse what cannot be repaired. Nothing here waits for the runtime, which is itself waiting
for the answer.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pinfold.core.events.daemon import RuntimeHangs
from pinfold.core.events.running import NotVerified
from pinfold.errors import PinfoldError
from pinfold.formats.pods.runtime import Phase, name_of
from pinfold.manager.admitting import Refusal
from pinfold.manager.node import age
from pinfold.runtimes.nri.messages import Pinning
from pinfold.runtimes.roster import LIVE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pinfold.core.pods.pod import ContainerRef
    from pinfold.formats.pods.runtime import RuntimeContainer, RuntimePod
    from pinfold.manager.node import Node
    from pinfold.manager.telling.bus import Bus

_STUCK_AFTER: Final = 10.0
_LOOK: Final = 0.5
_SELDOM: Final = 60.0
_ASKED: Final = frozenset({"registered", "synchronized"})
"""The states of a connection in which the runtime asks before a container starts."""


class NRISource:
    """Passes the runtime's requests to a node, and answers them."""

    def __init__(self, node: Node, bus: Bus, *, is_told_all: bool = True) -> None:
        """Report to *node*; *is_told_all*: the runtime reports everything that runs when it connects."""
        self._node = node
        self._bus = bus
        self._is_told_all = is_told_all
        self._settling: asyncio.Future[None] | None = None
        self.is_watched: Callable[[], bool] = lambda: False
        """Returns whether the groups of pods are watched, so that the end of an owner is heard of."""
        self._parted = asyncio.Event()
        """Set when the runtime has hung up."""
        self._late: dict[str, float] = {}
        """The owners that started without our answer, and when they got their CPUs."""

    def linked(self, link: str, detail: str) -> None:
        """Record the state of the connection; report a runtime that has registered us and does not go on."""
        self._node.linked(link, detail)
        if link not in _ASKED:
            self._parted.set()
        if link == "registered" and not self._is_told_all:
            # Nothing reports the pods that ended while we were away.
            self._settling = asyncio.ensure_future(self._node.settle())
        elif link == "registered":
            asyncio.get_running_loop().call_later(_STUCK_AFTER, self._tell_if_stuck, self._node.link)

    def _tell_if_stuck(self, link: tuple[str, str]) -> None:
        if self._node.link is link:
            why = "it has registered pinfold and does not go on (as containerd#10085); restart the runtime"
            self._bus.tell(RuntimeHangs(link[1], why))

    async def look_for_ends(self) -> None:
        """Look often whether owners have vanished, for ever: after its restart containerd 1.7 reports no end."""
        while True:
            await self._pause()
            await self._node.sweeping.sweep_owners()
            if self._node.link[0] not in _ASKED:
                self._mend_unasked()

    async def _pause(self) -> None:
        """Wait until the next look: not long, unless the kernel tells of ends and the runtime asks us."""
        if not self.is_watched():
            await asyncio.sleep(_LOOK)
            return
        if self._node.link[0] in _ASKED:
            self._parted.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._parted.wait(), _SELDOM)
        await asyncio.sleep(_LOOK)

    def _mend_unasked(self) -> None:
        """Correct containers that started although the runtime has not read our answer.

        A runtime drops a plugin that answers too late, creates the container without its CPUs, and asks no more.
        """
        roster, manager = self._node.roster, self._node.manager
        want = manager.wanted
        for ref, container in list(roster.live()):
            if container.phase is not Phase.CREATED:
                continue
            try:
                wrong = manager.applier.mend(ref, want)
            except PinfoldError:  # the next reconcile tries again, and reports it
                continue
            if wrong is not None and ref in want.exclusive and not wrong.found <= wrong.wanted:
                self._late[container.id] = time.time()

    async def synchronized(
        self, pods: Sequence[RuntimePod], containers: Sequence[RuntimeContainer]
    ) -> dict[str, Pinning]:
        """Record all that runs; return the containers that get CPUs only now."""
        live = {container.pod for container in containers if container.phase in LIVE}
        await self._node.cluster.learn([pod for pod in pods if pod.id in live])
        strays = await self._node.resync(pods, containers)
        self._tell_of_late()
        found = {container.id: self._node.roster.ref(container.id) for container in strays}
        return {container_id: self._pinning(ref) for container_id, ref in found.items() if ref is not None}

    def _tell_of_late(self) -> None:
        """Report for how long the owners ran unpinned whose answer came too late; now their processes are known."""
        for container_id, at in self._late.items():
            container, ref = self._node.roster.containers.get(container_id), self._node.roster.ref(container_id)
            if container is not None and ref is not None:
                self._node.unpinned.ran(ref, max(0.0, age(container) - (time.time() - at)))
        self._late.clear()

    def knows(self, pod: RuntimePod) -> None:
        """Record a pod."""
        self._node.roster.know_pod(pod)

    async def created(self, container: RuntimeContainer) -> Pinning | None:
        """Decide, and return the CPUs; no other container is on them any more."""
        await self._learn(container)
        try:
            cpus = await self._node.arrive(container)
        except PinfoldError as error:
            self._node.removed(container.id)
            if isinstance(error, Refusal):
                await self._node.cluster.refuse(container, error)
            raise
        ref = self._node.roster.ref(container.id)
        if cpus is None or ref is None:
            return None
        found = self._node.roster.find(ref)
        if found is not None and found.id == container.id and self._node.manager.applier.allowed(ref):
            self._late[container.id] = time.time()  # it has a cgroup: the runtime has not waited for our answer
        return self._pinning(ref)

    async def starting(self, container: RuntimeContainer) -> None:
        """Verify the container and the others before its first instruction."""
        if container.id not in self._node.roster.containers:  # the runtime created it without asking us
            await self._learn(container)
            await self._node.arrive(container)
        self._node.verify(container, has_group=True)

    def started(self, container: RuntimeContainer) -> None:
        """Verify once more: an update while a container is being started reaches its record, not its cgroup."""
        known = self._node.roster.containers.get(container.id)
        if known is not None and known.phase is Phase.STOPPED:
            return  # containerd 1.7 tells that it has stopped before it tells that it had started
        try:
            self._node.verify(container)
        except PinfoldError as error:  # it runs already: no reply could stop it
            pod = name_of(self._node.roster.pods.get(container.pod))
            self._bus.tell(NotVerified(pod=pod, container=container.name, why=str(error)))

    async def updated(self, container: RuntimeContainer) -> dict[str, Pinning]:
        """Record the resources that another program wants for a container, and return its CPUs.

        A container with exclusive CPUs gets as many as it asks for now (an in-place resize), or raise why not.
        """
        known, ref = self._node.roster.containers.get(container.id), self._node.roster.ref(container.id)
        if known is None or ref is None or self._node.read_only:
            return {}
        amounts = {name: getattr(container, name) or getattr(known, name) for name in ("shares", "quota", "period")}
        known = known._replace(**amounts, cpus=container.cpus or known.cpus)
        await self._node.mover.follow(known)
        if self._node.manager.state.cpus(*ref) is not None:
            return {container.id: self._pinning(ref)}
        if not known.cpus:  # without CPUs in the runtime's own record, what the cgroup has stays
            return {}
        return {container.id: Pinning(self._node.manager.wanted.cpus_of(ref), exclusive=False)}

    def stopped(self, container_id: str) -> None:
        """Record that the container stopped."""
        known = self._node.roster.containers.get(container_id)
        if known is not None:
            self._node.stopped(known._replace(phase=Phase.STOPPED, pid=0))

    def removed(self, container_id: str) -> None:
        """Forget a container."""
        self._node.removed(container_id)

    async def gone(self, pod_id: str) -> None:
        """Release the CPUs of a pod."""
        await self._node.gone(pod_id)

    async def _learn(self, container: RuntimeContainer) -> None:
        pod = self._node.roster.pods.get(container.pod)
        await self._node.cluster.learn([] if pod is None else [pod])

    def _pinning(self, ref: ContainerRef) -> Pinning:
        want = self._node.manager.wanted
        return Pinning(want.exclusive[ref], want.mems.get(ref), notice=self._node.notice_of(ref))
