"""Hostile workloads and clients: the daemon still answers others at once and loses nothing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
import uuid
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pinfold.errors import PinfoldError
from tests.e2e.daemon import ONLINE, RESERVED, Daemon, container, is_alive, needs_two_cpus, pod, wait_for
from tests.e2e.test_durable import changed
from tests.needs import needs, needs_root
from tests.support.children import children, command_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.slow, needs_two_cpus]

AT_ONCE = 1.0
"""Seconds within which another request is answered on a machine that is busy with other things."""


def slowest_while(host: Daemon, act: Callable[[], object]) -> float:
    """Return how long the slowest of the requests took that were made while *act* ran in a thread."""
    acting = threading.Thread(target=act)
    acting.start()
    slowest = 0.0
    while acting.is_alive():
        start = time.monotonic()
        host.client.get("/v1/node")
        slowest = max(slowest, time.monotonic() - start)
        acting.join(0.01)
    return slowest


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a: " + "0" * 30_000 + "x", id="30 kB of zeros"),
        pytest.param("\n".join(f"k{number}: 1" for number in range(1_000_000)), id="a million keys"),
        pytest.param("[" + "1," * 1_000_000 + "1]", id="a million numbers"),
    ],
)
def test_a_file_that_is_hard_to_parse_does_not_keep_others_waiting(host: Daemon, text: str) -> None:
    def apply() -> None:
        with pytest.raises(PinfoldError):
            host.apply(text)

    assert slowest_while(host, apply) < AT_ONCE


# -- processes that cannot be killed

FREEZER = Path("/sys/fs/cgroup/freezer")
needs_freezer = needs("the freezer of cgroup v1, and root", met=os.access(FREEZER / "cgroup.procs", os.W_OK))
LEAVES_A_CHILD = "sleep 1000 & echo $!; exec sleep 1000"


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Freeze a process, so that not even SIGKILL ends it; it goes on when the block ends."""
    group = FREEZER / f"pinfold-test-{uuid.uuid4().hex[:12]}"
    group.mkdir()
    try:
        (group / "cgroup.procs").write_text(str(pid))
        (group / "freezer.state").write_text("FROZEN")
        wait_for(lambda: (group / "freezer.state").read_text() == "FROZEN\n", "it is frozen")
        yield
    finally:
        (group / "freezer.state").write_text("THAWED")
        wait_for(lambda: _emptied(group), "it is thawed")
        group.rmdir()


def _emptied(group: Path) -> bool:
    for pid in (group / "cgroup.procs").read_text().split():
        with suppress(OSError):
            (FREEZER / "cgroup.procs").write_text(pid)
    return not (group / "cgroup.procs").read_text()


@needs_freezer
def test_a_frozen_process_that_is_deleted_keeps_its_cpus_and_no_one_waiting(host: Daemon) -> None:
    host.apply(pod("stuck", container(cpus=1)))
    with frozen(host.running("stuck")):

        def delete() -> None:
            with pytest.raises(PinfoldError, match="killed, but not ended yet"):
                host.delete("stuck")

        assert slowest_while(host, delete) < AT_ONCE
        start = time.monotonic()
        for _ in range(10):
            host.apply(pod("other"))
            host.running("other")
            host.delete("other")
        assert time.monotonic() - start < 10 * AT_ONCE
        assert len(host.pools()["shared"]) == len(ONLINE) - 1
        assert len(wait_for(lambda: host.events("not-ended"), "it is reported")) == 1
    host.idle()


@needs_freezer
def test_a_daemon_starts_although_a_process_that_it_has_to_end_is_frozen(daemon: Daemon) -> None:
    daemon.start()
    daemon.apply(pod("stuck", container(LEAVES_A_CHILD, cpus=1)))
    main = daemon.running("stuck")
    child = int(wait_for(lambda: daemon.written("stuck"), "the child runs")[0])
    kept = daemon.state_dir / "workloads.json"
    wait_for(lambda: str(main) in kept.read_text(), "its main process is on the disk")
    daemon.kill()
    with frozen(child):
        os.kill(main, signal.SIGKILL)
        wait_for(lambda: not is_alive(main), "the main process has ended")
        daemon.start()
        cannot = wait_for(lambda: daemon.events("cannot-start"), "it reports the process")[0]
        assert f"not ended yet: {child}" in cannot["why"]
    daemon.running("stuck")
    assert not is_alive(child)
    daemon.check()


@needs_freezer
def test_a_daemon_goes_on_with_a_main_process_that_is_frozen(daemon: Daemon) -> None:
    daemon.start()
    daemon.apply(pod("stuck", container(cpus=1)))
    main = daemon.running("stuck")
    with frozen(main):
        daemon.restart()
        assert daemon.running("stuck") == main
        daemon.check()


# -- requests that name the wrong process


def test_the_daemon_is_not_attached_to_a_container_and_so_not_ended_with_it(host: Daemon) -> None:
    reserved = host.client.post("/v1/run", {"name": "x", "milli": 1000})
    with pytest.raises(PinfoldError, match=f"process {host.pid} is pinfold itself"):
        host.client.post(f"/v1/run/{reserved['uid']}/attach", {"pid": host.pid})
    host.idle()
    assert host.is_alive


