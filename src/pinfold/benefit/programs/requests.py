"""A server with a queue: requests arrive at random times at a given load; notes how long each took from its arrival.

python -m pinfold.benefit.programs.requests SECONDS TURNS

TURNS of a loop are one request; the caller has found out how many take a millisecond on an idle CPU. One third of the
time each is offered 30 %, 60 % and 80 % of what the CPU can do.
"""

from __future__ import annotations

import gc
import random
import sys
import time
from typing import Final

from pinfold.benefit.programs.account import be_prompt, migrations, switches, tell

LOADS: Final = (30, 60, 80)
SERVICE: Final = 1_000_000
"""Nanoseconds that a request takes on an idle CPU."""


def work(turns: int) -> None:
    """Use the CPU for so many turns."""
    for _ in range(turns):
        pass


def turns_of(nanoseconds: int) -> int:
    """Return how many turns take so long here: the most of ten trials, the one that was disturbed least."""
    best = 0.0
    for _ in range(10):
        start = time.monotonic_ns()
        work(50_000)
        best = max(best, 50_000 / (time.monotonic_ns() - start))
    return int(best * nanoseconds)


def serve(seconds: float, load: int, turns: int) -> list[int]:
    """Return the nanoseconds from arrival to answer for each request; the same arrivals in every run."""
    dice = random.Random(load)  # noqa: S311 - arrivals, not secrets
    mean = SERVICE * 100 / load
    clock = time.monotonic_ns
    due = float(clock())
    end = due + seconds * 1e9
    took = []
    while due < end:
        due += dice.expovariate(1 / mean)
        early = due - clock()
        if early > 0:
            time.sleep(early / 1e9)
        work(turns)
        took.append(int(clock() - due))
    return took


def main(seconds: float, turns: int) -> None:
    """Run, and print the results."""
    be_prompt()
    gc.disable()
    work(turns)
    samples = {f"at {load} % load": serve(seconds / len(LOADS), load, turns) for load in LOADS}
    tell(samples, {}, {**switches(), "migrations": migrations()})


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
