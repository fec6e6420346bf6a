"""Which CPUs a daemon can give away, on a machine with one more than its cpuset has."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from pinfold.core.machine.cpuset import EMPTY, CPUSet
from pinfold.node.grouperrors import GroupError, NoCPUsError
from pinfold.node.machine.sysfs import SYSTEM
from pinfold.node.processgroups.affinity.threads import Reach
from pinfold.node.processgroups.errors import BarredError

if TYPE_CHECKING:
    from pathlib import Path

OURS = CPUSet.from_cpus(os.sched_getaffinity(0))
BARRED = CPUSet.of(1000)


@pytest.fixture
def reach(tmp_path: Path) -> Reach:
    files = tmp_path / SYSTEM / "cpu"
    files.mkdir(parents=True)
    (files / "possible").write_text("0-1000\n")
    (files / "online").write_text(f"{OURS | BARRED}\n")
    return Reach(tmp_path)


def test_cpus_that_the_cpuset_does_not_have_are_barred(reach: Reach) -> None:
    assert reach.barred() == BARRED


def test_a_container_cannot_have_a_barred_cpu(reach: Reach) -> None:
    reach.check("app", OURS, exact=True)
    with pytest.raises(
        BarredError, match=r"app: CPUs .* does not have 1000; start the daemon with --reserved-cpus 1000"
    ):
        reach.check("app", OURS | BARRED, exact=True)


def test_the_pool_needs_only_one_cpu_that_is_not_barred(reach: Reach) -> None:
    reach.check("pool", OURS | BARRED, exact=False)
    with pytest.raises(BarredError):
        reach.check("pool", BARRED, exact=False)


def test_no_cpu_and_one_that_the_machine_cannot_have_are_refused(reach: Reach) -> None:
    with pytest.raises(NoCPUsError):
        reach.check("app", EMPTY, exact=True)
    with pytest.raises(GroupError, match="no such CPU: 1001"):
        reach.check("app", CPUSet.of(0, 1001), exact=True)


def test_on_a_machine_that_does_not_say_its_cpus_nothing_is_barred(tmp_path: Path) -> None:
    assert Reach(tmp_path).barred() == EMPTY
    Reach(tmp_path).check("app", CPUSet.of(5000), exact=True)


def test_asking_what_is_barred_needs_no_thread_and_changes_no_affinity(
    reach: Reach, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    before = os.sched_getaffinity(0)
    narrow = {min(before)}
    for mine in (before, narrow):
        os.sched_setaffinity(0, mine)
        try:
            assert reach.barred() == BARRED
            assert os.sched_getaffinity(0) == mine
        finally:
            os.sched_setaffinity(0, before)
