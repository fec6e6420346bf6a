"""The noisy neighbours: processes that share the pool and do one thing as hard as they can.

python -m pinfold.benefit.programs.neighbours KIND PROCESSES

Prints "ready" when all processes run, and ends them on SIGTERM.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pinfold.benefit.programs.account import be_prompt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

BANDWIDTH: Final = 64 << 20
"""Bytes that `bandwidth` copies at a time: more than a cache holds."""
CACHE: Final = 16 << 20
"""Bytes of which `cache` reads one in each line."""
FORKS: Final = 200
"""Processes a second that each process of `forks` starts at most."""
TIMERS: Final = 1000
"""Wake-ups a second of each process of `timers`."""
_LINE: Final = 64


def cpu() -> Iterator[None]:
    """Count."""
    while True:
        for _ in range(50_000):
            pass
        yield


def forks() -> Iterator[None]:
    """Start processes that end at once."""
    while True:
        begun = time.monotonic()
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        time.sleep(max(0.0, begun + 1 / FORKS - time.monotonic()))
        yield


def bandwidth() -> Iterator[None]:
    """Copy memory."""
    source, target = memoryview(bytearray(BANDWIDTH)), memoryview(bytearray(BANDWIDTH))
    while True:
        target[:] = source
        yield


def cache() -> Iterator[None]:
    """Read one byte of every cache line of a block about as large as a last-level cache."""
    lines = memoryview(bytearray(CACHE))[::_LINE]
    while True:
        lines.tobytes()
        yield


def timers() -> Iterator[None]:
    """Wake up, do a little, sleep."""
    be_prompt()
    while True:
        time.sleep(1 / TIMERS)
        for _ in range(500):
            pass
        yield


KINDS: Final[Mapping[str, Callable[[], Iterator[None]]]] = {
    kind.__name__: kind for kind in (cpu, forks, bandwidth, cache, timers)
}


def main(kind: str, processes: int) -> None:
    """Start the processes, and wait for the end."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parent = os.getpid()
    started = []
    for _ in range(processes):
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            for _ in KINDS[kind]():
                if os.getppid() != parent:
                    os._exit(0)
        started.append(pid)
    with suppress(KeyboardInterrupt):
        print("ready", flush=True)
        signal.pause()
    for pid in started:
        os.kill(pid, signal.SIGKILL)
    for pid in started:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
