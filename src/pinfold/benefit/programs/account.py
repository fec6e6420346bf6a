"""What the kernel has counted for a program: context switches, migrations, throttling; and the line of its results."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path
from typing import Final

from pinfold.node.procfs import Procfs

_MIGRATIONS: Final = "se.nr_migrations"
_PROC: Final = Path("/proc")


def be_prompt() -> None:
    """Have the kernel end our sleeps on time: without this it may add 50 µs to each, to save power."""
    try:
        Path("/proc/self/timerslack_ns").write_text("1")
    except OSError:  # an old kernel; the floor that is measured beside the figures shows it
        return


def migrations(pid: int | str = "self") -> int | None:
    """Return how often the kernel has moved a process to another CPU; None where it does not say."""
    try:
        lines = (_PROC / str(pid) / "sched").read_text().splitlines()
    except OSError:
        return None
    found = [line.rpartition(":")[2] for line in lines if line.startswith(_MIGRATIONS)]
    return int(found[0]) if found else None


def switches(*, children: bool = False) -> dict[str, int]:
    """Return how often this process gave up its CPU, and how often it lost it; with the children that have ended."""
    whose = [resource.RUSAGE_SELF, *([resource.RUSAGE_CHILDREN] if children else [])]
    used = [resource.getrusage(who) for who in whose]
    return {"waits": sum(each.ru_nvcsw for each in used), "preemptions": sum(each.ru_nivcsw for each in used)}


def throttling() -> dict[str, float]:
    """Return how often and how long the CFS quota has stopped this container: its cgroup and those above it."""
    times, seconds = 0, 0.0
    for group in _cpu_groups():
        try:
            pairs = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
        except (OSError, ValueError):
            continue
        times += int(pairs.get("nr_throttled", 0))
        seconds += int(pairs.get("throttled_time", 0)) / 1e9 + int(pairs.get("throttled_usec", 0)) / 1e6
    return {"throttled": times, "throttled_seconds": seconds}


def _cpu_groups() -> list[Path]:
    """Return the cgroup of this process that has its quota, and those above it."""
    for mount, controllers in _mounts():
        name = Procfs(_PROC).group(os.getpid(), controllers)
        if name:
            group = mount / name.strip("/")
            return [each for each in (group, *group.parents) if mount in each.parents]
    return []


def _mounts() -> list[tuple[Path, str]]:
    """Return where the cgroups with quotas are mounted, and their controllers as /proc/PID/cgroup names them."""
    found = []
    for line in (_PROC / "self/mounts").read_text().splitlines():
        _, mount, kind, options, *_ = line.split()
        if kind == "cgroup" and "cpu" in options.split(","):
            named = [option for option in options.split(",") if option in {"cpu", "cpuacct"}]
            found.append((Path(mount), ",".join(named)))
        elif kind == "cgroup2":
            found.append((Path(mount), ""))
    return sorted(found, key=lambda pair: pair[1] == "")  # a v1 hierarchy has the controller if there is one


def tell(samples: dict[str, list[int]], rates: dict[str, float], counters: dict[str, float | None]) -> None:
    """Print the results: samples in nanoseconds, rates, and what the kernel has counted."""
    cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    print(json.dumps({"samples": samples, "rates": rates, "counters": counters, "cpus": cpus}), flush=True)
