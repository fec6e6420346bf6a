"""Nodes with many containers to measure a plugin on: a real containerd, or its end of NRI alone over real cgroups."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

from pinfold.formats.wire import nrimux, ttrpc
from pinfold.formats.wire.nrimux import Connection, format_frames
from pinfold.formats.wire.ttrpc import MessageKind, format_message
from pinfold.proto import nri_pb2 as nri
from pinfold.proto import ttrpc_pb2 as envelope
from tests.e2e.containerd import CGROUPS, Ask, Containerd, make_groups, remove_groups
from tests.e2e.nrirelay import Relay

if TYPE_CHECKING:
    from pinfold.proto.nri_pb2 import PodSandbox
    from tests.e2e.containerd import PodOnNode

PODS = 10
"""Those that share are in so many pods."""
_SERVICE = "nri.pkg.api.v1alpha1.Plugin"
_CHUNK = 1 << 16
_PATIENCE = 60.0
_V2 = (CGROUPS / "cgroup.controllers").exists()
_CPUSETS = CGROUPS if _V2 else CGROUPS / "cpuset"


class Node(Protocol):
    """Where containers come and go."""

    nri_socket: Path
    root: str

    def ready(self) -> None:
        """Wait until a plugin knows what runs."""
        ...

    def share(self, count: int) -> None:
        """Have so many containers that share."""
        ...

    def own(self, milli: int) -> float:
        """Make a container with CPUs of its own and remove it; return the seconds that the plugin took to answer."""
        ...


class RealNode:
    """A containerd, with a relay that measures in front of its NRI socket."""

    def __init__(self, suite: str) -> None:
        self.containerd = Containerd(suite)
        self.root = self.containerd.root
        self.nri_socket = self.containerd.run / "relay.sock"
        self.relay = Relay(self.nri_socket, self.containerd.nri_socket)
        self._webs: list[PodOnNode] = []
        self._count = 0
        self.answers: list[float] = []
        """Seconds that the plugin has taken to answer."""

    def __enter__(self) -> Self:
        self.containerd.__enter__()
        self.relay.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.relay.__exit__()
        self.containerd.__exit__()

    def ready(self) -> None:
        """Wait until the plugin is asked."""
        pod = self.containerd.run_pod(f"ready-{uuid.uuid4().hex[:8]}", "burstable")
        before = len(self.relay.times("CreateContainer"))
        number = 0
        while len(self.relay.times("CreateContainer")) == before:
            self.containerd.create(pod, Ask(f"c{number}", 100))
            number += 1
        self.containerd.remove_pod(pod)

    def share(self, count: int) -> None:
        """Run containers until there are so many."""
        while len(self._webs) < PODS:
            self._webs.append(self.containerd.run_pod(f"web-{len(self._webs)}", "burstable"))
        while self._count < count:
            self.containerd.run_container(self._webs[self._count % PODS], Ask(f"c{self._count}", 100))
            self._count += 1

    def own(self, milli: int) -> float:
        """Create, start and remove a pod with one container."""
        pod = self.containerd.run_pod(f"db-{uuid.uuid4().hex[:8]}")
        self.containerd.run_container(pod, Ask(milli=milli))
        seconds = self.relay.times("CreateContainer")[-1]
        self.containerd.remove_pod(pod)
        return seconds

    def create(self, number: int) -> float:
        """Create and remove a container that shares; return the seconds that the call took."""
        began = time.perf_counter()
        container = self.containerd.create(self._webs[0], Ask(f"x{number}", 100))
        seconds = time.perf_counter() - began
        self.containerd.wait(self.containerd.remove_container_async(container))
        return seconds


class Refused(SystemExit):
    """The plugin has answered with an error."""


class BareNode:
    """The runtime's end of NRI, and cgroups with a sleeping process each in place of containers."""

    def __init__(self, directory: Path, pods: int = PODS) -> None:
        """Those that share are in so many *pods*."""
        self._count = pods
        self.root = f"pinfold-bench-{uuid.uuid4().hex[:8]}"
        self.nri_socket = directory / "nri.sock"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._plugin: socket.socket | None = None
        self._messages = nrimux.Messages()
        self._stream = 1
        self._pods: list[PodSandbox] = []
        self._containers: list[nri.Container] = []
        self._sleepers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self._listener.bind(str(self.nri_socket))
        self._listener.listen()
        self._listener.settimeout(_PATIENCE)
        for number in range(self._count):
            self._pods.append(self._pod(f"web-{number}", "/burstable"))
        return self

    def __exit__(self, *_: object) -> None:
        for one in (self._plugin, self._listener):
            if one is not None:
                one.close()
        for sleeper in self._sleepers:
            sleeper.kill()
            sleeper.wait()
        remove_groups(self.root)

    def ready(self) -> None:
        """Accept the plugin, and tell it what there is."""
        self._plugin, _ = self._listener.accept()
        self._plugin.settimeout(None)
        message = self._next(Connection.RUNTIME)
        self._send(Connection.RUNTIME, message.stream, MessageKind.RESPONSE, envelope.Response().SerializeToString())
        self.call("Configure", nri.ConfigureRequest(runtime_name="bare", runtime_version="0").SerializeToString())
        known = nri.SynchronizeRequest(pods=self._pods, containers=self._containers)
        self.call("Synchronize", known.SerializeToString())

    def share(self, count: int) -> None:
        """Make containers until there are so many; before a plugin comes."""
        while len(self._containers) < count:
            pod = self._pods[len(self._containers) % self._count]
            container = self._container(pod, f"c{len(self._containers)}", 100)
            container.state = nri.CONTAINER_RUNNING
            container.pid = self._occupy(container.linux.cgroups_path)
            self._containers.append(container)

    def keep(self, milli: int) -> None:
        """Make a container with CPUs of its own, which stays."""
        pod = self._pod("kept", "")
        container = self._container(pod, "app", milli)
        self._create(pod, container)
        container.state = nri.CONTAINER_RUNNING
        container.pid = self._occupy(container.linux.cgroups_path)
        self._pods.append(pod)
        self._containers.append(container)

    def own(self, milli: int) -> float:
        """Ask for a container with CPUs of its own, and say that its pod is gone."""
        pod = self._pod(f"db-{uuid.uuid4().hex[:8]}", "")
        try:
            return self._create(pod, self._container(pod, "app", milli))
        finally:
            self._tell(nri.STOP_POD_SANDBOX, pod)
            remove_groups(pod.linux.cgroup_parent)

    def _create(self, pod: PodSandbox, container: nri.Container) -> float:
        """Ask for a container's CPUs; return the seconds that the plugin took to answer."""
        request = nri.ContainerRequest(pod=pod, container=container).SerializeToString()
        began = time.perf_counter()
        answer = nri.CreateContainerResponse.FromString(self.call("CreateContainer", request))
        seconds = time.perf_counter() - began
        if not answer.adjust.linux.resources.cpu.cpus:
            raise SystemExit(f"no CPUs were given: {answer}")
        return seconds

    def pass_by(self) -> float:
        """Let a pod with a container that shares come and go, its groups are not made; return the answer's seconds."""
        pod = self._pod(f"job-{uuid.uuid4().hex[:8]}", "/burstable", made=False)
        container = self._container(pod, "app", 100)
        self._tell(nri.RUN_POD_SANDBOX, pod)
        request = nri.ContainerRequest(pod=pod, container=container).SerializeToString()
        began = time.perf_counter()
        self.call("CreateContainer", request)
        seconds = time.perf_counter() - began
        self._tell(nri.STOP_POD_SANDBOX, pod)
        self._tell(nri.REMOVE_CONTAINER, pod, container)
        self._tell(nri.REMOVE_POD_SANDBOX, pod)
        return seconds

    def move_off(self, *, plainly: bool) -> float:
        """Move all that share off all CPUs but the first, and back, without a plugin; return the seconds of the former.

        These are the fewest writes that the kernel allows: on v2 one, to the group above; on v1 a group must always
        have all CPUs of those below it, so each is written, from the bottom up. Unless *plainly*, the pods and
        containers of v1 have lost the flag first that makes the kernel work out its scheduling domains at each write.
        """
        top = Path(f"/{self.root}/kubepods/burstable")
        groups = [top] if _V2 else [top, *map(Path, self._below())]
        places = [str(_CPUSETS.joinpath(*group.parts[1:])) for group in groups]
        files = [f"{place}/cpuset.cpus" for place in places]
        flags = [] if _V2 or plainly else [f"{place}/cpuset.sched_load_balance" for place in places[1:]]
        for file in flags:
            _write(file, b"0")
        every = (_CPUSETS / ("cpuset.cpus.effective" if _V2 else "cpuset.cpus")).read_text().strip()
        began = time.perf_counter()
        for file in reversed(files):
            _write(file, b"0")
        seconds = time.perf_counter() - began
        for file in files:
            _write(file, every.encode())
        for file in flags:
            _write(file, b"1")
        return seconds

    @staticmethod
    def save() -> float:
        """Write a small file durably, and give it its name, as each change of the State; return the seconds."""
        with tempfile.TemporaryDirectory(prefix="pf-") as directory:
            new, name = f"{directory}/new", f"{directory}/state"
            began = time.perf_counter()
            _write(new, b"x" * 400, os.O_CREAT, durably=True)
            os.rename(new, name)  # noqa: PTH104 - nothing beside the calls themselves
            return time.perf_counter() - began

    def _below(self) -> list[str]:
        """Return the groups of the pods, then those of their containers."""
        pods = [pod.linux.cgroup_parent for pod in self._pods[: self._count]]
        return [*pods, *(container.linux.cgroups_path for container in self._containers)]

    def _tell(self, event: nri.Event, pod: PodSandbox, container: nri.Container | None = None) -> None:
        told = nri.StateChangeEvent(event=event, pod=pod, container=container)
        self.call("StateChange", told.SerializeToString())

    def call(self, method: str, payload: bytes) -> bytes:
        """Ask the plugin, and return its answer."""
        request = envelope.Request(service=_SERVICE, method=method, payload=payload)
        stream, self._stream = self._stream, self._stream + 2
        self._send(Connection.PLUGIN, stream, MessageKind.REQUEST, request.SerializeToString())
        response = envelope.Response.FromString(self._next(Connection.PLUGIN).body)
        if response.status.code:
            raise Refused(f"{method}: {response.status.message}")
        return bytes(response.payload)

    def _send(self, connection: Connection, stream: int, kind: MessageKind, body: bytes) -> None:
        assert self._plugin is not None  # noqa: S101 - for mypy
        self._plugin.sendall(format_frames(connection, format_message(ttrpc.Message(stream, kind, body))))

    def _next(self, wanted: Connection) -> ttrpc.Message:
        assert self._plugin is not None  # noqa: S101 - for mypy
        while data := self._plugin.recv(_CHUNK):
            for connection, message in self._messages.feed(data):
                if connection is wanted:
                    return message
        raise SystemExit("the plugin has hung up")

    def _pod(self, name: str, middle: str, *, made: bool = True) -> PodSandbox:
        uid = str(uuid.uuid4())
        parent = f"/{self.root}/kubepods{middle}/pod{uid}"
        if made:
            make_groups(parent)
        pod = nri.PodSandbox(id=uuid.uuid4().hex, name=name, uid=uid, namespace="default")
        pod.linux.cgroup_parent = parent
        return pod

    @staticmethod
    def _container(pod: PodSandbox, name: str, milli: int) -> nri.Container:
        container = nri.Container(id=uuid.uuid4().hex, pod_sandbox_id=pod.id, name=name)
        container.labels["io.kubernetes.container.name"] = name
        container.linux.cgroups_path = f"{pod.linux.cgroup_parent}/{container.id}"
        cpu = container.linux.resources.cpu
        cpu.shares.value = milli * 1024 // 1000
        cpu.quota.value, cpu.period.value = milli * 100, 100_000
        return container

    def _occupy(self, path: str) -> int:
        make_groups(path)
        sleeper = subprocess.Popen(["sleep", "2147483647"])  # noqa: S607 - wherever it is
        self._sleepers.append(sleeper)
        (_CPUSETS / path.strip("/") / "cgroup.procs").write_text(str(sleeper.pid))
        return sleeper.pid


def _write(path: str, data: bytes, flags: int = 0, *, durably: bool = False) -> None:
    """Write with the system calls alone: for hundreds of files pathlib takes half as long as the kernel."""
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC | flags, 0o600)
    try:
        os.write(file, data)
        if durably:
            os.fsync(file)
    finally:
        os.close(file)
