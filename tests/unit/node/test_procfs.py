"""Procfs: what /proc tells of a process that has been killed and still has to end."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from pinfold.node.procfs import PROC, Process, Procfs, Seen, age
from tests.needs import needs_root

if TYPE_CHECKING:
    from pathlib import Path

STAT = "7 (a) b) R 1 7 7 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0"
STATUS = "Name:\ta\nSigPnd:\t{thread}\nShdPnd:\t{process}\nSigBlk:\t0000000000000100\n"
NONE, KILL, TERM = "0000000000000000", "0000000000000100", "0000000000004000"


@pytest.mark.parametrize(
    ("flags", "thread", "process", "ending"),
    [
        (4194304, NONE, NONE, False),
        (4194304 | 4, NONE, NONE, True),
        (4194304, KILL, NONE, True),
        (4194304, NONE, KILL, True),
        (4194304, TERM, TERM, False),
    ],
    ids=["runs", "exits", "killed", "killed with its threads", "told to end"],
)
def test_a_process_that_was_killed_or_exits_is_ending(
    tmp_path: Path, flags: int, thread: str, process: str, *, ending: bool
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/stat").write_text(STAT.format(flags=flags))
    (tmp_path / "7/status").write_text(STATUS.format(thread=thread, process=process))
    assert Procfs(tmp_path).is_ending(7) is ending


def test_this_process_is_not_ending_and_one_that_is_not_there_neither(tmp_path: Path) -> None:
    assert not PROC.is_ending(os.getpid())
    assert not Procfs(tmp_path).is_ending(7)


def test_a_process_cannot_name_itself_so_that_it_looks_dead_or_has_another_parent(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text(STAT.replace("(a) b)", "(x) Z 4242 () R 99 9)").format(flags=0))
    assert Procfs(tmp_path).process(7) == Seen(Process(7, 4711), parent=1)


def test_a_known_process_is_not_read_again_but_a_later_one_of_its_number_is(tmp_path: Path) -> None:
    procfs, directory = Procfs(tmp_path), tmp_path / "7"
    directory.mkdir()
    (directory / "stat").write_text(STAT.format(flags=0))
    known = procfs.processes()
    assert known[7].process == Process(7, 4711)
    (directory / "stat").write_text(STAT.format(flags=0).replace("R 1", "R 9"))
    assert procfs.processes(known) == known
    directory.rename(tmp_path / "ended")  # so that its inode is not used again
    directory.mkdir()
    (directory / "stat").write_text(STAT.format(flags=0).replace("4711", "4712"))
    assert procfs.processes(known)[7].process == Process(7, 4712)


@pytest.mark.parametrize(
    ("flags", "place", "told"),
    [(0, "0 0", ()), (0, "64 96", (b"64", b"96")), (0x200000, "0 0", (b"0", b"0"))],
    ids=["another user's", "ours", "kernel thread"],
)
def test_that_a_kernel_thread_has_no_environment_is_told_but_not_where_that_of_another_user_is(
    tmp_path: Path, flags: int, place: str, told: tuple[bytes, ...]
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text(f"{STAT.format(flags=flags)}{' 0' * 25} {place} 0")
    assert Procfs(tmp_path).process(7) == Seen(Process(7, 4711), parent=1, environment=told)


def test_a_process_is_as_old_as_the_time_since_boot_says(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text(STAT.format(flags=0))
    assert age(7, Procfs(tmp_path)) == 0
    (tmp_path / "uptime").write_text("50.11 90.00\n")
    assert age(7, Procfs(tmp_path)) == pytest.approx(50.11 - 4711 / os.sysconf("SC_CLK_TCK"))
    assert age(8, Procfs(tmp_path)) == 0


@needs_root
def test_marks_in_the_environment_of_another_users_process_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "environ").write_bytes(b"PINFOLD_TREE=pinfold\0A=1")
    assert Procfs(tmp_path).own_environment(7) == [b"PINFOLD_TREE=pinfold", b"A=1"]
    os.chown(tmp_path / "7", 12345, -1)
    assert Procfs(tmp_path).own_environment(7) == []
