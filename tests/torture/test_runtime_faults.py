"""A container runtime or an API server that is away, comes back, has lost everything, or meets a daemon that is late.

The runtime is scripted, its containers are real processes in the kernel's cgroups.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from pinfold.core.pods.pod import Pod, PodUID
from pinfold.runtimes.simulated.settings import RuntimeSettings
from tests.e2e.daemon import ONLINE, needs_cgroups, needs_two_cpus, wait_for
from tests.e2e.kubedaemon import KubeDaemon, real
from tests.support.apiserver import APIServer
from tests.support.cluster import NODE, account, api_pod, certificate
from tests.torture.scriptednode import ScriptedNode
from tests.torture.test_faults import AT_LAST, HEALTHY, Health

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pinfold.core.machine.cpuset import CPUSet

pytestmark = [pytest.mark.slow, needs_two_cpus, needs_cgroups]

AWAY: Final = float(os.environ.get("TORTURE_AWAY", "2"))
"""Seconds for which a runtime or an API server is away; `make torture` takes 60."""
IMPATIENT: Final = RuntimeSettings(request_timeout=0.5)
"""containerd waits for 2 s."""


@pytest.fixture
def node() -> Iterator[ScriptedNode]:
    with ScriptedNode() as node:
        yield node


@pytest.fixture
def daemon(node: ScriptedNode) -> Iterator[KubeDaemon]:
    with KubeDaemon(node, "nri") as daemon:
        yield daemon


@contextmanager
def served_meanwhile(daemon: KubeDaemon, what: str) -> Iterator[None]:
    """See that the daemon answers while something is wrong, and print how fast."""
    with Health(daemon) as health:
        yield
        assert {row["pod"] for row in daemon.containers()} >= {"owner"}
    sys.stdout.write(f"\n{what}, for {AWAY:g} s: {health}\n")
    assert health.statuses == {200}
    assert health.middle < HEALTHY
    assert max(health.times) < AT_LAST


def begin(daemon: KubeDaemon, node: ScriptedNode) -> set[CPUSet]:
    """Start the daemon, an owner and a pod that shares; return the owner's CPUs."""
    daemon.start()
    for name, cpus in (("owner", 1), ("shares", 0)):
        assert node.wait(node.run_pod(name, cpus))
    daemon.settled()
    own = real(node.containers()["owner"].pid)
    assert [len(cpus) for cpus in own] == [1]
    return own


def come_back(daemon: KubeDaemon, node: ScriptedNode) -> None:
    """Let the runtime listen again, and wait for the daemon."""
    links = daemon.links()
    node.wait(node.runtime.restart())
    daemon.linked(links)


def test_a_runtime_that_was_away_finds_every_container_on_its_cpus(daemon: KubeDaemon, node: ScriptedNode) -> None:
    own = begin(daemon, node)
    node.wait(node.runtime.close())
    with served_meanwhile(daemon, "runtime away"):
        end = time.monotonic() + AWAY
        while time.monotonic() < end:
            assert real(node.containers()["owner"].pid) == own
            time.sleep(0.1)
    node.wait(node.remove_pod("shares"))
    come_back(daemon, node)
    daemon.settled()
    assert real(node.containers()["owner"].pid) == own
    assert {row["pod"] for row in daemon.containers()} == {"owner"}
    node.wait(node.remove_pod("owner"))
    wait_for(lambda: daemon.state().shared == ONLINE, "all CPUs are shared again")


def test_an_owner_that_ended_while_the_runtime_was_away_gives_its_cpus_back(
    daemon: KubeDaemon, node: ScriptedNode
) -> None:
    begin(daemon, node)
    node.wait(node.runtime.close())
    node.wait(node.remove_pod("owner"))
    come_back(daemon, node)
    wait_for(lambda: daemon.state().shared == ONLINE, "all CPUs are shared again")
    assert node.wait(node.run_pod("next", 1))
    daemon.settled()


def test_a_runtime_that_was_replaced_by_an_empty_one_leaves_no_cpu_assigned(
    daemon: KubeDaemon, node: ScriptedNode
) -> None:
    begin(daemon, node)
    node.wait(node.runtime.close())
    for name in list(node.sandboxes):
        node.wait(node.remove_pod(name))
    node.runtime.record.sandboxes.clear()
    node.runtime.record.containers.clear()
    come_back(daemon, node)
    wait_for(lambda: daemon.state().shared == ONLINE, "all CPUs are shared again")
    wait_for(lambda: not daemon.containers(), "no container is known")
    daemon.restart()
    assert daemon.state().assignments == {}
    assert node.wait(node.run_pod("owner", 1))
    daemon.settled()


def test_a_daemon_that_answers_too_late_pins_what_came_meanwhile() -> None:
    with ScriptedNode(IMPATIENT) as node, KubeDaemon(node, "nri") as daemon:
        daemon.start()
        node.wait(node.run_pod("shares", 0))
        links = daemon.links()
        os.kill(daemon.pid, signal.SIGSTOP)
        try:
            assert node.wait(node.run_pod("owner", 1))  # the runtime goes on without its plugin
        finally:
            os.kill(daemon.pid, signal.SIGCONT)
        begun = time.monotonic()
        daemon.linked(links)
        daemon.settled()
        sys.stdout.write(f"\nNRI time-out: all is right {time.monotonic() - begun:.2f} s after the daemon goes on\n")
        assert len(daemon.state().exclusive) == 1
        assert daemon.find("owner")


@pytest.mark.parametrize("hangs", [False, True], ids=["refuses", "hangs"])
def test_while_the_api_server_is_away_containers_come_and_go(
    daemon: KubeDaemon, node: ScriptedNode, tmp_path: Path, *, hangs: bool
) -> None:
    server, trusted = APIServer(), certificate(tmp_path)
    serving = server.serving(trusted)
    node.wait(serving.__aenter__())
    found = account(tmp_path / "account", server, trusted=trusted)
    daemon.environment |= found.environ
    daemon.options += ["--service-account", str(found.directory), "--pods-from", "api-server"]
    node.wait(server.put(api_pod(Pod(PodUID("owner-1"), "owner"), node=NODE)))
    own = begin(daemon, node)
    assert server.calls
    server.hangs = hangs
    if hangs:
        node.call(server.disconnect)
    else:
        node.wait(serving.__aexit__(None, None, None))
    what = "API server that " + ("hangs" if hangs else "is away")
    with served_meanwhile(daemon, what):
        end, times = time.monotonic() + AWAY, list[float]()
        while time.monotonic() < end or len(times) < 3:
            begun = time.monotonic()
            assert node.wait(node.run_pod("later", 0))
            times.append(time.monotonic() - begun)
            node.wait(node.remove_pod("later"))
            assert real(node.containers()["owner"].pid) == own
    sys.stdout.write(f"{what}: a pod took {max(times):.2f} s at most\n")
    assert max(times) < AT_LAST
    daemon.settled()
    if hangs:
        daemon.kill()
        node.wait(serving.__aexit__(None, None, None))
