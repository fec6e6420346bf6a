"""The threads of the daemon for what would keep its event loop waiting: reading the history, parsing large files."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor


class DaemonThreads(ThreadPoolExecutor):
    """Threads that are started when all are busy; if no further one can be started, work waits for those there are."""

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError:  # the work is in the queue already, and would be done without an answer
            if not self._threads:
                raise
