"""Processes by PID: which are there, where they may run, and who gets a signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.cpuset import EMPTY
from pinfold.node.procfs import PROC, Process
from pinfold.runtimes.base import ApplyError, Main
from pinfold.runtimes.processes.pids import check_threads, first, held, opened, send, started

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_PROCESS = (1 << 22) - 1


@contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[str]]:
    """Start a command, and end it."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_process_that_may_run_elsewhere_is_named_with_its_cpus() -> None:
    with running("sleep", "60") as process:
        main = Main(process.pid, started(process.pid))
        check_threads(main, PROC.allowed(process.pid))
        with pytest.raises(ApplyError, match=f"thread {process.pid} of process {process.pid} may run on CPUs"):
            check_threads(main, EMPTY)


def test_another_process_of_the_same_number_is_not_taken_for_the_first() -> None:
    with running("sleep", "60") as process:
        earlier = Main(process.pid, started(process.pid) - 1)
        with pytest.raises(ApplyError, match=f"process {process.pid} ended meanwhile"):
            check_threads(earlier, PROC.allowed(process.pid))


def test_the_first_process_is_the_one_that_the_others_come_from() -> None:
    with running("sh", "-c", "sleep 60 & echo $!; wait") as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            assert first([child, parent.pid]) == Main(parent.pid, started(parent.pid))
            assert first([child, NO_PROCESS]) == Main(child, started(child))
        finally:
            os.kill(child, signal.SIGKILL)
    assert first([NO_PROCESS]) is None


def test_a_process_that_is_not_there_cannot_be_opened() -> None:
    with pytest.raises(ApplyError, match=f"process {NO_PROCESS} is not there"):
        opened(NO_PROCESS)


def test_a_thread_cannot_be_opened_and_its_process_is_named() -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        with pytest.raises(ApplyError, match="is not a process, but a thread of process"):
            opened(thread.native_id or 0)
    finally:
        end.set()
        thread.join()


def test_a_signal_reaches_those_behind_one_that_has_ended() -> None:
    with running("sleep", "60") as process:
        ended = Process(NO_PROCESS, 1)
        with held([ended, Process(process.pid, started(process.pid))]) as pidfds:
            send(pidfds, signal.SIGTERM)
        assert process.wait(timeout=30) == -signal.SIGTERM


def test_a_signal_for_an_earlier_process_does_not_reach_one_with_the_same_number() -> None:
    with running("sleep", "60") as process:
        with held([Process(process.pid, started(process.pid) - 1)]) as pidfds:
            send(pidfds, signal.SIGKILL)
        assert process.poll() is None


def test_a_process_is_not_taken_for_gone_when_no_file_can_be_opened() -> None:
    program = (
        "import os, resource; from pinfold.runtimes.processes.pids import OutOfFiles, opened\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
        "try: opened(os.getpid())\n"
        "except OutOfFiles as error: os.write(1, str(error).encode())"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.endswith("cannot be watched: 3 files are open; raise the limit (ulimit -n)")
