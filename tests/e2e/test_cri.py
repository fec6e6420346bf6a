"""The daemon beside a real containerd over CRI alone: no hook at creation, so it follows as fast as it can."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.e2e.containerd import Ask, Containerd, allowed
from tests.e2e.daemon import ONLINE, RESERVED, SPARE, needs_two_cpus, wait_for
from tests.e2e.kubedaemon import PATIENCE, KubeDaemon
from tests.needs import needs_lab

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pinfold.core.machine.cpuset import CPUSet

pytestmark = [pytest.mark.slow, needs_lab, needs_two_cpus]

OWN = ONLINE - RESERVED
ALL = Ask(milli=SPARE * 1000)
SOME = Ask(milli=500)
SOON = 3.0
"""Seconds within which a container must have been followed: much less than until everything is looked at again."""


@pytest.fixture(scope="module", params=["bookworm", "sid"])
def containerd(request: pytest.FixtureRequest) -> Iterator[Containerd]:
    """Containerd 1.6, which tells no events, so that it is asked again and again; and 2.1, which does."""
    with Containerd(request.param) as found:
        yield found


@pytest.fixture
def node(containerd: Containerd) -> Iterator[KubeDaemon]:
    with KubeDaemon(containerd, "cri") as daemon:
        daemon.start()
        try:
            yield daemon
        finally:
            containerd.remove_all()


def is_on(pid: int, cpus: CPUSet) -> None:
    """Wait until a process is on these CPUs."""
    wait_for(lambda: allowed(pid) == cpus, f"process {pid} is on CPUs {cpus}", PATIENCE)


def shared_pod(containerd: Containerd, name: str = "web", qos: str = "burstable") -> int:
    """Run a pod with one container that shares, and return its process."""
    return containerd.run_container(containerd.run_pod(name, qos), SOME)[1]


def test_an_owner_gets_its_cpus_and_all_others_leave_them(containerd: Containerd, node: KubeDaemon) -> None:
    others = [shared_pod(containerd, qos, qos) for qos in ("burstable", "besteffort", "guaranteed")]
    pod = containerd.run_pod("db", milli=SPARE * 1000)
    owner = containerd.run_container(pod, ALL)[1]
    is_on(owner, OWN)
    assert {*map(allowed, others)} == {RESERVED}
    node.settled()
    containerd.remove_pod(pod)
    for other in others:
        is_on(other, ONLINE)
    node.settled()


def test_containers_of_a_runtime_that_was_moved_to_some_cpus_use_all_of_theirs(
    containerd: Containerd, node: KubeDaemon
) -> None:
    """A shield moves a runtime off exclusive CPUs; what it starts then inherits its affinity."""
    with containerd.moved_to(RESERVED):
        sharer = shared_pod(containerd)
        is_on(sharer, ONLINE)
        owner = containerd.run_pod("db")
        is_on(containerd.run_container(owner, ALL)[1], OWN)
        is_on(sharer, RESERVED)
        containerd.remove_pod(owner)
        is_on(sharer, ONLINE)
        node.settled()


def test_the_window_in_which_an_owner_ran_unpinned_is_told(containerd: Containerd, node: KubeDaemon) -> None:
    os.kill(node.pid, signal.SIGSTOP)
    try:
        owner = containerd.run_container(containerd.run_pod("db"), ALL)[1]
    finally:
        os.kill(node.pid, signal.SIGCONT)
    is_on(owner, OWN)
    told = wait_for(lambda: node.events("ran-unpinned"), "the window is told")
    assert [(row["pod"], row["container"]) for row in told] == [("db", "app")]
    assert 0 <= told[0]["seconds"] < PATIENCE


def test_a_container_seen_before_it_starts_has_no_window(containerd: Containerd, node: KubeDaemon) -> None:
    container = containerd.create(containerd.run_pod("db"), ALL)
    wait_for(lambda: node.cpus("db") == OWN, "it has been seen", PATIENCE)
    is_on(containerd.start_container(container), OWN)
    node.settled()


def test_only_the_whole_cpu_container_of_a_mixed_pod_is_pinned(containerd: Containerd, node: KubeDaemon) -> None:
    pod = containerd.run_pod("mixed")
    sharer = containerd.run_container(pod, SOME._replace(name="sharer"))[1]
    owner = containerd.run_container(pod, ALL._replace(name="owner"))[1]
    later = containerd.run_container(pod, SOME._replace(name="later"))[1]
    is_on(owner, OWN)
    is_on(sharer, RESERVED)
    is_on(later, RESERVED)
    node.settled()


def test_an_owner_is_not_throttled(containerd: Containerd, node: KubeDaemon) -> None:
    pod = containerd.run_pod("db", milli=SPARE * 1000)
    container, pid = containerd.run_container(pod, ALL)
    is_on(pid, OWN)
    files = [containerd.group(pod, name, "cpu") / "cpu.cfs_quota_us" for name in ("", container)]
    wait_for(lambda: [file.read_text().strip() for file in files] == ["-1", "-1"], "no quota", PATIENCE)
    node.settled()


def test_an_owner_is_pinned_and_unlimited_soon_after_its_start(containerd: Containerd, node: KubeDaemon) -> None:
    """An update that meets a start reaches the runtime's record alone; a daemon that does not look again misses it."""
    for number in range(30):  # it goes wrong once in six times
        pod = containerd.run_pod(f"db-{number}", milli=SPARE * 1000)
        container, pid = containerd.run_container(pod, ALL)
        quota = containerd.group(pod, container, "cpu") / "cpu.cfs_quota_us"
        wait_for(lambda: (allowed(pid), int(quota.read_text())) == (OWN, -1), "pinned and unlimited", SOON)  # noqa: B023
        containerd.remove_pod(pod)
        node.settled()


