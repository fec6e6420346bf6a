"""The promise, measured: foreign threads on exclusive CPUs after the owner's first instruction, and time to start.

    python -m benchmarks overlap [--rounds 20] [--shared 10,100,500] [--groups auto] [--json]

A real daemon runs on this host. N busy processes share the pool (together they may use half a CPU). In each round a
process asks for one CPU of its own. From its first instruction on, every foreign thread is looked at in /proc, over and
over: what it may run on, and where it ran last. Any that may be on the owner's CPU counts as overlap.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks._targets import Target, verdict
from pinfold.cli.asking.client import Client
from pinfold.core.machine.cpuset import CPUSet
from pinfold.node.procfs import Procfs

PROC = Procfs(Path("/proc"))
_SCANS = 3
# They begin together, when the pipe is opened: else the first would keep the last from being started.
_BUSY = "i=0; while [ $i -lt {count} ]; do (read x < {gate}; while :; do :; done) & i=$((i+1)); done; wait"


class Round(NamedTuple):
    """What one start looked like, in seconds."""

    to_running: float
    overlap: float


class Daemon:
    """A daemon of our own, in its own directory and cgroup subtree."""

    def __init__(self, directory: Path, groups: str) -> None:
        self.socket = directory / "s.sock"
        command = [sys.executable, "-m", "pinfold", "serve", "--state-dir", str(directory / "state")]
        command += ["--socket", str(self.socket), "--groups", groups, "--end-workloads"]
        command += ["--group-name", f"pinfold-overlap-{os.getpid()}"]
        log = (directory / "log").open("w")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None  # noqa: S101 - asked for above
        if not self.process.stdout.readline():
            sys.exit((directory / "log").read_text())
        self.client = Client(self.socket)

    def stop(self) -> None:
        """End the daemon and everything it has started."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


def start_busy(client: Client, count: int) -> None:
    """Start *count* busy processes in the shared pool."""
    gate = client.path.with_name("gate")
    gate.unlink(missing_ok=True)
    os.mkfifo(gate)
    resources = {"requests": {"cpu": "100m", "memory": "1Mi"}, "limits": {"cpu": "500m", "memory": "64Mi"}}
    container = {"name": "c", "command": ["sh", "-c", _BUSY.format(count=count, gate=gate)], "resources": resources}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"busy-{count}"},
        "spec": {"containers": [container]},
    }
    client.post("/v1/pods", {"files": [{"text": json.dumps(pod), "source": "overlap"}]})
    while len(foreign(client)) < count:
        time.sleep(0.05)
    os.close(os.open(gate, os.O_WRONLY))


def foreign(client: Client) -> list[int]:
    """Return the processes of all pods in the shared pool: the pods' main processes and their descendants."""
    tree = PROC.processes()
    mains = {row["pid"] for row in client.get("/v1/containers") if not row["exclusive"]}
    found = set(mains)
    for _ in range(3):  # the example is two levels deep
        found |= {pid for pid, seen in tree.items() if seen.parent in found}
    return sorted(found - {None})


def one_round(client: Client, name: str) -> Round:
    """Start one process with a CPU of its own, and look who else may be there."""
    others = foreign(client)
    asked = time.monotonic_ns()
    reserved = client.post("/v1/run", {"name": name, "milli": 1000, "shared": False})
    cpus = CPUSet.parse(reserved["cpus"]["main"])
    gate, go = os.pipe()
    answer, said = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(gate, 1)
        os.write(said, str(time.monotonic_ns()).encode())
        signal.pause()
        os._exit(0)
    client.post(f"/v1/run/{reserved['uid']}/attach", {"pid": pid})
    os.write(go, b"1")
    running = int(os.read(answer, 32))
    overlap = sum(_overlap(others, cpus) for _ in range(_SCANS))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    for fd in (gate, go, answer, said):
        os.close(fd)
    while client.get("/v1/node")["pools"]["exclusive"]:
        time.sleep(0.005)
    return Round((running - asked) / 1e9, overlap)


def _overlap(others: list[int], cpus: CPUSet) -> float:
    """Return how long this look took if any foreign thread may run on *cpus*, else 0."""
    start = time.monotonic()
    for pid in others:
        for thread in PROC.threads(pid):
            if PROC.allowed(thread) & cpus:
                return time.monotonic() - start
    return 0.0


def main(arguments: list[str]) -> int:
    """Measure for each number of shared processes, and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks overlap", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--shared", default="10,100,500", metavar="N,N…")
    parser.add_argument("--groups", default="auto")
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args(arguments)
    figures = []
    with tempfile.TemporaryDirectory() as directory:
        for count in map(int, wanted.shared.split(",")):
            daemon = Daemon(Path(directory), wanted.groups)
            try:
                start_busy(daemon.client, count)
                rounds = [one_round(daemon.client, f"r{count}-{i}") for i in range(wanted.rounds)]
                kind = daemon.client.get("/v1/node")["groups"]
            finally:
                daemon.stop()
            times = sorted(each.to_running for each in rounds)
            figure = {
                "groups": kind,
                "shared": count,
                "rounds": len(rounds),
                "rounds_with_overlap": sum(each.overlap > 0 for each in rounds),
                "overlap_s": sum(each.overlap for each in rounds),
                "p50_ms": statistics.median(times) * 1e3,
                "p99_ms": times[min(len(times) - 1, int(len(times) * 0.99))] * 1e3,
            }
            figures.append(figure)
            if not wanted.json:
                print(
                    f"{kind}, {count:>3} shared processes: overlap {figure['overlap_s']:g} s in {len(rounds)} rounds; "
                    f"request to running p50 {figure['p50_ms']:.1f} ms, p99 {figure['p99_ms']:.1f} ms",
                    flush=True,
                )
    if wanted.json:
        print(json.dumps(figures, indent=1))
    return verdict(Target(f"rounds with overlap beside {f['shared']}", f["rounds_with_overlap"], 0) for f in figures)
