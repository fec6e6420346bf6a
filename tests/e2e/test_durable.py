"""What is on the disk, and when an answer may claim it: a real daemon beside disks that are full, slow or read-only."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import pytest

from pinfold.errors import PinfoldError
from tests.e2e.daemon import Daemon, allowed, best_kind, container, needs_two_cpus, pod, process_of, wait_for
from tests.needs import lacking
from tests.unit.node.test_statefile import tmpfs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

pytestmark = [pytest.mark.slow, needs_two_cpus]

# Each fsync of the daemon takes so many seconds.
SLOW = "import os, time; sync = os.fsync; os.fsync = lambda file: (time.sleep({seconds}), sync(file))[1]"
# The daemon is killed when it is about to set the CPUs of a process, or right after that.
KILLED = """
import os
set, victim, late = os.sched_setaffinity, int(os.environ["VICTIM"]), "{when}" == "after"
def kill(pid, cpus):
    if pid != victim or late:
        set(pid, cpus)
    if pid == victim:
        os.kill(os.getpid(), 9)
os.sched_setaffinity = kill
"""
# The daemon gets a SIGHUP while it reads its machine for the first time.
EARLY = """
import os, signal
from pinfold.cli import serve
read = serve._Given.machine
def machine(given):
    serve._Given.machine = read
    os.kill(os.getpid(), signal.SIGHUP)
    return read(given)