# -- too many clients


def test_more_clients_than_files_fill_no_log_and_are_served_when_there_is_room_again(daemon: Daemon) -> None:
    daemon.command = ["sh", "-c", 'ulimit -n 64; exec "$@"', "sh", *daemon.command]
    daemon.start()
    with ExitStack() as clients:
        for _ in range(100):
            client = clients.enter_context(socket.socket(socket.AF_UNIX))
            client.settimeout(0)
            with suppress(OSError):
                client.connect(str(daemon.socket))
        wait_for(lambda: "Too many open files" in daemon.said(), "there are too many clients")
        time.sleep(3)
    assert daemon.said().count("\n") < 100
    wait_for(lambda: _answers(daemon), "it serves again")


def _answers(daemon: Daemon) -> bool:
    try:
        return bool(daemon.pools())
    except PinfoldError:
        return False


# -- containers that print without end


def test_what_a_container_prints_is_bounded_and_removed_with_its_pod(daemon: Daemon) -> None:
    daemon.options += ["--log-dir", str(daemon.place.directory / "out"), "--log-size", "1"]
    daemon.start()
    files = daemon.place.directory / "out" / daemon.place.name
    loud = container("yes")
    daemon.apply(pod("loud", loud), pod("quiet", container("echo once; exec sleep 1000")))
    last, largest = files / "default_loud_app.log.1", 0
    wait_for(last.exists, "its output was cut")
    for _ in range(60):
        largest = max(largest, sum(_size(file) for file in files.iterdir()))
        time.sleep(0.1)
    assert largest <= 2 << 20  # 1 MiB for each of two, and it has printed 120 MB
    assert 0 < last.stat().st_size <= 512 << 10
    pid = daemon.running("loud")
    daemon.restart()
    assert daemon.running("loud") == pid
    daemon.delete("loud")
    outputs = {"default_quiet_app.log"}
    wait_for(lambda: {file.name for file in files.glob("*.log*") if file.is_file()} == outputs, "its output is removed")
    assert (files / "default_quiet_app.log").read_text() == "once\n"


def _size(file: Path) -> int:
    """Return the size of a file; one that is renamed meanwhile counts as its new name."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


@needs_root
def test_no_output_is_written_into_a_directory_that_another_user_has_made(daemon: Daemon) -> None:
    out = daemon.place.directory / "out" / daemon.place.name
    out.mkdir(parents=True)
    os.chown(out, 12345, -1)
    refused = daemon.try_to_start("--log-dir", str(out.parent))
    assert refused.returncode == 2
    assert f"the log directory {out} belongs to user 12345" in refused.stderr
    assert list(out.iterdir()) == []


@needs_root
def test_output_without_end_leaves_room_for_the_state(daemon: Daemon) -> None:
    daemon.state_dir.mkdir(mode=0o700)
    with mounted(daemon.state_dir, "256m"):
        daemon.start()
        daemon.apply(pod("loud", container("while :; do yes 2> /dev/null; done")))
        daemon.running("loud")
        for number in range(20):
            assert daemon.apply(pod(f"other{number}", container(cpus=1)))[0].get("cpus")
            daemon.delete(f"other{number}")
        daemon.check()
        daemon.delete("loud")
        daemon.kill()


@contextmanager
def mounted(directory: Path, size: str) -> Iterator[None]:
    """Mount a small file system in memory."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", directory], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", directory], check=True)


# -- other daemons


def test_a_second_daemon_that_can_give_the_same_cpus_away_is_named_by_both(daemon: Daemon) -> None:
    daemon.options += ["--cpu-manager-reconcile-period", "200ms"]
    daemon.start()
    with Daemon(*daemon.options[2:]) as other:
        other.start()
        for one, second in ((daemon, other), (other, daemon)):
            event = wait_for(partial(named, one, second), "the other one is named")
            assert (event["pid"], event["cpus"]) == (str(second.pid), str(ONLINE - RESERVED))


def test_a_second_daemon_that_can_give_the_same_cpus_away_does_not_start_if_told_so(daemon: Daemon) -> None:
    daemon.start()
    daemon.apply(pod("x"))
    with Daemon("--other-daemons", "refuse") as other:
        refused = other.try_to_start()
        assert refused.returncode == 5
        assert f"can give CPUs {ONLINE - RESERVED} to containers too; stop it" in refused.stderr
        assert not other.place.processes()
        daemon.running("x")


def test_a_second_daemon_with_other_cpus_is_none(daemon: Daemon) -> None:
    daemon.start()
    with Daemon("--reserved-cpus", str(ONLINE - RESERVED), "--other-daemons", "refuse") as other:
        other.options = other.options[2:]
        other.start()
        daemon.apply(pod("x"))
        daemon.running("x")
        assert named(other, daemon) is None


