"""PodNode: a Kubernetes node whose containers a container runtime tells of, whichever way.

Lets containers in as they come, verifies that each is where it should be, and takes CPUs back with the pod. A container
that is restarted is the same container, so it keeps its CPUs: they are its pod's until that is gone.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pinfold.core.cpuset import CPUSet
from pinfold.core.pods import ContainerRef, PodUID, exclusive_cpus
from pinfold.core.snapshot import ContainerView
from pinfold.errors import PinfoldError
from pinfold.formats.kubepods import Phase, told_uid
from pinfold.manager.manager import Note
from pinfold.runtimes.base import ApplyError
from pinfold.runtimes.roster import LIVE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable

    from pinfold.core.pods import Pod
    from pinfold.core.reconcile import Wanted
    from pinfold.formats.kubepods import RuntimeContainer, RuntimePod
    from pinfold.manager.manager import Manager
    from pinfold.manager.notes import Notes
    from pinfold.runtimes.pods import KubeRuntime

    Source = Callable[[], Awaitable[None]]


_STUCK_AFTER: Final = 10.0


class RefusedContainer(PinfoldError):  # noqa: N818 - the fact
    """A container that may not start; the message begins with the kubelet's reason word."""


class PodNode:
    """The pods of a node, and how they come and go."""

    def __init__(self, manager: Manager, runtime: KubeRuntime, notes: Notes) -> None:
        self.manager = manager
        self.runtime = runtime
        self.read_only = runtime.read_only
        self.sources: list[Source] = []
        """What tells of containers, each for ever."""
        self.link = ("closed", "")
        """How far the connection to the runtime is, and what there is to say of it."""
        self.is_told_all = True
        """Whether the runtime tells of everything that runs as soon as it is connected."""
        self._notes = notes
        self._since: dict[str, float] = {}
        runtime.nodes_of = self._nodes_of
        self._unreleased: set[ContainerRef] = set()
        """Containers that are gone, and still have CPUs."""
        self._waiting: dict[str, ContainerRef | None] = {}
        """Containers that run, and should have CPUs of their own."""

    # -- what there is to see

    @property
    def pods(self) -> dict[PodUID, Pod]:
        """The pods that are here."""
        built = map(self.runtime.pod, self.runtime.pods)
        return {pod.uid: pod for pod in built if pod is not None}

    def _pod(self, ref: ContainerRef) -> Pod:
        """Return the pod of a container of ours."""
        found = map(self.runtime.pod, self.runtime.find_pods(ref.pod))
        return next(pod for pod in found if pod is not None)

    def views(self) -> list[ContainerView]:
        """Return every container: its CPUs as decided, and those that its cgroup has."""
        pods, want = self.pods, self.manager.wanted
        return [self._view(pods[ref.pod], ref, container, want) for ref, container in self.runtime.live()]

    def _view(self, pod: Pod, ref: ContainerRef, container: RuntimeContainer, want: Wanted) -> ContainerView:
        return ContainerView(
            namespace=pod.namespace,
            pod=pod.name,
            container=ref.name,
            kind=self.runtime.name,
            qos=pod.qos,
            exclusive=ref in want.exclusive,
            cpus=want.cpus_of(ref),
            allowed=str(self.runtime.cpus(container)),
            state=container.phase,
            pid=container.pid or None,
            restarts=container.attempt,
            since=self._since.get(container.id, 0.0),
        )

    def _nodes_of(self, cpus: CPUSet) -> CPUSet:
        return CPUSet.of(*(node.id for node in self.manager.topology.numa_nodes if node.cpus & cpus))

    def settle(self) -> None:
        """Take back what vanished pods had, and let in those that run without the CPUs they want."""
        self._sweep()
        if self._unreleased:
            self._release(set())
        for container_id in list(self._waiting):
            container = self.runtime.containers.get(container_id)
            ref = self.runtime.ref(container_id)
            if container is None or ref is None or not is_live(container):
                self._waited_in_vain(container_id)
            elif self._fits(ref):
                self._take_in(ref, container)

    def _sweep(self) -> bool:
        """Take back the CPUs of pods that are gone without anybody telling; whether there were any."""
        gone = [pod_id for pod_id in self.runtime.pods if self.runtime.is_gone(pod_id)]
        for pod_id in gone:
            self._notes.tell(Note("vanished", {"pod": self.runtime.pods[pod_id].name}))
            self.pod_gone(pod_id)
        return bool(gone)

    def _fits(self, ref: ContainerRef) -> bool:
        """Whether a container would be let in now; asked again and again, so nobody is told."""
        try:
            for pod_id in self.runtime.find_pods(ref.pod):
                self.runtime.check(pod_id)
        except PinfoldError:
            return False
        pod = self._as_far_as(self._pod(ref), ref.name)
        return self.manager.admitter.admit(self.manager.state, pod).refusal is None

    async def follow(self) -> None:
        """Listen to the runtime, for ever; if one source fails, all end."""
        async with asyncio.TaskGroup() as group:
            for source in self.sources:
                group.create_task(_listen(source))

    async def leave(self) -> None:
        """Do nothing: the runtime goes on by itself."""

    def linked(self, link: str, detail: str) -> None:
        """Take note of how the connection to the runtime is."""
        self.link = (str(link), detail)
        self._notes.tell(Note("runtime", {"link": str(link), "detail": detail}))
        if link == "registered" and self.is_told_all:
            asyncio.get_running_loop().call_later(_STUCK_AFTER, self._tell_if_stuck, self.link)

    def _tell_if_stuck(self, link: tuple[str, str]) -> None:
        """Tell of a runtime that has registered us and does not go on: some hang then, for good."""
        if self.link is link:
            why = "it has registered pinfold and does not go on (as containerd#10085); restart the runtime"
            self._notes.tell(Note("runtime-hangs", {"detail": link[1], "why": why}))

    # -- containers come and go

    def arrive(self, container: RuntimeContainer) -> CPUSet | None:
        """Let a container in, and return its CPUs, None if it shares; everyone else has left them. Or raise why not."""
        self.runtime.know(container)
        self._since.setdefault(container.id, time.time())
        if self.read_only:
            return None
        self.runtime.check(container.pod)
        ref = self.runtime.ref(container.id)
        if ref is None:
            return None
        pod = self._pod(ref)
        admission = self.manager.admit(self._as_far_as(pod, ref.name))
        if admission.refusal is not None and self._sweep():
            admission = self.manager.admit(self._as_far_as(pod, ref.name))
        if admission.refusal is not None:
            refusal = admission.refusal
            advice = self.manager.advice(admission)
            raise RefusedContainer(f"{refusal.reason}: {refusal.message}{f' ({advice})' if advice else ''}")
        return self.manager.state.cpus(ref.pod, ref.name)

    def _as_far_as(self, pod: Pod, name: str) -> Pod:
        """Return the pod without the containers that have not come yet and those that had to do without CPUs."""
        given = self.manager.state.assignments.get(pod.uid, {})

        def is_due(container_name: str) -> bool:
            return container_name == name or container_name in given

        return replace(
            pod,
            init=tuple(container for container in pod.init if is_due(container.name)),
            containers=tuple(container for container in pod.containers if is_due(container.name)),
        )

    def verify(self, container: RuntimeContainer) -> None:
        """See that a container, and everyone else, is where it should be; put right what is not, or raise."""
        self.runtime.know(container)
        ref = self.runtime.ref(container.id)
        if ref is None or self.read_only:
            return
        self._put_right(ref, container)
        cpus = self.manager.state.cpus(ref.pod, ref.name)
        if cpus is not None:
            self._check_others()
        if cpus is not None and container.phase is Phase.CREATED:  # it has not run yet
            self._notes.tell(self.manager.note("verified", ref, cpus=str(cpus)))

    def check_group(self, container: RuntimeContainer) -> None:
        """Raise if an owner that is about to run is nowhere to be seen: then nothing was verified."""
        ref = self.runtime.ref(container.id)
        if not self.read_only and ref in self.manager.wanted.exclusive and self.runtime.group(container) is None:
            why = f"container {container.name}: its cgroup cannot be found, so its CPUs cannot be verified"
            raise ApplyError(f"{why}; is --cgroup-root right?")

    def _put_right(self, ref: ContainerRef, container: RuntimeContainer) -> None:
        if self.is_right(ref, container):
            return
        cpus, found = self.manager.wanted.cpus_of(ref), self.runtime.cpus(container)
        self._notes.tell(self.manager.note("lost-update", ref, found=str(found), wanted=str(cpus)))
        exclusive = self.manager.state.cpus(ref.pod, ref.name) is not None
        self.runtime.put_right(container, cpus, exclusive=exclusive)
        found = self.runtime.cpus(container)
        if not found <= cpus:
            raise ApplyError(f"container {ref.name} has CPUs {found} instead of {cpus}, and that cannot be put right")

    def is_right(self, ref: ContainerRef, container: RuntimeContainer) -> bool:
        """Whether a container has its CPUs, and no quota if they are its own; also if it has no cgroup yet."""
        found = self.runtime.cpus(container)
        if not found:
            return True
        exclusive = self.manager.state.cpus(ref.pod, ref.name) is not None
        return found == self.manager.wanted.cpus_of(ref) and not (exclusive and self.runtime.is_throttled(container))

    def _check_others(self) -> None:
        """See that nobody else is on exclusive CPUs; repair it, or raise."""
        if not self.runtime.is_clear(self.manager.wanted) and self.manager.reconcile():
            left = [found for found in self.manager.reconcile() if found.container is not None]
            if left:
                raise ApplyError("; ".join(map(str, left)))

    def stopped(self, container: RuntimeContainer) -> None:
        """Take note that a container's process is dead; its CPUs are its pod's still."""
        self.runtime.know(container)

    def removed(self, container_id: str) -> None:
        """Forget a container."""
        self.runtime.forget(container_id)
        if container_id in self._waiting:
            self._waited_in_vain(container_id)
        self._since.pop(container_id, None)

    def pod_gone(self, pod_id: str) -> None:
        """Take back all CPUs of a pod whose containers are dead."""
        pod = self.runtime.pods.get(pod_id)
        refs = set(self.runtime.refs(pod_id))
        self.runtime.forget_pod(pod_id)
        if pod is None or self.read_only:
            return
        # Also those of containers that were removed before their pod.
        uid = PodUID(told_uid(pod))
        self._release(refs | {ContainerRef(uid, name) for name in self.manager.state.assignments.get(uid, {})})

    def _release(self, refs: set[ContainerRef]) -> None:
        """Take CPUs back, unless the pod is here under another id; what cannot be done now is tried again later."""
        gone = {ref for ref in refs | self._unreleased if not self.runtime.find_pods(ref.pod)}
        try:
            self.manager.release(sorted(gone))
        except PinfoldError as error:
            self._unreleased = gone
            self._notes.tell(Note("not-released", {"why": str(error)}))
        else:
            self._unreleased = set()

    # -- after a restart of either side

    def resync(self, pods: Iterable[RuntimePod], containers: Iterable[RuntimeContainer]) -> list[RuntimeContainer]:
        """Agree with what runs: those that run keep their CPUs, strays get some, the vanished give theirs back.

        Return the containers that have got CPUs only now.
        """
        self.runtime.replace_all(pods, containers)
        now = time.time()
        for container in self.runtime.containers.values():
            self._since.setdefault(container.id, now - self.runtime.age(container))
        if self.read_only:
            return []
        self.manager.know(*self.pods.values())
        strays: list[RuntimeContainer | None] = []
        try:
            self.manager.keep_only(set(self.pods))
            strays = [self._take_in(ref, container) for ref, container in list(self.runtime.live())]
            self._tell_of_others([container for container in strays if container is not None])
            self.runtime.apply(self.manager.wanted)
            self.manager.reconcile()
        except PinfoldError as error:  # it is tried again; without us at all, everybody would run unpinned
            self._notes.tell(Note("reconcile-failed", {"why": str(error)}))
        return [container for container in strays if container is not None]

    def _tell_of_others(self, told: Collection[RuntimeContainer]) -> None:
        """Tell of owners besides that run elsewhere: nobody was there when they were started again."""
        for ref, cpus in self.manager.wanted.exclusive.items():
            container = self.runtime.find(ref)
            if container is None or container.phase is not Phase.RUNNING or container in told:
                continue
            if not self.runtime.cpus(container) <= cpus:
                self.ran_unpinned(ref, self.runtime.age(container))

    def _take_in(self, ref: ContainerRef, container: RuntimeContainer) -> RuntimeContainer | None:
        """Let in a container that runs already; whether it had to be."""
        pod = self._pod(ref)
        wants = next(exclusive_cpus(pod, found) for found in pod.all_containers if found.name == ref.name)
        if not wants or self.manager.state.cpus(ref.pod, ref.name) is not None:
            return None
        try:
            if self.arrive(container) is None:
                return None
        except PinfoldError as error:
            self.wait_for_cpus(container, error)
            return None
        self._waiting.pop(container.id, None)
        self.ran_unpinned(ref, self.runtime.age(container))
        return container

    @property
    def waiting(self) -> int:
        """How many containers run without the CPUs they should have."""
        return len(self._waiting)

    def _waited_in_vain(self, container_id: str) -> None:
        """Take note of a container that has ended, and has never had its CPUs."""
        ref, since = self._waiting.pop(container_id), self._since.get(container_id)
        if ref is not None and since is not None:
            self.ran_unpinned(ref, time.time() - since)

    def is_waiting(self, container: RuntimeContainer) -> bool:
        """Whether a container runs without the CPUs it should have."""
        return container.id in self._waiting

    def wait_for_cpus(self, container: RuntimeContainer, why: PinfoldError) -> None:
        """Take note that a container runs without the CPUs it should have; it gets them when there are some."""
        self._waiting[container.id] = self.runtime.ref(container.id)
        pod = self.runtime.pods[container.pod].name if container.pod in self.runtime.pods else ""
        self._notes.tell(Note("runs-unpinned", {"pod": pod, "container": container.name, "why": str(why)}))

    def ran_unpinned(self, ref: ContainerRef, seconds: float) -> None:
        """Take note for how long a container ran before it had its CPUs."""
        self._notes.tell(self.manager.note("ran-unpinned", ref, seconds=round(seconds, 3)))


async def _listen(source: Source) -> None:
    await source()


def is_live(container: RuntimeContainer) -> bool:
    """Whether a container runs or is about to."""
    return container.phase in LIVE
