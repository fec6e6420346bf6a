"""Spins on its CPU and prints how long it was held up at most: what a CPU of one's own is for."""

from __future__ import annotations

import time

SPIN = 0.2
PAUSE = 2.0


def longest_gap(seconds: float) -> float:
    """Return the longest time between two looks at the clock while spinning, in seconds."""
    end = time.perf_counter() + seconds
    last = time.perf_counter()
    longest = 0.0
    while last < end:
        now = time.perf_counter()
        longest = max(longest, now - last)
        last = now
    return longest


if __name__ == "__main__":
    while True:
        print(f"longest gap in {SPIN:g} s: {longest_gap(SPIN) * 1e6:,.0f} µs")
        time.sleep(PAUSE)
