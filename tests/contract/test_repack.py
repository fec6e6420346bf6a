"""Containers that move together when CPUs become free: with notice, within the pace, never overlapping."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, ClassVar

import pytest

from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import from_shape
from pinfold.core.moving.repacking import Pace
from pinfold.core.moving.running import NotResizable
from pinfold.manager.moving.notifier import Notifier
from pinfold.manager.moving.repacker import Repacker
from pinfold.manager.sources.nri import NRISource
from pinfold.node.notices import Notices
from pinfold.runtimes.nri.messages import adjustment_of
from tests.contract.stands import HostStand, PodStand, until
from tests.contract.test_lifecycle import check, owner, play

if TYPE_CHECKING:
    from pathlib import Path

    from pinfold.core.pods.pod import ContainerRef, Pod
    from tests.contract.stands import Stand

CACHES = from_shape("l3:2,cores:8")  # L3 0-7 and 8-15
DYNAMIC = Config("dynamic", reserved=Reservation.of(CPUSet.of(0)))
AT_ONCE = Pace(moves=10, dwell=0.0, grace=0.0)


def stand_of(kind: str, config: Config = DYNAMIC) -> Stand:
    return HostStand(config, CACHES, real=False) if kind == "simulated" else PodStand(config, CACHES, nri=kind == "nri")


class CountingNotices(Notices):
    """Notices that count how often an `ack` was looked at."""

    looks: ClassVar = 0

    def is_acknowledged(self, ref: ContainerRef) -> bool:
        CountingNotices.looks += 1
        return super().is_acknowledged(ref)


def repacker_of(stand: Stand, pace: Pace = AT_ONCE) -> Repacker:
    """Return a Repacker for a node, wired as the daemon does it."""
    node, directory = stand.daemon.node, stand.directory
    notifier = Notifier(node.manager, CountingNotices(directory / "notices"), stand.daemon.bus)
    node.manager.show, node.manager.shown = notifier.show, notifier.shown
    repacker = Repacker(node, notifier, pace)
    node.notice_of, node.releases.freed = notifier.path_of, repacker.wake
    return repacker


async def checked(stand: Stand) -> None:
    """Have all containers checked, as the daemon does from time to time, and their notices written."""
    stand.daemon.node.manager.reconcile()
    await stand.daemon.node.manager.shown()


async def fragment(stand: Stand, *, movable: bool = True) -> tuple[Pod, Pod]:
    """Run a container that needs CPUs of both L3, and return it, and one whose end makes room in one of them."""
    annotations = {} if movable else {"pinfold.dev/movable": "false"}
    first, wide = owner("first", 4), replace(owner("wide", 5), annotations=annotations)
    for pod in (first, wide):
        await stand.run(pod)
    assert str(stand.cpus(wide, "app")) == "5-9"
    return wide, first


@pytest.mark.parametrize("kind", ["simulated", "nri", "cri"])
def test_after_a_release_a_scattered_container_moves_into_one_cache(kind: str) -> None:
    async def scenario(stand: Stand) -> None:
        repacker = repacker_of(stand)
        following = asyncio.create_task(repacker.follow())
        wide, first = await fragment(stand)
        await stand.end(first)
        await until(lambda: bool(stand.daemon.told("moved")), "the container has moved")
        following.cancel()
        assert str(stand.cpus(wide, "app")) == "1-2,5-7"
        check(stand)
        (moved,) = stand.daemon.told("moved")
        assert (moved.fields["before"], moved.fields["cpus"]) == ("5-9", "1-2,5-7")
        assert "2 L3" in str(moved.fields["cost"])
        assert "1 L3" in str(moved.fields["lowered"])

    play(stand_of(kind), scenario)


def test_a_container_that_is_not_movable_stays() -> None:
    async def scenario(stand: Stand) -> None:
        repacker = repacker_of(stand)
        wide, first = await fragment(stand, movable=False)
        await stand.end(first)
        assert await repacker.repack() == []
        assert str(stand.cpus(wide, "app")) == "5-9"

    play(stand_of("simulated"), scenario)


@pytest.mark.parametrize("pace", [Pace(moves=0), Pace(moves=1, dwell=3600.0, grace=0.0)], ids=["no moves", "one move"])
def test_the_pace_bounds_the_moves(pace: Pace) -> None:
    async def scenario(stand: Stand) -> None:
        repacker = repacker_of(stand, pace)
        _, first = await fragment(stand)
        await stand.end(first)
        for _ in range(3):
            await repacker.repack()
        assert len(stand.daemon.told("moved")) == pace.moves

    play(stand_of("simulated"), scenario)


def test_static_moves_no_container_and_says_so() -> None:
    async def scenario(stand: Stand) -> None:
        repacker = repacker_of(stand)
        _, first = await fragment(stand)
        await stand.end(first)
        with pytest.raises(NotResizable, match="only dynamic does"):
            await repacker.repack()

    play(stand_of("simulated", replace(DYNAMIC, policy="static")), scenario)


def test_a_move_is_announced_and_made_as_soon_as_the_container_is_ready() -> None:
    async def scenario(stand: Stand) -> None:
        repacker = repacker_of(stand, Pace(moves=10, dwell=0.0, grace=60.0))
        wide, first = await fragment(stand)
        await stand.end(first)
        directory = notices_of(stand, wide)
        moving = asyncio.create_task(repacker.repack())
        await until(lambda: (directory / "next").read_text() == "2 1-2,5-7 0\n", "the move is announced")
        assert str(stand.cpus(wide, "app")) == "5-9"
        (directory / "ack").write_text("2\n")
        assert len(await moving) == 1
        assert [(directory / name).read_text() for name in ("cpus", "generation", "next")] == ["1-2,5-7\n", "2\n", ""]
        assert stand.daemon.told("announced")[0].fields["cpus"] == "1-2,5-7"

    play(stand_of("simulated"), scenario)


def test_a_move_that_is_no_longer_possible_is_withdrawn() -> None:
    async def scenario(stand: Stand) -> None:
        repacker = repacker_of(stand, Pace(moves=10, dwell=0.0, grace=60.0))
        wide, first = await fragment(stand)
        await stand.end(first)
        directory = notices_of(stand, wide)
        moving = asyncio.create_task(repacker.repack())
        await until(lambda: bool((directory / "next").read_text()), "the move is announced")
        await stand.run(owner("late", 5))  # it takes the CPUs meanwhile
        (directory / "ack").write_text("2\n")
        assert await moving == []
        assert (directory / "next").read_text() == ""
        check(stand)

    play(stand_of("simulated"), scenario)


def test_a_container_that_loses_cpus_by_a_resize_gets_notice() -> None:
    async def scenario(stand: Stand) -> None:
        repacker = repacker_of(stand, Pace(grace=60.0))
        one = owner("one", 4)
        await stand.run(one)
        directory = notices_of(stand, one)
        resizing = asyncio.create_task(repacker.resize(one.ref(one.containers[0]), 2))
        await until(lambda: (directory / "next").read_text() == "2 1-2 0\n", "the resize is announced")
        assert len(stand.cpus(one, "app")) == 4
        (directory / "ack").write_text("2")
        assert str(await resizing) == "1-2"

    play(stand_of("simulated"), scenario)


def test_an_ack_that_is_written_without_end_is_looked_at_at_a_pace_and_those_of_others_count() -> None:
    async def scenario(stand: Stand) -> None:
        repacker = repacker_of(stand, Pace(grace=0.5))
        hostile, other = owner("hostile", 4), owner("other", 4)
        for one in (hostile, other):
            await stand.run(one)
        refs = [one.ref(one.containers[0]) for one in (hostile, other)]
        writing = asyncio.create_task(write_without_end(notices_of(stand, hostile) / "ack"))
        looks = CountingNotices.looks
        await repacker.resize(refs[0], 2)
        assert CountingNotices.looks - looks <= 0.5 / 0.05 + 1
        waiting = asyncio.create_task(repacker.resize(refs[1], 2))
        theirs = notices_of(stand, other)
        await until(lambda: bool((theirs / "next").read_text()), "the resize of the other is announced")
        (theirs / "ack").write_text("2\n")
        looks = CountingNotices.looks
        await waiting
        assert CountingNotices.looks - looks <= 1
        writing.cancel()
        assert stand.daemon.told("notice-failed") == []

    play(stand_of("simulated"), scenario)


def test_an_ack_that_takes_room_on_the_disk_is_emptied_at_each_check_and_told_once() -> None:
    async def scenario(stand: Stand) -> None:
        repacker_of(stand)
        one = owner("one", 2)
        await stand.run(one)
        ack = notices_of(stand, one) / "ack"
        for _ in range(3):
            ack.write_bytes(b"1\n" * 100_000)
            await checked(stand)
            assert ack.read_bytes() == b""
        (told,) = stand.daemon.told("notice-failed")
        assert str(ack) in str(told.fields["why"])

    play(stand_of("simulated"), scenario)


def test_notices_that_cannot_be_written_keep_no_other_container_from_its_own_and_are_written_later() -> None:
    async def scenario(stand: Stand) -> None:
        repacker = repacker_of(stand)
        broken, other = owner("broken", 4), owner("other", 4)
        for one in (broken, other):
            await stand.run(one)
        in_the_way = notices_of(stand, broken) / ".cpus.new"
        in_the_way.mkdir()
        for one in (broken, other):
            await repacker.resize(one.ref(one.containers[0]), 2)
        assert (notices_of(stand, other) / "cpus").read_text() == "5-6\n"
        await checked(stand)
        assert len(stand.daemon.told("notice-failed")) == 1
        in_the_way.rmdir()
        await checked(stand)
        assert (notices_of(stand, broken) / "cpus").read_text() == "1-2\n"

    play(stand_of("simulated"), scenario)


async def write_without_end(ack: Path) -> None:
    """Write numbers that are no answer, whenever the loop has nothing else to do."""
    for number in count(1000):
        ack.write_text(f"{number}\n")  # noqa: ASYNC240 - as quick as a file in memory
        await asyncio.sleep(0)


def test_over_nri_the_directory_is_mounted_into_containers_with_exclusive_cpus() -> None:
    async def scenario(stand: Stand) -> None:
        repacker_of(stand)
        one = owner("one", 2)
        await stand.run(one)
        found = stand.daemon.node.roster.find(one.ref(one.containers[0]))
        assert found is not None
        (pinning,) = (await NRISource(stand.daemon.node, stand.daemon.bus).updated(found)).values()
        adjustment = adjustment_of(pinning)
        assert [(mount.destination, mount.source, list(mount.options)) for mount in adjustment.mounts] == [
            ("/run/pinfold", str(notices_of(stand, one)), ["rbind", "ro"]),
            ("/run/pinfold/ack", str(notices_of(stand, one) / "ack"), ["bind", "rw"]),
        ]
        assert [(one.key, one.value) for one in adjustment.env] == [("PINFOLD_STATE_DIR", "/run/pinfold")]

    play(stand_of("nri"), scenario)


def notices_of(stand: Stand, pod: Pod) -> Path:
    return stand.directory / "notices" / f"{pod.uid}_app"
