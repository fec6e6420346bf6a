"""What it costs to be watched: memory and decision latency under scrapes and event streams while containers churn.

    python -m benchmarks serve [--scrapes 1000] [--rate 100] [--watchers 50] [--rounds 200] [--loads 3]
                               [--warm 500] [--runtime NAME] [--groups KIND] [--json]

A real daemon runs, by default on a simulated machine, so that every decision is taken, saved and told, and no process
is started; with --runtime processes they are real, in groups of the KIND. By affinity each change lists the processes
of the host: start some beside it. A round is two pods with a CPU of their own that come and go, each
under a name of its own, and in between a question that takes nothing to answer. First no client watches. Then, in each
load, another process watches all events on as many streams, and scrapes /metrics at a rate (the daemon lets an address
have 200 requests a second for long), until it has done so as often as it should and all rounds are over.

The clients run on the same CPUs. So the daemon's own CPU time is printed too, and how long its event loop, ready to
run, waited for a CPU: that part is the machine's. Before the first figure come some pods more, after which the daemon
remembers as many events as it ever does. Its checkpoint's entries and their checksums it remembers of 8,192 pods: with
--warm 9000 memory stays where it is.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import socket
import sys
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from benchmarks import _daemon
from benchmarks._watchers import LAST, WITHIN, Load, Seen, watch
from pinfold.core.events.entries import STATE
from pinfold.node.journal.files import DIRECTORY, Archive

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.connection import Connection

_PRESET: Final = "epyc-7303-2s"
_PING: Final = b"GET /v1/nothing HTTP/1.1\r\nHost: localhost\r\n\r\n"
_TIMES: Final = {"decision": "pinfold_decision_duration_seconds", "save": "pinfold_state_save_duration_seconds"}


class Figure(NamedTuple):
    """What one phase looked like; times in milliseconds, memory in MB."""

    phase: str
    rounds: int
    p50_ms: float
    """From asking for a pod to knowing its CPUs, by the client's clock."""
    p99_ms: float
    decision_ms: float
    """The mean of deciding alone, by the daemon's own histogram."""
    save_ms: float
    """The mean of making the State durable, which is the disk's."""
    ping_p50_ms: float
    """From asking for nothing to the answer: how long the event loop is busy with others."""
    ping_p99_ms: float
    cpu_ms: float
    """The CPU time of the daemon's event loop for each pod, with all that was served meanwhile."""
    waited_ms: float
    """How long it waited for a CPU."""
    rss_mb: float
    """At the end."""
    scrapes: int = 0
    scrapes_per_s: float = 0.0
    scrape_p50_ms: float = 0.0
    scrape_p99_ms: float = 0.0
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
            f"rounds (deciding {self.decision_ms:.2f} ms, saving {self.save_ms:.2f} ms); RSS {self.rss_mb:.1f} MB\n"
            f"    answer to nothing p50 {self.ping_p50_ms:.1f} ms, p99 {self.ping_p99_ms:.1f} ms; for each pod the "
            f"daemon used {self.cpu_ms:.1f} ms of CPU, and waited {self.waited_ms:.1f} ms for one"
        )
        if not self.scrapes:
            return text
        return (
            f"{text}\n    {self.scrapes} scrapes, {self.scrapes_per_s:.0f} a second, p50 {self.scrape_p50_ms:.1f} ms, "
            f"p99 {self.scrape_p99_ms:.1f} ms; {self.events} events seen, {self.lost} lost; "
            f"event to watcher p50 {self.seen_p50_ms:.0f} ms, p99 {self.seen_p99_ms:.0f} ms"
        )


class Used(NamedTuple):
    """What a daemon's event loop has used since it started."""

    cpu_ms: float
    waited_ms: float
    """For a CPU."""
    sums: dict[str, tuple[float, float]]
    """The sum and count of its own timings."""


class Round(NamedTuple):
    """How many seconds answers took."""

    request: float
    ping: float


class Daemon(_daemon.Daemon):
    """A daemon whose pods come and go."""

    def __init__(self, directory: Path, runtime: str, groups: str) -> None:
        more = ["--preset", _PRESET] if runtime == "simulated" else ["--groups", groups]
        super().__init__(directory, "--runtime", runtime, *more)
        self._journal = Archive(self.state / DIRECTORY)
        self._names = count()
        self._pings = socket.socket(socket.AF_UNIX)
        self._pings.connect(str(self.path))

    def round(self) -> Round:
        """Let two pods come and go, and ask for nothing in between; return how long the first request and that took."""
        request, ping = self.pod(), self._ping()
        self.pod()  # what comes just after a question to which there was an answer need not wait: it does not count
        return Round(request, ping)

    def pod(self, name: str = "") -> float:
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

    def _ping(self) -> float:
        asked = time.perf_counter()
        self._pings.sendall(_PING)
        answer = b""
        while not answer.endswith(b"}\n"):
            answer += self._pings.recv(4096)
        return time.perf_counter() - asked

    def numbers(self, after: int) -> set[int]:
        """Return the numbers of the events after one, as the journal's files have them: the daemon is not asked."""
        return {entry.number for entry in self._journal.entries(number_after=after) if entry.what != STATE}

    def used(self) -> Used:
        """Return what it has used so far."""
        values, (cpu, waited) = self.metrics(), self.loop_times()
        sums = {name: (values[f"{row}_sum"], values[f"{row}_count"]) for name, row in _TIMES.items()}
        return Used(cpu * 1e3, waited * 1e3, sums)

    def stop(self) -> None:
        """End the daemon and everything it has started."""
        self._pings.close()
        super().stop()


