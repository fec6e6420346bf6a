"""The daemon beside a real containerd over NRI: pods as a kubelet would make them, and what the kernel says of them."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.pods.pod import Container, Pod, PodUID
from pinfold.core.state import State
from pinfold.errors import PinfoldError
from pinfold.formats.kubelet.checkpoint import format_checkpoint
from tests.e2e.containerd import Ask, Containerd, allowed, nodes_of
from tests.e2e.daemon import ONLINE, RESERVED, SPARE, assert_no_traceback, needs_two_cpus, wait_for
from tests.e2e.kubedaemon import PATIENCE, KubeDaemon, Sampler, real
from tests.needs import needs_lab
from tests.property.strategies import guaranteed, pinned
from tests.support.podsapi import PodsAPI

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.containerd import PodOnNode

pytestmark = [pytest.mark.slow, needs_lab, needs_two_cpus]

OWN = ONLINE - RESERVED
"""The CPUs of a container that asks for all assignable ones."""
ALL = Ask(milli=SPARE * 1000)
SOME = Ask(milli=500)
SOON = PATIENCE / 20
"""Seconds; an idle machine needs less than one."""


@pytest.fixture(scope="module", params=["trixie", "sid"])
def containerd(request: pytest.FixtureRequest) -> Iterator[Containerd]:
    with Containerd(request.param) as found:
        yield found


@pytest.fixture
def node(containerd: Containerd) -> Iterator[KubeDaemon]:
    with KubeDaemon(containerd, "nri") as daemon:
        daemon.start()
        try:
            yield daemon
        finally:
            containerd.remove_all()


def shared_pod(containerd: Containerd, name: str = "web", qos: str = "burstable") -> int:
    """Run a pod with one container that shares, and return its process."""
    return containerd.run_container(containerd.run_pod(name, qos), SOME)[1]


# -- who runs where


def test_an_owner_has_its_cpus_and_all_others_are_off_them(containerd: Containerd, node: KubeDaemon) -> None:
    others = [shared_pod(containerd, qos, qos) for qos in ("burstable", "besteffort", "guaranteed")]
    node.check()
    assert {*map(allowed, others)} == {ONLINE}
    owner = containerd.run_container(containerd.run_pod("db"), ALL)[1]
    assert allowed(owner) == OWN == node.cpus("db")
    assert {*map(allowed, others)} == {RESERVED}
    node.check()


def test_those_that_come_later_start_inside_the_pool(containerd: Containerd, node: KubeDaemon) -> None:
    containerd.run_container(containerd.run_pod("db"), ALL)
    for qos in ("burstable", "besteffort", "guaranteed"):
        assert allowed(shared_pod(containerd, qos, qos)) == RESERVED
    node.check()


def test_containers_of_a_runtime_that_was_moved_to_some_cpus_use_all_of_theirs(
    containerd: Containerd, node: KubeDaemon
) -> None:
    """A shield moves a runtime off exclusive CPUs; what it starts then inherits its affinity."""
    with containerd.moved_to(RESERVED):
        sharer = shared_pod(containerd)
        assert allowed(sharer) == ONLINE
        owner = containerd.run_pod("db")
        assert allowed(containerd.run_container(owner, ALL)[1]) == OWN
        assert allowed(sharer) == RESERVED
        containerd.remove_pod(owner)
        wait_for(lambda: allowed(sharer) == ONLINE, "it has all CPUs again")
        node.check()


def test_only_the_whole_cpu_container_of_a_mixed_pod_is_pinned(containerd: Containerd, node: KubeDaemon) -> None:
    pod = containerd.run_pod("mixed", milli=SPARE * 1000 + 500)
    before = containerd.run_container(pod, SOME._replace(name="before"))[1]
    owner = containerd.run_container(pod, ALL._replace(name="owner"))[1]
    after = containerd.run_container(pod, SOME._replace(name="after"))[1]
    assert (allowed(before), allowed(owner), allowed(after)) == (RESERVED, OWN, RESERVED)
    node.check()
    for number in range(3):
        shared_pod(containerd, f"web-{number}", ("burstable", "besteffort", "guaranteed")[number])
    node.check()
    assert node.events("lost-update", "drift") == []


def test_a_pod_that_is_removed_gives_its_cpus_back(containerd: Containerd, node: KubeDaemon) -> None:
    other = shared_pod(containerd)
    pod = containerd.run_pod("db")
    containerd.run_container(pod, ALL)
    containerd.remove_pod(pod)
    node.settled()
    assert allowed(other) == ONLINE
    assert node.pools()["exclusive"] == CPUSet()


def test_cpus_come_back_also_when_the_container_was_removed_first(containerd: Containerd, node: KubeDaemon) -> None:
    other = shared_pod(containerd)
    pod = containerd.run_pod("db")
    container = containerd.run_container(pod, ALL)[0]
    containerd.wait(containerd.remove_container_async(container))
    assert node.state().exclusive == OWN  # its next start will want them
    containerd.remove_pod(pod)
    node.settled()
    assert allowed(other) == ONLINE


# -- refusals


def test_a_refusal_fails_the_creation_and_says_why(containerd: Containerd, node: KubeDaemon) -> None:
    containerd.run_container(containerd.run_pod("db"), ALL)
    greedy = containerd.run_pod("greedy")
    with pytest.raises(PinfoldError, match=r"UnexpectedAdmissionError: .*requested=1, available=0"):
        containerd.create(greedy, Ask(milli=1000))
    assert node.find("greedy") is None
    node.check()


def test_a_refused_pod_is_told_of_once_and_can_come_again_when_there_is_room(
    containerd: Containerd, node: KubeDaemon
) -> None:
    first = containerd.run_pod("db")
    containerd.run_container(first, ALL)
    second = containerd.run_pod("later")
    for _ in range(3):  # as a kubelet does every few seconds
        with pytest.raises(PinfoldError, match="UnexpectedAdmissionError"):
            containerd.create(second, ALL)
    assert [event["pod"] for event in node.events("refused")] == ["later"]
    containerd.remove_pod(first)
    assert allowed(containerd.run_container(second, ALL._replace(attempt=1))[1]) == OWN
    assert len(node.events("refused")) == 1
    node.check()


# -- restarts of containers


def test_a_container_that_is_restarted_keeps_its_cpus(containerd: Containerd, node: KubeDaemon) -> None:
    other = shared_pod(containerd)
    pod = containerd.run_pod("db")
    container = containerd.run_container(pod, ALL)[0]
    containerd.wait(containerd.stop_container_async(container))
    node.check()
    assert node.state().exclusive == OWN
    with pytest.raises(PinfoldError, match="UnexpectedAdmissionError"):
        containerd.create(containerd.run_pod("thief"), ALL)
    again = containerd.run_container(pod, ALL._replace(attempt=1))[1]
    containerd.wait(containerd.remove_container_async(container))
    assert (allowed(again), allowed(other)) == (OWN, RESERVED)
    node.check()


def test_a_container_that_crashes_keeps_its_cpus_for_its_next_start(containerd: Containerd, node: KubeDaemon) -> None:
    pod = containerd.run_pod("db")
    for attempt in range(3):
        pid = containerd.run_container(pod, ALL._replace(attempt=attempt))[1]
        assert allowed(pid) == OWN
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not containerd.running(), "containerd has seen it")
        node.check()
    assert node.state().exclusive == OWN


def test_a_container_that_ends_at_once_does_not_disturb(containerd: Containerd, node: KubeDaemon) -> None:
    other = shared_pod(containerd)
    pod = containerd.run_pod("job")
    for attempt in range(3):
        container = containerd.create(pod, ALL._replace(attempt=attempt, command="exit 3"))
        containerd.start_container(container)
        wait_for(lambda: len(containerd.running()) == 1, "it has ended")
        node.check()
    containerd.remove_pod(pod)
    node.settled()
    assert allowed(other) == ONLINE


# -- restarts of either side


def test_a_daemon_that_is_killed_and_comes_back_changes_nothing(containerd: Containerd, node: KubeDaemon) -> None:
    other = shared_pod(containerd)
    owner = containerd.run_container(containerd.run_pod("db"), ALL)[1]
    for number in (signal.SIGKILL, signal.SIGTERM):
        node.kill(number)
        assert (allowed(owner), allowed(other)) == (OWN, RESERVED)
        node.start()
        node.check()
        assert (allowed(owner), allowed(other)) == (OWN, RESERVED)
    assert node.events("assigned", "released", "ran-unpinned", "drift") == []


def test_a_container_created_without_a_daemon_is_pinned_and_reported(containerd: Containerd, node: KubeDaemon) -> None:
    other = shared_pod(containerd)
    node.kill()
    stray = containerd.run_container(containerd.run_pod("stray"), ALL)[1]
    assert allowed(stray) == ONLINE
    node.start()
    node.settled()
    assert (allowed(stray), allowed(other)) == (OWN, RESERVED)
    told = node.events("ran-unpinned")
    assert [(row["pod"], row["container"]) for row in told] == [("stray", "app")]
    assert 0 < told[0]["seconds"] < PATIENCE


def test_a_stray_that_cannot_be_pinned_is_told_of_and_shares(containerd: Containerd, node: KubeDaemon) -> None:
    owner = containerd.run_container(containerd.run_pod("db"), ALL)[1]
    node.kill()
    stray = containerd.run_container(containerd.run_pod("stray"), ALL)[1]
    node.start()
    node.settled()
    assert (allowed(owner), allowed(stray)) == (OWN, RESERVED)
    assert [row["pod"] for row in node.events("runs-unpinned")] == ["stray"]


def test_a_pod_that_vanished_without_a_daemon_gives_its_cpus_back(containerd: Containerd, node: KubeDaemon) -> None:
    other = shared_pod(containerd)
    pod = containerd.run_pod("db")
    containerd.run_container(pod, ALL)
    node.kill()
    containerd.remove_pod(pod)
    node.start()
    node.settled()
    assert allowed(other) == ONLINE


def test_a_daemon_killed_in_the_middle_of_creates_loses_nothing(containerd: Containerd, node: KubeDaemon) -> None:
    pod = containerd.run_pod("web", "burstable")
    over = threading.Event()
    failed: list[BaseException] = []

    def create() -> None:
        try:
            for number in range(1000):
                if over.is_set():
                    return
                db = containerd.run_pod(f"db-{number}")
                containerd.run_container(db, ALL)
                containerd.run_container(pod, SOME._replace(name=f"c{number}"))
                containerd.remove_pod(db)
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failed.append(error)

    creator = threading.Thread(target=create)
    creator.start()
    try:
        for _ in range(5):
            node.restart()
            node.client.get("/v1/containers")
    finally:
        over.set()
        creator.join()
    # Dropping the connection in the middle of a call fails that call or not, as the runtime likes; nothing else may.
    assert not [error for error in failed if "NRI" not in str(error) and "nri" not in str(error)], failed
    for left in [found for found in containerd.pods.values() if found.name != "web"]:
        containerd.remove_pod(left)
    node.settled()
    assert node.state().exclusive == CPUSet()


def test_containerd_can_restart(containerd: Containerd, node: KubeDaemon) -> None:
    other = shared_pod(containerd)
    pod = containerd.run_pod("db")
    owner = containerd.run_container(pod, ALL)[1]
    links = node.links()
    containerd.restart()
    node.linked(links)
    node.check()
    assert (allowed(owner), allowed(other)) == (OWN, RESERVED)
    containerd.remove_pod(pod)
    assert allowed(containerd.run_container(containerd.run_pod("next"), ALL)[1]) == OWN
    node.check()
    assert node.events("ran-unpinned", "drift") == []


@pytest.mark.parametrize("is_killed", [True, False], ids=["while pinfold was away too", "while containerd restarted"])
def test_cpus_of_a_pod_that_ended_unreported_return_when_containerd_is_back(
    containerd: Containerd, node: KubeDaemon, *, is_killed: bool
) -> None:
    other = shared_pod(containerd)
    pod = containerd.run_pod("db")
    containerd.run_container(pod, ALL)
    links = node.links()
    if is_killed:
        node.kill()
        containerd.stop_pod(pod)  # its sandbox stays in containerd's record
        containerd.restart()
        node.start()
    else:
        containerd.restart()
        containerd.stop_pod(pod)  # before or after pinfold has connected again
    back = time.monotonic()
    wait_for(lambda: node.links() > links and allowed(other) == ONLINE, "its CPUs are shared again")
    assert time.monotonic() - back < SOON
    assert {event["pod"] for event in node.events("released", "gone", "vanished")} == {"db"}  # never a UID
    assert allowed(containerd.run_container(containerd.run_pod("next"), ALL)[1]) == OWN
    node.check()


def test_without_a_capability_and_in_a_pid_namespace_of_its_own_it_pins_as_on_the_host(containerd: Containerd) -> None:
    with KubeDaemon(containerd, "nri") as node:
        as_in_a_pod = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        node.command = [*as_in_a_pod, "setpriv", "--bounding-set=-all", "--no-new-privs", *node.command]
        other = shared_pod(containerd)  # runs before: its PID is none of this PID namespace
        node.start()
        owner = containerd.run_container(containerd.run_pod("db"), ALL)[1]
        assert (allowed(owner), allowed(other)) == (OWN, RESERVED)
        node.check()
        node.restart()
        assert (allowed(owner), allowed(other)) == (OWN, RESERVED)
        assert node.client.get("/v1/config")["pid"] == 1
        node.check()
        assert node.events("drift", "ran-unpinned") == []
        containerd.remove_all()
        node.settled()


def test_it_waits_for_a_runtime_that_is_not_there_yet(containerd: Containerd) -> None:
    moved = containerd.nri_socket.with_suffix(".moved")
    containerd.nri_socket.rename(moved)
    with KubeDaemon(containerd, "nri") as node:
        try:
            node.launch()
            wait_for(lambda: "link=closed" in node.said(), "it has tried")
            wait_for(node.socket.exists, "it serves")
            assert not node.events("serving")  # it is not ready
        finally:
            moved.rename(containerd.nri_socket)
        node.await_ready()
        node.linked()


# -- no overlap


def test_no_other_process_is_on_the_owners_cpus_when_it_begins(containerd: Containerd, node: KubeDaemon) -> None:
    others = [
        shared_pod(containerd, f"web-{number}", qos) for number in range(2) for qos in ("burstable", "guaranteed")
    ]
    for round_ in range(5):
        pod = containerd.run_pod(f"db-{round_}")
        with Sampler(others) as sampler:
            owner = containerd.run_container(pod, ALL)[1]
            wait_for(lambda: sampler.looks_after(owner) > 10 * len(others), "all processes were looked at")  # noqa: B023
        assert sampler.overlaps(owner, OWN) == []
        node.check()
        containerd.remove_pod(pod)
        node.settled()
        assert {*map(allowed, others)} == {ONLINE}


def test_two_hundred_creates_with_churn_never_hang_and_never_overlap(containerd: Containerd, node: KubeDaemon) -> None:
    webs = [containerd.run_pod(f"web-{number}", qos) for number, qos in enumerate(["burstable", "besteffort"] * 2)]

    async def shared(pod: PodOnNode, number: int) -> None:
        container, _ = await containerd.run_container_async(pod, Ask(f"c{number}", 100))
        await containerd.update_async(container, cpu_quota=20_000)
        await containerd.remove_container_async(container)

    async def exclusive(number: int) -> None:
        pod = await containerd.run_pod_async(f"db-{number}")
        await containerd.run_container_async(pod, ALL)

    async def batch(first: int) -> None:
        creates = [shared(pod, first + offset) for offset in range(2) for pod in webs]
        await asyncio.gather(exclusive(first), *creates)

    creates = 0
    for first in range(0, 46, 2):
        kept = containerd.run_container(webs[0], Ask(f"kept{first}", 100))[1]
        containerd.wait(batch(first))
        creates += 10
        node.check()
        assert real(kept) == {RESERVED}
        for pod in [found for found in containerd.pods.values() if found.name.startswith("db")]:
            containerd.remove_pod(pod)
        node.settled()
    assert creates >= 200
    assert node.links() == 1


# -- limits of CPU time


def quota_of(containerd: Containerd, pod: PodOnNode, container: str = "") -> int:
    return int((containerd.group(pod, container, "cpu") / "cpu.cfs_quota_us").read_text())


def test_an_owner_is_not_throttled_and_others_are(containerd: Containerd, node: KubeDaemon) -> None:
    web = containerd.run_pod("web", "burstable", milli=500)
    shared = containerd.run_container(web, SOME)[0]
    db = containerd.run_pod("db", milli=SPARE * 1000)
    owner = containerd.run_container(db, ALL)[0]
    assert (quota_of(containerd, db), quota_of(containerd, db, owner)) == (-1, -1)
    assert (quota_of(containerd, web), quota_of(containerd, web, shared)) == (50_000, 50_000)
    mixed = containerd.run_pod("fraction", milli=1500)
    sharer = containerd.run_container(mixed, Ask(milli=1500))[0]
    assert (quota_of(containerd, mixed), quota_of(containerd, mixed, sharer)) == (150_000, 150_000)
    node.check()


def test_an_update_of_the_quota_does_not_limit_an_owner_again(containerd: Containerd, node: KubeDaemon) -> None:
    db = containerd.run_pod("db", milli=SPARE * 1000)
    owner, pid = containerd.run_container(db, ALL)
    containerd.wait(containerd.update_async(owner, cpu_quota=50_000, cpuset_cpus=str(RESERVED)))
    assert quota_of(containerd, db, owner) == -1
    assert allowed(pid) == OWN
    node.check()


def test_an_update_cannot_put_a_container_on_an_owners_cpus(containerd: Containerd, node: KubeDaemon) -> None:
    pod = containerd.run_pod("mixed")
    sharer, pid = containerd.run_container(pod, SOME._replace(name="sharer"))
    containerd.run_container(pod, ALL._replace(name="owner"))
    containerd.wait(containerd.update_async(sharer, cpuset_cpus=str(OWN)))
    assert allowed(pid) == RESERVED
    node.check()


def test_a_guaranteed_container_without_a_quota_is_known_by_its_shares(
    containerd: Containerd, node: KubeDaemon
) -> None:
    owner = containerd.run_container(containerd.run_pod("db"), ALL._replace(quota=False))[1]
    assert allowed(owner) == OWN
    node.check()


# -- what pods and people say


def test_an_annotation_can_have_a_container_share(containerd: Containerd, node: KubeDaemon) -> None:
    pod = containerd.run_pod("db", annotations={"pinfold.dev/cpus.app": "shared"})
    assert allowed(containerd.run_container(pod, ALL)[1]) == ONLINE
    node.check()
    assert node.pools()["exclusive"] == CPUSet()


def test_an_annotation_keeps_the_memory_of_an_owner_near_its_cpus(containerd: Containerd, node: KubeDaemon) -> None:
    local = containerd.run_pod("local", annotations={"pinfold.dev/local-memory": "true"})
    container, pid = containerd.run_container(local, ALL)
    assert allowed(pid, "Mems") == nodes_of(OWN)
    containerd.wait(containerd.update_async(container, cpu_shares=1024))
    assert (allowed(pid), allowed(pid, "Mems")) == (OWN, nodes_of(OWN))
    node.check()


def test_a_pod_that_is_excluded_is_left_alone(containerd: Containerd, node: KubeDaemon) -> None:
    pod = containerd.run_pod("own", annotations={"pinfold.dev/exclude": "true"})
    containerd.run_container(pod, ALL)
    assert node.find("own") is None
    assert node.pools()["exclusive"] == CPUSet()


@pytest.mark.parametrize(
    ("annotation", "value", "said"),
    [
        ("pinfold.dev/cpus.app", "many", "neither a whole number"),
        ("pinfold.dev/cpus.app", "4096", "requests"),
        ("pinfold.dev/colour", "red", "unknown"),
    ],
)
def test_a_bad_annotation_refuses_that_pod_alone(
    containerd: Containerd, node: KubeDaemon, annotation: str, value: str, said: str
) -> None:
    before = shared_pod(containerd)
    bad = containerd.run_pod("bad", annotations={annotation: value})
    with pytest.raises(PinfoldError, match=f"bad.*{annotation}.*{said}"):
        containerd.create(bad, ALL)
    owner = containerd.run_container(containerd.run_pod("db"), ALL)[1]
    assert (allowed(owner), allowed(before)) == (OWN, RESERVED)
    node.check()


@pytest.mark.parametrize(
    ("name", "container"),
    [
        ("../../etc", "app"),
        ("a\nb", "app"),
        ("\u202eevil", "app"),
        ("x" * 3000, "app"),
        ("good", "../../../x"),
        ("good", "A\tB"),
        ("good", "c" * 3000),
    ],
    ids=["path", "newline", "bidi", "long", "container-path", "container-tab", "container-long"],
)
def test_a_hostile_name_does_no_harm(containerd: Containerd, node: KubeDaemon, name: str, container: str) -> None:
    before = shared_pod(containerd)
    pod = containerd.run_pod(name)
    with pytest.raises(PinfoldError):
        containerd.create(pod, ALL._replace(name=container))
    owner = containerd.run_container(containerd.run_pod("db"), ALL)[1]
    assert (allowed(owner), allowed(before)) == (OWN, RESERVED)
    node.settled()


def test_an_init_container_lends_its_cpus_to_the_next_when_a_manifest_says_so(
    containerd: Containerd, node: KubeDaemon
) -> None:
    node.kill()
    manifests = node.place.directory / "manifests"
    manifests.mkdir()
    resources = {"limits": {"cpu": str(SPARE), "memory": "1Mi"}}
    spec = {
        "initContainers": [{"name": "init", "resources": resources}],
        "containers": [{"name": "app", "resources": resources}],
    }
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "db", "namespace": "default"}, "spec": spec}
    (manifests / "db.json").write_text(json.dumps(document))
    node.start("--pods-from", str(manifests))
    pod = containerd.run_pod("db")
    init = containerd.create(pod, ALL._replace(name="init", command="exit 0"))
    containerd.start_container(init)
    wait_for(lambda: not containerd.running(), "it has ended")
    assert allowed(containerd.run_container(pod, ALL)[1]) == OWN
    node.check()


def test_a_pod_that_the_kubelet_knows_is_decided_whole_without_any_setting(
    containerd: Containerd, node: KubeDaemon
) -> None:
    (node.kubelet_dir / "pods-api").mkdir()
    kubelet = PodsAPI()
    serving = kubelet.serving(node.kubelet_dir / "pods-api/pods-api.sock")
    containerd.wait(serving.__aenter__())
    try:
        pod, other = containerd.run_pod("db"), containerd.run_pod("level")
        whole = Pod(PodUID(pod.uid), "db", init=(pinned(SPARE, "init"),), containers=(pinned(SPARE, "app"),))
        kubelet.put(whole)
        kubelet.put(Pod(PodUID(other.uid), "level", containers=(Container("app"),), resources=guaranteed(SPARE * 1000)))
        shared = containerd.run_container(other, ALL)[1]
        init = containerd.create(pod, ALL._replace(name="init", command="exit 0"))
        containerd.start_container(init)
        wait_for(lambda: len(containerd.running()) == 1, "it has ended")
        assert allowed(containerd.run_container(pod, ALL)[1]) == OWN
        assert allowed(shared) == RESERVED
        assert node.events("pod-in-parts", "refused") == []
        node.check()
    finally:
        containerd.wait(serving.__aexit__(None, None, None))


# -- beside a kubelet, and configuration


def kubelet_state(node: KubeDaemon, uid: str = "", cpus: CPUSet = OWN) -> None:
    """Write what a kubelet with the static policy leaves."""
    assignments = {uid: {"app": cpus}} if uid else {}
    state = State(ONLINE - cpus if uid else ONLINE, assignments)  # type: ignore[arg-type]  # a UID is text
    (node.kubelet_dir / "cpu_manager_state").write_text(format_checkpoint("static", state))


def _is_shown(node: KubeDaemon, pod: str, own: CPUSet) -> bool:
    """Return whether a pod is shown with exclusive CPUs, and on these CPUs in its cgroup."""
    view = node.find(pod)
    return view is not None and (view["exclusive"], view["cpus"], view["allowed"]) == (True, str(own), str(own))


def test_it_only_watches_where_a_kubelet_manages_cpus(containerd: Containerd, node: KubeDaemon) -> None:
    node.kill()
    kubelet_state(node)
    node.start()
    owner = containerd.run_container(containerd.run_pod("db"), ALL)[1]
    other = shared_pod(containerd)
    assert (allowed(owner), allowed(other)) == (ONLINE, ONLINE)
    assert node.events("read-only")
    assert node.find("db") is not None
    before = (node.kubelet_dir / "cpu_manager_state").read_bytes()
    refused = node.verb("hand-back", "--kubelet-dir", str(node.kubelet_dir))
    assert "only watches" in refused.stderr
    assert (node.kubelet_dir / "cpu_manager_state").read_bytes() == before


def test_it_gives_way_to_a_kubelet_that_starts_to_manage_cpus(containerd: Containerd, node: KubeDaemon) -> None:
    node.restart("--cpu-manager-reconcile-period", "200ms")
    owner = containerd.run_container(containerd.run_pod("db"), ALL)[1]
    assert allowed(owner) == OWN
    kubelet_state(node)
    (told,) = wait_for(lambda: node.events("read-only"), "it has noticed the kubelet")
    assert "a kubelet with policy static has started beside pinfold" in told["why"]
    assert node.client.get("/v1/node")["read_only"] is True
    containerd.remove_all()
    assert allowed(containerd.run_container(containerd.run_pod("web"), ALL)[1]) == ONLINE
    assert node.events("drift", "assigned")[1:] == []


def test_taking_over_keeps_the_cpus_that_the_kubelet_has_given(containerd: Containerd, node: KubeDaemon) -> None:
    node.kill()
    pod = containerd.run_pod("db")
    container, pid = containerd.run_container(pod, ALL)
    containerd.wait(containerd.update_async(container, cpuset_cpus=str(OWN)))
    kubelet_state(node, pod.uid)
    own = node.state_dir / "cpu_manager_state"
    before = own.read_bytes()
    node.start()
    assert node.events("read-only")
    wait_for(lambda: _is_shown(node, "db", OWN), "the kubelet's assignment is shown")
    os.kill(node.pid, signal.SIGHUP)
    wait_for(lambda: node.events("reconfigured"), "it has read its configuration again")
    assert _is_shown(node, "db", OWN)
    assert own.read_bytes() == before
    node.kill()
    node.start("--take-over")
    other = shared_pod(containerd)
    assert (allowed(pid), allowed(other)) == (OWN, RESERVED)
    node.check()
    assert node.events("ran-unpinned", "assigned") == []


@pytest.mark.parametrize(
    ("verb", "kept"), [("leave", ONLINE), ("hand-back", OWN)], ids=["uninstalled", "handed back to a kubelet"]
)
def test_leaving_gives_every_group_its_cpus_back(
    containerd: Containerd, node: KubeDaemon, verb: str, kept: CPUSet
) -> None:
    other = shared_pod(containerd)
    owner = containerd.run_container(containerd.run_pod("db"), ALL)[1]
    assert (allowed(owner), allowed(other)) == (OWN, RESERVED)
    options = ["--kubelet-dir", str(node.kubelet_dir)] if verb == "hand-back" else []
    said = node.verb(verb, *options)
    assert said.returncode == 0, said.stderr
    wait_for(lambda: not node.is_alive, "it ends")
    node.kill()
    assert (allowed(owner), allowed(other)) == (kept, ONLINE)
    assert [allowed(shared_pod(containerd, qos, qos)) for qos in ("besteffort", "guaranteed")] == [ONLINE] * 2


def test_after_a_crash_leave_gives_every_group_its_cpus_back(containerd: Containerd, node: KubeDaemon) -> None:
    other = shared_pod(containerd)
    owner = containerd.run_container(containerd.run_pod("db"), ALL)[1]
    node.kill()
    assert (allowed(owner), allowed(other)) == (OWN, RESERVED)
    assert node.verb("leave", "--state-dir", str(node.state_dir)).returncode == 0
    assert (allowed(owner), allowed(other)) == (ONLINE, ONLINE)
    assert allowed(shared_pod(containerd, "new", "besteffort")) == ONLINE


def test_a_new_configuration_moves_the_containers_that_must_move(containerd: Containerd, node: KubeDaemon) -> None:
    node.kill()
    highest = CPUSet.of(max(ONLINE))
    config = node.place.directory / "config.yaml"
    text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncpuManagerPolicy: static\n"
    config.write_text(f"{text}reservedSystemCPUs: '{RESERVED}'\n")
    node.options = ["--config", str(config)]
    node.start()
    other = shared_pod(containerd)
    owner = containerd.run_container(containerd.run_pod("db"), ALL)[1]
    assert allowed(owner) == OWN
    config.write_text(f"{text}reservedSystemCPUs: '{highest}'\n")
    done = node.verb("reconfigure", "--allow-moves")
    assert done.returncode == 0, done.stderr
    node.settled()
    assert (allowed(owner), allowed(other)) == (ONLINE - highest, highest)


# -- started by the runtime


@pytest.fixture
def launched(containerd: Containerd, request: pytest.FixtureRequest) -> Iterator[KubeDaemon]:
    """A daemon that containerd starts itself, from its next start on; it looks at everything only once a minute."""
    with KubeDaemon(containerd, "nri") as node:
        plugin = containerd.run / "nri-plugins/10-pinfold"
        mark = next(f"{key}={value}" for key, value in node.environment.items() if value == node.place.mark)
        options = ["--reserved-cpus", str(RESERVED), "--cpu-manager-reconcile-period", "60s"]
        options += ["--cri-socket", str(containerd.cri_socket)] if getattr(request, "param", False) else []
        command = [sys.executable, "-m", "pinfold", "serve", *node.where, *options, *node.groups]
        plugin.write_text(f"#!/bin/sh\n{mark} exec {shlex.join(command)} >>{node.log} 2>&1\n")
        plugin.chmod(0o755)
        try:
            yield node
        finally:
            plugin.unlink()
            containerd.remove_all()
            containerd.restart()
        assert_no_traceback(node.said())


REGISTERED = "link=registered"
"""containerd 1.7 tells a plugin that it has started itself nothing of what runs."""


def relaunch(containerd: Containerd, node: KubeDaemon) -> float:
    """Restart containerd with its plugin, and return when calls were answered again."""
    before = node.said().count(REGISTERED)
    containerd.restart()
    back = time.monotonic()
    wait_for(lambda: node.said().count(REGISTERED) > before, "it has been started", PATIENCE)
    return back


def test_the_runtime_can_start_the_plugin_itself(containerd: Containerd, launched: KubeDaemon) -> None:
    for turn in range(2):
        relaunch(containerd, launched)
        owner = containerd.run_container(containerd.run_pod(f"db-{turn}"), ALL)[1]
        assert allowed(owner) == OWN
        launched.check()
        containerd.remove_all()
        launched.settled()


@pytest.mark.parametrize("launched", [False, True], ids=["by NRI alone", "by CRI too"], indirect=True)
def test_a_plugin_of_the_runtime_returns_the_cpus_of_a_pod_that_is_deleted_after_its_restart(
    containerd: Containerd, launched: KubeDaemon, request: pytest.FixtureRequest
) -> None:
    relaunch(containerd, launched)
    pod, other = containerd.run_pod("db"), shared_pod(containerd)
    owner = containerd.run_container(pod, ALL)[1]
    assert (allowed(owner), allowed(other)) == (OWN, RESERVED)
    relaunch(containerd, launched)
    assert (allowed(owner), allowed(other)) == (OWN, RESERVED)
    containerd.remove_pod(pod)
    gone = time.monotonic()
    wait_for(lambda: allowed(other) == ONLINE, "its CPUs are shared again", PATIENCE)
    print(f"{request.node.name}: {time.monotonic() - gone:.2f} s after it was gone")  # noqa: T201 - a figure
    assert allowed(containerd.run_container(containerd.run_pod("next"), ALL)[1]) == OWN
    assert launched.state().check(ONLINE) == []  # by NRI alone, containerd 1.7 tells nothing of the other container


@pytest.mark.parametrize("launched", [True], ids=["by CRI too"], indirect=True)
def test_a_plugin_of_the_runtime_returns_the_cpus_of_a_pod_that_died_with_the_runtime(
    containerd: Containerd, launched: KubeDaemon
) -> None:
    relaunch(containerd, launched)
    pod, other = containerd.run_pod("db"), shared_pod(containerd)
    containerd.run_container(pod, ALL)
    containerd.kill()
    for file in containerd.group(pod).rglob("cgroup.procs"):
        for pid in map(int, file.read_text().split()):
            os.kill(pid, signal.SIGKILL)
    containerd.start()
    back = time.monotonic()
    wait_for(lambda: allowed(other) == ONLINE, "its CPUs are shared again", PATIENCE)
    print(f"shared again {time.monotonic() - back:.2f} s after containerd answered")  # noqa: T201 - a figure
    assert allowed(containerd.run_container(containerd.run_pod("next"), ALL)[1]) == OWN
    launched.check()
