"""A host of files: IRQs, workqueues, threads and groups, and a scheduler that keeps its answers in a table."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from pinfold.core.machine.cpuset import CPUSet
from pinfold.node.shield.host import Host
from pinfold.node.shield.shield import Shield

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

KERNEL, BOUND = 0x0020_0000, 0x0420_0000
ONLINE = CPUSet.parse("0-3")


class FakeScheduler:
    """The affinity of threads, in a table; `refuses` are threads with the errno that they get."""

    def __init__(self) -> None:
        self.cpus: dict[int, CPUSet] = {}
        self.refuses: dict[int, int] = {}

    def get(self, thread: int) -> CPUSet:
        if thread not in self.cpus:
            raise OSError(errno.ESRCH, os.strerror(errno.ESRCH))
        return self.cpus[thread]

    def set(self, thread: int, cpus: CPUSet) -> None:
        if thread in self.refuses:
            raise OSError(self.refuses[thread], os.strerror(self.refuses[thread]))
        self.cpus[thread] = cpus


class FakeHost:
    """A root directory with what the shield reads and writes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.scheduler = FakeScheduler()
        self.members: Collection[int] = ()
        self.joined: dict[int, CPUSet] = {}
        self.state_dir = root / "state"
        self.state_dir.mkdir()
        for number in (24, 25):
            self.write(f"proc/irq/{number}/smp_affinity_list", "0-3")
            (root / f"proc/irq/{number}/eth{number}").mkdir()
        self.write("proc/irq/default_smp_affinity", "f")
        self.write("sys/devices/virtual/workqueue/cpumask", "f")
        self.write("proc/uptime", "10.00 20.00")
        self.thread(1, "init", 0)
        self.thread(12, "kswapd0", KERNEL)
        self.thread(13, "migration/1", BOUND, "1")

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def read(self, path: str) -> str:
        return (self.root / path).read_text().strip()

    def thread(self, number: int, name: str, flags: int, cpus: str = "0-3", *, start: int = 5) -> None:
        fields = ["S", "1", "1", "1", "0", "-1", str(flags), *["0"] * 12, str(start), "0"]
        self.write(f"proc/{number}/task/{number}/stat", f"{number} ({name}) {' '.join(fields)}")
        self.scheduler.cpus[number] = CPUSet.parse(cpus)

    def v2(self, *groups: str, cpus: str = "") -> None:
        self.write("sys/fs/cgroup/cgroup.controllers", "cpuset cpu")
        self.write("sys/fs/cgroup/cgroup.procs", "1\n12\n13")
        for group in groups:
            self.write(f"sys/fs/cgroup/{group}/cpuset.cpus", cpus)

    def v1(self, *groups: str) -> None:
        self.write("sys/fs/cgroup/cpuset/cgroup.procs", "1\n12\n13")
        self.write("sys/fs/cgroup/cpuset/cpuset.cpus", "0-3")
        for group in groups:
            self.write(f"sys/fs/cgroup/cpuset/{group}/cpuset.cpus", "0-3")

    def host(self, systemctl: str = "systemctl") -> Host:
        return Host(
            self.root,
            members=lambda: self.members,
            joined=lambda: self.joined,
            scheduler=self.scheduler,
            systemctl=systemctl,
        )

    def shield(self, systemctl: str = "systemctl", boot: str = "now") -> Shield:
        return Shield(lambda: self.host(systemctl), self.state_dir, boot=boot)

    def where(self) -> dict[str, str]:
        """Return the CPUs of everything that the shield sees."""
        return {str(place): str(cpus) for place, cpus in self.host().read().items()}
