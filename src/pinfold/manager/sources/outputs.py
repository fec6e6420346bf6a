"""Keeps what containers print within bounds: looks at the files again and again, in a thread."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pinfold.manager.sources.workbook import Workbook
    from pinfold.node.outputs import Outputs


async def bound_outputs(outputs: Outputs, workbook: Workbook) -> None:
    """Cut the output of containers that print too much, and remove that of containers long gone, for ever."""
    while True:
        look = await asyncio.to_thread(outputs.look, workbook.outputs())
        current = workbook.outputs()
        for name in look.ended:
            if name not in current:  # a pod of this name may have started meanwhile
                outputs.remove(name)
        await asyncio.sleep(look.pause)
