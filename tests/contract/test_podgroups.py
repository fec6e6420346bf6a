"""The contract of the groups of Kubernetes pods, made as a kubelet makes them: on this kernel and simulated."""

from __future__ import annotations

import os
import threading
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.node import cgroupfiles as files
from pinfold.node.cgroupfiles import CgroupError
from pinfold.node.grouperrors import NoCPUsError
from pinfold.node.podgroups.balance import FLAG
from pinfold.node.podgroups.paths import GroupPathError, NotInAPodError
from pinfold.node.podgroups.settings import Quota
from pinfold.node.podgroups.tree import PooledError
from tests.contract.kubenode import ALL, BESTEFFORT, BURSTABLE, GUARANTEED, KINDS, Kernel, Node, host
from tests.contract.workload import FORK_STORM, IDLE, THREADS, allowed_or_gone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pinfold.node.podgroups.settings import GroupSetting

FIRST, LAST = CPUSet.of(ALL.lowest), CPUSet.of(max(ALL))
REST = ALL - LAST
NO_SUCH_CPU = CPUSet.of(60_000)
NAMINGS = ("cgroupfs", "systemd")


def changed(settings: tuple[GroupSetting, ...]) -> dict[str, str]:
    return {str(setting.group / setting.file): setting.value for setting in settings if setting.changed}


@pytest.fixture(params=[(kind, naming) for kind in KINDS for naming in NAMINGS], ids="-".join)
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    kind, naming = request.param
    node = Node(f"pinfold-test-{uuid.uuid4().hex[:12]}", naming, host(kind))
    yield node
    node.end()


def test_the_pool_moves_every_burstable_and_besteffort_container(node: Node) -> None:
    pods = [node.pod(qos, f"{qos[0]}{i}") for qos in (BURSTABLE, BESTEFFORT) for i in range(2)]
    containers = [node.container(pod, f"c{i}", THREADS if i else IDLE) for pod in pods for i in range(2)]
    owner, untouched = node.container(node.pod(GUARANTEED, "g"), "app")
    for pool in (FIRST, ALL, LAST, REST):
        with node.host.counted_writes() as writes:
            settings = node.groups.set_pool(pool)
        assert [node.host.allowed(pid) for _, pid in containers] == [{str(pool)}] * len(containers)
        assert {node.groups.cpus(group) for group, _ in containers} == {pool}
        assert (node.groups.cpus(owner), node.host.allowed(untouched)) == (ALL, {str(ALL)})
        if node.groups.nested:
            others = {path for path in writes if not path.endswith(FLAG)} - set(changed(settings))
            shared = {path for group, _ in containers for path in (group, group.parent)}
            assert {Path(path).parent for path in others} <= shared
        else:
            assert set(changed(settings)) == set(writes)
            assert [Path(path).parent for path in writes] == node.groups.tree.pooled()


def test_setting_the_same_pool_again_writes_nothing(node: Node) -> None:
    pod = node.pod(GUARANTEED, "g")
    node.container(node.pod(BURSTABLE, "b"), "app")
    single, _ = node.container(node.pod(GUARANTEED, "mixed"), "helper")
    node.groups.set_pool(REST, [pod], [single])
    with node.host.counted_writes() as writes:
        settings = node.groups.set_pool(REST, [pod], [single])
    assert not writes
    assert settings
    assert not changed(settings)


def test_a_container_made_later_starts_inside_the_pool(node: Node) -> None:
    node.groups.set_pool(REST)
    _, pid = node.container(node.pod(BURSTABLE, "later"), "app")
    assert node.host.allowed(pid) == {str(REST)}
    node.groups.set_pool(ALL)
    assert node.host.allowed(pid) == {str(ALL)}


def test_trap_a_container_that_has_read_its_pods_cpus_and_not_written_them_yet_can_still_start(node: Node) -> None:
    settled, opening = node.pod(BURSTABLE, "settled"), node.pod(BURSTABLE, "opening")
    shared = node.pod(GUARANTEED, "shared")
    running = [node.container(pod, "app")[1] for pod in (settled, opening, shared)]
    node.groups.set_pool(REST, [shared], settled=[settled])
    assert [node.host.allowed(pid) for pid in running] == [{str(REST)}] * 3
    for pod in (opening, shared):
        late = node.made_inside(pod, "late")
        if node.groups.nested:
            node.set_own(late, ALL)  # as the runtime read it before the others moved
    _, pid = node.container(settled, "later")
    assert node.host.allowed(pid) == {str(REST)}
    node.groups.set_pool(REST, [shared])
    assert {node.groups.cpus(pod) for pod in (settled, opening, shared)} == {REST}


