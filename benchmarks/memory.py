"""Memory: MB (10^6 bytes) of the daemon when idle, with 300 and 1,000 containers over NRI, and over many operations.

    python -m benchmarks memory [--operations 20000] [--owners 20] [--json]

`idle`: on this host, three seconds after it is ready, and over NRI without a container. `containers`: so many that
share, over NRI, after some with CPUs of their own have come and gone; with 1,000 a page is open: its files and all that
it asks for were fetched, and it reads the event stream. They are cgroups with a sleeping process each.
`operations`: pods come and go over NRI beside 20 others, each with one container, one in ten with a CPU of its own; a
creation and a removal are two operations. Memory is told at ten points, and should be flat after the first quarter of
100,000: in 20,000 the daemon fills what it remembers of events, and Python its table of strings. They take ten minutes.

RSS also has the pages of Python and of C libraries that other processes share; `own` is what only this daemon has.
"""

from __future__ import annotations

import argparse
import compileall
import json
import re
import statistics
import sys
import tempfile
import time
from contextlib import closing, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit
from urllib.request import urlopen

import pinfold
from benchmarks import _daemon
from benchmarks._nrinode import BareNode, Refused
from benchmarks._targets import Target, verdict
from benchmarks._watchers import Stream
from benchmarks.nri import Plugin, daemon

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

IDLE: Final = "idle, plain host"
CHURN: Final = "growth over 100,000 operations"
TARGETS: Final = {IDLE: 25.0, "300 containers over NRI": 32.0, "1000 containers, page open": 40.0, CHURN: 1.0}
_SETTLED: Final = 3.0
_POINTS: Final = 10
_UNIT: Final = 100_000
_OTHERS: Final = 20
_OWNERS: Final = 10
"""One of so many containers has a CPU of its own."""
_ENOUGH: Final = 50_000
"""Operations after which the line can be flat."""
_ASKED: Final = ("pools", "containers", "layout", "config", "history?newest=true&brief=true&limit=2000")
_FILE: Final = re.compile(r'(?:src|href)="/(static/[^"]+)"')


class Figure(NamedTuple):
    """What a daemon has in memory, in MB."""

    name: str
    rss: float
    own: float
    """Of these, those that it shares with no other process."""

    def __str__(self) -> str:
        return f"{self.name:<32} {self.rss:5.1f} MB, {self.own:5.1f} of them its own"


def seen(name: str, pid: int) -> Figure:
    """Return what a process has in memory, some seconds from now."""
    time.sleep(_SETTLED)
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    sizes = {key: int(rest.split()[0]) * 1024 / 1e6 for key, _, rest in (line.partition(":") for line in lines)}
    return Figure(name, sizes["Rss"], sizes["Private_Dirty"] + sizes["Private_Clean"])


def idle() -> Figure:
    """Measure a daemon for plain processes that has none."""
    with tempfile.TemporaryDirectory() as directory, _daemon.Daemon(Path(directory)) as started:
        return seen(IDLE, started.process.pid)


def over_nri(owners: int) -> Iterator[Figure]:
    """Measure a daemon with more and more containers, at last with a page that is open."""
    with tempfile.TemporaryDirectory(prefix="pf-") as directory, BareNode(Path(directory)) as node:
        with daemon(node, node.ready) as plugin:
            yield seen("idle, NRI", plugin.pid)
        with _beside(node, 300, owners) as plugin:
            yield seen("300 containers over NRI", plugin.pid)
        with _beside(node, 1000, owners) as plugin, closing(_opened(plugin.page).socket):
            node.own(1000)
            yield seen("1000 containers, page open", plugin.pid)


@contextmanager
def _beside(node: BareNode, count: int, owners: int) -> Iterator[Plugin]:
    """Run a daemon with so many containers that share, and some with CPUs of their own that have gone."""
    node.share(count)
    with daemon(node, node.ready) as plugin:
        for _ in range(owners):
            node.own(1000)
        yield plugin


def _opened(page: str) -> Stream:
    """Fetch what a page fetches when it is opened; return its stream of events."""
    for path in (*_FILE.findall(_fetched(page)), *(f"api/v1/{name}" for name in _ASKED)):
        _fetched(f"{page}{path}")
    where = urlsplit(page)
    return Stream(str(where.hostname), int(where.port or 0), "127.0.0.1")


def _fetched(address: str) -> str:
    with urlopen(address, timeout=_daemon.WITHIN) as answer:  # noqa: S310 - an address of our daemon
        text: str = answer.read().decode()
        return text


def churn(operations: int) -> list[tuple[int, float]]:
    """Return the MB of a daemon after so many operations over NRI, at some points on the way."""
    points = []
    with tempfile.TemporaryDirectory(prefix="pf-") as directory, BareNode(Path(directory)) as node:
        node.share(_OTHERS)
        with daemon(node, node.ready) as plugin:
            for number in range(operations // 2):
                if number % max(1, operations // 2 // _POINTS) == 0:
                    points.append((2 * number, _daemon.resident(plugin.pid)))
                with suppress(Refused):  # on a busy disk the State may not be saved in time; a kubelet tries again
                    node.pass_by() if number % _OWNERS else node.own(1000)
            points.append((operations, _daemon.resident(plugin.pid)))
    return points


def growth(points: Sequence[tuple[int, float]]) -> float:
    """Return by how many MB memory grows in 100,000 operations, by the medians of two halves after the first quarter.

    >>> growth([(0, 20.0), (25_000, 30.0), (50_000, 30.0), (75_000, 31.0), (100_000, 31.0)])
    2.0
    """
    later = [point for point in points if point[0] >= points[-1][0] / 4]
    first, last = later[: len(later) // 2], later[-(len(later) // 2) :]
    more = statistics.median(rss for _, rss in last) - statistics.median(rss for _, rss in first)
    between = statistics.median(done for done, _ in last) - statistics.median(done for done, _ in first)
    return more / between * _UNIT


def main(arguments: list[str]) -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks memory", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--operations", type=int, default=20_000, help="0: none")
    parser.add_argument("--owners", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args(arguments)
    # As an installer does: a daemon that compiles its modules itself has up to 2 MB more.
    compileall.compile_dir(Path(pinfold.__file__).parent, quiet=2)
    figures = []
    for figure in chain((idle(),), over_nri(wanted.owners)):
        figures.append(figure)
        print(figure, file=sys.stderr if wanted.json else sys.stdout, flush=True)
    values = {figure.name: figure.rss for figure in figures}
    points = churn(wanted.operations) if wanted.operations else []
    if points:
        slope = growth(points)
        if wanted.operations >= _ENOUGH:
            values[CHURN] = slope
        told = f"{', '.join(f'{rss:.1f}' for _, rss in points)} MB; {slope:+.2f} MB for each 100,000 after the first"
        print(f"{wanted.operations:,} operations: {told} quarter", file=sys.stderr if wanted.json else sys.stdout)
    if wanted.json:
        print(json.dumps({"figures": [figure._asdict() for figure in figures], "operations": points}))
    return verdict(Target(f"{name}, MB", values[name], most) for name, most in TARGETS.items() if name in values)
