"""The daemon on this host's kernel, from outside: what runs where, what comes back, what outlives a crash."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pinfold.cli.asking.client import RefusedByDaemon
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.state import State
from pinfold.errors import PinfoldError
from pinfold.formats.kubelet.checkpoint import format_checkpoint
from tests.e2e.daemon import (
    CGROUPS,
    ONLINE,
    PATIENCE,
    RESERVED,
    SPARE,
    Daemon,
    allowed,
    assert_no_traceback,
    best_kind,
    container,
    is_alive,
    needs_cgroups,
    needs_two_cpus,
    pod,
    process_of,
    wait_for,
)
from tests.e2e.test_unprivileged import nobody
from tests.needs import lacking, needs_root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [needs_two_cpus]

KINDS = sorted({best_kind(), "affinity"})
MAKE_THREADS = "import _thread as t, time\nfor _ in range(4): t.start_new_thread(time.sleep, (1000,))"
THREADS = f'exec python3 -ISc "{MAKE_THREADS}\ntime.sleep(1000)"'
STUBBORN = "trap 'echo asked' TERM; echo ready; while :; do sleep 0.02; done"
# Leaves children behind that take the kernel a while to end.
LITTER = """
import os, time
for _ in range(60):
    if not os.fork():
        memory = bytearray(30 << 20)
        for at in range(0, len(memory), 4096): memory[at] = 1
        print("ready", flush=True)
        time.sleep(1000)
        os._exit(0)
