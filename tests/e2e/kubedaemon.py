"""`pinfold serve --runtime nri|cri` as a process beside a real containerd, and what must be so on such a node."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, Self

from pinfold.core.machine.cpuset import CPUSet
from pinfold.formats.kubelet.checkpoint import parse_checkpoint
from pinfold.node.procfs import Procfs
from tests.e2e.daemon import ONLINE, Daemon, wait_for
from tests.needs import IN_GUEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pinfold.core.state import State
    from tests.e2e.containerd import Seen

PATIENCE: Final = 60.0 if not IN_GUEST else 400.0
PROC: Final = Procfs(Path("/proc"))


class KubeRuntime(Protocol):
    """The container runtime beside the daemon, a containerd or a scripted one."""

    root: str
    """The kubelet's cgroup root."""
    nri_socket: Path
    cri_socket: Path

    def running(self) -> Sequence[Seen]:
        """Return the containers that run."""


class KubeDaemon(Daemon):
    """The daemon of a Kubernetes node."""

    def __init__(self, containerd: KubeRuntime, runtime: str, *options: str) -> None:
        super().__init__(*options, kind="affinity")  # it makes no groups itself
        self.containerd = containerd
        self.runtime = runtime
        self.policy = "static"
        self.kubelet_dir = self.place.directory / "kubelet"
        self.kubelet_dir.mkdir()
        sockets = {"nri": ["--nri-socket", containerd.nri_socket], "cri": ["--cri-socket", containerd.cri_socket]}
        self.groups = ["--runtime", runtime, *map(str, sockets[runtime]), "--cgroup-root", f"/{containerd.root}"]
        self.groups += ["--kubelet-dir", str(self.kubelet_dir)]

    def start(self, *options: str, stderr: int | None = None) -> Self:
        """Start it, and return when it has heard from the runtime what runs."""
        before = self.said().count(self._linked)
        super().start(*options, stderr=stderr)
        self.linked(before)
        return self

    @property
    def _linked(self) -> str:
        return "link=synchronized" if self.runtime == "nri" else "link=connected"

    def linked(self, before: int = 0) -> None:
        """Wait until it has been connected to the runtime more than *before* times."""
        wait_for(lambda: self.said().count(self._linked) > before, "it is connected to the runtime", PATIENCE)

    def links(self) -> int:
        """Return how often it has been connected to the runtime."""
        return self.said().count(self._linked)

    def state(self) -> State:
        """Return the State as it is told."""
        return self._parse(self.client.get("/v1/state")["checkpoint"])

    def saved(self) -> State:
        """Return the State on disk."""
        return self._parse((self.state_dir / "cpu_manager_state").read_text())

    def _parse(self, checkpoint: str) -> State:
        return parse_checkpoint(checkpoint, policy=self.policy)

    def cpus(self, pod: str, name: str = "app") -> CPUSet:
        """Return the exclusive CPUs of a container; none if it has none."""
        row = self.find(pod, name)
        return CPUSet.parse(row["cpus"]) if row is not None and row["exclusive"] else CPUSet()

    # -- what must be so after every step

    def check(self, seen: Sequence[Seen] | None = None) -> None:
        """See that every container really runs where State has it, that State is sound, and that all is told so."""
        state = self.state()
        assert state.check(ONLINE) == []
        assert self.saved() == state
        rows = {(row["pod"], row["container"]): row for row in self.containers()}
        for one in self.containerd.running() if seen is None else seen:
            wanted = state.cpus(one.uid, one.name) or state.shared  # type: ignore[arg-type]  # a UID is text
            assert real(one.pid) <= {wanted}, (one, real(one.pid), wanted)
            row = rows[one.pod, one.name]
            assert row["exclusive"] == (state.cpus(one.uid, one.name) is not None)  # type: ignore[arg-type]
            assert CPUSet.parse(row["cpus"]) == wanted, row

    def settled(self) -> None:
        """Wait until everything is where it should be."""

        def is_so() -> bool:
            try:
                self.check()
            except (AssertionError, KeyError):
                return False
            return True

        try:
            wait_for(is_so, "all is as it should be", PATIENCE)
        except AssertionError:
            self.check()  # says what is wrong
            raise


class Overlap(NamedTuple):
    """A foreign thread that was seen where it may not be."""

    thread: int
    allowed: CPUSet
    late: float
    """Seconds after the owner's first instruction."""


class Sampler:
    """Looks at every thread of containers that share, again and again, from before an owner starts until after."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.samples: list[tuple[float, int, CPUSet]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def overlaps(self, owner: int, cpus: CPUSet) -> list[Overlap]:
        """Return who was seen on the owner's CPUs after its process had begun; time is the kernel's."""
        began = started(owner)
        late = ((thread, allowed, at - began) for at, thread, allowed in self.samples if at > began)
        return [Overlap(*found) for found in late if found[1] & cpus]

    def looks_after(self, owner: int) -> int:
        """Return how often processes were looked at after the owner had begun."""
        began = started(owner)
        return sum(at > began for at, _, _ in self.samples)

    def _look(self) -> None:
        while not self._over.is_set():
            for pid in self._pids:
                for thread in PROC.threads(pid):
                    at = time.clock_gettime(time.CLOCK_BOOTTIME)
                    self.samples.append((at, thread, PROC.allowed(thread)))
            time.sleep(0.001)


def started(pid: int) -> float:
    """Return when a process ran its own program, in seconds since boot, rounded down: no later than it was."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")


def real(pid: int) -> set[CPUSet]:
    """Return the different sets of CPUs that the kernel allows the threads of a process; none if it is gone."""
    return {cpus for thread in PROC.threads(pid) if (cpus := PROC.allowed(thread))}
