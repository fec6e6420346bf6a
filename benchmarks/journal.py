"""Journal: the cost of one entry, how many a second, and how long opening and asking a full journal takes.

Half of the entries are States of a node with 100 exclusive containers, of which one has moved; the others are decisions
with their steps. Times are CPU time of this process; the disk is that of the temporary directory.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pinfold.core.events.entries import Entry
from pinfold.node.journal.hands import hands
from pinfold.node.journal.journal import MAX_BYTES, Journal

if TYPE_CHECKING:
    from collections.abc import Callable

_BEGIN: Final = 1_700_000_000.0
_CONTAINERS: Final = 100
_STEPS: Final = [{"what": "took whole cores in socket 0", "took": "4,132", "why": "2 CPUs were needed"}]


def main(arguments: list[str]) -> int:
    """Fill a journal, then open and ask it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks journal", description=__doc__)
    parser.add_argument("--bytes", type=int, default=MAX_BYTES, help="size of the journal (default: the usual 64 MiB)")
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "journal"
        journal = _journal(path, args.bytes)
        count, seconds = _fill(journal, args.bytes)
        each = journal.bytes / count
        print(
            f"append: {seconds / count * 1e6:.1f} µs an entry, {count / seconds:,.0f} a second, {each:.0f} bytes each"
        )
        print(f"{journal.bytes / 2**20:.0f} MiB in {len(list(path.iterdir()))} files, {count:,} entries")
        middle = _BEGIN + count / 20
        _timed("open", lambda: _journal(path, args.bytes))
        _timed("State at a time", lambda: journal.state_at(middle))
        _timed("State at a time nearby", lambda: journal.state_at(middle + 1))
        _timed("an hour of entries", lambda: list(journal.entries(since=middle, until=middle + 3600, limit=1000)))
        _timed("who had a CPU at a time", lambda: hands(path, 10, middle, middle))
        _timed("all hands of a CPU", lambda: hands(path, 10))
    return 0


def _journal(path: Path, size: int) -> Journal:
    return Journal(path, clock=lambda: _BEGIN, tell=print, max_bytes=size)


def _fill(journal: Journal, size: int) -> tuple[int, float]:
    owners = {f"default/pod-{number}/app": f"{number * 2},{number * 2 + 256}" for number in range(_CONTAINERS)}
    number, spent = 0, 0.0
    while journal.bytes < size * 0.98:
        pod = f"pod-{number % _CONTAINERS}"
        owners[f"default/{pod}/app"] = f"{number % 512}"
        names = {"namespace": "default", "pod": pod, "container": "app", "cpus": "4,132"}
        state = Entry(number + 1, _BEGIN + number / 10, "state", {"shared": "0-1,200-255", "exclusive": dict(owners)})
        decided = Entry(number + 2, _BEGIN + number / 10, "assigned", {**names, "steps": _STEPS})
        begun = time.process_time()
        journal.append(state)
        journal.append(decided)
        spent += time.process_time() - begun
        number += 2
    return number, spent


def _timed(what: str, work: Callable[[], object]) -> None:
    begun = time.process_time()
    work()
    print(f"{what}: {(time.process_time() - begun) * 1000:,.1f} ms")
