"""A kubelet and its runtime for the contract of the groups of pods: makes these groups, puts processes into them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pinfold.core.cpuset import EMPTY, CPUSet
from pinfold.node import cgroupfiles as files
from pinfold.node.podgroups import groups as podgroups
from pinfold.node.podgroups.paths import expand_slice
from tests.contract.workload import IDLE, ROOT, Workload

if TYPE_CHECKING:
    from pathlib import Path

BURSTABLE: Final = "burstable"
BESTEFFORT: Final = "besteffort"
GUARANTEED: Final = ""


class Node:
    """A kubelet and its runtime, as far as groups go: makes those of pods and containers, in its own place."""

    def __init__(self, name: str, driver: str, running: Workload) -> None:
        self.systemd = driver == "systemd"
        self.name = name.replace("-", "_") if self.systemd else name
        self.running = running
        top = f"{self.name}-kubepods.slice" if self.systemd else f"/{name}/kubepods"
        self.groups = podgroups.discover(kubepods=top)
        self.unified = self.groups.kind == "cgroup v2"
        self.roots = [self.groups.tree.root, *([] if self.unified else [ROOT / "cpu"])]
        self.handed_down = "+cpuset +cpu"
        self.kubepods = self._make(self._parts(""))
        for qos in (BURSTABLE, BESTEFFORT):
            self._make(self._parts(qos))

    def pod(self, qos: str, uid: str) -> Path:
        """Make the group of a pod; its cgroup parent is what the runtime would be told."""
        stem = "-".join(filter(None, (self.name, "kubepods", qos)))
        parent = f"{stem}-pod{uid}.slice" if self.systemd else "/" + "/".join((*self._parts(qos), f"pod{uid}"))
        pod = self.groups.tree.pod(parent)
        self._make(self.groups.tree.parts(pod))
        assert not self.systemd or pod.name == parent
        return pod

    def container(self, pod: Path, name: str, command: list[str] = IDLE, own: CPUSet = EMPTY) -> tuple[Path, int]:
        """Start a container with a group, and CPUs, of its own."""
        path = f"{pod.name}:cri:{name}" if self.systemd else "/" + "/".join((*self.groups.tree.parts(pod), name))
        group = self.groups.tree.container(path)
        self._make(self.groups.tree.parts(group))
        if own:
            files.write_cpus(group / "cpuset.cpus", own)
        pid, _ = self.running.start(command)
        for root in self.roots:
            files.add_process(root / group.relative_to(self.groups.tree.root), pid)
        return group, pid

    def made_inside(self, container: Path, name: str, own: CPUSet = EMPTY) -> Path:
        """Make a group inside a container's, as a workload does that has containers itself."""
        group = container / name
        group.mkdir()
        if not self.unified:
            inherit(group)
        if own:
            files.write_cpus(group / "cpuset.cpus", own)
        return group

    def quota_file(self, group: Path) -> str:
        """Return the limit as the kernel has it."""
        group = self.roots[-1] / group.relative_to(self.groups.tree.root)
        return files.read(group / ("cpu.max" if self.unified else "cpu.cfs_quota_us"))

    def limit(self, group: Path, quota: int) -> None:
        """Set the limit as a kubelet or its runtime does."""
        group = self.roots[-1] / group.relative_to(self.groups.tree.root)
        if self.unified:
            files.write(group / "cpu.max", f"{quota} 100000")
        else:
            files.write(group / "cpu.cfs_quota_us", str(quota))

    def end(self) -> None:
        """End everything, and leave no group behind."""
        self.running.end()
        for root in self.roots:
            top = root / self._parts("")[0]
            for group in reversed(self.groups.tree.below(top)):
                files.remove_group(group)
            assert not top.exists()

    def _parts(self, qos: str) -> tuple[str, ...]:
        if self.systemd:
            return expand_slice("-".join(filter(None, (self.name, "kubepods", qos))) + ".slice")
        return tuple(filter(None, (self.name, "kubepods", qos)))

    def _make(self, parts: tuple[str, ...]) -> Path:
        for root in self.roots:
            for depth in range(1, len(parts) + 1):
                group = root.joinpath(*parts[:depth])
                if self.unified:
                    files.write_once(group.parent / "cgroup.subtree_control", self.handed_down)
                if files.make_group(group) and not self.unified and root == self.groups.tree.root:
                    inherit(group)
        return self.groups.tree.root.joinpath(*parts)


def inherit(group: Path) -> None:
    """Copy what a group of v1 needs before it takes a process, as runc does."""
    for file in ("cpuset.mems", "cpuset.cpus"):
        files.write_cpus(group / file, files.read_cpus(group.parent / file))
