"""Ending: processes are killed and watched, and the loop waits for none of them."""

from __future__ import annotations

import asyncio
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import pytest

from pinfold.core.pods.pod import ContainerRef, PodUID
from pinfold.node.processgroups.errors import NoGroupError
from pinfold.runtimes.base import StillRunning
from pinfold.runtimes.processes import ending
from pinfold.runtimes.processes.ending import Ending

if TYPE_CHECKING:
    from pinfold.node.processgroups.groups import ProcessGroups

REF = ContainerRef(PodUID("uid"), "main")
NO_PROCESS = (1 << 22) - 1


@dataclass
class Group:
    """A group of real processes; a test takes out those that have ended."""

    pids: list[int]
    removed: bool = False

    def group(self, ref: ContainerRef) -> Group:
        if self.removed:
            raise NoGroupError(ref)
        return self

    def members(self) -> list[int]:
        return list(self.pids)


def sleeping() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "60"])


def test_killed_processes_are_told_as_running_until_the_loop_hears_of_their_end() -> None:
    async def life() -> None:
        processes = [sleeping() for _ in range(2)]
        group = Group([process.pid for process in processes])
        killing, heard = Ending(cast("ProcessGroups", group)), asyncio.Event()
        killing.ended = heard.set
        try:
            with pytest.raises(StillRunning):
                killing.end(REF)
            await asyncio.wait_for(heard.wait(), 30)
        finally:
            for process in processes:
                process.kill()
                process.wait()
        group.pids.clear()
        killing.end(REF)

    asyncio.run(life())


def test_more_processes_than_are_watched_at_once_are_killed_by_and_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "_AT_ONCE", 1)

    async def life() -> None:
        processes = [sleeping() for _ in range(3)]
        group = Group([process.pid for process in processes])
        killing = Ending(cast("ProcessGroups", group))
        for process in processes:
            heard = asyncio.Event()
            killing.ended = heard.set
            with pytest.raises(StillRunning):
                killing.end(REF)
            await asyncio.wait_for(heard.wait(), 30)
            process.wait(timeout=30)
            group.pids.remove(process.pid)
        killing.end(REF)

    asyncio.run(life())


def test_a_process_that_ends_before_it_is_opened_is_passed_over() -> None:
    with pytest.raises(StillRunning, match=str(NO_PROCESS)):
        Ending(cast("ProcessGroups", Group([NO_PROCESS]))).end(REF)


def test_a_container_whose_group_another_program_has_removed_has_ended() -> None:
    Ending(cast("ProcessGroups", Group([], removed=True))).end(REF)
