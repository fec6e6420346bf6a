"""Which processes are looked at to know whose they are; the processes are real."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import pytest

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.core.reconcile import Limit, Wanted
from pinfold.node.processgroups.affinity.groups import AffinityGroups
from pinfold.node.processgroups.affinity.membership import Membership
from pinfold.node.processgroups.names import marks
from pinfold.node.procfs import NO_ENVIRONMENT, NO_INODE, PROC, Procfs
from pinfold.runtimes.processes.applier import ProcessApplier
from tests.e2e.daemon import needs_two_cpus, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pinfold.node.procfs import Seen

REF = ContainerRef(PodUID("uid"), "main")
OTHER = ContainerRef(PodUID("uid"), "other")
TREE = f"pinfold-test-membership-{os.getpid()}"
OURS = CPUSet.from_cpus(os.sched_getaffinity(0))
SLEEP = "exec sleep 60"
HOUR = 360_000
"""Clock ticks."""


class Counting(Procfs):
    """This machine's processes; counts how often they are listed, and each one and its environment read."""

    def __init__(self, *, later: float = 0, root: Path = Path("/proc")) -> None:
        """Let all processes be *later* clock ticks older."""
        super().__init__(root)
        self.listed = 0
        self.read: Counter[int] = Counter()
        self.looked_at: Counter[int] = Counter()
        self.listing: Callable[[], None] = lambda: None
        """Called when they have been listed."""
        self._later = later

    def now(self) -> float:
        return super().now() + self._later

    def process(self, pid: int, inode: int = 0) -> Seen | None:
        self.looked_at[pid] += 1
        return super().process(pid, inode)

    def entries(self) -> list[os.DirEntry[str]]:
        self.listed += 1
        found = super().entries()
        self.listing()
        return found

    def own_environment(self, pid: int) -> list[bytes]:
        self.read[pid] += 1
        return super().own_environment(pid)


class Numbered(NamedTuple):
    """An entry of /proc with another inode."""

    name: str
    number: int

    def inode(self) -> int:
        return self.number


class Renumbering(Counting):
    """This machine's processes with inodes that change, or are all the *same*."""

    shift = 0
    same = 0

    def entries(self) -> list[os.DirEntry[str]]:
        found = [Numbered(entry.name, self.same or entry.inode() + self.shift) for entry in super().entries()]
        return cast("list[os.DirEntry[str]]", found)  # a DirEntry cannot be made