"""


@pytest.fixture(params=KINDS)
def any_daemon(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    with Daemon(kind=request.param) as daemon:
        yield daemon


def cpus_of(line: str) -> CPUSet:
    return CPUSet.parse(line.split()[1])


def threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def quota(pid: int) -> int | None:
    """Return the least CPU time per period that any cgroup above a process leaves it, None if none does."""
    found = []
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(",") or number == "0":
            group = (CGROUPS / "cpu" if number != "0" else CGROUPS) / path[1:]
            for file, words in ((group / "cpu.cfs_quota_us", 1), (group / "cpu.max", 2)):
                for place in (file, *(above / file.name for above in group.parents if CGROUPS in above.parents)):
                    said = place.read_text().split() if place.exists() else []
                    found += [int(word) for word in said[: min(words, 1)] if word not in {"max", "-1"}]
    return min(found, default=None)


def has_quota(pid: int, expected: int | None) -> bool:
    return quota(pid) == expected


# -- the KEP's scenarios


@pytest.mark.parametrize("way", ["run", pytest.param("apply", marks=pytest.mark.guest)])
def test_a_container_arrives_that_requires_exclusive_cores(any_daemon: Daemon, way: str) -> None:
    daemon = any_daemon.start()
    daemon.apply(pod("threads", container(THREADS)), pod("worker"))
    workers = [daemon.running("threads"), daemon.running("worker")]
    wait_for(lambda: threads(workers[0]) == 5, "all threads are there")
    look = f"grep -h Cpus_allowed_list /proc/self/status {' '.join(f'/proc/{pid}/task/*/status' for pid in workers)}"
    if way == "run":
        lines = daemon.verb("run", "--cpus", str(SPARE), "--", "sh", "-c", look).stdout.splitlines()
    else:
        daemon.apply(pod("arrives", container(f"{look}; sleep 0.1", cpus=SPARE), restart="Never"))
        lines = wait_for(lambda: len(found := daemon.written("arrives")) > 6 and found, "it has looked around")
    own, *others = map(cpus_of, lines)
    assert len(own) == SPARE
    assert others == [ONLINE - own] * 6


@pytest.mark.guest
def test_a_container_that_was_assigned_exclusive_cores_terminates(any_daemon: Daemon) -> None:
    daemon = any_daemon.start()
    daemon.apply(pod("threads", container(THREADS)), pod("exclusive", container(cpus=SPARE)))
    worker, owner = daemon.running("threads"), daemon.running("exclusive")
    assert allowed(owner) == {str(ONLINE - RESERVED)}
    assert allowed(worker) == {str(RESERVED)}
    daemon.check()
    daemon.delete("exclusive")
    assert not is_alive(owner)
    assert allowed(worker) == {str(ONLINE)}
    assert daemon.state() == State(ONLINE)
    daemon.check()


@pytest.mark.guest
@pytest.mark.parametrize("strict", [False, True], ids=["reserved is shared", "strict-cpu-reservation"])
def test_the_shared_pool_becomes_empty_cannot_happen(daemon: Daemon, *, strict: bool) -> None:
    daemon.start("--policy-options", f"strict-cpu-reservation={'true' if strict else 'false'}")
    most = SPARE - 1 if strict else SPARE
    if most:
        daemon.apply(pod("most", container(cpus=most)))
        daemon.running("most")
    left = daemon.pools()["shared"]
    refused = daemon.verb("run", "--cpus", "1", "--", "echo", "started")
    assert (refused.returncode, refused.stdout) == (125, "")
    assert daemon.pools()["shared"] == left
    assert len(left) == 1
    daemon.apply(pod("worker"))
    assert allowed(daemon.running("worker")) == {str(left)}


# -- exclusive and shared


@pytest.mark.guest
def test_a_shared_container_that_arrives_later_keeps_off_exclusive_cpus(host: Daemon) -> None:
    host.apply(pod("owner", container(cpus=SPARE)))
    host.running("owner")
    host.apply(pod("later", container("grep Cpus_allowed_list /proc/self/status; exec sleep 1000")))
    assert cpus_of(wait_for(lambda: host.written("later"), "it has looked")[0]) == RESERVED
    host.check()
    for name in ("owner", "later"):
        host.delete(name)
    host.idle()


@pytest.mark.guest
def test_of_a_mixed_pod_only_the_whole_cpu_container_is_pinned(host: Daemon) -> None:
    half = "{requests: {cpu: 500m, memory: 1Mi}, limits: {cpu: 500m, memory: 1Mi}}"
    host.apply(pod("mixed", container(cpus=1), container(name="half", resources=half)))
    whole, fraction = host.running("mixed", "app"), host.running("mixed", "half")
    (own,) = map(CPUSet.parse, allowed(whole))
    assert len(own) == 1
    assert allowed(fraction) == {str(ONLINE - own)}
    host.check()
    host.delete("mixed")
    host.idle()


@pytest.mark.guest
def test_adopt_moves_all_threads_of_a_process_and_its_later_children(host: Daemon) -> None:
    script = f"{MAKE_THREADS}\nimport os, sys\nsys.stdin.readline()\nos.fork()\ntime.sleep(1000)"
    with process_of(sys.executable, "-ISc", script, stdin=subprocess.PIPE, env=host.place.environment) as process:
        assert process.stdin is not None
        wait_for(lambda: threads(process.pid) == 5, "all threads are there")
        assert host.verb("adopt", str(process.pid), "--name", "mine").returncode == 0
        again = host.verb("adopt", str(process.pid), "--name", "again")
        assert "belongs to container main of pod mine" in again.stderr
        (own,) = map(CPUSet.parse, allowed(process.pid))
        assert len(own) == 1
        host.check()
        process.stdin.write("go on\n")
        process.stdin.flush()
        wait_for(lambda: len(host.place.processes()) == 2, "it has forked")
        assert {tuple(allowed(pid)) for pid in host.place.processes()} == {(str(own),)}
        for pid in host.place.processes():
            os.kill(pid, signal.SIGKILL)
    host.idle()


@pytest.mark.guest
@needs_cgroups
def test_shared_containers_have_their_limit_and_exclusive_ones_none(host: Daemon) -> None:
    few, half = "{requests: {cpu: 100m}, limits: {cpu: 200m}}", "{limits: {cpu: 500m, memory: 1Mi}}"
    host.apply(
        pod("few", container(resources=few)),
        pod("half", container(resources=half)),
        pod("free"),
        pod("exclusive", container(cpus=1)),
    )
    found = {name: quota(host.running(name)) for name in ("few", "half", "free", "exclusive")}
    assert found == {"few": 20_000, "half": 50_000, "free": None, "exclusive": None}
    for name in found:
        host.delete(name)
    host.idle()


@needs_cgroups
@pytest.mark.parametrize(
    ("option", "expected"), [("--cpu-cfs-quota=false", None), ("--cpu-cfs-quota-period=20ms", 4_000)]
)
def test_the_settings_of_the_quota_are_used(daemon: Daemon, option: str, expected: int | None) -> None:
    daemon.start(option)
    daemon.apply(pod("few", container(resources="{limits: {cpu: 200m}}")))
    assert quota(daemon.running("few")) == expected


@needs_cgroups
def test_other_settings_of_the_quota_are_taken_over_while_everything_runs(daemon: Daemon) -> None:
    config = daemon.place.directory / "kubelet.yaml"
    text = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\ncpuManagerPolicy: static\n"
    text += f'reservedSystemCPUs: "{RESERVED}"\n'
    config.write_text(text)
    daemon.options = ["--config", str(config)]
    daemon.start()
    daemon.apply(pod("few", container(resources="{limits: {cpu: 200m}}")))
    pid = daemon.running("few")
    assert quota(pid) == 20_000
    for line, expected in (("cpuCFSQuotaPeriod: 20ms", 4_000), ("cpuCFSQuota: false", None), ("", 20_000)):
        config.write_text(f"{text}{line}\n")
        os.kill(daemon.pid, signal.SIGHUP)
        wait_for(partial(has_quota, pid, expected), f"the quota is {expected}")
    assert daemon.running("few") == pid
    assert daemon.events("reload-refused") == []


# -- pinfold run


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["true"], 0),
        (["sh", "-c", "exit 7"], 7),
        (["/etc/passwd"], 126),
        (["/"], 126),
        (["no-such-command"], 127),
        (["sh", "-c", "kill -TERM $$"], 128 + signal.SIGTERM),
        (["sh", "-c", "kill -KILL $$"], 128 + signal.SIGKILL),
    ],
    ids=["0", "7", "not executable", "a directory", "not found", "SIGTERM", "SIGKILL"],
)
def test_run_exits_as_its_command_does(host: Daemon, command: list[str], code: int) -> None:
    result = host.verb("run", "--", *command)
    assert result.returncode == code
    assert len(result.stderr.splitlines()) == (code in {126, 127})
    host.idle()


def test_run_passes_signals_on(host: Daemon) -> None:
    numbers = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGQUIT]
    traps = "".join(f"trap 'echo {number.name}' {number.name[3:]}; " for number in numbers)
    process = host.run("signals", "sh", "-c", f"{traps} echo ready; while :; do sleep 0.02; done")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    for number in numbers:
        process.send_signal(number)
        assert process.stdout.readline() == f"{number.name}\n"
    os.kill(host.running("signals"), signal.SIGKILL)
    assert process.wait() == 128 + signal.SIGKILL
    host.idle()


@pytest.mark.parametrize(
    "number",
    [signal.SIGALRM, signal.SIGPIPE, signal.SIGXCPU, signal.SIGWINCH, signal.SIGURG, signal.SIGRTMIN, signal.SIGRTMAX],
    ids=lambda number: number.name,
)
def test_run_passes_every_signal_on_that_can_be(host: Daemon, number: signal.Signals) -> None:
    script = (
        "import signal\n"
        f"signal.pthread_sigmask(signal.SIG_BLOCK, [{int(number)}])\n"
        "print('ready', flush=True)\n"
        f"print(signal.sigwait([{int(number)}]).value, flush=True)"
    )
    process = host.run("signals", sys.executable, "-ISc", script, options=["--qos", "besteffort"])
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert process.wait(PATIENCE) == 0
    assert process.stdout.readline() == f"{int(number)}\n"
    host.idle()


def test_ctrl_c_at_a_terminal_reaches_the_command_once(host: Daemon) -> None:
    script = (
        "import signal, sys\n"
        "wanted = signal.pthread_sigmask(signal.SIG_BLOCK, [2, 10]) or {2, 10}\n"
        "print('ready', flush=True)\n"
        "seen = 0\n"
        "while signal.sigwait(wanted) == 2: seen += 1; print('seen', flush=True)\n"
        "sys.exit(seen)"
    )
    ours, theirs = pty.openpty()
    process = host.begin(
        *("run", "--name", "tty", "--", sys.executable, "-ISc", script),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(theirs)
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        assert terminal.readline().strip() == b"ready"
        # The command has dealt with the terminal's signal before `run` sees its own: two of a kind would be one.
        process.send_signal(signal.SIGSTOP)
        os.write(ours, b"\x03")
        assert terminal.readline().strip() == b"^Cseen"
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGUSR1)
        assert process.wait(30) == 1
    host.idle()


def test_the_command_of_run_has_the_callers_input_output_directory_and_environment(host: Daemon) -> None:
    environment = {**host.environment, "HELLO": "world"}
    script = "cat; pwd; echo $HELLO; echo wrong >&2"
    process = host.begin("run", "--", "sh", "-c", script, cwd="/usr", env=environment)
    assert process.communicate("typed\n", timeout=30) == ("typed\n/usr\nworld\n", "wrong\n")
    host.idle()


def test_the_command_of_run_ignores_no_signal_that_the_caller_does_not(host: Daemon) -> None:
    look = ["grep", "-E", "SigIgn|SigBlk", "/proc/self/status"]
    assert (
        host.verb("run", "--", *look).stdout == subprocess.run(look, capture_output=True, text=True, check=True).stdout
    )


def test_the_command_of_run_has_no_file_open_that_the_caller_has_not(host: Daemon) -> None:
    assert host.verb("run", "--", "ls", "/proc/self/fd").stdout.split() == ["0", "1", "2", "3"]  # 3 is of ls


def test_cpus_come_back_when_the_command_is_killed(host: Daemon) -> None:
    process = host.run("victim", "sleep", "1000")
    assert host.pools()["shared"] != ONLINE
    os.kill(host.running("victim"), signal.SIGKILL)
    assert process.wait(30) == 128 + signal.SIGKILL
    host.idle()


def test_a_command_whose_run_is_killed_keeps_its_cpus_until_it_ends(host: Daemon) -> None:
    process = host.run("orphan", "sleep", "1000")
    pid, pools = host.running("orphan"), host.pools()
    wait_for(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n", "the command runs")
    process.kill()
    process.wait()
    host.verb("run", "--qos", "besteffort", "--", "true")  # the daemon has seen all that there was to be seen
    assert is_alive(pid)
    assert host.pools() == pools
    host.check()
    os.kill(pid, signal.SIGTERM)
    host.idle()


def test_what_a_command_leaves_behind_is_gone_before_its_cpus_are_shared(any_daemon: Daemon) -> None:
    daemon = any_daemon.start()
    process = daemon.begin("run", "--name", "litter", "--", sys.executable, "-ISc", LITTER)
    wait_for(lambda: process.poll() is not None, "it has ended")
    wait_for(lambda: daemon.pools()["shared"] == ONLINE, "its CPUs are shared again")
    left = daemon.place.processes()
    assert left == []
    daemon.idle()


def test_a_second_run_under_the_same_name_is_refused(host: Daemon) -> None:
    process = host.run("twin", "sleep", "1000", options=["--qos", "besteffort"])
    before = (host.containers(), host.place.groups())
    second = host.verb("run", "--name", "twin", "--", "echo", "started")
    assert (second.returncode, second.stdout) == (125, "")
    assert "twin" in second.stderr
    assert (host.containers(), host.place.groups()) == before
    process.terminate()
    process.wait()
    host.idle()


def test_runs_in_the_shared_pool_need_no_cpus_of_their_own(host: Daemon) -> None:
    host.run("owner", "sleep", "1000", options=["--cpus", str(SPARE)])
    for options in (["--qos", "besteffort"], ["--qos", "burstable", "--cpus", "1.5"]):
        result = host.verb("run", *options, "--", "grep", "Cpus_allowed_list", "/proc/self/status")
        assert cpus_of(result.stdout) == RESERVED
    host.verb("delete", "owner")
    host.idle()


def test_a_run_can_be_deleted(host: Daemon) -> None:
    process = host.run("doomed", "sleep", "1000")
    assert host.verb("delete", "doomed").returncode == 0
    assert process.wait(30) == 128 + signal.SIGTERM
    host.idle()


def test_a_run_that_is_confined_already_is_confined_further(host: Daemon) -> None:
    look = ["grep", "Cpus_allowed_list", "/proc/self/status"]
    process = host.begin(
        *("run", "--qos", "besteffort", "--", *look),
        preexec_fn=lambda: os.sched_setaffinity(0, RESERVED),
    )
    out, error = process.communicate(timeout=30)
    assert (process.returncode, error) == (0, "")
    assert cpus_of(out) <= ONLINE
    host.idle()


# -- adopt


def test_a_process_that_cannot_be_adopted_is_left_alone(host: Daemon) -> None:
    with process_of("taskset", "-c", str(RESERVED), "sleep", "1000") as process:
        result = host.verb("adopt", str(process.pid), "--qos", "besteffort")
        if result.returncode == 0:
            host.client.get("/v1/node")
        assert process.poll() is None
        too_many = host.verb("adopt", str(process.pid), "--cpus", "4096", "--name", "other")
        assert too_many.returncode == 4
        assert process.poll() is None
    host.idle()


def where(pid: int) -> tuple[str, set[str]]:
    """Return the groups of a process, and the CPUs that its threads may use."""
    return Path(f"/proc/{pid}/cgroup").read_text(), allowed(pid)


def test_a_thread_cannot_be_adopted_and_its_process_is_left_alone(host: Daemon) -> None:
    with process_of(sys.executable, "-ISc", f"{MAKE_THREADS}\ntime.sleep(1000)") as process:
        wait_for(lambda: threads(process.pid) == 5, "all threads are there")
        before = where(process.pid)
        thread = max(int(path.name) for path in Path(f"/proc/{process.pid}/task").iterdir())
        result = host.verb("adopt", str(thread))
        assert result.returncode == 2
        assert f"{thread} is not a process, but a thread of process {process.pid}" in result.stderr
        host.idle()
        assert process.poll() is None
        assert where(process.pid) == before


@pytest.mark.parametrize("restart", [False, True], ids=["", "after a restart"])
def test_an_adopted_process_that_is_deleted_goes_on_where_it_was(any_daemon: Daemon, *, restart: bool) -> None:
    daemon = any_daemon.start()
    with process_of(sys.executable, "-ISc", f"{MAKE_THREADS}\ntime.sleep(1000)") as process:
        wait_for(lambda: threads(process.pid) == 5, "all threads are there")
        before = where(process.pid)
        assert daemon.verb("adopt", str(process.pid), "--name", "mine").returncode == 0
        assert allowed(process.pid) == {str(daemon.state().exclusive)}
        if restart:
            daemon.restart()
            assert daemon.running("mine") == process.pid
        assert daemon.verb("delete", "mine").returncode == 0
        daemon.idle()
        assert process.poll() is None
        assert where(process.pid) == before
        assert [event["pids"] for event in daemon.events("given-back")] == [str(process.pid)]


@needs_cgroups
def test_an_adopted_process_keeps_running_even_if_its_adoption_was_forgotten(daemon: Daemon) -> None:
    daemon.start()
    with process_of("sleep", "1000") as process:
        daemon.verb("adopt", str(process.pid), "--name", "mine")
        daemon.kill()
        (daemon.state_dir / "workloads.json").unlink()
        daemon.start()
        (name,) = (row["pod"] for row in daemon.containers())
        daemon.delete(name)
        daemon.idle()
        assert process.poll() is None
        assert allowed(process.pid) == {str(ONLINE)}


def test_to_end_workloads_gives_adopted_processes_back(any_daemon: Daemon) -> None:
    daemon = any_daemon.start("--end-workloads")
    with process_of("sleep", "1000") as process:
        before = where(process.pid)
        daemon.verb("adopt", str(process.pid))
        assert daemon.kill(signal.SIGTERM) == 0
        assert process.poll() is None
        assert where(process.pid) == before
    assert daemon.place.groups() == set()


def test_a_process_is_adopted_only_once(host: Daemon) -> None:
    with process_of("sleep", "1000") as process:
        assert host.verb("adopt", str(process.pid), "--name", "one", "--qos", "besteffort").returncode == 0
        again = host.verb("adopt", str(process.pid), "--name", "two")
        assert again.returncode != 0
        assert [row["pod"] for row in host.containers()] == ["one"]
        host.check()
    host.idle()


def test_the_daemon_cannot_be_adopted(host: Daemon) -> None:
    assert host.verb("adopt", str(host.pid)).returncode != 0
    assert host.containers() == []


# -- pods


def test_init_containers_run_one_after_the_other_before_the_others(host: Daemon) -> None:
    init = [container(f"echo {name}; sleep 0.1", name=name) for name in ("one", "two")]
    host.apply(pod("ordered", container(), container(name="other"), init=init))
    host.running("ordered", "app")
    host.running("ordered", "other")
    order = [(row["what"], row["container"]) for row in host.events("started", "ended") if row["pod"] == "ordered"]
    assert order[:4] == [("started", "one"), ("ended", "one"), ("started", "two"), ("ended", "two")]
    assert sorted(order[4:]) == [("started", "app"), ("started", "other")]
    host.delete("ordered")
    host.idle()


def test_no_container_starts_when_an_init_container_has_failed_for_good(host: Daemon) -> None:
    host.apply(
        pod(
            "failing",
            container("echo started; sleep 0.1"),
            init=[container("sleep 0.1; exit 1", name="init")],
            restart="Never",
        )
    )
    wait_for(lambda: host.find("failing") is None, "the pod is done")
    assert host.written("failing") == []
    host.idle()


def test_an_init_container_is_tried_again_until_it_succeeds(host: Daemon) -> None:
    tries = host.state_dir / "tries"
    retry = f"sleep 0.1; echo try >> {tries}; [ $(wc -l < {tries}) -ge 2 ]"
    host.apply(pod("retrying", init=[container(retry, name="init")]))
    host.running("retrying", "app")
    assert tries.read_text().split() == ["try", "try"]
    host.delete("retrying")
    host.idle()


def test_a_sidecar_starts_before_later_init_containers_and_goes_on_until_the_pod_ends(host: Daemon) -> None:
    side = container("trap 'echo asked; exit' TERM; echo ready; while :; do sleep 0.02; done", name="side")
    sidecar = side[:-1] + ", restartPolicy: Always}"
    wait = f"while ! grep -q ready {host.state_dir}/logs/default_helped_side.log; do sleep 0.02; done; sleep 0.2"
    host.apply(pod("helped", container(wait), init=[sidecar, container("sleep 0.1", name="init")], restart="Never"))
    wait_for(lambda: host.find("helped") is None, "the pod is done", within=10)
    order = [row["container"] for row in host.events("started") if row["pod"] == "helped"]
    assert order == ["side", "init", "app"]
    assert host.written("helped", "side") == ["ready", "asked"]
    host.idle()


def test_restart_policies_and_growing_pauses_between_restarts(host: Daemon) -> None:
    host.apply(
        pod("again", container("sleep 0.1; exit 0"), restart="Always"),
        pod("until-good", container("sleep 0.1; exit 3"), restart="OnFailure"),
        pod("good-at-once", container("sleep 0.1; exit 0"), restart="OnFailure"),
        pod("only-once", container("sleep 0.1; exit 3", cpus=1), restart="Never"),
    )

    def starts(name: str) -> list[float]:
        return [row["time"] for row in host.events("started") if row["pod"] == name]

    wait_for(lambda: all(len(starts(name)) > 2 for name in ("again", "until-good")), "both were started three times")
    first, second, third = starts("again")[:3]
    assert 0.9 < second - first < third - second
    assert third - second > 1.9
    assert [len(starts(name)) for name in ("good-at-once", "only-once")] == [1, 1]
    assert {row["pod"] for row in host.containers()} == {"again", "until-good"}
    assert {row["code"] for row in host.events("ended") if row["pod"] == "only-once"} == {3}
    wait_for(lambda: (row := host.find("again")) and row["restarts"] == 2, "restarts are counted")
    for name in ("again", "until-good"):
        host.delete(name)
    host.idle()


def test_an_exclusive_container_keeps_its_cpus_between_restarts(host: Daemon) -> None:
    host.apply(pod("flapping", container("grep Cpus_allowed_list /proc/self/status; sleep 0.1", cpus=1)))
    wait_for(lambda: host.find("flapping", state="backing off"), "it pauses")
    own = ONLINE - host.pools()["shared"]
    assert len(own) == 1
    wait_for(lambda: len(host.written("flapping")) == 2, "it was started again")
    assert {cpus_of(line) for line in host.written("flapping")} == {own}
    host.delete("flapping")
    host.idle()


def test_a_command_that_does_not_exist_is_said_and_tried_again(host: Daemon) -> None:
    missing = container().replace("command: [sh,", "command: [no-such-command,")
    host.apply(pod("typo", missing), pod("final", missing, restart="Never"))
    row = wait_for(lambda: host.find("typo", state="backing off"), "it is tried again")
    assert row["code"] == 127
    assert "no-such-command" in host.events("cannot-start")[-1]["why"]
    wait_for(lambda: host.find("final") is None, "the other pod is done")
    host.delete("typo")
    host.idle()


def test_delete_asks_first(host: Daemon) -> None:
    host.apply(pod("polite", container("trap 'echo asked; exit' TERM; echo ready; while :; do sleep 0.02; done")))
    wait_for(lambda: host.written("polite") == ["ready"], "it is ready")
    with (host.state_dir / "logs/default_polite_app.log").open() as output:
        assert host.verb("delete", "polite").returncode == 0
        assert output.read() == "ready\nasked\n"
    host.idle()


@pytest.mark.slow
def test_delete_kills_what_does_not_end_when_asked(host: Daemon) -> None:
    host.apply(pod("stubborn", container(STUBBORN, cpus=1)))
    wait_for(lambda: host.written("stubborn") == ["ready"], "it is ready")
    pid = host.running("stubborn")
    with (host.state_dir / "logs/default_stubborn_app.log").open() as output:
        assert host.verb("delete", "stubborn").returncode == 0
        assert not is_alive(pid)
        assert output.read() == "ready\nasked\n"
    host.idle()


def test_a_pod_can_be_deleted_twice_at_once(host: Daemon) -> None:
    slow = container("trap 'sleep 0.5; exit' TERM; echo ready; while :; do sleep 0.02; done", cpus=1)
    host.apply(pod("contested", slow))
    wait_for(lambda: host.written("contested") == ["ready"], "it is ready")
    both = [host.begin("delete", "contested") for _ in range(2)]
    said = [process.communicate(timeout=30) for process in both]
    for process, (_, error) in zip(both, said, strict=True):
        assert process.returncode == 0 or "there is no pod contested" in error
    host.idle()


def test_a_pod_that_is_applied_twice_is_left_as_it_is(host: Daemon) -> None:
    text = pod("single", container(cpus=1))
    assert host.verb("apply", "-", text=text).stdout.startswith("pod single: started; ")
    pid, before = host.running("single"), host.state()
    again = host.verb("apply", "-", text=text)
    assert (again.returncode, again.stdout.split("; ")[0]) == (0, "pod single: unchanged")
    assert host.running("single") == pid
    assert host.state() == before
    elsewhere = pod("single").replace("{name: single}", "{name: single, namespace: elsewhere}")
    assert host.verb("apply", "-", text=elsewhere).returncode == 0
    assert host.verb("delete", "-n", "elsewhere", "single").returncode == 0
    host.delete("single")
    host.idle()


def test_two_pods_never_share_a_uid(host: Daemon) -> None:
    host.apply(pod("first", container(cpus=1), uid="u1"))
    host.running("first")
    with suppress(PinfoldError):
        host.apply(pod("second", container(cpus=1), uid="u1"))
    assert [row["pod"] for row in host.containers()] == ["first"]
    host.check()
    host.delete("first")
    host.idle()


def test_a_refused_pod_changes_nothing(host: Daemon) -> None:
    host.apply(pod("worker"))
    host.running("worker")
    groups, rows = host.place.groups(), host.containers()
    saved = (host.state_dir / "cpu_manager_state").read_bytes()
    result = host.verb("apply", "-", text=pod("greedy", container(cpus=1), container(name="more", cpus=SPARE)))
    assert result.returncode == 4
    assert "refused" in result.stdout
    assert (host.place.groups(), host.containers()) == (groups, rows)
    assert (host.state_dir / "cpu_manager_state").read_bytes() == saved
    host.delete("worker")
    host.idle()


def test_of_a_file_with_a_pod_that_cannot_run_nothing_is_started(host: Daemon) -> None:
    wrong = "kind: Pod\nmetadata: {name: wrong}\nspec: {containers: [{name: app}]}"
    result = host.verb("apply", "-", text=f"{pod('right')}---\n{wrong}\n")
    assert result.returncode == 2
    assert "no command" in result.stderr
    assert host.containers() == []


def test_a_container_has_its_arguments_environment_and_directory(host: Daemon) -> None:
    app = '{name: app, command: [sh, -c], args: ["pwd; echo $HELLO; sleep 0.1"], workingDir: /usr, '
    app += "env: [{name: HELLO, value: you}]}"
    host.apply(pod("told", app, restart="Never"))
    wait_for(lambda: host.find("told") is None, "the pod is done")
    assert host.written("told") == ["/usr", "you"]
    host.idle()


def test_names_may_be_as_long_as_kubernetes_allows(host: Daemon) -> None:
    name = ".".join(letter * 62 for letter in "abcd")
    host.apply(pod(name, container(name="c" * 63, cpus=1)))
    host.running(name, within=3)
    host.check()
    host.delete(name)
    host.idle()


def test_under_policy_none_everything_is_shared(daemon: Daemon) -> None:
    daemon.start("--policy", "none")
    daemon.apply(pod("guaranteed", container(cpus=1)))
    assert allowed(daemon.running("guaranteed")) == {str(ONLINE)}
    assert daemon.verb("run", "--cpus", "1", "--", "true").returncode == 0
    daemon.delete("guaranteed")
    assert daemon.containers() == []


# -- across restarts


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.guest)], ids=["SIGTERM", "SIGKILL"]
)
def test_workloads_and_their_cpus_outlive_the_daemon(any_daemon: Daemon, number: signal.Signals) -> None:
    daemon = any_daemon.start()
    daemon.apply(pod("worker", container(THREADS)))
    run = daemon.run("owner", "sleep", "1000", options=["--cpus", str(SPARE)])
    lone = daemon.run("lone", "sleep", "1000", options=["--qos", "besteffort"])
    pids = [daemon.running(name) for name in ("worker", "owner", "lone")]
    rows = [(row["pod"], row["pid"], row["cpus"], row["restarts"]) for row in daemon.containers()]
    code = daemon.kill(number)
    assert code == (0 if number is signal.SIGTERM else -number)
    assert [allowed(pid) for pid in pids] == [{str(RESERVED)}, {str(ONLINE - RESERVED)}, {str(RESERVED)}]
    daemon.start()
    assert [(row["pod"], row["pid"], row["cpus"], row["restarts"]) for row in daemon.containers()] == rows
    assert [daemon.running(name) for name in ("worker", "owner", "lone")] == pids
    daemon.check()
    assert daemon.verb("run", "--qos", "besteffort", "--", "true").returncode == 0
    for process in (run, lone):
        process.terminate()
        process.wait()
    daemon.delete("worker")
    daemon.idle()


def test_what_ended_while_there_was_no_daemon_is_released(any_daemon: Daemon) -> None:
    daemon = any_daemon.start()
    run = daemon.run("owner", "sleep", "1000", options=["--cpus", str(SPARE)])
    pid = daemon.running("owner")
    daemon.kill()
    os.kill(pid, signal.SIGKILL)
    run.wait()
    daemon.start()
    daemon.idle()


def test_a_pod_that_ended_while_there_was_no_daemon_is_started_again(any_daemon: Daemon) -> None:
    daemon = any_daemon.start()
    daemon.apply(pod("app", container(cpus=1)))
    pid = daemon.running("app")
    daemon.kill()
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(pid), "it is gone")
    daemon.start()
    assert wait_for(lambda: daemon.running("app") != pid and daemon.running("app"), "a new one runs")
    daemon.check()
    daemon.delete("app")
    daemon.idle()


def test_a_pod_whose_cpus_were_forgotten_gets_exclusive_ones_again(any_daemon: Daemon) -> None:
    daemon = any_daemon.start()
    daemon.apply(pod("app", container(cpus=SPARE)))
    pid = daemon.running("app")
    daemon.kill()
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(pid), "it is gone")
    (daemon.state_dir / "cpu_manager_state").unlink()
    daemon.start()
    again = wait_for(lambda: daemon.running("app"), "a new one runs")
    assert allowed(again) == {str(ONLINE - RESERVED)}
    assert [event["cpus"] for event in daemon.events("assigned")] == [str(ONLINE - RESERVED)]
    daemon.check()
    daemon.delete("app")
    daemon.idle()


def test_who_was_stopped_when_the_daemon_was_killed_goes_on(daemon: Daemon) -> None:
    daemon.start()
    daemon.apply(pod("app", container(cpus=1)))
    pid = daemon.running("app")
    daemon.kill()
    os.kill(pid, signal.SIGSTOP)
    start = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    (daemon.state_dir / "stopped.json").write_text(json.dumps({"boot": boot, "processes": [[pid, start]]}))
    daemon.start()
    assert daemon.running("app") == pid
    wait_for(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S", "it goes on")
    assert not (daemon.state_dir / "stopped.json").exists()


def test_what_a_pod_has_done_is_not_done_again_after_a_restart(daemon: Daemon) -> None:
    daemon.start()
    daemon.apply(
        pod(
            "half-done",
            container("echo done; sleep 0.1", name="first"),
            container(name="second"),
            init=[container("echo ran; sleep 0.1", name="init")],
            restart="OnFailure",
        )
    )
    daemon.running("half-done", "second")
    kept = daemon.state_dir / "workloads.json"
    wait_for(lambda: re.search(r'"done": ?{[^}]*"first": ?0', kept.read_text()), "it is on disk that the first is done")
    daemon.restart()
    daemon.running("half-done", "second")
    daemon.apply(pod("later"))
    daemon.running("later")
    assert daemon.written("half-done", "init") == ["ran"]
    assert daemon.written("half-done", "first") == ["done"]


@pytest.mark.guest
@needs_cgroups
def test_no_process_gets_onto_exclusive_cpus_while_the_daemon_starts(daemon: Daemon) -> None:
    daemon.start()
    daemon.apply(pod("owner", container(cpus=SPARE)), pod("worker"))
    daemon.running("owner")
    daemon.running("worker")
    script = (
        "import os, sys\n"
        "os.setpriority(os.PRIO_PROCESS, 0, -20)\n"
        "file, seen = os.open(sys.argv[1], os.O_RDONLY), set()\n"
        "print('ready', flush=True)\n"
        "os.set_blocking(0, False)\n"
        "while True:\n"
        "    for _ in range(1000): seen.add(os.pread(file, 4096, 0))\n"
        "    try:\n"
        "        if not os.read(0, 1): break\n"
        "    except BlockingIOError: pass\n"
        "print(*(text.decode().strip() for text in seen))"
    )
    seen = set()
    for _ in range(5):
        watcher = subprocess.Popen(
            [sys.executable, "-ISc", script, daemon.place.cpuset("shared")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert watcher.stdout is not None
        watcher.stdout.readline()
        daemon.restart()
        seen |= set(watcher.communicate()[0].split())
    assert seen == {str(RESERVED)}


def damage(text: str) -> str:
    return text.replace("static", "stat\x00c")


def forget(_text: str) -> None:
    return None


def of_another_machine(_text: str) -> str:
    return format_checkpoint("static", State(CPUSet.parse("0-63")), pod_level=False)


def of_another_policy(_text: str) -> str:
    return format_checkpoint("none", State(CPUSet()), pod_level=False)


def of_before(_text: str) -> str:
    return format_checkpoint("static", State(ONLINE), pod_level=False)


@pytest.mark.parametrize(
    ("change", "kept_aside"),
    [
        (damage, True),
        (lambda _: "", True),
        (lambda text: text[:-20], True),
        (of_another_machine, True),
        (of_another_policy, True),
        (forget, False),
        (of_before, False),
    ],
    ids=["damaged", "empty", "cut off", "another machine", "another policy", "missing", "an old one"],
)
def test_running_containers_keep_their_cpus_after_any_damage_to_the_state(
    daemon: Daemon, change: Callable[[str], str | None], *, kept_aside: bool
) -> None:
    daemon.start()
    daemon.apply(pod("app", container(cpus=1)), pod("worker"))
    pid, worker, state = daemon.running("app"), daemon.running("worker"), daemon.state()
    daemon.kill()
    path = daemon.state_dir / "cpu_manager_state"
    found = change(path.read_text())
    path.unlink()
    if found is not None:
        path.write_text(found)
    daemon.start()
    assert daemon.state() == state
    assert daemon.running("app") == pid
    assert allowed(pid) == {str(state.exclusive)}
    assert allowed(worker) == {str(state.shared)}
    daemon.check()
    aside = [file.read_text() for file in daemon.state_dir.glob("cpu_manager_state.bad*")]
    assert aside == ([found] if kept_aside else [])
    daemon.delete("app")
    daemon.check()


def test_a_state_that_was_put_aside_is_told(daemon: Daemon) -> None:
    daemon.state_dir.mkdir()
    (daemon.state_dir / "cpu_manager_state").write_text("{}")
    daemon.start()
    assert "state-not-usable" in daemon.said()
    (event,) = daemon.events("state-not-usable")
    assert (daemon.state_dir / "cpu_manager_state.bad-1").name in event["aside"]


def test_a_state_that_is_no_file_is_put_aside(daemon: Daemon) -> None:
    (daemon.state_dir / "cpu_manager_state").mkdir(parents=True)
    daemon.start()
    daemon.check()


def test_containers_that_may_not_keep_their_cpus_get_others(daemon: Daemon) -> None:
    daemon.start()
    daemon.apply(pod("app", container(cpus=1)))
    pid, before = daemon.running("app"), daemon.state().exclusive
    daemon.restart("--reserved-cpus", str(before))
    assert daemon.running("app") == pid
    assert len(daemon.state().exclusive - before) == 1
    assert allowed(pid) == {str(daemon.state().exclusive)}
    daemon.check()


def test_containers_that_may_not_keep_their_cpus_and_get_no_others_share(daemon: Daemon) -> None:
    daemon.start("--cpu-manager-reconcile-period", "100ms")
    daemon.apply(pod("app", container(cpus=SPARE)))
    pid = daemon.running("app")
    reserved = ("--reserved-cpus", str(ONLINE - RESERVED))
    rest_shared = (
        "--policy-options",
        f"min-shared-cpus={len(ONLINE)}",
        "--feature-gates",
        "CPUManagerPolicyAlphaOptions=true",
    )
    daemon.restart(*reserved, *rest_shared, "--cpu-manager-reconcile-period", "100ms")
    assert daemon.events("not-kept")[-1]["pod"] == "app"
    assert daemon.running("app") == pid
    assert allowed(pid) == {str(ONLINE)}
    daemon.check()
    daemon.apply(pod("later"))
    daemon.running("later")
    assert daemon.events("drift") == []
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: daemon.running("app") != pid, "it was started again")
    daemon.check()


def test_another_configuration_is_taken_over_while_everything_runs(daemon: Daemon) -> None:
    config = daemon.place.directory / "kubelet.yaml"
    text = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\ncpuManagerPolicy: static\n"
    config.write_text(f'{text}reservedSystemCPUs: "{RESERVED}"\n')
    daemon.options = ["--config", str(config)]
    daemon.start()
    daemon.apply(pod("owner", container(cpus=SPARE)), pod("worker"))
    owner, worker = daemon.running("owner"), daemon.running("worker")
    config.write_text(f'{text}reservedSystemCPUs: "{max(ONLINE)}"\n')
    before = daemon.state()
    os.kill(daemon.pid, signal.SIGHUP)
    wait_for(lambda: daemon.events("reload-refused"), "a container with CPUs for life is not moved")
    assert "pinfold reconfigure --allow-moves" in daemon.events("reload-refused")[0]["why"]
    assert (daemon.state(), daemon.pools()["reserved"]) == (before, RESERVED)
    assert daemon.verb("reconfigure", "--allow-moves").returncode == 0
    assert daemon.events("reconfigured")
    assert daemon.pools()["reserved"] == CPUSet.of(max(ONLINE))
    assert (daemon.running("owner"), daemon.running("worker")) == (owner, worker)
    assert not daemon.state().exclusive & CPUSet.of(max(ONLINE))
    daemon.check()


def test_a_dry_run_says_who_would_move_and_changes_nothing_and_moves_need_permission(daemon: Daemon) -> None:
    daemon.start()
    daemon.apply(pod("owner", container(cpus=SPARE)))
    owner, before = daemon.running("owner"), daemon.state()
    config = daemon.place.directory / "new.yaml"
    text = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\ncpuManagerPolicy: static\n"
    config.write_text(f'{text}reservedSystemCPUs: "{max(ONLINE)}"\n')
    daemon.options = []
    daemon.restart("--config", str(_with_reserved(config, text, RESERVED)))
    config.write_text(f'{text}reservedSystemCPUs: "{max(ONLINE)}"\n')
    new = ONLINE - CPUSet.of(max(ONLINE))
    foreseen = daemon.verb("reconfigure", "--config", str(config), "--dry-run")
    assert foreseen.stdout.splitlines() == [
        f"default/owner/app: CPUs {ONLINE - RESERVED} -> {new}",
        "the daemon would go on with policy static; 0 of 1 containers keep their CPUs",
    ]
    refused = daemon.verb("reconfigure", "--config", str(config))
    assert refused.returncode != 0
    assert f"default/owner/app {ONLINE - RESERVED} -> {new}" in refused.stderr
    assert daemon.state() == before
    done = daemon.verb("reconfigure", "--config", str(config), "--allow-moves", "-o", "json")
    assert json.loads(done.stdout)["containers"][0]["after"] == str(new)
    assert daemon.running("owner") == owner
    assert allowed(owner) == {str(new)}
    daemon.check()
    missing = daemon.verb("reconfigure", "--config", str(config.with_name("missing.yaml")))
    assert missing.returncode != 0
    assert "missing.yaml" in missing.stderr


def _with_reserved(beside: Path, text: str, reserved: CPUSet) -> Path:
    path = beside.with_name("first.yaml")
    path.write_text(f'{text}reservedSystemCPUs: "{reserved}"\n')
    return path


def test_the_daemons_own_file_is_read_at_the_start_and_at_sighup_and_what_needs_a_restart_is_named(
    daemon: Daemon,
) -> None:
    own = daemon.place.directory / "config.yaml"
    own.write_text(f"reserved-cpus: {RESERVED}\n")
    daemon.options = ["--settings", str(own)]
    daemon.start()
    own.write_text(f"reserved-cpus: {max(ONLINE)}\njournal-days: 3\n")
    os.kill(daemon.pid, signal.SIGHUP)
    wait_for(lambda: daemon.events("warning"), "the setting is named")
    assert daemon.events("warning")[0]["text"] == "restart the daemon to change journal-days"
    assert daemon.pools()["reserved"] == CPUSet.of(max(ONLINE))
    own.write_text("reserved-cpu: 0\n")
    os.kill(daemon.pid, signal.SIGHUP)
    wait_for(lambda: daemon.events("reload-refused"), "it is refused")
    assert "did you mean reserved-cpus?" in str(daemon.events("reload-refused"))


def test_the_service_manager_hears_of_the_start_and_that_the_loop_turns(daemon: Daemon) -> None:
    name = f"{daemon.place.directory}/notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name)
        manager.settimeout(PATIENCE)
        daemon.environment |= {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "60000"}
        daemon.start()
        heard = [manager.recv(100) for _ in range(4)]
    assert b"READY=1" in heard
    assert heard.count(b"WATCHDOG=1") == 3


def test_a_watched_configuration_is_taken_over_when_it_is_replaced_and_a_wrong_one_is_refused_once(
    daemon: Daemon,
) -> None:
    text = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\ncpuManagerPolicy: static\n"
    versions, data = daemon.place.directory / "config", daemon.place.directory / "config/..data"

    def replace(name: str, reserved: str) -> None:
        """Replace all files at once by a link, as kubelets do with those of a ConfigMap."""
        (versions / name).mkdir(parents=True)
        (versions / name / "config.yaml").write_text(f"{text}reservedSystemCPUs: {reserved}\n")
        (versions / "new").symlink_to(name)
        (versions / "new").replace(data)

    replace("1", f'"{RESERVED}"')
    daemon.options = ["--config", str(data / "config.yaml"), "--watch-config"]
    daemon.start("--cpu-manager-reconcile-period", "20ms")
    replace("2", "nonsense")
    wait_for(lambda: daemon.events("reload-refused"), "it is refused")
    time.sleep(0.5)  # it looks many times
    replace("3", f'"{max(ONLINE)}"')
    wait_for(lambda: daemon.events("reconfigured"), "it is taken over")
    assert daemon.pools()["reserved"] == CPUSet.of(max(ONLINE))
    assert len(daemon.events("reload-refused")) == 1


@pytest.mark.parametrize(
    "change",
    [lambda _: "{", lambda _: None, lambda text: text.replace('"kind": "pod"', '"kind": "what"')],
    ids=["damaged", "missing", "one unknown"],
)
def test_no_pod_loses_cpus_however_damaged_the_list_of_workloads_is(
    daemon: Daemon, change: Callable[[str], str | None]
) -> None:
    daemon.start()
    daemon.apply(pod("app", container(cpus=1)))
    pid, state = daemon.running("app"), daemon.state()
    daemon.kill()
    path = daemon.state_dir / "workloads.json"
    found = change(path.read_text())
    path.unlink()
    if found is not None:
        path.write_text(found)
    daemon.start()
    if is_alive(pid):
        assert allowed(pid) == {str(state.exclusive)}
        assert daemon.state() == state
    else:
        daemon.check()


@pytest.mark.parametrize(
    "name",
    [
        "a..b",
        "a.-b",
        "0",
        "x" * 63,
    ],
)
def test_a_run_with_any_name_is_found_again(host: Daemon, name: str) -> None:
    process = host.begin("run", "--name", name, "--", "sleep", "1000")
    wait_for(lambda: process.poll() is not None or host.find(name, state="running"), "it runs, or is refused")
    if process.poll() is None:
        pid = host.running(name)
        host.restart()
        assert host.running(name, within=3) == pid
        host.check()
        process.terminate()
    assert process.wait(30) in {125, 143}
    host.idle()


def test_pods_that_were_answered_for_are_there_after_a_crash(daemon: Daemon) -> None:
    daemon.start()
    names = [f"p{number}" for number in range(20)]
    daemon.apply(*(pod(name) for name in names))
    daemon.kill()
    daemon.start()
    assert [row["pod"] for row in daemon.containers()] == names
    pids = [daemon.running(name) for name in names]
    assert sorted(pids) == sorted(daemon.place.processes())


@pytest.mark.slow
def test_a_daemon_killed_at_any_moment_finds_everything_again(daemon: Daemon) -> None:
    chance = random.Random(4)  # noqa: S311 - no secret
    daemon.start()
    pods = {"owner": pod("owner", container(cpus=1)), **{f"w{i}": pod(f"w{i}") for i in range(3)}}
    there: set[str] = set()
    unsure: set[str] = set()

    def change(stop: threading.Event) -> None:
        while not stop.is_set():
            name = chance.choice(sorted(pods))
            try:
                if name in there:
                    there.discard(name)
                    unsure.add(name)
                    daemon.delete(name)
                elif "refused" not in daemon.apply(pods[name])[0]:
                    there.add(name)
                unsure.discard(name)
            except PinfoldError:
                unsure.add(name)
                there.discard(name)
                return

    for _ in range(15):
        stop = threading.Event()
        changes = threading.Thread(target=change, args=[stop])
        changes.start()
        threading.Event().wait(chance.uniform(0.0, 0.25))
        before = {row["pod"]: row["pid"] for row in daemon.containers() if row["pod"] in there and row["pid"]}
        daemon.kill()
        stop.set()
        changes.join()
        assert daemon.state().check(ONLINE) == []
        owner = before.get("owner") if "owner" in there else None
        daemon.start()
        wait_for(lambda: all(row["state"] == "running" for row in daemon.containers()), "all run")
        daemon.check()
        found = {row["pod"]: row["pid"] for row in daemon.containers()}
        assert there <= set(found) <= there | unsure
        assert sorted(found.values()) == sorted(daemon.place.processes())
        assert owner in {None, found.get("owner")}
        there, unsure = set(found), set()
    daemon.restart("--end-workloads", number=signal.SIGTERM)
    daemon.check()
    assert daemon.kill(signal.SIGTERM) == 0
    assert daemon.place.groups() == set()
    assert daemon.place.processes() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["SIGTERM", "SIGHUP"])
def test_a_daemon_that_is_ready_minds_signals(daemon: Daemon, number: signal.Signals) -> None:
    daemon.start("--end-workloads")
    os.kill(daemon.pid, number)
    if number is signal.SIGHUP:
        daemon.check()
    assert daemon.kill(signal.SIGTERM) == 0
    assert daemon.place.groups() == set()


@pytest.mark.guest
def test_with_end_workloads_nothing_is_left_behind(daemon: Daemon) -> None:
    daemon.start("--end-workloads")
    daemon.apply(
        pod("worker", container("sleep 1000 & exec sleep 1000")), pod("flapping", container("sleep 0.1; exit 1"))
    )
    daemon.run("owner", "sh", "-c", "sleep 1000 & exec sleep 1000", options=["--cpus", str(SPARE)])
    daemon.running("worker")
    assert daemon.kill(signal.SIGTERM) == 0
    assert daemon.place.groups() == set()
    assert daemon.place.processes() == []
    assert not daemon.socket.exists()
    assert daemon.state() == State(ONLINE)


@pytest.mark.slow
def test_stubborn_workloads_are_ended_side_by_side(daemon: Daemon) -> None:
    daemon.start("--end-workloads")
    daemon.apply(*(pod(f"stubborn-{number}", container(STUBBORN)) for number in range(4)))
    wait_for(lambda: all(daemon.written(f"stubborn-{number}") for number in range(4)), "all are ready")
    process = daemon.process
    assert process is not None
    process.terminate()
    assert process.wait(12) == 0  # one grace period, not four
    assert daemon.place.processes() == []


# -- what the daemon may not do


@pytest.fixture
def small_cpuset() -> Iterator[Path]:
    """A cpuset with one CPU, in which nothing runs."""
    if best_kind() != "cgroup-v1":
        pytest.skip("makes a cpuset of cgroup v1")
    group = CGROUPS / "cpuset" / f"pinfold-e2e-small-{os.getpid()}"
    group.mkdir()
    try:
        (group / "cpuset.mems").write_text((group.parent / "cpuset.mems").read_text())
        (group / "cpuset.cpus").write_text(str(RESERVED))
        yield group
    finally:
        wait_for(lambda: not (group / "cgroup.procs").read_text(), "it is empty")
        group.rmdir()


def test_cpus_that_the_daemons_cpuset_does_not_have_are_not_given_away(small_cpuset: Path) -> None:
    join = f'echo $$ > {small_cpuset}/cgroup.procs; exec "$@"'
    missing = ONLINE - RESERVED
    with Daemon(kind="affinity") as daemon:
        daemon.command = ["sh", "-c", join, "sh", *daemon.command]
        daemon.start()
        assert any(f"does not have CPUs {missing}" in text for text in daemon.client.get("/v1/node")["weaker"])
        refused = daemon.verb("run", "--cpus", "1", "--", "echo", "started")
        assert (refused.returncode, refused.stdout) == (125, "")
        assert f"the daemon's cpuset does not have {missing}" in refused.stderr
        shared = daemon.verb("run", "--qos", "besteffort", "--", "grep", "Cpus_allowed_list", "/proc/self/status")
        assert cpus_of(shared.stdout) == RESERVED
        daemon.idle()
        daemon.kill()


def test_a_process_whose_cpuset_lacks_a_cpu_is_not_said_to_have_it(small_cpuset: Path) -> None:
    join = f"echo $$ > {small_cpuset}/cgroup.procs; exec sleep 1000"
    with Daemon(kind="affinity") as daemon, process_of("sh", "-c", join) as process:
        wait_for(lambda: allowed(process.pid) == {str(RESERVED)}, "it is confined")
        daemon.start("--reserved-cpus", str(max(ONLINE)))
        if len(ONLINE) > 2:
            refused = daemon.verb("adopt", str(process.pid), "--cpus", "2", "--name", "two")
            assert refused.returncode == 2
            assert "not in its cpuset" in refused.stderr
        assert daemon.verb("adopt", str(process.pid), "--cpus", "1").returncode == 0
        assert allowed(process.pid) == {str(RESERVED)}


@needs_root
def test_a_process_of_another_user_delays_no_other_pod() -> None:
    user, setpriv = nobody(), shutil.which("setpriv")
    if user is None or setpriv is None:
        lacking("setpriv, and an interpreter and a checkout that every user can read")
    with Daemon("--cpu-manager-reconcile-period", "200ms", kind="affinity", user=user) as daemon:
        become = daemon.place.directory / "become"
        shutil.copy(setpriv, become)
        become.chmod(0o4755)
        daemon.start()
        daemon.apply(pod("owner", container(cpus=SPARE)))
        daemon.running("owner")
        foreign = f"exec {become} --reuid=65533 --regid=65533 --clear-groups sleep 1000"
        daemon.apply(pod("foreign", container(foreign)))
        pid = daemon.running("foreign")
        wait_for(lambda: "sleep" in Path(f"/proc/{pid}/comm").read_text(), "it has become another user's")
        with pytest.raises(PinfoldError, match=f"process {pid} belongs to another user"):
            daemon.delete("foreign")
        daemon.delete("owner")
        wait_for(lambda: daemon.pools()["shared"] == ONLINE, "its CPUs are shared again")
        assert daemon.verb("run", "--qos", "besteffort", "--", "true").returncode == 0
        assert is_alive(pid)
        assert len(daemon.events("not-ended")) == 1
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: daemon.verb("apply", "-", text=pod("foreign")).returncode == 0, "its name is free again")
        assert daemon.events("failed") == []


# -- outside interference


@pytest.mark.guest
@needs_cgroups
@pytest.mark.parametrize("group", ["shared", "exclusive"])
def test_cpus_that_are_changed_behind_its_back_are_put_right(daemon: Daemon, group: str) -> None:
    daemon.start("--cpu-manager-reconcile-period", "200ms")
    daemon.apply(pod("owner", container(cpus=1)), pod("worker"))
    daemon.running("owner")
    daemon.running("worker")
    path = daemon.place.cpuset(group)
    if group == "exclusive":
        path = next(path.parent.glob("*/app/cpuset.cpus"))
    right = path.read_text()
    path.write_text(str(RESERVED if group == "exclusive" else ONLINE))
    wait_for(lambda: path.read_text() == right, "it is put right", within=5)
    # A wider pool shows in the containers below it too, and a look can begin before the change and end after it.
    about = {"cause": "cpus"} if group == "shared" else {"container": "app"}
    wait_for(lambda: [event for event in daemon.events("drift") if about.items() <= event.items()], "it is said")
    assert daemon.client.get("/v1/node")["drifts_repaired"] >= 1
    daemon.check()
    before = len(daemon.events("drift"))
    daemon.verb("run", "--qos", "besteffort", "--", "sleep", "0.5")
    assert len(daemon.events("drift")) == before


@pytest.mark.guest
@needs_cgroups
@pytest.mark.parametrize("name", ["owner", "worker"])
def test_a_process_that_is_moved_out_of_its_group_is_brought_back(daemon: Daemon, name: str) -> None:
    daemon.start("--cpu-manager-reconcile-period", "200ms")
    daemon.apply(pod("owner", container(cpus=1)), pod("worker"))
    daemon.running("owner")
    daemon.running("worker")
    pid = daemon.running(name)
    right = allowed(pid)
    outside = CGROUPS / "cpuset" if best_kind() == "cgroup-v1" else CGROUPS
    (outside / "cgroup.procs").write_text(str(pid))
    wait_for(lambda: allowed(pid) == right, "it is back", within=2)


@needs_cgroups
@pytest.mark.parametrize("group", ["shared", "exclusive/*/app"])
def test_a_group_that_is_removed_while_it_is_empty_is_made_again(daemon: Daemon, group: str) -> None:
    daemon.start("--cpu-manager-reconcile-period", "200ms")
    daemon.apply(pod("flapping", container("sleep 0.1; exit 1", cpus=1)))
    wait_for(lambda: daemon.find("flapping", state="backing off"), "it pauses")
    top = daemon.place.cpuset(".", ".")
    for path in top.glob(group):
        path.rmdir()
    starts = len(daemon.events("started"))
    wait_for(lambda: len(daemon.events("started")) > starts, "it is started again", within=4)
    daemon.apply(pod("worker"))
    daemon.running("worker")
    daemon.check()


def test_a_state_that_cannot_be_saved_is_refused_and_the_daemon_goes_on(daemon: Daemon) -> None:
    daemon.start()
    run = daemon.run("owner", "sleep", "1000")
    path, elsewhere = daemon.state_dir / "cpu_manager_state", daemon.place.directory / "elsewhere"
    path.rename(elsewhere)
    path.mkdir()  # as root, a directory is what cannot be written to; a full disk is much the same
    before = daemon.containers()
    if SPARE > 1:  # what shares changes nothing in the State
        result = daemon.verb("apply", "-", text=pod("late", container(cpus=1)))
        assert result.returncode != 0
        assert "cpu_manager_state" in result.stdout + result.stderr
    run.terminate()
    run.wait()
    assert daemon.containers() in (before, [])
    path.rmdir()
    elsewhere.rename(path)
    assert daemon.verb("run", "--qos", "besteffort", "--", "true").returncode == 0
    daemon.idle(within=3)


def test_a_daemon_whose_log_is_not_read_continues(daemon: Daemon) -> None:
    ours, theirs = os.pipe()
    daemon.start(stderr=theirs)
    os.close(theirs)
    os.close(ours)
    assert daemon.verb("run", "--", "echo", "started").stdout == "started\n"
    daemon.idle(within=3)


def test_on_a_simulated_machine_no_command_is_run(daemon: Daemon) -> None:
    daemon.options = ["--runtime", "simulated", "--preset", "laptop-4"]
    daemon.groups = []
    daemon.start()
    result = daemon.verb("run", "--name", "x", "--", "echo", "started")
    assert (result.returncode, result.stdout) == (125, "")
    assert len(result.stderr.splitlines()) == 1
    assert daemon.containers() == []


def test_a_file_with_1000_pods_is_applied_and_one_that_cannot_run_keeps_all_from_starting(
    daemon: Daemon, tmp_path: Path
) -> None:
    daemon.options = ["--runtime", "simulated", "--preset", "laptop-4"]
    daemon.groups = []
    daemon.start()
    names = [f"p{number}" for number in range(1000)]
    many = tmp_path / "many.yaml"
    many.write_text(
        "\n---\n".join([*map(pod, names), "{kind: Pod, metadata: {name: x}, spec: {containers: [{name: a}]}}"])
    )
    refused = daemon.verb("apply", str(many))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "no command to run: x/a" in refused.stderr
    assert daemon.containers() == []
    many.write_text("\n---\n".join(map(pod, names)))
    applied = daemon.verb("apply", str(many))
    assert applied.stdout.splitlines() == [f"pod {name}: started; in the shared pool" for name in names]


# -- views


def test_every_view_shows_the_same(host: Daemon) -> None:
    host.apply(pod("owner", container(cpus=1)), pod("worker"))
    host.running("owner")
    host.running("worker")
    own = str(ONLINE - host.pools()["shared"])
    rows = {what: json.loads(host.verb("get", what, "-o", "json").stdout) for what in ("containers", "pods", "cpus")}
    assert {row["pod"]: row["cpus"] for row in rows["containers"]} == {"owner": own, "worker": "shared"}
    assert {row["pod"]: row["exclusive"] for row in rows["pods"]} == {"owner": own, "worker": ""}
    assert [row["cpu"] for row in rows["cpus"] if row["owner"] == "owner/app"] == list(CPUSet.parse(own))
    top = host.verb("top", "--once").stdout
    assert f"exclusive {own}" in top
    assert "owner" in host.verb("get").stdout
    assert "assigned" in host.verb("events").stdout
    for name in ("owner", "worker"):
        host.delete(name)
    host.idle()


def test_watching_ends_without_a_traceback_when_the_daemon_does(daemon: Daemon) -> None:
    daemon.start()
    watchers = [daemon.begin("events", "--watch"), daemon.begin("get", "pods", "--watch")]
    for watcher in watchers:
        assert watcher.stdout is not None
        watcher.stdout.readline()
    daemon.kill(signal.SIGTERM)
    for watcher in watchers:
        assert_no_traceback(watcher.communicate(timeout=30)[1])
    assert_no_traceback(daemon.said())


def test_a_refusal_says_why_and_of_which_container(host: Daemon) -> None:
    with pytest.raises(RefusedByDaemon, match="not enough cpus available") as refused:
        host.client.post("/v1/run", {"name": "greedy", "milli": 4_096_000})
    assert refused.value.answer["container"] == "main"


def test_a_size_that_a_container_cannot_have_is_refused_with_the_nearest_one(host: Daemon) -> None:
    host.apply(pod("db", container(cpus=1)))
    process = host.running("db")
    (before,) = allowed(process)
    refused = host.verb("resize", "db/app", "--cpus", str(len(ONLINE) + 1))
    assert refused.returncode == 4
    assert "the nearest size that it can have is" in refused.stderr
    assert allowed(process) == {before}
    assert host.verb("resize", "db/app", "--cpus", "1").stdout == f"db/app has CPU {before}\n"
    assert "no pod nobody" in host.verb("resize", "nobody/app", "--cpus", "1").stderr


def test_policy_static_moves_no_container(host: Daemon) -> None:
    refused = host.verb("repack")
    assert refused.returncode == 2
    assert "only dynamic does" in refused.stderr
