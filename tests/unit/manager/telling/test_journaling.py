"""Journaling: entries are written by a thread; a disk that takes nothing delays no one."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import count
from typing import TYPE_CHECKING, TypeVar

import pytest

from pinfold.core.events.entries import Entry
from pinfold.manager.telling.journaling import Journaling
from pinfold.node.journal.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future
    from pathlib import Path

_T = TypeVar("_T")

MOST = 20


class Stuck(Journal):
    """A journal whose disk takes nothing until it is let go."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, clock=lambda: 1000.0, tell=print)
        self.free = threading.Event()

    def append(self, entry: Entry) -> None:
        assert self.free.wait(60)
        super().append(entry)


class Stand:
    """A journal that is written by a thread."""

    def __init__(self, directory: Path, disk: ThreadPoolExecutor) -> None:
        self.journal = Stuck(directory)
        self.told: list[str] = []
        self.journaling = Journaling(self.journal, disk, self.told.append, MOST)
        self._numbers = count(1)

    def keep(self, entries: int = 1) -> None:
        for _ in range(entries):
            self.journaling.keep(Entry(next(self._numbers), 1000.0, "warned", {"text": "x"}))

    @property
    def numbers(self) -> list[int]:
        return [entry.number for entry in self.journal.entries()]


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    with ThreadPoolExecutor(1) as disk:
        stand = Stand(tmp_path / "journal", disk)
        yield stand
        stand.journal.free.set()


def test_entries_are_in_the_file_in_their_order_when_they_are_written(stand: Stand) -> None:
    stand.journal.free.set()
    stand.keep(MOST - 1)
    asyncio.run(stand.journaling.written())
    assert stand.numbers == [*range(1, MOST)]
    assert not stand.journaling.lost


def test_entries_wait_for_a_disk_that_takes_nothing_and_no_one_waits_with_them(stand: Stand) -> None:
    stand.keep(3)
    assert stand.numbers == []
    stand.journal.free.set()
    asyncio.run(stand.journaling.written())
    assert stand.numbers == [1, 2, 3]


def test_entries_beyond_what_may_wait_are_lost_and_counted_and_that_is_told_once_each_time(stand: Stand) -> None:
    full = f"the disk has not taken the last {MOST} entries yet"
    for time in (1, 2):
        lost = stand.journaling.lost
        stand.keep(MOST + 5)  # the thread has taken one of them, or none yet
        assert stand.journaling.lost - lost in {4, 5}
        assert stand.told == [full] * time
        stand.journal.free.set()
        asyncio.run(stand.journaling.written())
        assert len(stand.numbers) + stand.journaling.lost == time * (MOST + 5)
        stand.journal.free.clear()


def test_a_reader_waits_for_a_stuck_disk_for_a_second_only(stand: Stand) -> None:
    stand.keep()
    asyncio.run(stand.journaling.written())
    assert stand.numbers == []


def test_closing_writes_what_waits(stand: Stand) -> None:
    stand.journal.free.set()
    stand.keep(5)
    stand.journaling.close()
    assert stand.numbers == [1, 2, 3, 4, 5]


class NoThread(ThreadPoolExecutor):
    """No thread can be started, for a while."""

    works = False

    def _adjust_thread_count(self) -> None:
        if not self.works:
            raise RuntimeError("can't start new thread")
        super()._adjust_thread_count()


def test_entries_wait_for_a_thread_that_cannot_be_started_yet(tmp_path: Path) -> None:
    with NoThread(1) as disk:
        stand = Stand(tmp_path / "journal", disk)
        stand.journal.free.set()
        stand.keep(2)
        with pytest.raises(RuntimeError):
            asyncio.run(stand.journaling.sync())
        disk.works = True
        stand.keep()
        asyncio.run(stand.journaling.written())
        assert stand.numbers == [1, 2, 3]
        assert not stand.journaling.lost


def test_a_defect_of_the_journal_loses_one_entry_and_is_told(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    append = Journal.append

    def fails_for_two(journal: Journal, entry: Entry) -> None:
        if entry.number == 2:
            raise KeyError("a defect")
        append(journal, entry)

    monkeypatch.setattr(Journal, "append", fails_for_two)
    stand.journal.free.set()
    stand.keep(3)
    asyncio.run(stand.journaling.written())
    assert stand.numbers == [1, 3]
    assert stand.journaling.lost == 1
    assert stand.told == ["KeyError: 'a defect'"]


class Prompt(ThreadPoolExecutor):
    """A thread that is done before the one that calls it goes on."""

    def submit(self, fn: Callable[..., _T], /, *args: object, **kwargs: object) -> Future[_T]:
        working = super().submit(fn, *args, **kwargs)
        wait([working])
        return working


def test_entries_are_written_also_if_the_thread_is_quicker_than_the_caller(tmp_path: Path) -> None:
    with Prompt(1) as disk:
        stand = Stand(tmp_path / "journal", disk)
        stand.journal.free.set()
        for number in range(1, 4):
            stand.keep()
            assert stand.numbers == [*range(1, number + 1)]


def test_entries_that_come_together_are_appended_when_the_loop_has_had_its_turn(stand: Stand) -> None:
    stand.journal.free.set()

    async def scenario() -> None:
        stand.keep(3)
        await asyncio.sleep(0)
        assert stand.numbers == []
        await stand.journaling.written()
        assert stand.numbers == [1, 2, 3]

    asyncio.run(scenario())
