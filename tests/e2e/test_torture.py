"""Real daemons killed at random instants while pods come and go: State equals reality, and what was answered holds.

make torture            the long run, which prints its figures
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from pinfold.errors import PinfoldError
from tests.e2e.daemon import ONLINE, SPARE, Daemon, allowed, best_kind, container, needs_two_cpus, pod, wait_for
from tests.e2e.nursery import fast_starts
from tests.needs import IN_GUEST

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, needs_two_cpus]

ROUNDS: Final = int(os.environ.get("TORTURE_ROUNDS", "10"))
NAMES: Final = [f"p{number}" for number in range(min(SPARE, 4) + 2)]
LONGEST: Final = 1.0 if not IN_GUEST else 2.0
"""Seconds after which a daemon under churn is killed at the latest."""


class Asked(NamedTuple):
    """What a client has asked for, and whether it had an answer before the daemon was killed."""

    there: bool
    answered: bool


class Churn(threading.Thread):
    """A client that applies and deletes pods until the daemon is gone."""

    def __init__(self, daemon: Daemon, seed: int, asked: dict[str, Asked]) -> None:
        super().__init__()
        self._daemon = daemon
        self._dice = random.Random(seed)  # noqa: S311 - no secret
        self.asked = asked
        self.changes = 0

    def run(self) -> None:
        try:
            while True:
                self._change(self._dice.choice(NAMES))
                self.changes += 1
        except (PinfoldError, OSError):
            return  # the daemon was killed

    def _change(self, name: str) -> None:
        before = self.asked.get(name, Asked(there=False, answered=True))
        self.asked[name] = Asked(not before.there, answered=False)
        if before.there:
            self._daemon.delete(name)
        elif "refused" in self._daemon.apply(pod(name, container(cpus=self._dice.choice([0, 1]))))[0]:
            self.asked[name] = before
            return
        self.asked[name] = Asked(not before.there, answered=True)


class Figures(NamedTuple):
    """What a run of kills has seen."""

    rounds: int
    changes: int
    ready: list[float]

    def __str__(self) -> str:
        ordered = sorted(self.ready)
        middle, worst = ordered[len(ordered) // 2], ordered[-1]
        ready = f"ready after {middle:.2f} s (median), {worst:.2f} s (worst)"
        return f"{self.rounds} kills under {self.changes} changes; {ready}"

    def show_some(self, what: str) -> None:
        """Print them after each hundred kills, so that a long run that fails has shown how far it came."""
        if self.rounds and self.rounds % 100 == 0:
            sys.stdout.write(f"\n{what}: {self}\n")
            sys.stdout.flush()


@pytest.fixture(params=sorted({"affinity", best_kind()}))
def daemon(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    with Daemon("--journal-size", "1", kind=request.param) as daemon, fast_starts(daemon):
        yield daemon


def test_a_daemon_that_is_killed_at_any_instant_loses_nothing(daemon: Daemon) -> None:
    dice = random.Random(14)  # noqa: S311 - no secret
    asked, changes, ready = dict[str, Asked](), 0, list[float]()
    for number in range(ROUNDS):
        start = time.monotonic()
        daemon.start()
        ready.append(time.monotonic() - start)
        Figures(number, changes, ready).show_some(daemon.place.kind)
        with log_shown(daemon):
            see_that_nothing_is_lost(daemon, asked)
        churn = Churn(daemon, dice.randrange(1 << 30), asked)
        churn.start()
        time.sleep(dice.uniform(0, LONGEST))
        daemon.kill()
        churn.join()
        changes += churn.changes
    daemon.start()
    see_that_nothing_is_lost(daemon, asked)
    for name, state in asked.items():
        if state.there:
            daemon.delete(name)
    daemon.idle()
    sys.stdout.write(f"\n{daemon.place.kind}: {Figures(ROUNDS, changes, ready)}\n")


@contextmanager
def log_shown(daemon: Daemon) -> Iterator[None]:
    """Print the end of the daemon's log if the block fails: a guest leaves nothing else."""
    try:
        yield
    except BaseException:
        sys.stdout.write(f"\n{daemon.said()[-20000:]}\n")
        raise


def see_that_nothing_is_lost(daemon: Daemon, asked: dict[str, Asked]) -> None:
    """Compare what is there with what was answered, and settle what was not."""
    daemon.check()
    there = {row["pod"]: row for row in daemon.containers()}
    for name, state in asked.items():
        if state.answered:
            assert (name in there) == state.there, f"{name} was {'applied' if state.there else 'deleted'}"
        asked[name] = Asked(name in there, answered=True)
    assert there.keys() <= asked.keys()
    for name in there:
        daemon.running(name)
    known = {row["pid"] for row in daemon.containers()}
    wait_for(lambda: set(daemon.place.processes()) <= known, "no process is unknown")
    shared = daemon.pools()["shared"]
    for row in daemon.containers():
        expected = {str(shared)} if not row["exclusive"] else {row["cpus"]}
        assert allowed(row["pid"]) == expected, f"{row}\n{daemon.events()[-20:]}\n{daemon.said()[-4000:]}"
    assert shared <= ONLINE
