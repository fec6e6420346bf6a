"""Containers that grow and shrink while they run, over every runtime: the State, the kernel and the others agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pinfold.core.config import Config
from pinfold.core.moving.resizing import NotResized
from pinfold.errors import PinfoldError
from pinfold.manager.sources.cri import Polling
from pinfold.runtimes.simulated.record import Spec
from tests.contract.stands import EIGHT, FIRST, HostStand, PodStand, until
from tests.contract.test_lifecycle import check, owner, play, sharer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pinfold.core.machine.cpuset import CPUSet
    from pinfold.core.pods.pod import ContainerRef, Pod
    from tests.contract.stands import Stand

STATIC = Config("static", reserved=FIRST)
DYNAMIC = Config("dynamic", reserved=FIRST)
KINDS = ("simulated", "nri", "cri")


def stand_of(kind: str, config: Config) -> Stand:
    return HostStand(config, EIGHT, real=False) if kind == "simulated" else PodStand(config, EIGHT, nri=kind == "nri")


def by_hand(stand: Stand) -> Callable[[ContainerRef, int], Awaitable[CPUSet]]:
    """Return what resizes a container without notice."""

    async def resize(ref: ContainerRef, count: int) -> CPUSet:
        return await stand.daemon.node.mover.resize(ref, count)

    return resize


async def resize(stand: Stand, pod: Pod, count: int) -> None:
    """Ask for *count* CPUs as users of each runtime do; over CRI the daemon finds out by itself."""
    if isinstance(stand, HostStand):
        await stand.supervisor.workbook.resize(pod.name, pod.namespace, "app", count, by_hand(stand))
        return
    assert isinstance(stand, PodStand)
    container = stand.runtime.record.find(pod.name, "app")
    # As the kubelet asks: new shares and quota, and no CPUs.
    asked = Spec(shares=count * 1024, quota=count * 100_000, period=100_000)
    await stand.runtime.update_container(container.id, asked)


async def has(stand: Stand, pod: Pod, cpus: str) -> None:
    await until(lambda: str(stand.cpus(pod, "app")) == cpus, f"{pod.name} has CPUs {cpus}")


@pytest.mark.parametrize("kind", KINDS)
def test_a_container_grows_and_shrinks_in_place_and_the_others_make_room(
    kind: str,
) -> None:
    async def scenario(stand: Stand) -> None:
        one, other = owner("one", 2), sharer("other")
        await stand.run(other)
        await stand.run(one)
        await has(stand, one, "1-2")
        for count, cpus, rest in ((4, "1-4", "0,5-7"), (2, "1-2", "0,3-7"), (1, "1", "0,2-7"), (3, "1-3", "0,4-7")):
            await resize(stand, one, count)
            await has(stand, one, cpus)
            await has(stand, other, rest)
            check(stand)
        assert [entry.fields["cpus"] for entry in stand.daemon.told("resized")] == ["1-4", "1-2", "1", "1-3"]
        assert str(stand.daemon.state.baselines[one.uid]["app"]) == "1"

    stand = stand_of(kind, DYNAMIC)
    if isinstance(stand, PodStand):
        stand.polling = Polling(beside_events=0.05, owners=0.02)
    play(stand, scenario)


@pytest.mark.parametrize("kind", ["simulated", "nri"])
def test_a_resize_that_cannot_be_met_changes_nothing_and_says_the_nearest_size(kind: str) -> None:
    async def scenario(stand: Stand) -> None:
        one = owner("one", 2)
        await stand.run(one)
        before = stand.daemon.state
        for count, nearest in ((9, 7), (1, 2)):
            with pytest.raises(PinfoldError, match=f"the nearest size that it can have is {nearest}"):
                await resize(stand, one, count)
            assert stand.daemon.state == before
            check(stand)
        wanted = [entry.fields["wanted"] for entry in stand.daemon.told("resize-refused")]
        assert wanted == [9, 1]

    play(stand_of(kind, STATIC), scenario)


def test_the_kubelet_asks_every_second_and_a_refusal_is_told_once() -> None:
    async def scenario(stand: Stand) -> None:
        one = owner("one", 2)
        await stand.run(one)
        for _ in range(3):
            with pytest.raises(PinfoldError, match="cannot have 9 CPUs"):
                await resize(stand, one, 9)
            await stand.run(owner(f"other-{len(stand.daemon.state.assignments)}", 1))  # fewer CPUs are free
        assert len(stand.daemon.told("resize-refused")) == 1

    play(PodStand(STATIC, EIGHT, nri=True), scenario)


def test_a_size_that_is_not_whole_is_refused_and_the_container_keeps_its_cpus() -> None:
    async def scenario(stand: Stand) -> None:
        assert isinstance(stand, PodStand)
        one = owner("one", 2)
        await stand.run(one)
        container = stand.runtime.record.find("one", "app")
        for _ in range(2):
            with pytest.raises(PinfoldError, match=r"1\.5 CPUs is not a whole number; it keeps its CPUs 1-2"):
                await stand.runtime.update_container(container.id, Spec(shares=1536, quota=150_000, period=100_000))
        (told,) = stand.daemon.told("resize-refused")
        assert (told.fields["pod"], told.fields["wanted"]) == ("one", 2)
        check(stand)

    play(PodStand(DYNAMIC, EIGHT, nri=True), scenario)


@pytest.mark.parametrize("kind", ["simulated", "nri"])
def test_sizes_and_baselines_survive_a_crash(kind: str) -> None:
    async def scenario(stand: Stand) -> None:
        one = owner("one", 2)
        await stand.run(one)
        await resize(stand, one, 4)
        before = stand.daemon.state
        await stand.kill_daemon()
        await stand.open()
        assert stand.daemon.state == before.restarted()
        check(stand)
        await resize(stand, one, 2)
        await has(stand, one, "1-2")

    play(stand_of(kind, STATIC), scenario)


def test_an_unknown_container_is_named_with_those_that_are_there() -> None:
    async def scenario(stand: Stand) -> None:
        assert isinstance(stand, HostStand)
        await stand.run(owner("one", 2))
        with pytest.raises(PinfoldError, match="it has app"):
            await stand.supervisor.workbook.resize("one", "default", "db", 2, by_hand(stand))
        await stand.run(sharer("other"))
        with pytest.raises(NotResized, match="it has no exclusive CPUs"):
            await stand.supervisor.workbook.resize("other", "default", None, 2, by_hand(stand))

    play(HostStand(STATIC, EIGHT, real=False), scenario)
