"""Outputs: what containers print is kept within bounds, and nothing else is touched."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from pinfold.node.outputs import OutputLimits, Outputs

if TYPE_CHECKING:
    from pathlib import Path

KIB = 1 << 10
LIMITS = OutputLimits(256 * KIB, 1 << 30)


def size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


def test_the_end_of_an_output_that_is_too_long_is_kept_and_its_container_goes_on(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path / "logs", LIMITS)
    with outputs.open("a.log") as out:
        out.write(b"x" * 300 * KIB + b"end")
        outputs.look(["a.log"])
        out.write(b"more")
    assert (tmp_path / "logs/a.log").read_bytes() == b"more"
    assert (tmp_path / "logs/a.log.1").read_bytes().endswith(b"xend")
    assert size(tmp_path / "logs") <= LIMITS.each


def test_a_short_output_is_left_alone(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path, LIMITS)
    with outputs.open("a.log") as out:
        out.write(b"x" * 100 * KIB)
    outputs.look([])
    assert [path.name for path in tmp_path.iterdir()] == ["a.log"]


def test_many_containers_share_what_all_together_may_keep(tmp_path: Path) -> None:
    outputs, names = Outputs(tmp_path, OutputLimits(1 << 20, 2 << 20)), [f"{number}.log" for number in range(16)]
    for name in names:
        with outputs.open(name) as out:
            out.write(b"x" * 500 * KIB)
    outputs.look(names)
    assert size(tmp_path) <= 2 << 20


def test_outputs_of_the_last_hundred_containers_that_ended_are_kept(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path)
    for number in range(103):
        outputs.open(f"{number}.log").close()
        os.utime(tmp_path / f"{number}.log", (number, number))
    assert outputs.look(["0.log"]).ended == ("2.log", "1.log")
    outputs.remove("2.log")
    assert not (tmp_path / "2.log").exists()


def test_a_container_that_writes_fast_is_looked_at_more_often(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path)
    with outputs.open("a.log") as out:
        quiet = outputs.look(["a.log"]).pause
        out.write(b"x" * (3 << 20))
        assert outputs.look(["a.log"]).pause < quiet


def test_an_output_is_for_our_user_alone(tmp_path: Path) -> None:
    Outputs(tmp_path / "logs").open("a.log").close()
    assert (tmp_path / "logs").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "logs/a.log").stat().st_mode & 0o777 == 0o600


def test_links_are_neither_written_to_nor_cut(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"x" * 300 * KIB)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/a.log").symlink_to(other)
    (tmp_path / "logs/b.log.1").symlink_to(other)
    outputs = Outputs(tmp_path / "logs", LIMITS)
    with pytest.raises(OSError, match="symbolic link"):
        outputs.open("a.log")
    with outputs.open("b.log") as out:
        out.write(b"y" * 300 * KIB)
    outputs.look(["a.log", "b.log"])
    assert other.read_bytes() == b"x" * 300 * KIB


def test_a_pipe_in_place_of_an_output_makes_no_one_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.log")
    outputs = Outputs(tmp_path, LIMITS)
    with pytest.raises(OSError, match="No such device"):
        outputs.open("a.log")
    outputs.look(["a.log"])