serve._Given.machine = machine
"""
MAIN = "import sys; from pinfold.cli.main import main; sys.exit(main(sys.argv[1:]))"


def changed(daemon: Daemon, program: str) -> Daemon:
    """Let a daemon run a program first."""
    daemon.command = [sys.executable, "-c", f"{program}\n{MAIN}"]
    return daemon


def ask(daemon: Daemon, path: str) -> tuple[int, str]:
    """Return the status and the text of an answer over TCP."""
    page = re.search(r"http://\S+/", daemon.ready)
    assert page is not None
    try:
        with urllib.request.urlopen(f"{page[0]}{path}", timeout=20) as answer:  # noqa: S310 - of the daemon
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@contextmanager
def unwritable(path: Path) -> Iterator[None]:
    """Keep a file from being replaced, as a full disk does, for every user."""
    elsewhere = path.with_name("elsewhere")
    path.rename(elsewhere)
    path.mkdir()
    try:
        yield
    finally:
        path.rmdir()
        elsewhere.rename(path)


def kept_pods(daemon: Daemon) -> set[str]:
    rows = json.loads((daemon.state_dir / "workloads.json").read_text())["workloads"]
    return {row["pod"]["metadata"]["name"] for row in rows}


def job(name: str, marks: Path) -> str:
    """A pod that leaves a mark each time it runs, and is never to run again."""
    command = f"echo ran >> {marks}; while [ ! -e {marks}.go ]; do sleep 0.02; done"
    return pod(name, container(command=command), restart="Never")


# -- more than can be read again


def refusals(daemon: Daemon, pods: dict[str, str]) -> dict[str, str]:
    """Apply one pod after the other; return why those that were refused were."""
    told = {}
    for name, text in pods.items():
        try:
            (row,) = daemon.apply(text)
            told[name] = str(row.get("refused", ""))
        except PinfoldError as refusal:
            told[name] = str(refusal)
    return {name: why for name, why in told.items() if why}


def test_nine_pods_with_annotations_of_2_mb_are_refused(daemon: Daemon) -> None:
    daemon.start()
    large = f"{{annotations: {{a: {'x' * 2_000_000}}}, name:"
    told = refusals(daemon, {f"p{number}": pod(f"p{number}").replace("{name:", large) for number in range(9)})
    assert len(told) == 9
    assert all("Kubernetes allows 262,144" in why for why in told.values())
    daemon.idle()


def test_pods_that_could_not_be_read_again_are_refused_and_the_others_keep_their_restart_policies(
    daemon: Daemon, tmp_path: Path
) -> None:
    daemon.start()
    values = ", ".join(f"{{name: V{number}, value: {'x' * 120_000}}}" for number in range(12))
    jobs, go = {}, tmp_path.with_suffix(".go")
    for number in range(13):  # 18 MB in all
        command = f"echo ran >> {tmp_path / str(number)}; while [ ! -e {go} ]; do sleep 0.2; done"
        jobs[f"p{number}"] = pod(f"p{number}", container(command, more=f"env: [{values}]"), restart="Never")
    told = refusals(daemon, jobs)
    taken = jobs.keys() - told.keys()
    assert taken
    assert told
    assert all("at most 16,777,216 can be read again" in why for why in told.values())
    wait_for(lambda: len(list(tmp_path.iterdir())) == len(taken), "all that were taken run")
    daemon.restart()
    assert kept_pods(daemon) == taken
    go.touch()
    wait_for(lambda: not daemon.place.processes(), "all jobs have ended")
    daemon.restart()
    assert not daemon.place.processes()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {name[1:]: "ran\n" for name in taken}
    assert ask(daemon, "readyz")[0] == 200


# -- a slow disk


def test_health_and_metrics_answer_within_100_ms_while_an_fsync_takes_2_seconds(daemon: Daemon) -> None:
    changed(daemon, SLOW.format(seconds=2)).start()
    times: list[float] = []
    applying = threading.Thread(target=daemon.apply, args=(pod("owner", container(cpus=1)), pod("other")))
    begin = time.monotonic()
    applying.start()
    while applying.is_alive():
        for path in ("healthz", "metrics"):
            start = time.monotonic()
            assert ask(daemon, path)[0] == 200
            times.append(time.monotonic() - start)
        time.sleep(0.05)
    assert time.monotonic() - begin > 2
    assert median(times) < 0.1
    assert max(times) < 1.9  # no answer waits for the disk, however busy the machine is
    daemon.running("other")


def test_commands_at_once_share_the_write_of_their_list(daemon: Daemon) -> None:
    changed(daemon, SLOW.format(seconds=0.3)).start()
    names = [f"p{number}" for number in range(8)]
    one_by_one = [threading.Thread(target=daemon.apply, args=(pod(name),)) for name in names]
    begin = time.monotonic()
    for thread in one_by_one:
        thread.start()
    for thread in one_by_one:
        thread.join()
    took = time.monotonic() - begin
    daemon.kill()
    daemon.start()
    assert {row["pod"] for row in daemon.containers()} == set(names)
    assert took < 8 * 0.6  # the file and its directory, for each of them


# -- a full disk


def test_a_delete_that_was_answered_does_not_come_back(daemon: Daemon) -> None:
    daemon.start()
    daemon.apply(pod("x"), pod("y"))
    daemon.running("x")
    with unwritable(daemon.state_dir / "workloads.json"):
        for _ in range(2):  # also the second answer claims nothing
            with pytest.raises(PinfoldError, match="pod x has ended, but that is not on the disk yet"):
                daemon.delete("x")
        assert [row["pod"] for row in daemon.containers()] == ["y"]
        status, said = ask(daemon, "readyz")
        assert (status, "workloads.json" in said) == (503, True)
    wait_for(lambda: kept_pods(daemon) == {"y"}, "the daemon has tried again")
    wait_for(lambda: ask(daemon, "readyz")[0] == 200, "it is ready again")
    daemon.restart()
    assert [row["pod"] for row in daemon.containers()] == ["y"]


@pytest.mark.parametrize("when", ["while the disk is full", "after it was tried again"])
def test_a_job_that_is_never_to_run_again_runs_once(daemon: Daemon, tmp_path: Path, when: str) -> None:
    marks = tmp_path / "marks"
    daemon.start()
    daemon.apply(job("job", marks))
    daemon.running("job")
    with unwritable(daemon.state_dir / "workloads.json"):
        (tmp_path / "marks.go").touch()
        wait_for(lambda: not daemon.containers(), "the job has ended")
        if when == "while the disk is full":
            daemon.kill()
    if daemon.is_alive:
        wait_for(lambda: not kept_pods(daemon), "the daemon has tried again")
    daemon.restart()
    wait_for(lambda: not daemon.containers(), "the job is known to have ended")
    assert marks.read_text() == "ran\n"


# -- a disk that takes nothing when the daemon starts


@contextmanager
def read_only(directory: Path) -> Iterator[None]:
    subprocess.run(["mount", "-o", "remount,ro", str(directory)], check=True)
    try:
        yield
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(directory)], check=True)


@contextmanager
def full(directory: Path) -> Iterator[None]:
    filler = directory / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    yield
    filler.unlink()


@pytest.mark.parametrize("trouble", [read_only, full])
def test_the_daemon_starts_where_nothing_can_be_saved_and_readiness_says_so(
    daemon: Daemon, trouble: Callable[[Path], AbstractContextManager[None]]
) -> None:
    with tmpfs(daemon.state_dir, size="4m") as directory:
        directory.chmod(0o700)
        daemon.start()
        run = daemon.run("owner", "sleep", "1000")
        before = daemon.containers()
        daemon.kill()
        with trouble(directory):
            daemon.start()
            assert [row["cpus"] for row in daemon.containers()] == [row["cpus"] for row in before]
            status, said = ask(daemon, "readyz")
            # On a full disk the State has blocks of its own, for as long as they last.
            assert (status, "not saved" in said) in [(503, True)] + [(200, False)] * (trouble is full)
            assert ask(daemon, "healthz")[0] == 200
        wait_for(lambda: ask(daemon, "readyz")[0] == 200, "it has saved everything")
        run.terminate()
        run.wait()
        daemon.idle()
        daemon.kill(signal.SIGTERM)


# -- intent before the kernel changes


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_whose_adoption_was_cut_short_is_known_or_not_pinned(when: str) -> None:
    with Daemon(kind="affinity") as daemon, process_of("sleep", "1000") as process:
        daemon.environment["VICTIM"] = str(process.pid)
        changed(daemon, KILLED.format(when=when)).start()
        assert daemon.verb("adopt", str(process.pid), "--name", "x", "--cpus", "1").returncode != 0
        daemon.kill()
        daemon.command = [sys.executable, "-m", "pinfold"]
        daemon.start()
        assert [row["pid"] for row in daemon.containers()] == [process.pid]
        daemon.check()


def test_a_process_that_was_moved_half_way_is_off_exclusive_cpus_before_the_daemon_is_ready() -> None:
    with Daemon(kind="cgroup-v1") as daemon:
        if best_kind() != "cgroup-v1":
            lacking("cgroup v1")
        daemon.start("--cpu-manager-reconcile-period", "1000s")
        daemon.run("owner", "sleep", "1000")
        daemon.apply(pod("other"))
        pid = daemon.running("other")
        before = allowed(pid)
        daemon.kill()
        daemon.place.cpuset(".", "cgroup.procs").write_text(str(pid))  # in the cpu hierarchy it is where it belongs
        assert allowed(pid) != before
        daemon.start("--cpu-manager-reconcile-period", "1000s")
        assert allowed(pid) == before


# -- what else a start may meet


def test_a_reload_that_comes_before_the_daemon_is_ready_is_done_when_it_is(daemon: Daemon) -> None:
    changed(daemon, EARLY).start()
    wait_for(lambda: daemon.events("reconfigured"), "the configuration was read again")


def test_empty_groups_of_pods_that_a_killed_daemon_left_are_removed() -> None:
    with Daemon() as daemon:
        if daemon.place.kind == "affinity":
            lacking("permission to make cgroups")
        daemon.start()
        before = daemon.place.groups()
        daemon.kill()
        for pool in ("shared", "exclusive"):
            daemon.place.cpuset(pool, "pod-left").mkdir()
        daemon.start()
        assert daemon.place.groups() == before
