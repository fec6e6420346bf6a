"""NRI: what the plugin adds to CreateContainer, what moving N others off takes, and how much memory the daemon has.

    python -m benchmarks nri [--rounds 20] [--creates 100] [--shared 0,20,100,300] [--real] [--suite trixie] [--json]

`create`: containers that share, created by a real containerd without the plugin and with it, in turns; the time of the
whole call, and the plugin's own from question to answer. `own`: a container with CPUs of its own while N others share;
decided, saved, the others moved off and read back within the answer; `cpu` is the daemon's CPU time for all of it, from
creation to removal. `plain` is the time of the system calls alone that save a small file durably and move the others
off, without a daemon; `floor` the same after the flag was cleared that costs the kernel most of it on cgroup v1.
`share`: pods with a container that shares come and go; the time of the answer to its creation.
The others are cgroups with a sleeping process each, which the runtime's end of NRI, played by the benchmark, tells of;
with --real they are containers of containerd. They are in 10 pods; at last, as many are in pods of two.
Targets: p99 of what is added 5 ms, the same for every N on cgroup v2, 32 MB with 300 containers.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks._daemon import PAGE, environment, resident
from benchmarks._nrinode import BareNode, RealNode
from benchmarks._targets import Target, verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks._nrinode import Node

TARGET_MS: Final = 5.0
TARGET_MB: Final = 32.0
_BLOCKS: Final = 4
_WARM_UP: Final = 3
_PASSING: Final = 300


class Figure(NamedTuple):
    """Times of one kind, in seconds."""

    name: str
    times: Sequence[float]
    cpu: float | None = None
    """Seconds of CPU time that the daemon has used for each, all told: on a busy machine they change less."""
    floor: float | None = None
    """The median of the seconds of what no plugin can avoid."""
    plain: float | None = None
    """The same where nothing was done before to make it quicker."""

    @property
    def data(self) -> dict[str, object]:
        """What is printed, in milliseconds."""
        ordered = sorted(self.times)
        last = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
        return {
            "name": self.name,
            "count": len(ordered),
            "p50_ms": statistics.median(ordered) * 1e3,
            "p99_ms": last * 1e3,
            "max_ms": ordered[-1] * 1e3,
            **({} if self.cpu is None else {"cpu_ms": self.cpu * 1e3}),
            **({} if self.floor is None else {"floor_ms": self.floor * 1e3}),
            **({} if self.plain is None else {"plain_ms": self.plain * 1e3}),
        }

    def __str__(self) -> str:
        data = self.data
        words = (word for word in ("p50", "p99", "max", "cpu", "floor", "plain") if f"{word}_ms" in data)
        times = (f"{word} {data[f'{word}_ms']:7.2f} ms" for word in words)
        return f"{self.name:<44} {data['count']:>4} times  {'  '.join(times)}"


class Plugin(NamedTuple):
    """A daemon that runs as a plugin."""

    pid: int
    page: str
    """Its address."""


@contextmanager
def daemon(node: Node, ready: Callable[[], None]) -> Iterator[Plugin]:
    """Run a daemon as the node's plugin."""
    with tempfile.TemporaryDirectory(prefix="pf-") as directory:
        command = [sys.executable, "-m", "pinfold", "serve", "--runtime", "nri", "--nri-socket", str(node.nri_socket)]
        command += ["--state-dir", f"{directory}/state", "--socket", f"{directory}/s", "--kubelet-dir", directory]
        command += ["--reserved-cpus", "0", "--cgroup-root", f"/{node.root}", "--listen", "127.0.0.1:0"]
        with Path(directory, "log").open("w") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment())
        try:
            assert process.stdout is not None  # noqa: S101 - asked for above
            ready()
            page = PAGE.search(process.stdout.readline())
            if page is None:
                sys.exit(Path(directory, "log").read_text())
            yield Plugin(process.pid, page[1])
        finally:
            process.kill()
            process.communicate()


