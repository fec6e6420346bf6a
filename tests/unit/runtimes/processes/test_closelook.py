"""CloseLook: processes and limits that another program has changed; groups are directories here, processes are real."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pytest

from pinfold.core.machine.cpuset import EMPTY
from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.core.reconcile import Cause, Limit
from pinfold.node.processgroups.errors import NoGroupError
from pinfold.node.procfs import PROC
from pinfold.runtimes.base import Main
from pinfold.runtimes.brevity import Brevity
from pinfold.runtimes.processes.closelook import CloseLook
from pinfold.runtimes.processes.pids import started

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pinfold.node.processgroups.groups import ProcessGroups

REF = ContainerRef(PodUID("uid"), "main")


@dataclass
class Groups:
    """One container's group and a place outside, as directories that list their processes."""

    root: Path
    name: str = "pinfold"
    limited: str = ""
    wrong_limit: str = ""
    read: int = 0
    """How often the limit of the container was read."""
    expelled: list[int] = field(default_factory=list)
    pool: Path | None = None
    """The group of cgroup v1 that all sharing containers have in common for their CPUs."""

    @property
    def limits(self) -> Groups:
        return self

    def wrong(self, _ref: ContainerRef, _limit: Limit) -> str:
        self.read += 1
        return self.wrong_limit

    def wrong_pools(self) -> str:
        return self.limited

    def free_pools(self) -> None:
        self.limited = ""

    def found(self) -> dict[ContainerRef, bool]:
        return {REF: True} if self.root.exists() else {}

    def group(self, ref: ContainerRef) -> Groups:
        if not self.root.exists():
            raise NoGroupError(ref)
        return self

    def places(self) -> list[Path]:
        return [self.root] if self.pool is None else [self.root, self.pool]

    def has(self, *pids: int) -> None:
        self.root.mkdir(exist_ok=True)
        (self.root / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))

    def attach(self, pid: int) -> None:
        if not self.root.exists():
            raise NoGroupError(REF)
        self.has(pid)

    def expel(self, pid: int) -> None:
        self.expelled.append(pid)
        self.has()


@contextmanager
def sleeping() -> Iterator[Main]:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            yield Main(process.pid, started(process.pid))
        finally:
            process.kill()


@contextmanager
def strange() -> Iterator[int]:
    """Run a process that is not a child of ours: those are containers that are about to start."""
    command = "sleep 60 & echo $!; wait"
    with subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE, start_new_session=True) as shell:
        assert shell.stdout is not None
        try:
            yield int(shell.stdout.readline())
        finally:
            os.killpg(shell.pid, signal.SIGKILL)


@pytest.fixture
def groups(tmp_path: Path) -> Groups:
    return Groups(tmp_path / "group")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def look_at(groups: Groups, main: Main | None = None, clock: Clock | None = None) -> CloseLook:
    return CloseLook(cast("ProcessGroups", groups), {} if main is None else {REF: main}, (), Brevity(clock or Clock()))


def test_a_process_in_its_group_on_its_cpus_is_fine(groups: Groups) -> None:
    with sleeping() as main:
        groups.has(main.pid)
        assert look_at(groups, main).look({REF: PROC.allowed(main.pid)}, {}) == ({}, {})


def test_a_process_that_was_moved_out_is_found_and_brought_back(groups: Groups) -> None:
    with sleeping() as main:
        groups.has()
        closely = look_at(groups, main)
        _, faults = closely.look({REF: PROC.allowed(main.pid)}, {})
        assert faults[REF].cause is Cause.MEMBERS
        assert str(main.pid) in faults[REF].why
        closely.repair([REF])
        assert closely.look({REF: PROC.allowed(main.pid)}, {}) == ({}, {})


def test_a_stranger_that_was_moved_in_is_found_and_moved_out(groups: Groups) -> None:
    with strange() as stranger:
        groups.has(stranger)
        closely = look_at(groups)
        _, faults = closely.look({REF: PROC.allowed(stranger)}, {})
        assert faults[REF].cause is Cause.STRANGERS
        closely.repair([])
        assert groups.expelled == [stranger]
        assert closely.look({REF: PROC.allowed(os.getpid())}, {}) == ({}, {})


