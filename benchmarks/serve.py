"""What it costs to be watched: memory and decision latency under scrapes and event streams while containers churn.

    python -m benchmarks serve [--scrapes 1000] [--watchers 50] [--rounds 200] [--loads 3] [--runtime NAME] [--json]

A real daemon runs, by default on a simulated machine, so that every decision is taken, saved and told, and no process
is started; with --runtime processes they are real. A round is a pod with a CPU of its own that comes and goes, each
under a name of its own. First nobody watches. Then, in each load, another process watches all events on as many
streams, and scrapes /metrics without a pause, until it has done so as often as it should and all rounds are over.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.request import urlopen

from pinfold.cli.client import Client
from pinfold.core.entries import STATE
from pinfold.node.journalfiles import DIRECTORY, Archive

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.connection import Connection

_PRESET: Final = "epyc-7303-2s"
_PAGE: Final = re.compile(r"page (http://(\S+):(\d+)/)")
_LAST: Final = "the-last"
_WARM: Final = 500
"""Rounds before the first figure: by then the daemon remembers as many events as it ever does."""
_WITHIN: Final = 120.0
_TIMES: Final = {"decision": "pinfold_decision_duration_seconds", "save": "pinfold_state_save_duration_seconds"}


class Figure(NamedTuple):
    """What one phase looked like; times in milliseconds, memory in MiB."""

    phase: str
    rounds: int
    p50_ms: float
    """From asking for a pod to knowing its CPUs, by the client's clock."""
    p99_ms: float
    decision_ms: float
    """The mean of deciding alone, by the daemon's own histogram."""
    save_ms: float
    """The mean of making the State durable, which is the disk's."""
    rss_mib: float
    """At the end."""
    scrapes: int = 0
    scrapes_per_s: float = 0.0
    events: int = 0
    """That came, over all streams."""
    lost: int = 0
    """That did not."""
    seen_p50_ms: float = 0.0
    """From an event's time to a watcher's knowing."""
    seen_p99_ms: float = 0.0

    def __str__(self) -> str:
        text = (
            f"{self.phase}: request to decision p50 {self.p50_ms:.1f} ms, p99 {self.p99_ms:.1f} ms over {self.rounds} "
            f"rounds (deciding {self.decision_ms:.2f} ms, saving {self.save_ms:.2f} ms); RSS {self.rss_mib:.1f} MiB"
        )
        if not self.scrapes:
            return text
        return (
            f"{text}\n    {self.scrapes} scrapes, {self.scrapes_per_s:.0f} a second; {self.events} events seen, "
            f"{self.lost} lost; event to watcher p50 {self.seen_p50_ms:.1f} ms, p99 {self.seen_p99_ms:.1f} ms"
        )


class Seen(NamedTuple):
    """What the watching process saw."""

    scrapes_per_s: float
    numbers: list[list[int]]
    """Of the events, for each stream."""
    delays: list[float]


