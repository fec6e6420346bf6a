"""Who was stopped: written down, read by the next daemon, and nothing else believed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pinfold.node.processgroups.halted import FILE, Halted
from pinfold.node.procfs import Process, Procfs

if TYPE_CHECKING:
    from collections.abc import Iterator

PROC = Procfs(Path("/proc"))


@pytest.fixture
def stopped() -> Iterator[Process]:
    """A process that is stopped."""
    process = subprocess.Popen(["sleep", "1000"])
    process.send_signal(signal.SIGSTOP)
    end = time.monotonic() + 20
    while not PROC.is_stopped(process.pid):
        assert time.monotonic() < end
    found = PROC.process(process.pid)
    assert found is not None
    yield found[0]
    process.kill()
    process.wait()


def test_those_that_are_still_stopped_are_read(tmp_path: Path, stopped: Process) -> None:
    mine = PROC.process(os.getpid())
    assert mine is not None
    Halted(tmp_path, PROC).write([stopped, mine[0], Process(1 << 22, 1), Process(stopped.pid, stopped.start + 1)])
    assert Halted(tmp_path, PROC).read() == [stopped]
    Halted(tmp_path, PROC).clear()
    Halted(tmp_path, PROC).clear()
    assert Halted(tmp_path, PROC).read() == []
    assert list(tmp_path.iterdir()) == []


def test_writing_them_down_does_not_wait_for_the_disk(
    tmp_path: Path, stopped: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(_file: int) -> None:
        raise AssertionError("the event loop writes them, and a power failure lets none of them go on")

    monkeypatch.setattr(os, "fsync", wait)
    Halted(tmp_path, PROC).write([stopped])
    assert Halted(tmp_path, PROC).read() == [stopped]


def test_without_a_directory_nothing_is_written_down(stopped: Process) -> None:
    halted = Halted(None, PROC)
    halted.write([stopped])
    assert halted.read() == []
    halted.clear()


def test_those_of_before_a_reboot_are_others(tmp_path: Path, stopped: Process) -> None:
    Halted(tmp_path, PROC).write([stopped])
    data = json.loads((tmp_path / FILE).read_text())
    (tmp_path / FILE).write_text(json.dumps({**data, "boot": "another"}))
    assert Halted(tmp_path, PROC).read() == []


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "7", '{"processes": 7}', '{"processes": [7]}', '{"processes": [[]]}', '{"processes": [["a", {}]]}'],
)
def test_a_file_that_makes_no_sense_names_no_process(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    assert Halted(tmp_path, PROC).read() == []
