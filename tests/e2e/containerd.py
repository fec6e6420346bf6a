"""A real, private containerd from Debian packages, driven over CRI as a kubelet would; needs the lab beside us."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pytest

from pinfold.core.cpuset import CPUSet
from pinfold.proto import cri_pb2 as cri
from pinfold.runtimes.grpcchannel import Channel

if TYPE_CHECKING:
    from collections.abc import Coroutine

LAB = Path(__file__).resolve().parents[3] / "shared/reference/lab"
CGROUPS = Path("/sys/fs/cgroup")
IMAGE = "localhost/busybox:1"
_SERVICE = "/runtime.v1.RuntimeService/"
_NAMESPACES = cri.NamespaceOption(network=cri.NODE, pid=cri.CONTAINER, ipc=cri.POD)


class PodOnNode(NamedTuple):
    """A pod as CRI knows it."""

    id: str
    uid: str
    name: str
    qos: str
    config: cri.PodSandboxConfig


class Containerd:
    """One containerd of a Debian suite, with directories of its own."""

    def __init__(self, suite: str, work: Path, root: str) -> None:
        self.suite = suite
        self.work = work
        self.root = root
        """The name of the kubelet's cgroup root, which only this test uses."""
        self.run = Path(os.environ.get("RUN", work / "run")) / suite
        self.cri_socket = self.run / "containerd.sock"
        self.nri_socket = self.run / "nri.sock"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._channel: Channel | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self.script("provision.sh", self.suite)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.drop_channel()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self.stop()

    # -- the daemon itself

    def script(self, *command: str) -> None:
        """Run a script of the lab."""
        done = subprocess.run(
            [LAB / command[0], *command[1:]],
            env=os.environ | {"LAB": str(self.work)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout

    def start(self) -> None:
        """Start it."""
        self.script("containerd.sh", "start", self.suite)

    def stop(self) -> None:
        """End it, and every process, mount and cgroup that it has caused."""
        self.script("containerd.sh", "stop", self.suite)

    def restart(self) -> None:
        """End only containerd itself, and start it again; containers go on."""
        self.drop_channel()
        self.script("containerd.sh", "restart", self.suite)

    # -- calls

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401 - whatever it returns
        """Run a coroutine on this driver's own loop, and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(120)

    def drop_channel(self) -> None:
        """Forget the connection."""
        if self._channel is not None:
            channel, self._channel = self._channel, None
            self._loop.call_soon_threadsafe(channel.close)

    async def call(self, method: str, request: Any, answer: Any) -> Any:  # noqa: ANN401 - protobuf messages
        """Call a method of the runtime service."""
        if self._channel is None:
            self._channel = Channel(str(self.cri_socket), deadline=60.0)
        found = answer()
        found.ParseFromString(await self._channel.call(_SERVICE + method, request.SerializeToString()))
        return found

    # -- what a kubelet does

    def parent(self, qos: str, uid: str) -> str:
        """Return the cgroup parent that a kubelet with the cgroupfs driver uses."""
        middle = {"guaranteed": "", "burstable": "/burstable", "besteffort": "/besteffort"}[qos]
        return f"/{self.root}/kubepods{middle}/pod{uid}"

    def make_parents(self, path: str) -> None:
        """Make the pod's cgroups, as a kubelet does."""
        hierarchies = [CGROUPS] if (CGROUPS / "cgroup.controllers").exists() else [*CGROUPS.iterdir()]
        for hierarchy in hierarchies:
            if not (hierarchy / "cgroup.procs").exists() or (hierarchy.name == "unified"):
                continue
            group = hierarchy
            for part in path.strip("/").split("/"):
                if hierarchy == CGROUPS:
                    (group / "cgroup.subtree_control").write_text("+cpuset +cpu +memory +pids")
                group = group / part
                if not group.exists():
                    group.mkdir()
                    for file in ("cpuset.mems", "cpuset.cpus"):
                        if (group / file).exists() and hierarchy != CGROUPS:
                            (group / file).write_text((group.parent / file).read_text())

    async def run_pod_async(self, name: str, qos: str, annotations: dict[str, str] | None = None) -> PodOnNode:
        """Run a pod's sandbox."""
        uid = str(uuid.uuid4())
        parent = self.parent(qos, uid)
        self.make_parents(parent)
        config = cri.PodSandboxConfig(
            metadata=cri.PodSandboxMetadata(name=name, uid=uid, namespace="default"),
            labels={
                "io.kubernetes.pod.name": name,
                "io.kubernetes.pod.namespace": "default",
                "io.kubernetes.pod.uid": uid,
            },
            annotations=annotations or {},
            linux=cri.LinuxPodSandboxConfig(
                cgroup_parent=parent,
                security_context=cri.LinuxSandboxSecurityContext(namespace_options=_NAMESPACES),
            ),
        )
        answer = await self.call("RunPodSandbox", cri.RunPodSandboxRequest(config=config), cri.RunPodSandboxResponse)
        return PodOnNode(answer.pod_sandbox_id, uid, name, qos, config)

    async def create_async(  # noqa: PLR0913 - what a kubelet says of a container
        self, pod: PodOnNode, name: str, milli: int, *, attempt: int = 0, limit: bool = True, command: str = ""
    ) -> str:
        """Create a container that asks for so many milli CPUs, and return its id."""
        resources = cri.LinuxContainerResources(cpu_period=100_000, cpu_shares=max(milli * 1024 // 1000, 2))
        if limit and milli:
            resources.cpu_quota = max(milli * 100, 1000)
        script = command or "exec sleep 2147483647"
        config = cri.ContainerConfig(
            metadata=cri.ContainerMetadata(name=name, attempt=attempt),
            image=cri.ImageSpec(image=IMAGE),
            command=["/bin/sh", "-c", script],
            labels={
                "io.kubernetes.container.name": name,
                "io.kubernetes.pod.name": pod.name,
                "io.kubernetes.pod.namespace": "default",
                "io.kubernetes.pod.uid": pod.uid,
            },
            annotations={"io.kubernetes.container.restartCount": str(attempt)},
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

    async def pid_async(self, container: str) -> int:
        """Return a container's process."""
        request = cri.ContainerStatusRequest(container_id=container, verbose=True)
        answer = await self.call("ContainerStatus", request, cri.ContainerStatusResponse)
        return int(json.loads(answer.info["info"])["pid"])

    async def stop_container_async(self, container: str) -> None:
        """Stop and remove a container."""
        await self.call("StopContainer", cri.StopContainerRequest(container_id=container), cri.StopContainerResponse)
        await self.call(
            "RemoveContainer", cri.RemoveContainerRequest(container_id=container), cri.RemoveContainerResponse
        )

    async def remove_pod_async(self, pod: PodOnNode) -> None:
        """Stop and remove a pod."""
        await self.call("StopPodSandbox", cri.StopPodSandboxRequest(pod_sandbox_id=pod.id), cri.StopPodSandboxResponse)
        await self.call(
            "RemovePodSandbox", cri.RemovePodSandboxRequest(pod_sandbox_id=pod.id), cri.RemovePodSandboxResponse
        )

    def run_pod(self, name: str, qos: str, annotations: dict[str, str] | None = None) -> PodOnNode:
        """Run a pod's sandbox."""
        pod: PodOnNode = self.wait(self.run_pod_async(name, qos, annotations))
        return pod

    def run_container(
        self, pod: PodOnNode, name: str, milli: int, *, command: str = "", attempt: int = 0
    ) -> tuple[str, int]:
        """Create and start a container; return its id and its process."""

        async def both() -> tuple[str, int]:
            container = await self.create_async(pod, name, milli, command=command, attempt=attempt)
            return container, await self.start_async(container)

        found: tuple[str, int] = self.wait(both())
        return found

    def remove_pod(self, pod: PodOnNode) -> None:
        """Stop and remove a pod."""
        self.wait(self.remove_pod_async(pod))


def allowed(pid: int) -> CPUSet:
    """Return the CPUs that the kernel allows a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("Cpus_allowed_list:"):
            return CPUSet.parse(line.split()[1])
    pytest.fail(f"process {pid} has no CPUs")
