"""A real, private containerd from Debian packages (tests/lab), driven over CRI as a kubelet would.

Pods are in cgroups below a root of their own, which the driver makes and removes as a kubelet with the cgroupfs driver
does, so that several of these can stand side by side.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import tempfile
import threading
import time
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from pinfold.core.machine.cpuset import CPUSet
from pinfold.errors import PinfoldError
from pinfold.grpc.client import Channel
from pinfold.proto import cri_pb2 as cri
from tests.lab import lab
from tests.needs import IN_GUEST

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

CGROUPS: Final = Path("/sys/fs/cgroup")
IMAGE: Final = "localhost/busybox:1"
CALL: Final = 60.0 if not IN_GUEST else 300.0
"""Seconds that a call may take on a machine that is busy with other things."""
_SERVICE: Final = "/runtime.v1.RuntimeService/"
_NAMESPACES: Final = cri.NamespaceOption(network=cri.NODE, pid=cri.CONTAINER, ipc=cri.POD)
_MIDDLE: Final = {"guaranteed": "", "burstable": "/burstable", "besteffort": "/besteffort"}
_PERIOD: Final = 100_000


class PodOnNode(NamedTuple):
    """A pod as CRI knows it."""

    id: str
    uid: str
    name: str
    parent: str
    config: cri.PodSandboxConfig


class Ask(NamedTuple):
    """A container to be made: its name, how many milli CPUs it asks for, and how."""

    name: str = "app"
    milli: int = 0
    attempt: int = 0
    command: str = "exec sleep 2147483647"
    quota: bool = True
    """Whether the kubelet has it limited to what it asks for."""


class Seen(NamedTuple):
    """A container that is there, as CRI tells."""

    id: str
    uid: str
    """Of its pod."""
    pod: str
    name: str
    pid: int


class Containerd:
    """One containerd of a Debian suite, with directories and cgroups of its own."""

    driver = "cgroupfs"

    def __init__(self, suite: str) -> None:
        self.suite = suite
        self.root = f"pinfold-kube-{uuid.uuid4().hex[:8]}"
        """The kubelet's cgroup root."""
        # Short, because a socket's path has at most 107 bytes; in the guest only /run is no overlay of another.
        self.run = Path(tempfile.mkdtemp(prefix="pf-cd-", dir="/run" if IN_GUEST else None))
        self.cri_socket = self.run / "containerd.sock"
        self.nri_socket = self.run / "nri/nri.sock"
        self.pods: dict[str, PodOnNode] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._channel: Channel | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            lab.provision(self.suite)
            self.make_group("")
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.drop_channel()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
        finally:
            self.script("stop")
            shutil.rmtree(self.run, ignore_errors=True)
            self.remove_group("")

    # -- the daemon itself

    def script(self, verb: str) -> None:
        """Run the lab's script for this containerd."""
        lab.run("containerd.sh", verb, self.suite, RUN=str(self.run), CGROUP_DRIVER=self.driver)

    def start(self) -> None:
        """Start it, and return when it answers over CRI."""
        self.script("start")
        self.wait(self.ready_async())

    def restart(self) -> None:
        """End only containerd itself, and start it again; containers go on."""
        self.drop_channel()
        self.script("restart")
        self.wait(self.ready_async())

    def kill(self) -> None:
        """End only containerd itself, at once; containers go on."""
        pid = self.pid
        self.drop_channel()
        os.kill(pid, signal.SIGKILL)
        while Path(f"/proc/{pid}/exe").exists():
            time.sleep(0.01)

    async def ready_async(self) -> None:
        """Return when calls are answered: the socket is there before the service behind it."""
        end = time.monotonic() + CALL
        while True:
            try:
                await self.call("ListPodSandbox", cri.ListPodSandboxRequest(), cri.ListPodSandboxResponse)
            except PinfoldError:
                assert time.monotonic() < end, "containerd does not answer"
                await asyncio.sleep(0.02)
            else:
                return

    @property
    def pid(self) -> int:
        """Its process."""
        return int((self.run / "pid").read_text())

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Have containerd answer nothing while the block runs."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    @contextmanager
    def moved_to(self, cpus: CPUSet) -> Iterator[None]:
        """Have the threads of containerd on these CPUs while the block runs, as a shield does."""
        threads = [int(path.name) for path in Path(f"/proc/{self.pid}/task").iterdir()]
        before = os.sched_getaffinity(self.pid)
        for thread in threads:
            os.sched_setaffinity(thread, cpus)
        try:
            yield
        finally:
            for thread in threads:
                with suppress(ProcessLookupError):
                    os.sched_setaffinity(thread, before)

    # -- calls

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401 - the result of any work
        """Run a coroutine on this driver's own loop, and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10 * CALL)

    def drop_channel(self) -> None:
        """Forget the connection."""

        async def close(channel: Channel) -> None:
            channel.close()
            await asyncio.sleep(0.1)  # asyncio closes the socket when it comes to it

        if self._channel is not None:
            channel, self._channel = self._channel, None
            self.wait(close(channel))

    async def call(self, method: str, request: Any, answer: Any) -> Any:  # noqa: ANN401 - protobuf messages
        """Call a method of the runtime service."""
        if self._channel is None:
            self._channel = Channel(str(self.cri_socket), deadline=CALL)
        found = answer()
        found.ParseFromString(await self._channel.call(_SERVICE + method, request.SerializeToString()))
        return found

    # -- what a kubelet does

    async def run_pod_async(
        self,
        name: str,
        qos: str = "guaranteed",
        annotations: dict[str, str] | None = None,
        *,
        milli: int = 0,
        uid: str = "",
    ) -> PodOnNode:
        """Run a pod's sandbox; with *milli* its cgroup is limited to so many milli CPUs, as a kubelet does."""
        uid = uid or str(uuid.uuid4())
        parent = self.parent(qos, uid)
        self.make_group(parent, milli)
        labels = {"pod.name": name, "pod.namespace": "default", "pod.uid": uid}
        config = cri.PodSandboxConfig(
            metadata=cri.PodSandboxMetadata(name=name, uid=uid, namespace="default"),
            labels={f"io.kubernetes.{key}": value for key, value in labels.items()},
            annotations=annotations or {},
            linux=cri.LinuxPodSandboxConfig(
                cgroup_parent=parent,
                security_context=cri.LinuxSandboxSecurityContext(namespace_options=_NAMESPACES),
            ),
        )
        answer = await self.call("RunPodSandbox", cri.RunPodSandboxRequest(config=config), cri.RunPodSandboxResponse)
        pod = PodOnNode(answer.pod_sandbox_id, uid, name, parent, config)
        self.pods[pod.id] = pod
        return pod

    async def create_async(self, pod: PodOnNode, ask: Ask) -> str:
        """Create a container, and return its id."""
        resources = cri.LinuxContainerResources(cpu_period=_PERIOD, cpu_shares=max(ask.milli * 1024 // 1000, 2))
        if ask.quota and ask.milli:
            resources.cpu_quota = max(ask.milli * _PERIOD // 1000, 1000)
        config = cri.ContainerConfig(
            metadata=cri.ContainerMetadata(name=ask.name, attempt=ask.attempt),
            image=cri.ImageSpec(image=IMAGE),
            command=["/bin/sh", "-c", ask.command],
            labels=dict(pod.config.labels) | {"io.kubernetes.container.name": ask.name},
            annotations={"io.kubernetes.container.restartCount": str(ask.attempt)},
            linux=cri.LinuxContainerConfig(
                resources=resources,
                security_context=cri.LinuxContainerSecurityContext(namespace_options=_NAMESPACES),
            ),
        )
        request = cri.CreateContainerRequest(pod_sandbox_id=pod.id, config=config, sandbox_config=pod.config)
        return str((await self.call("CreateContainer", request, cri.CreateContainerResponse)).container_id)

    async def start_async(self, container: str) -> int:
        """Start a container, and return its process."""
        await self.call("StartContainer", cri.StartContainerRequest(container_id=container), cri.StartContainerResponse)
        return await self.pid_async(container)

    async def run_container_async(self, pod: PodOnNode, ask: Ask) -> tuple[str, int]:
        """Create and start a container; return its id and its process."""
        container = await self.create_async(pod, ask)
        return container, await self.start_async(container)

    async def status_async(self, container: str) -> tuple[int, int]:
        """Return a container's CRI state and its process."""
        request = cri.ContainerStatusRequest(container_id=container, verbose=True)
        answer = await self.call("ContainerStatus", request, cri.ContainerStatusResponse)
        return answer.status.state, int(json.loads(answer.info["info"]).get("pid", 0))

    async def pid_async(self, container: str) -> int:
        """Return a container's process."""
        return (await self.status_async(container))[1]

    async def update_async(self, container: str, **amounts: Any) -> None:  # noqa: ANN401 - fields of the message
        """Change a container's resources."""
        request = cri.UpdateContainerResourcesRequest(
            container_id=container, linux=cri.LinuxContainerResources(**amounts)
        )
        await self.call("UpdateContainerResources", request, cri.UpdateContainerResourcesResponse)

    async def stop_container_async(self, container: str) -> None:
        """Stop a container."""
        await self.call("StopContainer", cri.StopContainerRequest(container_id=container), cri.StopContainerResponse)

    async def remove_container_async(self, container: str) -> None:
        """Stop and remove a container."""
        await self.stop_container_async(container)
        request = cri.RemoveContainerRequest(container_id=container)
        await self.call("RemoveContainer", request, cri.RemoveContainerResponse)

    async def stop_pod_async(self, pod: PodOnNode) -> None:
        """Stop a pod's containers and its sandbox."""
        await self.call("StopPodSandbox", cri.StopPodSandboxRequest(pod_sandbox_id=pod.id), cri.StopPodSandboxResponse)

    async def remove_pod_async(self, pod: PodOnNode) -> None:
        """Stop and remove a pod, its containers before it as a kubelet does, and its cgroups.

        RemovePodSandbox would remove containers too, but containerd 2.1 then takes a lock twice: a plugin that connects
        in between hangs it for good.
        """
        await self.stop_pod_async(pod)
        wanted = cri.ContainerFilter(pod_sandbox_id=pod.id)
        listed = await self.call("ListContainers", cri.ListContainersRequest(filter=wanted), cri.ListContainersResponse)
        for one in listed.containers:
            await self.remove_container_async(one.id)
        request = cri.RemovePodSandboxRequest(pod_sandbox_id=pod.id)
        await self.call("RemovePodSandbox", request, cri.RemovePodSandboxResponse)
        self.pods.pop(pod.id, None)
        self.remove_group(pod.parent)

    async def running_async(self) -> list[Seen]:
        """Return every container that runs now, with its process."""
        wanted = cri.ContainerFilter(state=cri.ContainerStateValue(state=cri.CONTAINER_RUNNING))
        listed = await self.call("ListContainers", cri.ListContainersRequest(filter=wanted), cri.ListContainersResponse)
        found = []
        for one in listed.containers:
            label = {key.removeprefix("io.kubernetes."): value for key, value in one.labels.items()}
            with suppress(Exception):  # it may have ended since
                pid = await self.pid_async(one.id)
                found.append(Seen(one.id, label["pod.uid"], label["pod.name"], label["container.name"], pid))
        return found

    # -- the same, one call after the other

    def run_pod(
        self, name: str, qos: str = "guaranteed", annotations: dict[str, str] | None = None, *, milli: int = 0
    ) -> PodOnNode:
        """Run a pod's sandbox."""
        pod: PodOnNode = self.wait(self.run_pod_async(name, qos, annotations, milli=milli))
        return pod

    def run_container(self, pod: PodOnNode, ask: Ask) -> tuple[str, int]:
        """Create and start a container; return its id and its process."""
        found: tuple[str, int] = self.wait(self.run_container_async(pod, ask))
        return found

    def create(self, pod: PodOnNode, ask: Ask) -> str:
        """Create a container, and return its id."""
        return str(self.wait(self.create_async(pod, ask)))

    def start_container(self, container: str) -> int:
        """Start a container, and return its process."""
        return int(self.wait(self.start_async(container)))

    def running(self) -> list[Seen]:
        """Return every container that runs now, with its process."""
        found: list[Seen] = self.wait(self.running_async())
        return found

    def remove_pod(self, pod: PodOnNode) -> None:
        """Stop and remove a pod."""
        self.wait(self.remove_pod_async(pod))

    def stop_pod(self, pod: PodOnNode) -> None:
        """Stop a pod's containers and its sandbox; both stay in containerd's record."""
        self.wait(self.stop_pod_async(pod))

    def remove_all(self) -> None:
        """Stop and remove every pod."""
        for pod in list(self.pods.values()):
            self.remove_pod(pod)

    # -- cgroups

    def parent(self, qos: str, uid: str) -> str:
        """Return the cgroup parent that a kubelet names for a pod."""
        return f"/{self.root}/kubepods{_MIDDLE[qos]}/pod{uid}"

    def make_group(self, parent: str, milli: int = 0) -> None:
        """Make the cgroup of a pod, or with no name the one above all."""
        make_groups(parent or self.root, milli)

    def remove_group(self, parent: str) -> None:
        """Remove the cgroup of a pod, or with no name all of them."""
        remove_groups(parent or self.root)

    def group(self, pod: PodOnNode, container: str = "", controller: str = "cpuset") -> Path:
        """Return the directory of a pod's cgroup, or of a container's."""
        hierarchy = CGROUPS / controller if (CGROUPS / controller).is_dir() else CGROUPS
        return hierarchy / pod.parent.strip("/") / container


def make_groups(path: str, milli: int = 0) -> None:
    """Make the cgroups of a pod in every hierarchy, as a kubelet does."""
    for hierarchy in _hierarchies():
        group = hierarchy
        for part in path.strip("/").split("/"):
            if hierarchy == CGROUPS:
                (group / "cgroup.subtree_control").write_text("+cpuset +cpu +memory +pids")
            group /= part
            if not group.exists():
                _make(group)
        if milli and (group / "cpu.cfs_quota_us").exists():
            (group / "cpu.cfs_quota_us").write_text(str(milli * _PERIOD // 1000))
        elif milli and (group / "cpu.max").exists():
            (group / "cpu.max").write_text(f"{milli * _PERIOD // 1000} {_PERIOD}")


def remove_groups(path: str) -> None:
    """Remove a pod's cgroups, or all of them."""
    for hierarchy in _hierarchies(every=True):
        top = hierarchy / path.strip("/")
        for group in sorted((found for found in (top, *top.rglob("*")) if found.is_dir()), reverse=True):
            _remove(group)


def _hierarchies(*, every: bool = False) -> list[Path]:
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    found = [path for path in CGROUPS.iterdir() if (path / "cgroup.procs").exists() and not path.is_symlink()]
    return [path for path in found if every or path.name != "unified"]


def _make(group: Path) -> None:
    group.mkdir()
    for file in ("cpuset.mems", "cpuset.cpus"):
        # v1 lets no process in without these; v2 has them follow the group above.
        if (group / file).exists() and not (group / "cgroup.controllers").exists():
            (group / file).write_text((group.parent / file).read_text())


def _remove(group: Path) -> None:
    end = time.monotonic() + 10
    while group.exists():
        try:
            group.rmdir()
        except OSError:  # a process in it is still dying
            assert time.monotonic() < end, f"{group} cannot be removed"
            time.sleep(0.01)


def allowed(pid: int, what: str = "Cpus") -> CPUSet:
    """Return the CPUs (or NUMA nodes: Mems) that the kernel allows a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{what}_allowed_list:"):
            return CPUSet.parse(line.split()[1])
    raise AssertionError(f"process {pid} has no {what}")


def nodes_of(cpus: CPUSet) -> CPUSet:
    """Return the NUMA nodes that CPUs of this machine are on."""
    found = Path("/sys/devices/system/node").glob("node[0-9]*/cpulist")
    return CPUSet.of(*(int(path.parent.name[4:]) for path in found if CPUSet.parse(path.read_text()) & cpus))
