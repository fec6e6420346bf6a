"""Pods of a real containerd on a host that systemd manages: slices and scopes, and systemd that knows their CPUs.

    python -m tests.e2e.guest.systemd

Shows that systemd takes back what was written into the files of its units, and that pinfold avoids that.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pinfold.core.machine.cpuset import CPUSet
from tests.e2e.containerd import CGROUPS, Ask, allowed
from tests.e2e.daemon import ONLINE, wait_for
from tests.e2e.guest.machine import prepare
from tests.e2e.guest.slices import BESTEFFORT, BURSTABLE, KUBEPODS, SliceContainerd, systemctl
from tests.e2e.kubedaemon import PATIENCE, KubeDaemon, Sampler

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.containerd import PodOnNode

SUITE: Final = "sid"
OWNERS: Final = ("db-0", "db-1")
SHARERS: Final = {"web": "burstable", "batch": "besteffort", "fraction": "guaranteed"}


def main() -> int:
    """Return 0 if everything was as it must be."""
    prepare()
    assert Path("/proc/1/comm").read_text() == "systemd\n"
    said(systemctl("--version").splitlines()[0])
    with SliceContainerd(SUITE) as containerd:
        systemd_takes_back_what_is_written_behind_its_back(containerd)
        with KubeDaemon(containerd, "nri", "--policy-options", "full-pcpus-only=true") as node:
            node.start()
            try:
                Scenario(containerd, node).run()
            except BaseException:
                said(f"the daemon's log:\n{node.said()}")
                raise
    return 0


def said(what: str) -> None:
    """Print how far it is."""
    print(f"{time.monotonic():7.1f} s  {what}", flush=True)  # noqa: T201 - progress


def cpus_of(*units: str) -> list[CPUSet]:
    """Return the CPUs that systemd has for units."""
    shown = systemctl("show", "--property=AllowedCPUs", "--", *units)
    values = (line.partition("=")[2] for line in shown.splitlines() if line)
    return [CPUSet.parse(",".join(value.split())) for value in values]


def group_of(unit: str) -> Path:
    """Return the group of a slice below kubepods."""
    return CGROUPS / KUBEPODS / unit


def systemd_takes_back_what_is_written_behind_its_back(containerd: SliceContainerd) -> None:
    """Show the trap: a value that systemd has for a slice comes back over one that was written into its file."""
    web = containerd.run_pod("trap", "burstable")
    known, pid = containerd.run_container(web, Ask(milli=100))
    systemctl("--runtime", "set-property", BURSTABLE, "AllowedCPUs=0-7")

    def another_pod() -> None:
        containerd.run_container(containerd.run_pod("other", "burstable", milli=200), Ask(milli=100))

    causes: dict[str, Callable[[], object]] = {
        "daemon-reload": lambda: systemctl("daemon-reload"),
        "another pod": another_pod,
        "CRI update": lambda: containerd.wait(containerd.update_async(known, cpu_shares=200)),
        "weight": lambda: systemctl("--runtime", "set-property", BURSTABLE, "CPUWeight=50"),
        "memory nodes": lambda: systemctl("--runtime", "set-property", BURSTABLE, "AllowedMemoryNodes=0-3"),
    }
    undone = {}
    for cause, happen in causes.items():
        (group_of(BURSTABLE) / "cpuset.cpus").write_text("0-3")
        happen()
        undone[cause] = str(allowed(pid))
    said(f"written 0-3 where systemd has 0-7, after: {undone}")
    assert {"daemon-reload", "weight", "memory nodes"} <= {cause for cause, cpus in undone.items() if cpus == "0-7"}
    systemctl("--runtime", "set-property", BURSTABLE, f"AllowedCPUs={ONLINE}", "AllowedMemoryNodes=")
    containerd.remove_all()


class Scenario:
    """Pods that share and pods with CPUs of their own, while systemd reloads and applies what it knows."""

    def __init__(self, containerd: SliceContainerd, node: KubeDaemon) -> None:
        self.containerd = containerd
        self.node = node
        self.pods: dict[str, PodOnNode] = {}
        self.pids: dict[str, int] = {}

    def run(self) -> None:
        """Go through all steps."""
        for name, qos in SHARERS.items():
            self.start(name, qos, 0 if qos == "besteffort" else 500)
        for name in OWNERS:
            self.own(name)
        self.systemd_knows()
        self.reload()
        self.killed()
        self.leave()

    def start(self, name: str, qos: str, milli: int) -> int:
        """Run a pod with one container."""
        pod = self.pods[name] = self.containerd.run_pod(name, qos, milli=milli)
        self.pids[name] = self.containerd.run_container(pod, Ask(milli=milli))[1]
        self.node.settled()
        return self.pids[name]

    def own(self, name: str) -> None:
        """Run a pod with two CPUs of its own; no other container is seen on them."""
        with Sampler([self.pids[name] for name in SHARERS]) as sampler:
            pid = self.start(name, "guaranteed", 2000)
        cpus = allowed(pid)
        assert len(cpus) == 2
        assert sampler.overlaps(pid, cpus) == []
        said(f"{name} has {cpus} for itself, {sampler.looks_after(pid)} looks and no overlap")

    def systemd_knows(self) -> None:
        """Wait until systemd has the pool and the owners' CPUs as the kernel has them."""
        state = self.node.state()
        pools = [BURSTABLE, BESTEFFORT, self.pods["fraction"].parent]
        owners = {
            f"cri-containerd-{one.id}.scope": allowed(one.pid) for one in self.containerd.running() if one.pod in OWNERS
        }
        assert len(owners) == len(OWNERS)
        right = [state.shared] * len(pools) + [*owners.values()]
        wait_for(lambda: cpus_of(*pools, *owners) == right, "systemd knows the CPUs of all units", PATIENCE)
        said(f"systemd knows the pool {state.shared} and both owners")

    def places(self) -> dict[str, CPUSet]:
        """Return the CPUs that the kernel allows each container."""
        return {name: allowed(pid) for name, pid in self.pids.items()}

    def reload(self) -> None:
        """Reload systemd, set properties, start another pod: no container moves, and no repair is needed."""
        before = self.places()
        own = before["db-0"] | before["db-1"]
        with Sampler([self.pids[name] for name in SHARERS]) as sampler:
            systemctl("daemon-reload")
            systemctl("--runtime", "set-property", BURSTABLE, "CPUWeight=50", "AllowedMemoryNodes=0-3")
            self.start("late", "burstable", 200)
            systemctl("daemon-reload")
        astray = [cpus for _, _, cpus in sampler.samples if cpus & own]
        assert astray == [], (own, astray[:5])
        assert self.places() == before | {"late": self.node.state().shared}
        said(f"systemd has reloaded and applied its properties: {len(sampler.samples)} looks, none on {own}")

    def killed(self) -> None:
        """Kill pinfold: what systemd knows holds without it."""
        before = self.places()
        self.node.kill()
        systemctl("daemon-reload")
        systemctl("--runtime", "set-property", BURSTABLE, "CPUWeight=60", "AllowedMemoryNodes=")
        pod = self.containerd.run_pod("away", "burstable", milli=200)
        away = self.containerd.run_container(pod, Ask(milli=200))[1]
        assert self.places() == before
        assert allowed(away) == before["web"]
        self.pids["away"] = away
        self.node.start()
        self.node.settled()
        said("pinfold was away, systemd reloaded and started a pod: nothing moved")

    def leave(self) -> None:
        """Leave: every group is wide again, and stays so when systemd applies what it knows."""
        done = self.node.verb("leave", "--socket", str(self.node.socket), "--state-dir", str(self.node.state_dir))
        assert done.returncode == 0, done.stderr
        said(done.stdout.strip())
        wait_for(lambda: not self.node.is_alive, "it ends", PATIENCE)
        self.node.kill()
        for _ in range(2):
            assert set(self.places().values()) == {ONLINE}, self.places()
            known = cpus_of(BURSTABLE, BESTEFFORT, *(pod.parent for pod in self.pods.values()))
            assert set(known) <= {ONLINE, CPUSet()}, known
            systemctl("daemon-reload")
            systemctl("--runtime", "set-property", BURSTABLE, "CPUWeight=70", "AllowedMemoryNodes=0-3")
        late = self.containerd.run_container(self.containerd.run_pod("after", "besteffort"), Ask())[1]
        assert allowed(late) == ONLINE
        said("every group has all CPUs again, and keeps them after a daemon-reload")


if __name__ == "__main__":
    raise SystemExit(main())
