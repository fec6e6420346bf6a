"""Bounding output: the daemon looks at files only while a container can write to one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pinfold.manager.sources.outputs import bound_outputs
from pinfold.manager.sources.workloads import WorkloadKind
from pinfold.node.outputs import Look, Outputs
from tests.unit.manager.sources.test_supervisor import APP, Clock, Host, on_a_clock

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path


class Watched(Outputs):
    """Outputs that say when they are looked at."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.looks: asyncio.Queue[None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()

    def look(self, current: Collection[str]) -> Look:
        self._loop.call_soon_threadsafe(self.looks.put_nowait, None)
        return super().look(current)


def test_files_are_looked_at_only_while_a_container_can_write_to_them(tmp_path: Path) -> None:
    async def scenario(host: Host, clock: Clock) -> None:
        outputs, workbook = Watched(tmp_path / "logs"), host.loop.workbook
        bounding = asyncio.create_task(bound_outputs(outputs, workbook, tmp_path))
        await outputs.looks.get()
        workbook.take(workbook.new(APP, WorkloadKind.RUN))  # writes to its own terminal
        await outputs.looks.get()
        await clock.leap(5)
        assert outputs.looks.empty()
        workbook.drop(workbook.workloads[APP.uid])
        workbook.take(workbook.new(APP, WorkloadKind.POD))
        for _ in range(3):
            await clock.leap(1)
            await outputs.looks.get()
        bounding.cancel()

    on_a_clock(tmp_path, scenario)
