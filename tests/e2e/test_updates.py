"""Changes on a running node with a real containerd: resizes, quotas, late answers, and an update of pinfold."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from pinfold.errors import PinfoldError
from tests.e2e.containerd import Ask, Containerd, PodOnNode, allowed
from tests.e2e.daemon import ONLINE, RESERVED, SPARE, needs_two_cpus, wait_for
from tests.e2e.kubedaemon import KubeDaemon
from tests.needs import needs_lab

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, needs_lab, needs_two_cpus]

OWN = ONLINE - RESERVED
ALL = Ask(milli=SPARE * 1000)
SOME = Ask(milli=500)
GAP = 2.0
"""Seconds in which the next pinfold has taken over."""


@pytest.fixture(scope="module", params=["trixie", "sid"])
def containerd(request: pytest.FixtureRequest) -> Iterator[Containerd]:
    with Containerd(request.param) as found:
        yield found


@pytest.fixture
def node(containerd: Containerd) -> Iterator[KubeDaemon]:
    with KubeDaemon(containerd, "nri", "--cpu-manager-reconcile-period", "200ms") as daemon:
        daemon.start()
        try:
            yield daemon
        finally:
            containerd.remove_all()


def quota_of(containerd: Containerd, pod: PodOnNode, container: str = "") -> int:
    return int((containerd.group(pod, container, "cpu") / "cpu.cfs_quota_us").read_text())


# -- in-place resize, as a kubelet asks for it: shares, quota and period, no CPUs


def resize(containerd: Containerd, container: str, milli: int) -> None:
    """Resize a container."""
    amounts = {"cpu_shares": milli * 1024 // 1000, "cpu_quota": milli * 100, "cpu_period": 100_000}
    containerd.wait(containerd.update_async(container, **amounts))


@pytest.mark.parametrize("milli", [(SPARE + 1) * 1000, SPARE * 1000 + 500], ids=["more", "not whole"])
def test_a_resize_of_an_owner_that_cannot_be_met_is_refused_aloud_and_changes_nothing(
    containerd: Containerd, node: KubeDaemon, milli: int
) -> None:
    pod = containerd.run_pod("db", milli=SPARE * 1000)
    container, pid = containerd.run_container(pod, ALL)
    for _ in range(3):  # a kubelet asks every second
        with pytest.raises(PinfoldError, match="CPUs"):
            resize(containerd, container, milli)
    assert (allowed(pid), quota_of(containerd, pod, container)) == (OWN, -1)
    assert len(node.events("resize-refused")) == 1
    node.check()


def test_a_resize_of_a_sharing_container_is_done_and_it_stays_in_the_shared_pool(
    containerd: Containerd, node: KubeDaemon
) -> None:
    pod = containerd.run_pod("web", "burstable", milli=500)
    container, pid = containerd.run_container(pod, SOME)
    containerd.run_container(containerd.run_pod("db"), ALL)
    resize(containerd, container, 250)
    assert (allowed(pid), quota_of(containerd, pod, container)) == (RESERVED, 25_000)
    node.check()


def test_a_quota_that_a_kubelet_writes_past_nri_into_an_owners_pod_is_lifted(
    containerd: Containerd, node: KubeDaemon
) -> None:
    pod = containerd.run_pod("db", milli=SPARE * 1000)
    containerd.run_container(pod, ALL)
    other = containerd.run_pod("web", "burstable", milli=500)
    containerd.run_container(other, SOME)
    for written in (pod, other):
        (containerd.group(written, controller="cpu") / "cpu.cfs_quota_us").write_text("80000")
    wait_for(lambda: quota_of(containerd, pod) == -1, "the owner's pod is not limited")
    assert quota_of(containerd, other) == 80_000  # not pinfold's: the kubelet sets it
    assert [row["pod"] for row in node.events("drift")] == ["db"]


# -- answers that come later than the runtime waits: it drops the plugin, and creates the container without its CPUs


def test_containers_that_the_runtime_started_without_our_answer_are_corrected_soon_after(
    containerd: Containerd, node: KubeDaemon
) -> None:
    sharer = containerd.run_container(containerd.run_pod("web", "burstable"), SOME)[1]
    pod, links = containerd.run_pod("db"), node.links()
    os.kill(node.pid, signal.SIGSTOP)
    try:
        owner = containerd.run_container(pod, ALL)[1]
        assert allowed(owner) == ONLINE
    finally:
        os.kill(node.pid, signal.SIGCONT)
    back = time.monotonic()
    wait_for(lambda: (allowed(owner), allowed(sharer)) == (OWN, RESERVED), "both are on their CPUs")
    took = time.monotonic() - back
    node.linked(links)
    (told,) = wait_for(lambda: node.events("ran-unpinned"), "it is told")
    assert (told["pod"], told["seconds"] > 0) == ("db", True)
    node.settled()
    print(f"corrected {took:.2f} s after pinfold went on")  # noqa: T201 - a figure


# -- an update of pinfold: the old daemon ends, then the new one starts


def test_an_update_leaves_a_gap_under_two_seconds_in_which_nothing_is_lost(
    containerd: Containerd, node: KubeDaemon
) -> None:
    kept, leaving = containerd.run_pod("kept", "burstable"), containerd.run_pod("leaving")
    sharer, owner = containerd.run_container(kept, SOME)[1], containerd.run_container(leaving, ALL)[1]
    assert (allowed(sharer), allowed(owner)) == (RESERVED, OWN)
    gaps = []
    for turn in range(3):
        links = node.links()
        began = time.monotonic()
        node.kill(signal.SIGTERM)
        node.launch()
        containerd.remove_pod(leaving)  # in the gap a pod goes, another comes, and one that shares
        leaving = containerd.run_pod(f"next-{turn}")
        owner = containerd.run_container(leaving, ALL)[1]
        late = containerd.run_container(containerd.run_pod(f"late-{turn}", "besteffort"), Ask())[1]
        node.await_ready()
        node.linked(links)
        gaps.append(time.monotonic() - began)
        node.settled()
        assert (allowed(owner), allowed(sharer), allowed(late)) == (OWN, RESERVED, RESERVED)
    unpinned = [row["seconds"] for row in node.events("ran-unpinned")]
    print(  # noqa: T201 - a figure
        f"an update with containerd {containerd.suite}: a gap of {min(gaps):.2f} to {max(gaps):.2f} s, "
        f"containers that came in it ran unpinned for at most {max(unpinned, default=0):.2f} s"
    )
    assert min(gaps) < GAP
