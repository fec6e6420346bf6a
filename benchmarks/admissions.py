"""Admissions: one, three in turn and fifty at once, beside the writes to disk and cgroups that they cannot avoid.

    python -m benchmarks admissions [--rounds 20] [--fsync-ms 0,10] [--json]

A real daemon admits pods with a CPU of their own on a simulated machine with many CPUs (`POST /v1/pods`), and pods
that share with real cgroups on this host (`POST /v1/run`). An admission is over when State and workloads are durable
and the cgroups were read back. `one`, `three in turn` and `fifty at once` are measured in the daemon: decided, durable,
applied and read back, from the begin of the first to the end of the last. `beside` is one more beside 150 others.
The floor is measured in turns with them: a file of the size of the State forced to the disk, a file of the workloads
and its directory, and for real cgroups a group made and removed.
`answered` is what clients wait for over the control socket, also for HTTP and reading the pods: one, three in turn,
fifty on as many connections, all sent before the first answer, and fifty in one file. `saves` are the writes of the
State for fifty clients, `CPU` is the daemon's for each of them, with the starts of their containers.
With --fsync-ms each fsync, of the daemon and of the floor, takes that much longer, as on disks of the cloud.
Targets: one within 1.5 times of its floor, and fifty at once in less time than three one by one, in the daemon.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import sys
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from benchmarks._daemon import Daemon
from benchmarks._targets import Target, verdict
from pinfold.node.statefile import write_atomically

if TYPE_CHECKING:
    from collections.abc import Sequence

_T = TypeVar("_T")

_FACTOR: Final = 1.5
_IN_TURN: Final = 3
_AT_ONCE: Final = 50
_HEAD: Final = b"POST /v1/%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
_CGROUPS: Final = Path("/sys/fs/cgroup")
_SAVES: Final = "pinfold_state_save_duration_seconds_count"
_BESIDE: Final = 150
_PAUSE: Final = 0.1
"""Seconds in which the pods before have started, and that was saved and told."""
_TURN: Final = "turn"
_ONCE: Final = "once"
_MEASURED: Final = """
import asyncio, os, sys, time
from dataclasses import replace
from pinfold.cli.main import main
from pinfold.manager.sources.supervisor import Supervisor
fsync, seconds, times = os.fsync, float(sys.argv.pop(1)) / 1e3, open(sys.argv.pop(1), "w", buffering=1)
def slow(file):
    time.sleep(seconds)
    fsync(file)
if seconds:
    os.fsync = slow
def like(what, number):
    if isinstance(what, str):
        return f"{what}-{number}"
    return replace(what, name=f"{what.name}-{number}", uid=f"{what.uid}-{number}")
def timed(admit):
    async def measured(supervisor, what, *given, **named):
        how, count, _ = (what if isinstance(what, str) else what.name).split("-")
        others = [like(what, number) for number in range(1, int(count))]
        began = time.perf_counter()
        calls = [admit(supervisor, one, *given, **named) for one in (what, *others)]
        found = await asyncio.gather(*calls) if how == "once" else [await call for call in calls]
        times.write(f"{time.perf_counter() - began}\\n")
        return found[0]
    return measured
Supervisor.submit, Supervisor.reserve = timed(Supervisor.submit), timed(Supervisor.reserve)
sys.exit(main(sys.argv[1:]))
"""
"""A daemon that admits as many pods as a name says, in turn or at once, and writes how long that took.

