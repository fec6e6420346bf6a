"""A kubelet and its runtime for the contract of the groups of pods: makes these groups, puts processes into them.

The groups are the kernel's, with real processes in them, or simulated.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.node import cgroupfiles as files
from pinfold.node.grouperrors import KindUnavailableError
from pinfold.node.podgroups.groups import PodGroups, find_driver
from pinfold.node.podgroups.paths import expand_slice
from pinfold.node.podgroups.settings import CPUS, MEMS, GroupSetting, Quota
from pinfold.node.podgroups.simulated import Simulated
from tests.contract import workload
from tests.contract.workload import IDLE, ROOT, Workload
from tests.needs import lacking

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from pinfold.node.podgroups.driver import Driver

BURSTABLE: Final = "burstable"
BESTEFFORT: Final = "besteffort"
GUARANTEED: Final = ""
KINDS: Final = ("kernel", "simulated-v1", "simulated-v2")
_ONLINE: Final = workload.online()
ALL: Final = _ONLINE if len(_ONLINE) > 1 else CPUSet.parse("0-3")
"""The CPUs of every kind of machine; two at least."""
_FIRST_PID: Final = 1000


class Host(Protocol):
    """A machine on which groups can be made and processes started."""

    @property
    def driver(self) -> Driver: ...

    def make(self, group: Path) -> None:
        """Make the group, and those above that are missing, so that all can have CPUs of their own."""

    def make_inside(self, group: Path) -> None:
        """Make the group below one that may have processes."""

    def remove(self, group: Path) -> None:
        """Remove the group."""

    def start(self, command: list[str]) -> int:
        """Start a process."""

    def put(self, pid: int, group: Path) -> None:
        """Move a process into the group."""

    def end(self, pid: int | None = None) -> None:
        """End the process, or all."""

    def allowed(self, pid: int) -> set[str]:
        """Return the CPUs of the process's threads, each different set once."""

    def quota_text(self, group: Path) -> str:
        """Return the group's quota as it is written there."""

    def counted_writes(self) -> AbstractContextManager[Counter[str]]:
        """Count the files that are written, by path."""


class Kernel:
    """This machine."""

    def __init__(self, running: Workload) -> None:
        self.driver = find_driver()
        self._running = running
        self._roots = [self.driver.hierarchy.root, *([ROOT / "cpu"] if self.driver.nested else [])]
        self.handed_down = "+cpuset +cpu"

    def make(self, group: Path) -> None:
        for path in (*reversed(group.parents), group):
            if path.is_relative_to(self.driver.hierarchy.root) and path != self.driver.hierarchy.root:
                if not self.driver.nested:
                    files.write_once(path.parent / "cgroup.subtree_control", self.handed_down)
                self.make_inside(path)

    def make_inside(self, group: Path) -> None:
        made = [files.make_group(twin) for twin in self._twins(group)]
        if made[0] and self.driver.nested:
            for file in (MEMS, CPUS):  # as runc does: a group of v1 takes no process without
                files.write_cpus(group / file, files.read_cpus(group.parent / file))

    def remove(self, group: Path) -> None:
        for twin in self._twins(group):
            files.remove_group(twin)

    def start(self, command: list[str]) -> int:
        return self._running.start(command)[0]

    def put(self, pid: int, group: Path) -> None:
        for twin in self._twins(group):
            files.add_process(twin, pid)

    def end(self, pid: int | None = None) -> None:
        self._running.end(pid)

    def allowed(self, pid: int) -> set[str]:
        return workload.allowed(pid)

    def quota_text(self, group: Path) -> str:
        return files.read(self._twins(group)[-1] / ("cpu.cfs_quota_us" if self.driver.nested else "cpu.max"))

    def counted_writes(self) -> AbstractContextManager[Counter[str]]:
        return workload.counted_writes()

    def _twins(self, group: Path) -> list[Path]:
        return [root / group.relative_to(self.driver.hierarchy.root) for root in self._roots]


class _Counting(Simulated):
    """Counts what is written."""

    writes: Counter[str] | None = None

    def set_own(self, group: Path, file: str, cpus: CPUSet, known: CPUSet | None = None) -> GroupSetting:
        setting = super().set_own(group, file, cpus, known)
        if self.writes is not None and setting.changed:
            self.writes[str(group / file)] += 1
        return setting


