"""Node: how containers come and go, for every source; one lifecycle for plain processes and pods.

A container arrives, is verified before it runs, stops, and its pod goes; after a restart of either side the source
reports everything at once (resync). A restarted container is the same container and keeps its CPUs: they belong to its
pod until the pod is gone.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pinfold.core.events.daemon import RuntimeLinked
from pinfold.core.events.repairs import ReconcileFailed
from pinfold.core.events.running import Verified
from pinfold.core.pods.pod import PodUID
from pinfold.core.snapshot import RefusedPod
from pinfold.errors import PinfoldError
from pinfold.formats.pods.runtime import Phase, told_uid
from pinfold.manager.admitting import Refusal
from pinfold.manager.cluster import Cluster
from pinfold.manager.moving.mover import Mover
from pinfold.manager.releases import Releases
from pinfold.manager.repairing.sweeping import Sweeping
from pinfold.manager.repairing.unpinned import Unpinned
from pinfold.node import procfs
from pinfold.runtimes.base import ApplyError
from pinfold.runtimes.roster import LIVE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from pinfold.core.admission import Admission
    from pinfold.core.exclusivity import Score
    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import ContainerRef, Pod
    from pinfold.formats.pods.runtime import RuntimeContainer, RuntimePod
    from pinfold.manager.manager import Manager
    from pinfold.manager.telling.bus import Bus
    from pinfold.runtimes.base import Sight
    from pinfold.runtimes.inherited import Inherited
    from pinfold.runtimes.roster import Roster


class Node:
    """The pods of a node; its sources report to it, one after the other."""

    def __init__(
        self, manager: Manager, roster: Roster, bus: Bus, *, cluster: Cluster | None = None, read_only: bool = False
    ) -> None:
        """Use this manager; *read_only*: a kubelet manages CPUs here, and this node only watches."""
        self.manager = manager
        self.roster = roster
        self.cluster = cluster or Cluster(roster)
        self.read_only = read_only
        self.scores: Callable[[], Sequence[Score]] = tuple
        """Returns how exclusive the CPUs of containers were."""
        self.sight: Sight | None = None
        """Sees pods that end without a report; None where every end is reported."""
        self.inherited: Inherited | None = None
        """Frees processes of containers of the affinity that they have inherited; None where there is no runtime."""
        self.link = ("closed", "")
        """The state of the connection to the source, and the details."""
        self.unpinned = Unpinned(roster, bus)
        self.mover = Mover(manager, roster)
        self.notice_of: Callable[[ContainerRef], str] = lambda _ref: ""
        """Returns the directory in which a container is told of its CPUs; empty if there is none."""
        self.refused: dict[PodUID, RefusedPod] = {}
        """The pods that were refused and wait for a next attempt."""
        self.since: dict[str, float] = {}
        """When containers were first heard of, by their runtime's own ids."""
        self.releases = Releases(manager, roster, bus)
        self.also_unsaved: Callable[[], str] = str
        """Returns why other files of the node could not be saved, empty if there is no such file."""
        self.sweeping = Sweeping(self, bus)
        """Finds pods that end without a report, as `sight` sees them."""
        self._bus = bus

    @property
    def unsaved(self) -> str:
        """Why the disk may not have what it should; empty if it has."""
        return self.manager.saves.unsaved or self.also_unsaved()

    def linked(self, link: str, detail: str) -> None:
        """Record the state of the connection to the source; report it if it has changed."""
        if self.link != (link, detail):
            self.link = (str(link), detail)
            self._bus.tell(RuntimeLinked(str(link), detail))

    def due_pods(self) -> dict[PodUID, Pod]:
        """Return the pods that are here, each with the containers that run or will: init containers may be done."""
        here = [pod_id for pod_id in self.roster.pods if self.roster.of(pod_id).pod is not None]
        return {pod.uid: pod for pod in map(self.roster.going_on, here)}

    # -- containers come and go

    async def arrive(self, container: RuntimeContainer) -> CPUSet | None:
        """Admit a container, and return its CPUs, None if it shares; all others have left them. Or raise why not."""
        self.roster.know(container)
        self.since.setdefault(container.id, time.time())
        if self.read_only:
            return None
        wrong = self.roster.of(container.pod).wrong
        if wrong is not None:
            raise wrong
        ref = self.roster.ref(container.id)
        if ref is None:
            return None
        due = self.roster.due(container.pod, ref.name)
        if self._has_decided(container.pod, due):
            return self.manager.state.cpus(*ref)
        return (await self.admit(container.pod, due)).state.cpus(*ref)

    async def admit(
        self, pod_id: str, due: Collection[str] | None = None, *, accepted: Callable[[], None] = lambda: None
    ) -> Admission:
        """Admit the due containers of a pod, or raise a Refusal; first free the CPUs of vanished pods.

        *accepted* is called when the pod fits, which is not saved or applied yet, and may be called again.
        """
        pod = self.roster.of(pod_id).pod
        assert pod is not None  # noqa: S101 - for mypy: callers have looked
        try:
            admission = await self._admit(pod, due, accepted)
        except Refusal as refusal:
            self.refused[pod.uid] = RefusedPod(pod, refusal.reason)
            raise
        if not self.manager.telling.is_refused(pod.uid):  # else another container of it still waits
            self.refused.pop(pod.uid, None)
        return admission

    async def _admit(self, pod: Pod, due: Collection[str] | None, accepted: Callable[[], None]) -> Admission:
        try:
            return await self.manager.admit(pod, due, silently=True, accepted=accepted)
        except Refusal:
            await self.sweeping.sweep_all()
        return await self.manager.admit(pod, due, accepted=accepted)

    def _has_decided(self, pod_id: str, due: Collection[str] | None) -> bool:
        """Return whether the pod was admitted with these containers: a restarted one keeps its CPUs."""
        pod = self.roster.of(pod_id).pod
        return pod is not None and self.manager.rules.admitter.has_decided(self.manager.state, pod, due)

    def verify(self, container: RuntimeContainer, *, has_group: bool = False) -> None:
        """Check that a container and all others are on their CPUs; repair what is not, or raise.

        *has_group*: an exclusive container is about to run, so its cgroup must exist by now.
        """
        self.roster.know(container)
        ref = self.roster.ref(container.id)
        if ref is None or self.read_only:
            return
        if has_group and self.inherited is not None:
            self.inherited.lift(container)
        self.manager.verify(ref)
        cpus = self.manager.state.cpus(*ref)
        if cpus is None:
            return
        if has_group and not self.manager.applier.allowed(ref):
            why = f"container {container.name}: its cgroup cannot be found, so its CPUs cannot be verified"
            raise ApplyError(f"{why}; is --cgroup-root right?")
        if container.phase is Phase.CREATED:  # it has not run yet
            self._bus.tell(Verified(self.manager.name(ref.pod), ref.name, cpus))

    def stopped(self, container: RuntimeContainer) -> None:
        """Record that the container stopped; its CPUs still belong to its pod."""
        self.roster.know(container)

    def removed(self, container_id: str) -> None:
        """Forget a container."""
        self.unpinned.has_ended(container_id)
        self.roster.forget(container_id)
        self.since.pop(container_id, None)

    async def gone(self, pod_id: str) -> None:
        """Release all CPUs of a pod whose containers have stopped."""
        told = self.roster.pods.get(pod_id)
        if told is None:
            return
        uid = PodUID(told_uid(told))
        # Also the CPUs of containers that were removed before their pod.
        refs = {*self.roster.refs(pod_id), *(ref for ref, _ in self.manager.state.of_pod(uid))}
        for container in self.roster.containers_of(pod_id):
            self.since.pop(container.id, None)
        self.roster.forget_pod(pod_id)
        if self.roster.find_pods(uid):  # it is here under another id
            return
        self.refused.pop(uid, None)
        if told.spec is not None:  # a plain pod has left for good; one of Kubernetes may get another sandbox
            self.manager.telling.forget_refusals(uid)
        if not self.read_only:
            await self.releases.release(sorted(refs))
        if not refs:  # its containers were removed before it, or never admitted
            self.manager.telling.gone(uid)

    # -- what happens by itself

    async def settle(self) -> None:
        """Retry what failed before: save the State, release CPUs, and admit containers that run without theirs."""
        if self.manager.saves.unsaved:
            await self.manager.keep()
        if self.sight is not None:
            await self.sweeping.sweep_some()
        if not self.read_only:
            await self.releases.retry()
        for container_id in self.unpinned:
            container, ref = self.roster.containers.get(container_id), self.roster.ref(container_id)
            if container is None or ref is None or container.phase not in LIVE:
                self.unpinned.has_ended(container_id)
            elif self._would_fit(container.pod, ref):
                await self._take_in(ref, container)

    def _would_fit(self, pod_id: str, ref: ContainerRef) -> bool:
        """Return whether a container would be admitted now; called often, so it makes no event."""
        known = self.roster.of(pod_id)
        if known.pod is None or known.wrong is not None:
            return False
        return self.manager.would_fit(known.pod, self.roster.due(pod_id, ref.name))

    # -- after a restart of either side

    async def resync(
        self, pods: Iterable[RuntimePod], containers: Iterable[RuntimeContainer]
    ) -> list[RuntimeContainer]:
        """Reconcile with all that runs: containers keep their CPUs, those without get some, vanished pods lose theirs.

        Return the containers that get CPUs only now.
        """
        before = self.roster.containers  # which replace_all replaces, and leaves as it is
        self.roster.replace_all(pods, containers)
        now = time.time()
        for container in self.roster.containers.values():
            self.since.setdefault(container.id, now - age(container))
        # Runtimes list dead pods too, and never report their end.
        sight = self.sight
        for pod_id in [found for found in self.roster.pods if sight is not None and sight.is_gone(found, listed=True)]:
            self.roster.forget_pod(pod_id)
        if self.read_only:
            return []
        if self.inherited is not None:
            self.inherited.lift_new(self.roster.containers.values(), before)
        self.manager.know(self.roster.known_pods().values())
        self.refused = {uid: pod for uid, pod in self.refused.items() if self.roster.find_pods(uid)}
        strays: list[RuntimeContainer] = []
        try:
            here = {PodUID(told_uid(pod)) for pod in self.roster.pods.values()}
            await self.releases.release([ref for ref, _ in self.manager.state.flat() if ref.pod not in here])
            strays = [found for ref, found in list(self.roster.live()) if await self._take_in(ref, found)]
            self._tell_of_unpinned(strays)
            self.manager.enforce()
            self.manager.reconcile()
        except PinfoldError as error:  # it is tried again; without us, all containers would run unpinned
            self._bus.tell(ReconcileFailed(str(error)))
        return strays

    def _tell_of_unpinned(self, told: Collection[RuntimeContainer]) -> None:
        """Report exclusive containers that run on other CPUs: they were restarted while pinfold was not asked."""
        for ref, cpus in self.manager.wanted.exclusive.items():
            container = self.roster.find(ref)
            if container is None or container.phase is not Phase.RUNNING or container in told:
                continue
            found = self.manager.applier.observe().containers.get(ref)
            if found is not None and not found <= cpus:
                self.unpinned.ran(ref, age(container))

    async def _take_in(self, ref: ContainerRef, container: RuntimeContainer) -> bool:
        """Admit a container that runs already; return whether it got CPUs."""
        pod, request = self.roster.of(container.pod).pod, self.manager.rules.admitter.policy.request
        wants = pod is not None and any(request(pod, one) for one in pod.all_containers if one.name == ref.name)
        if self.manager.state.cpus(*ref) is not None or not wants:
            return False
        try:
            if await self.arrive(container) is None:
                return False
        except PinfoldError as error:
            self.unpinned.wait(container, error, self.since.get(container.id, time.time()))
            return False
        self.unpinned.has_cpus(container.id)
        self.unpinned.ran(ref, age(container))
        return True


def age(container: RuntimeContainer) -> float:
    """Return for how many seconds a container's process has been running; 0 if that is not known.

    Runtimes report PIDs of the host; in a PID namespace of pinfold's own, another process can have the same number.
    """
    known = container.pid and procfs.PROC.is_in_group(container.pid, container.id)
    return procfs.age(container.pid) if known else 0.0
