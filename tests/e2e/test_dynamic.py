"""Policy dynamic on a real kernel: containers move with notice, grow and shrink under load, and lose a CPU."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.cpuset import CPUSet
from tests.e2e.daemon import allowed, container, pod, wait_for
from tests.e2e.test_hotplug import MACHINE, can_switch, offline, switch
from tests.needs import needs

if TYPE_CHECKING:
    from tests.e2e.daemon import Daemon

__all__ = ["offline"]
ROOT = Path(__file__).parents[2]
FOLLOWER = f"PYTHONPATH={ROOT}/src exec {sys.executable} {ROOT}/examples/repin.py"
BUSY = "while :; do :; done"
DYNAMIC = ("--policy", "dynamic", "--repack-dwell", "0s", "--notice-grace", "60s")

pytestmark = [pytest.mark.slow, pytest.mark.guest, needs("CPUs that can go offline", met=can_switch())]


def caches(cpus: CPUSet) -> int:
    return sum(bool(cache.cpus & cpus) for cache in MACHINE.uncore_caches)


def cpus_of(daemon: Daemon, name: str) -> CPUSet:
    found = daemon.find(name)
    assert found is not None
    return CPUSet.parse(found["cpus"])


def test_a_scattered_container_moves_into_one_cache_and_its_threads_follow(daemon: Daemon) -> None:
    daemon.start(*DYNAMIC)
    # Of the first L3 a CPU is reserved, and one is left: the next container needs two L3.
    most = len(MACHINE.uncore_caches[0].cpus) - 2
    daemon.apply(pod("other", container(cpus=most)), pod("wide", container(FOLLOWER, cpus=3)))
    process = daemon.running("wide")
    before = cpus_of(daemon, "wide")
    assert caches(before) == 2
    wait_for(lambda: daemon.written("wide"), "the program watches")
    daemon.delete("other")
    wait_for(lambda: daemon.events("moved"), "the container has moved")
    now = cpus_of(daemon, "wide")
    assert (len(now), caches(now)) == (3, 1)
    (announced,), (moved,) = daemon.events("announced"), daemon.events("moved")
    assert moved["time"] - announced["time"] < 60, "the program was ready before the grace period was over"
    last = f"on CPUs {list(now)}, generation 2"
    wait_for(lambda: last in daemon.written("wide"), "the program knows")
    # A worker on each CPU, and the thread that watches on all of them.
    wait_for(lambda: allowed(process) == {str(now), *map(str, now)}, "the threads have followed")
    assert "cost" in daemon.verb("explain", "wide/app").stdout


def test_a_busy_container_grows_and_shrinks_in_place(daemon: Daemon) -> None:
    daemon.start("--policy", "dynamic", "--notice-grace", "0s")
    daemon.apply(pod("busy", container(BUSY, cpus=2)), pod("web", container()))
    busy, web = daemon.running("busy"), daemon.running("web")
    first = cpus_of(daemon, "busy")
    for count in (4, 1, 3):
        assert daemon.verb("resize", "busy/app", "--cpus", str(count)).returncode == 0
        now = cpus_of(daemon, "busy")
        assert len(now) == count
        assert allowed(busy) == {str(now)}
        assert not now & CPUSet.parse(next(iter(allowed(web))))
        assert now <= first or first <= now or count == 3
    refused = daemon.verb("resize", "busy/app", "--cpus", "1000")
    assert refused.returncode == 4
    assert "the nearest size that it can have is" in refused.stderr


def test_only_a_cpu_that_goes_is_replaced_and_it_is_given_back(daemon: Daemon, offline: list[int]) -> None:
    daemon.start("--policy", "dynamic")
    daemon.apply(pod("db", container(cpus=2)))
    daemon.running("db")
    first = cpus_of(daemon, "db")
    gone = max(first)
    offline.append(gone)
    switch(gone).write_text("0")
    wait_for(lambda: gone not in cpus_of(daemon, "db"), "another CPU in place of the one that has gone")
    now = cpus_of(daemon, "db")
    assert len(now & first) == 1
    assert len(now) == 2
    switch(gone).write_text("1")
    wait_for(lambda: cpus_of(daemon, "db") == first, "the CPU is given back")