@pytest.mark.parametrize("kind", ["affinity", None], ids=["affinity", "the best kind"])
def test_a_second_daemon_with_the_same_groups_does_not_start(kind: str | None) -> None:
    with Daemon(kind=kind) as first, Daemon(kind=kind) as second:
        first.start()
        second.groups = first.groups
        refused = second.try_to_start()
        assert refused.returncode == 5
        assert "another daemon uses the groups" in refused.stderr


def named(daemon: Daemon, other: Daemon) -> dict[str, str] | None:
    """Return the event in which a daemon names the other one; daemons of other tests may be there too."""
    return next((event for event in daemon.events("second-manager") if event["group"] == other.place.name), None)


# -- programs of our own


def programs_of(daemon: Daemon) -> dict[str, int]:
    """Return the programs beside the daemon by their names."""
    commands = {child: command_of(child) for child in children(daemon.pid)}
    ours = ("forker.py", "drain.py")
    return {Path(part).name: pid for pid, parts in commands.items() for part in parts if part.endswith(ours)}


def test_no_container_can_take_and_so_end_a_program_of_the_daemon(daemon: Daemon) -> None:
    daemon.start()
    daemon.apply(pod("x"))
    daemon.running("x")
    before = programs_of(daemon)
    assert set(before) == {"forker.py", "drain.py"}
    for pid in (*before.values(), daemon.pid):
        with pytest.raises(PinfoldError, match="pinfold itself"):
            daemon.client.post("/v1/adopt", {"name": "y", "milli": 0, "shared": True, "pid": pid})
        reserved = daemon.client.post("/v1/run", {"name": "y", "milli": 0, "shared": True})
        with pytest.raises(PinfoldError, match="pinfold itself"):
            daemon.client.post(f"/v1/run/{reserved['uid']}/attach", {"pid": pid})
        with suppress(PinfoldError):
            daemon.delete("y")
    assert programs_of(daemon) == before


def test_a_killed_drain_is_replaced_and_leaves_no_zombie(daemon: Daemon) -> None:
    daemon.start()
    daemon.apply(pod("x"))
    daemon.running("x")
    killed = programs_of(daemon)["drain.py"]
    os.kill(killed, signal.SIGKILL)
    wait_for(lambda: programs_of(daemon).get("drain.py", killed) != killed, "another drain runs")
    wait_for(lambda: not Path(f"/proc/{killed}").exists(), "the killed one was waited for")


def test_a_stopped_forker_keeps_no_one_waiting(daemon: Daemon) -> None:
    daemon.start()
    daemon.apply(pod("x"))
    daemon.running("x")
    os.kill(programs_of(daemon)["forker.py"], signal.SIGSTOP)
    start = time.monotonic()
    daemon.apply(pod("y"))
    daemon.running("y")
    assert time.monotonic() - start < 10


# A new forker needs 3 seconds to begin.
SLOW_FORKER = """
from pathlib import Path
from pinfold.node.starting import forker
text = Path(forker.__file__).read_text()
forker.__file__ = {program!r}
Path(forker.__file__).write_text(text.replace("daemon = socket", "import time; time.sleep(3); daemon = socket"))
"""


def run_pod(daemon: Daemon, name: str, command: str = "exec sleep 1000") -> None:
    """Apply a pod, and wait until it runs."""
    daemon.apply(pod(name, container(command)))
    daemon.running(name)


def test_others_are_answered_while_a_new_forker_takes_long_to_start(daemon: Daemon) -> None:
    changed(daemon, SLOW_FORKER.format(program=str(daemon.place.directory / "forker.py"))).start()
    assert slowest_while(daemon, lambda: run_pod(daemon, "x")) < AT_ONCE
    os.kill(programs_of(daemon)["forker.py"], signal.SIGKILL)
    assert slowest_while(daemon, lambda: run_pod(daemon, "y")) < AT_ONCE
    daemon.check()


@needs_freezer
def test_others_are_answered_while_the_forker_is_frozen_and_no_job_runs_twice(daemon: Daemon, tmp_path: Path) -> None:
    daemon.start()
    run_pod(daemon, "x")
    marks = tmp_path / "marks"
    with frozen(programs_of(daemon)["forker.py"]):
        loud = f"echo ran >> {marks}; exec sleep 1000"
        assert slowest_while(daemon, lambda: run_pod(daemon, "y", loud)) < AT_ONCE
    assert marks.read_text() == "ran\n"
    daemon.restart()
    daemon.running("y")
    assert marks.read_text() == "ran\n"


@needs_freezer
def test_a_pod_is_deleted_while_it_waits_for_a_frozen_forker_and_never_runs(daemon: Daemon, tmp_path: Path) -> None:
    daemon.start()
    run_pod(daemon, "x")
    mark = tmp_path / "mark"

    def come_and_go() -> None:
        daemon.apply(pod("y", container(f"touch {mark}; exec sleep 1000", cpus=1)))
        daemon.delete("y")

    with frozen(programs_of(daemon)["forker.py"]):
        assert slowest_while(daemon, come_and_go) < AT_ONCE
    run_pod(daemon, "z")
    assert not mark.exists()
    daemon.check()
