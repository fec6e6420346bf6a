"""Strays: processes of a recorded /proc in groups that are directories."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.node.outputs import drain
from pinfold.node.processgroups.strays import Housed, MovedProcesses, Strays
from pinfold.node.procfs import Process, Procfs
from pinfold.node.starting import forker

if TYPE_CHECKING:
    from pathlib import Path

    from pinfold.node.procfs import Alive, Seen

REF = ContainerRef(PodUID("uid"), "main")
MAIN = Process(10, 1000)


class Host:
    """Processes, and the group of one container."""

    def __init__(self, root: Path) -> None:
        self.proc, self.group = root / "proc", root / "group"
        self.group.mkdir()
        self.inside()

    def runs(self, pid: int, parent: int, start: int, *threads: int, state: str = "S") -> None:
        for thread in (pid, *threads):
            (self.proc / f"{pid}/task/{thread}").mkdir(parents=True, exist_ok=True)
        fields = [state, str(parent), *["0"] * 17, str(start)]
        (self.proc / f"{pid}/stat").write_text(f"{pid} (a b) {' '.join(fields)}\n")

    def inside(self, *threads: int, tasks: bool = True) -> None:
        text = "".join(f"{thread}\n" for thread in threads)
        (self.group / "cgroup.procs").write_text(text)
        if tasks:
            (self.group / "tasks").write_text(text)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    made = Host(tmp_path)
    made.runs(10, 1, 1000)
    made.runs(11, 10, 1010)
    made.inside(10, 11)
    return made


@pytest.fixture
def strays(host: Host) -> Strays:
    return Strays("pinfold", Procfs(host.proc))


def look(strays: Strays, host: Host, main: Process = MAIN) -> MovedProcesses:
    return strays.look({REF: Housed([host.group], main)})


def test_processes_in_their_group_are_fine(strays: Strays, host: Host) -> None:
    assert [look(strays, host) for _ in range(2)] == [MovedProcesses(), MovedProcesses()]


class Unread(Procfs):
    """Processes that nobody may list."""

    def processes(self, known: Alive | None = None) -> dict[int, Seen]:
        raise AssertionError(known)


def test_without_containers_no_process_is_read(host: Host) -> None:
    strays = Strays("pinfold", Unread(host.proc))
    strays.learn({})
    assert strays.look({}) == MovedProcesses()


def test_a_child_that_is_new_since_the_last_look_and_was_moved_out_is_found(strays: Strays, host: Host) -> None:
    look(strays, host)
    host.runs(12, 11, 1020)
    assert look(strays, host).out == {REF: (12,)}


def test_a_thread_that_was_moved_out_is_found(strays: Strays, host: Host) -> None:
    look(strays, host)
    host.runs(11, 10, 1010, 13)
    assert look(strays, host).out == {REF: (11,)}
    host.inside(10, 11, 13)
    assert look(strays, host).out == {}


def test_a_process_whose_number_another_has_by_now_is_not_brought_back(strays: Strays, host: Host) -> None:
    look(strays, host)
    host.runs(11, 1, 2000)
    host.inside(10)
    assert look(strays, host) == MovedProcesses()


def test_a_child_with_the_number_of_a_process_of_the_host_is_no_stranger(strays: Strays, host: Host) -> None:
    host.runs(20, 1, 500)
    look(strays, host)
    host.runs(20, 11, 2000)
    host.inside(10, 11, 20)
    assert look(strays, host) == MovedProcesses()


def test_a_main_process_with_the_number_of_an_earlier_one_is_the_new_one(strays: Strays, host: Host) -> None:
    look(strays, host)
    host.runs(10, 1, 3000)
    host.inside(11)
    assert look(strays, host, Process(10, 3000)).out == {REF: (10,)}


def test_a_process_that_has_ended_and_was_not_reaped_is_not_missed(strays: Strays, host: Host) -> None:
    look(strays, host)
    host.runs(11, 10, 1010, state="Z")
    host.inside(10)
    assert look(strays, host) == MovedProcesses()


def test_a_process_of_the_host_that_was_moved_in_is_a_stranger(strays: Strays, host: Host) -> None:
    host.runs(20, 5, 500)
    look(strays, host)
    host.inside(10, 11, 20)
    assert look(strays, host).into == {REF: (20,)}


def test_a_process_that_the_daemon_is_about_to_start_is_no_stranger(strays: Strays, host: Host) -> None:
    host.runs(99, os.getpid(), 900)
    (host.proc / "99/cmdline").write_bytes(b"python\0-I\0-S\0" + forker.__file__.encode() + b"\x007\x001\0pinfold\0")
    host.inside(10, 11, 99)
    assert look(strays, host) == MovedProcesses()
    (host.proc / "99/cmdline").write_bytes(b"")  # in the middle of exec, where it has no environment either
    assert look(strays, host) == MovedProcesses()


def test_the_drain_that_was_moved_in_is_a_stranger(strays: Strays, host: Host) -> None:
    host.runs(99, os.getpid(), 900)
    (host.proc / "99/cmdline").write_bytes(b"python\0-I\0-S\0" + drain.__file__.encode() + b"\0/logs\0")
    host.inside(10, 11, 99)
    assert look(strays, host).into == {REF: (99,)}


def test_without_threads_in_groups_processes_are_enough(strays: Strays, host: Host) -> None:
    (host.group / "tasks").unlink()
    host.runs(11, 10, 1010, 13)
    assert look(strays, host) == MovedProcesses()
    host.inside(10, tasks=False)
    assert look(strays, host).out == {REF: (11,)}