def test_guaranteed_pods_without_an_owner_are_in_the_pool(node: Node) -> None:
    pod, other = node.pod(GUARANTEED, "fractional"), node.pod(GUARANTEED, "other")
    _, pid = node.container(pod, "app", THREADS)
    _, untouched = node.container(other, "app")
    for pool in (REST, LAST, ALL, FIRST):
        node.groups.set_pool(pool, [pod])
        assert (node.host.allowed(pid), node.host.allowed(untouched)) == ({str(pool)}, {str(ALL)})


def test_shared_containers_of_mixed_pods_are_set_one_by_one(node: Node) -> None:
    pod = node.pod(GUARANTEED, "mixed")
    (owner, pinned), (helper, pid), (sandbox, pause) = (node.container(pod, name) for name in ("app", "helper", "0"))
    assert node.groups.tree.containers(pod) == sorted([owner, helper, sandbox])
    node.groups.set_pool(REST, [], [helper, sandbox])
    node.groups.set_container(owner, LAST)
    assert [node.host.allowed(each) for each in (pinned, pid, pause)] == [{str(LAST)}, {str(REST)}, {str(REST)}]
    node.groups.set_pool(FIRST, [], [helper, sandbox])
    assert [node.host.allowed(each) for each in (pinned, pid, pause)] == [{str(LAST)}, {str(FIRST)}, {str(FIRST)}]


def test_a_pod_that_was_in_the_pool_gets_an_owner_and_loses_it_again(node: Node) -> None:
    pod = node.pod(GUARANTEED, "mixed")
    helper, pid = node.container(pod, "helper")
    node.groups.set_pool(ALL, [pod])
    node.groups.set_pool(REST, [], [helper])
    node.groups.open_pod(pod, LAST)
    owner, pinned = node.container(pod, "app", own=LAST)
    node.groups.set_container(owner, LAST)
    assert (node.host.allowed(pinned), node.host.allowed(pid)) == ({str(LAST)}, {str(REST)})
    node.host.end(pinned)
    node.host.remove(owner)
    node.groups.set_pool(ALL, [pod])
    assert (node.host.allowed(pid), node.groups.cpus(pod)) == ({str(ALL)}, ALL)
    node.groups.set_pool(FIRST, [pod])
    assert node.host.allowed(pid) == {str(FIRST)}


def test_trap_an_owner_whose_pod_has_other_cpus_does_not_fall_back_to_those(node: Node) -> None:
    pod = node.pod(GUARANTEED, "g")
    owner, pid = node.container(pod, "app")
    node.groups.set_pool(REST, [pod])
    node.groups.set_container(owner, LAST)
    assert (node.groups.cpus(owner), node.host.allowed(pid)) == (LAST, {str(LAST)})


def test_trap_opening_a_pod_does_not_let_the_others_in_it_onto_the_owners_cpus(node: Node) -> None:
    pod = node.pod(GUARANTEED, "g")
    _, pid = node.container(pod, "helper")
    node.groups.set_pool(REST, [pod])
    settings = node.groups.open_pod(pod, LAST)
    assert (node.groups.cpus(pod), node.host.allowed(pid)) == (ALL, {str(REST)})
    assert changed(settings)
    assert not changed(node.groups.open_pod(pod, LAST))


@pytest.mark.parametrize("qos", [BURSTABLE, BESTEFFORT, GUARANTEED], ids=["burstable", "besteffort", "guaranteed"])
def test_trap_a_shared_container_with_cpus_of_its_own_follows_the_pool(node: Node, qos: str) -> None:
    pod = node.pod(qos, "x")
    disjoint, pid = node.container(pod, "disjoint", own=LAST)
    inherits, other = node.container(pod, "inherits")
    pods = [] if qos else [pod]
    for pool in (REST, ALL, FIRST):
        node.groups.set_pool(pool, pods)
        assert (node.host.allowed(pid), node.host.allowed(other)) == ({str(pool)}, {str(pool)})
        assert {node.groups.cpus(group) for group in (disjoint, inherits)} == {pool}
        assert node.own(disjoint) == pool


