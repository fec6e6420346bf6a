"""The latency probe: wakes every millisecond, spins for 0.8 of it; how late it wakes, how long it stands still.

python -m pinfold.benefit.programs.probe SECONDS
"""

from __future__ import annotations

import gc
import sys
import time
from typing import Final

from pinfold.benefit.programs.account import be_prompt, migrations, switches, tell

PERIOD: Final = 1_000_000
"""Nanoseconds from one wake-up to the next."""
SPIN: Final = 800_000
"""Nanoseconds of each period in which the probe reads the clock without pause."""


WARM_UP: Final = 0.2
"""The first seconds are not counted: they measure the start of the container."""


def probe(seconds: float) -> tuple[list[int], list[int]]:
    """Return how late each wake-up was, and the longest time between two looks at the clock after it."""
    clock, sleep = time.monotonic_ns, time.sleep
    late, stalls = [], []
    due = clock()
    end = due + int(seconds * 1e9)
    while due < end:
        due += PERIOD
        last = clock()
        if last > due:  # it is still late from before, and this wake-up is late too
            late.append(last - due)
            continue
        sleep((due - last) / 1e9)
        last = clock()
        late.append(last - due)
        until, longest = last + SPIN, 0
        while last < until:
            now = clock()
            if now - last > longest:  # noqa: PLR1730 - a call would be seen in the floor
                longest = now - last
            last = now
        stalls.append(longest)
    return late, stalls


def main(seconds: float) -> None:
    """Run, and print the results."""
    be_prompt()
    gc.disable()
    probe(WARM_UP)
    before, moved = switches(), migrations()
    late, stalls = probe(seconds)
    counted = {name: (value - before[name]) / seconds for name, value in switches().items()}
    moves = migrations()
    counters = {**counted, "migrations": None if moves is None or moved is None else (moves - moved) / seconds}
    tell({"wake-up": late, "stall": stalls}, {}, counters)


if __name__ == "__main__":
    main(float(sys.argv[1]))
