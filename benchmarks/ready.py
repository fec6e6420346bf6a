"""Start after kill -9, the periodic check with nothing to do, and rest: beside no container and beside many.

    python -m benchmarks ready [--tries 5] [--rest 20] [--only TEXT] [--json]

A real daemon is killed and started again over what it has left running: pods with a CPU of their own on a simulated
machine, shared pods that are real processes (in cgroups, and by affinity), and containers that share beside one with
a CPU of its own, two in a pod, of which the runtime's end of NRI, played by the benchmark, tells.
`ready` is the time from its start to its line that it is ready, the best of all tries, and the CPU time of its process
until then. The daemon then has the period that users have, and nothing happens. After what a start leaves for
later, `rest` is the part of a core that it takes. `check` is the CPU time of the periodic work: the mean, and the most
at once. With more than 100 containers each check reads a part of them in full: --rest 60 sees all of 1,000.
Python's own start is printed first: no daemon can be quicker. Other programs on the machine lengthen the time, and the
CPU time by less.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks._daemon import Daemon
from benchmarks._nrinode import BareNode
from benchmarks._targets import Target, verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

READY_MS: Final = {0: 250.0, 600: 1000.0, 1000: 1500.0}
CHECK_MS: Final = 5.0
REST_PERCENT: Final = 0.05
_BIG: Final = "sockets:2,numa:4,l3:8,cores:8,threads:2"
"""A machine on which 1,000 containers have CPUs of their own."""
_IN_FILE: Final = 50
_IN_POD: Final = 2
"""Containers of a pod."""
_PERIOD: Final = 10.0
"""Of users."""
_POLL: Final = 0.05
_CALM: Final = 1.0
"""So many seconds without work: what a start leaves for later is done."""
_TRIES: Final = 20
_WORK: Final = 0.0005
"""Seconds of CPU time; less is a timer, and no check."""


class Figure(NamedTuple):
    """What a daemon takes beside so many containers."""

    kind: str
    beside: int
    ready_ms: float
    cpu_ms: float
    """Of the start."""
    check_ms: float
    worst_ms: float
    """The most that a check took."""
    rest_percent: float

    def __str__(self) -> str:
        return (
            f"{self.kind}, {self.beside}: ready after {self.ready_ms:.0f} ms, {self.cpu_ms:.0f} ms of CPU; "
            f"a check {self.check_ms:.2f} ms of CPU, at most {self.worst_ms:.2f}; "
            f"at rest {self.rest_percent:.3f} % of a core"
        )

    def targets(self) -> list[Target]:
        """Return the targets."""
        what = f"{self.kind}, {self.beside}"
        return [
            Target(f"{what}: ready in ms", self.ready_ms, READY_MS[self.beside]),
            Target(f"{what}: a check in ms of CPU", self.worst_ms, CHECK_MS),
            Target(f"{what}: rest in % of a core", self.rest_percent, REST_PERCENT),
        ]


class Stand(NamedTuple):
    """A daemon with containers, and what has to be done while it starts."""

    daemon: Daemon
    meanwhile: Callable[[], None] = lambda: None

    def restart(self) -> tuple[float, float]:
        """Kill the daemon and start it again; return the seconds until it was ready, and those of CPU."""
        self.daemon.kill()
        began = time.perf_counter()
        self.daemon.start("--cpu-manager-reconcile-period", f"{_PERIOD:g}s", meanwhile=self.meanwhile)
        return time.perf_counter() - began, self.daemon.cpu()

    def settle(self) -> None:
        """Wait until nothing is left to do."""
        for _ in range(_TRIES):
            if sum(self.rest(_CALM)) < _WORK:
                return

    def rest(self, seconds: float) -> list[float]:
        """Let nothing happen for so long; return the seconds of CPU, each piece of work apart, small ones too."""
        pieces, before, ends = [0.0], self.daemon.cpu(), time.monotonic() + seconds
        while time.monotonic() < ends:
            time.sleep(_POLL)
            now = self.daemon.cpu()
            if now > before:
                pieces[-1] += now - before
            elif pieces[-1]:
                pieces.append(0.0)
            before = now
        return pieces


@contextmanager
def _simulated(directory: Path, count: int) -> Iterator[Stand]:
    with Daemon(directory, "--runtime", "simulated", "--preset", _BIG) as daemon:
        _fill(daemon, count, exclusive=True)
        yield Stand(daemon)


@contextmanager
def _processes(directory: Path, count: int, groups: str = "auto") -> Iterator[Stand]:
    with Daemon(directory, "--groups", groups) as daemon:
        _fill(daemon, count)
        yield Stand(daemon)


@contextmanager
def _affinity(directory: Path, count: int) -> Iterator[Stand]:
    with _processes(directory, count, "affinity") as stand:
        yield stand


@contextmanager
def _nri(directory: Path, count: int) -> Iterator[Stand]:
    with BareNode(directory, max(count // _IN_POD, 1)) as node:
        node.share(count)
        arguments = ["--runtime", "nri", "--nri-socket", str(node.nri_socket), "--kubelet-dir", str(directory)]
        arguments += ["--reserved-cpus", "0", "--cgroup-root", f"/{node.root}"]
        with Daemon(directory, *arguments, meanwhile=node.ready) as daemon:
            if count:
                node.keep(1000)
            yield Stand(daemon, node.ready)


def _fill(daemon: Daemon, count: int, *, exclusive: bool = False) -> None:
    """Run so many pods."""
    for first in range(0, count, _IN_FILE):
        names = [f"p{number}" for number in range(first, min(count, first + _IN_FILE))]
        files = [{"text": json.dumps(_pod(name, exclusive=exclusive)), "source": name} for name in names]
        answer = daemon.client.post("/v1/pods", {"files": files})
        if any("cpus" not in pod for pod in answer["pods"]):
            sys.exit(f"not admitted: {answer}")


def _pod(name: str, *, exclusive: bool) -> dict[str, object]:
    amounts = {"cpu": "1" if exclusive else "10m", "memory": "1Mi"}
    container = {"name": "c", "command": ["sleep", "2147483647"], "resources": {"requests": amounts, "limits": amounts}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


CASES: Final = (
    ("simulated, exclusive", _simulated, (0, 1000)),
    ("processes in cgroups", _processes, (0, 600, 1000)),
    ("processes by affinity", _affinity, (0, 600, 1000)),
    ("nri", _nri, (0, 600, 1000)),
)


def measure(kind: str, stand: Stand, count: int, wanted: argparse.Namespace) -> Figure:
    """Measure one daemon."""
    stand.settle()  # the last containers may still be starting
    starts = [stand.restart() for _ in range(wanted.tries)]
    time.sleep(_PERIOD)  # the first check reads everything
    stand.settle()
    pieces = stand.rest(wanted.rest)
    checks = [piece for piece in pieces if piece > _WORK] or [max(pieces)]
    return Figure(
        kind,
        count,
        ready_ms=min(took for took, _ in starts) * 1e3,
        cpu_ms=min(cpu for _, cpu in starts) * 1e3,
        check_ms=statistics.mean(checks) * 1e3,
        worst_ms=max(checks) * 1e3,
        rest_percent=sum(pieces) / wanted.rest * 100,
    )


def _python_ms(tries: int) -> float:
    """Return the milliseconds that Python takes to start and end."""
    took = []
    for _ in range(tries):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        took.append(time.perf_counter() - began)
    return min(took) * 1e3


def main(arguments: list[str]) -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks ready", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tries", type=int, default=5)
    parser.add_argument("--rest", type=float, default=20.0)
    parser.add_argument("--only", default="", metavar="TEXT", help="only kinds with this text, such as `nri, 600`")
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args(arguments)
    figures: list[Figure] = []
    if not wanted.json:
        print(f"python alone: {_python_ms(wanted.tries):.0f} ms")
    for kind, stand, counts in CASES:
        for count in counts:
            if wanted.only not in f"{kind}, {count}.":
                continue
            with tempfile.TemporaryDirectory(prefix="pf-") as name, stand(Path(name), count) as here:
                figures.append(measure(kind, here, count, wanted))
            if not wanted.json:
                print(figures[-1], flush=True)
    if wanted.json:
        print(json.dumps([figure._asdict() for figure in figures], indent=1))
    return verdict(target for figure in figures for target in figure.targets())
