"""Owners as scheduler partitions, on cgroup v2 in a machine of its own; an older kernel has plain cpusets, as told."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.core.reconcile import Limit
from pinfold.node.processgroups.subtree import Subtree
from pinfold.node.processgroups.v2 import ProcessGroupsV2
from tests.contract.workload import IDLE, Workload
from tests.e2e.daemon import CGROUPS, ONLINE, Daemon, allowed, container, pod, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

HAS_THEM = any(CGROUPS.glob("*/cpuset.cpus.exclusive"))
has_them = pytest.mark.skipif(not HAS_THEM, reason="this kernel has no remote partitions")
EFFECTIVE = CGROUPS / "cpuset.cpus.effective"
APP = ContainerRef(PodUID("u"), "app")
WEB = ContainerRef(PodUID("v"), "web")
LAST, FIRST = CPUSet.parse("12-15"), CPUSet.parse("4-5")


@pytest.fixture
def name() -> str:
    return f"pinfold-test-{uuid.uuid4().hex[:8]}"


@pytest.fixture(params=["root", "isolated"])
def groups(request: pytest.FixtureRequest, name: str) -> Iterator[ProcessGroupsV2]:
    made = ProcessGroupsV2(Subtree(CGROUPS, name))
    made.partitions.kind = request.param
    made.prepare(ONLINE - LAST - FIRST)
    yield made
    made.remove_empty()
    assert whole()


@pytest.fixture
def running() -> Iterator[Workload]:
    workload = Workload()
    yield workload
    workload.end()


def state(groups: ProcessGroupsV2, ref: ContainerRef) -> str:
    return (groups.group(ref).places()[0] / "cpuset.cpus.partition").read_text().strip()


def whole() -> bool:
    return EFFECTIVE.read_text().strip() == str(ONLINE)


@has_them
def test_the_kernel_keeps_the_whole_host_off_the_cpus_of_an_owner_until_it_has_gone(
    groups: ProcessGroupsV2, running: Workload
) -> None:
    groups.make_exclusive(APP, LAST)
    groups.make_exclusive(WEB, FIRST)
    groups.make_shared(ContainerRef(PodUID("w"), "w"), Limit())
    pid, _ = running.start(IDLE, groups, APP)
    shared, _ = running.start(IDLE, groups, ContainerRef(PodUID("w"), "w"))
    assert (state(groups, APP), state(groups, WEB)) == (groups.partitions.kind, groups.partitions.kind)
    assert allowed(pid) == {str(LAST)}
    assert allowed(os.getpid()) == allowed(shared) == {str(ONLINE - LAST - FIRST)}
    running.end()
    groups.remove(APP)
    assert allowed(os.getpid()) == {str(ONLINE - FIRST)}
    groups.remove(WEB)
    groups.remove(ContainerRef(PodUID("w"), "w"))
    assert allowed(os.getpid()) == {str(ONLINE)}


@has_them
def test_cpus_can_be_changed_exchanged_and_given_up(groups: ProcessGroupsV2, running: Workload) -> None:
    groups.make_exclusive(APP, LAST)
    pid, _ = running.start(IDLE, groups, APP)
    for cpus in (CPUSet.parse("12-13"), FIRST, CPUSet.parse("4-5,14")):
        groups.make_exclusive(APP, cpus)
        assert state(groups, APP) == groups.partitions.kind
        assert allowed(pid) == {str(cpus)}
        assert EFFECTIVE.read_text().strip() == str(ONLINE - cpus)
    groups.make_shared(APP, Limit())
    assert whole()
    running.end()
    groups.remove(APP)


@has_them
def test_cpus_that_another_group_has_set_aside_leave_a_plain_cpuset_until_they_are_free(
    groups: ProcessGroupsV2, running: Workload
) -> None:
    told: list[str] = []
    groups.partitions.told = told.append
    other = CGROUPS / "other"
    other.mkdir()
    (other / "cpuset.cpus.exclusive").write_text("14")
    groups.make_exclusive(APP, LAST)
    pid, _ = running.start(IDLE, groups, APP)
    assert state(groups, APP) == "member"
    assert allowed(pid) == {str(LAST)}
    assert len(told) == 1
    assert "no scheduler partition" in told[0]
    other.rmdir()
    groups.make_exclusive(WEB, FIRST)
    groups.remove(WEB)
    assert state(groups, APP) == groups.partitions.kind
    assert groups.partitions.weaker == []
    running.end()
    groups.remove(APP)


@has_them
def test_what_another_program_undoes_is_found_and_made_again(groups: ProcessGroupsV2) -> None:
    groups.make_exclusive(APP, LAST)
    (groups.group(APP).places()[0] / "cpuset.cpus.partition").write_text("member")
    assert "cpuset.cpus.partition is member" in groups.limits.wrong_pools()
    groups.limits.free_pools()
    assert state(groups, APP) == groups.partitions.kind
    assert groups.limits.wrong_pools() == ""
    groups.remove(APP)


def states(daemon: Daemon) -> list[str]:
    files = (CGROUPS / daemon.place.name).glob("exclusive/*/*/cpuset.cpus.partition")
    return [file.read_text().strip() for file in files]


def test_partitions_of_a_daemon_outlive_a_kill_and_are_undone_without_the_option_and_by_leaving() -> None:
    with Daemon("--cpu-manager-reconcile-period", "1s") as daemon:
        daemon.start("--cpuset-partition", "root")
        daemon.apply(pod("owner", container(cpus=2)))
        pid = daemon.running("owner")
        exclusive = daemon.state().exclusive
        assert states(daemon) == ["root" if HAS_THEM else "member"]
        assert ("no scheduler partitions" in daemon.said()) != HAS_THEM
        daemon.restart("--cpuset-partition", "isolated")
        assert daemon.running("owner") == pid
        assert states(daemon) == ["isolated" if HAS_THEM else "member"]
        assert whole() != HAS_THEM
        daemon.restart()
        assert states(daemon) == ["member"]
        assert whole()
        assert allowed(pid) == {str(exclusive)}
        daemon.check()
        daemon.restart("--cpuset-partition", "root")
        daemon.kill()
        assert (
            daemon.verb("leave", "--socket", str(daemon.socket), "--state-dir", str(daemon.state_dir)).returncode == 0
        )
        wait_for(whole, "the CPUs are back")
