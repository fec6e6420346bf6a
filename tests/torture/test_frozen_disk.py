"""A daemon whose disk takes nothing for a while, as during a snapshot: only what needs the disk waits for it.

The disk is a real file system on a loop device, frozen by the kernel: every call that would change it waits.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from pinfold.core.machine.cpuset import CPUSet
from tests.e2e.daemon import Daemon, allowed, container, needs_two_cpus, pod
from tests.e2e.test_durable import ask
from tests.needs import lacking, needs_root
from tests.torture.test_faults import AT_LAST, HEALTHY, RECOVERY, Changes, Health, end_all, see_that_it_works

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.slow, needs_two_cpus, needs_root]

FROZEN: Final = 3.0
SIZE: Final = 32 << 20
SIZES: Final = {"shrinks": 2, "grows": 3}


@contextmanager
def disk(directory: Path) -> Iterator[Path]:
    """A file system of its own at *directory*, on a loop device."""
    image = directory.with_name("image")
    with image.open("wb") as file:
        file.truncate(SIZE)
    directory.mkdir()
    for command in (["mkfs.ext4", "-q", str(image)], ["mount", "-o", "loop", str(image), str(directory)]):
        if subprocess.run(command, capture_output=True, check=False).returncode:
            lacking(f"{command[0]}, and permission to mount a loop device")
    directory.chmod(0o700)
    try:
        yield directory
    finally:
        subprocess.run(["umount", str(directory)], check=True)


@contextmanager
def frozen(directory: Path) -> Iterator[None]:
    """Let every change of the file system at *directory* wait until the block ends."""
    subprocess.run(["fsfreeze", "--freeze", str(directory)], check=True)
    try:
        yield
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", str(directory)], check=True)


@contextmanager
def daemon_on_a_disk(daemon: Daemon) -> Iterator[Daemon]:
    """Start a daemon that keeps everything on a file system of its own."""
    with daemon, disk(daemon.state_dir) as directory:
        daemon.options += ["--log-dir", str(directory / "logs"), "--cpu-manager-reconcile-period", "1s"]
        try:
            yield daemon.start()
        finally:
            end_all(daemon, directory)


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with daemon_on_a_disk(Daemon()) as daemon:
        yield daemon


def test_a_frozen_disk_delays_only_what_it_must_keep(daemon: Daemon) -> None:
    changes = Changes(daemon)
    changes.come("owner", cpus=1)
    changes.come("old")
    daemon.apply(pod("failing", container("echo again; exit 1")))  # it is started again and again
    owner = daemon.running("owner")
    own = allowed(owner)
    asking = [threading.Thread(target=changes.come, args=["new"]), threading.Thread(target=changes.go, args=["old"])]
    with frozen(daemon.state_dir), Health(daemon) as health:
        for thread in asking:
            thread.start()
        end = time.monotonic() + FROZEN
        while time.monotonic() < end:
            assert daemon.find("owner") is not None
            assert ask(daemon, "metrics")[0] == 200
            time.sleep(0.1)
        assert "new" not in changes.answered, "an answer is given only when the disk has what it says"
        assert allowed(owner) == own
    for thread in asking:
        thread.join(RECOVERY)
    assert changes.answered == {"owner": True, "old": False, "new": True}
    sys.stdout.write(f"\nfrozen disk: {health}\n")
    assert health.statuses == {200}
    assert health.middle < HEALTHY
    assert max(health.times) < min(AT_LAST, FROZEN)
    daemon.delete("failing")
    assert any(entry["what"] == "admitted" and entry.get("pod") == "new" for entry in history(daemon))
    see_that_it_works(daemon, changes, owner)


def history(daemon: Daemon) -> list[dict[str, object]]:
    entries: list[dict[str, object]] = daemon.client.get("/v1/history")["entries"]
    return entries


def test_a_container_that_cannot_be_given_notice_keeps_no_one_else_waiting() -> None:
    machine = Daemon("--runtime", "simulated", "--preset", "epyc-7303-2s", "--policy", "dynamic", kind="affinity")
    machine.groups = []
    with daemon_on_a_disk(machine) as daemon:
        daemon.apply(pod("shrinks", container(cpus=4)), pod("grows", container(cpus=2)))
        before = resized(daemon)
        asking = [
            threading.Thread(target=daemon.verb, args=["resize", f"{name}/app", "--cpus", str(count)])
            for name, count in SIZES.items()
        ]
        with frozen(daemon.state_dir), Health(daemon) as health:
            for thread in asking:
                thread.start()
            time.sleep(FROZEN)
            assert resized(daemon) == before, "no change is made before the disk has it"
        for thread in asking:
            thread.join(RECOVERY)
        sys.stdout.write(f"\nfrozen disk, policy dynamic: {health}\n")
        assert health.statuses == {200}
        assert health.middle < HEALTHY
        assert max(health.times) < FROZEN
        assert {name: len(cpus) for name, cpus in resized(daemon).items()} == SIZES
        notices = {path.read_text().strip() for path in (daemon.state_dir / "notices").glob("*/cpus")}
        assert notices == set(map(str, resized(daemon).values())), "the containers know their CPUs at last"


def resized(daemon: Daemon) -> dict[str, CPUSet]:
    """Return the CPUs of each container that is to be resized."""
    rows = {name: daemon.find(name) for name in SIZES}
    return {name: CPUSet.parse(row["cpus"]) for name, row in rows.items() if row is not None}
