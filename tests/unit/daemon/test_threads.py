"""Work in threads, when no further thread can be started; and their memory."""

from __future__ import annotations

import platform
import subprocess
import sys
import threading

import pytest

from pinfold.daemon.threads import DaemonThreads
from tests.needs import needs

HEAPS = """
import ctypes, sys
from concurrent.futures import ThreadPoolExecutor
from pinfold.daemon.threads import share_one_heap

if "shared" in sys.argv:
    share_one_heap()
with ThreadPoolExecutor(1) as threads:
    kept = threads.submit(bytes, 1000).result()
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
libc.malloc_info(0, out := ctypes.c_void_p(libc.fdopen(1, b"w")))
libc.fflush(out)
"""


def refuse(_thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_when_no_thread_can_be_started_work_waits_for_one_that_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    with DaemonThreads(4) as threads:
        busy = threads.submit(go_on.wait, 30)
        monkeypatch.setattr(threading.Thread, "start", refuse)
        waiting = [threads.submit(int, number) for number in "123"]
        go_on.set()
        assert busy.result(30)
        assert [one.result(30) for one in waiting] == [1, 2, 3]


def test_without_any_thread_it_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with DaemonThreads(4) as threads, pytest.raises(RuntimeError, match="can't start new thread"):
        threads.submit(int)


@needs("glibc", met=platform.libc_ver()[0] == "glibc")
def test_threads_share_the_heap_of_the_process() -> None:
    for words, heaps in ((["apart"], 2), (["shared"], 1)):
        told = subprocess.check_output([sys.executable, "-c", HEAPS, *words], text=True)
        assert told.count("<heap nr=") == heaps
