"""One contract for every kind of node: pods come, run, restart, end, and outlive their daemon. No root, in seconds."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import from_shape
from pinfold.core.pods.pod import Amounts, Container, Pod, PodUID, Resources
from pinfold.errors import PinfoldError
from pinfold.runtimes.simulated.cgroups import NodeGroups
from pinfold.runtimes.simulated.settings import RuntimeSettings
from tests.contract.stands import EIGHT, FIRST, HostStand, PodStand, until
from tests.needs import lacking, needs
from tests.property.strategies import pinned

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from pinfold.core.machine.topology import Topology
    from tests.contract.stands import Stand

HERE = CPUSet.from_cpus(os.sched_getaffinity(0))
KINDS = ["simulated", "processes", "nri", "cri"]
needs_two = needs("two CPUs", met=len(HERE) >= 2)


def stand_of(kind: str, machine: Topology | None = None, **config: object) -> Stand:
    """Return a node of one kind; plain processes have the CPUs that there are."""
    reserved = Reservation.of(CPUSet.of(HERE.lowest)) if kind == "processes" else FIRST
    settings = Config("static", reserved=reserved, **config)  # type: ignore[arg-type]  # as the test says
    if kind == "processes":
        return HostStand(settings, from_shape(f"cores:{max(HERE) + 1}"), real=True)
    if kind == "simulated":
        return HostStand(settings, machine or EIGHT, real=False)
    return PodStand(settings, machine or EIGHT, nri=kind == "nri")


def play(stand: Stand, scenario: Callable[[Stand], Coroutine[None, None, None]]) -> None:
    """Play a scenario on a node, and leave nothing of it."""

    async def played() -> None:
        await stand.open()
        try:
            await scenario(stand)
        finally:
            await stand.close()

    asyncio.run(asyncio.wait_for(played(), 60))


def commanded(container: Container) -> Container:
    return replace(container, command=("sleep", "1000"))


def owner(name: str, cpus: int = 1) -> Pod:
    return Pod(PodUID(f"u-{name}"), name, containers=(commanded(pinned(cpus, "app")),))


def sharer(name: str) -> Pod:
    half = Resources(Amounts(cpu=500, memory=1 << 20), Amounts(cpu=500, memory=1 << 20))
    return Pod(PodUID(f"u-{name}"), name, containers=(commanded(Container("app", half)),))


@pytest.fixture(params=KINDS)
def stand(request: pytest.FixtureRequest) -> Stand:
    if request.param == "processes" and len(HERE) < 2:
        lacking("two CPUs")
    return stand_of(str(request.param))


def check(stand: Stand) -> None:
    """See that the State is sound, and that the kernel has what it says."""
    state = stand.daemon.state
    assert state.check(stand.machine.online) == []
    assert stand.daemon.manager.reconcile() == []


def test_an_owner_has_its_cpus_for_itself(stand: Stand) -> None:
    async def scenario(stand: Stand) -> None:
        other, mine = sharer("other"), owner("mine")
        await stand.run(other)
        await stand.run(mine)
        cpus = stand.daemon.state.cpus(mine.uid, "app")
        assert cpus is not None
        assert stand.cpus(mine, "app") == cpus
        assert stand.cpus(other, "app") == stand.daemon.state.shared
        assert not stand.cpus(other, "app") & cpus
        check(stand)

    play(stand, scenario)


def test_what_an_owner_had_is_shared_again_when_it_has_ended(stand: Stand) -> None:
    async def scenario(stand: Stand) -> None:
        other, mine = sharer("other"), owner("mine")
        before = stand.daemon.state
        await stand.run(other)
        await stand.run(mine)
        await stand.end(mine)
        assert stand.daemon.state == before
        assert stand.cpus(other, "app") == before.shared
        assert [entry.fields["pod"] for entry in stand.daemon.told("released")] == ["mine"]
        check(stand)

    play(stand, scenario)


def test_a_refused_pod_changes_nothing_and_says_why(stand: Stand) -> None:
    async def scenario(stand: Stand) -> None:
        before = stand.daemon.state
        with pytest.raises(PinfoldError, match=r"UnexpectedAdmissionError.*not enough cpus"):
            await stand.run(owner("greedy", 64))
        assert stand.daemon.state == before
        (told,) = stand.daemon.told("refused")
        assert (told.fields["pod"], told.fields["reason"]) == ("greedy", "UnexpectedAdmissionError")
        check(stand)

    play(stand, scenario)


def test_a_container_that_is_restarted_keeps_its_cpus(stand: Stand) -> None:
    async def scenario(stand: Stand) -> None:
        mine = owner("mine")
        await stand.run(mine)
        cpus = stand.cpus(mine, "app")
        await stand.restart_container(mine, "app")
        assert stand.cpus(mine, "app") == cpus == stand.daemon.state.cpus(mine.uid, "app")
        check(stand)

    play(stand, scenario)


@pytest.mark.parametrize("kind", ["processes", "nri", "cri"])
def test_a_daemon_that_is_killed_finds_everything_as_it_was(kind: str) -> None:
    async def scenario(stand: Stand) -> None:
        mine, other = owner("mine"), sharer("other")
        await stand.run(mine)
        await stand.run(other)
        before, cpus = stand.daemon.state, stand.cpus(mine, "app")
        await stand.kill_daemon()
        await stand.open()
        await until(lambda: stand.daemon.state.assignments == before.assignments, "the State is as before")
        assert stand.cpus(mine, "app") == cpus
        assert not stand.daemon.told("ran-unpinned")
        check(stand)
        await stand.end(mine)
        assert stand.daemon.state.shared == stand.machine.online

    play(stand_of(kind), scenario)


@pytest.mark.parametrize("kind", ["nri", "cri"])
def test_a_pod_that_left_while_the_daemon_was_away_gives_its_cpus_back(kind: str) -> None:
    async def scenario(stand: Stand) -> None:
        assert isinstance(stand, PodStand)
        mine = owner("mine")
        await stand.run(mine)
        await stand.kill_daemon()
        await stand.runtime.remove_pod(stand._sandboxes[mine.uid])  # noqa: SLF001 - past the daemon
        await stand.open()
        await until(lambda: not stand.daemon.state.assignments, "its CPUs are shared again")
        check(stand)

    play(stand_of(kind), scenario)


def test_a_pod_whose_end_the_runtime_never_tells_makes_room_for_the_next() -> None:
    """After its restart containerd tells of no end of an older pod: its groups are gone, and that is all."""

    async def scenario(stand: Stand) -> None:
        assert isinstance(stand, PodStand)
        mine = owner("mine", 7)
        await stand.run(mine)
        await stand.kill_daemon()
        await stand.open()
        NodeGroups(stand.driver).remove(stand.runtime.kubelet.cgroup_parent(mine))
        following = owner("next", 7)
        await stand.run(following)
        assert stand.cpus(following, "app") == CPUSet.parse("1-7")
        assert [entry.fields["pod"] for entry in stand.daemon.told("vanished")] == ["mine"]
        assert stand.daemon.told("refused") == []  # there was room once the other's end was noticed

    play(stand_of("nri"), scenario)


def test_a_dead_pod_that_a_runtime_lists_when_it_connects_gives_its_cpus_back() -> None:
    """containerd lists stopped sandboxes with their containers in Synchronize, and no Stop or Remove follows."""

    async def scenario(stand: Stand) -> None:
        assert isinstance(stand, PodStand)
        mine, other = owner("mine", 3), owner("other", 2)
        await stand.run(mine)
        await stand.run(other)
        await stand.kill_daemon()
        await stand.runtime.stop_pod(stand._sandboxes[mine.uid])  # noqa: SLF001 - past the daemon
        assert stand._sandboxes[mine.uid] in stand.runtime.record.sandboxes  # noqa: SLF001 - it is listed
        await stand.open()
        assert [*stand.daemon.state.assignments] == [other.uid]
        assert "mine" not in [pod.name for pod in stand.daemon.node.roster.pods.values()]
        check(stand)

    play(stand_of("nri"), scenario)


def test_a_plugin_that_is_never_synchronized_frees_the_cpus_of_pods_without_cgroups() -> None:
    """As after every restart of containerd 1.7, when it launches the plugin itself."""

    async def scenario(stand: Stand) -> None:
        assert isinstance(stand, PodStand)
        mine, other = owner("mine", 3), owner("other", 2)
        await stand.run(mine)
        await stand.run(other)
        await stand.kill_daemon()
        await stand.runtime.remove_pod(stand._sandboxes[mine.uid])  # noqa: SLF001 - past the daemon
        stand.synchronize = False
        await stand.open()
        await until(lambda: [*stand.daemon.state.assignments] == [other.uid], "its CPUs are shared again")

    play(stand_of("nri"), scenario)


@pytest.mark.parametrize("kind", ["nri", "cri"])
def test_a_pod_that_came_while_the_daemon_was_away_is_pinned_when_it_is_back(kind: str) -> None:
    async def scenario(stand: Stand) -> None:
        assert isinstance(stand, PodStand)
        mine = owner("mine", 2)
        await stand.kill_daemon()
        sandbox = await stand.runtime.run_pod(mine)
        await stand.runtime.pods.run_container(sandbox.id, "app")
        await stand.open()
        await until(lambda: stand.daemon.state.cpus(mine.uid, "app") is not None, "it has CPUs")
        assert stand.cpus(mine, "app") == stand.daemon.state.cpus(mine.uid, "app")
        assert len(stand.daemon.told("ran-unpinned")) == 1
        check(stand)

    play(stand_of(kind), scenario)


def test_cpus_that_another_program_has_changed_are_put_back(stand: Stand) -> None:
    async def scenario(stand: Stand) -> None:
        mine = owner("mine")
        await stand.run(mine)
        cpus = stand.cpus(mine, "app")
        stand.disturb(mine, "app", CPUSet.of(stand.machine.online.lowest))
        (found,) = stand.daemon.manager.reconcile()
        assert found.wanted == cpus
        assert stand.cpus(mine, "app") == cpus
        assert [entry.fields["pod"] for entry in stand.daemon.told("drift")] == ["mine"]
        check(stand)

    play(stand, scenario)


def test_only_containers_with_whole_cpus_are_owners_in_a_mixed_pod(stand: Stand) -> None:
    async def scenario(stand: Stand) -> None:
        half = sharer("x").containers[0]
        pod = Pod(PodUID("u-mixed"), "mixed", containers=(commanded(pinned(1, "own")), replace(half, name="log")))
        await stand.run(pod)
        cpus = stand.daemon.state.cpus(pod.uid, "own")
        assert stand.cpus(pod, "own") == cpus
        assert stand.cpus(pod, "log") == stand.daemon.state.shared
        check(stand)

    play(stand, scenario)


def test_other_reserved_cpus_move_only_containers_that_are_on_them() -> None:
    for kind in ("simulated", "nri", "cri"):

        async def scenario(stand: Stand) -> None:
            one, two = owner("one"), owner("two")
            await stand.run(one)
            await stand.run(two)
            first, second = stand.cpus(one, "app"), stand.cpus(two, "app")
            config = Config("static", reserved=Reservation.of(CPUSet.of(0) | first))
            node = stand.daemon.node
            await node.manager.reconfigure(stand.daemon.rules(config), node.due_pods)
            assert stand.cpus(two, "app") == second
            assert stand.cpus(one, "app") == stand.daemon.state.cpus(one.uid, "app")
            assert not stand.cpus(one, "app") & (first | second)
            check(stand)

        play(stand_of(kind), scenario)


def test_a_windows_container_gets_its_cpus_from_its_runtime() -> None:
    """There are no cgroups to set: UpdateContainerResources with processor groups is the only way."""
    stand = PodStand(Config("static", reserved=FIRST), EIGHT, nri=False, settings=RuntimeSettings(windows=True))

    async def scenario(stand: Stand) -> None:
        assert isinstance(stand, PodStand)
        mine = owner("mine", 2)
        await stand.run(mine)
        cpus = stand.daemon.state.cpus(mine.uid, "app")
        assert cpus is not None
        await stand.runtime.cri.until("UpdateContainerResources")
        found = stand.runtime.record.find("mine", "app").affinity
        assert [(group.mask, group.group) for group in found] == [(cpus.mask, 0)]

    play(stand, scenario)