def test_the_runtime_itself_knows_the_cpus_so_that_its_own_updates_keep_them(
    containerd: Containerd, node: KubeDaemon
) -> None:
    container, pid = containerd.run_container(containerd.run_pod("db"), ALL)
    is_on(pid, OWN)
    node.settled()
    for shares in (512, 1024):
        containerd.wait(containerd.update_async(container, cpu_shares=shares))
        is_on(pid, OWN)


def test_who_does_not_fit_runs_shared_and_is_told_of(containerd: Containerd, node: KubeDaemon) -> None:
    owner = containerd.run_container(containerd.run_pod("db"), ALL)[1]
    is_on(owner, OWN)
    second = containerd.run_container(containerd.run_pod("late"), ALL)[1]
    is_on(second, RESERVED)
    assert wait_for(lambda: node.events("runs-unpinned"), "it is told")
    node.settled()


def test_a_container_that_is_restarted_keeps_its_cpus(containerd: Containerd, node: KubeDaemon) -> None:
    pod = containerd.run_pod("db")
    first = containerd.run_container(pod, ALL)[1]
    is_on(first, OWN)
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: not containerd.running(), "containerd has seen it")
    again = containerd.run_container(pod, ALL._replace(attempt=1))[1]
    is_on(again, OWN)
    node.settled()
    assert node.state().exclusive == OWN


def test_a_daemon_that_is_killed_and_comes_back_changes_nothing(containerd: Containerd, node: KubeDaemon) -> None:
    other = shared_pod(containerd)
    owner = containerd.run_container(containerd.run_pod("db"), ALL)[1]
    is_on(owner, OWN)
    node.settled()
    node.restart()
    node.settled()
    assert (allowed(owner), allowed(other)) == (OWN, RESERVED)
    assert node.events("assigned", "released", "ran-unpinned") == []


def test_a_container_created_without_a_daemon_is_pinned(containerd: Containerd, node: KubeDaemon) -> None:
    node.kill()
    stray = containerd.run_container(containerd.run_pod("stray"), ALL)[1]
    node.start()
    is_on(stray, OWN)
    assert [row["pod"] for row in node.events("ran-unpinned")] == ["stray"]
    node.settled()


def test_a_pod_that_vanished_without_a_daemon_gives_its_cpus_back(containerd: Containerd, node: KubeDaemon) -> None:
    other = shared_pod(containerd)
    pod = containerd.run_pod("db")
    is_on(containerd.run_container(pod, ALL)[1], OWN)
    node.kill()
    containerd.remove_pod(pod)
    node.start()
    is_on(other, ONLINE)
    node.settled()


def test_containerd_can_restart(containerd: Containerd, node: KubeDaemon) -> None:
    pod = containerd.run_pod("db")
    owner = containerd.run_container(pod, ALL)[1]
    is_on(owner, OWN)
    containerd.restart()  # without a stream of events pinfold may not see it: between two polls
    node.settled()
    assert allowed(owner) == OWN
    node.settled()
    containerd.remove_pod(pod)
    is_on(containerd.run_container(containerd.run_pod("next"), ALL)[1], OWN)
    node.settled()


def test_it_waits_for_a_socket_that_is_not_there_yet(containerd: Containerd) -> None:
    moved = containerd.cri_socket.with_suffix(".moved")
    containerd.cri_socket.rename(moved)
    with KubeDaemon(containerd, "cri") as node:
        try:
            node.launch()
            wait_for(lambda: "link=closed" in node.said(), "it has tried")
        finally:
            moved.rename(containerd.cri_socket)
        node.await_ready()


def test_a_runtime_that_stands_still_does_not_stop_the_daemon(containerd: Containerd, node: KubeDaemon) -> None:
    other = shared_pod(containerd)
    pod = containerd.run_pod("db")
    container = containerd.create(pod, ALL)
    with containerd.standing_still():
        end = time.monotonic() + 8  # longer than one call may take
        while time.monotonic() < end:
            began = time.monotonic()
            node.client.get("/v1/containers")
            assert time.monotonic() - began < 2
            time.sleep(0.2)
    is_on(containerd.start_container(container), OWN)
    is_on(other, RESERVED)
    node.settled()


def test_many_pods_at_once_are_all_followed(containerd: Containerd, node: KubeDaemon) -> None:
    pod = containerd.run_pod("web", "burstable")
    pids = [containerd.run_container(pod, Ask(f"c{number}", 100))[1] for number in range(15)]
    db = containerd.run_pod("db")
    is_on(containerd.run_container(db, ALL)[1], OWN)
    assert {*map(allowed, pids)} == {RESERVED}
    node.settled()