def test_a_quota_on_a_pool_is_found_and_lifted(groups: Groups) -> None:
    groups.has()
    groups.limited = "the shared pool has a quota"
    closely = look_at(groups)
    _, faults = closely.look({REF: EMPTY}, {})
    assert {ref: fault.cause for ref, fault in faults.items()} == {None: Cause.LIMIT}
    closely.repair([])
    assert closely.look({REF: EMPTY}, {}) == ({}, {})


def test_a_process_on_other_cpus_than_its_group_is_told_with_its_cpus(groups: Groups) -> None:
    with sleeping() as main:
        groups.has(main.pid)
        wrong, _ = look_at(groups, main).look({REF: EMPTY}, {})
        assert wrong == {REF: PROC.allowed(main.pid)}


def test_a_container_whose_group_was_removed_has_no_cpus_and_bringing_it_back_harms_no_other(groups: Groups) -> None:
    closely = look_at(groups, Main(os.getpid(), started(os.getpid())))
    wrong, _ = closely.look({REF: EMPTY}, {})
    assert REF in wrong
    closely.repair([REF])


class Written:
    """Hears of writes to the groups in a set."""

    is_partial = False

    def __init__(self) -> None:
        self.groups: set[str] = set()
        self.events = 0

    def listen(self) -> int:
        return self.events

    def is_quiet(self, group: str) -> bool:
        was = group in self.groups
        self.groups.discard(group)
        return not was


def test_a_limit_is_read_again_only_if_it_was_wrong_or_is_another_or_something_was_written(groups: Groups) -> None:
    groups.has()
    closely, hearing = look_at(groups), Written()
    closely.brevity.hearing = hearing

    def reads(limit: Limit) -> int:
        before = groups.read
        closely.look({REF: EMPTY}, {REF: limit})
        return groups.read - before

    assert [reads(Limit(100)), reads(Limit(100))] == [1, 0]
    hearing.groups.add(str(groups.root))
    assert [reads(Limit(100)), reads(Limit(100))] == [1, 0]
    hearing.groups.add(str(groups.root.parent))
    assert [reads(Limit(100)), reads(Limit(100))] == [1, 0]
    assert [reads(Limit(200)), reads(Limit(200))] == [1, 0]
    hearing.groups.add(str(groups.root))
    groups.wrong_limit = "another quota"
    assert [reads(Limit(200)), reads(Limit(200))] == [1, 1]
    groups.wrong_limit = ""
    assert [reads(Limit(200)), reads(Limit(200))] == [1, 0]


def test_without_hearing_a_limit_is_read_at_each_look(groups: Groups) -> None:
    groups.has()
    closely = look_at(groups)
    for _ in range(2):
        closely.look({REF: EMPTY}, {REF: Limit()})
    assert groups.read == 2


MANY = {ContainerRef(PodUID(f"uid-{number}"), "main"): EMPTY for number in range(1_000)}
"""The containers of a large host; all have one group here."""


def looked_twice(
    groups: Groups, hearing: Written, between: Callable[[], None] = lambda: None, after: float = 10.0
) -> set[Cause]:
    """Return what the second look at many containers finds, of which a process was moved out after the first."""
    clock = Clock()
    with sleeping() as main:
        groups.has(main.pid)
        closely = look_at(groups, main, clock)
        closely.brevity.hearing = hearing
        here = {REF: PROC.allowed(main.pid)}
        assert closely.look(MANY | here, {}) == ({}, {})
        groups.has()
        between()
        clock.now += after
        return {fault.cause for fault in closely.look(MANY | here, {})[1].values()}


def test_of_many_containers_not_all_are_read_at_each_look(groups: Groups) -> None:
    assert looked_twice(groups, Written()) == set()


def test_of_many_containers_all_are_read_after_an_event(groups: Groups) -> None:
    hearing = Written()

    def write() -> None:
        hearing.events += 1

    assert looked_twice(groups, hearing, write) == {Cause.MEMBERS}


