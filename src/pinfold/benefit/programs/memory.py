"""A memory-bound kernel: copies 64 MiB again and again, and counts the bytes.

python -m pinfold.benefit.programs.memory SECONDS
"""

from __future__ import annotations

import sys
import time
from typing import Final

from pinfold.benefit.programs.account import migrations, switches, tell

SIZE: Final = 64 << 20


def main(seconds: float) -> None:
    """Copy, and print the results."""
    source, target = memoryview(bytearray(SIZE)), memoryview(bytearray(SIZE))
    target[:] = source  # the first copy makes the pages
    clock = time.monotonic_ns
    took = []
    last = clock()
    end = last + int(seconds * 1e9)
    while last < end:
        target[:] = source
        now = clock()
        took.append(now - last)
        last = now
    rates = {"GB/s": len(took) * SIZE / sum(took)}
    tell({"copy": took}, rates, {**switches(), "migrations": migrations()})


if __name__ == "__main__":
    main(float(sys.argv[1]))