def test_a_group_that_a_workload_made_inside_its_container_stays_within_it(node: Node) -> None:
    container, pid = node.container(node.pod(BURSTABLE, "x"), "engine")
    inner = node.made_inside(container, "inner")
    node.host.put(pid, inner)
    node.host.driver.hand_down_to(inner)
    node.set_own(inner, LAST)
    seen = []
    for pool in (REST, ALL, FIRST):
        node.groups.set_pool(pool)
        assert node.groups.cpus(container) == pool
        seen.append(node.host.allowed(pid))
    # The kernel of v2 remembers what the workload wanted; on v1 it has to be overwritten.
    assert seen == [{str(REST)}, {str(ALL if node.groups.nested else LAST)}, {str(FIRST)}]


def test_deeper_groups_follow_or_keep_what_is_left_of_their_own(node: Node) -> None:
    if not node.groups.nested:
        pytest.skip("the kernel of cgroup v2 does it")
    container, _ = node.container(node.pod(BURSTABLE, "x"), "engine")
    everything = node.made_inside(container, "everything")
    deepest = [node.made_inside(everything, name, own) for name, own in (("first", FIRST), ("last", LAST))]
    empty = node.made_inside(container, "empty")
    node.set_own(empty, EMPTY)
    node.groups.set_pool(REST)
    assert [node.groups.cpus(group) for group in (everything, *deepest)] == [REST, FIRST, REST]
    node.groups.set_pool(LAST)
    assert [node.groups.cpus(group) for group in (everything, *deepest)] == [LAST, LAST, LAST]
    assert not node.own(empty)


def test_cpus_and_nodes_of_an_owner_are_set_and_its_quota_lifted_with_its_pods(node: Node) -> None:
    pod = node.pod(GUARANTEED, "g")
    owner, pid = node.container(pod, "app", THREADS)
    node.limit(pod, 150_000)
    node.limit(owner, 100_000)
    assert (node.groups.quota(pod), node.groups.quota(owner)) == (Quota(150_000), Quota(100_000))
    nodes = node.groups.mems(owner)
    before = node.groups.quota(pod)
    settings = node.groups.set_container(owner, LAST, CPUSet.of(nodes.lowest))
    assert node.host.quota_text(pod) == node.host.quota_text(owner)
    assert node.host.quota_text(pod) in {"max 100000", "-1"}
    assert (node.groups.quota(pod), node.groups.quota(owner)) == (Quota(None), Quota(None))
    assert (node.host.allowed(pid), node.groups.mems(owner)) == ({str(LAST)}, CPUSet.of(nodes.lowest))
    assert node.groups.tree.members(owner) == [pid]
    assert len(changed(settings)) >= 3
    assert not changed(node.groups.set_container(owner, LAST, CPUSet.of(nodes.lowest)))
    node.groups.set_quota(pod, before)
    assert node.groups.quota(pod) == before
    node.groups.set_quota(pod, Quota(30_000, 50_000))
    assert node.groups.quota(pod) == Quota(30_000, 50_000)


def test_a_quota_is_left_alone_if_so_asked(node: Node) -> None:
    pod = node.pod(GUARANTEED, "g")
    owner, _ = node.container(pod, "app")
    node.limit(pod, 150_000)
    node.groups.open_pod(pod, LAST, lift_quota=False)
    node.groups.set_container(owner, LAST, lift_quota=False)
    assert node.groups.quota(pod) == Quota(150_000)


def test_owners_move_grow_and_shrink(node: Node) -> None:
    owner, pid = node.container(node.pod(GUARANTEED, "g"), "app", THREADS)
    for cpus in (LAST, FIRST, ALL, REST, LAST):
        node.groups.set_container(owner, cpus)
        assert (node.host.allowed(pid), node.groups.cpus(owner)) == ({str(cpus)}, cpus)


def test_what_has_gone_meanwhile_is_passed_over(node: Node) -> None:
    pod = node.pod(GUARANTEED, "gone")
    container, pid = node.container(pod, "app")
    node.host.end(pid)
    node.host.remove(container)
    assert container not in {setting.group for setting in node.groups.set_pool(ALL, [], [container])}
    node.host.remove(pod)
    _, pid = node.container(node.pod(BURSTABLE, "b"), "app")
    node.groups.set_pool(REST, [pod], [container])
    assert node.host.allowed(pid) == {str(REST)}
    assert node.groups.tree.members(container) == []
    with pytest.raises(CgroupError, match=r"app.*no such group"):
        node.groups.set_container(container, LAST)


