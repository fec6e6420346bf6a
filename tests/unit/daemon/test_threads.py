"""The memory of threads."""

from __future__ import annotations

import platform
import subprocess
import sys

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


@needs("glibc", met=platform.libc_ver()[0] == "glibc")
def test_threads_share_the_heap_of_the_process() -> None:
    for words, heaps in ((["apart"], 2), (["shared"], 1)):
        told = subprocess.check_output([sys.executable, "-c", HEAPS, *words], text=True)
        assert told.count("<heap nr=") == heaps
