"""What a glance at processes by affinity sees; the processes and their threads are real."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pinfold.core.machine.cpuset import CPUSet
from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.core.reconcile import Limit, Observed
from pinfold.node.processgroups.affinity.groups import AffinityGroups
from pinfold.node.processgroups.names import marks
from pinfold.node.procfs import PROC
from tests.e2e.daemon import needs_two_cpus, wait_for
from tests.unit.node.processgroups.affinity.test_membership import HOUR, Counting

if TYPE_CHECKING:
    from collections.abc import Iterator

REF: Final = ContainerRef(PodUID("uid"), "main")
OWNER: Final = ContainerRef(PodUID("uid"), "owner")
TREE: Final = f"pinfold-test-glance-{os.getpid()}"
OURS: Final = CPUSet.from_cpus(os.sched_getaffinity(0))
FIRST: Final = CPUSet.of(min(OURS))
THREADS: Final = """
import sys, threading
for line in sys.stdin:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
"""
"""Starts a thread for each line."""


@contextmanager
def running(ref: ContainerRef = REF) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process of a container."""
    command = [sys.executable, "-c", THREADS]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env=marks(TREE, ref, exclusive=ref == OWNER))
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def start_thread(process: subprocess.Popen[bytes]) -> int:
    """Have a process start a thread, and return its number."""
    before = set(PROC.threads(process.pid))
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    wait_for(lambda: len(PROC.threads(process.pid)) > len(before), "it has one more thread")
    (thread,) = set(PROC.threads(process.pid)) - before
    return thread


def sharing(pool: CPUSet = FIRST, procfs: Counting | None = None) -> AffinityGroups:
    """Return groups with one container that shares."""
    groups = AffinityGroups(TREE, procfs=procfs or Counting())
    groups.prepare(pool)
    groups.make_shared(REF, Limit())
    return groups


@needs_two_cpus
def test_a_glance_gives_the_cpus_that_containers_should_have_if_they_have_them() -> None:
    with running(), running(OWNER):
        groups = sharing(FIRST)
        groups.make_exclusive(OWNER, OURS - FIRST)
        assert groups.glance([]) == Observed(FIRST, {REF: FIRST, OWNER: OURS - FIRST})


@needs_two_cpus
def test_a_process_that_has_changed_its_affinity_is_seen_at_a_glance() -> None:
    with running() as process:
        groups = sharing()
        assert groups.glance([]) is not None
        os.sched_setaffinity(process.pid, OURS)
        assert groups.glance([]) is None


@needs_two_cpus
def test_a_process_that_has_come_since_the_last_glance_is_seen_on_other_cpus() -> None:
    with running():
        groups = sharing()
        assert groups.glance([]) is not None
        with running() as late:
            os.sched_setaffinity(late.pid, OURS)
            assert groups.glance([]) is None


@needs_two_cpus
def test_a_thread_that_was_there_at_the_last_glance_is_looked_at_each_time() -> None:
    with running() as process:
        thread = start_thread(process)
        groups = sharing()
        assert groups.glance([]) is not None
        os.sched_setaffinity(thread, OURS)
        assert groups.glance([]) is None


@needs_two_cpus
def test_a_new_thread_of_an_old_process_is_seen_when_its_container_has_its_turn() -> None:
    with running() as process:
        groups = sharing()
        assert groups.glance([]) is not None
        os.sched_setaffinity(start_thread(process), OURS)
        assert groups.glance([]) is not None
        assert groups.glance([REF]) is None


@needs_two_cpus
def test_without_a_new_list_a_process_that_has_come_is_not_seen_and_one_that_was_there_is() -> None:
    with running() as process:
        groups = sharing()
        assert groups.glance([]) is not None
        with running() as late:
            os.sched_setaffinity(late.pid, OURS)
            assert groups.glance([REF], anew=False) is not None
            assert groups.glance([]) is None
        assert groups.glance([]) is not None
        os.sched_setaffinity(process.pid, OURS)
        assert groups.glance([], anew=False) is None


@needs_two_cpus
def test_a_glance_looks_for_the_cpus_that_containers_should_have_by_then() -> None:
    with running() as process:
        groups = sharing(FIRST)
        for own in (None, OURS - FIRST, None):
            if own is None:
                groups.make_shared(REF, Limit())
            else:
                groups.make_exclusive(REF, own)
            assert groups.glance([]) == groups.glance([]) == Observed(FIRST, {REF: own or FIRST})
            assert os.sched_getaffinity(process.pid) == set(own or FIRST)
        groups.set_shared(OURS - FIRST)
        assert groups.glance([]) == Observed(OURS - FIRST, {REF: OURS - FIRST})


def test_a_process_that_has_ended_is_no_member_at_the_next_glance_and_its_container_stays() -> None:
    groups = sharing(OURS)
    with running():
        assert groups.glance([REF]) == Observed(OURS, {REF: OURS})
    assert groups.glance([REF], anew=False) == groups.glance([REF]) == Observed(OURS, {REF: OURS})
    assert groups.group(REF).members() == []


def test_a_glance_does_not_read_the_processes_of_containers_again() -> None:
    procfs = Counting(later=HOUR)
    with running() as process:
        groups = sharing(OURS, procfs)
        assert groups.glance([REF]) is not None
        procfs.looked_at.clear()
        assert groups.glance([REF]) is not None
        assert procfs.looked_at[process.pid] == 0
        assert groups.group(REF).members() == [process.pid]
        assert procfs.looked_at[process.pid] == 1


def test_a_process_that_was_given_back_is_no_member_at_the_next_glance() -> None:
    with subprocess.Popen(["sleep", "60"], env={}) as process:
        groups = sharing(OURS)
        origin = groups.origin(process.pid)
        groups.group(REF).attach(process.pid)
        assert groups.glance([]) is not None
        assert groups.group(REF).give_back(origin) == [process.pid]
        assert groups.glance([]) is not None
        assert groups.group(REF).members() == []
        process.kill()


def test_a_container_that_is_known_only_by_the_marks_of_a_process_needs_a_closer_look() -> None:
    groups = AffinityGroups(TREE, procfs=Counting())
    groups.prepare(OURS)
    assert groups.glance([]) == Observed(OURS, {})
    with running():
        assert groups.glance([]) is None
