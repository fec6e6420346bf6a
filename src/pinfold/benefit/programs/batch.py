"""A CPU-bound batch under a CFS quota: two processes with a limit of one CPU, which count the pieces they finish.

python -m pinfold.benefit.programs.batch SECONDS
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Final

from pinfold.benefit.programs.account import switches, tell, throttling

WORKERS: Final = 2
_PIECE: Final = 20_000


def batch(seconds: float) -> list[int]:
    """Return the nanoseconds that each piece of work took."""
    clock = time.monotonic_ns
    took = []
    last = clock()
    end = last + int(seconds * 1e9)
    while last < end:
        for _ in range(_PIECE):
            pass
        now = clock()
        took.append(now - last)
        last = now
    return took


def main(seconds: float) -> None:
    """Start the processes, collect what they have done, and print it."""
    before = throttling()
    readers = []
    for _ in range(WORKERS):
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.close(reader)
            with os.fdopen(writer, "w") as out:
                json.dump(batch(seconds), out)
            os._exit(0)
        os.close(writer)
        readers.append(reader)
    pieces: list[int] = []
    for reader in readers:
        with os.fdopen(reader) as written:
            pieces += json.load(written)
        os.wait()
    after = {name: (value - before[name]) / seconds for name, value in throttling().items()}
    rates = {"pieces": len(pieces) / seconds}
    tell({"piece": pieces}, rates, {**switches(children=True), "migrations": None, **after})


if __name__ == "__main__":
    main(float(sys.argv[1]))
