"""What processes of a container have inherited from their runtime is lifted before they run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from pinfold.core.machine.cpuset import CPUSet
from pinfold.formats.pods.runtime import Phase, RuntimeContainer
from pinfold.runtimes.inherited import Inherited
from tests.needs import needs

HERE = CPUSet.from_cpus(os.sched_getaffinity(0))
PARENT = """
import os, subprocess, sys
os.sched_setaffinity(0, {%d})
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]])
print(child.pid, flush=True)
child.wait()
"""
NARROW = "import os, time; os.sched_setaffinity(0, {%d}); print(flush=True); time.sleep(1000)"
CONTAINER = RuntimeContainer("c1", "s1", "app", Phase.CREATED)


class Only:
    """A container with these processes."""

    def __init__(self, *pids: int) -> None:
        self._pids = pids

    def processes(self, _container: RuntimeContainer) -> list[int]:
        return list(self._pids)


@pytest.mark.parametrize("gone", [False, True], ids=["alone", "beside one that has ended"])
@needs("two CPUs", met=len(HERE) > 1)
def test_a_process_that_has_inherited_a_narrow_affinity_has_all_cpus_again(*, gone: bool) -> None:
    command = [sys.executable, "-c", NARROW % HERE.lowest]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            assert len(os.sched_getaffinity(process.pid)) == 1
            Inherited(Only(*([2**22 - 1] if gone else []), process.pid), lambda: HERE).lift(CONTAINER)
            assert CPUSet.from_cpus(os.sched_getaffinity(process.pid)) == HERE
        finally:
            process.kill()


@pytest.mark.parametrize("chosen", [False, True], ids=["inherited", "its own choice"])
@needs("two CPUs", met=len(HERE) > 1)
def test_of_a_container_that_runs_only_what_its_starter_has_too_is_lifted(*, chosen: bool) -> None:
    first, second = HERE.lowest, (HERE - CPUSet.of(HERE.lowest)).lowest
    child = NARROW % second if chosen else "import time; print(flush=True); time.sleep(1000)"
    with subprocess.Popen([sys.executable, "-c", PARENT % first, child], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        lines = sorted((parent.stdout.readline(), parent.stdout.readline()), key=len)
        pid = int(lines[-1])
        try:
            Inherited(Only(pid), lambda: HERE).lift_running(CONTAINER)
            assert os.sched_getaffinity(pid) == ({second} if chosen else set(HERE))
        finally:
            os.kill(pid, signal.SIGKILL)
