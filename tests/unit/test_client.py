"""pinfold.client and the examples that use it, against real files and inotify."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from pinfold.client import Notice, acknowledge, read, watch
from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.node.notices import ContainerPlace as Shown
from pinfold.node.notices import Notices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WITHIN = 10.0
ROOT = Path(__file__).parents[2]
REF = ContainerRef(PodUID("u1"), "app")


def shown(cpus: str) -> Shown:
    return Shown(CPUSet.parse(cpus), CPUSet.of(0))


@pytest.fixture
def notices(tmp_path: Path) -> Notices:
    made = Notices(tmp_path)
    made.show(REF, shown("2-3"))
    return made


def test_a_program_reads_where_it_is_and_will_be_and_acknowledges(notices: Notices) -> None:
    directory = str(notices.path(REF))
    assert read(directory).now.cpus == {2, 3}
    assert read(directory).next is None
    notices.announce(REF, shown("4-5"))
    notice = read(directory)
    assert notice.next is not None
    assert notice.next.cpus == {4, 5}
    assert not notices.is_acknowledged(REF)
    acknowledge(notice, directory)
    assert notices.is_acknowledged(REF)


def test_watch_yields_every_change_and_ends_with_the_container(notices: Notices) -> None:
    seen: SimpleQueue[Notice] = SimpleQueue()

    def follow() -> None:
        for notice in watch(str(notices.path(REF))):
            seen.put(notice)

    thread = Thread(target=follow)
    thread.start()
    assert seen.get(timeout=WITHIN).now.cpus == {2, 3}
    notices.announce(REF, shown("4"))
    announced = seen.get(timeout=WITHIN).next
    assert announced is not None
    assert announced.cpus == {4}
    notices.show(REF, shown("4"))
    while (notice := seen.get(timeout=WITHIN)).now.generation < 2 or notice.next is not None:
        assert notice.now.cpus <= {2, 3, 4}, "files are replaced one after the other"
    assert notice.now.cpus == {4}
    notices.retain(())
    thread.join(WITHIN)
    assert not thread.is_alive()


def test_without_the_variable_the_error_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PINFOLD_STATE_DIR", raising=False)
    with pytest.raises(FileNotFoundError, match="PINFOLD_STATE_DIR"):
        read()


@pytest.fixture(params=["python", "c"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    if request.param == "python":
        return [sys.executable, str(ROOT / "examples" / "repin.py")]
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    made = tmp_path_factory.mktemp("c") / "repin"
    subprocess.run([compiler, "-Wall", "-Werror", "-o", made, ROOT / "examples" / "repin.c"], check=True)
    return [str(made)]


@pytest.fixture
def running(program: list[str], notices: Notices) -> Iterator[subprocess.Popen[str]]:
    cpu = str(min(os.sched_getaffinity(0)))
    notices.show(REF, shown(cpu))
    environment = {**os.environ, "PINFOLD_STATE_DIR": str(notices.path(REF)), "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(program, env=environment, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def test_the_examples_follow_an_announced_move(running: subprocess.Popen[str], notices: Notices) -> None:
    here = sorted(os.sched_getaffinity(0))
    assert running.stdout is not None
    assert str(here[0]) in running.stdout.readline()
    notices.announce(REF, shown(str(here[-1])))
    until(lambda: notices.is_acknowledged(REF))
    notices.show(REF, shown(str(here[-1])))
    until(lambda: here[-1] in affinities(running.pid) and (len(here) == 1 or here[0] not in affinities(running.pid)))


def affinities(pid: int) -> set[int]:
    """Return the CPUs that the last thread of a process may use: its first one only watches, or is the only one."""
    return os.sched_getaffinity(max(int(thread.name) for thread in Path(f"/proc/{pid}/task").iterdir()))


def until(is_so: Callable[[], bool]) -> None:
    """Wait for something that happens in another process."""
    end = time.monotonic() + WITHIN
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)