# -- the phases


def quiet(daemon: Daemon, rounds: int) -> Figure:
    """Measure without clients."""
    before = daemon.used()
    took = [daemon.round() for _ in range(rounds)]
    return _figure("no clients", daemon, before, took)


def loaded(daemon: Daemon, phase: str, wanted: argparse.Namespace) -> Figure:
    """Measure while another process watches and scrapes."""
    before = daemon.used()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    load = Load(wanted.watchers, wanted.scrapes, wanted.rate)
    process = context.Process(target=watch, args=(theirs, daemon.host, daemon.port, load), daemon=True)
    process.start()
    _told(ours)
    took = list(_rounds(daemon, ours, wanted.rounds))
    scrapes_per_s: float = _told(ours)
    figure = _figure(phase, daemon, before, took)
    daemon.pod(LAST)
    seen: Seen = _told(ours)
    process.join(WITHIN)
    expected = daemon.numbers(min(mine[0] for mine in seen.numbers) - 1)
    return figure._replace(
        scrapes=wanted.scrapes,
        scrapes_per_s=scrapes_per_s,
        scrape_p50_ms=_percentile(seen.scrapes, 50),
        scrape_p99_ms=_percentile(seen.scrapes, 99),
        events=sum(map(len, seen.numbers)),
        lost=sum(len({number for number in expected if number <= max(mine)} - set(mine)) for mine in seen.numbers),
        seen_p50_ms=_percentile(seen.delays, 50),
        seen_p99_ms=_percentile(seen.delays, 99),
    )


def _rounds(daemon: Daemon, scraping: Connection, least: int) -> Iterator[Round]:
    """Yield each round, until there were enough and the scrapes are over."""
    done = 0
    while done < least or not scraping.poll():
        yield daemon.round()
        done += 1


def _told(by: Connection) -> Any:  # noqa: ANN401 - any message
    if not by.poll(WITHIN):
        sys.exit("the watching process does not answer")
    return by.recv()


def _figure(phase: str, daemon: Daemon, before: Used, rounds: Sequence[Round]) -> Figure:
    after, pods = daemon.used(), 2 * len(rounds)
    means = {
        name: (total - before.sums[name][0]) / max(1.0, counted - before.sums[name][1]) * 1e3
        for name, (total, counted) in after.sums.items()
    }
    requests, pings = [one.request for one in rounds], [one.ping for one in rounds]
    return Figure(
        phase,
        rounds=len(rounds),
        p50_ms=_percentile(requests, 50),
        p99_ms=_percentile(requests, 99),
        decision_ms=means["decision"],
        save_ms=means["save"],
        ping_p50_ms=_percentile(pings, 50),
        ping_p99_ms=_percentile(pings, 99),
        cpu_ms=(after.cpu_ms - before.cpu_ms) / pods,
        waited_ms=(after.waited_ms - before.waited_ms) / pods,
        rss_mb=daemon.rss(),
    )


def _percentile(values: Sequence[float], percent: int) -> float:
    """Return a percentile in milliseconds: the least value that so many are not above."""
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)] * 1e3 if values else 0.0


def main(arguments: list[str]) -> int:
    """Measure without and with load, and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks serve", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--scrapes", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--watchers", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--warm", type=int, default=500)
    parser.add_argument("--loads", type=int, default=3)
    parser.add_argument("--runtime", choices=("simulated", "processes"), default="simulated")
    parser.add_argument("--groups", metavar="KIND", default="auto")
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        daemon = Daemon(Path(directory), wanted.runtime, wanted.groups)
        try:
            for _ in range(0, wanted.warm, 2):
                daemon.round()
            figures = [quiet(daemon, wanted.rounds)]
            figures += [loaded(daemon, f"load {number + 1}", wanted) for number in range(wanted.loads)]
            figures.append(quiet(daemon, wanted.rounds)._replace(phase="no clients again"))
        finally:
            daemon.stop()
    if wanted.json:
        print(json.dumps([figure._asdict() for figure in figures], indent=1))
        return 0
    print(
        f"runtime {wanted.runtime}, {wanted.watchers} event streams, {wanted.scrapes} scrapes of /metrics in each load"
    )
    print(*figures, sep="\n")
    print(f"memory: {figures[0].rss_mb:.1f} MB before, {figures[-1].rss_mb:.1f} MB after {wanted.loads} loads")
    return 0
