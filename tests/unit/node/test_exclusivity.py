"""The counters behind the exclusivity of CPUs, read from files of a root directory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from pinfold.core.exclusivity import Reading
from pinfold.core.machine.cpuset import CPUSet
from pinfold.node.exclusivity import Meter

if TYPE_CHECKING:
    from pathlib import Path

TICK = 10**9 // os.sysconf("SC_CLK_TCK")
CPUS = CPUSet.of(1, 2)
INTERRUPTS = """\
           CPU0       CPU2
  24:        100        200  IO-APIC   5-edge      77 88 99
 LOC:          3          4  Local timer interrupts
 ERR:          9
"""
STAT = """\
cpu  9 9 9 9 9 9 9 9
cpu0 1000 1000 1000 1000 1000 1000 1000 1000 0 0
cpu1 1 2 3 1000 1000 4 5 1000 0 0
cpu2 1 0 0 0
cpux y
intr 5
"""


class Files:
    """A root directory, and a Meter that reads it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.group = root / "group"
        self.group.mkdir()
        self.now = 5.0

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def process(self, pid: int, times: str, preempted: int) -> None:
        self.write(f"proc/{pid}/stat", f"{pid} (a) b) S {'0 ' * 10}{times} 20 0")
        self.write(f"proc/{pid}/task/{pid}/status", f"Name:\ta\nnonvoluntary_ctxt_switches:\t{preempted}\n")

    def read(self, *pids: int) -> Reading:
        meter = Meter(self.root, lambda: self.now)
        return meter.read(CPUS, meter.count(CPUSet.parse("0-9")), [self.group], pids)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_without_files_every_counter_is_zero(files: Files) -> None:
    assert files.read(1, 2) == Reading(5.0, 0, 0, 0)


def test_run_time_of_cpus_is_in_ticks_without_the_idle_ones(files: Files) -> None:
    files.write("proc/stat", STAT)
    assert files.read().busy == (1 + 2 + 3 + 4 + 5 + 1) * TICK


@pytest.mark.parametrize("name", ["cpuacct", "cpu,cpuacct"])
def test_run_time_of_cpus_is_exact_where_cgroup_v1_counts_it(files: Files, name: str) -> None:
    files.write("proc/stat", STAT)
    files.write(f"sys/fs/cgroup/{name}/cpuacct.usage_percpu", "5 70 800 \n")
    assert files.read().busy == 870


def test_interrupts_are_those_of_the_columns_of_these_cpus(files: Files) -> None:
    files.write("proc/interrupts", INTERRUPTS)
    assert files.read().interrupts == 204


def test_an_owner_has_the_run_time_of_its_group_on_cgroup_v2(files: Files) -> None:
    files.process(7, "100 100 100 100", 3)
    files.write("group/cpu.stat", "usage_usec 1234\nthrottled_usec 5\nodd\nworse x\n")
    found = files.read(7)
    assert (found.run, found.throttled, found.preempted) == (1_234_000, 5000, 3)


def test_else_the_run_time_of_its_processes_and_of_their_children(files: Files) -> None:
    files.process(7, "1 2 3 4", 3)
    files.process(8, "10 0 0 0", 4)
    files.write("group/cpu.stat", "nr_periods 0\nthrottled_time 6\n")
    found = files.read(7, 8, 9)
    assert (found.run, found.throttled, found.preempted) == (20 * TICK, 6, 7)


@pytest.mark.parametrize("text", ["", "\0\0", "x" * 10_000, "CPU1\n:::\n 24: y\n", "cpu1 x y z\n"])
def test_garbage_counts_as_nothing(files: Files, text: str) -> None:
    for path in ("proc/stat", "proc/interrupts", "sys/fs/cgroup/cpuacct/cpuacct.usage_percpu", "proc/7/stat"):
        files.write(path, text)
    files.write("group/cpu.stat", text)
    files.write("proc/7/task/7/status", text)
    assert files.read(7) == Reading(5.0, 0, 0, 0)
