"""A node whose runtime is scripted and whose kernel is real: containers are processes in cgroups, told of over NRI.

A `KubeDaemon` is started beside it as beside a containerd. Nothing has to be installed, and a container starts in
milliseconds.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from pinfold.core.pods.pod import Amounts, Container, Pod, PodUID, Resources
from pinfold.errors import PinfoldError
from pinfold.formats.pods.runtime import Phase
from pinfold.node.podgroups.simulated import Simulated
from pinfold.runtimes.simulated.kubelet import Kubelet
from pinfold.runtimes.simulated.runtime import ScriptedRuntime
from pinfold.runtimes.simulated.settings import RuntimeSettings
from tests.contract.kubenode import Kernel
from tests.contract.workload import IDLE, Workload
from tests.e2e.containerd import Seen
from tests.needs import IN_GUEST

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Future

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.node.podgroups.settings import GroupSetting, Quota
    from pinfold.runtimes.simulated.record import ContainerRecord

LONG: Final = 60.0 if not IN_GUEST else 600.0
_MEMORY: Final = 1 << 30


class KernelGroups(Simulated):
    """The kernel's groups, in place of simulated ones."""

    def __init__(self, running: Workload) -> None:
        self._kernel = Kernel(running)
        self.driver = self._kernel.driver
        self.root = self.driver.hierarchy.root

    def exists(self, group: Path) -> bool:
        return self.driver.hierarchy.exists(group)

    def below(self, group: Path) -> list[Path]:
        return self.driver.hierarchy.below(group)

    def members(self, group: Path) -> list[int]:
        return self.driver.hierarchy.members(group)

    def set_own(self, group: Path, file: str, cpus: CPUSet, known: CPUSet | None = None) -> GroupSetting:
        return self.driver.set_own(group, file, cpus, known)

    def set_quota(self, group: Path, quota: Quota) -> tuple[GroupSetting, ...]:
        return self.driver.set_quota(group, quota)

    def make(self, group: Path) -> Path:
        self._kernel.make(group)
        return group

    def remove(self, group: Path) -> None:
        self._kernel.remove(group)

    def put(self, pid: int, group: Path) -> None:
        self._kernel.put(pid, group)

    def end(self, pid: int) -> None:
        self._kernel.end(pid)


class ScriptedNode:
    """A kubelet and its runtime with groups of their own; it stands where a test expects a containerd."""

    def __init__(self, settings: RuntimeSettings | None = None) -> None:
        self.root = f"pinfold-kube-{uuid.uuid4().hex[:8]}"
        """The kubelet's cgroup root."""
        self.run = Path(tempfile.mkdtemp(prefix="pf-sn-"))
        self.nri_socket = self.run / "nri.sock"
        self.cri_socket = self.run / "cri.sock"
        self._workload = Workload()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.groups = KernelGroups(self._workload)
        kubelet = Kubelet(cgroup_root=self.root)
        # A runtime waits 2 s for a plugin, and then goes on without; here the machine may be busy for longer.
        self.runtime = ScriptedRuntime(self.groups, kubelet, settings or RuntimeSettings(request_timeout=LONG / 3))
        self.runtime.record.new_pid = lambda: self._workload.start(IDLE)[0]  # type: ignore[method-assign]
        self.sandboxes: dict[str, str] = {}
        """The sandbox of each pod that is there, by its name."""
        self._given = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self.wait(self.runtime.nri.listen(str(self.nri_socket)))
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.wait(self.runtime.close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
        finally:
            self._workload.end()
            self._clear(self.groups.root / self.root)
            shutil.rmtree(self.run)

    def _clear(self, group: Path) -> None:
        for below in self.groups.below(group):
            self._clear(below)
        self.groups.remove(group)

    # -- what the kubelet does

    def begin(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Begin something in the runtime's own thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, what: Callable[[], object]) -> None:
        """Call a function in the runtime's own thread."""
        self._loop.call_soon_threadsafe(what)

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401 - the result of any work
        """Do something in the runtime's own thread, and return its result."""
        return self.begin(work).result(LONG)

    async def run_pod(self, name: str, cpus: int) -> bool:
        """Run a pod with one container: with so many CPUs of its own, or with none; return whether it was let in."""
        self._given += 1
        amounts = Amounts(cpus * 1000 or None, _MEMORY)
        app = Container("app", Resources(amounts, amounts if cpus else Amounts()))
        pod = Pod(PodUID(f"{name}-{self._given}"), name, containers=(app,))
        sandbox = (await self.runtime.run_pod(pod)).id
        try:
            await self.runtime.pods.run_container(sandbox, "app")
        except PinfoldError:
            await self.runtime.remove_pod(sandbox)
            return False
        self.sandboxes[name] = sandbox
        return True

    async def remove_pod(self, name: str) -> None:
        """End a pod and remove it."""
        await self.runtime.remove_pod(self.sandboxes.pop(name))

    # -- what is there

    def containers(self) -> dict[str, ContainerRecord]:
        """Return the containers that run, by the names of their pods."""
        record = self.runtime.record
        found = {name: record.find(name, "app") for name in self.sandboxes}
        return {name: container for name, container in found.items() if container.phase is Phase.RUNNING}

    def running(self) -> list[Seen]:
        """Return the containers that run, as a containerd tells of them."""
        sandboxes = self.runtime.record.sandboxes
        return [
            Seen(one.id, sandboxes[one.sandbox].pod.uid, name, one.name, one.pid)
            for name, one in self.containers().items()
        ]
