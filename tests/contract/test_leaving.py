"""Leaving a node: every group has all CPUs again, owners stay where a kubelet goes on with them."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, cast

import pytest

from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.formats.pods.runtime import Phase
from pinfold.manager.leaving import leave
from pinfold.node.podgroups.settings import CPUS
from pinfold.runtimes.base import ApplyError
from tests.contract.kubenode import ALL, BESTEFFORT, BURSTABLE, GUARANTEED, KINDS, Node, host
from tests.contract.test_lifecycle import HERE, owner, play, sharer, stand_of
from tests.contract.test_lifecycle import KINDS as NODES
from tests.contract.test_podapplier import Tried
from tests.needs import lacking
from tests.now import now

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pinfold.node.podgroups.settings import GroupSetting
    from pinfold.node.podgroups.systemd import Systemd
    from tests.contract.stands import Stand


async def leave_node(tried: Stand | Tried, online: CPUSet, kept: CPUSet = EMPTY) -> None:
    manager = tried.manager if isinstance(tried, Tried) else tried.daemon.manager
    roster = tried.roster if isinstance(tried, Tried) else tried.daemon.node.roster
    await leave(manager.applier, roster, online, kept)


@pytest.mark.parametrize("kind", [kind for kind in NODES if kind != "simulated"])  # which ends with its daemon
def test_who_runs_has_all_cpus_after_leaving_and_its_own_when_a_daemon_starts_again(kind: str) -> None:
    if kind == "processes" and len(HERE) < 2:
        lacking("two CPUs")

    async def scenario(stand: Stand) -> None:
        other, mine = sharer("other"), owner("mine")
        await stand.run(other)
        await stand.run(mine)
        cpus, online = stand.cpus(mine, "app"), HERE if kind == "processes" else stand.machine.online
        await leave_node(stand, online)
        assert (stand.cpus(mine, "app"), stand.cpus(other, "app")) == (online, online)
        await stand.kill_daemon()
        await stand.open()
        assert stand.daemon.state.cpus(mine.uid, "app") == cpus
        assert stand.cpus(mine, "app") == cpus
        assert not stand.cpus(other, "app") & cpus

    play(stand_of(kind), scenario)


@pytest.fixture(params=KINDS)
def groups(request: pytest.FixtureRequest) -> Iterator[Node]:
    node = Node(f"pinfold-test-{uuid.uuid4().hex[:12]}", "cgroupfs", host(request.param))
    yield node
    node.end()


def two_pods(tried: Tried) -> tuple[int, int, CPUSet]:
    """Run an owner and one that shares; return their processes, and the owner's CPUs."""
    web, db = tried.pod(BURSTABLE, "web"), tried.pod(GUARANTEED, "db")
    sharing, owning = tried.run(web), tried.run(db)
    now(tried.node.resync([web, db], [tried.container(web, 500), tried.container(db, 1000, Phase.RUNNING)]))
    cpus = tried.manager.state.exclusive
    assert (tried.groups.host.allowed(owning), tried.groups.host.allowed(sharing)) == ({str(cpus)}, {str(ALL - cpus)})
    return sharing, owning, cpus


def test_after_leaving_a_new_besteffort_pod_can_use_every_cpu(groups: Node) -> None:
    tried = Tried(groups)
    sharing, owning, _ = two_pods(tried)
    asyncio.run(leave_node(tried, ALL))
    new = tried.run(tried.pod(BESTEFFORT, "new"))
    assert [groups.host.allowed(pid) for pid in (sharing, owning, new)] == [{str(ALL)}] * 3


def test_an_owner_has_its_cpu_limit_again_after_leaving(groups: Node) -> None:
    tried = Tried(groups)
    two_pods(tried)
    group = groups.kubepods / "poddb/app"
    limits = [groups.groups.quota(path).quota for path in (group.parent, group)]
    asyncio.run(leave_node(tried, ALL))
    assert limits == [None, None]
    assert [groups.groups.quota(path).quota for path in (group.parent, group)] == [100_000, 100_000]


def test_owners_stay_on_their_cpus_where_a_kubelet_goes_on_with_them(groups: Node) -> None:
    tried = Tried(groups)
    sharing, owning, cpus = two_pods(tried)
    asyncio.run(leave_node(tried, ALL, kept=cpus))
    assert (groups.host.allowed(owning), groups.host.allowed(sharing)) == ({str(cpus)}, {str(ALL)})
    assert {*map(groups.groups.cpus, groups.groups.tree.down_to_pods())} == {ALL}


class StubbornSystemd:
    """A systemd that writes its old values back while it is told of new ones, *times* times."""

    def __init__(self, groups: Node, times: int) -> None:
        self.kept: dict[str, str] = {}
        self._groups = groups
        self._times = times

    async def keep(self, settings: Iterable[GroupSetting]) -> tuple[str, ...]:
        found = {setting.group.name: setting.value for setting in settings if setting.file == CPUS}
        told = [name for name in found if self.kept.get(name) != found[name]]
        self.kept.update(found)
        if self._times and str(ALL) in found.values():
            self._times -= 1
            self._groups.groups.set_pool(CPUSet.of(ALL.lowest))
        return tuple(told)


@pytest.mark.parametrize("times", [1, 100])
def test_systemd_is_told_all_cpus_and_what_it_undoes_is_done_again(groups: Node, times: int) -> None:
    if groups.groups.nested:
        return  # systemd knows no cpusets on cgroup v1
    systemd = StubbornSystemd(groups, times)
    tried = Tried(groups, cast("Systemd", systemd))

    async def scenario() -> None:
        sharing, _, _ = two_pods(tried)
        if times > 1:
            with pytest.raises(ApplyError, match="another program keeps groups of pods from CPUs"):
                await leave_node(tried, ALL)
            return
        await leave_node(tried, ALL)
        assert groups.host.allowed(sharing) == {str(ALL)}
        assert systemd.kept["burstable"] == str(ALL)

    asyncio.run(scenario())
