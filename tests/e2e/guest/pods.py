"""Ten pods of a real containerd on cgroup v2, with SMT, four NUMA nodes and an L3 for each.

    python -m tests.e2e.guest.pods [--figures]

Everything that must hold is checked after every step. With --figures, `benchmarks nri` follows.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from benchmarks import nri
from pinfold.core.machine.cpuset import CPUSet
from pinfold.errors import PinfoldError
from tests.e2e.containerd import Ask, Containerd, allowed, nodes_of
from tests.e2e.daemon import ONLINE, RESERVED, wait_for
from tests.e2e.guest.machine import CGROUPS, prepare
from tests.e2e.kubedaemon import PATIENCE, KubeDaemon, Sampler

if TYPE_CHECKING:
    from tests.e2e.containerd import PodOnNode

SUITE: Final = "trixie"
"""The Debian suite of containerd; test_guest.py has unpacked its packages."""
NODES: Final = [CPUSet.parse(path.read_text()) for path in Path("/sys/devices/system/node").glob("node[0-9]*/cpulist")]
OPTIONS: Final = ("--policy-options", "full-pcpus-only=true", "--topology-manager-policy", "single-numa-node")
SHARERS: Final = {"web-0": "burstable", "web-1": "burstable", "batch": "besteffort", "fraction": "guaranteed"}


def main(arguments: list[str]) -> int:
    """Return 0 if everything was as it must be."""
    prepare()
    a_child_that_is_disjoint_from_its_parent_runs_on_all_of_its_cpus()
    with Containerd(SUITE) as containerd, KubeDaemon(containerd, "nri", *OPTIONS) as node:
        node.start()
        try:
            Scenario(containerd, node).run()
        except AssertionError:
            said(f"the daemon's log:\n{node.said()}")
            raise
    if "--figures" in arguments:
        nri.main(["--creates", "0", "--rounds", "10"])  # of an emulated machine, so they are only shown
    return 0


def said(what: str) -> None:
    """Print how far it is."""
    print(f"{time.monotonic():7.1f} s  {what}", flush=True)  # noqa: T201 - progress


def a_child_that_is_disjoint_from_its_parent_runs_on_all_of_its_cpus() -> None:
    """Show that the kernel ignores a cpuset with no CPU of the group above: what a file says may not be what is so."""
    parent = CGROUPS / "trap"
    child = parent / "child"
    child.mkdir(parents=True)
    (CGROUPS / "cgroup.subtree_control").write_text("+cpuset")
    (parent / "cgroup.subtree_control").write_text("+cpuset")
    (parent / "cpuset.cpus").write_text("0-7")
    (child / "cpuset.cpus").write_text("0-1")
    assert (child / "cpuset.cpus.effective").read_text().strip() == "0-1"
    (parent / "cpuset.cpus").write_text("4-7")
    assert (child / "cpuset.cpus").read_text().strip() == "0-1"
    assert (child / "cpuset.cpus.effective").read_text().strip() == "4-7"
    child.rmdir()
    parent.rmdir()
    said("a disjoint child runs on all of its parent's CPUs: seen")


class Scenario:
    """Ten pods come, stay and go."""

    def __init__(self, containerd: Containerd, node: KubeDaemon) -> None:
        self.containerd = containerd
        self.node = node
        self.pods: dict[str, PodOnNode] = {}
        self.owners: dict[str, int] = {}
        self.sharers: dict[str, int] = {}

    def run(self) -> None:
        """Go through all steps."""
        self.share()
        for name, cpus in {"db-0": 2, "db-1": 2, "db-2": 4, "db-3": 2}.items():
            self.own(name, cpus)
        self.mix()
        self.refuse()
        assert len(self.pods) == 10
        self.see_the_pool_on_the_parents()
        self.survive()
        self.shrink()

    def share(self) -> None:
        """Run the pods that share."""
        for name, qos in SHARERS.items():
            pod = self.pods[name] = self.containerd.run_pod(name, qos, milli=500 if qos != "besteffort" else 0)
            self.sharers[name] = self.containerd.run_container(pod, Ask(milli=0 if qos == "besteffort" else 500))[1]
            self.node.check()
        assert {*map(allowed, self.sharers.values())} == {ONLINE}
        said(f"{len(self.sharers)} pods share {ONLINE}")

    def own(self, name: str, cpus: int) -> None:
        """Run a pod with CPUs of its own, and check that no other container is on them."""
        local = {"pinfold.dev/local-memory": "true"} if name == "db-2" else {}
        pod = self.pods[name] = self.containerd.run_pod(name, milli=cpus * 1000, annotations=local)
        with Sampler(list(self.sharers.values())) as sampler:
            container, pid = self.containerd.run_container(pod, Ask(milli=cpus * 1000))
        self.node.check()
        own = allowed(pid)
        assert len(own) == cpus
        assert sum(bool(own & numa) for numa in NODES) == 1, f"{name} is on several NUMA nodes: {own}"
        assert (allowed(pid, "Mems") == nodes_of(own)) == (name == "db-2"), f"{name}: {allowed(pid, 'Mems')}"
        assert sampler.overlaps(pid, own) == []
        for group in (self.containerd.group(pod), self.containerd.group(pod, container)):
            assert (group / "cpu.max").read_text().split()[0] == "max"
        self.owners[name] = pid
        said(f"{name} has {own} for itself, {sampler.looks_after(pid)} looks and no overlap")

    def mix(self) -> None:
        """Run a pod whose first container shares and whose second has CPUs of its own."""
        pod = self.pods["mixed"] = self.containerd.run_pod("mixed", milli=2500)
        self.sharers["mixed"] = self.containerd.run_container(pod, Ask("sharer", 500))[1]
        self.node.check()
        self.owners["mixed"] = self.containerd.run_container(pod, Ask("owner", 2000))[1]
        self.node.check()
        assert len(allowed(self.owners["mixed"])) == 2
        assert allowed(self.sharers["mixed"]) == self.node.state().shared
        later = self.containerd.run_container(pod, Ask("later", 100))[1]
        self.node.check()
        assert allowed(later) == self.node.state().shared
        said(f"mixed has {allowed(self.owners['mixed'])} for one of three containers")

    def refuse(self) -> None:
        """Ask for more than any NUMA node has left."""
        pod = self.pods["greedy"] = self.containerd.run_pod("greedy")
        with pytest.raises(PinfoldError, match="TopologyAffinityError"):
            self.containerd.create(pod, Ask(milli=4000))
        self.node.check()
        said("greedy is refused")

    def see_the_pool_on_the_parents(self) -> None:
        """Check that the pool was written once to each parent, and to no container below."""
        shared = self.node.state().shared
        kubepods = self.containerd.group(self.pods["web-0"]).parent.parent
        for name in ("burstable", "besteffort"):
            assert CPUSet.parse((kubepods / name / "cpuset.cpus").read_text()) == shared
        assert CPUSet.parse((self.containerd.group(self.pods["fraction"]) / "cpuset.cpus").read_text()) == shared
        for name in SHARERS:
            below = self.containerd.group(self.pods[name]).glob("*/cpuset.cpus")
            assert {file.read_text().strip() for file in below} == {""}
        said(f"the pool {shared} is on the parents alone")

    def survive(self) -> None:
        """Kill the daemon, and start it again; restart containerd."""
        before = {name: allowed(pid) for name, pid in (self.owners | self.sharers).items()}
        self.node.restart()
        self.node.check()
        links = self.node.links()
        self.containerd.restart()
        self.node.linked(links)
        self.node.check()
        assert before == {name: allowed(pid) for name, pid in (self.owners | self.sharers).items()}
        said("all containers kept their CPUs while the daemon and containerd restarted")

    def shrink(self) -> None:
        """Remove the owners; the pool grows with each."""
        for name in self.owners:
            before = self.node.state().shared
            self.containerd.remove_pod(self.pods[name])
            self.grown(before)
            self.node.settled()
        left = [pid for name, pid in self.sharers.items() if name not in self.owners]
        assert {*map(allowed, left)} == {ONLINE}, (self.node.state(), list(map(allowed, left)))
        assert self.node.state().shared >= RESERVED
        self.containerd.remove_all()
        said("all CPUs are shared again")

    def grown(self, before: CPUSet) -> None:
        """Wait until the pool has grown: containerd tells nothing of the end of pods that are older than itself."""
        wait_for(lambda: before < self.node.state().shared, "CPUs were given back", PATIENCE)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
