"""Other programs change the groups of a real daemon: it sees, names and repairs every such change."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pinfold.node.starting import forker
from tests.e2e.daemon import (
    CGROUPS,
    Daemon,
    allowed,
    best_kind,
    container,
    needs_cgroups,
    needs_two_cpus,
    pod,
    process_of,
    wait_for,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, needs_two_cpus, needs_cgroups]

V1 = best_kind() == "cgroup-v1"
needs_v1 = pytest.mark.skipif(not V1, reason="a process and its threads are in one group")
CPUSETS = CGROUPS / "cpuset" if V1 else CGROUPS
CPU = CGROUPS / "cpu" if V1 else CGROUPS
THREADS = "exec python3 -ISc 'import threading, time; threading.Thread(target=time.sleep, args=[1000]).start()'"
CHILDREN = "sleep 1000 & sleep 1000 & wait"


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with Daemon("--cpu-manager-reconcile-period", "200ms") as daemon:
        yield daemon.start()


def causes(daemon: Daemon) -> set[str]:
    return {event["cause"] for event in daemon.events("drift")}


def groups_of(pid: int) -> dict[str, str]:
    """Return the groups of a process by hierarchy, those that matter."""
    lines = (line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines())
    return {names: path for _, names, path in lines if not names or {"cpu", "cpuset"} & set(names.split(","))}


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_until_back(pid: int, right: dict[str, str]) -> None:
    wait_for(lambda: groups_of(pid) == right, "it is back", within=5)


def wait_until_right(file: Path, right: str) -> None:
    wait_for(lambda: file.read_text() == right, "it is put right", within=5)


@needs_v1
def test_a_thread_that_is_moved_out_is_brought_back(daemon: Daemon) -> None:
    daemon.apply(pod("owner", container(THREADS, cpus=1)))
    pid = daemon.running("owner")
    wait_for(lambda: len(list(Path(f"/proc/{pid}/task").iterdir())) == 2, "it has two threads")
    thread = next(int(task.name) for task in Path(f"/proc/{pid}/task").iterdir() if task.name != str(pid))
    right = groups_of(thread)
    for hierarchy in (CPUSETS, CPU):
        (hierarchy / "tasks").write_text(str(thread))
        wait_until_back(thread, right)
    assert causes(daemon) == {"members"}
    daemon.check()


@pytest.mark.guest
@pytest.mark.parametrize("cpus", [0, 1], ids=["shared", "exclusive"])
def test_a_child_that_is_moved_out_is_brought_back(daemon: Daemon, cpus: int) -> None:
    daemon.apply(pod("parent", container(CHILDREN, cpus=cpus)))
    pid = daemon.running("parent")
    child = wait_for(lambda: children_of(pid), "it has children")[0]
    right = groups_of(child)
    for hierarchy in {CPUSETS, CPU}:
        (hierarchy / "cgroup.procs").write_text(str(child))
        wait_until_back(child, right)
    assert causes(daemon) == {"members"}


@pytest.mark.guest
def test_a_main_process_that_is_moved_out_of_its_cpu_group_is_brought_back(daemon: Daemon) -> None:
    daemon.apply(pod("owner", container(cpus=1)), pod("worker"))
    for name in ("owner", "worker"):
        pid = daemon.running(name)
        right = groups_of(pid)
        (CPU / "cgroup.procs").write_text(str(pid))
        wait_until_back(pid, right)


@pytest.mark.guest
def test_a_quota_or_weight_that_is_changed_is_put_right(daemon: Daemon) -> None:
    limits = "{requests: {cpu: 500m}, limits: {cpu: 500m}}"
    daemon.apply(pod("worker", container(resources=limits)))
    daemon.running("worker")
    own = next((CPU / daemon.place.name / "shared").glob("*/app"))
    files = ("cpu.cfs_quota_us", "cpu.shares") if V1 else ("cpu.max", "cpu.weight")
    for file, other in zip(files, ("10000", "3"), strict=True):
        right = (own / file).read_text()
        (own / file).write_text(other)
        wait_until_right(own / file, right)
    assert causes(daemon) == {"limit"}


@pytest.mark.guest
@pytest.mark.parametrize("group", [".", "exclusive", "shared"])
def test_a_quota_on_a_whole_pool_is_lifted(daemon: Daemon, group: str) -> None:
    file = CPU / daemon.place.name / group / ("cpu.cfs_quota_us" if V1 else "cpu.max")
    right = file.read_text()
    file.write_text("10000")
    wait_until_right(file, right)
    assert causes(daemon) == {"limit"}


@pytest.mark.guest
@pytest.mark.parametrize("name", ["owner", "worker"])
def test_a_stranger_that_is_moved_in_is_moved_out(daemon: Daemon, name: str) -> None:
    daemon.apply(pod("owner", container(cpus=1)), pod("worker"))
    daemon.running("owner")
    daemon.running("worker")
    groups = groups_of(daemon.running(name))
    with process_of("sleep", "1000") as stranger:
        for hierarchy, names in ((CPUSETS, "cpuset"), (CPU, "cpu")):
            path = next(path for which, path in groups.items() if not which or names in which.split(","))
            Path(f"{hierarchy}{path}/cgroup.procs").write_text(str(stranger.pid))
        wait_for(
            lambda: not any(daemon.place.name in path for path in groups_of(stranger.pid).values()),
            "it is out",
            within=5,
        )
        assert stranger.poll() is None
    assert causes(daemon) == {"strangers"}
    daemon.check()


@pytest.mark.guest
def test_after_the_subtree_is_removed_every_process_returns(daemon: Daemon) -> None:
    daemon.apply(pod("owner", container(CHILDREN, cpus=1)), pod("worker", container(CHILDREN)))
    mains = [daemon.running(name) for name in ("owner", "worker")]
    wait_for(lambda: all(len(children_of(main)) == 2 for main in mains), "they have children")
    pids = [pid for main in mains for pid in (main, *children_of(main))]
    right = [(allowed(pid), groups_of(pid)) for pid in pids]
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        tops = [hierarchy / daemon.place.name for hierarchy in {CPUSETS, CPU}]
        for top in tops:
            for pid in pids:
                (top.parent / "cgroup.procs").write_text(str(pid))
            for group in sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True):
                group.rmdir()
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    wait_for(lambda: [(allowed(pid), groups_of(pid)) for pid in pids] == right, "all are back", within=5)
    daemon.check()


# -- between two periodic checks


@pytest.fixture
def patient() -> Iterator[Daemon]:
    with Daemon("--cpu-manager-reconcile-period", "10m") as daemon:
        yield daemon.start()


@pytest.mark.guest
def test_cpus_that_another_program_writes_are_put_right_at_once(patient: Daemon) -> None:
    patient.apply(pod("owner", container(cpus=1)), pod("worker"))
    pid = patient.running("owner")
    patient.running("worker")
    top = CPUSETS / patient.place.name
    for file in (next(top.glob("exclusive/*/app/cpuset.cpus")), top / "shared/cpuset.cpus"):
        right = file.read_text()
        file.write_text(str(patient.online))
        wait_until_right(file, right)
    assert causes(patient) == {"cpus"}
    assert allowed(pid) == {str(patient.state().exclusive)}
    patient.check()


@pytest.mark.guest
def test_a_stranger_that_is_moved_onto_exclusive_cpus_is_moved_out_soon(patient: Daemon) -> None:
    patient.apply(pod("owner", container(cpus=1)))
    groups = groups_of(patient.running("owner"))
    path = next(path for which, path in groups.items() if not which or "cpuset" in which.split(","))
    with process_of("sleep", "1000") as stranger:
        Path(f"{CPUSETS}{path}/cgroup.procs").write_text(str(stranger.pid))
        wait_for(lambda: patient.place.name not in str(groups_of(stranger.pid)), "it is out", within=5)


@pytest.mark.guest
def test_a_program_that_writes_again_and_again_is_named_and_does_not_make_the_daemon_spin(patient: Daemon) -> None:
    patient.apply(pod("owner", container(cpus=1)))
    patient.running("owner")
    file = next((CPUSETS / patient.place.name).glob("exclusive/*/app/cpuset.cpus"))
    start = time.monotonic()
    while time.monotonic() < start + 60 and not patient.events("fight"):
        file.write_text(str(patient.online))
        time.sleep(0.5)  # longer than a repair takes, also on a busy machine
    assert patient.events("fight")
    repairs = len(patient.events("drift"))
    for _ in range(100):
        file.write_text(str(patient.online))
        time.sleep(0.05)
    assert len(patient.events("drift")) < repairs + 10


STARVED = """
import sys
from pinfold.cli.main import main
from pinfold.node.starting import forker
forker.__file__ = sys.argv[1]
sys.exit(main(sys.argv[4:]))
"""


@pytest.mark.guest
def test_a_process_that_needs_long_to_begin_is_left_in_its_groups() -> None:
    """It has neither mark nor parent in its container until it has become its command; each look finds it so."""
    with Daemon("--cpu-manager-reconcile-period", "100ms") as daemon:
        program = daemon.place.directory / "forker.py"
        text = Path(forker.__file__).read_text()
        program.write_text(text.replace("        os.execvpe(", "        __import__('time').sleep(1); os.execvpe("))
        daemon.command = [sys.executable, "-c", STARVED, str(program), "-m", "pinfold"]
        daemon.start()
        daemon.apply(pod("owner", container(cpus=1)), pod("worker"))
        for name in ("owner", "worker"):
            daemon.running(name)
        daemon.check()
        assert not daemon.events("drift")


def test_a_process_that_becomes_its_command_during_a_check_is_left_in_its_groups() -> None:
    """In the middle of exec the kernel shows neither its command nor its environment: 1 of 50 starts was hit."""
    with Daemon("--cpu-manager-reconcile-period", "10ms") as daemon, busy(2):
        daemon.start()
        for _ in range(100):
            daemon.apply(pod("owner", container(cpus=1)))
            daemon.running("owner")
            daemon.delete("owner")
        assert not daemon.events("drift")


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Run processes that count without pause."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


WRITER = """
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY)
while True:
    os.lseek(file, 0, os.SEEK_SET)
    os.write(file, sys.argv[2].encode())
"""


@pytest.mark.guest
def test_a_program_that_writes_without_pause_is_named_as_a_fight(daemon: Daemon) -> None:
    daemon.apply(pod("owner", container(cpus=1)))
    daemon.running("owner")
    file = next((CPUSETS / daemon.place.name).glob("exclusive/*/app/cpuset.cpus"))
    right = file.read_text()
    with process_of(sys.executable, "-c", WRITER, str(file), str(daemon.online)):
        wait_for(lambda: daemon.events("fight"), "the fight is named", within=120)
        assert not daemon.events("not-repaired")
    wait_for(lambda: file.read_text() == right, "it is repaired when the other program has ended", within=120)