Its fsyncs take longer.
"""


class Figure(NamedTuple):
    """What admissions took on one kind of machine, in milliseconds."""

    kind: str
    floor: float
    """The writes of one admission by themselves, p50."""
    one: float
    """The admission, in the daemon, p50."""
    beside: float
    """The same beside 150 others."""
    in_turn: float
    """Three of them one by one, in the daemon, p50."""
    at_once: float
    """Fifty at once, in the daemon, p50."""
    answered: float
    """What a client waits for, p50."""
    answered_in_turn: float
    """What a client waits for that asks three times, p50."""
    answered_at_once: float
    """Until the last of fifty clients has its answer, p50."""
    saves: float
    """The writes of the State for fifty clients, mean."""
    cpu: float
    """The CPU time of the daemon for each of fifty clients, mean."""
    in_file: float | None
    """What a client waits for that sends fifty in one file, p50; None: not measured, as it starts processes."""

    def __str__(self) -> str:
        file = "" if self.in_file is None else f", fifty in one file after {self.in_file:.1f} ms"
        return (
            f"{self.kind}: floor {self.floor:.1f} ms; one {self.one:.1f} ms, {self.one / self.floor:.2f} times, "
            f"beside {_BESIDE} others {self.beside:.1f} ms; three in turn {self.in_turn:.1f} ms; "
            f"fifty at once {self.at_once:.1f} ms; answered: one after {self.answered:.1f} ms, three in turn after "
            f"{self.answered_in_turn:.1f} ms, fifty at once after {self.answered_at_once:.1f} ms{file}; "
            f"fifty clients: {self.saves:.1f} saves, {self.cpu:.2f} ms of CPU each"
        )

    def targets(self) -> list[Target]:
        """Return the targets."""
        one = Target(f"{self.kind}: one admission in ms", self.one, _FACTOR * self.floor)
        return [one, Target(f"{self.kind}: fifty at once in ms", self.at_once, self.in_turn)]


class Took(NamedTuple):
    """How many seconds admissions took."""

    answered: float
    """Until the last answer."""
    daemon: float
    """Those of the last request, in the daemon."""


class Clients:
    """Asks a daemon for pods."""

    def __init__(self, daemon: Daemon, times: Path, *, shared: bool) -> None:
        """Ask this daemon, which writes to *times* how long admissions took."""
        self._daemon = daemon
        self._times = times
        self.shared = shared
        self._count = count()
        self._names: list[str] = []

    def admit(self, at_once: int = 1, *, in_file: int = 1, here: tuple[str, int] = (_TURN, 1)) -> Took:
        """Have pods admitted, on connections that stand already; return how long that took.

        *here*: in place of each pod the daemon admits so many, in turn or at once.
        """
        how, many = here
        names = [[f"{how}-{many}-{next(self._count)}" for _ in range(in_file)] for _ in range(at_once)]
        requests = [(_connected(self._daemon.path), self._request(some)) for some in names]
        asked = time.perf_counter()
        for connection, request in requests:
            connection.sendall(request)
        answers = [connection.recv(1 << 16) for connection, _ in requests]
        took = time.perf_counter() - asked
        for (connection, _), answer in zip(requests, answers, strict=True):
            connection.close()
            if answer.count(b'"cpus": {') != in_file:
                sys.exit(f"not admitted: {answer!r}")
        for name in (name for some in names for name in some):
            self._names += [name, *(f"{name}-{number}" for number in range(1, many))]
        return Took(took, float(self._times.read_text().splitlines()[-1]))

    def delete_all(self) -> None:
        """Let all pods go."""
        for name in self._names:
            self._daemon.client.delete(f"/v1/pods/default/{name}")
        self._names.clear()

    def _request(self, names: list[str]) -> bytes:
        if self.shared:
            body = json.dumps({"name": names[0], "milli": 1000, "shared": True}).encode()
            return _HEAD % (b"run", len(body)) + body
        body = json.dumps({"files": [{"text": json.dumps(_pod(name)), "source": name} for name in names]}).encode()
        return _HEAD % (b"pods", len(body)) + body


def _pod(name: str) -> dict[str, object]:
    amounts = {"cpu": "1", "memory": "1Mi"}
    container = {"name": "c", "command": ["sleep"], "resources": {"requests": amounts, "limits": amounts}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


class Floor:
    """The writes of one admission, without a daemon."""

    def __init__(self, daemon: Daemon, directory: Path, *, fsync_ms: float, shared: bool) -> None:
        self._files = [daemon.state / name for name in ("cpu_manager_state", "workloads.json")]
        self._directory = directory
        self._pause = fsync_ms / 1e3
        self._shared = shared

    def write(self) -> float:
        """Write, and return how many seconds it took."""
        texts = [path.read_bytes() for path in self._files]
        began = time.perf_counter()
        if self._shared:  # the State does not change
            self._make_group()
        else:
            write_atomically(self._directory / "state-floor", texts[0], at_once=False)
            time.sleep(self._pause)
        write_atomically(self._directory / "workloads-floor", texts[1])
        time.sleep(2 * self._pause)
        return time.perf_counter() - began

    @staticmethod
    def _make_group() -> None:
        for root in _controllers():
            group = root / f"pinfold-floor-{os.getpid()}"
            group.mkdir()
            group.rmdir()


def _controllers() -> list[Path]:
    """Return where groups are made: one tree on cgroup v2, one for each controller on v1."""
    if (_CGROUPS / "cgroup.controllers").exists():
        return [_CGROUPS]
    return [_CGROUPS / name for name in ("cpuset", "cpu") if (_CGROUPS / name).is_dir()]


def _connected(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(path))
    return connection


def measure(runtime: str, fsync_ms: float, rounds: int) -> Figure:
    """Measure one kind of machine, everything in turns."""
    shared = runtime == "processes"
    arguments = ["--runtime", runtime, *([] if shared else ["--preset", "epyc-9654-2s"])]
    kind = f"{runtime}, {'shared' if shared else 'exclusive'}" + (f", fsync +{fsync_ms:g} ms" if fsync_ms else "")
    with tempfile.TemporaryDirectory() as name:
        times = Path(name, "times")
        with Daemon(Path(name), *arguments, program=("-c", _MEASURED, str(fsync_ms), str(times))) as daemon:
            clients = Clients(daemon, times, shared=shared)
            floor = Floor(daemon, Path(name), fsync_ms=fsync_ms, shared=shared)
            clients.admit(_AT_ONCE)
            found = [_round(daemon, clients, floor) for _ in range(rounds)]
            clients.delete_all()
            for _ in range(0, _BESIDE, _AT_ONCE):
                clients.admit(_AT_ONCE)
            beside = _median_ms([_quiet(clients).admit().daemon for _ in range(rounds)])
            clients.delete_all()
    return Figure(
        kind,
        floor=_median_ms([one.floor for one in found]),
        one=_median_ms([one.one.daemon for one in found]),
        beside=beside,
        in_turn=_median_ms([one.in_turn for one in found]),
        at_once=_median_ms([one.at_once for one in found]),
        answered=_median_ms([one.one.answered for one in found]),
        answered_in_turn=_median_ms([one.answered_in_turn for one in found]),
        answered_at_once=_median_ms([one.answered_at_once for one in found]),
        saves=statistics.mean([one.saves for one in found]),
        cpu=statistics.mean([one.cpu for one in found]) * 1e3 / _AT_ONCE,
        in_file=None if shared else _median_ms([one.in_file for one in found]),
    )


def _median_ms(seconds: Sequence[float]) -> float:
    return statistics.median(seconds) * 1e3


def _quiet(one: _T) -> _T:
    """Return *one* when the daemon has done all that it does after its answers."""
    time.sleep(_PAUSE)
    return one


class _Round(NamedTuple):
    """Everything measured once, in seconds."""

    floor: float
    one: Took
    in_turn: float
    at_once: float
    answered_in_turn: float
    answered_at_once: float
    saves: float
    cpu: float
    in_file: float


def _round(daemon: Daemon, clients: Clients, floor: Floor) -> _Round:
    clients.delete_all()
    least, one = _quiet(floor).write(), clients.admit()
    in_turn = _quiet(clients).admit(here=(_TURN, _IN_TURN)).daemon
    at_once = _quiet(clients).admit(here=(_ONCE, _AT_ONCE)).daemon
    clients.delete_all()
    _quiet(clients)
    answered_in_turn = sum(clients.admit().answered for _ in range(_IN_TURN))
    saves = _quiet(daemon).metrics()[_SAVES]
    cpu = daemon.cpu()
    answered_at_once = clients.admit(_AT_ONCE).answered
    cpu = _quiet(daemon).cpu() - cpu
    saves = daemon.metrics()[_SAVES] - saves
    in_file = 0.0 if clients.shared else _quiet(clients).admit(in_file=_AT_ONCE).answered
    return _Round(least, one, in_turn, at_once, answered_in_turn, answered_at_once, saves, cpu, in_file)


def main(arguments: list[str]) -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks admissions", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--fsync-ms", default="0,10", metavar="MS,MS…")
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args(arguments)
    figures = []
    for fsync_ms in map(float, wanted.fsync_ms.split(",")):
        for runtime in ("simulated", "processes"):
            figures.append(measure(runtime, fsync_ms, wanted.rounds))
            if not wanted.json:
                print(figures[-1], flush=True)
    if wanted.json:
        print(json.dumps([figure._asdict() for figure in figures], indent=1))
    return verdict(target for figure in figures for target in figure.targets())
