"""Reads the counters behind the exclusivity of CPUs: run time, interrupts, preemptions, throttling.

Run time of a CPU is exact where cgroup v1 counts it (cpuacct.usage_percpu), else it is counted in clock ticks
(/proc/stat). A file that is missing or garbled counts as zero: a figure is missing, nothing fails.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pinfold.core.exclusivity import Reading
from pinfold.errors import PinfoldError
from pinfold.node.cgroupfiles import CgroupError, read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pinfold.core.machine.cpuset import CPUSet

_PER_CPU: Final = tuple(f"sys/fs/cgroup/{name}/cpuacct.usage_percpu" for name in ("cpuacct", "cpu,cpuacct"))
_MICRO, _NANO = 1000, 10**9
# user, nice and system, then irq and softirq; not idle, iowait and steal.
_BUSY_FIELDS: Final = (1, 2, 3, 6, 7)
# utime, stime, cutime and cstime of /proc/PID/stat, after the command and its closing parenthesis.
_TIMES: Final = slice(11, 15)
_PREEMPTED: Final = "nonvoluntary_ctxt_switches:"
_MOST_THREADS: Final = 2000
"""So many threads of a container are asked; more would take too long."""


class CPUCounters(NamedTuple):
    """What CPUs have done so far; those of all owners are read at once."""

    time: float
    busy: Mapping[int, int]
    """Nanoseconds of run time, by CPU."""
    interrupts: Mapping[int, int]
    """By CPU."""


class Meter:
    """Takes readings below a root directory; *clock* is one that only goes forward, in seconds."""

    def __init__(self, root: Path = Path("/"), clock: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._clock = clock
        self._tick = _NANO // os.sysconf("SC_CLK_TCK")

    def count(self, cpus: CPUSet) -> CPUCounters:
        """Return the counters of CPUs. On a large machine the kernel takes milliseconds to list the interrupts."""
        return CPUCounters(self._clock(), self._busy(cpus), _interrupts(self._text("proc/interrupts"), cpus))

    def read(self, cpus: CPUSet, counters: CPUCounters, groups: Sequence[Path], pids: Sequence[int]) -> Reading:
        """Return the *counters* of an owner's CPUs, and its own: of *groups* (its own first) and of these *pids*."""
        stat = self._stat(groups[0]) if groups else {}
        run = stat["usage_usec"] * _MICRO if "usage_usec" in stat else sum(map(self._run, pids))
        return Reading(
            time=counters.time,
            busy=sum(counters.busy.get(cpu, 0) for cpu in cpus),
            interrupts=sum(counters.interrupts.get(cpu, 0) for cpu in cpus),
            run=run,
            preempted=sum(self._preempted(pids)),
            throttled=stat.get("throttled_usec", 0) * _MICRO + stat.get("throttled_time", 0),
        )

    def _busy(self, cpus: CPUSet) -> dict[int, int]:
        for path in _PER_CPU:
            counted = _numbers(self._text(path).split())
            if counted:
                return {cpu: counted[cpu] for cpu in cpus if cpu < len(counted)}
        found: dict[int, int] = {}
        for line in self._text("proc/stat").splitlines():
            name, *_ = fields = line.split() or [""]
            number = name.removeprefix("cpu")
            if name.startswith("cpu") and number.isdecimal() and int(number) in cpus:
                busy = _numbers([fields[field] for field in _BUSY_FIELDS if field < len(fields)])
                found[int(number)] = sum(busy) * self._tick
        return found

    def _run(self, pid: int) -> int:
        """Return the run time of a process, its ended threads and the children that it has waited for."""
        fields = self._text(f"proc/{pid}/stat").rpartition(")")[2].split()
        return sum(_numbers(fields[_TIMES])) * self._tick

    def _preempted(self, pids: Iterable[int]) -> Iterable[int]:
        left = _MOST_THREADS
        for pid in pids:
            try:
                threads = os.listdir(self._root / f"proc/{pid}/task")[:left]  # noqa: PTH208 - names are all we need
            except OSError:
                continue
            left -= len(threads)
            for thread in threads:
                _, found, rest = self._text(f"proc/{pid}/task/{thread}/status").partition(_PREEMPTED)
                yield sum(_numbers(rest.split()[:1])) if found else 0

    def _stat(self, group: Path) -> dict[str, int]:
        """Return the counters in a group's cpu.stat."""
        try:
            lines = read(group / "cpu.stat").splitlines()
        except CgroupError:
            return {}
        rows = (line.split() for line in lines)
        return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdecimal()}  # noqa: PLR2004 - name, value

    def _text(self, path: str) -> str:
        try:
            return read(self._root / path)
        except PinfoldError:
            return ""


def _interrupts(text: str, cpus: CPUSet) -> dict[int, int]:
    """Return how many interrupts each CPU has served; the head of the table says which column is which CPU's."""
    head, *rows = text.splitlines() or [""]
    numbers = [name.removeprefix("CPU") for name in head.split()]
    wanted = {column: int(name) for column, name in enumerate(numbers) if name.isdecimal() and int(name) in cpus}
    found = dict.fromkeys(wanted.values(), 0)
    for row in rows:
        counts = row.partition(":")[2].split(None, len(numbers))[: len(numbers)]
        if len(counts) == len(numbers):  # else a row for the whole machine, such as ERR
            for column, cpu in wanted.items():
                found[cpu] += int(counts[column]) if counts[column].isdecimal() else 0
    return found


def _numbers(words: Iterable[str]) -> list[int]:
    return [int(word) for word in words if word.isdecimal()]
