"""Notices: what containers read of their CPUs, and what an `ack` of any kind can do."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.node.notices import ContainerPlace, Notices

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

REF = ContainerRef(PodUID("u1"), "app")
HERE = ContainerPlace(CPUSet.parse("2-3"), CPUSet.of(0))
THERE = ContainerPlace(CPUSet.parse("4-5"), CPUSet.of(1))


def read(notices: Notices, name: str) -> str:
    return (notices.path(REF) / name).read_text()


def test_a_container_reads_where_it_is_and_where_it_will_be(tmp_path: Path) -> None:
    notices = Notices(tmp_path)
    notices.show(REF, HERE)
    assert [read(notices, name) for name in ("cpus", "mems", "generation", "next")] == ["2-3\n", "0\n", "1\n", ""]
    notices.announce(REF, THERE)
    assert read(notices, "next") == "2 4-5 1\n"
    notices.show(REF, THERE)
    assert [read(notices, name) for name in ("cpus", "mems", "generation", "next")] == ["4-5\n", "1\n", "2\n", ""]


def test_showing_the_same_place_again_writes_nothing(tmp_path: Path) -> None:
    notices = Notices(tmp_path)
    notices.show(REF, HERE)
    before = (notices.path(REF) / "cpus").stat().st_ino
    notices.show(REF, HERE)
    assert (notices.path(REF) / "cpus").stat().st_ino == before


def test_generations_go_on_after_a_restart_of_the_daemon(tmp_path: Path) -> None:
    Notices(tmp_path).show(REF, HERE)
    again = Notices(tmp_path)
    again.show(REF, THERE)
    assert read(again, "generation") == "2\n"


def test_only_the_generation_of_the_announced_change_is_an_acknowledgement(tmp_path: Path) -> None:
    notices = Notices(tmp_path)
    notices.show(REF, HERE)
    notices.announce(REF, THERE)
    for text, counts in (("", False), ("1", False), ("2\n", True), ("02", True), ("3", False)):
        (notices.path(REF) / "ack").write_text(text)
        assert notices.is_acknowledged(REF) is counts
    notices.announce(REF, THERE)
    assert not notices.is_acknowledged(REF), "an earlier acknowledgement does not count"


def missing(_ack: Path) -> None:
    """Leave it away."""


def huge(ack: Path) -> None:
    with ack.open("wb") as file:
        file.truncate(1 << 40)


def garbage(ack: Path) -> None:
    ack.write_bytes(b"\xff\x00 2 \n" * 100)


def link_to_a_secret(ack: Path) -> None:
    (ack.parents[1] / "secret").write_text("2\n")
    ack.symlink_to(ack.parents[1] / "secret")


def link_to_itself(ack: Path) -> None:
    ack.symlink_to(ack)


def directory(ack: Path) -> None:
    ack.mkdir()


def pipe_without_a_writer(ack: Path) -> None:
    os.mkfifo(ack)


@pytest.mark.parametrize(
    "make", [missing, huge, garbage, link_to_a_secret, link_to_itself, directory, pipe_without_a_writer]
)
def test_a_hostile_ack_does_not_count_and_stops_nothing(tmp_path: Path, make: Callable[[Path], None]) -> None:
    notices = Notices(tmp_path / "notices")
    notices.show(REF, HERE)
    ack = notices.path(REF) / "ack"
    ack.unlink()
    make(ack)
    notices.announce(REF, THERE)
    if make is link_to_a_secret:
        assert (tmp_path / "notices" / "secret").read_text() == "2\n", "a link is not followed"
    assert not notices.is_acknowledged(REF)
    notices.show(REF, THERE)
    assert read(notices, "cpus") == "4-5\n"
    notices.retain(())
    assert not notices.path(REF).exists()


def test_an_ack_that_takes_room_on_the_disk_is_emptied(tmp_path: Path) -> None:
    notices = Notices(tmp_path)
    notices.show(REF, HERE)
    ack = notices.path(REF) / "ack"
    ack.write_bytes(b"2\n")
    assert notices.empty_if_large(REF) == 0
    assert ack.read_bytes() == b"2\n"
    ack.write_bytes(b"2\n" * 100_000)
    assert notices.empty_if_large(REF) >= 200_000
    assert (ack.stat().st_size, ack.stat().st_blocks) == (0, 0)
    ack.unlink()
    (tmp_path / "victim").write_bytes(b"x" * 200_000)
    ack.symlink_to(tmp_path / "victim")
    assert notices.empty_if_large(REF) == 0
    assert (tmp_path / "victim").stat().st_size == 200_000, "a link is not followed"


def test_a_pipe_in_place_of_a_generation_makes_no_one_wait(tmp_path: Path) -> None:
    Notices(tmp_path).show(REF, HERE)
    generation = Notices(tmp_path).path(REF) / "generation"
    generation.unlink()
    os.mkfifo(generation)
    Notices(tmp_path).show(REF, THERE)
    assert generation.read_text() == "1\n"


def test_directories_of_containers_that_are_gone_are_removed_also_those_of_an_earlier_daemon(tmp_path: Path) -> None:
    gone = ContainerRef(PodUID("u2"), "app")
    Notices(tmp_path).show(gone, HERE)
    notices = Notices(tmp_path)
    notices.show(REF, HERE)
    notices.retain([REF])
    assert [path.name for path in tmp_path.iterdir()] == [notices.path(REF).name]


@pytest.mark.parametrize("uid", ["..", "a/../../b", "x" * 100])
def test_a_hostile_uid_stays_below_the_directory(tmp_path: Path, uid: str) -> None:
    notices = Notices(tmp_path / "notices")
    notices.show(ContainerRef(PodUID(uid), "app"), HERE)
    assert [path.name for path in tmp_path.iterdir()] == ["notices"]


def test_the_workload_may_write_its_ack_and_nothing_else(tmp_path: Path) -> None:
    notices = Notices(tmp_path)
    notices.show(REF, HERE)
    modes = {path.name: path.stat().st_mode & 0o777 for path in notices.path(REF).iterdir()}
    assert modes.pop("ack") == 0o666
    assert set(modes.values()) <= {0o644, 0o600, 0o640}