def test_of_many_containers_all_are_read_where_not_every_group_is_heard_of(groups: Groups) -> None:
    hearing = Written()
    hearing.is_partial = True
    assert looked_twice(groups, hearing) == {Cause.MEMBERS}


def test_of_many_containers_all_are_read_after_three_minutes_without_a_look(groups: Groups) -> None:
    assert looked_twice(groups, Written(), after=181) == {Cause.MEMBERS}


def test_many_containers_have_their_turn_one_after_the_other_within_three_minutes() -> None:
    clock, hearing = Clock(), Written()
    brevity: Brevity[ContainerRef] = Brevity(clock)
    brevity.hearing = hearing
    assert brevity.part(MANY) == MANY
    brevity.looked(MANY, clean=True)
    parts = []
    for _ in range(19):
        clock.now += 10
        parts.append(brevity.part(MANY))
    assert max(map(len, parts)) < 60
    assert [ref for part in parts[:18] for ref in part] == list(MANY)
    assert not parts[18], "an empty part begins the next round"


def test_of_many_containers_a_process_that_was_moved_out_is_found_in_its_turn(groups: Groups) -> None:
    clock = Clock()
    with sleeping() as main:
        groups.has(main.pid)
        closely = look_at(groups, main, clock)
        closely.brevity.hearing = Written()
        all_of_them = MANY | {REF: PROC.allowed(main.pid)}
        assert closely.look(all_of_them, {}) == ({}, {})
        groups.has()
        causes: list[Cause] = []
        while not causes and clock.now < 240:
            clock.now += 10
            causes += [fault.cause for fault in closely.look(all_of_them, {})[1].values()]
        assert causes == [Cause.MEMBERS]
        assert clock.now <= 190


def test_of_many_containers_a_process_on_other_cpus_is_found_at_each_look(groups: Groups) -> None:
    with sleeping() as main:
        groups.has(main.pid)
        closely = look_at(groups, main)
        closely.brevity.hearing = Written()
        here = {REF: PROC.allowed(main.pid)}
        assert closely.look(here | MANY, {}) == ({}, {})
        wrong, _ = closely.look({REF: EMPTY} | MANY, {})
        assert REF in wrong


def test_of_many_sharing_containers_one_reading_of_the_pool_tells_who_is_on_its_cpus(groups: Groups) -> None:
    groups.pool = groups.root.parent / "shared"
    groups.pool.mkdir()
    with sleeping() as main:
        groups.has(main.pid)
        for place in (groups.root, groups.pool):
            (place / "tasks").write_text(f"{main.pid}\n")
        closely = look_at(groups, main)
        closely.brevity.hearing = Written()
        assert closely.look({REF: PROC.allowed(main.pid)} | MANY, {REF: Limit()}) == ({}, {})
        elsewhere = {REF: EMPTY} | MANY
        assert closely.look(elsewhere, {REF: Limit()}) == ({}, {}), "in the pool, so not asked for by itself"
        (groups.pool / "tasks").write_text("")
        assert REF in closely.look(elsewhere, {REF: Limit()})[0]


def test_of_many_containers_the_main_process_of_a_new_owner_is_asked_for_beside_a_pool_that_is_the_same(
    groups: Groups,
) -> None:
    groups.pool = groups.root.parent / "shared"
    groups.pool.mkdir()
    mains: dict[ContainerRef, Main] = {}
    closely = CloseLook(cast("ProcessGroups", groups), mains, (), Brevity(Clock()))
    closely.brevity.hearing = Written()
    with sleeping() as main:
        groups.has(main.pid)
        for place in (groups.root, groups.pool):
            (place / "tasks").write_text(f"{main.pid}\n")
        for _ in range(2):
            assert closely.look({REF: EMPTY} | MANY, dict.fromkeys(MANY, Limit())) == ({}, {})
        mains[REF] = main
        assert REF in closely.look({REF: EMPTY} | MANY, dict.fromkeys(MANY, Limit()))[0]