def test_containers_made_and_ended_while_the_pool_changes_are_inside_it_at_last(node: Node) -> None:
    pod = node.pod(BURSTABLE, "busy")
    stop = threading.Event()

    def come_and_go() -> None:
        while not stop.is_set():
            group = pod / f"c{uuid.uuid4().hex}"
            with suppress(CgroupError):
                node.host.make_inside(group)
            node.host.remove(group)

    runtime = threading.Thread(target=come_and_go)
    runtime.start()
    try:
        for pool in (REST, ALL, LAST, FIRST) * 25:
            node.groups.set_pool(pool)
            assert node.groups.cpus(pod) == pool
    finally:
        stop.set()
        runtime.join()


def test_children_forked_meanwhile_move_too(node: Node) -> None:
    if not isinstance(node.host, Kernel):
        pytest.skip("nothing forks in memory")
    group, pid = node.container(node.pod(BESTEFFORT, "x"), "storm", FORK_STORM)
    node.groups.set_pool(REST)
    assert pid in node.groups.tree.members(group)
    assert {cpus for member in node.groups.tree.members(group) for cpus in allowed_or_gone(member)} == {str(REST)}


def test_a_cpu_that_does_not_exist_is_refused_with_path_and_value(node: Node) -> None:
    owner, pid = node.container(node.pod(GUARANTEED, "g"), "app")
    node.container(node.pod(BURSTABLE, "b"), "app")
    node.groups.set_pool(REST)
    with pytest.raises(CgroupError, match=r"cpuset\.cpus: .*60000 → ERANGE: no such CPU"):
        node.groups.set_pool(NO_SUCH_CPU)
    with pytest.raises(CgroupError, match=r"cpuset\.cpus: .*60000 → ERANGE: no such CPU"):
        node.groups.set_container(owner, NO_SUCH_CPU)
    assert [node.groups.cpus(group) for group in node.groups.tree.pooled()] == [REST, REST]
    assert node.host.allowed(pid) == {str(ALL)}


def test_no_cpus_are_refused(node: Node) -> None:
    pod = node.pod(GUARANTEED, "g")
    owner, _ = node.container(pod, "app")
    with pytest.raises(NoCPUsError):
        node.groups.set_pool(EMPTY)
    with pytest.raises(NoCPUsError):
        node.groups.set_container(owner, EMPTY)
    with pytest.raises(NoCPUsError):
        node.groups.open_pod(pod, EMPTY)


def test_an_owner_outside_of_a_guaranteed_pod_is_refused(node: Node) -> None:
    pod = node.pod(BURSTABLE, "b")
    container, _ = node.container(pod, "app")
    with pytest.raises(PooledError, match="Guaranteed is needed"):
        node.groups.set_container(container, LAST)
    with pytest.raises(PooledError):
        node.groups.open_pod(pod, LAST)


def test_groups_of_others_are_not_touched(node: Node) -> None:
    with pytest.raises(NotInAPodError):
        node.groups.set_container(node.kubepods, LAST)
    with pytest.raises(NotInAPodError):
        node.groups.set_pool(REST, [node.kubepods])
    with pytest.raises(NotInAPodError):
        node.groups.set_quota(node.kubepods.parent, Quota(None))
    with pytest.raises(GroupPathError):
        node.groups.set_container(Path("/etc"), LAST)


def test_a_process_leads_to_its_container(node: Node) -> None:
    group, pid = node.container(node.pod(BURSTABLE, "b"), "app")
    assert node.groups.tree.of_process(pid) == group
    inner = node.made_inside(group, "inner")
    node.host.put(pid, inner)
    assert node.groups.tree.of_process(pid) == group
    assert node.groups.tree.members(group) == [pid]
    assert node.groups.tree.of_process(os.getpid()) is None
    node.host.end(pid)
    assert node.groups.tree.of_process(pid) is None


def test_a_controller_that_is_not_handed_down_is(node: Node) -> None:
    if node.groups.nested or not isinstance(node.host, Kernel):
        pytest.skip("only cgroup v2 hands controllers down")
    node.host.handed_down = "+cpu"
    for qos in (BURSTABLE, BESTEFFORT):
        files.write_once(node.kubepods / "cgroup.subtree_control", "-cpuset")
        group, pid = node.container(node.pod(qos, "x"), "app")
        assert node.groups.cpus(group) == ALL
        node.groups.set_pool(REST)
        assert (node.host.allowed(pid), node.groups.cpus(group)) == ({str(REST)}, REST)
    owner, pid = node.container(node.pod(GUARANTEED, "g"), "app")
    node.groups.set_container(owner, LAST)
    assert node.host.allowed(pid) == {str(LAST)}


