"""GroupWatch on plain directories: inotify tells the same of them as of cgroups, but for their end.

The kernel keeps the watch of a cgroup that was removed, as it does of a plain directory that is still open.
"""

from __future__ import annotations

import os
import select
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pinfold.node import groupwatch
from pinfold.node.groupwatch import GroupWatch, Heard, Places

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def top(tmp_path: Path) -> Path:
    for name in ("shared/u", "exclusive/u/app"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


@pytest.fixture
def watch(top: Path) -> Iterator[GroupWatch]:
    made = GroupWatch(Places([top, top / "shared"], [top / "exclusive"]))
    yield made
    made.close()


def heard(watch: GroupWatch) -> Heard:
    """Return what it hears; an event is there as soon as the write has returned."""
    return watch.heard() if select.select([watch.fileno()], [], [], 0)[0] else Heard.NOTHING


@contextmanager
def removed_as_a_cgroup(group: Path) -> Iterator[None]:
    """Remove a directory, and have the kernel keep what it knows of it."""
    descriptor = os.open(group, os.O_RDONLY | os.O_DIRECTORY)
    group.rmdir()
    yield
    os.close(descriptor)


def kept(watch: GroupWatch) -> int:
    """Return how many watches the kernel keeps."""
    return Path(f"/proc/self/fdinfo/{watch.fileno()}").read_text().count("inotify wd:")


@pytest.mark.parametrize(
    ("file", "about"),
    [
        ("shared/cpuset.cpus", Heard.CPUS),
        ("exclusive/u/app/cpuset.cpus", Heard.CPUS),
        ("exclusive/u/app/cpuset.cpus.partition", Heard.CPUS),
        ("exclusive/u/app/cgroup.procs", Heard.OTHERS),
        ("cpu.max", Heard.OTHERS),
        ("exclusive/u/app/cgroup.events", Heard.NOTHING),
        ("shared/u/cpu.max", Heard.NOTHING),
    ],
)
def test_a_write_is_heard_once_and_only_where_it_matters(watch: GroupWatch, top: Path, file: str, about: Heard) -> None:
    assert heard(watch) is Heard.NOTHING
    (top / file).write_text("0\n")
    assert heard(watch) is about
    assert heard(watch) is Heard.NOTHING


def test_reading_is_not_heard(watch: GroupWatch, top: Path) -> None:
    (top / "shared/cpuset.cpus").write_text("0\n")
    heard(watch)
    (top / "shared/cpuset.cpus").read_text()
    assert heard(watch) is Heard.NOTHING


def test_a_group_that_is_made_later_is_watched_with_those_below_it(watch: GroupWatch, top: Path) -> None:
    (top / "exclusive/v/app").mkdir(parents=True)
    assert heard(watch) is Heard.CPUS
    (top / "exclusive/v/app/cpuset.cpus").write_text("0\n")
    assert heard(watch) is Heard.CPUS


def test_a_group_that_is_removed_is_heard_and_forgotten(watch: GroupWatch, top: Path) -> None:
    (top / "exclusive/u/app").rmdir()
    assert heard(watch) is Heard.CPUS
    (top / "exclusive/u/app").mkdir()
    assert heard(watch) is Heard.CPUS
    (top / "exclusive/u/app/cpuset.cpus").write_text("0\n")
    assert heard(watch) is Heard.CPUS


def test_the_watch_of_a_removed_group_is_given_back(watch: GroupWatch, top: Path) -> None:
    group, before = top / "exclusive/u/app", kept(watch)
    with removed_as_a_cgroup(group):
        assert heard(watch) is Heard.CPUS
        assert not watch.has(group)
        assert kept(watch) == before - 1
        group.mkdir()
        assert heard(watch) is Heard.CPUS
        assert watch.has(group)
    assert heard(watch) is Heard.NOTHING
    assert watch.has(group)


def test_a_deep_group_that_is_removed_and_made_again_is_watched_again(watch: GroupWatch, top: Path) -> None:
    (top / "exclusive/u/app").rmdir()
    (top / "exclusive/u").rmdir()
    with removed_as_a_cgroup(top / "exclusive"):
        (top / "exclusive/v").mkdir(parents=True)
        assert heard(watch) is Heard.CPUS
    (top / "exclusive/v/cpuset.cpus").write_text("0\n")
    assert heard(watch) is Heard.CPUS


def test_after_lost_events_gone_groups_are_forgotten_and_new_ones_watched(watch: GroupWatch, top: Path) -> None:
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    with (top / "cpuset.cpus").open("wb", 0) as one, (top / "cpuset.mems").open("wb", 0) as other:
        for _ in range(most // 2 + 1):  # in turns: an event like the last one is not kept
            one.write(b"0")
            other.write(b"0")
    (top / "exclusive/late").mkdir()
    with removed_as_a_cgroup(top / "exclusive/u/app"):
        assert heard(watch) is Heard.CPUS | Heard.OTHERS
        assert watch.has(top / "exclusive/late")
        assert not watch.has(top / "exclusive/u/app")


def test_no_more_than_so_many_groups_are_watched(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groupwatch, "MOST", 4)
    watch = GroupWatch(Places([top], [top / "exclusive"]))
    for number in range(10):
        (top / f"exclusive/{number}").mkdir()
        assert heard(watch) is Heard.CPUS
    (top / "exclusive/9/cpuset.cpus").write_text("0\n")
    assert heard(watch) is Heard.NOTHING
    watch.close()


def test_a_group_that_is_not_there_is_not_watched(top: Path) -> None:
    watch = GroupWatch(Places([top / "gone"], []))
    assert heard(watch) is Heard.NOTHING
    watch.close()


def test_a_watched_group_is_quiet_until_something_is_written_there(watch: GroupWatch, top: Path) -> None:
    group = str(top / "exclusive/u/app")
    assert not watch.is_quiet(group)
    assert watch.is_quiet(group)
    (top / "exclusive/u/app/cpu.max").write_text("1\n")
    watch.listen()
    assert not watch.is_quiet(group)
    assert watch.is_quiet(group)


def test_a_group_that_is_not_watched_is_never_quiet(watch: GroupWatch, top: Path) -> None:
    assert [watch.is_quiet(str(top / "shared/u")) for _ in range(2)] == [False, False]


def test_a_group_that_was_removed_and_made_again_is_not_quiet(watch: GroupWatch, top: Path) -> None:
    group = top / "exclusive/u/app"
    watch.is_quiet(str(group))
    group.rmdir()
    group.mkdir()
    watch.listen()
    assert not watch.is_quiet(str(group))


def test_what_was_taken_in_for_quiet_groups_is_still_heard_and_wakes(watch: GroupWatch, top: Path) -> None:
    woken: list[None] = []
    watch.wake = lambda: woken.append(None)
    (top / "shared/cpuset.cpus").write_text("0\n")
    watch.listen()
    assert woken == [None]
    assert watch.heard() is Heard.CPUS
    watch.listen()
    assert woken == [None]


@pytest.fixture
def some(top: Path) -> Iterator[GroupWatch]:
    made = GroupWatch(Places([], [top]), {"cpuset.cpus", "cpu.max"})
    yield made
    made.close()


@pytest.mark.parametrize(
    ("file", "about"),
    [
        ("exclusive/u/app/cpuset.cpus", Heard.CPUS),
        ("exclusive/u/app/cpu.max", Heard.OTHERS),
        ("exclusive/u/app/cgroup.procs", Heard.NOTHING),
        ("exclusive/u/app/cpu.weight", Heard.NOTHING),
    ],
)
def test_of_some_files_only_these_are_heard(some: GroupWatch, top: Path, file: str, about: Heard) -> None:
    (top / file).write_text("0\n")
    assert some.heard() is about


def test_of_some_files_a_new_group_is_watched_and_only_its_end_is_heard(some: GroupWatch, top: Path) -> None:
    new = top / "shared/u/new"
    new.mkdir()
    assert some.heard() is Heard.NOTHING
    assert some.has(new)
    new.rmdir()
    assert some.heard() is Heard.CPUS
    assert not some.has(new)


def test_of_some_files_the_end_of_a_deep_group_is_heard_and_of_others_beside_it_not(top: Path) -> None:
    watch = GroupWatch(Places([top], [top / "exclusive/u", top / "shared"]), {"cpuset.cpus"})
    (top / "other").mkdir()
    (top / "other").rmdir()
    assert watch.heard() is Heard.NOTHING
    (top / "shared/u").rmdir()
    with removed_as_a_cgroup(top / "shared"):
        assert watch.heard() is Heard.CPUS
        assert not watch.has(top / "shared")
    watch.close()


def test_events_are_counted(some: GroupWatch, top: Path) -> None:
    before = some.listen()
    assert some.listen() == before
    (top / "cpuset.cpus").write_text("0\n")
    assert some.listen() > before


def test_too_many_groups_are_told(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groupwatch, "MOST", 2)
    watch = GroupWatch(Places([], [top]))
    assert watch.is_partial
    watch.close()
