"""Policy dynamic with a real containerd over NRI, on cgroup v2 with an L3 for each of four NUMA nodes.

    python -m tests.e2e.guest.dynamic

A container finds its files in /run/pinfold, moves into one L3 with notice, and grows and shrinks as a kubelet asks for.
Its program is examples/repin.c, which follows by inotify.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from pinfold.core.machine.cpuset import CPUSet
from pinfold.errors import PinfoldError
from tests.e2e.containerd import Ask, Containerd, allowed
from tests.e2e.daemon import wait_for
from tests.e2e.guest.machine import prepare
from tests.e2e.guest.pods import NODES, SUITE, said
from tests.e2e.kubedaemon import PATIENCE, KubeDaemon

if TYPE_CHECKING:
    from tests.e2e.containerd import PodOnNode

ROOT: Final = Path(__file__).parents[3]
OPTIONS: Final = ("--policy", "dynamic", "--repack-dwell", "0s", "--notice-grace", "60s")
FOLLOW: Final = "until [ -x /repin ]; do sleep 0.1; done; exec /repin > /said"
GRACE: Final = 60
PERIOD: Final = 100_000


def main() -> int:
    """Return 0 if everything was as it must be."""
    prepare()
    with Containerd(SUITE) as containerd, KubeDaemon(containerd, "nri", *OPTIONS) as node:
        node.policy = "dynamic"
        node.start()
        try:
            Scenario(containerd, node).run()
        except AssertionError:
            said(f"the daemon's log:\n{node.said()}")
            raise
    return 0


class Scenario:
    """A container that moves, grows and shrinks beside one that shares."""

    def __init__(self, containerd: Containerd, node: KubeDaemon) -> None:
        self.containerd = containerd
        self.node = node
        self.container = ""
        self.pid = 0
        self.sharer = 0

    def run(self) -> None:
        """Go through all steps."""
        self.sharer = self.containerd.run_container(
            self.containerd.run_pod("web", "burstable", milli=500), Ask(milli=500)
        )[1]
        other = self.fragment()
        self.see_the_files()
        self.move(other)
        self.resize()
        self.refuse()
        self.containerd.remove_all()

    def fragment(self) -> PodOnNode:
        """Let a container be in two L3: of the first, a CPU is reserved, and another container has all but one."""
        most = len(NODES[0]) - 2
        other = self.containerd.run_pod("other", milli=most * 1000)
        self.containerd.run_container(other, Ask(milli=most * 1000))
        wide = self.containerd.run_pod("wide", milli=3000)
        self.container, self.pid = self.containerd.run_container(wide, Ask(milli=3000, command=FOLLOW))
        self.node.check()
        before = self.node.cpus("wide")
        assert caches(before) == 2, before
        said(f"wide has CPUs {before}, of two L3")
        return other

    def see_the_files(self) -> None:
        """Check what the container sees in /run/pinfold, and that it can write one file of it only."""
        inside = Path(f"/proc/{self.pid}/root")
        assert b"PINFOLD_STATE_DIR=/run/pinfold" in Path(f"/proc/{self.pid}/environ").read_bytes().split(b"\0")
        shown = inside / "run/pinfold"
        assert CPUSet.parse((shown / "cpus").read_text()) == self.node.cpus("wide")
        mounts = Path(f"/proc/{self.pid}/mounts").read_text().splitlines()
        rights = {row.split()[1]: row.split()[3].split(",")[0] for row in mounts if "/run/pinfold" in row}
        assert rights == {"/run/pinfold": "ro", "/run/pinfold/ack": "rw"}, rights
        with tempfile.TemporaryDirectory() as directory:
            program = Path(directory) / "repin"
            subprocess.run(["cc", "-static", "-O1", "-o", program, ROOT / "examples/repin.c"], check=True)
            shutil.copy(program, inside / "new")
            (inside / "new").rename(inside / "repin")
        self.follows(self.node.cpus("wide"))
        said("the program in the container knows its CPUs")

    def follows(self, cpus: CPUSet) -> None:
        """Wait until the program has found and pinned itself to its CPUs."""
        last = f"on CPUs {cpus}"

        def has_followed() -> bool:
            path = Path(f"/proc/{self.pid}/root/said")
            lines = path.read_text().splitlines() if path.exists() else []
            return lines[-1:] == [last] and allowed(self.pid) == cpus

        wait_for(has_followed, f"the program says: {last}", PATIENCE)

    def move(self, other: PodOnNode) -> None:
        """Remove the container in the way: the other moves into one L3, with notice, as soon as it is ready."""
        before = self.node.cpus("wide")
        self.containerd.remove_pod(other)
        wait_for(lambda: self.node.events("moved"), "the container has moved", PATIENCE)
        now = self.node.cpus("wide")
        assert (len(now), caches(now)) == (3, 1), now
        (announced,), (moved,) = self.node.events("announced"), self.node.events("moved")
        assert moved["time"] - announced["time"] < GRACE, "the program was ready before the grace period was over"
        self.follows(now)
        self.node.check()
        said(f"wide moved from {before} to {now} in {moved['time'] - announced['time']:.1f} s: {moved['lowered']}")

    def ask(self, count: int) -> None:
        """Ask for another number of CPUs as a kubelet does in an in-place resize: new shares and quota, no CPUs."""
        amounts = {"cpu_shares": count * 1024, "cpu_quota": count * PERIOD, "cpu_period": PERIOD}
        self.containerd.wait(self.containerd.update_async(self.container, **amounts))

    def resize(self) -> None:
        """Grow and shrink; the program follows, and the container that shares makes room."""
        first = self.node.cpus("wide")
        for count in (5, 3, 1, 2):
            self.ask(count)
            now = self.node.cpus("wide")
            assert len(now) == count, now
            assert count < 3 or first <= now
            assert not now & allowed(self.sharer)
            self.node.check()
            self.follows(now)
            said(f"wide has {count} CPUs: {now}")

    def refuse(self) -> None:
        """Ask for more than the machine has: nothing changes, and the kubelet is told the nearest size."""
        before = self.node.cpus("wide")
        with pytest.raises(PinfoldError, match="the nearest size that it can have is"):
            self.ask(1000)
        assert self.node.cpus("wide") == before
        self.node.check()
        said("1000 CPUs are refused")


def caches(cpus: CPUSet) -> int:
    """Return how many NUMA nodes have these CPUs; each has one L3."""
    return sum(bool(node & cpus) for node in NODES)


if __name__ == "__main__":
    raise SystemExit(main())
