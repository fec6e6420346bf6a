"""StateStore on a disk that is slow, and on files that cannot be used."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import pytest

from pinfold.core.config import Config, Reservation
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.machine.presets import from_shape
from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.core.state import State
from pinfold.errors import StateError
from pinfold.manager.saving.savedfile import SavedFile
from pinfold.manager.saving.store import FILE, StateStore
from tests.now import now
from tests.unit.manager.test_manager import ADMITTER, FIRST, ONE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_P = ParamSpec("_P")
_T = TypeVar("_T")
POLICY = ADMITTER.policy
NEXT = ADMITTER.admit(FIRST, ONE).state


class SlowDisk(ThreadPoolExecutor):
    """A disk that takes nothing while it is `stuck`."""

    def __init__(self) -> None:
        super().__init__(1)
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.writes = 0

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        def later() -> _T:
            assert self.goes_on.wait(30)
            self.writes += 1
            return fn(*args, **kwargs)

        return super().submit(later)


@pytest.fixture
def disk() -> Iterator[SlowDisk]:
    with SlowDisk() as disk:
        yield disk


def test_a_disk_that_keeps_us_waiting_is_an_error_and_the_last_state_stays(tmp_path: Path, disk: SlowDisk) -> None:
    store = StateStore(tmp_path, POLICY, disk=disk, patience=1)

    async def scenario() -> None:
        await store.save(FIRST)
        before = store.path.read_text()
        disk.goes_on.clear()
        with pytest.raises(StateError, match="the disk has not taken it within"):
            await store.save(NEXT)
        disk.goes_on.set()
        await StateStore(tmp_path, POLICY, disk=disk).save(FIRST)  # after all that waited for the disk
        assert store.path.read_text() == before

    asyncio.run(scenario())


def test_a_state_that_timed_out_and_is_saved_again_is_on_the_disk(tmp_path: Path, disk: SlowDisk) -> None:
    store = StateStore(tmp_path, POLICY, disk=disk, patience=1)

    async def scenario() -> None:
        await store.save(FIRST)
        disk.goes_on.clear()
        with pytest.raises(StateError):
            await store.save(NEXT)
        disk.goes_on.set()
        await store.save(NEXT)
        assert store.load({}).state == NEXT

    asyncio.run(scenario())


def test_the_loop_goes_on_while_the_disk_takes_a_state(tmp_path: Path, disk: SlowDisk) -> None:
    async def scenario() -> None:
        disk.goes_on.clear()
        saving = asyncio.create_task(StateStore(tmp_path, POLICY, disk=disk).save(FIRST))
        for _ in range(3):
            await asyncio.sleep(0.01)
        assert not saving.done()
        disk.goes_on.set()
        await saving

    asyncio.run(scenario())


def test_saves_that_come_during_a_write_share_the_next_one(tmp_path: Path, disk: SlowDisk) -> None:
    file = SavedFile(tmp_path / "file", disk)

    async def scenario() -> None:
        disk.goes_on.clear()
        first = asyncio.create_task(file.save("0"))
        await asyncio.sleep(0.01)
        others = [asyncio.create_task(file.save(str(number))) for number in range(1, 50)]
        await asyncio.sleep(0.01)
        disk.goes_on.set()
        await asyncio.gather(first, *others)

    asyncio.run(scenario())
    assert (disk.writes, file.path.read_text()) == (2, "49")


def test_what_the_disk_has_is_not_written_again(tmp_path: Path, disk: SlowDisk) -> None:
    store = StateStore(tmp_path, POLICY, disk=disk)

    async def scenario() -> None:
        for state in (NEXT, NEXT, FIRST, FIRST):
            await store.save(state)

    asyncio.run(scenario())
    assert disk.writes == 2


def test_a_damaged_file_is_kept_aside_and_running_containers_keep_their_cpus(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{")
    running = {PodUID("u"): {"app": CPUSet.of(3)}}
    loaded = StateStore(tmp_path, POLICY).load(running)
    assert loaded.state.cpus(PodUID("u"), "app") == CPUSet.of(3)
    assert loaded.problem is not None
    assert loaded.aside == tmp_path / f"{FILE}.bad-1"


def test_a_running_container_that_the_file_does_not_know_keeps_its_cpus(tmp_path: Path) -> None:
    store = StateStore(tmp_path, POLICY)
    now(store.save(NEXT))
    running = {PodUID("u"): {"app": CPUSet.of(3)}}
    loaded = store.load(running)
    assert loaded.state.cpus(PodUID("u"), "app") == CPUSet.of(3)
    assert loaded.state.cpus(ONE.uid, "app") == NEXT.cpus(ONE.uid, "app")
    assert loaded.problem is None


def test_a_container_in_the_file_keeps_its_cpus_beside_one_that_another_program_has_put_apart(tmp_path: Path) -> None:
    policy = (
        Config("static", {"strict-cpu-reservation": "true"}, reserved=Reservation.of(CPUSet.of(0)))
        .build(from_shape("cores:6"))
        .policy
    )
    store, pod, other = StateStore(tmp_path, policy), PodUID("u"), PodUID("v")
    saved = State(CPUSet.parse("1-2"), {pod: {"second": CPUSet.parse("3-4")}, other: {"third": CPUSet.of(5)}})
    now(store.save(saved))
    # All CPUs of the pool are those of a container that is not in the file: not all can stay.
    running = {pod: {"first": CPUSet.parse("1-2"), "second": CPUSet.parse("3-4")}, other: {"third": CPUSet.of(5)}}
    loaded = store.load(running)
    assert loaded.state == saved
    assert loaded.lost == {ContainerRef(pod, "first"): CPUSet.parse("1-2")}


def test_containers_that_are_not_in_the_file_stay_as_far_as_those_in_it_leave_room(tmp_path: Path) -> None:
    store, pod = StateStore(tmp_path, POLICY), PodUID("u")
    now(store.save(NEXT))
    ((ref, own),) = NEXT.flat()
    running = {pod: {"same": own, "free": CPUSet.of(3)}, ref.pod: {ref.name: own}}
    loaded = store.load(running)
    assert dict(loaded.state.flat()) == {ref: own, ContainerRef(pod, "free"): CPUSet.of(3)}
    assert loaded.lost == {ContainerRef(pod, "same"): own}
