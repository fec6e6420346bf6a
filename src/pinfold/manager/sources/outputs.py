"""Keeps what containers print within bounds: looks at the files again and again, in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pinfold.node.reserve import keep_reserve

if TYPE_CHECKING:
    from pathlib import Path

    from pinfold.manager.sources.workbook import Workbook
    from pinfold.node.outputs import Outputs

_URGENT: Final = -10
"""The priority of the thread, if that is permitted: containers that print without end leave it little time."""
_IDLE: Final = 10.0
"""Seconds between looks while no container of ours prints."""


async def bound_outputs(outputs: Outputs, workbook: Workbook, state_dir: Path) -> None:
    """Cut the output of containers that print too much, and remove that of containers long gone, for ever.

    The reserve in *state_dir* is made again as soon as there is room for it.
    """
    with ThreadPoolExecutor(1, initializer=_hurry) as thread:
        while True:
            look = await asyncio.get_running_loop().run_in_executor(thread, outputs.look, workbook.outputs())
            await asyncio.get_running_loop().run_in_executor(thread, keep_reserve, state_dir)
            current = workbook.outputs()
            for name in look.ended:
                if name not in current:  # a pod of this name may have started meanwhile
                    outputs.remove(name)
            await _pause(workbook, look.pause)


async def _pause(workbook: Workbook, seconds: float) -> None:
    """Wait so long; if no container can print, until one is added."""
    if workbook.outputs():
        await asyncio.sleep(seconds)
        return
    workbook.started.clear()
    with suppress(TimeoutError):
        await asyncio.wait_for(workbook.started.wait(), _IDLE)


def _hurry() -> None:
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _URGENT)
