"""CloseLook: processes and limits that another program has changed; groups are directories here, processes are real."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pytest

from pinfold.core.machine.cpuset import EMPTY
from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.core.reconcile import Cause
from pinfold.node.processgroups.errors import NoGroupError
from pinfold.node.procfs import PROC
from pinfold.runtimes.base import Main
from pinfold.runtimes.processes.closelook import CloseLook
from pinfold.runtimes.processes.pids import started

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pinfold.core.reconcile import Limit
    from pinfold.node.processgroups.groups import ProcessGroups

REF = ContainerRef(PodUID("uid"), "main")


@dataclass
class Groups:
    """One container's group and a place outside, as directories that list their processes."""

    root: Path
    name: str = "pinfold"
    limited: str = ""
    expelled: list[int] = field(default_factory=list)

    @property
    def limits(self) -> Groups:
        return self

    def wrong(self, _ref: ContainerRef, _limit: Limit) -> str:
        return ""

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
        return [self.root]

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


@pytest.fixture
def groups(tmp_path: Path) -> Groups:
    return Groups(tmp_path / "group")


def look_at(groups: Groups, main: Main | None = None) -> CloseLook:
    return CloseLook(cast("ProcessGroups", groups), {} if main is None else {REF: main}, ())


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
    with sleeping() as stranger:
        groups.has(stranger.pid)
        closely = look_at(groups)
        _, faults = closely.look({REF: PROC.allowed(stranger.pid)}, {})
        assert faults[REF].cause is Cause.STRANGERS
        closely.repair([])
        assert groups.expelled == [stranger.pid]
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