class Daemon:
    """A daemon of our own, in a directory that nobody else has."""

    def __init__(self, directory: Path, runtime: str) -> None:
        command = [sys.executable, "-m", "pinfold", "serve", "--state-dir", str(directory / "state")]
        command += ["--socket", str(directory / "s.sock"), "--listen", "127.0.0.1:0", "--end-workloads"]
        command += ["--runtime", runtime, "--group-name", f"pinfold-serve-{os.getpid()}"]
        command += ["--preset", _PRESET] if runtime == "simulated" else []
        with (directory / "log").open("w") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None  # noqa: S101 - asked for above
        found = _PAGE.search(self.process.stdout.readline())
        if found is None:
            sys.exit((directory / "log").read_text())
        self.page, self.host, self.port = found[1], found[2], int(found[3])
        self.client = Client(directory / "s.sock")
        self._journal = Archive(directory / "state" / DIRECTORY)
        self._names = count()

    def round(self, name: str = "") -> float:
        """Let a pod come and go; return how many seconds it took to know its CPUs."""
        name = name or f"p{next(self._names)}"
        amounts = {"cpu": "1", "memory": "1Mi"}
        resources = {"requests": amounts, "limits": amounts}
        spec = {"containers": [{"name": "c", "command": ["sleep", "1000"], "resources": resources}]}
        pod = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
        asked = time.perf_counter()
        answer = self.client.post("/v1/pods", {"files": [{"text": pod, "source": "serve"}]})
        took = time.perf_counter() - asked
        if "cpus" not in answer["pods"][0]:
            sys.exit(f"a pod was refused: {answer}")
        self.client.delete(f"/v1/pods/default/{name}")
        return took

    def rss(self) -> float:
        """Return its resident memory in MiB."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.partition("VmRSS:")[2].split()[0]) / 1024

    def numbers(self, after: int) -> set[int]:
        """Return the numbers of the events after one, as the journal's files have them: the daemon is not asked."""
        return {entry.number for entry in self._journal.entries(number_after=after) if entry.what != STATE}

    def times(self) -> dict[str, tuple[float, float]]:
        """Return the sum and count of the daemon's own timings."""
        with urlopen(f"{self.page}metrics", timeout=_WITHIN) as answer:  # noqa: S310 - an address of our daemon
            values = dict(line.split() for line in answer.read().decode().splitlines() if line.count(" ") == 1)
        return {name: (float(values[f"{row}_sum"]), float(values[f"{row}_count"])) for name, row in _TIMES.items()}

    def stop(self) -> None:
        """End the daemon and everything it has started."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(_WITHIN)


# -- the process that watches


async def _stream(host: str, port: int, numbers: list[int], delays: list[float], ready: asyncio.Semaphore) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    async for line in reader:
        if line == b"event: hello\n":
            ready.release()
        if not line.startswith(b"data: {") or line == b"data: {}\n":
            continue
        event = json.loads(line[6:])
        numbers.append(event["number"])
        delays.append(time.time() - event["time"])
        if (event["what"], event.get("pod")) == ("released", _LAST):
            break
    writer.close()


async def _scrape(host: str, port: int, scrapes: int) -> float:
    """Scrape as often; return how many seconds it took."""
    reader, writer = await asyncio.open_connection(host, port)
    begun = time.perf_counter()
    for _ in range(scrapes):
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            sys.exit(f"a scrape failed: {head!r}")
        await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))
    writer.close()
    return time.perf_counter() - begun


async def _watched(told: Connection, host: str, port: int, watchers: int, scrapes: int) -> Seen:
    ready = asyncio.Semaphore(0)
    numbers: list[list[int]] = [[] for _ in range(watchers)]
    delays: list[float] = []
    streams = [asyncio.create_task(_stream(host, port, mine, delays, ready)) for mine in numbers]
    for _ in streams:
        await ready.acquire()
    told.send("ready")
    took = await _scrape(host, port, scrapes)
    told.send("scraped")
    await asyncio.gather(*streams)
    return Seen(scrapes / took, numbers, delays)


def _watch(told: Connection, host: str, port: int, watchers: int, scrapes: int) -> None:
    told.send(asyncio.run(asyncio.wait_for(_watched(told, host, port, watchers, scrapes), _WITHIN)))


# -- the phases


def quiet(daemon: Daemon, rounds: int) -> Figure:
    """Measure with nobody watching."""
    before = daemon.times()
    took = [daemon.round() for _ in range(rounds)]
    return _figure("nobody watches", daemon, before, took)


def loaded(daemon: Daemon, phase: str, wanted: argparse.Namespace) -> Figure:
    """Measure while another process watches and scrapes."""
    before = daemon.times()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    what = (theirs, daemon.host, daemon.port, wanted.watchers, wanted.scrapes)
    process = context.Process(target=_watch, args=what, daemon=True)
    process.start()
    _told(ours)
    took = list(_rounds(daemon, ours, wanted.rounds))
    daemon.round(_LAST)
    seen: Seen = _told(ours)
    process.join(_WITHIN)
    figure = _figure(phase, daemon, before, took)
    expected = daemon.numbers(min(mine[0] for mine in seen.numbers) - 1)
    return figure._replace(
        scrapes=wanted.scrapes,
        scrapes_per_s=seen.scrapes_per_s,
        events=sum(map(len, seen.numbers)),
        lost=sum(len({number for number in expected if number <= max(mine)} - set(mine)) for mine in seen.numbers),
        seen_p50_ms=_percentile(seen.delays, 50),
        seen_p99_ms=_percentile(seen.delays, 99),
    )


def _rounds(daemon: Daemon, scraping: Connection, least: int) -> Iterator[float]:
    """Yield the latency of each round, until there were enough and the scrapes are over."""
    done = 0
    while done < least or not scraping.poll():
        yield daemon.round()
        done += 1
    _told(scraping)


def _told(by: Connection) -> Any:  # noqa: ANN401 - whatever it sends
    if not by.poll(_WITHIN):
        sys.exit("the watching process does not answer")
    return by.recv()


def _figure(phase: str, daemon: Daemon, before: dict[str, tuple[float, float]], took: Sequence[float]) -> Figure:
    means = {
        name: (total - before[name][0]) / max(1.0, times - before[name][1]) * 1e3
        for name, (total, times) in daemon.times().items()
    }
    p50, p99 = _percentile(took, 50), _percentile(took, 99)
    return Figure(phase, len(took), p50, p99, means["decision"], means["save"], daemon.rss())


def _percentile(values: Sequence[float], percent: int) -> float:
    """Return a percentile in milliseconds: the least value that so many are not above."""
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)] * 1e3 if values else 0.0


def main(arguments: list[str]) -> int:
    """Measure without and with load, and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks serve", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--scrapes", type=int, default=1000)
    parser.add_argument("--watchers", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--loads", type=int, default=3)
    parser.add_argument("--runtime", choices=("simulated", "processes"), default="simulated")
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        daemon = Daemon(Path(directory), wanted.runtime)
        try:
            for _ in range(_WARM):
                daemon.round()
            figures = [quiet(daemon, wanted.rounds)]
            figures += [loaded(daemon, f"load {number + 1}", wanted) for number in range(wanted.loads)]
            figures.append(quiet(daemon, wanted.rounds)._replace(phase="nobody watches any more"))
        finally:
            daemon.stop()
    if wanted.json:
        print(json.dumps([figure._asdict() for figure in figures], indent=1))
        return 0
    print(f"runtime {wanted.runtime}, {wanted.watchers} event streams, {wanted.scrapes} scrapes of /metrics per load")
    print(*figures, sep="\n")
    print(f"memory: {figures[0].rss_mib:.1f} MiB before, {figures[-1].rss_mib:.1f} MiB after {wanted.loads} loads")
    return 0