def cpu_time(pid: int) -> float:
    """Return the seconds of CPU time that a process's main thread has used."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def created(node: RealNode, creates: int) -> list[Figure]:
    """Measure the creation of containers that share, without a plugin and with it."""
    node.share(0)
    without: list[float] = []
    beside: list[float] = []
    for block in range(_BLOCKS):
        numbers = range(block * creates, block * creates + creates // _BLOCKS)
        without += [node.create(number) for number in numbers]
        with daemon(node, node.ready):
            before = len(node.relay.answered)
            beside += [node.create(number + creates // _BLOCKS) for number in numbers]
            own = [found.seconds for found in node.relay.answered[before:] if found.method == "CreateContainer"]
            node.answers += own
    return [
        Figure("create, call without plugin", without),
        Figure("create, call with plugin", beside),
        Figure("create, the plugin's answer", node.answers),
    ]


def owned(node: Node, counts: Sequence[int], rounds: int, told: Callable[[Figure], None], *, where: str = "") -> float:
    """Measure containers with CPUs of their own beside more and more others; return the daemon's megabytes at last."""
    used = 0.0
    for count in counts:
        node.share(count)
        floor, plain = (_calls(node, rounds, plainly=plainly) for plainly in (False, True))
        with daemon(node, node.ready) as plugin:
            for _ in range(_WARM_UP):
                node.own(1000)
            before = cpu_time(plugin.pid)
            times = [node.own(1000) for _ in range(rounds)]
            used_cpu = (cpu_time(plugin.pid) - before) / rounds
            share = f"{count} share{where}"
            told(Figure(f"own, {share}", times, used_cpu, floor, plain))
            if isinstance(node, BareNode):
                told(shared(node, plugin, share))
            used = resident(plugin.pid)
    return used


def _calls(node: Node, rounds: int, *, plainly: bool) -> float | None:
    """Return the median of the seconds of the system calls alone."""
    if not isinstance(node, BareNode):
        return None
    return statistics.median([node.save() + node.move_off(plainly=plainly) for _ in range(rounds)])


def shared(node: BareNode, plugin: Plugin, share: str) -> Figure:
    """Measure the answers for containers that share, beside those."""
    for _ in range(_WARM_UP):
        node.pass_by()
    before = cpu_time(plugin.pid)
    times = [node.pass_by() for _ in range(_PASSING)]
    return Figure(f"share, {share}", times, (cpu_time(plugin.pid) - before) / _PASSING)


def main(arguments: list[str]) -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks nri", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--creates", type=int, default=100, help="0: without containerd, which needs root and apt")
    parser.add_argument("--shared", default="0,20,100,300", metavar="N,N…")
    parser.add_argument("--real", action="store_true", help="others are containers of containerd too")
    parser.add_argument("--suite", default="trixie", help="the Debian suite of containerd")
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args(arguments)
    figures: list[Figure] = []

    def told(figure: Figure) -> None:
        figures.append(figure)
        if not wanted.json:
            print(figure, flush=True)

    counts = sorted(map(int, wanted.shared.split(",")))
    used = _measure(wanted, counts, told)
    if wanted.json:
        print(json.dumps({"figures": [figure.data for figure in figures], "rss_mb": used, "containers": counts[-1]}))
    else:
        print(f"memory of the daemon with {counts[-1]} containers: {used:.1f} MB")
    added = [figure for figure in figures if "answer" in figure.name]
    times = [Target(f"{figure.name}, p99 in ms", float(str(figure.data["p99_ms"])), TARGET_MS) for figure in added]
    return verdict([*times, Target("memory of the daemon in MB", used, TARGET_MB)])


def _measure(wanted: argparse.Namespace, counts: Sequence[int], told: Callable[[Figure], None]) -> float:
    if wanted.creates:
        with RealNode(wanted.suite) as node:
            for figure in created(node, wanted.creates):
                told(figure)
            if wanted.real:
                return owned(node, counts, wanted.rounds, told)
    with tempfile.TemporaryDirectory(prefix="pf-") as directory, BareNode(Path(directory)) as bare:
        used = owned(bare, counts, wanted.rounds, told)
    pods = counts[-1] // 2
    if not pods:
        return used
    with tempfile.TemporaryDirectory(prefix="pf-") as directory, BareNode(Path(directory), pods) as bare:
        owned(bare, counts[-1:], wanted.rounds, told, where=f" in {pods} pods")
    return used
