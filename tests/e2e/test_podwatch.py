"""What another program does to the groups of pods is heard of at once: the periodic check comes once an hour here.

The runtime is scripted, its containers are real processes in the kernel's cgroups.
"""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pinfold.node.cgroupfiles import CgroupError
from tests.e2e.daemon import ONLINE, needs_cgroups, needs_two_cpus, wait_for
from tests.e2e.kubedaemon import KubeDaemon, real
from tests.torture.scriptednode import ScriptedNode

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, needs_two_cpus, needs_cgroups]


@pytest.fixture
def node() -> Iterator[ScriptedNode]:
    with ScriptedNode() as node:
        assert node.wait(node.run_pod("early", 0))  # a kubelet makes its groups before pinfold starts
        yield node


@pytest.fixture
def daemon(node: ScriptedNode) -> Iterator[KubeDaemon]:
    with KubeDaemon(node, "nri") as daemon:
        daemon.start("--cpu-manager-reconcile-period", "1h")
        for name, cpus in (("owner", 1), ("shares", 0)):
            assert node.wait(node.run_pod(name, cpus))
        daemon.settled()
        yield daemon


def group_of(node: ScriptedNode, pod: str) -> Path:
    """Return the group of a pod's container."""
    group = node.groups.driver.hierarchy.group_of(node.containers()[pod].pid)
    assert group is not None
    return group


def test_cpus_that_another_program_gives_a_shared_container_are_taken_back(
    daemon: KubeDaemon, node: ScriptedNode
) -> None:
    pid = node.containers()["shares"].pid
    shared = real(pid)
    group = group_of(node, "shares")
    top = node.groups.root / node.root
    inside = [path for path in (*reversed(group.parents), group) if path.is_relative_to(top) and path != top]
    for path in inside:
        (path / "cpuset.cpus").write_text(str(ONLINE))
    wait_for(lambda: "event=drift" in daemon.said(), "the change is found")
    wait_for(lambda: real(pid) == shared, "it is undone")
    daemon.settled()


def test_cpus_of_an_owner_whose_groups_vanish_are_shared_again(daemon: KubeDaemon, node: ScriptedNode) -> None:
    group = group_of(node, "owner")
    own = real(node.containers()["owner"].pid)
    for path in (*node.groups.below(group.parent), group.parent):
        wait_for(lambda path=path: is_removed(node, path), "its groups are removed")  # type: ignore[misc]
    wait_for(lambda: "event=vanished" in daemon.said(), "its end is found")
    wait_for(lambda: not daemon.state().exclusive, "its CPUs are free")
    wait_for(lambda: all(cpus >= next(iter(own)) for cpus in real(node.containers()["shares"].pid)), "they are shared")


def test_pods_that_come_and_go_leave_no_watch_in_the_kernel(daemon: KubeDaemon, node: ScriptedNode) -> None:
    inodes = set[str]()
    for name in ("one", "two", "three"):
        assert node.wait(node.run_pod(name, 0))
        group = group_of(node, name)
        inodes.update(f"{path.stat().st_ino:x}" for path in (group, group.parent))
        wait_for(lambda: inodes & watched(daemon), "its groups are watched")
        node.wait(node.remove_pod(name))
    wait_for(lambda: not inodes & watched(daemon), "they are watched no more")


def watched(daemon: KubeDaemon) -> set[str]:
    """Return the inodes of the groups that the kernel watches for a daemon, as it writes them."""
    assert daemon.process is not None
    found = set[str]()
    for file in Path(f"/proc/{daemon.process.pid}/fdinfo").iterdir():
        with suppress(FileNotFoundError):  # it has just been closed
            found.update(re.findall(r"^inotify wd:\w+ ino:(\w+)", file.read_text(), re.MULTILINE))
    return found


def is_removed(node: ScriptedNode, group: Path) -> bool:
    """End the processes of a group and remove it, if they have ended by now."""
    for pid in node.groups.members(group) if group.exists() else ():
        os.kill(pid, signal.SIGKILL)
    try:
        node.groups.remove(group)
    except CgroupError:
        return False
    return True
