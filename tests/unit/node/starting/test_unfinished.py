"""Unfinished: the next daemon waits for what a killed one was about to start, and ends what stays so."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pinfold.node.procfs import PROC
from pinfold.node.starting import forker
from pinfold.node.starting.unfinished import settle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DAEMON = """
import asyncio, os, sys
from pinfold.core.machine.cpuset import CPUSet
from pinfold.node.processgroups.joiner import Joiner
from pinfold.node.starting import forker
from pinfold.node.starting.starter import NewProcess, Starter
forker.__file__ = sys.argv[1]
with Joiner(CPUSet.from_cpus(os.sched_getaffinity(0))) as joiner:
    request = NewProcess(["sleep", "1000"], {"PATH": os.environ["PATH"]})
    null = os.open(os.devnull, os.O_RDWR)
    starter = Starter(sys.argv[2])
    begun = asyncio.run(starter.begin(request, (null, null, null), joiner))
print(begun.pid, flush=True)
sys.stdin.read()
"""


def wait_until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not done():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A forker whose processes become their command when they may read a pipe."""
    program, gate = tmp_path / "forker.py", tmp_path / "gate"
    os.mkfifo(gate)
    text = Path(forker.__file__).read_text()
    assert "        os.execvpe(" in text
    waits = f"open({str(tmp_path / 'waits')!r}, 'w'); open({str(gate)!r}).read()"
    program.write_text(text.replace("        os.execvpe(", f"        {waits}; os.execvpe("))
    monkeypatch.setattr(forker, "__file__", str(program))
    return gate


@pytest.fixture
def unfinished(slow: Path) -> Iterator[int]:
    """A process that a killed daemon has left before it became its command."""
    arguments = [sys.executable, "-c", DAEMON, str(slow.parent / "forker.py"), "ours"]
    daemon = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert daemon.stdout is not None
    pid = int(daemon.stdout.readline())
    wait_until((slow.parent / "waits").exists)  # until then it ends with its daemon
    daemon.kill()
    daemon.communicate()
    yield pid
    if PROC.process(pid) is not None:
        os.kill(pid, signal.SIGKILL)


def test_a_process_that_becomes_its_command_is_waited_for_and_goes_on(unfinished: int, slow: Path) -> None:
    async def both() -> None:
        settling = asyncio.create_task(settle("ours", 60))
        done, _ = await asyncio.wait([settling], timeout=0.2)
        assert not done
        os.close(os.open(slow, os.O_WRONLY))  # it reads that, and goes on
        await settling

    asyncio.run(both())
    assert PROC.command(unfinished)[:2] == ["sleep", "1000"]


def test_a_process_within_its_exec_is_waited_for(unfinished: int, monkeypatch: pytest.MonkeyPatch) -> None:
    command, blank = PROC.command, iter([False, *[True] * 4])  # for a moment it has no command line

    def within(pid: int) -> list[str]:
        return [""] if pid == unfinished and next(blank, False) else command(pid)

    monkeypatch.setattr(PROC, "command", within)
    asyncio.run(settle("ours", 0.5))
    wait_until(lambda: PROC.process(unfinished) is None)


def test_a_process_that_does_not_become_its_command_is_ended(unfinished: int) -> None:
    asyncio.run(settle("ours", 0.05))
    wait_until(lambda: PROC.process(unfinished) is None)


def test_a_process_of_other_groups_is_left_alone(unfinished: int) -> None:
    asyncio.run(settle("others", 0.05))
    assert PROC.process(unfinished) is not None


def test_what_a_living_daemon_starts_is_left_alone(slow: Path) -> None:
    arguments = [sys.executable, "-c", DAEMON, str(slow.parent / "forker.py"), "ours"]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout is not None
        pid = int(daemon.stdout.readline())
        asyncio.run(settle("ours", 0.05))
        assert PROC.process(pid) is not None
        os.kill(pid, signal.SIGKILL)
        daemon.kill()