class Memory:
    """A simulated machine."""

    def __init__(self, cpus: CPUSet, *, nested: bool) -> None:
        self.driver = _Counting(cpus, nested=nested)
        self._started: list[int] = []

    def make(self, group: Path) -> None:
        self.driver.make(group)

    def make_inside(self, group: Path) -> None:
        self.driver.make(group)

    def remove(self, group: Path) -> None:
        self.driver.remove(group)

    def start(self, command: list[str]) -> int:  # noqa: ARG002 - nothing runs here
        self._started.append(_FIRST_PID + len(self._started))
        return self._started[-1]

    def put(self, pid: int, group: Path) -> None:
        self.driver.put(pid, group)

    def end(self, pid: int | None = None) -> None:
        for started in self._started if pid is None else [pid]:
            self.driver.end(started)

    def allowed(self, pid: int) -> set[str]:
        group = self.driver.group_of(pid)
        assert group is not None
        return {str(self.driver.effective(group, CPUS))}

    def quota_text(self, group: Path) -> str:
        return str(self.driver.quota(group))

    @contextmanager
    def counted_writes(self) -> Iterator[Counter[str]]:
        self.driver.writes = Counter()
        yield self.driver.writes
        self.driver.writes = None


def host(kind: str) -> Host:
    """Return a machine of this kind; skip the test where there is none."""
    if kind != "kernel":
        return Memory(ALL, nested=kind == "simulated-v1")
    if ALL != _ONLINE or os.geteuid() != 0:
        lacking("two CPUs and root")
    try:
        return Kernel(Workload())
    except KindUnavailableError as error:
        lacking(f"cgroups: {error}")


class Node:
    """A kubelet and its runtime, as far as groups go: makes those of pods and containers, in its own place."""

    def __init__(self, name: str, naming: str, host: Host) -> None:
        self.host = host
        self.systemd = naming == "systemd"
        self.name = name.replace("-", "_") if self.systemd else name
        top = f"{self.name}-kubepods.slice" if self.systemd else f"/{name}/kubepods"
        self.groups = PodGroups(host.driver, top)
        self.kubepods = self._make("")
        for qos in (BURSTABLE, BESTEFFORT):
            self._make(qos)

    def pod(self, qos: str, uid: str) -> Path:
        """Make the group of a pod; its cgroup parent is what the runtime would be told."""
        stem = "-".join(filter(None, (self.name, "kubepods", qos)))
        parent = f"{stem}-pod{uid}.slice" if self.systemd else "/" + "/".join((*self._parts(qos), f"pod{uid}"))
        pod = self.groups.tree.paths.pod(parent)
        self.host.make(pod)
        assert not self.systemd or pod.name == parent
        return pod

    def container(self, pod: Path, name: str, command: list[str] = IDLE, own: CPUSet = EMPTY) -> tuple[Path, int]:
        """Start a container with a group, and CPUs, of its own."""
        path = f"{pod.name}:cri:{name}" if self.systemd else "/" + "/".join((*self.groups.tree.paths.parts(pod), name))
        group = self.groups.tree.paths.container(path)
        self.host.make(group)
        if own:
            self.set_own(group, own)
        pid = self.host.start(command)
        self.host.put(pid, group)
        return group, pid

    def made_inside(self, container: Path, name: str, own: CPUSet = EMPTY) -> Path:
        """Make a group inside a container's, as a workload does that has containers itself."""
        group = container / name
        self.host.make_inside(group)
        if own:
            self.set_own(group, own)
        return group

    def own(self, group: Path) -> CPUSet:
        """Return the CPUs that were set for the group."""
        return self.host.driver.own(group, CPUS)

    def set_own(self, group: Path, cpus: CPUSet) -> None:
        """Set the CPUs of a group as a kubelet, its runtime or an administrator does."""
        self.host.driver.set_own(group, CPUS, cpus)

    def limit(self, group: Path, quota: int) -> None:
        """Set the limit as a kubelet or its runtime does."""
        self.host.driver.set_quota(group, Quota(quota))

    def end(self) -> None:
        """End everything, and leave no group behind."""
        self.host.end()
        top = self.groups.tree.root / self._parts("")[0]
        for group in reversed(self.groups.tree.below(top)):
            self.host.remove(group)
        assert not self.groups.tree.exists(top)

    def _parts(self, qos: str) -> tuple[str, ...]:
        if self.systemd:
            return expand_slice("-".join(filter(None, (self.name, "kubepods", qos))) + ".slice")
        return tuple(filter(None, (self.name, "kubepods", qos)))

    def _make(self, qos: str) -> Path:
        group = self.groups.tree.root.joinpath(*self._parts(qos))
        self.host.make(group)
        return group
