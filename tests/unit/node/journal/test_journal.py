"""The journal on a real disk: no written entry is lost, and no error stops the daemon."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pinfold.core.events.entries import Entry
from pinfold.core.events.timeline import owners_of, state_at
from pinfold.node.journal.files import Archive, JournalError
from pinfold.node.journal.hands import hands
from pinfold.node.journal.journal import Journal
from tests.needs import lacking

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).parents[4] / "src"
NOW = 1_700_000_000.0
DAY = 86400.0

# Appends until it is killed, and says the number of each entry once it is kept.
WRITER = """
import sys, time
from pathlib import Path
from pinfold.core.events.entries import Entry
from pinfold.node.journal.journal import Journal

journal = Journal(Path(sys.argv[1]), clock=time.time, tell=print, max_bytes=8 << 20)
for number in range(journal.last + 1, 1_000_000):
    journal.append(Entry(number, time.time(), "state", {"shared": "0", "exclusive": {"a/b/c": str(number % 50)}}))
    print(number, flush=True)
"""


class Clock:
    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Opened:
    """A journal, and what it told."""

    def __init__(
        self, directory: Path, *, max_bytes: int = 64 << 20, max_age: float = 30 * DAY, clock: Clock | None = None
    ) -> None:
        self.clock = clock or Clock()
        self.told: list[str] = []
        self.journal = Journal(directory, clock=self.clock, tell=self.told.append, max_bytes=max_bytes, max_age=max_age)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def note(number: int, time: float | None = None, **fields: object) -> Entry:
    return Entry(number, NOW + number if time is None else time, "note", fields)


def state(number: int, *owners: str, time: float | None = None) -> Entry:
    exclusive = {f"default/{owner}/app": str(index + 1) for index, owner in enumerate(owners)}
    return Entry(number, NOW + number if time is None else time, "state", {"shared": "0", "exclusive": exclusive})


def files(directory: Path) -> list[Path]:
    return sorted(directory.iterdir())


def total(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


@contextmanager
def tmpfs(directory: Path, size: str = "64k") -> Iterator[Path]:
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        lacking("permission to mount")
    try:
        yield directory
    finally:
        subprocess.run(["umount", str(directory)], check=True)


def test_entries_come_back_in_order_also_after_a_restart(directory: Path) -> None:
    first = Opened(directory).journal
    first.append(note(1, pod="web"))
    first.append(state(2, "web"))
    first.close()
    second = Opened(directory).journal
    assert second.last == 2
    second.append(note(3))
    assert list(second.entries()) == [note(1, pod="web"), state(2, "web"), note(3)]
    assert len(files(directory)) == 1


def test_a_new_journal_is_empty_and_only_its_owner_may_read_it(directory: Path) -> None:
    journal = Opened(directory).journal
    assert (journal.last, journal.first(), list(journal.entries())) == (0, None, [])
    journal.append(note(1))
    assert directory.stat().st_mode & 0o777 == 0o700
    assert files(directory)[0].stat().st_mode & 0o777 == 0o600


def test_an_entry_can_be_read_as_soon_as_it_is_appended(directory: Path) -> None:
    journal, reader = Opened(directory).journal, Archive(directory)
    for number in range(1, 20):
        journal.append(note(number))
        assert [entry.number for entry in reader.entries()] == list(range(1, number + 1))


def test_a_torn_last_line_is_cut_off_and_numbers_go_on(directory: Path) -> None:
    journal = Opened(directory).journal
    for number in (1, 2, 3):
        journal.append(note(number))
    journal.close()
    path = files(directory)[0]
    os.truncate(path, path.stat().st_size - 5)
    again = Opened(directory)
    assert again.journal.last == 2
    again.journal.append(note(3, second=True))
    assert list(again.journal.entries()) == [note(1), note(2), note(3, second=True)]
    assert again.told == []


def test_a_reader_cuts_nothing_off(directory: Path) -> None:
    Opened(directory).journal.append(note(1))
    path = files(directory)[0]
    with path.open("ab") as file:
        file.write(b"half an en")
    before = path.read_bytes()
    assert list(Archive(directory).entries()) == [note(1)]
    assert path.read_bytes() == before


def test_numbers_go_on_even_if_all_lines_are_damaged(directory: Path) -> None:
    journal = Opened(directory).journal
    for number in (7, 8, 9):
        journal.append(note(number))
    journal.close()
    path = files(directory)[0]
    path.write_bytes(path.read_bytes().replace(b"note", b"nope"))
    again = Opened(directory).journal
    assert (again.last, again.damaged) == (9, 3)
    again.append(note(10))
    assert list(again.entries()) == [note(10)]


def test_a_killed_writer_loses_nothing_that_it_has_appended(directory: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(directory)], stdout=subprocess.PIPE, text=True, env=environment
        ) as process:
            assert process.stdout is not None
            said = [int(process.stdout.readline()) for _ in range(300)]
            process.send_signal(signal.SIGKILL)
            said += map(int, process.stdout.read().split())
        found = [entry.number for entry in Archive(directory).entries()]
        assert found == list(range(1, len(found) + 1))
        assert said[-1] <= found[-1] <= said[-1] + 1


def test_whole_files_are_dropped_to_stay_within_the_bytes(directory: Path) -> None:
    journal = Opened(directory, max_bytes=20_000).journal
    for number in range(1, 2000):
        journal.append(note(number, text="x" * (number % 50)))
        assert total(directory) == journal.bytes <= 20_000
    kept = [entry.number for entry in journal.entries()]
    assert kept == list(range(kept[0], 2000))
    assert len(kept) > 100
    assert (journal.lost, journal.first()) == (0, NOW + kept[0])


def test_the_last_state_outlives_the_file_it_was_in(directory: Path) -> None:
    journal = Opened(directory, max_bytes=20_000).journal
    journal.append(state(1, "web"))
    for number in range(2, 2000):
        journal.append(note(number))
    found = list(journal.entries())
    assert found[0] == state(1, "web")
    assert found[1].number > 1000
    assert journal.state_at(NOW + 5000).data()["exclusive"] == {"default/web/app": "1"}
    assert journal.first() == found[1].time


def test_what_is_too_old_is_dropped(directory: Path) -> None:
    opened = Opened(directory, max_age=30 * DAY)
    for number in range(1, 101):
        opened.clock.now = NOW + number * DAY
        opened.journal.append(note(number, opened.clock.now))
    kept = [entry.number for entry in opened.journal.entries()]
    assert kept == list(range(kept[0], 101))
    assert 100 - 32 <= kept[0] <= 100 - 28


def test_what_has_become_too_old_meanwhile_is_dropped_once_the_clock_has_gone_on(directory: Path) -> None:
    opened = Opened(directory, max_bytes=5000)
    for number in range(1, 50):
        opened.journal.append(note(number))
    opened.journal.close()
    later = Opened(directory, max_bytes=5000, clock=Clock(NOW + 90 * DAY))
    for number in range(50, 54):
        later.journal.append(note(number, later.clock.now))
        later.clock.now += DAY
    assert next(entry.number for entry in later.journal.entries()) == 1
    later.journal.append(note(54, later.clock.now))
    assert [entry.number for entry in later.journal.entries()] == [49, 50, 51, 52, 53, 54]


@pytest.mark.parametrize("wrong", [-15_000 * DAY, -40 * DAY, 40 * DAY, 3650 * DAY], ids=lambda by: f"{by / DAY:+.0f}d")
def test_one_start_with_a_wrong_clock_drops_nothing(directory: Path, wrong: float) -> None:
    opened = Opened(directory)
    for number in range(1, 29):
        opened.clock.now = NOW + number * DAY
        opened.journal.append(note(number, opened.clock.now))
    opened.journal.close()
    for number, now in ((29, NOW + 28 * DAY + wrong), (30, NOW + 28 * DAY + wrong + 60), (31, NOW + 28 * DAY + 300)):
        again = Opened(directory, clock=Clock(now))
        again.journal.append(note(number, now))
        again.journal.close()
    assert [entry.number for entry in again.journal.entries()] == list(range(1, 32))


def test_after_a_start_with_a_wrong_clock_the_right_one_drops_what_is_too_old(directory: Path) -> None:
    opened = Opened(directory)
    for number, day in enumerate([*range(20), 4000, *range(21, 60)], 1):
        opened.clock.now = NOW + day * DAY
        opened.journal.append(note(number, opened.clock.now))
    kept = [entry.number for entry in opened.journal.entries()]
    assert kept == list(range(kept[0], 61))
    assert 28 <= kept[0] <= 32


def test_a_clock_that_was_wrong_does_not_keep_files_for_ever(directory: Path) -> None:
    opened = Opened(directory)
    opened.journal.append(state(1, "web", time=NOW + 10_000 * DAY))
    for number in range(2, 70):
        opened.clock.now = NOW + number * DAY
        opened.journal.append(note(number, opened.clock.now))
    assert [entry.number for entry in opened.journal.entries()][:2] != [1, 2]


def test_questions_read_only_the_files_they_need_and_get_all_of_it(directory: Path) -> None:
    journal = Opened(directory, max_bytes=64 * 500).journal
    entries = [note(number) if number % 3 else state(number, f"pod-{number % 7}") for number in range(1, 300)]
    for entry in entries:
        journal.append(entry)
    assert len(files(directory)) > 20
    for start, end in ((0, 10), (5, 5), (100, 150), (290, 400), (400, 500)):
        wanted = [entry for entry in entries if NOW + start <= entry.time <= NOW + end]
        assert list(journal.entries(since=NOW + start, until=NOW + end)) == wanted
    for number in (0, 1, 7, 150, 298, 299, 300):
        assert list(journal.entries(number_after=number)) == entries[number:]
        assert list(journal.entries(number_after=number, limit=4)) == entries[number : number + 4]
        assert journal.state_at(NOW + number) == state_at(entries, NOW + number)


def test_an_owner_who_stays_while_others_come_and_go_is_found_at_any_time(directory: Path) -> None:
    journal = Opened(directory, max_bytes=64 * 5000).journal
    entries = [state(1), state(2, "stays")]
    entries += [
        state(number, "stays", *(f"pod-{number % 5}-{index}" for index in range(number % 4)))
        for number in range(3, 900)
    ]
    entries += [state(900), state(901, "other"), note(902)]
    for entry in entries:
        journal.append(entry)
    assert len(files(directory)) > 20
    for number in (1, 2, 3, 450, 899, 900, 901, 950):
        time = NOW + number
        assert hands(directory, 1, time, time) == owners_of(entries, 1, time, time)
        assert hands(directory, 3, time, time) == owners_of(entries, 3, time, time)
    assert hands(directory, 1) == owners_of(entries, 1)


def test_after_the_clock_was_set_back_all_questions_still_get_all_of_it(directory: Path) -> None:
    journal = Opened(directory, max_bytes=64 * 2000).journal
    times = [*range(0, 4000, 40), *range(2000, 6000, 40), 0, *range(5000, 5100)]
    entries = [state(number, f"pod-{number}", time=NOW + time) for number, time in enumerate(times, 1)]
    for entry in entries:
        journal.append(entry)
    for start in range(0, 6100, 350):
        wanted = [entry for entry in entries if NOW + start <= entry.time <= NOW + start + 300]
        assert list(journal.entries(since=NOW + start, until=NOW + start + 300)) == wanted
        assert journal.state_at(NOW + start) == state_at(entries, NOW + start)


def test_a_full_disk_is_counted_and_told_once_and_never_raised(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk") as disk:
        opened = Opened(disk / "journal", max_bytes=16 << 20)
        journal = opened.journal
        for number in range(1, 400):
            journal.append(note(number, text="x" * 1000))
        assert journal.lost > 100
        assert len(opened.told) == 1
        assert "is not kept: No space left on device" in opened.told[0]
        kept = [entry.number for entry in journal.entries()]
        assert kept == list(range(1, len(kept) + 1))
        assert Archive(disk / "journal").latest(lambda _: True) == note(kept[-1], text="x" * 1000)
        journal.close()


def test_it_goes_on_when_there_is_room_again(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk") as disk:
        filler = disk / "filler"
        journal = Opened(disk / "journal").journal
        journal.append(state(1, "a"))
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(b"x" * 512):
                pass
        number = 2
        while not journal.lost:
            journal.append(state(number, "a", f"pod-{number}"))
            number += 1
        filler.unlink()
        journal.append(state(number, "b"))
        assert list(journal.entries())[-1] == state(number, "b")
        journal.close()


def test_half_a_write_is_taken_back(directory: Path) -> None:
    """A limit on the size of files lets the kernel write a part of an entry."""
    journal = Opened(directory).journal
    journal.append(note(1))
    size = files(directory)[0].stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, hard))
    try:
        journal.append(note(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (journal.lost, files(directory)[0].stat().st_size) == (1, size)
    journal.append(note(3))
    assert list(journal.entries()) == [note(1), note(3)]


def test_a_place_that_cannot_be_a_journal_is_told_and_survived(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    opened = Opened(tmp_path / "file" / "journal")
    for number in range(1, 10):
        opened.journal.append(note(number))
    assert opened.journal.lost == 9
    assert len(opened.told) == 1
    assert "the journal cannot be opened: Not a directory" in opened.told[0]
    opened.journal.close()


def test_what_still_goes_wrong_is_told_again_after_an_hour(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    opened = Opened(tmp_path / "file" / "journal")
    opened.clock.now += 3599
    opened.journal.append(note(1))
    assert len(opened.told) == 1
    opened.clock.now += 1
    opened.journal.append(note(2))
    assert len(opened.told) == 2


def test_a_reporter_of_problems_may_append_them(directory: Path) -> None:
    told: list[int] = []

    def tell(_problem: str) -> None:
        told.append(journal.last)
        journal.append(note(journal.last + 1, text="lost one"))

    journal = Journal(directory, clock=Clock(), tell=tell)
    journal.append(note(1, bad=float("nan")))
    assert (journal.lost, told) == (1, [0])


def test_a_number_that_does_not_go_up_is_not_kept(directory: Path) -> None:
    opened = Opened(directory)
    for number in (5, 5, 4, 6):
        opened.journal.append(note(number))
    assert [entry.number for entry in opened.journal.entries()] == [5, 6]
    assert opened.journal.lost == 2
    assert "entry 5 is not kept: its number is not above 5" in opened.told[0]


def test_a_removed_journal_is_begun_again(directory: Path) -> None:
    journal = Opened(directory).journal
    journal.append(state(1, "web"))
    journal.append(note(2))
    for path in files(directory):
        path.unlink()
    directory.rmdir()
    journal.append(note(3))
    assert list(journal.entries()) == [state(1, "web"), note(3)]
    assert journal.bytes == total(directory)


def test_an_entry_larger_than_the_whole_journal_is_lost_alone(directory: Path) -> None:
    opened = Opened(directory, max_bytes=2000)
    opened.journal.append(note(1))
    opened.journal.append(note(2, text="x" * 3000))
    opened.journal.append(note(3))
    assert opened.journal.lost == 1
    assert "all entries may have 2,000" in opened.told[0]
    assert list(opened.journal.entries())[-1] == note(3)


def test_strange_files_are_left_alone(directory: Path) -> None:
    directory.mkdir()
    names = ("notes.txt", "1-2.jsonl", "x-00000000000000000001-5.jsonl")
    for name in names:
        (directory / name).write_text("mine")
    os.mkfifo(directory / "00000000000000000003-7.jsonl")
    (directory / "00000000000000000004-7.jsonl").mkdir()
    (directory / "00000000000000000005-7.jsonl").symlink_to("notes.txt")
    before = files(directory)
    opened = Opened(directory)
    opened.journal.append(note(9))
    assert list(opened.journal.entries()) == [note(9)]
    assert opened.told == []
    assert set(before) < set(files(directory))
    assert all((directory / name).read_text() == "mine" for name in names)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_files_that_may_not_be_read_are_an_error_to_a_reader(directory: Path) -> None:
    Opened(directory).journal.append(note(1))
    files(directory)[0].chmod(0)
    with pytest.raises(JournalError, match="not read: Permission denied"):
        list(Archive(directory).entries())


def test_a_directory_that_is_none_is_an_error_to_a_reader(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="not read: Not a directory"):
        list(Archive(tmp_path / "file").entries())


def test_closing_twice_or_syncing_after_it_is_no_error(directory: Path) -> None:
    journal = Opened(directory).journal
    journal.append(note(1))
    journal.sync()
    journal.close()
    journal.sync()
    journal.close()


def test_a_file_of_nuls_is_kept_aside_and_reported(directory: Path) -> None:
    directory.mkdir()
    damaged = directory / f"{7:020}-{int(NOW)}.jsonl"
    damaged.write_bytes(bytes(4096))
    opened = Opened(directory)
    assert opened.told == [f"{damaged}: unreadable, as after a power failure; kept as {damaged.name}.bad-1"]
    assert (directory / f"{damaged.name}.bad-1").read_bytes() == bytes(4096)
    opened.journal.append(note(8))
    assert [entry.number for entry in Archive(directory).entries()] == [8]
