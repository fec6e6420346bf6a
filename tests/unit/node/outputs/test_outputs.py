"""Outputs: what containers print is kept within bounds, and nothing else is touched."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from pinfold.node.outputs.drain import CONTROL, Drain
from pinfold.node.outputs.outputs import OutputLimits, Outputs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

KIB = 1 << 10
LIMITS = OutputLimits(256 * KIB, 1 << 30)


def size(directory: Path) -> int:
    sizes = 0
    for path in (directory / "a.log", directory / "a.log.1", *directory.glob("[0-9]*")):
        with suppress(FileNotFoundError):  # it is being renamed
            sizes += path.stat().st_size
    return sizes


def wait_for(met: Callable[[], bool]) -> None:
    """Wait for another process."""
    for _ in range(2000):
        if met():
            return
        time.sleep(0.01)
    pytest.fail("it does not happen")


@contextmanager
def outputs_in(directory: Path, limits: OutputLimits = LIMITS) -> Iterator[Outputs]:
    """Outputs with a drain, which has ended afterwards."""
    outputs = Outputs(directory, limits, drained=True)
    try:
        yield outputs
    finally:
        outputs.close()
        wait_for(lambda: not drains(directory))


def drains(directory: Path) -> list[int]:
    """Return the drains of a directory."""
    found = subprocess.run(["pgrep", "-f", f"drain.py {directory}$"], stdout=subprocess.PIPE, check=False)
    return [int(pid) for pid in found.stdout.split()]


def test_the_end_of_an_output_that_is_too_long_is_kept_and_its_container_goes_on(tmp_path: Path) -> None:
    with outputs_in(tmp_path) as outputs, outputs.open("a.log") as out:
        out.write(b"x" * 300 * KIB + b"end")
        asyncio.run(outputs.written("a.log"))
        out.write(b"more")
        asyncio.run(outputs.written("a.log"))
        assert outputs.read("a.log", -20).endswith(b"xendmore")
        assert outputs.read("a.log.1", -4) == b"xxxx"
        assert size(tmp_path) <= LIMITS.each


def test_output_of_a_container_that_ends_before_the_drain_looks_is_kept(tmp_path: Path) -> None:
    with outputs_in(tmp_path) as outputs:
        with outputs.open("first.log") as out:
            out.write(b"the drain runs")
        asyncio.run(outputs.written("first.log"))
        [drain] = drains(tmp_path)
        os.kill(drain, signal.SIGSTOP)
        with outputs.open("a.log") as out:
            subprocess.run(["echo", "and gone"], stdout=out, check=True)
        os.kill(drain, signal.SIGCONT)
        asyncio.run(outputs.written("a.log"))
        assert outputs.read("a.log") == b"and gone\n"


def test_output_is_never_longer_than_its_bound(tmp_path: Path) -> None:
    with outputs_in(tmp_path) as outputs:
        with outputs.open("a.log") as out:
            loud = subprocess.Popen(["yes"], stdout=out)
        largest, start = 0, time.monotonic()
        try:
            while time.monotonic() < start + 1:
                largest = max(largest, size(tmp_path))
        finally:
            loud.kill()
            loud.wait()
        assert LIMITS.each // 2 < largest <= LIMITS.each


def test_a_short_output_is_left_alone(tmp_path: Path) -> None:
    with outputs_in(tmp_path) as outputs:
        with outputs.open("a.log") as out:
            out.write(b"x" * 100 * KIB)
        asyncio.run(outputs.written("a.log"))
        assert outputs.names() == ["a.log"]
        assert outputs.size("a.log") == 100 * KIB
        assert outputs.size("a.log.1") == 0


def test_many_containers_share_what_all_together_may_keep(tmp_path: Path) -> None:
    names = [f"{number}.log" for number in range(16)]
    with outputs_in(tmp_path, OutputLimits(1 << 20, 2 << 20)) as outputs:
        for name in names:
            with outputs.open(name) as out:
                out.write(b"x" * 500 * KIB)
                asyncio.run(outputs.written(name))
        outputs.look(names)
        wait_for(lambda: size(tmp_path) <= 2 << 20)


def test_a_container_goes_on_without_a_daemon_and_the_next_one_reads_it(tmp_path: Path) -> None:
    first = Outputs(tmp_path, LIMITS, drained=True)
    with first.open("a.log") as out:
        out.write(b"one ")
        first.close()
        out.write(b"two ")
        with outputs_in(tmp_path) as second:
            assert len(drains(tmp_path)) == 1
            out.write(b"three")
            asyncio.run(second.written("a.log"))
            assert second.read("a.log") == b"one two three"
            out.close()


def test_a_drain_that_was_killed_is_replaced_and_nothing_is_lost(tmp_path: Path) -> None:
    with outputs_in(tmp_path) as outputs, outputs.open("a.log") as out:
        out.write(b"one ")
        asyncio.run(outputs.written("a.log"))
        os.kill(drains(tmp_path)[0], signal.SIGKILL)
        out.write(b"two")
        wait_for(lambda: bool(outputs.look(["a.log"])) or outputs.read("a.log") == b"one two")


def test_the_end_of_a_drain_is_heard_of_and_a_look_leaves_no_zombie(tmp_path: Path) -> None:
    async def kill() -> None:
        hearing = asyncio.create_task(outputs.drain_ends(within=60))
        await asyncio.sleep(0)  # it waits although there is no drain yet
        with outputs.open("a.log") as out:
            out.write(b"one")
            await outputs.written("a.log")
            [killed] = drains(tmp_path)
            os.kill(killed, signal.SIGKILL)
            async with asyncio.timeout(20):
                assert await hearing
            wait_for(lambda: bool(outputs.look(["a.log"])) or str(killed) not in os.listdir("/proc"))  # noqa: PTH208 - no disk
            wait_for(lambda: drains(tmp_path) not in ([], [killed]))

    with outputs_in(tmp_path) as outputs:
        asyncio.run(kill())


def test_a_drain_that_goes_on_is_waited_for_no_longer_than_told(tmp_path: Path) -> None:
    with outputs_in(tmp_path) as outputs:
        assert not asyncio.run(outputs.drain_ends(within=0.01))
        with outputs.open("a.log"):
            assert not asyncio.run(outputs.drain_ends(within=0.01))


def test_a_drain_ends_when_no_container_and_no_daemon_is_left(tmp_path: Path) -> None:
    with outputs_in(tmp_path) as outputs:
        outputs.open("a.log").close()
        wait_for(lambda: bool(outputs.look([])) or {path.name for path in tmp_path.iterdir()} == {"a.log", CONTROL})


def test_an_output_that_was_removed_does_not_come_back(tmp_path: Path) -> None:
    with outputs_in(tmp_path) as outputs, outputs.open("a.log") as out:
        out.write(b"x")
        asyncio.run(outputs.written("a.log"))
        outputs.remove("a.log")
        out.write(b"x" * 600 * KIB)
        assert outputs.names() == []


@pytest.mark.parametrize("before", ["rename", "open", "dup2"], ids=str)
def test_an_output_that_is_removed_while_it_is_rotated_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    directory, (control, writer) = tmp_path / "logs", os.pipe()
    directory.mkdir()
    (directory / "a").write_text("x")
    rotating = Drain(str(directory), control)
    found, outputs, call = rotating.opened("a", 0), Outputs(directory), getattr(os, before)

    def after_the_removal(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - any call
        monkeypatch.undo()
        outputs.remove("a")
        return call(*args, **kwargs)

    monkeypatch.setattr(os, before, after_the_removal)
    rotating.rotate(found)
    assert not list(directory.iterdir())
    os.close(writer)


def test_outputs_of_the_last_hundred_containers_that_ended_are_kept(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path)
    for number in range(103):
        outputs.open(f"{number}.log").close()
        os.utime(tmp_path / f"{number}.log", (number, number))
    assert outputs.look(["0.log"]) == ("2.log", "1.log")
    outputs.remove("2.log")
    assert not (tmp_path / "2.log").exists()


def test_there_is_no_news_until_a_file_comes_or_goes(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path)
    outputs.open("a.log").close()
    assert outputs.has_news()
    outputs.look(["a.log"])
    assert not outputs.has_news()
    (tmp_path / "a.log").write_bytes(b"more")
    assert not outputs.has_news()
    outputs.remove("a.log")
    os.utime(tmp_path)  # the clock of a file system may tick slowly
    assert outputs.has_news()


def test_an_output_is_for_our_user_alone(tmp_path: Path) -> None:
    with outputs_in(tmp_path / "logs") as outputs, outputs.open("a.log") as out:
        assert os.fstat(out.fileno()).st_mode & 0o777 == 0o600
        assert (tmp_path / "logs").stat().st_mode & 0o777 == 0o700
        assert (tmp_path / "logs/a.log").stat().st_mode & 0o777 == 0o600
        assert (tmp_path / "logs" / CONTROL).stat().st_mode & 0o777 == 0o600


def test_links_are_neither_written_to_nor_cut(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"x" * 300 * KIB)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/a.log").symlink_to(other)
    (tmp_path / "logs/b.log.1").symlink_to(other)
    (tmp_path / "logs/c.log.1.pipe").symlink_to(other)
    with outputs_in(tmp_path / "logs") as outputs:
        with pytest.raises(OSError, match="symbolic link"):
            outputs.open("a.log")
        with outputs.open("b.log") as out:
            out.write(b"y" * 300 * KIB)
            asyncio.run(outputs.written("b.log"))
        outputs.look(["a.log", "b.log"])
    assert other.read_bytes() == b"x" * 300 * KIB


def test_a_pipe_in_place_of_an_output_makes_no_one_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.log")
    outputs = Outputs(tmp_path, LIMITS)
    with pytest.raises(OSError, match="No such device"):
        outputs.open("a.log")
    outputs.look(["a.log"])
