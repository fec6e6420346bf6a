"""Which processes are looked at to know whose they are; the processes are real."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.core.reconcile import Wanted
from pinfold.node.processgroups.affinity.groups import AffinityGroups
from pinfold.node.processgroups.affinity.membership import Membership
from pinfold.node.processgroups.names import marks
from pinfold.node.procfs import Procfs
from pinfold.runtimes.processes.applier import ProcessApplier
from tests.e2e.daemon import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pinfold.node.procfs import Alive, Seen

REF = ContainerRef(PodUID("uid"), "main")
OTHER = ContainerRef(PodUID("uid"), "other")
TREE = "pinfold-test-membership"
OURS = CPUSet.from_cpus(os.sched_getaffinity(0))
SLEEP = "exec sleep 60"


class Counting(Procfs):
    """This machine's processes; counts how often they are listed, and how often each one's environment is read."""

    def __init__(self) -> None:
        super().__init__(Path("/proc"))
        self.listed = 0
        self.read: Counter[int] = Counter()

    def processes(self, known: Alive | None = None) -> dict[int, Seen]:
        self.listed += 1
        return super().processes(known)

    def own_environment(self, pid: int) -> list[bytes]:
        self.read[pid] += 1
        return super().own_environment(pid)


@contextmanager
def shell(program: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program that reads a line first."""
    process = subprocess.Popen(["sh", "-c", f"read line; {program}"], stdin=subprocess.PIPE, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def go_on(process: subprocess.Popen[bytes]) -> None:
    """Give a shell its line, and wait until it has become another program."""
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    wait_for(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n", "it is another program")


def test_the_environment_of_a_process_that_is_not_ours_is_read_once() -> None:
    procfs = Counting()
    membership = Membership(TREE, procfs)
    with shell(SLEEP) as foreign:
        for _ in range(3):
            assert membership.scan() == {}
        assert procfs.read[foreign.pid] == 1


def test_a_process_that_gets_its_marks_with_its_next_program_is_found() -> None:
    membership = Membership(TREE, Counting())
    given = " ".join(f"{name}='{value}'" for name, value in marks(TREE, REF, exclusive=True).items())
    with shell(f"exec env -i {given} sleep 60", PATH=os.environ["PATH"]) as late:
        assert membership.scan() == {}
        go_on(late)
        assert membership.scan() == {REF: [late.pid]}
        assert membership.marked_exclusive == {REF: True}


def test_a_process_of_ours_keeps_its_container_when_it_becomes_another_program_without_marks() -> None:
    membership = Membership(TREE, Counting())
    with shell("exec env -i sleep 60", PATH=os.environ["PATH"], **marks(TREE, REF, exclusive=False)) as ours:
        assert membership.scan() == {REF: [ours.pid]}
        go_on(ours)
        assert membership.scan() == {REF: [ours.pid]}


def test_however_many_containers_there_are_one_look_lists_the_processes_of_the_host_once() -> None:
    procfs = Counting()
    applier = ProcessApplier(AffinityGroups(TREE, procfs=procfs))
    applier.prepare(OURS)
    want = Wanted(OURS, dict.fromkeys((REF, OTHER), OURS))
    applier.apply(want)
    for closely in (False, True):
        procfs.listed = 0
        assert applier.observe(closely=closely).containers == want.exclusive
        assert procfs.listed == 1
    procfs.listed = 0
    applier.apply(want)
    assert procfs.listed == 1


def test_a_container_without_processes_is_given_up_after_two_looks() -> None:
    procfs = Counting()
    applier = ProcessApplier(AffinityGroups(TREE, procfs=procfs))
    applier.prepare(OURS)
    applier.apply(Wanted(OURS, {REF: OURS}))
    procfs.listed = 0
    applier.vacate(REF)
    assert procfs.listed == 2
    assert applier.known == set()
