"""A program with one worker thread on each of its CPUs, which follows when pinfold moves or resizes it.

pinfold run --cpus 4 -- python3 examples/repin.py
"""

from __future__ import annotations

import os
import threading
import time

from pinfold.client import acknowledge, watch


class Workers:
    """Threads that work, each on a CPU of its own."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def pin(self, cpus: frozenset[int]) -> None:
        """Stop the workers, and start one on each of these CPUs."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=work, args=(cpu, self._stop), daemon=True) for cpu in sorted(cpus)]
        for thread in self._threads:
            thread.start()


def work(cpu: int, stop: threading.Event) -> None:
    """Work on one CPU until told to stop."""
    os.sched_setaffinity(threading.get_native_id(), {cpu})
    while not stop.is_set():
        time.sleep(0.01)


def main() -> None:
    """Follow every change; CPUs that are about to go are left before they go."""
    workers = Workers()
    for notice in watch():
        if notice.next is None:
            workers.pin(notice.now.cpus)
            print(f"on CPUs {sorted(notice.now.cpus)}, generation {notice.now.generation}", flush=True)
            continue
        both = notice.now.cpus & notice.next.cpus
        workers.pin(both or notice.now.cpus)
        print(f"CPUs {sorted(notice.next.cpus)} are announced", flush=True)
        acknowledge(notice)


if __name__ == "__main__":
    main()
