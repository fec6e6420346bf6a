"""The shield beside a real containerd, whose own processes it moves; `test_shield.py` runs this in a PID namespace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.containerd import Ask, Containerd, allowed
from tests.e2e.daemon import ONLINE, RESERVED, SPARE, wait_for
from tests.e2e.kubedaemon import PATIENCE, KubeDaemon, real

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pinfold.core.machine.cpuset import CPUSet

OWN = ONLINE - RESERVED
ALL, SOME = Ask(milli=SPARE * 1000), Ask(milli=500)


@pytest.fixture(scope="module", params=["trixie", "sid"])
def containerd(request: pytest.FixtureRequest) -> Iterator[Containerd]:
    with Containerd(request.param) as found:
        yield found


@pytest.fixture(params=["nri", "cri"])
def node(containerd: Containerd, request: pytest.FixtureRequest) -> Iterator[KubeDaemon]:
    with KubeDaemon(containerd, request.param, "--shield", "true") as node:
        node.start()
        try:
            yield node
        finally:
            containerd.remove_all()
            node.kill()
            said = node.verb("shield", "off", "--state-dir", str(node.state_dir))  # a failed test leaves nothing moved
            assert said.returncode == 0, said.stderr


def runtime_cpus(containerd: Containerd) -> set[CPUSet]:
    """Return the CPUs of all threads of containerd and of its shims."""
    shims = (int(path.name) for path in Path("/proc").glob("[0-9]*") if is_shim(containerd, path))
    return {cpus for pid in (containerd.pid, *shims) for cpus in real(pid)}


def is_shim(containerd: Containerd, process: Path) -> bool:
    try:
        words = (process / "cmdline").read_text().split("\0")
    except OSError:  # it has just ended
        return False
    return "containerd-shim" in words[0] and str(containerd.cri_socket) in words


def is_on(pid: int, cpus: CPUSet) -> None:
    wait_for(lambda: allowed(pid) == cpus, f"process {pid} is on CPUs {cpus}", PATIENCE)


def test_a_runtime_that_the_shield_has_moved_starts_containers_on_the_right_cpus(
    containerd: Containerd, node: KubeDaemon
) -> None:
    before = containerd.run_container(containerd.run_pod("before", "burstable"), SOME)[1]
    pod = containerd.run_pod("db")
    owner = containerd.run_container(pod, ALL)[1]
    is_on(owner, OWN)
    wait_for(lambda: runtime_cpus(containerd) == {RESERVED}, "containerd and its shims have been moved", PATIENCE)
    sharers = [containerd.run_container(containerd.run_pod(qos, qos), SOME)[1] for qos in ("burstable", "besteffort")]
    for pid in (before, *sharers):
        is_on(pid, RESERVED)
    containerd.restart()  # the next one inherits the CPUs of this process, which was moved too
    wait_for(lambda: runtime_cpus(containerd) == {RESERVED}, "the next containerd has been moved", PATIENCE)
    late = containerd.run_container(containerd.run_pod("late", "burstable"), SOME)[1]
    is_on(late, RESERVED)
    assert allowed(owner) == OWN
    containerd.remove_pod(pod)
    for pid in (before, *sharers, late):  # started by a runtime on few CPUs, they have the whole pool
        is_on(pid, ONLINE)
    wait_for(lambda: runtime_cpus(containerd) == {ONLINE}, "containerd has all CPUs again", PATIENCE)
    following = containerd.run_container(containerd.run_pod("next"), ALL)[1]
    is_on(following, OWN)
    node.settled()
