"""CPUs go offline and come back while the daemon runs: their owners get others, and no container is ended."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.cpuset import CPUSet
from pinfold.node.machine.sysfs import discover
from tests.e2e.daemon import allowed, container, pod, wait_for
from tests.needs import needs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.daemon import Daemon

MACHINE = discover(Path("/"))


def switch(cpu: int) -> Path:
    return Path(f"/sys/devices/system/cpu/cpu{cpu}/online")


def can_switch() -> bool:
    return len(MACHINE.online) > 4 and os.access(switch(max(MACHINE.online)), os.W_OK)


pytestmark = [pytest.mark.slow, pytest.mark.guest, needs("CPUs that can go offline", met=can_switch())]


@pytest.fixture
def offline() -> Iterator[list[int]]:
    taken: list[int] = []
    yield taken
    for cpu in taken:
        switch(cpu).write_text("1")


def test_hotplug_an_owner_gets_another_cpu_and_what_comes_back_is_shared(daemon: Daemon, offline: list[int]) -> None:
    daemon.start("--cpu-manager-reconcile-period", "60s")
    daemon.apply(pod("db", container(cpus=2)), pod("web", container()))
    db, web = daemon.running("db"), daemon.running("web")
    (before,) = allowed(db)
    gone = max(CPUSet.parse(before))
    offline.append(gone)
    switch(gone).write_text("0")
    # Long before the next look: the kernel tells.
    wait_for(lambda: daemon.events("hotplug"), "the daemon has taken note")
    wait_for(lambda: len(CPUSet.parse(next(iter(allowed(db))))) == 2, "another CPU in place of the one that has gone")
    (now,) = allowed(db)
    assert gone not in CPUSet.parse(now)
    assert not CPUSet.parse(now) & CPUSet.parse(next(iter(allowed(web))))
    assert gone not in daemon.pools()["shared"]
    daemon.online = MACHINE.online - CPUSet.of(gone)
    daemon.check()
    assert "hotplug" in daemon.verb("history").stdout
    assert f"{now}" in daemon.verb("explain", "db").stdout
    switch(offline.pop()).write_text("1")
    wait_for(lambda: gone in daemon.pools()["shared"], "the CPU that has come back is shared")
    wait_for(lambda: gone in CPUSet.parse(next(iter(allowed(web)))), "those that share run on it")
    assert allowed(db) == {now}
    daemon.online = MACHINE.online
    daemon.check()


def test_hotplug_while_no_daemon_runs_is_made_good_at_its_start(daemon: Daemon, offline: list[int]) -> None:
    daemon.start()
    daemon.apply(pod("db", container(cpus=2)))
    (before,) = allowed(daemon.running("db"))
    daemon.kill()
    gone = max(CPUSet.parse(before))
    offline.append(gone)
    switch(gone).write_text("0")
    daemon.start()
    daemon.online = MACHINE.online - CPUSet.of(gone)
    daemon.check()
    (now,) = allowed(daemon.running("db"))
    assert gone not in CPUSet.parse(now)