@contextmanager
def shell(program: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program that reads a line first."""
    process = subprocess.Popen(["sh", "-c", f"read line; {program}"], stdin=subprocess.PIPE, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def tell(process: subprocess.Popen[bytes]) -> None:
    """Give a shell its line."""
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()


def children(process: subprocess.Popen[bytes]) -> list[int]:
    return [pid for pid, seen in PROC.processes().items() if seen.parent == process.pid]


def go_on(process: subprocess.Popen[bytes]) -> None:
    """Give a shell its line, and wait until it has become another program."""
    tell(process)
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


def test_an_old_process_that_is_not_ours_is_read_again_only_in_its_turn() -> None:
    for again, reads in ((0, 1), (1 << 22, 3)):
        procfs = Counting(later=HOUR)
        membership = Membership(TREE, procfs, again=again)
        with shell(SLEEP) as foreign:
            for _ in range(3):
                membership.scan()
            assert procfs.looked_at[foreign.pid] == reads


def test_a_kernel_thread_takes_no_turn_from_a_process_that_can_become_another_program() -> None:
    kernel_threads = {pid for pid, seen in PROC.processes().items() if seen.environment == NO_ENVIRONMENT}
    if not kernel_threads:
        pytest.skip("no kernel thread is seen from here")
    procfs = Counting(later=HOUR)
    membership = Membership(TREE, procfs, again=1 << 22)
    membership.scan()
    procfs.looked_at.clear()
    membership.scan()
    assert os.getpid() in procfs.looked_at
    assert not kernel_threads & procfs.looked_at.keys()


def test_a_new_process_and_one_of_ours_are_read_every_time() -> None:
    for later, marked in ((0, {}), (HOUR, marks(TREE, REF, exclusive=False))):
        procfs = Counting(later=later)
        membership = Membership(TREE, procfs, again=0)
        with shell(SLEEP, **marked) as process:
            for _ in range(3):
                membership.scan()
            assert procfs.looked_at[process.pid] == 3


def test_an_old_process_that_gets_its_marks_with_its_next_program_is_found_in_its_turn() -> None:
    membership = Membership(TREE, Counting(later=HOUR), again=20)
    given = " ".join(f"{name}='{value}'" for name, value in marks(TREE, REF, exclusive=True).items())
    with shell(f"exec env -i {given} sleep 60", PATH=os.environ["PATH"]) as late:
        assert membership.scan() == {}
        go_on(late)
        turns = len(list(Path("/proc").glob("[0-9]*"))) // 20 + 2
        assert {REF: [late.pid]} in [membership.scan() for _ in range(turns)]


def test_an_old_process_that_is_put_into_a_container_is_there_at_once_with_its_new_child() -> None:
    membership = Membership(TREE, Counting(later=HOUR), again=0)
    with shell("sleep 60 & exec sleep 61", PATH=os.environ["PATH"]) as adopted:
        assert membership.scan() == {}
        membership.add(REF, adopted.pid)
        assert membership.scan() == {REF: [adopted.pid]}
        go_on(adopted)
        (child,) = children(adopted)
        assert membership.scan() == {REF: sorted([adopted.pid, child])}
        os.kill(child, signal.SIGKILL)


def test_a_process_of_ours_keeps_its_container_when_it_becomes_another_program_without_marks() -> None:
    membership = Membership(TREE, Counting())
    with shell("exec env -i sleep 60", PATH=os.environ["PATH"], **marks(TREE, REF, exclusive=False)) as ours:
        assert membership.scan() == {REF: [ours.pid]}
        go_on(ours)
        assert membership.scan() == {REF: [ours.pid]}


def test_a_glance_finds_the_processes_that_have_come_and_gone_as_a_scan_does() -> None:
    membership = Membership(TREE, Counting(), again=0)
    marked = marks(TREE, REF, exclusive=False)
    assert membership.scan(glance=True) == {}
    with shell("sleep 60 & exec sleep 61", PATH=os.environ["PATH"], **marked) as ours:
        with shell(SLEEP, **marks(TREE, OTHER, exclusive=False)) as other:
            both = {REF: [ours.pid], OTHER: [other.pid]}
            # Within its exec a process has no environment for a moment, and is read again by the next glance.
            wait_for(lambda: membership.scan(glance=True) == both, "both are found")
        go_on(ours)
        (child,) = children(ours)
        found = membership.scan(glance=True)
        assert found == {REF: sorted([ours.pid, child])}
        assert membership.scan(glance=True) is found
        assert membership.scan() == found
        os.kill(child, signal.SIGKILL)
    wait_for(lambda: membership.scan(glance=True) == {}, "both have ended and were reaped")


def test_a_glance_reads_a_new_process_until_it_is_old_and_an_old_one_in_its_turn() -> None:
    for later, again, reads in ((0, 0, 3), (HOUR, 0, 1), (HOUR, 1 << 22, 3)):
        procfs = Counting(later=later)
        membership = Membership(TREE, procfs, again=again)
        with shell(SLEEP) as foreign:
            for _ in range(3):
                assert membership.scan(glance=True) == {}
            assert procfs.looked_at[foreign.pid] == reads


def test_without_a_new_list_as_many_strangers_are_read_as_by_two_glances(tmp_path: Path) -> None:
    for pid in range(1, 6):
        (tmp_path / f"{pid}").mkdir()
        (tmp_path / f"{pid}/stat").write_text(f"{pid} (a) S 0 {'0 ' * 17}4711 0 0\n")
    procfs = Counting(later=HOUR, root=tmp_path)
    membership = Membership(TREE, procfs, again=1)
    assert membership.scan() == {}
    turns = []
    for listed in (True, False, True, True, False):
        procfs.looked_at.clear()
        procfs.listed = 0
        assert (membership.scan(glance=True) if listed else membership.reread()) == {}
        assert procfs.listed == listed
        turns.append(set(procfs.looked_at))
    assert [len(turn) for turn in turns] == [1, 2, 0, 1, 2]
    assert set().union(*turns) == set(range(1, 6))


def test_a_process_with_another_inode_is_read_again_and_keeps_its_container() -> None:
    procfs = Renumbering()
    membership = Membership(TREE, procfs, again=0)
    with shell("exec env -i sleep 60", PATH=os.environ["PATH"], **marks(TREE, REF, exclusive=False)) as ours:
        assert membership.scan(glance=True) == {REF: [ours.pid]}
        go_on(ours)
        for _ in range(2):
            procfs.shift += 1 << 40
            procfs.looked_at.clear()
            assert membership.scan(glance=True) == {REF: [ours.pid]}
            assert procfs.looked_at[ours.pid] == 1


def test_where_inodes_do_not_tell_processes_apart_a_glance_reads_all_members() -> None:
    procfs = Renumbering()
    membership = Membership(TREE, procfs, again=0)
    with shell(SLEEP, **marks(TREE, REF, exclusive=False)) as ours:
        assert membership.scan(glance=True) == {REF: [ours.pid]}
        procfs.same = NO_INODE
        procfs.looked_at.clear()
        assert membership.scan(glance=True) == {REF: [ours.pid]}
        assert procfs.looked_at[ours.pid] == 1


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


@needs_two_cpus
def test_a_change_lists_the_processes_of_the_host_again_only_when_one_was_moved() -> None:
    procfs = Counting()
    applier = ProcessApplier(AffinityGroups(TREE, procfs=procfs))
    own = CPUSet.of(min(OURS))
    want = Wanted(OURS - own, {REF: own}, {OTHER: Limit()})
    with shell(SLEEP, **marks(TREE, OTHER, exclusive=False)) as sharing:
        applier.find()
        applier.prepare(OURS)
        for listed in (2, 1):
            procfs.listed = 0
            applier.apply(want)
            assert procfs.listed == listed
            assert os.sched_getaffinity(sharing.pid) == set(want.shared)
        os.sched_setaffinity(sharing.pid, OURS)
        assert applier.observe().shared == OURS


@needs_two_cpus
def test_a_process_that_is_forked_after_the_listing_leaves_the_cpus_of_an_owner_too() -> None:
    procfs = Counting()
    applier = ProcessApplier(AffinityGroups(TREE, procfs=procfs))
    own = CPUSet.of(min(OURS))
    want = Wanted(OURS - own, {REF: own}, {OTHER: Limit()})
    with shell("sleep 60 & wait", PATH=os.environ["PATH"], **marks(TREE, OTHER, exclusive=False)) as sharing:
        applier.find()
        applier.prepare(OURS)

        def fork() -> None:
            procfs.listing = lambda: None
            tell(sharing)
            wait_for(lambda: bool(children(sharing)), "it has a child")

        procfs.listing = fork
        applier.apply(want)
        (child,) = children(sharing)
        assert os.sched_getaffinity(child) == os.sched_getaffinity(sharing.pid) == set(want.shared)
        os.kill(child, signal.SIGKILL)


def test_a_container_without_processes_is_given_up_after_one_look() -> None:
    procfs = Counting()
    applier = ProcessApplier(AffinityGroups(TREE, procfs=procfs))
    applier.prepare(OURS)
    applier.apply(Wanted(OURS, {REF: OURS}))
    procfs.listed = 0
    applier.vacate(REF)
    assert procfs.listed == 1
    assert applier.known == set()