def test_a_group_above_that_forbids_the_cpus_is_said(node: Node) -> None:
    node.set_own(node.kubepods.parent, ALL)
    if not node.groups.nested:
        node.set_own(node.kubepods, FIRST)
    owner, _ = node.container(node.pod(GUARANTEED, "g"), "app")
    if node.groups.nested:
        for group in (*reversed(node.groups.tree.below(node.kubepods)), node.kubepods.parent):
            node.set_own(group, FIRST)
    with pytest.raises(CgroupError, match=rf"{LAST} → .*(groups? above)"):
        node.groups.set_container(owner, LAST)


def test_widening_all_gives_every_group_down_to_the_pods_all_cpus_again_and_leaves_owners_theirs(node: Node) -> None:
    shared, mixed = node.pod(GUARANTEED, "shared"), node.pod(GUARANTEED, "mixed")
    sharers = [node.container(pod, "app") for pod in (node.pod(BURSTABLE, "b"), node.pod(BESTEFFORT, "e"), shared)]
    helper, owner = node.container(mixed, "helper"), node.container(mixed, "owner")
    node.groups.set_pool(REST, [shared], [helper[0]])
    node.groups.set_container(owner[0], LAST)
    assert {*map(node.groups.cpus, node.groups.tree.down_to_pods())} >= {REST}
    with node.host.counted_writes() as writes:
        settings = node.groups.widen_all(ALL, LAST)
    assert {*map(node.groups.cpus, node.groups.tree.down_to_pods())} == {ALL}
    assert [node.host.allowed(pid) for _, pid in (*sharers, helper)] == [{str(ALL)}] * 4
    assert node.host.allowed(owner[1]) == {str(LAST)}
    assert node.host.allowed(node.container(node.pod(BESTEFFORT, "new"), "app")[1]) == {str(ALL)}
    written = [Path(path).parent for path in writes]
    assert not any(above in written[place:] for place, group in enumerate(written) for above in group.parents)
    assert set(changed(settings)) == {path for path in writes if not path.endswith(FLAG)}
    assert not changed(node.groups.widen_all(ALL, LAST))


def test_a_container_that_has_come_in_the_place_of_another_moves_too(node: Node) -> None:
    pod = node.pod(BURSTABLE, "b")
    node.container(pod, "stays")
    first, pid = node.container(pod, "first")
    for pool in (REST, ALL):
        node.groups.set_pool(pool)
    node.host.end(pid)
    node.host.remove(first)
    _, pid = node.container(pod, "second")
    node.groups.set_pool(LAST)
    assert node.host.allowed(pid) == {str(LAST)}


@pytest.fixture
def kernel_node() -> Iterator[Node]:
    node = Node(f"pinfold-test-{uuid.uuid4().hex[:12]}", NAMINGS[0], host("kernel"))
    yield node
    node.end()


def test_on_v1_containers_that_share_lose_a_flag_that_means_nothing_and_have_it_again_at_the_end(
    kernel_node: Node,
) -> None:
    node = kernel_node
    if not node.groups.nested:
        pytest.skip("cgroup v2 has no such flag")
    pod, mixed = node.pod(BURSTABLE, "b"), node.pod(GUARANTEED, "mixed")
    (sharer, pid), (owner, _) = node.container(pod, "app"), node.container(mixed, "owner")
    node.groups.set_pool(REST)
    node.groups.set_container(owner, LAST)

    def flags() -> list[str]:
        return [files.read(group / FLAG) for group in (pod, sharer, owner)]

    assert (flags(), node.host.allowed(pid)) == (["0", "0", "1"], {str(REST)})
    node.groups.heed_balance(set)
    assert flags() == ["0", "0", "1"], "the groups above balance"
    node.groups.widen_all(ALL, LAST)
    assert (flags(), node.host.allowed(pid)) == (["1", "1", "1"], {str(ALL)})


def test_widening_all_gives_owners_all_cpus_too_if_none_are_kept(node: Node) -> None:
    owner, pid = node.container(node.pod(GUARANTEED, "g"), "app")
    node.groups.set_pool(REST)
    node.groups.set_container(owner, LAST)
    node.groups.widen_all(ALL)
    assert node.host.allowed(pid) == {str(ALL)}


def test_widening_all_says_if_a_group_did_not_get_its_cpus(node: Node) -> None:
    node.groups.set_pool(FIRST)
    for group in (node.kubepods, node.kubepods.parent):
        node.set_own(group, FIRST)
    with pytest.raises(CgroupError, match=rf"{ALL} → .*groups? above"):
        node.groups.widen_all(ALL)
    with pytest.raises(NoCPUsError):
        node.groups.widen_all(EMPTY)
